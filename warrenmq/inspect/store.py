"""One message store as it lies on disk: where each message is that a queue refers to, and what else is there.

Bodies are read when they are asked for, one at a time.  A message may be there more than once (RabbitMQ's combine
copies before it deletes, a crash leaves both); an intact copy is preferred.  `N.rdt` is what a crash in the middle of a
combine left: the end of N.rdq, perhaps the only copy of it.

    the only copies are                          RabbitMQ up to 3.12, after a crash
    sound                                        gives the message back
    in N.rdt, and N.rdq has no zeros             gives it back (N.rdt is appended to N.rdq)
    in N.rdt, and N.rdq has zeros, or is gone    loses it: what is appended lies behind the zeros
    behind zeros, or behind bytes that are       loses it: its scan does not find the way again
    no record
    without the end mark, size or id             loses it, after a clean stop too

Source: rabbit_msg_store, rabbit_msg_file; docs/reference/message-store.md#records-on-disk,
#crash-points-of-a-combine and #start-up-and-recovery.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from warrenmq.erlang import ets
from warrenmq.errors import CorruptFile
from warrenmq.inspect.reading import File, Findings, file_sizes
from warrenmq.message_store.dump import CLEAN, INDEX, SUMMARY, UnusableDump, changes_since, saved_sizes
from warrenmq.message_store.missed import lowest_of_missed
from warrenmq.message_store.rdq import EXTENSION, HEAD, MARKER, OVERHEAD, RABBITMQ_TEMPORARY, file_name
from warrenmq.message_store.scan import Gap, Trust, is_cut_off, scan, whole_records

_MOST_OFFSET = 1 << 44
_RABBITMQ_CLEAN = b"{client_refs,"
"""The first bytes of RabbitMQ's clean.dot.  Ours begins with a checksum, which may be any four bytes."""
_CLEAN_STOP = (CLEAN, SUMMARY, INDEX)
_TAIL = 256
"""Bytes at a message's end in which its id stands."""
_INNER_ID = re.compile(rb"(?=m\x00\x00\x00\x10(.{16}))", re.DOTALL)
_MC = re.compile(rb"\x83h.(?:d\x00\x02|[sw]\x02)mc", re.DOTALL)
"""The first bytes of a message stored by 3.13 or later."""
_WHY_LOST = {
    Trust.BEHIND_ZEROS: "it lies behind a run of zeros, where RabbitMQ up to 3.12 stops looking",
    Trust.BEHIND_DAMAGE: "it lies behind damaged bytes, where RabbitMQ up to 3.12 does not find its way again",
    Trust.BAD_MARKER: "its record has no end mark, so RabbitMQ passes over it",
    Trust.BAD_SIZE: "the size of its record is damaged, so RabbitMQ does not find it",
    Trust.BAD_ID: "the id of its record is damaged, so RabbitMQ does not find it",
}


class Place(NamedTuple):
    """One copy of a message."""

    file: str
    offset: int
    total: int
    trust: Trust


class FileSummary(NamedTuple):
    """The summary of one file of a store: its records and their bytes."""

    name: str
    size: int
    records: int
    live: int
    """Bytes of records that a queue refers to; other copies of them are garbage."""
    garbage: int
    zeros: int
    damaged: int


