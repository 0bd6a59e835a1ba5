"""The number of times that this process had a disk make something durable, over all its brokers."""

from __future__ import annotations


class SyncCount:
    """A number that only grows; not exact to the last one, as threads add to it without a lock."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


SYNCS = SyncCount()
"""The syncs of RealDisk: a file's, or a folder's."""
