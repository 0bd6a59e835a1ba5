"""The file in which a durable queue with a delivery limit keeps how often messages came back, for the next start.

    .delivery-counts    records of 16 bytes, appended; the last one of a sequence id holds

    |0                   |8          |12         |16
    +--------------------+-----------+-----------+
    | sequence id (u64)  | count     | CRC-32    |
    +--------------------+-----------+-----------+

It is appended to without a sync, so that a message that comes back waits for no disk: a crash of the process
loses nothing of it, a power cut perhaps the last counts, which then are lower than they were.  A record whose
check sum is wrong counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from struct import Struct
from zlib import crc32

from warrenmq.seams.disk import Disk
from warrenmq.seams.disk_errors import lack_of

NAME = ".delivery-counts"
_PAIR, _RECORD = Struct(">QI"), Struct(">QII")
_FEW = 1_024
"""Records that need not be fewer."""


class ReturnCounts:
    """The file of one queue."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._records = 0
        self._anew = False
        """The next `add` writes all counts anew: the file may end in half a record, or be of messages that are gone."""

    def read(self, live: Iterable[tuple[int, int]]) -> dict[int, int]:
        """The counts of the messages that are there; `live` has the first and the number of each run of sequence ids."""
        if not self._disk.exists(self._path):
            return {}
        data = self._disk.read(self._path)
        whole = len(data) - len(data) % _RECORD.size
        told = {
            seq: count
            for seq, count, check in _RECORD.iter_unpack(data[:whole])
            if check == _check(seq, count)
        }
        counts = {
            seq: told[seq]
            for first, length in (live if told else ())
            for seq in sorted(told.keys() & range(first, first + length))
        }
        self._anew = True
        # else a message that gets the sequence id of one that is gone has its count at the next start
        if counts.keys() != told.keys():
            self._write_anew(counts)
        return counts

    def add(self, changed: Iterable[int], counts: Mapping[int, int]) -> None:
        """Keep the counts of the messages that have changed; `counts` has those of all."""
        if self._anew or self._records > max(_FEW, 4 * len(counts)):
            self._write_anew(counts)
            return
        with self._as_far_as_there_is_room():
            data = _records(changed, counts)
            file = self._disk.open(self._path, create=True)
            try:
                file.append(data)
            finally:
                file.close()
            self._records += len(data) // _RECORD.size

    def _write_anew(self, counts: Mapping[int, int]) -> None:
        with self._as_far_as_there_is_room():
            self._disk.replace(self._path, _records(counts, counts))
            self._records, self._anew = len(counts), False

    @contextmanager
    def _as_far_as_there_is_room(self) -> Iterator[None]:
        """Write counts, which are not worth a message: where there is no room for them all are written anew the next time."""
        try:
            yield
        except OSError as error:
            if lack_of(error) is None:
                raise
            self._anew = True

    def remove(self) -> None:
        """Forget all counts."""
        if self._disk.exists(self._path):
            self._disk.unlink(self._path)
        self._records = 0


def _records(seqs: Iterable[int], counts: Mapping[int, int]) -> bytes:
    return b"".join(_RECORD.pack(seq, count := counts[seq], _check(seq, count)) for seq in seqs)


def _check(seq: int, count: int) -> int:
    return crc32(_PAIR.pack(seq, count))
