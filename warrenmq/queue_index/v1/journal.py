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

import re
import sys
from array import array
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING

from warrenmq.directory.torn import OUT_OF_STEP, Damage, in_doubt
from warrenmq.queue_index.record import lengths_agree
from warrenmq.queue_index.v1.segment import Facts

if TYPE_CHECKING:
    from warrenmq.seams.disk import Disk, File

FILE_NAME = "journal.jif"
WRITE_BUFFER = 1 << 20
"""Bytes collected before they are handed to the operating system without a sync."""

_TRANSIENT = 1 << 62
_DELIVER = 2 << 62
_ACK = 3 << 62
_ACK_ONLY = 1 << 6
"""The bit of an action's first byte that tells an ack from a deliver."""
_SEQ_ID = (1 << 62) - 1
_PLAUSIBLE_SEQ_ID = 1 << 48
"""A queue does not come this far: a million messages a second for nine years."""
_ACTION_BYTES = 8
TEMPORARY = ".tmp"
"""The end of the names of files that are not finished; a recovery removes them."""
RECLAIM_BYTES = 4 << 20
"""Bytes of a replaced journal that are given back at a time: about a millisecond."""
_PUBLISH_BYTES = 40

_pack_action = Struct(">Q").pack
_pack_two_actions = Struct(">QQ").pack
_unpack_action = Struct(">Q").unpack_from
_unpack_sizes = Struct(">II").unpack_from

_ANY_PUBLISH = re.compile(
    rb"[\x00\x40]\x00.{6}"  # plausible sequence id
    rb"(?!\x00{16}).{16}"  # message id
    rb"\x00.{7}"  # expiry: none, or before the year 4253
    rb".{4}(?:\x00{4}|\x00.{3}[\x83\x95])",  # sizes, first byte of an embedded message
    re.DOTALL,
)


