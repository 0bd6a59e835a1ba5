"""The journal of a queue: every action since the last flush, in order.

`journal.jif` is a run of

    publish    |0|T|sequence id (62 bits)| record (queue_index/record.py) |     40 bytes and the embedded message
    deliver    |1|0|sequence id (62 bits)|                                 8 bytes
    ack        |1|1|sequence id (62 bits)|                                 8 bytes

T is 1 for a transient message.  There is no header, no checksum and no end mark; zeros to the end of the file are a
tail that a power cut left behind.  Since 3.10 a deliver follows each publish.

Appending is cheap: actions are collected as parts and joined when they are written.  `mark` and `restart` cut off what a
flush has moved to segment files.

Source: rabbit_queue_index, docs/reference/classic-queue.md#journal, #publish-deliver-ack and #torn-tails.
"""

from __future__ import annotations

import sys
from array import array
from itertools import chain
from struct import Struct

from warrenmq.directory.torn import in_doubt
from warrenmq.seams.disk import Disk, File
from warrenmq.seams.disk_errors import is_short_of_descriptors

FILE_NAME = "journal.jif"
WRITE_BUFFER = 1 << 20
"""Bytes collected before they are handed to the operating system without a sync."""

_TRANSIENT = 1 << 62
DELIVER = 2 << 62
_ACK = 3 << 62
_ACK_ONLY = 1 << 6
"""The bit of an action's first byte that tells an ack from a deliver."""
PLAUSIBLE_SEQ_ID = 1 << 48
"""A queue does not come this far: a million messages a second for nine years."""
NO_SEQ_ID = 1 << 62
"""Above every sequence id."""
ACTION_BYTES = 8
TEMPORARY = ".tmp"
"""The end of the names of files that are not finished; a recovery removes them."""
RECLAIM_BYTES = 4 << 20
"""Bytes of a replaced journal that are given back at a time: about a millisecond."""

_pack_action = Struct(">Q").pack
_pack_two_actions = Struct(">QQ").pack


