"""How a store finds its messages again (reference, section 9).

    transient store         the folder is wiped
    stopped cleanly         the dumps are taken over (store_dump.py)
    anything else, "dirty"  who refers to what is asked of the queues; then every file is read

The dirty way, one file after the other in ascending order:

1. What a crash left half done is put away: a temporary file of ours is never the only copy of anything and is deleted;
   one of RabbitMQ's may be, so it becomes a file of its own, and what it holds is found like everything else.
2. Each record whose message is referenced and has no place yet is that message's place.  Of two copies the first
   one counts.  (RabbitMQ reads the files in parallel, and two of them may claim one message: defect 36.)
3. Bytes that are no record are copied to the quarantine.  Nothing that is read can make a start fail.
4. The last file is written anew with what it holds of value.  The kernel may have failed to save it (after which it
   says so only once, and shows the lost bytes to readers until it needs the memory), and the store may have crashed for
   that very reason; and whatever was torn at its end must not stay in front of what is appended next.
5. References to messages that were not found are dropped: the queues hear of it when they register.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warrenmq.log import Log
from warrenmq.storage import rdq
from warrenmq.storage.combine import commit, placed, prepare
from warrenmq.storage.disk import is_full
from warrenmq.storage.file_summary import FileSummary
from warrenmq.storage.message_index import MessageIndex
from warrenmq.storage.owner_refs import OwnerRefs
from warrenmq.storage.rdq_scan import BLOCK, Scan, scan
from warrenmq.storage.store_dump import CLEAN, INDEX, SUMMARY, NotClean, load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from warrenmq.storage.disk import Disk, File
    from warrenmq.storage.gc_jobs import Survivor
    from warrenmq.storage.message_index import Entry


@dataclass(slots=True)
class Recovered:
    """A store's tables as they were found."""

    index: MessageIndex
    files: FileSummary
    owners: OwnerRefs
    clean: bool
    damaged: int = 0
    """Pieces of files that were set aside."""


def wipe(disk: Disk, directory: str) -> Recovered:
    """Begin with nothing."""
    disk.rmtree(directory)
    disk.mkdir(directory)
    files = FileSummary()
    files.add(0)
    return Recovered(MessageIndex({}), files, OwnerRefs(), clean=True)


def recover(
    disk: Disk, directory: str, references: Iterable[tuple[str, list[bytes]]], quarantine: str, kind: str
) -> Recovered:
    """Find the messages of a store.  `references` (owner, its messages) is read only after an unclean stop."""
    disk.mkdir(directory)
    try:
        index, files, owners = load(disk, directory)
    except NotClean as reason:
        if disk.listdir(directory):
            Log("warrenmq.store").info("the store was not stopped cleanly", store=kind, reason=str(reason))
    else:
        _cut(disk, directory, files)
        return Recovered(index, files, owners, clean=True)
    owners = OwnerRefs()
    for owner, msg_ids in references:
        for msg_id in msg_ids:
            owners.add(owner, msg_id)
    return _Reader(disk, directory, owners, quarantine, kind).run()


class _Reader:
    """One dirty start."""

    def __init__(self, disk: Disk, directory: str, owners: OwnerRefs, quarantine: str, kind: str) -> None:
        self._disk = disk
        self._directory = directory
        self._owners = owners
        self._quarantine = quarantine
        self._kind = kind
        self._refs = owners.counts()
        self._entries: dict[bytes, Entry] = {}
        self._files = FileSummary()
        self._damaged = 0

    def run(self) -> Recovered:
        self._put_away()
        numbers = rdq.file_numbers(self._disk.listdir(self._directory)) or [0]
        for number in numbers:
            self._files.add(number)
            self._read(number)
        self._rewrite_last()
        self._owners.forget({m for m in self._refs if m not in self._entries})
        if self._damaged:
            Log("warrenmq.store").warning(
                "damaged bytes of the store's files were set aside",
                store=self._kind, pieces=self._damaged, folder=self._quarantine,
            )  # fmt: skip
        clean = False
        return Recovered(MessageIndex(self._entries), self._files, self._owners, clean, self._damaged)

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
            size = file.size()
            found = scan(file, self._refs)
            self._set_aside(file, number, found)
        finally:
            file.close()
        valid = 0
        ids = self._files.rows[number].ids
        for msg_id, offset, total in found.records:
            if msg_id in self._refs and msg_id not in self._entries:
                self._entries[msg_id] = (self._refs[msg_id], number, offset, total)
                ids.append(msg_id)
                valid += total
        self._files.resize(number, valid=valid, size=size)

    def _set_aside(self, file: File, number: int, found: Scan) -> None:
        self._damaged += len(found.damaged)
        for offset, length in found.damaged:
            with suppress(
                OSError
            ):  # a full disk, say: the bytes stay where they are until the file is combined
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
        if found.damaged:
            with suppress(OSError):
                self._disk.sync_dir(self._quarantine)

    def _rewrite_last(self) -> None:
        number = self._files.current
        row = self._files.rows[number]
        if not row.file_size:
            return
        survivors: list[Survivor] = [(msg_id, *self._entries[msg_id][2:]) for msg_id in row.ids]
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
        self._files.resize(number, valid=row.valid_total_size, size=row.valid_total_size)


def _cut(disk: Disk, directory: str, files: FileSummary) -> None:
    """Have the current file end where its summary says."""
    path = f"{directory}/{rdq.file_name(files.current)}"
    size = files.rows[files.current].file_size
    if disk.size(path) > size:
        file = disk.open(path)
        file.truncate(size)
        file.datasync()
        file.close()
