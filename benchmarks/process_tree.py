"""Processor time and memory of a process and its descendants, from /proc.

A tree is a session (setsid), which its members stay in when their parents die; so the process that is
measured is started with `start_new_session=True`.  A process that ended is in the times of the parent that
waited for it.
"""

from __future__ import annotations

import os
import threading
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_SESSION, _UTIME, _CSTIME = 3, 11, 14
"""Fields of /proc/PID/stat, counted from behind the command's name."""


class ProcessTree:
    """The session that `leader` leads; its memory is sampled while a `with` block runs, and at its end."""

    def __init__(self, leader: int, every: float = 0.25):
        self._session = leader
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak_mb = 0.0
        """The largest sum of PSS, which counts a page that processes share only once."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    def cpu_seconds(self) -> float:
        """Since the session began."""
        return sum(sum(map(int, fields[_UTIME : _CSTIME + 1])) for _, fields in self._members()) / _TICKS

    def _sample(self) -> None:
        done = False
        while not done:
            done = self._done.wait(self._every)
            self.peak_mb = max(self.peak_mb, sum(_pss_mb(pid) for pid, _ in self._members()))

    def _members(self) -> list[tuple[str, list[str]]]:
        members = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[_SESSION]) == self._session:
                members.append((pid, fields))
        return members


def _pss_mb(pid: str) -> float:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0) / 1024
    except OSError:
        return 0.0
