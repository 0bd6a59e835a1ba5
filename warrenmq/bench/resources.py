"""Bytes on the disk and in memory that a measure uses."""

from __future__ import annotations

import os
import resource
import sys
import time


def settled_disk(directory: str, wanted: float, patience: float = 10.0) -> int:
    """Bytes on disk once the store has collected its garbage, which it does beside the work."""
    end = time.perf_counter() + patience
    while (used := disk_used(directory)) > wanted and time.perf_counter() < end:
        time.sleep(0.05)
    return used


def disk_used(directory: str) -> int:
    """Bytes allocated below `directory`, as `du` counts them."""
    used = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                used += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:  # the store deleted it meanwhile
                pass
    return used


def memory_used() -> int:
    """Resident bytes: now, or without /proc the most so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_memory()


def peak_memory() -> int:
    """The most resident bytes that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