class Journal:
    """The file and the actions that are still to be written to it.  Not thread-safe: it belongs to its index."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = f"{directory}/{FILE_NAME}"
        self._disk = disk
        self._directory = directory
        existed = disk.exists(self.path)
        self.file: File = disk.open(self.path, create=True)
        if not existed:
            try:
                disk.sync_dir(directory)
            except OSError:
                disk.unlink(self.path)  # else it would be taken for a safe one the next time
                raise
        self.size = self.file.size()
        """Bytes in the file."""
        self._parts: list[bytes] = []
        self.buffered = 0
        """Bytes in the buffer."""
        self.buffered_publishes = self.buffered_acks = 0
        self.lowest = NO_SEQ_ID
        """The lowest sequence id of these."""
        self._first_publish = NO_SEQ_ID
        """The lowest sequence id of the buffered publishes."""
        self._acked_unwritten = 0
        """Buffered acks whose publishes are buffered, too."""
        self._copy: File | None = None
        """The next journal, while a restart is being prepared."""
        self._new_path = self.path + TEMPORARY
        self.retired: File | None = None
        """A journal that has been replaced: it has no name any more, only blocks, which `reclaim` gives back."""
        self._retired_size = 0
        self._renamed = False
        """The file has taken the place of another one, and the folder was not synced since, for want of descriptors."""

    def publish_many(self, first_seq_id: int, records: list[bytes], *, persistent: bool) -> None:
        """Add publishes of consecutive sequence ids, each with its deliver."""
        count = len(records)
        publish = first_seq_id if persistent else first_seq_id | _TRANSIENT
        deliver = first_seq_id | DELIVER
        parts = self._parts
        parts.append(_pack_action(publish))
        if count > 1:
            # between two records stand the deliver of the first and the publish of the second
            between = map(
                _pack_two_actions, range(deliver, deliver + count - 1), range(publish + 1, publish + count)
            )
            parts.extend(chain.from_iterable(zip(records, between, strict=False)))
        parts.append(records[-1])
        parts.append(_pack_action(deliver + count - 1))
        self.buffered += 2 * ACTION_BYTES * count + sum(map(len, records))
        self.buffered_publishes += count
        self.lowest = min(self.lowest, first_seq_id)
        self._first_publish = min(self._first_publish, first_seq_id)

    def ack_range(self, first_seq_id: int, count: int) -> None:
        """Add acks of consecutive sequence ids."""
        self._acked_unwritten += max(0, first_seq_id + count - max(first_seq_id, self._first_publish))
        self._add(array("Q", range(_ACK | first_seq_id, (_ACK | first_seq_id) + count)), first_seq_id)

    def ack(self, seq_ids: list[int]) -> None:
        """Add acks."""
        if self.buffered_publishes:
            first = self._first_publish
            self._acked_unwritten += sum(seq_id >= first for seq_id in seq_ids)
        self._add(array("Q", [_ACK | seq_id for seq_id in seq_ids]), min(seq_ids, default=NO_SEQ_ID))

    def _add(self, actions: array[int], lowest: int) -> None:
        if sys.byteorder == "little":
            actions.byteswap()
        self._parts.append(actions.tobytes())
        self.buffered += ACTION_BYTES * len(actions)
        self.buffered_acks += len(actions)
        self.lowest = min(self.lowest, lowest)

    def forget_acked(self) -> int:
        """Empty the buffer if it holds publishes and their acks alone; returns how many messages it held.

        RabbitMQ writes them; a reader makes nothing of them.
        """
        count = self._acked_unwritten
        if not count or not count == self.buffered_publishes == self.buffered_acks:
            return 0
        self._parts = []
        self._note_empty()
        return count

    def write(self) -> None:
        """Hand the buffer to the operating system in one write; after an error it is all still there."""
        data = b"".join(self._parts)
        if not data[-1]:
            data = _end_without_doubt(data, self.size)
        self._parts = [data]
        self.file.append(data)
        self.size += len(data)
        self._parts = []
        self._note_empty()

    def _note_empty(self) -> None:
        self.buffered = self.buffered_publishes = self.buffered_acks = self._acked_unwritten = 0
        self.lowest = self._first_publish = NO_SEQ_ID

    def copy_rest(self, mark: int, most: int) -> bool:
        """Prepare a restart: copy up to `most` more bytes of what it will keep to the new file, and sync them.

        Returns whether there is little enough left to restart now.  Actions may come between the copies.
        """
        if self.size - mark <= most and self._copy is None:
            return True
        if self._copy is None:
            self._copy = self._disk.open(self._new_path, create=True)
            self._copy.truncate(0)
        at = mark + self._copy.size()
        self._copy.append(self.file.pread(most, at))
        self._copy.datasync()
        return self.size - mark - self._copy.size() <= most

    def restart(self, mark: int, last_seq_id: int | None) -> None:
        """Forget the first `mark` bytes of the file: the segment files have them, synced.  The buffer must be empty.

        `last_seq_id` is kept as an ack, for a recovery that would find no other trace of how far the queue had come.
        It has no publish, so it says nothing else (rule (b): "the segment is deleted already").
        """
        trace = _trace_of(last_seq_id)
        if self.size == mark <= RECLAIM_BYTES:
            self._truncate(trace)
            return
        if self._copy is None:
            new = self._disk.open(self._new_path, create=True)
            new.truncate(0)
        else:
            new, self._copy = self._copy, None
        rest = self.file.pread(self.size - mark - new.size(), mark + new.size())
        new.append(_end_without_doubt(rest + trace, new.size()))
        new.datasync()
        self._disk.rename(self._new_path, self.path)
        self._retire(self.file)
        self.file = new
        self.size = new.size()
        self._renamed = True
        try:
            self.have_name()
        except OSError as error:
            # a power cut could leave either journal: not to be tried again
            if not is_short_of_descriptors(error):
                raise RuntimeError(
                    "the folder of a journal that was restarted could not be synced"
                ) from error

    def have_name(self) -> None:
        """Make the name of a journal that was restarted durable, without which no sync of it counts."""
        if self._renamed:
            self._disk.sync_dir(self._directory)
            self._renamed = False

    def begin_anew(self, last_seq_id: int | None) -> None:
        """Forget the file and the buffer, durably: the segment files have everything, synced.  See `restart`
        for `last_seq_id`.
        """
        self._truncate(_trace_of(last_seq_id))
        self.file.datasync()

    def _truncate(self, trace: bytes) -> None:
        """Forget the file and the buffer, and write this."""
        self.file.truncate(0)
        self.size = 0
        self._note_empty()
        self._parts, self.buffered = [trace], len(trace)
        if trace:
            self.write()

    def make_room(self) -> None:
        """Give back all blocks of journals other than the current one; a restart that is being prepared begins again."""
        if self._copy is not None:
            self._copy.close()
            self._disk.unlink(self._new_path)
        if self.retired is not None:
            self.retired.close()
        self._copy = self.retired = None

    def _retire(self, file: File) -> None:
        """Close a journal that was replaced: the last close frees its blocks, so a large one is cut down first."""
        if self.retired is not None:
            self.retired.close()
            self.retired = None
        if self.size > RECLAIM_BYTES:
            self.retired, self._retired_size = file, self.size
        else:
            file.close()

    def reclaim(self) -> None:
        """Give back a piece of a replaced journal: freeing 40 MB at once takes as long as thirty syncs."""
        assert self.retired is not None
        self._retired_size -= RECLAIM_BYTES
        if self._retired_size > 0:
            self.retired.truncate(self._retired_size)
        else:
            self.retired.close()
            self.retired = None

    def close(self) -> None:
        """Close the files; the buffer is lost."""
        self.file.close()
        for file in (self.retired, self._copy):
            if file is not None:
                file.close()
        self.retired = self._copy = None


def _trace_of(last_seq_id: int | None) -> bytes:
    """The ack that tells a recovery how far the queue had come; b"" where other files do."""
    return b"" if last_seq_id is None else _pack_action(_ACK | last_seq_id)


def _end_without_doubt(data: bytes, offset: int) -> bytes:
    """`data` for this offset of the file; if its last ack could be a torn one, with a deliver that says nothing new."""
    last = data[-ACTION_BYTES:]
    if in_doubt(last, offset + len(data) - len(last)):
        return data + bytes((last[0] & ~_ACK_ONLY, *last[1:]))
    return data
