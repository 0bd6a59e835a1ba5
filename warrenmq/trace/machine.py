"""The identity of this boot of the machine, and whether a process that recorded a trace has ended."""

from __future__ import annotations

import os

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def machine_boot() -> str:
    """The id that Linux draws at each boot of the machine; "" on other systems."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def has_ended(machine: str, pid: int) -> bool:
    """True if a process of a machine is known to have ended: the machine is this one, not started again, and
    has no such process.
    """
    if not machine or not pid or machine != machine_boot():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