class InspectedStore:
    """The files of one store; `wanted` are the ids that queues refer to."""

    def __init__(self, findings: Findings, path: str, wanted: dict[bytes, int], *, ours: bool) -> None:
        self.path = path
        self._ours = ours
        self.files: list[FileSummary] = []
        self._findings = findings
        self._wanted = (
            wanted  # id -> where its first copy is, as file * _MOST_OFFSET + offset; -1: nowhere yet
        )
        self._more: dict[bytes, list[Place]] = {}
        """All places of ids that have more than one, or one that is not sound."""
        self._zeros: set[str] = set()
        """Files in which zeros were found."""
        self._gaps: list[tuple[int, int, str]] = []
        """Bytes that are no record, of which nobody knows yet whether one is missed: file, offset, what is wrong."""
        self._open: tuple[str, File] | None = None
        names = findings.names(path)
        self.clean = all(name in names for name in _CLEAN_STOP)
        """True if the store was stopped in order: its broker will use the saved index instead of a scan."""
        self.was_stopped = self.clean
        """The same, even if files have changed since."""
        files = [name for name in names if name.endswith((EXTENSION, RABBITMQ_TEMPORARY))]
        self._names = sorted(files, key=by_number)
        for index, name in enumerate(self._names):
            self._walk(index, name)
        self._look_inside()
        if self.clean and "transient" not in self.name:  # no start keeps that one
            self._compare_with_the_stop()

    @property
    def name(self) -> str:
        return os.path.basename(os.path.normpath(os.path.realpath(self.path)))

    def places(self, msg_id: bytes) -> list[Place]:
        """The copies of a message, the best one first.

        Of two in one file the one further back: from 3.13 on, compaction copies to the front, and a crash may have torn that.
        """
        if (more := self._more.get(msg_id)) is not None:
            return sorted(
                more, key=lambda place: (place.trust, place.file.endswith(RABBITMQ_TEMPORARY), -place.offset)
            )
        where = self._wanted.get(msg_id, -1)
        if where < 0:
            return []
        index, offset = divmod(where, _MOST_OFFSET)
        file = self._file(self._names[index])
        size = int.from_bytes(file.pread(8, offset), "big") if file is not None else 0
        return [Place(self._names[index], offset, size + 9, Trust.SOUND)]

    def has(self, msg_id: bytes) -> bool:
        """True if there is a copy of a wanted message."""
        return self._file_of(msg_id) is not None

    def why_lost(self, place: Place) -> str | None:
        """The reason why RabbitMQ itself would not deliver a message whose best copy this is; None if it would."""
        behind = place.trust in {Trust.BEHIND_ZEROS, Trust.BEHIND_DAMAGE}
        if behind and (self.clean or self._ours or self._is_mc(place)):
            return None  # our collector leaves both, and our start finds its way
        if place.trust != Trust.SOUND:
            return _WHY_LOST[place.trust]
        if place.file.endswith(RABBITMQ_TEMPORARY):
            whole = place.file.removesuffix(RABBITMQ_TEMPORARY) + EXTENSION
            if whole not in self._names:
                return f"it is only in {place.file}, and there is no {whole}, without which RabbitMQ does not start"
            if whole in self._zeros:
                return f"it is only in {place.file}, which RabbitMQ appends to {whole} behind zeros, where it stops looking"
        return None

    def stored(self, place: Place, msg_id: bytes) -> bytes | None:
        """A stored message, None when the file does not have it there any more."""
        file = self._file(place.file)
        record = file.pread(place.total, place.offset) if file is not None else b""
        if len(record) < OVERHEAD or len(record) < place.total:
            return None
        size, found = HEAD.unpack_from(record)
        if place.trust <= Trust.BEHIND_DAMAGE and (size != place.total - 9 or record[-1:] != MARKER):
            return None
        if found != msg_id and place.trust != Trust.BAD_ID:
            return None
        return record[HEAD.size : -1]

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    # -- looking at the files

    def _compare_with_the_stop(self) -> None:
        """Note message files whose sizes differ from those of the clean stop.

        RabbitMQ may stop before it cut off what a compaction left over, so a file of its own may be longer.
        """
        clean, summary = (self._findings.read(f"{self.path}/{name}") or b"" for name in (CLEAN, SUMMARY))
        rabbitmqs = clean.startswith(_RABBITMQ_CLEAN)
        try:
            saved = _rabbitmqs_sizes(summary) if rabbitmqs else saved_sizes(clean, summary)
        except (UnusableDump, CorruptFile) as why:
            self._findings.note(f"{self.path}/{SUMMARY}", 0, why.reason)
            self.clean = False
            return
        sizes = {
            name: size for name, size in file_sizes(self._findings, self.path).items() if name in self._names
        }
        for name, offset, reason in changes_since(saved, sizes):
            if not rabbitmqs or sizes.get(name, -1) < saved.get(name, 0):
                self._findings.note(f"{self.path}/{name}", offset, reason, unless_in_use=True)
                self.clean = self.clean and rabbitmqs  # it does not look at sizes

    def _walk(self, index: int, name: str) -> None:
        file = self._findings.open(f"{self.path}/{name}")
        if file is None:
            return
        count = live = passed = zeros = damaged = 0
        wanted, temporary = self._wanted, name.endswith(RABBITMQ_TEMPORARY)
        with file:
            for found in scan(file, wanted):
                if isinstance(found, Gap):
                    if not found.damage:
                        zeros += found.length
                        self._zeros.add(name)
                    else:
                        damaged += found.length
                        if not temporary:  # a torn copy is what a crash leaves
                            self._gap(index, file, found.offset, found.damage)
                    continue
                trust = found.trust
                count += len(found.records)
                for msg_id, offset, total in found.records:
                    passed += total
                    where = wanted.get(msg_id)
                    if where is None:
                        continue
                    first = where < 0 and msg_id not in self._more
                    live += total * first
                    if first and trust == Trust.SOUND and not temporary:
                        wanted[msg_id] = index * _MOST_OFFSET + offset
                        continue
                    self._another(msg_id, Place(name, offset, total, trust))
                    if trust >= Trust.BAD_MARKER:
                        file.note(offset, f"message {msg_id.hex()}: {_WHY_LOST[trust]}")
            self.files.append(FileSummary(name, file.size(), count, live, passed - live, zeros, damaged))

    def _gap(self, index: int, file: File, offset: int, reason: str) -> None:
        """Note bytes that are no record.  After a crash of ours a torn last write is none, and of others it is
        not known yet whether they are (`note_gaps`).
        """
        if not self._ours or self.was_stopped:
            file.note(offset, reason)
        elif index < len(self._names) - 1 or not is_cut_off(file, offset):
            self._gaps.append((index, offset, reason))

    def note_gaps(self, claims: Iterable[Iterable[bytes]]) -> None:
        """Note the bytes that may have been messages which are missed, as a start does; `claims`: of each queue."""
        if not self._gaps:
            return
        lowest = lowest_of_missed(claims, self._file_of)
        for index, offset, reason in self._gaps:
            if index >= lowest:
                self._findings.note(f"{self.path}/{self._names[index]}", offset, reason)

    def _file_of(self, msg_id: bytes) -> int | None:
        if (more := self._more.get(msg_id)) is not None:
            return self._names.index(more[0].file)
        where = self._wanted.get(msg_id, -1)
        return None if where < 0 else where // _MOST_OFFSET

    def _another(self, msg_id: bytes, place: Place) -> None:
        if msg_id not in self._more:
            self._more[msg_id] = self.places(msg_id)
        self._more[msg_id].append(place)

    def _look_inside(self) -> None:
        """A message whose record is missing may lie under a damaged id: RabbitMQ's messages have theirs inside, too."""
        missing = {each for each, where in self._wanted.items() if where < 0 and each not in self._more}
        if not missing or "transient" in self.name:
            return
        for name in self._names:
            file = self._findings.open(f"{self.path}/{name}")
            if file is None:
                continue
            with file:
                for inner, offset, total in self._inner_ids(file):
                    if inner in missing:
                        self._another(inner, Place(name, offset, total, Trust.BAD_ID))
                        file.note(offset, f"message {inner.hex()}: {_WHY_LOST[Trust.BAD_ID]}")

    def _inner_ids(self, file: File) -> Iterator[tuple[bytes, int, int]]:
        """Ids inside the messages of records that nobody refers to, with offset and size of the record."""
        for msg_id, offset, total in whole_records(file, self._wanted):
            if msg_id not in self._wanted:
                size = min(_TAIL, total)
                for inner in _INNER_ID.findall(file.pread(size, offset + total - size)):
                    yield inner, offset, total

    def _is_mc(self, place: Place) -> bool:
        file = self._file(place.file)
        return file is not None and _MC.match(file.pread(16, place.offset + HEAD.size)) is not None

    def _file(self, name: str) -> File | None:
        """The file, kept open: messages are mostly read in the order in which they lie."""
        if self._open is not None and self._open[0] == name:
            return self._open[1]
        self.close()
        file = self._findings.open(f"{self.path}/{name}")
        if file is not None:
            self._open = name, file
        return file


def _rabbitmqs_sizes(summary: bytes) -> dict[str, int]:
    """The bytes of each message file when RabbitMQ was stopped; CorruptFile when its dump cannot be believed."""
    if (problem := ets.problem(summary)) is not None:
        raise CorruptFile(SUMMARY, 0, problem)
    return {file_name(row.file): row.file_size for row in ets.file_summaries(summary)}


def by_number(name: str) -> tuple[int, str]:
    """A key that sorts message files by their numbers, and others before them."""
    stem = name.partition(".")[0]
    return (int(stem) if stem.isdecimal() else -1, name)


def summary(findings: Findings, store: InspectedStore) -> dict[str, Any]:
    """A store's numbers, as `check --json` has them."""
    sums = [sum(getattr(file, name) for file in store.files) for name in FileSummary._fields[1:]]
    return {
        "directory": findings.relative(store.path),
        "kind": store.name,
        "files": [file._asdict() for file in store.files],
        **dict(zip(FileSummary._fields[1:], sums, strict=True)),
    }
