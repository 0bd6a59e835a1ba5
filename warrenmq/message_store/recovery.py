"""Recovery: a store finds its messages again (rabbit_msg_store:recover_index_and_client_refs, build_index;
docs/reference/message-store.md#start-up-and-recovery).

    transient store         the folder is wiped
    stopped cleanly         the dumps are taken over (message_store/dump.py), if they know of no queue that is gone
    anything else, "dirty"  the queues give their references; then every file is read

The dumps hold messages of a queue that is gone when its deletion had not reached the store before that was told to stop,
which comes first, as in gen_server2.  RabbitMQ compares the client references for the same reason.

The dirty way, one file after the other in ascending order:

1. Unfinished work of a crash is removed: a temporary file of ours is never the only copy of anything and is deleted;
   one of RabbitMQ's may be, so it becomes a file of its own, and what it holds is found like everything else.
2. Each record whose message is referenced and has no place yet is that message's place, unless it does not have its
   checksum; then, and when there is no other copy, the message is damaged and lost.  Two copies without a checksum are
   compared (`second_is_better`): the collectors of RabbitMQ leave copies that a power cut tore, but for their head and marker, in
   front of the good one (defect S39 in docs/defects.md).  (RabbitMQ reads the files in parallel, and two of them may claim one message:
   defect S36.)
3. Bytes that are no record are damage, and are copied to the quarantine, if a message is missed that may have been there
   (missed.py).
   Else they are of garbage: a power cut leaves half of the holes that a compaction was blanking, and of the copies in
   them, and no reader can tell these from bytes that rotted, as what lay there was no longer wanted.  A copy that our own
   compaction did not finish is no damage either way, nor is a write that was cut off at the end of the last file, which is kept
   all the same: a disk that lost what it had synced leaves the same.  Nothing that is read can make a start fail.
4. The last file is written anew with what it holds of value.  The kernel may have failed to save it (after which it
   says so only once, and shows the lost bytes to readers until it needs the memory), and the store may have crashed for
   that very reason; and whatever was torn at its end must not stay in front of what is appended next.
5. References to messages that were not found are dropped: the queues hear of it when they register.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from warrenmq.errors import CorruptFile
from warrenmq.log import Log
from warrenmq.message.stored import SEALED, was_sent_by_name
from warrenmq.message_store import rdq
from warrenmq.message_store.combine import commit, placed, prepare
from warrenmq.message_store.damage import keep_record
from warrenmq.message_store.dump import CLEAN, INDEX, SUMMARY, UnusableDump, load
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.message_index import Entry, MessageIndex
from warrenmq.message_store.missed import lowest_of_missed
from warrenmq.message_store.owner_refs import OwnerRefs
from warrenmq.message_store.scan import BLOCK, Gap, Record, Trust, is_cut_off, scan
from warrenmq.seams.disk import Disk, File
from warrenmq.seams.disk_errors import is_full

References = Callable[[], Iterable[tuple[str, Iterable[list[bytes]]]]]
"""Gives every owner, and its messages in runs that were appended in their order."""
Claims = list[tuple[str, list[bytes]]]
"""Each run of messages, with its owner."""

_NAMES = 512
"""Bytes of a stored message that have its exchange and its first routing key, both of 255 at most."""
_MOST_LOOKED_AT = 1_000
"""Of a queue's newest messages so many are looked at for one that was sent to it alone: all may have come through an exchange."""


@dataclass(slots=True)
class Recovered:
    """A store's tables as they were found."""

    index: MessageIndex
    files: FileSummary
    owners: OwnerRefs
    clean: bool
    damage: list[CorruptFile] = field(default_factory=list)
    """The damage that was found; damaged pieces of files were set aside."""
    wiped: bool = False
    """True for a transient store, which begins with nothing."""


def wipe(disk: Disk, directory: str) -> Recovered:
    """Empty the folder of a transient store."""
    disk.rmtree(directory)
    disk.mkdir(directory)
    files = FileSummary()
    files.add(0)
    return Recovered(MessageIndex({}), files, OwnerRefs(), clean=True, wiped=True)


def recover(disk: Disk, directory: str, references: References, quarantine: str, kind: str) -> Recovered:
    """Find the messages of a store; those of each owner are asked for only when the files have to be read."""
    disk.mkdir(directory)
    damage: list[CorruptFile] = []
    try:
        index, files, owners = load(disk, directory)
    except UnusableDump as reason:
        damage += reason.damage
        if disk.listdir(directory):
            Log("warrenmq.store").info("the store was not stopped cleanly", store=kind, reason=str(reason))
    else:
        gone = _gone(owners, references)
        if not gone:
            return Recovered(index, files, owners, clean=True)
        Log("warrenmq.store").info("the store has messages of queues that are gone", store=kind, queues=gone)
    owners, claims = OwnerRefs(), [(owner, msg_ids) for owner, runs in references() for msg_ids in runs]
    for owner, msg_ids in claims:
        for msg_id in msg_ids:
            owners.add(owner, msg_id)
    return _Reader(disk, directory, owners, claims, quarantine, kind, damage).run()


