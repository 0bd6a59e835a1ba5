"""What each file of a store holds (rabbit_msg_store_file_summary).

The files form a row from the eldest to the current one, in ascending number; only neighbours are ever combined.

Concurrency.  The store alone adds, removes and counts, so `valid_total_size`, `file_size`, `left`, `right` and `ids`
need no lock.  `locked` and `readers` decide between a client that wants to read a file and the garbage collector
that wants to rewrite it, so they change under one lock:

    client       begin_read: refused if locked or current, else one reader more.  end_read
    store        lock_file, then sends the file to the collector
    collector    waits until a locked file has no reader; whoever ends the last read tells it

RabbitMQ has two counters without a lock here and a client that looks twice (reference, section 4.4, steps 3 to 6); the
outcome is the same.  Readers are counted by client, so that those of a dead client can be released.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class FileRow:
    """One file."""

    left: int | None
    right: int | None
    valid_total_size: int = 0
    """Bytes of the records in it that are referenced."""
    file_size: int = 0
    locked: bool = False
    """It is at the garbage collector."""
    readers: dict[bytes, int] = field(default_factory=dict)
    """Client -> direct reads in progress."""
    ids: list[bytes] = field(default_factory=list)
    """Messages that were put here, in order of offset.  Some may have gone elsewhere: the index decides."""


class FileSummary:
    """File number -> FileRow, ascending."""

    def __init__(self) -> None:
        self.rows: dict[int, FileRow] = {}
        self.current = -1
        """The file that is appended to: the last one."""
        self.sum_valid_data = 0
        self.sum_file_size = 0
        self._lock = Lock()

    # the store's

    def add(self, number: int) -> FileRow:
        """A new current file."""
        row = FileRow(left=self.current if self.rows else None, right=None)
        if row.left is not None:
            self.rows[row.left].right = number
        self.rows[number] = row
        self.current = number
        return row

    def appended(self, msg_id: bytes, total: int) -> None:
        """A record of `total` bytes was appended to the current file."""
        row = self.rows[self.current]
        row.valid_total_size += total
        row.file_size += total
        row.ids.append(msg_id)
        self.sum_valid_data += total
        self.sum_file_size += total

    def remove(self, number: int) -> None:
        """The file is gone; its neighbours become neighbours."""
        row = self.rows.pop(number)
        if row.left is not None:
            self.rows[row.left].right = row.right
        if row.right is not None:
            self.rows[row.right].left = row.left
        self.sum_file_size -= row.file_size
        self.sum_valid_data -= row.valid_total_size

    def resize(self, number: int, *, valid: int, size: int) -> None:
        """The file was rewritten: set both sizes."""
        row = self.rows[number]
        self.sum_valid_data += valid - row.valid_total_size
        self.sum_file_size += size - row.file_size
        row.valid_total_size, row.file_size = valid, size

    def add_valid(self, number: int, difference: int) -> FileRow:
        """References to a record of the file came or went."""
        row = self.rows[number]
        row.valid_total_size += difference
        self.sum_valid_data += difference
        return row

    def lock_file(self, number: int) -> None:
        """From now on nobody begins to read the file directly."""
        with self._lock:
            self.rows[number].locked = True

    def unlock_file(self, number: int) -> None:
        with self._lock:
            self.rows[number].locked = False

    def is_locked(self, number: int) -> bool:
        return self.rows[number].locked

    # the clients'

    def begin_read(self, number: int, reader: bytes) -> bool:
        """Enter a file; False if it is locked, the current one, or gone: ask the store."""
        with self._lock:
            row = self.rows.get(number)
            if row is None or row.locked or row.right is None:
                return False
            row.readers[reader] = row.readers.get(reader, 0) + 1
        return True

    def end_read(self, number: int, reader: bytes) -> bool:
        """Leave a file; True if the collector must be told that it has no readers any more."""
        with self._lock:
            row = self.rows.get(number)
            if row is None or reader not in row.readers:
                return False  # released as a dead client's
            left = row.readers[reader] - 1
            if left:
                row.readers[reader] = left
            else:
                del row.readers[reader]
            return row.locked and not row.readers

    def release_reader(self, reader: bytes) -> list[int]:
        """The client is dead; the files whose last reader it was, and that the collector waits for."""
        with self._lock:
            left = [n for n, row in self.rows.items() if row.readers.pop(reader, 0)]
            return [n for n in left if self.rows[n].locked and not self.rows[n].readers]

    # the collector's

    def first_with_readers(self, numbers: Iterable[int]) -> int | None:
        """The first of these files that somebody reads."""
        with self._lock:
            return next((n for n in numbers if self.rows[n].readers), None)
