"""The memory seam: how much this process uses, and how much it may use at most (vm_memory_monitor's OS part).

`RealMemory` asks the operating system; `warrenmq.testing.SimulatedMemory` is numbers that a test sets.  Used is the resident
set, as RabbitMQ counts by default (vm_memory_calculation_strategy = rss).  The total is the smallest of

    the machine's physical memory
    memory.max of the process's cgroup and of those above it (v2), or memory.limit_in_bytes (v1): a container's limit
    RLIMIT_AS, the address space that the process may have (RabbitMQ's get_vm_limit)

RabbitMQ itself takes the machine's memory even in a container, unless total_memory_available_override_value is set.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Protocol

from warrenmq.errors import ResourceError
from warrenmq.seams.disk_errors import is_short_of_descriptors

LARGE = 1 << 20
"""Bytes of messages above which it is worth looking whether there is room for them."""
_M_ARENA_MAX = -8
"""glibc's number of the parameter, in malloc.h."""
_COPIES = 3
"""The copies of a message on its way from its publisher to the disk."""
MEMORY_SIZE_FOR_UNKNOWN_OS = 1 << 30
"""Assumed where the operating system does not say (RabbitMQ's constant)."""


def check_room(size: int) -> None:
    """Raise ResourceError if there is no memory for messages of so many bytes, more than LARGE, and the
    copies that are made of them.

    Asked before anything is sent: a queue or a store that runs out of memory while it takes them in has to be
    restarted, and others with it.
    """
    try:
        mmap.mmap(-1, _COPIES * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError) as error:
        raise no_memory(f"messages of {size} bytes") from error


def no_memory(what: str) -> ResourceError:
    """The refusal of what there is no memory for."""
    return ResourceError(
        f"there is no memory for {what}; free some, or raise the limit of this process, and try again"
    )


def have_one_heap() -> None:
    """Have the C library's threads share one heap, for a process that is all ours; called before there are any.

    glibc gives each thread a heap of its own.  Under one GIL that saves no wait, and large bodies, which one
    thread makes and another frees, leave holes in all of them: a server that never held 70 MB at a time grew
    to 340.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


class Memory(Protocol):
    """The memory of a process, in use and at most."""

    def used(self) -> int | None:
        """Bytes of it that are in use; None when the operating system does not say."""

    def total(self) -> int:
        """Bytes that may be in use at most."""

    def release(self) -> None:
        """Give the system back what is free in this process but counted as used."""


class RealMemory:
    """The memory of this process.  `root` is where the system's own file trees (/proc, /sys) begin."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._statm = self._root / "proc/self/statm"
        self._last: int | None = None
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        """glibc's; without it the allocator keeps pages of freed messages, and an alarm would outlive its cause."""

    def used(self) -> int | None:
        """The second number of statm, in pages; where there is no /proc (macOS, BSD), what `ps` says.

        Without a free file descriptor it is what was found the last time.
        """
        try:
            self._last = int(self._statm.read_bytes().split()[1]) * resource.getpagesize()
        except OSError as error:
            if not is_short_of_descriptors(error):
                self._last = _resident_by_ps()
        except (ValueError, IndexError):
            self._last = _resident_by_ps()
        return self._last

    def total(self) -> int:
        limits = [_physical() or MEMORY_SIZE_FOR_UNKNOWN_OS, *self._cgroup_limits()]
        address_space, _hard = resource.getrlimit(resource.RLIMIT_AS)
        if address_space != resource.RLIM_INFINITY:
            limits.append(address_space)
        return min(limits)

    def release(self) -> None:
        if self._trim is not None:
            self._trim(0)

    def _cgroup_limits(self) -> Iterator[int]:
        """Every limit on the way from the process's cgroup to the root; what is not there limits nothing.

        Inside a container the path that /proc/self/cgroup names is often one of the host, which does not exist
        below the container's own mount; the mount's root then is the container's cgroup.
        """
        try:
            memberships = (self._root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            return
        for membership in memberships:
            _id, controllers, path = membership.split(":", 2)
            if not controllers:
                mount, file = "sys/fs/cgroup", "memory.max"
            elif "memory" in controllers.split(","):
                mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
            else:
                continue
            group = PurePosixPath(path.lstrip("/"))
            for folder in (group, *group.parents):
                with suppress(OSError, ValueError):  # absent, or "max"
                    yield int((self._root / mount / folder / file).read_text())


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
    except (OSError, ValueError):
        return None


def _resident_by_ps() -> int | None:
    import subprocess  # noqa: PLC0415  # only systems without /proc need it

    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=5, check=True)
        return int(answer.stdout) * 1024
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