def _gone(owners: OwnerRefs, references: References) -> list[str]:
    """The owners that hold messages, and that nobody knows any more."""
    known = {owner for owner, _ in references()}
    return [each for each in owners.owners() if owners.held(each) and each not in known]


class _Reader:
    """One dirty start."""

    def __init__(self, disk: Disk, directory: str, owners: OwnerRefs, claims: Claims, quarantine: str, kind: str,
                 damage: list[CorruptFile]) -> None:  # fmt: skip
        self._disk = disk
        self._directory = directory
        self._owners = owners
        self._claims = claims
        self._quarantine = quarantine
        self._kind = kind
        self._refs = owners.counts()
        self._entries: dict[bytes, Entry] = {}
        self._files = FileSummary()
        self._damage = damage
        self._bad: dict[bytes, tuple[int, bytes, CorruptFile]] = {}
        """Messages of which a copy is damaged: its file, its bytes, and what is wrong with it."""
        self._unclaimed: dict[bytes, tuple[int, int, int]] = {}
        """Records that no queue refers to: message id -> file, offset, size of the last one."""
        self._more_unclaimed: dict[bytes, list[tuple[int, int, int]]] = {}
        """The others of messages that have several."""
        self._no_records: list[tuple[int, int, int]] = []
        """Bytes that are no record, and should be: file, offset, length."""
        self._whole_to: dict[int, int] = {}
        """File -> the offset of its first bytes that are no record."""
        self._foreign: set[bytes] = set()
        """Messages that RabbitMQ stored."""

    def run(self) -> Recovered:
        self._put_away()
        numbers = rdq.file_numbers(self._disk.listdir(self._directory)) or [0]
        for number in numbers:
            self._files.add(number)
            self._read(number)
        self._set_aside_damaged()
        missed = [msg_id for msg_id in self._refs if msg_id not in self._entries and msg_id not in self._bad]
        if missed:
            self._set_aside_no_records()
            self._set_aside_misnamed(missed)
            self._tell_missed_in_between({*missed})
        self._rewrite_last()
        self._owners.forget({m for m in self._refs if m not in self._entries})
        clean = False
        return Recovered(MessageIndex(self._entries), self._files, self._owners, clean, self._damage)

    def _put_away(self) -> None:
        disk, directory = self._disk, self._directory
        names = disk.listdir(directory)
        next_number = max(rdq.file_numbers(names), default=-1) + 1
        for name in names:
            path = f"{directory}/{name}"
            if name.endswith(".tmp") or name in {CLEAN, INDEX, SUMMARY}:
                disk.unlink(path)
            elif name.endswith(rdq.RABBITMQ_TEMPORARY):
                disk.rename(path, f"{directory}/{rdq.file_name(next_number)}")
                next_number += 1
        disk.sync_dir(directory)

    def _read(self, number: int) -> None:
        path = f"{self._directory}/{rdq.file_name(number)}"
        if not self._disk.exists(path):
            return  # the store's very first start
        file = self._disk.open_read(path)
        try:
            self._files.resize(number, valid=0, size=file.size())
            refs = self._refs
            for found in scan(file, refs):
                if isinstance(found, Gap):
                    self._whole_to.setdefault(number, found.offset)
                    if found.damage:
                        self._no_records.append((number, found.offset, found.length))
                elif found.trust >= Trust.BAD_MARKER:
                    self._whole_to.setdefault(number, found.records[0][1])
                    self._no_records += [(number, offset, total) for _, offset, total in found.records]
                else:
                    for record in found.records:
                        if record[0] in refs:
                            self._claim(file, number, record)
                        else:
                            self._leave_unclaimed(number, record)
        finally:
            file.close()

    def _leave_unclaimed(self, number: int, record: Record) -> None:
        msg_id, offset, total = record
        if (other := self._unclaimed.get(msg_id)) is not None:
            self._more_unclaimed.setdefault(msg_id, []).append(other)
        self._unclaimed[msg_id] = number, offset, total

    def _claim(self, file: File, number: int, record: Record) -> None:
        """Make it the place of its message, unless there is a better one."""
        msg_id, offset, total = record
        data = file.pread(total, offset)
        try:
            rdq.body_of(data, msg_id, f"{self._directory}/{rdq.file_name(number)}", offset)
        except CorruptFile as error:
            self._bad[msg_id] = number, data, error
            self._whole_to.setdefault(number, offset)
            return
        if not data.startswith(SEALED, rdq.BODY_AT):
            self._foreign.add(msg_id)
        claimed = self._entries.get(msg_id)
        if claimed is not None:
            _, where, place, length = claimed
            other = (
                file if where == number else self._disk.open_read(f"{self._directory}/{rdq.file_name(where)}")
            )
            better = second_is_better(other.pread(length, place), data)
            if other is not file:
                other.close()
            if not better:
                return
            self._files.add_valid(where, -length)
        self._entries[msg_id] = (self._refs[msg_id], number, offset, total)
        self._files.rows[number].ids.append(msg_id)
        self._files.add_valid(number, total)

    def _set_aside_no_records(self) -> None:
        """Tell the bytes that are no record, and keep them, where a message that is missed may have been."""
        kept = False
        lowest = -1 if self._foreign else lowest_of_missed((ids for _, ids in self._claims), self._file_of)
        for number, offset, length in self._no_records:
            if number < lowest:
                continue
            path = f"{self._directory}/{rdq.file_name(number)}"
            file = self._disk.open_read(path)
            try:
                if self._is_unfinished_copy(file, number, offset, length):
                    continue
                kept = True
                self._keep(file, number, offset, length)
                if number == self._files.current and is_cut_off(file, offset):
                    Log("warrenmq.store", store=self._kind).warning(
                        "the last write was cut off, as a kill leaves it; its bytes were copied to the quarantine",
                        path=path, offset=offset, bytes=length,
                    )  # fmt: skip
                else:
                    why = f"{length} bytes are no record; they were copied to the quarantine"
                    self._damage.append(CorruptFile(path, offset, why))
            finally:
                file.close()
        if kept:
            with suppress(OSError):
                self._disk.sync_dir(self._quarantine)

    def _file_of(self, msg_id: bytes) -> int | None:
        if (entry := self._entries.get(msg_id)) is not None:
            return entry[1]
        bad = self._bad.get(msg_id)
        return None if bad is None else bad[0]

    def _keep(self, file: File, number: int, offset: int, length: int) -> None:
        # a full disk, say: the bytes stay where they are until the file is collected
        with suppress(OSError):
            self._disk.mkdir(self._quarantine)
            path = f"{self._quarantine}/{self._kind}-{rdq.file_name(number)}-{offset}"
            copy = self._disk.open(path, create=True)
            try:
                copy.truncate(0)
                for at in range(offset, offset + length, BLOCK):
                    copy.append(file.pread(min(BLOCK, offset + length - at), at))
                copy.datasync()
            finally:
                copy.close()

    def _set_aside_damaged(self) -> None:
        """Tell the messages that have no whole copy, and keep the bytes of one that is not whole."""
        for msg_id, (number, record, error) in self._bad.items():
            if msg_id not in self._entries:
                self._tell_damaged(number, record, error)

    def _set_aside_misnamed(self, missed: list[bytes]) -> None:
        """Tell records whose message id has a flipped bit, and keep their bytes: queues miss the message that it was.

        Most messages that are missed were not on disk yet when the process ended, and most records that no
        queue refers to are garbage; the checksum, which is bound to the message id, says which record is
        neither.  The id that it has now may be that of another message, as most ids differ from others by one
        bit.
        """
        near = (each for msg_id in missed for each in _one_bit_off(msg_id))
        for msg_id in dict.fromkeys(each for each in near if each in self._unclaimed or each in self._bad):
            if msg_id in self._unclaimed:
                for place in (self._unclaimed[msg_id], *self._more_unclaimed.get(msg_id, ())):
                    self._check_unclaimed(msg_id, *place)
            elif msg_id in self._entries:  # else it was told
                self._tell_damaged(*self._bad[msg_id])

    def _tell_missed_in_between(self, missed: set[bytes]) -> None:
        """Tell the messages that a queue misses though a later one of it is there, and what was appended
        before that must be safe.

        A queue's messages are appended in its order, and their references given up when their acks are safe.
        """
        for owner, msg_ids in self._claims:
            first = next((at for at, msg_id in enumerate(msg_ids) if msg_id in missed), len(msg_ids))
            later = islice(range(len(msg_ids) - 1, first, -1), _MOST_LOOKED_AT)
            newest = next((at for at in later if self._had_all_before(owner, msg_ids[at])), first)
            if lost := sum(msg_id in missed for msg_id in msg_ids[first:newest]):
                why = f"{lost} messages of queue {owner!r} are in no file, and one that was written after them is"
                self._damage.append(CorruptFile(self._directory, 0, why))

    def _had_all_before(self, owner: str, msg_id: bytes) -> bool:
        """True if the store holds a message of ours with everything that its owner had sent before: a file is
        synced when it is left, and the last one shows a hole where a power cut tore what was in front.

        What came through an exchange may have been appended for another queue, before this one's mail was read, and that
        queue may have removed it since.
        """
        if msg_id not in self._entries or msg_id in self._foreign:
            return False
        _, number, offset, total = self._entries[msg_id]
        if number == self._files.current and offset >= self._whole_to.get(number, inf):
            return False
        start = self._read_at(number, offset + rdq.BODY_AT, min(total - rdq.BODY_AT, _NAMES))
        return was_sent_by_name(start, owner)

    def _read_at(self, number: int, offset: int, size: int) -> bytes:
        """Read bytes of a message file by themselves."""
        file = self._disk.open_read(f"{self._directory}/{rdq.file_name(number)}")
        try:
            return file.pread(size, offset)
        finally:
            file.close()

    def _check_unclaimed(self, msg_id: bytes, number: int, offset: int, total: int) -> None:
        record = self._read_at(number, offset, total)
        try:
            rdq.body_of(record, msg_id, f"{self._directory}/{rdq.file_name(number)}", offset)
        except CorruptFile as error:
            self._tell_damaged(number, record, error)

    def _tell_damaged(self, number: int, record: bytes, error: CorruptFile) -> None:
        self._damage.append(error)
        keep_record(self._disk, self._quarantine, self._kind, number, error.offset, record)

    def _is_unfinished_copy(self, file: File, number: int, offset: int, length: int) -> bool:
        """True if damage begins with the head of a message that has its place further behind in the same
        file, or had it: what was acked since then has no reference any more.

        How many of the zeros that its size begins with were counted as damage is not known.
        """
        start = file.pread(min(length, rdq.HEAD.size + 8), offset)
        for at in range(len(start) - rdq.ID_SIZE + 1):
            msg_id = start[at : at + rdq.ID_SIZE]
            if msg_id in self._entries:
                _, where, place, _ = self._entries[msg_id]
            elif msg_id in self._unclaimed:
                where, place, _ = self._unclaimed[msg_id]
            else:
                continue
            if where == number and place > offset:
                return True
        return False

    def _rewrite_last(self) -> None:
        number = self._files.current
        row = self._files.rows[number]
        if not row.file_size:
            return
        survivors = MessageIndex(self._entries).living(number, row.ids)
        try:
            prepare(self._disk, self._directory, number, [(number, survivors)])
        except OSError as error:
            if not is_full(error):
                raise
            # cut off what is behind the last survivor, and be content
            end = max((offset + total for _, offset, total in survivors), default=0)
            self._files.resize(number, valid=row.valid_total_size, size=end)
            _cut(self._disk, self._directory, self._files)
            return
        commit(self._disk, self._directory, number)
        for msg_id, offset, total in placed([(number, survivors)]):
            self._entries[msg_id] = (self._entries[msg_id][0], number, offset, total)
        row.ids = [msg_id for msg_id, _, _ in survivors]
        self._files.resize(number, valid=row.valid_total_size, size=row.valid_total_size)


