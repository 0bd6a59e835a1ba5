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
from collections.abc import Container, Iterator
from struct import Struct

from warrenmq.inspect.entries import Entry, Where
from warrenmq.inspect.index_v1 import IndexV1, Segment
from warrenmq.inspect.index_v2 import IndexV2
from warrenmq.inspect.reading import File, Findings
from warrenmq.mend.changes import Changes, pieces_of
from warrenmq.queue_index.record import HEADER
from warrenmq.queue_index.v1.journal import FILE_NAME as JOURNAL
from warrenmq.queue_index.v1.segment import EXTENSION, MARK, PERSISTENT, PUBLISH
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.reader import header_problem, live_entries
from warrenmq.terminal import counted

_MOST_BODIES = 1 << 32
"""Bytes of a .qs file that is looked at: all."""
_prefix = Struct(">H").pack


class Version1:
    """journal.jif and N.idx of a folder."""

    def __init__(self, findings: Findings, folder: str, entry_count: int) -> None:
        self._findings = findings
        self._folder = folder
        self._entry_count = entry_count

    def mend(self, changes: Changes, unreadable: Container[int]) -> None:
        """`unreadable`: sequence ids of messages whose bytes are no message."""
        index = IndexV1(self._findings, self._folder, self._entry_count, may_be_killed=False)
        path, end = f"{self._folder}/{JOURNAL}", index.journal.end
        if not index.journal.damage and not any(
            segment.damage or any(entry.seq_id in unreadable for entry in segment.entries)
            for segment in index.segments()
        ):
            if end < index.journal_size:
                self._cut(changes, path, end)
            return
        for segment in index.segments():
            self._rewrite(changes, segment, unreadable)
        if index.journal_size:
            changes.replace(path, [], "its messages are in the segment files now; emptied")

    def _rewrite(self, changes: Changes, segment: Segment, unreadable: Container[int]) -> None:
        live = [entry for entry in segment.entries if entry.seq_id not in unreadable]
        lost = len(segment.entries) - len(live)
        path = f"{self._folder}/{segment.number}{EXTENSION}"
        why = [f"byte {each.offset}: {each.reason}" for each in segment.damage]
        why += [f"{lost} unreadable messages set aside"] if lost else []
        if not live:
            if segment.on_disk:
                changes.remove(path, "; ".join([*why, "no message in it is left; removed"]))
            return
        why.append(f"written anew with its {counted(len(live), 'message')}")
        first = segment.number * self._entry_count
        changes.replace(path, self._records(live, segment.delivered, first), "; ".join(why))

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

    def _cut(self, changes: Changes, path: str, size: int) -> None:
        file = self._findings.open(path)
        assert file is not None  # it was read a moment ago
        with file:
            changes.replace(path, pieces_of(file, [(0, size)]), f"zeros from byte {size} on; cut off")


class Version2:
    """N.qi and N.qs of a folder."""

    def __init__(self, findings: Findings, folder: str) -> None:
        self._folder = folder
        self._index = IndexV2(findings, folder)

    def mend(self, changes: Changes, unreadable: Container[int]) -> None:
        """`unreadable`: sequence ids of messages whose bodies are not in N.qs, or are no messages."""
        for number in self._index.numbers:
            if (kept := self._mend_index(changes, number, unreadable)) is not None:
                self._mend_bodies(changes, number, kept)

    def _mend_index(self, changes: Changes, number: int, unreadable: Container[int]) -> list[Entry] | None:
        """The entries that the file has now, or would have; None when nothing of the segment is left."""
        data, count = self._index.data(number, qi.EXTENSION), self._index.entry_count
        if data is None:
            return None
        first = number * count
        entries, _ = self._index.entries(number)
        keep = {entry.seq_id: entry for entry in entries if entry.seq_id not in unreadable}
        lost = len(entries) - len(keep)
        _, damage = live_entries(data, number, count)
        if not damage and not lost and (len(data) - qi.HEADER_BYTES) % qi.ENTRY_BYTES == 0:
            return entries
        why = [f"byte {each.offset}: {each.reason}" for each in damage]
        why += [f"{lost} unreadable messages set aside"] if lost else []
        path, bodies = (f"{self._folder}/{number}{extension}" for extension in (qi.EXTENSION, qs.EXTENSION))
        if not keep:
            changes.remove(path, "; ".join([*why, "no message in it is left; removed"]))
            if os.path.exists(bodies):
                changes.remove(bodies, "nothing refers to it; removed")
            return None
        last = max(max(keep) - first, (len(data) - qi.HEADER_BYTES) // qi.ENTRY_BYTES - 1)
        entries_anew = b"".join(
            _packed(keep.get(first + position)) for position in range(min(last + 1, count))
        )
        why.append(f"written anew with its {counted(len(keep), 'message')}")
        changes.replace(path, [qi.pack_header(qi.MAGIC, first, first + count), entries_anew], "; ".join(why))
        return list(keep.values())

    def _mend_bodies(self, changes: Changes, number: int, entries: list[Entry]) -> None:
        data, count = self._index.data(number, qs.EXTENSION, _MOST_BODIES), self._index.entry_count
        if not data:
            return
        first = number * count
        used = max((each.offset + each.head + each.stored_size for each in entries if each.where == Where.QUEUE_STORE),
                   default=qi.HEADER_BYTES)  # fmt: skip
        why = []
        head = data[: qi.HEADER_BYTES]
        if (problem := header_problem(qs.EXTENSION, head, number, count)) is not None:
            why.append(f"{problem}; its header was written anew")
            head = qi.pack_header(qs.MAGIC, first, first + count)
        bodies, damage = qs.scan(head + data[qi.HEADER_BYTES :])
        end = max([used, *(body.offset + qs.ENTRY_HEADER_BYTES + body.size for body in bodies)])
        if damage and damage[-1].offset >= end and damage[-1].offset + damage[-1].length == len(data):
            why.append(f"a torn body from byte {end} on; cut off")
            data = data[:end]
        if why:
            path = f"{self._folder}/{number}{qs.EXTENSION}"
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
