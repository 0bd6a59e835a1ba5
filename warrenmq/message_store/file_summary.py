"""The file summary: size, valid bytes and readers of each file of a store (rabbit_msg_store_file_summary).

The files form a row from the eldest to the current one, in ascending number; only neighbours are ever combined.

Concurrency.  The store alone adds, removes and counts, so `valid_total_size`, `file_size`, `left`, `right` and `ids`
need no lock.  `locked` and `readers` decide between a client that wants to read a file and the garbage collector
that wants to change it, so they change under one lock:

    client       begin_read: a mark, higher than all before; end_read
    store        lock_file, then sends the file to the collector
    collector    await_readers: does a client with an old mark still read it?  Then its last such read tells

    | collector        | a locked file           | the current file        | it waits for                             |
    | ---------------- | ----------------------- | ----------------------- | ---------------------------------------- |
    | combine          | no reader begins        | no reader begins        | all readers, before it combines          |
    | compact          | is read as any other    | is read as any other    | readers older than the threshold, before |
    | (`in_place`)     |                         |                         | it truncates                             |

RabbitMQ has two counters without a lock for the first (docs/reference/message-store.md#read-to-312, steps 3 to 6),
and times of reading for
the second; the outcome is the same.  Readers are known by client: those of a dead one are released, and a client that
was not admitted, or is dead, begins no read.  So nothing that a client leaves behind can make the collector wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True)
class FileRow:
    """One file."""

    left: int | None
    right: int | None
    valid_total_size: int = 0
    """Bytes of the records in it that are referenced."""
    file_size: int = 0
    locked: bool = False
    """True while the file is at the garbage collector."""
    readers: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Client -> (direct reads in progress, mark of the first of them)."""
    awaited: int | None = None
    """The collector waits until no reader with this mark or an older one is left."""
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
        self.in_place = False
        """Files are compacted in place: a lock keeps no reader out, and the current file can be read, too."""
        self._mark = 0
        """Counts the reads: a read's mark tells which came before it."""
        self._clients: set[bytes] = set()
        """Clients that may read (`admit`)."""
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
        """Lock a file that the collector is to work on."""
        with self._lock:
            self.rows[number].locked = True

    def unlock_file(self, number: int) -> None:
        with self._lock:
            self.rows[number].locked = False

    def is_locked(self, number: int) -> bool:
        return self.rows[number].locked

    def last_mark(self) -> int:
        """Every reader that begins from now on has a higher one."""
        with self._lock:
            return self._mark

    def admit(self, reader: bytes) -> None:
        """A client that may read."""
        with self._lock:
            self._clients.add(reader)

    def release_reader(self, reader: bytes) -> list[int]:
        """The client is dead.  Returns the files that the collector need not wait for any more."""
        with self._lock:
            self._clients.discard(reader)
            for row in self.rows.values():
                row.readers.pop(reader, None)
            # not only those that it read: it may have died between its last read and its message to the collector
            return [n for n, row in self.rows.items() if _is_over(row)]

    # the clients'

    def begin_read(self, number: int, reader: bytes) -> int:
        """Enter a file: the mark of this read; 0 if that cannot be: ask the store."""
        with self._lock:
            row = self.rows.get(number)
            if row is None or reader not in self._clients:
                return 0
            if not self.in_place and (row.locked or row.right is None):
                return 0
            self._mark += 1
            count, first = row.readers.get(reader, (0, self._mark))
            row.readers[reader] = count + 1, first
            return self._mark

    def end_read(self, number: int, reader: bytes) -> bool:
        """Leave a file; True if the collector must be notified that the last reader has left."""
        with self._lock:
            row = self.rows.get(number)
            if row is None or reader not in row.readers:
                return False  # released as a dead client's
            count, first = row.readers.pop(reader)
            if count > 1:
                row.readers[reader] = count - 1, first
            return _is_over(row)

    # the collector's

    def await_readers(self, numbers: Iterable[int], threshold: int | None) -> int | None:
        """The first of these files with a read that began no later than `threshold` (None = ever).

        The end of the last such read will say so.
        """
        with self._lock:
            for number in numbers:
                row = self.rows[number]
                row.awaited = self._mark if threshold is None else threshold
                if not _is_over(row):
                    return number
                row.awaited = None
        return None


def _is_over(row: FileRow) -> bool:
    """True if the collector waited, and need not."""
    awaited = row.awaited
    return awaited is not None and all(first > awaited for _, first in row.readers.values())
