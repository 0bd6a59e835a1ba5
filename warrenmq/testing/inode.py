"""A file of the simulated disk between its syncs: what a power cut, or a sync that fails, leaves of its changes.

An inode has two contents: what a reader sees now, and what the platter holds.  Between them lies an ordered
list of changes that are not yet synced.  A power cut keeps a random prefix of them; the first one that is
lost may be torn: some of its bytes arrived, and the file may already have its new length, filled with zeros
from where the change or a sector begins (a disk writes sectors as a whole).  Without `in_order`: any of the
changes, and any of them torn.

A sync that fails loses what it should have saved, as Linux does: its pages are taken for clean, though any of
them may not have arrived, so a later sync that succeeds does not save them.  Readers see them until the
system needs their memory for others, and then what is on the platter.
"""

from __future__ import annotations

from random import Random

from warrenmq.seams.disk import SECTOR

_FORGOTTEN = 0.5
"""Probability with which the system needs the memory of pages that it took for clean."""


class Change:
    """One unsynced change of an inode: bytes at an offset, or (data is None) a new length."""

    __slots__ = ("data", "offset")

    def __init__(self, data: bytes | None, offset: int) -> None:
        self.data = data
        self.offset = offset

    def apply(self, content: bytearray) -> None:
        """Change the content of a file."""
        data, offset = self.data, self.offset
        if data is None:
            _resize(content, offset)
        else:
            if offset > len(content):
                _resize(content, offset)
            content[offset : offset + len(data)] = data

    def apply_torn(self, content: bytearray, rng: Random, *, may_end_early: bool) -> None:
        """Apply a part of the bytes, as whole sectors, and the new length without the rest; or the file ends
        behind any byte of them.
        """
        if self.data is None:
            return
        end = self.offset + len(self.data)
        arrived = rng.randint(0, len(self.data))
        longer = rng.random() < 0.5 or not may_end_early
        if longer and arrived < len(self.data):
            arrived = max(0, arrived - (self.offset + arrived) % SECTOR)
        if arrived:
            Change(self.data[:arrived], self.offset).apply(content)
        if longer:
            _resize(content, max(len(content), end))


class Inode:
    """A file without its names: what readers see, what the platter holds, and the changes between the two."""

    def __init__(self) -> None:
        self.live = bytearray()
        self.durable = bytearray()
        self.pending: list[Change] = []
        self.has_name = True
        """False once it was deleted, or another file has taken its name."""
        self.bad: set[int] = set()
        """Sectors that cannot be read until they are written to."""

    def change(self, change: Change) -> None:
        """Make a change, which is not synced yet."""
        change.apply(self.live)
        self.pending.append(change)
        if self.bad and change.data is not None:
            self.bad.difference_update(sectors(change.offset, len(change.data)))

    def is_bad(self, offset: int, size: int) -> bool:
        """True if a sector of these bytes cannot be read."""
        return bool(self.bad) and not self.bad.isdisjoint(sectors(offset, min(size, len(self.live) - offset)))

    def sync(self) -> None:
        """Save every change."""
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def fail_to_sync(self, rng: Random) -> None:
        """Take every change for saved: any of them arrived, and readers see the others for a while or not any more."""
        self._save_some(self.durable, rng, may_end_early=False)
        self.pending.clear()
        if rng.random() < _FORGOTTEN:
            size = len(self.live)
            self.live[:] = self.durable
            _resize(self.live, size)

    def _save_some(self, content: bytearray, rng: Random, *, may_end_early: bool) -> None:
        for change in self.pending:
            fate = rng.randrange(3)
            if fate == 0:
                change.apply(content)
            elif fate == 1:
                change.apply_torn(content, rng, may_end_early=may_end_early)

    def after_power_cut(self, rng: Random, *, in_order: bool) -> Inode:
        """The file as it is found when the power is back: some of the changes arrived, the first ones if `in_order`."""
        content = bytearray(self.durable)
        if in_order:
            kept = rng.randint(0, len(self.pending))
            for change in self.pending[:kept]:
                change.apply(content)
            if kept < len(self.pending):
                self.pending[kept].apply_torn(content, rng, may_end_early=True)
        else:
            self._save_some(content, rng, may_end_early=True)
        survivor = Inode()
        survivor.bad = self.bad
        survivor.live = content
        survivor.durable = bytearray(content)
        return survivor


def sectors(offset: int, size: int) -> range:
    """The sectors of these bytes."""
    return range(offset // SECTOR, -(-(offset + size) // SECTOR))


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
