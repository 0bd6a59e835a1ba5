"""The damage found since a directory was opened, for the log and for `Broker.stats`."""

from __future__ import annotations

from collections.abc import Iterable

from warrenmq.errors import CorruptFile
from warrenmq.log import Log
from warrenmq.seams.disk_errors import FileDeleted

MOST = 1_000
"""Places that are remembered and logged; a directory that is full of damage says nothing new with the next one."""


class DamageLog:
    """A list that the processes of a vhost append to, each when it recovers or reads what is its own.

    Any thread may add: appending to a list is atomic.
    """

    def __init__(self) -> None:
        self.places: list[CorruptFile] = []
        """The first ones, in the order in which they were found."""
        self._log = Log("warrenmq.damage")

    def add(self, found: Iterable[CorruptFile]) -> None:
        """Remember and log damage."""
        for each in found:
            if len(self.places) >= MOST:
                continue
            self.places.append(each)
            self._log.warning("damage was found", file=each.path, offset=each.offset, reason=each.reason)

    def ended(self, reason: object) -> None:
        """Remember a file that was deleted, if a process that had it open ended for that reason."""
        if isinstance(reason, FileDeleted):
            self.add([CorruptFile(reason.filename, 0, str(reason.strerror))])