def _one_bit_off(msg_id: bytes) -> Iterator[bytes]:
    """All ids from which this one may have come by a flipped bit."""
    number = int.from_bytes(msg_id, "big")
    for bit in range(8 * rdq.ID_SIZE):
        yield (number ^ 1 << bit).to_bytes(rdq.ID_SIZE, "big")


def second_is_better(first: bytes, second: bytes) -> bool:
    """True if of two records of one message the one behind is the good one.

    Where bytes of a torn copy never arrived, it has zeros: those of a blanked hole, or of a file that was extended.

    | the two                                             | the good one is                                    |
    | --------------------------------------------------- | -------------------------------------------------- |
    | are the same                                        | the first                                          |
    | differ, and where they do, one has zeros            | the other one                                      |
    | differ otherwise (a hole that was never blanked)    | the second: collectors copy from behind to the front |
    """
    if first == second:
        return False
    if len(first) != len(second):
        return True
    one, other = int.from_bytes(first, "big"), int.from_bytes(second, "big")
    return one & ~other == 0 or other & ~one != 0


def _cut(disk: Disk, directory: str, files: FileSummary) -> None:
    """Truncate the current file to the length in its summary."""
    path = f"{directory}/{rdq.file_name(files.current)}"
    size = files.rows[files.current].file_size
    if disk.size(path) > size:
        file = disk.open(path)
        file.truncate(size)
        file.datasync()
        file.close()
