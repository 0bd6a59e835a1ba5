"""Mending the index of one queue, so that its broker reads it to the end.

A version 1 index with damage in any of its files is written anew: for each segment the messages that are not acked, in
order, and an empty journal.  So nothing depends on how a broker merges a journal with segment files of which parts are
missing (RabbitMQ crashes over most combinations; docs/reference/classic-queue.md#merge-rules).

    journal.jif    acks whose publish was damaged, torn tails     empty
    N.idx          torn tails, zeros, damaged records, garbage    the live messages: publish, mark; none: no file

A version 2 segment keeps its places: entries that cannot be, or whose body cannot be read, become zeros (acked), a header
is written anew, a torn entry is completed or cut.  Of N.qs only the header and a torn tail are mended.

Source: rabbit_queue_index, rabbit_classic_queue_index_v2, docs/reference/classic-queue.md#torn-tails and
#recovery-of-version-2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from warrenmq.inspect import index_v1, index_v2
from warrenmq.inspect.entries import Entry, SegmentFacts, Where
from warrenmq.mend.changes import pieces_of
from warrenmq.queue_index.record import HEADER
from warrenmq.queue_index.v1.journal import FILE_NAME as JOURNAL
from warrenmq.queue_index.v1.segment import EXTENSION, MARK, PERSISTENT, PUBLISH
from warrenmq.queue_index.v2 import qi, qs

if TYPE_CHECKING:
    from collections.abc import Container

    from warrenmq.inspect.reading import File, Findings
    from warrenmq.mend.changes import Changes

_prefix = Struct(">H").pack


class Version1:
    """journal.jif and N.idx of a folder."""

    def __init__(self, findings: Findings, folder: str, entry_count: int) -> None:
        self._findings = findings
        self._folder = folder
        self._entry_count = entry_count
        names = findings.names(folder)
        stems = [name.removesuffix(EXTENSION) for name in names if name.endswith(EXTENSION)]
        self._numbers = sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())
        self._has_journal = JOURNAL in names

    def mend(self, changes: Changes, unreadable: Container[int]) -> None:
        """`unreadable`: sequence ids of messages whose bytes are no message."""
        journal, damaged = self._journal()
        by_segment: dict[int, list[int]] = {}
        for seq_id in journal.published:
            by_segment.setdefault(seq_id // self._entry_count, []).append(seq_id)
        for number in self._numbers:
            facts, damaged_at, zero_tail = self._segment(number)
            damaged |= damaged_at is not None or zero_tail is not None
            damaged |= any(seq_id in unreadable for seq_id in facts.published)
        damaged |= any(seq_id in unreadable for seq_id in journal.published)
        if not damaged:
            if zeros := self._zeros_behind_the_journal():
                self._cut_journal(changes, zeros)
            return
        for number in sorted({*self._numbers, *by_segment}):
            self._rewrite(changes, number, journal, by_segment.get(number, []), unreadable)
        file = self._findings.open(f"{self._folder}/{JOURNAL}") if self._has_journal else None
        if file is not None:
            with file:
                if file.size():
                    changes.replace(file.path, [], "its messages are in the segment files now; emptied")

    def _journal(self) -> tuple[SegmentFacts, bool]:
        file = self._findings.open(f"{self._folder}/{JOURNAL}") if self._has_journal else None
        if file is None:
            return SegmentFacts(), False
        with file:
            facts, damaged_at = index_v1.read(file, index_v1.JournalFormat())
        return facts, damaged_at is not None

    def _segment(self, number: int) -> tuple[SegmentFacts, int | None, int | None]:
        """Facts, where the first damage is, where zeros begin that go on to the end."""
        file = self._findings.open(f"{self._folder}/{number}{EXTENSION}")
        if file is None:
            return SegmentFacts(), None, None
        with file:
            facts, damaged_at = index_v1.read(file, index_v1.SegmentFormat(number, self._entry_count))
            return facts, damaged_at, _zero_tail(file, facts)

    def _rewrite(
        self,
        changes: Changes,
        number: int,
        journal: SegmentFacts,
        in_journal: list[int],
        unreadable: Container[int],
    ) -> None:
        facts, damaged_at, zero_tail = self._segment(number)
        published = dict(facts.published)
        for seq_id in in_journal:
            published.setdefault(seq_id, journal.published[seq_id])
        live = [
            published[seq_id]
            for seq_id in sorted(published)
            if seq_id not in facts.acked and seq_id not in journal.acked and seq_id not in unreadable
        ]
        lost = sum(seq_id in unreadable for seq_id in published)
        path = f"{self._folder}/{number}{EXTENSION}"
        why = [f"damaged at byte {damaged_at}"] if damaged_at not in {None, zero_tail} else []
        why += [f"zeros from byte {zero_tail} on"] if zero_tail is not None else []
        why += [f"{lost} unreadable messages set aside"] if lost else []
        if not live:
            if number in self._numbers:
                changes.remove(path, "; ".join([*why, "no message in it is left; removed"]))
            return
        delivered = facts.delivered | journal.delivered
        why.append(f"written anew with its {len(live)} messages")
        changes.replace(path, self._records(live, delivered, number * self._entry_count), "; ".join(why))

    def _records(self, live: list[Entry], delivered: set[int], first: int) -> Iterator[bytes]:
        files: dict[str, File | None] = {}
        try:
            for entry in live:
                if entry.file not in files:
                    files[entry.file] = self._findings.open(f"{self._folder}/{entry.file}")
                file = files[entry.file]
                assert file is not None  # it was read a moment ago
                stored = file.pread(entry.stored_size, entry.offset + entry.head)
                kind = PUBLISH | PERSISTENT if entry.persistent else PUBLISH
                relative = entry.seq_id - first
                yield (
                    _prefix(kind | relative)
                    + HEADER.pack(entry.msg_id, entry.expiry, entry.size, len(stored))
                    + stored
                )
                if entry.seq_id in delivered:
                    yield _prefix(MARK | relative)
        finally:
            for file in files.values():
                if file is not None:
                    file.close()

    def _zeros_behind_the_journal(self) -> int:
        """Where they begin; 0 = there are none."""
        file = self._findings.open(f"{self._folder}/{JOURNAL}") if self._has_journal else None
        if file is None:
            return 0
        with file:
            end = _end_of_actions(file)
            return end if end < file.size() else 0

    def _cut_journal(self, changes: Changes, size: int) -> None:
        file = self._findings.open(f"{self._folder}/{JOURNAL}")
        assert file is not None
        with file:
            done = f"zeros from byte {size} on; cut off"
            changes.replace(file.path, pieces_of(file, [(0, size)]), done)


def _zero_tail(file: File, facts: SegmentFacts) -> int | None:
    """Where zeros begin in a segment file that go on to its end; no record begins with two zero bits."""
    at = max((entry.offset + entry.head + entry.stored_size for entry in facts.published.values()), default=0)
    while behind := file.pread(1 << 16, at):
        for place in range(0, len(behind), 2):
            if behind[place] < MARK >> 8:
                return at + place
        at += len(behind)
    return None


def _end_of_actions(file: File) -> int:
    """Where the last action of a sound journal ends: behind its last byte that is not zero, and a whole action."""
    facts, _ = index_v1.read(file, index_v1.JournalFormat())
    at = max((entry.offset + entry.head + entry.stored_size for entry in facts.published.values()), default=0)
    while len(action := file.pread(8, at)) == 8 and any(action):
        at += 8
    return at


class Version2:
    """N.qi and N.qs of a folder."""

    def __init__(self, findings: Findings, folder: str) -> None:
        self._findings = findings
        self._folder = folder
        self._numbers = index_v2.segment_numbers(findings.names(folder), qi.EXTENSION)

    def mend(self, changes: Changes, unreadable: Container[int]) -> None:
        """`unreadable`: sequence ids of messages whose bodies are not in N.qs, or are no messages."""
        count = index_v2.entry_count(self._findings, self._folder, self._numbers)
        for number in self._numbers:
            if (kept := self._mend_index(changes, number, count, unreadable)) is not None:
                self._mend_bodies(changes, number, count, kept)

    def _mend_index(
        self, changes: Changes, number: int, count: int, unreadable: Container[int]
    ) -> list[Entry] | None:
        """The entries that the file has now, or would have; None when nothing of the segment is left."""
        file = self._findings.open(f"{self._folder}/{number}{qi.EXTENSION}")
        if file is None:
            return None
        with file:
            data = file.pread(file.size(), 0)
        header = qi.unpack_header(qi.MAGIC, data)
        foreign = None if isinstance(header, str) else index_v2.foreign(header, number)
        first = number * count if isinstance(header, str) or foreign else header.first
        entries, _ = index_v2.read(self._findings, self._folder, number, count)
        keep = {entry.seq_id: entry for entry in entries if entry.seq_id not in unreadable}
        lost = len(entries) - len(keep)
        _, _, damage = qi.parse(data)
        if not damage and not lost and not foreign and (len(data) - qi.HEADER_BYTES) % qi.ENTRY_BYTES == 0:
            return entries
        why = [f"byte {each.offset}: {each.reason}" for each in damage]
        why += [foreign] if foreign else []
        why += [f"{lost} unreadable messages set aside"] if lost else []
        if not keep:
            changes.remove(file.path, "; ".join([*why, "no message in it is left; removed"]))
            bodies = f"{self._folder}/{number}{qs.EXTENSION}"
            if os.path.exists(bodies):
                changes.remove(bodies, "nothing refers to it; removed")
            return None
        last = max(max(keep) - first, (len(data) - qi.HEADER_BYTES) // qi.ENTRY_BYTES - 1)
        entries_anew = b"".join(
            _packed(keep.get(first + position)) for position in range(min(last + 1, count))
        )
        why.append(f"written anew with its {len(keep)} messages")
        changes.replace(
            file.path, [qi.pack_header(qi.MAGIC, first, first + count), entries_anew], "; ".join(why)
        )
        return list(keep.values())

    def _mend_bodies(self, changes: Changes, number: int, count: int, entries: list[Entry]) -> None:
        path = f"{self._folder}/{number}{qs.EXTENSION}"
        file = self._findings.open(path)
        if file is None:
            return
        with file:
            data = file.pread(file.size(), 0)
        first = number * count
        used = max((each.offset + each.head + each.stored_size for each in entries if each.where == Where.QUEUE_STORE),
                   default=qi.HEADER_BYTES)  # fmt: skip
        why = []
        head = data[: qi.HEADER_BYTES]
        if (problem := qs.header_problem(data)) is not None and data:
            why.append(f"{problem}; its header was written anew")
            head = qi.pack_header(qs.MAGIC, first, first + count)
        bodies, damage = qs.scan(head + data[qi.HEADER_BYTES :])
        end = max([used, *(body.offset + qs.ENTRY_HEADER_BYTES + body.size for body in bodies)])
        if damage and damage[-1].offset >= end and damage[-1].offset + damage[-1].length == len(data):
            why.append(f"a torn body from byte {end} on; cut off")
            data = data[:end]
        if why:
            changes.replace(path, [head, data[qi.HEADER_BYTES :]], "; ".join(why))


def _packed(entry: Entry | None) -> bytes:
    if entry is None:
        return qi.ACKED
    if entry.where == Where.STORE:
        place = qi.Entry(entry.persistent, qi.Location.STORE, entry.msg_id, 0, 0, entry.size, entry.expiry)
    else:
        place = qi.Entry(
            entry.persistent,
            qi.Location.QUEUE_STORE,
            b"",
            entry.offset,
            entry.stored_size,
            entry.size,
            entry.expiry,
        )
    return qi.pack_entry(place)
