"""The descriptors seam: whether this process is about to run out of file descriptors (file_handle_cache's question).

RabbitMQ counts the handles that it has obtained; here anything in the process may open files and sockets, so
the kernel is asked: it gives the lowest number that is free, which tells how full the table is.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Protocol

_SHARE = 8
"""Short is less than this part of the limit: what is asked to close its files needs some meanwhile, and some to do so."""
_FEWEST = 40
"""Short is also less than this number: queues are stopped sixteen at a time, and each needs two for that."""


class Descriptors(Protocol):
    """The file descriptors of a process; each Disk has those that its files take (`Disk.descriptors`)."""

    def lowest_free(self) -> int | None:
        """The lowest number that is free, so about how many descriptors are in use; None if all are."""

    def are_short(self, promised: int) -> bool:
        """True if the next files may be refused, now or when so many descriptors are in use as those that
        exist have been promised.
        """


class SystemDescriptors:
    """The descriptors of this process."""

    def lowest_free(self) -> int | None:
        try:
            lowest = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        os.close(lowest)
        return lowest

    def are_short(self, promised: int) -> bool:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most == resource.RLIM_INFINITY:
            return False
        lowest, enough = self.lowest_free(), most - max(most // _SHARE, _FEWEST)
        return lowest is None or max(lowest, promised) >= enough


def raise_limit() -> None:
    """Raise the soft limit to the hard one, as servers do; for a process of our own, never for one that embeds a broker."""
    with suppress(OSError, ValueError):  # a hard limit above the kernel's own is refused
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def in_use() -> tuple[int, int]:
    """Descriptors that this process has open, 0 where the system does not tell (/proc), and the most that it may have."""
    folder = "/proc/self/fd"
    return (
        len(os.listdir(folder)) if os.path.isdir(folder) else 0,
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