class Journal:
    """The file and the actions that are still to be written to it.  Not thread-safe: it belongs to its index."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = f"{directory}/{FILE_NAME}"
        self._disk = disk
        self._directory = directory
        existed = disk.exists(self.path)
        self._file: File = disk.open(self.path, create=True)
        if not existed:
            disk.sync_dir(directory)
        self.size = self._file.size()
        """Bytes in the file."""
        self._parts: list[bytes] = []
        self.buffered = 0
        """Bytes in the buffer."""
        self.buffered_actions = 0
        self._copy: File | None = None
        """The next journal, while a restart is being prepared."""
        self._new_path = self.path + TEMPORARY
        self._retired: File | None = None
        """A journal that has been replaced: it has no name any more, only blocks."""
        self._retired_size = 0

    def publish_many(self, first_seq_id: int, records: list[bytes], *, persistent: bool) -> None:
        """Add publishes of consecutive sequence ids, each with its deliver."""
        count = len(records)
        publish = first_seq_id if persistent else first_seq_id | _TRANSIENT
        deliver = first_seq_id | _DELIVER
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
        self.buffered += 2 * _ACTION_BYTES * count + sum(map(len, records))
        self.buffered_actions += 2 * count

    def ack_range(self, first_seq_id: int, count: int) -> None:
        """Add acks of consecutive sequence ids."""
        self._add(array("Q", range(_ACK | first_seq_id, (_ACK | first_seq_id) + count)))

    def ack(self, seq_ids: list[int]) -> None:
        """Add acks."""
        self._add(array("Q", [_ACK | seq_id for seq_id in seq_ids]))

    def _add(self, actions: array[int]) -> None:
        if sys.byteorder == "little":
            actions.byteswap()
        self._parts.append(actions.tobytes())
        self.buffered += _ACTION_BYTES * len(actions)
        self.buffered_actions += len(actions)

    def write(self) -> None:
        """Hand the buffer to the operating system in one write; after an error it is all still there."""
        data = _end_without_doubt(b"".join(self._parts), self.size)
        self._parts = [data]
        self._file.append(data)
        self.size += len(data)
        self._parts = []
        self.buffered = self.buffered_actions = 0

    def datasync(self) -> None:
        """Have the disk keep what was written."""
        self._file.datasync()

    def copy_rest(self, mark: int, most: int) -> bool:
        """Before a restart: copy up to `most` more bytes of what it will keep to the new file, and sync them.

        Returns whether there is little enough left to restart now.  Actions may come between the copies.
        """
        if self.size - mark <= most and self._copy is None:
            return True
        if self._copy is None:
            self._copy = self._disk.open(self._new_path, create=True)
            self._copy.truncate(0)
        at = mark + self._copy.size()
        self._copy.append(self._file.pread(most, at))
        self._copy.datasync()
        return self.size - mark - self._copy.size() <= most

    def restart(self, mark: int, last_seq_id: int | None) -> None:
        """Forget the first `mark` bytes of the file: the segment files have them, synced.  The buffer must be empty.

        `last_seq_id` is kept as an ack, for a recovery that would find no other trace of how far the queue had come.
        It has no publish, so it says nothing else (rule (b): "the segment is deleted already").
        """
        trace = b"" if last_seq_id is None else _pack_action(_ACK | last_seq_id)
        if self.size == mark <= RECLAIM_BYTES:
            self._file.truncate(0)
            self.size = 0
            self._parts, self.buffered = [trace], len(trace)
            if trace:
                self.write()
            return
        if self._copy is None:
            new = self._disk.open(self._new_path, create=True)
            new.truncate(0)
        else:
            new, self._copy = self._copy, None
        rest = self._file.pread(self.size - mark - new.size(), mark + new.size())
        new.append(_end_without_doubt(rest + trace, new.size()))
        new.datasync()
        self._disk.rename(self._new_path, self.path)
        self._retire(self._file)
        self._file = new
        self.size = new.size()
        try:
            self._disk.sync_dir(self._directory)
        except OSError as error:  # nobody knows which journal a power cut would leave: not to be tried again
            raise RuntimeError("the folder of a journal that was restarted could not be synced") from error

    def _retire(self, file: File) -> None:
        """Close a journal that was replaced: the last close frees its blocks, so a large one is cut down first."""
        if self._retired is not None:
            self._retired.close()
            self._retired = None
        if self.size > RECLAIM_BYTES:
            self._retired, self._retired_size = file, self.size
        else:
            file.close()

    @property
    def reclaiming(self) -> bool:
        """Whether a journal that was replaced still has blocks to give back."""
        return self._retired is not None

    def reclaim(self) -> None:
        """Give back a piece of a replaced journal: freeing 40 MB at once takes as long as thirty syncs."""
        assert self._retired is not None
        self._retired_size -= RECLAIM_BYTES
        if self._retired_size > 0:
            self._retired.truncate(self._retired_size)
        else:
            self._retired.close()
            self._retired = None

    def close(self) -> None:
        """Give the file back; what is in the buffer is lost."""
        self._file.close()
        for file in (self._retired, self._copy):
            if file is not None:
                file.close()
        self._retired = self._copy = None


def _end_without_doubt(data: bytes, offset: int) -> bytes:
    """`data` for this offset of the file; if its last ack could be a torn one, with a deliver that says nothing new."""
    last = data[-_ACTION_BYTES:]
    if in_doubt(last, offset + len(data) - len(last)):
        return data + bytes((last[0] & ~_ACK_ONLY, *last[1:]))
    return data


class Replay:
    """What a journal file says: facts by segment number, and what had to be left out.

    Half a record that was copied to a wrong place claims bytes of the next ones.  So a publish without its own deliver is
    none if a whole one begins inside it, and it gives way to a whole one of its sequence id.
    """

    def __init__(self, data: bytes, entry_count: int) -> None:
        self.facts: dict[int, Facts] = {}
        self.actions = 0
        self.next_seq_id = 0
        """One more than the largest sequence id that any action names."""
        self.damage: list[Damage] = []
        self.end = 0
        """Where the last action ends."""
        self._last_publish = -1
        self._last_ack_is_new = False
        self._unmarked: set[int] = set()
        """Sequence ids published without their own deliver behind them."""
        self._believed = 0
        """Where the last publish with its deliver ends."""
        self._entry_count = entry_count
        zeros = len(data.rstrip(b"\x00"))
        position, reason = self._run(data, 0)
        while position < zeros:
            # actions before bytes that make no sense may have been the head of a publish
            inside = _next_publish(data, max(self._believed, position - OUT_OF_STEP), position)
            resume = inside if inside < position else _next_publish(data, position + 1)
            self._believed = max(self._believed, resume + 1)
            start = min(position, inside)
            self.damage.append(Damage(start, max(resume - start, 1), reason))
            position, reason = self._run(data, resume)
        if zeros <= position < len(data):
            self._distrust_last(data, position)

    def _run(self, data: bytes, position: int) -> tuple[int, str]:
        """Replay from `position` to the end, or to the first bytes that make no sense, and why."""
        entry_count = self._entry_count
        current, facts = -1, Facts()
        end = len(data)
        reason = "an action is cut off"
        highest = self.next_seq_id - 1
        while position + _ACTION_BYTES <= end:
            (action,) = _unpack_action(data, position)
            seq_id = action & _SEQ_ID
            if seq_id >= _PLAUSIBLE_SEQ_ID:
                reason = f"sequence id {seq_id} is beyond belief"
                break
            number, relative = divmod(seq_id, entry_count)
            if number != current:
                facts = self.facts.setdefault(number, Facts())
                current = number
            if action >= _ACK:
                self._last_ack_is_new = relative not in facts.acked
                facts.acked.add(relative)
                position += _ACTION_BYTES
            elif action >= _DELIVER:
                facts.delivered.add(relative)
                position += _ACTION_BYTES
            else:
                body = position + _PUBLISH_BYTES
                if body > end:
                    reason = "a publish is cut off"
                    break
                size, embedded_size = _unpack_sizes(data, position + 32)
                stop = body + embedded_size
                if stop > end or not lengths_agree(data, body, stop, size):
                    reason = "a publish is cut off, or one of its lengths is wrong"
                    break
                if not action and not any(data[position + 8 : position + 24]):
                    reason = "a message id is zero"
                    break
                marked = data.startswith(_pack_action(_DELIVER | seq_id), stop)
                if not marked and _next_publish(data, position + 1, stop) < stop:
                    reason = "a publish reaches into the next one"
                    break
                if relative in facts.published:
                    if not (marked and seq_id in self._unmarked):
                        reason = f"sequence id {seq_id} is published twice"
                        break
                    self._take_back(seq_id)
                facts.published[relative] = data[position + _ACTION_BYTES : stop]
                if action & _TRANSIENT:
                    facts.transient.add(relative)
                if marked:
                    self._believed = max(self._believed, stop + _ACTION_BYTES)
                else:
                    self._unmarked.add(seq_id)
                self._last_publish, position = position, stop
            highest = max(highest, seq_id)
            self.actions += 1
        self.next_seq_id = highest + 1
        self.end = position
        return position, reason

    def _take_back(self, seq_id: int) -> None:
        """A publish was none; deliver and ack of its sequence id are left as they are: they were actions of their own."""
        number, relative = divmod(seq_id, self._entry_count)
        facts = self.facts[number]
        del facts.published[relative]
        facts.transient.discard(relative)
        self._unmarked.discard(seq_id)

    def _distrust_last(self, data: bytes, position: int) -> None:
        """Zeros begin at `position`: take back the action before them if they may have replaced its end.

        After a power cut a file can have its new length before it has its bytes.  A publish has its deliver behind
        it, or it is torn; of an ack only one that ends in zeros across a sector boundary is in doubt.
        """
        start = self._last_publish
        if start >= 0:
            (publish,) = _unpack_action(data, start)
            number, relative = divmod(publish & _SEQ_ID, self._entry_count)
            facts = self.facts[number]
            if start + _ACTION_BYTES + len(facts.published[relative]) == position:
                del facts.published[relative]
                facts.transient.discard(relative)
                self.damage.append(Damage(start, position - start, "a publish is followed by zeros"))
                return
        start = position - _ACTION_BYTES
        if self._last_ack_is_new and in_doubt(data[start:position], start):
            (action,) = _unpack_action(data, start)
            number, relative = divmod(action & _SEQ_ID, self._entry_count)
            if action >= _ACK:
                self.facts[number].acked.discard(relative)
                self.damage.append(Damage(start, position - start, "an ack is followed by zeros"))


def _next_publish(data: bytes, position: int, limit: int | None = None) -> int:
    """Where the next whole publish with its deliver begins; `limit`, or the end of the data, when there is none before."""
    limit = len(data) if limit is None else limit
    while (
        position < limit
        and (match := _ANY_PUBLISH.search(data, position, limit + _PUBLISH_BYTES)) is not None
    ):
        position = match.start()
        body = position + _PUBLISH_BYTES
        size, embedded_size = _unpack_sizes(data, position + 32)
        stop = body + embedded_size
        deliver = b"\x80" + data[position + 1 : position + _ACTION_BYTES]
        if data.startswith(deliver, stop) and lengths_agree(data, body, stop, size):
            return min(position, limit)
        position += 1
    return limit
