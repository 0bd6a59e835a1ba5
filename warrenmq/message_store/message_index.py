"""The store's index: the place of each message (rabbit_msg_store_ets_index).

Concurrency.  Only the store's process changes it.  Clients look up without a lock: an entry is one immutable tuple
behind one dict key, so they see the old place or the new one.  (In RabbitMQ the garbage collector changes entries too,
field by field beside the store; here it reports the new places, and the store enters them.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Entry: TypeAlias = tuple[int, int, int, int]
"""(ref_count, file, offset, total_size); a plain tuple, which the cyclic collector does not track."""


class MessageIndex:
    """Message id -> entry.  One with no references stays until its file is vacuumed: a write may revive it."""

    def __init__(self, entries: dict[bytes, Entry]) -> None:
        self._entries = entries
        self.lookup = entries.get
        """The entry of a message, or None.  For every thread."""
        self.items = entries.items
        """The store's."""

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, msg_id: bytes, entry: Entry) -> None:
        """Add a message that has no entry."""
        assert msg_id not in self._entries
        self._entries[msg_id] = entry

    def count(self, msg_id: bytes, difference: int) -> int:
        """Add to the references of a message; returns how many there are now."""
        refs, file, offset, total = self._entries[msg_id]
        refs += difference
        assert refs >= 0
        self._entries[msg_id] = (refs, file, offset, total)
        return refs

    def move(self, msg_id: bytes, file: int, offset: int) -> None:
        """The record was copied to another place."""
        refs, _, _, total = self._entries[msg_id]
        self._entries[msg_id] = (refs, file, offset, total)

    def relocate(self, msg_id: bytes, file: int, source: int, target: int) -> None:
        """The record was copied to another place of its file, unless its entry went elsewhere meanwhile.

        A message that lost its last reference while its file was at the collector may have been written anew.
        """
        entry = self._entries.get(msg_id)
        if entry is not None and entry[1:3] == (file, source):
            self._entries[msg_id] = (entry[0], file, target, entry[3])

    def delete(self, msg_id: bytes) -> None:
        del self._entries[msg_id]

    def vacuum(self, file: int, msg_ids: Iterable[bytes]) -> None:
        """Delete the entries without references, of messages that were put into this file."""
        for msg_id in msg_ids:
            entry = self._entries.get(msg_id)
            if entry is not None and entry[1] == file and not entry[0]:
                del self._entries[msg_id]

    def living(self, file: int, msg_ids: Iterable[bytes]) -> list[tuple[bytes, int, int]]:
        """(message id, offset, total size) of the referenced messages among those put into this file, ascending."""
        found = {}
        for msg_id in msg_ids:
            entry = self._entries.get(msg_id)
            if entry is not None and entry[1] == file and entry[0]:
                found[msg_id] = entry
        return sorted(((m, entry[2], entry[3]) for m, entry in found.items()), key=lambda each: each[1])
