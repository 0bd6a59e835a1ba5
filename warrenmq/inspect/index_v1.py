"""The entries of an index of version 1, journal.jif and N.idx, read without changing anything.

queue_index/v1/reader.py reads the files and queue_index/v1/merge.py joins them, as for a start; here their records become
entries, and their damage is noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from warrenmq.directory.torn import Damage
from warrenmq.inspect.entries import Entry, Where
from warrenmq.inspect.reading import Findings
from warrenmq.queue_index.file_numbers import file_numbers
from warrenmq.queue_index.record import HEADER, HEADER_BYTES
from warrenmq.queue_index.v1.journal import ACTION_BYTES, FILE_NAME
from warrenmq.queue_index.v1.merge import segment_plus_journal
from warrenmq.queue_index.v1.reader import Policy, Reading, read_journal, read_segment
from warrenmq.queue_index.v1.segment import EXTENSION, MARK_BYTES, Facts, what_no_kill_did


@dataclass(slots=True)
class Segment:
    """One segment as its file and the journal describe it."""

    number: int
    on_disk: bool
    """True if the segment has a file."""
    entries: list[Entry] = field(default_factory=list)
    """Published and not acked, ascending."""
    delivered: set[int] = field(default_factory=set)
    """Sequence ids."""
    damage: list[Damage] = field(default_factory=list)
    """Damage found in the segment's file."""


class IndexV1:
    """journal.jif and N.idx of one folder; the journal is read at once, a segment's file when it is its turn."""

    def __init__(self, findings: Findings, folder: str, entry_count: int, *, may_be_killed: bool) -> None:
        """`may_be_killed`: a process of ours may have been killed here, in the middle of a flush."""
        self._may_be_killed = may_be_killed
        self._findings = findings
        self._folder = folder
        self._entry_count = entry_count
        names = findings.names(folder)
        self._numbers = {*file_numbers(names, EXTENSION)}
        self.journal, self.journal_size = Reading(), 0
        file = findings.open(f"{folder}/{FILE_NAME}") if FILE_NAME in names else None
        if file is not None:
            with file:
                self.journal_size = file.size()
                self.journal = read_journal(file.pread(file.size(), 0), entry_count, Policy.INSPECT)
                for each in self.journal.damage:
                    file.note(each.offset, each.reason)

    def segments(self) -> Iterator[Segment]:
        """Every segment that a file or the journal names, ascending."""
        for number in sorted(self._numbers | self.journal.facts.keys()):
            yield self._segment(number)

    def _segment(self, number: int) -> Segment:
        facts, found = Facts(), Segment(number, number in self._numbers)
        journal = self.journal.facts.get(number, Facts())
        file = self._findings.open(f"{self._folder}/{number}{EXTENSION}") if found.on_disk else None
        if file is not None:
            with file:
                data = file.pread(file.size(), 0)
                facts, found.damage = read_segment(data, self._entry_count, Policy.INSPECT)
                if self._may_be_killed:
                    found.damage = what_no_kill_did(found.damage, data, journal)
                for each in found.damage:
                    file.note(each.offset, each.reason)
        both, first = segment_plus_journal(facts, journal), number * self._entry_count
        found.delivered = {first + relative for relative in both.delivered}
        for relative, header in sorted(both.published.items()):
            msg_id, expiry, size, embedded = HEADER.unpack(header)
            name, place, prefix = f"{number}{EXTENSION}", facts.places.get(relative), MARK_BYTES
            if place is None:
                name, place, prefix = FILE_NAME, journal.places[relative], ACTION_BYTES
            found.entries.append(
                Entry(
                    first + relative, relative not in both.transient, msg_id, expiry, size,
                    Where.INDEX if embedded else Where.STORE, name, place, prefix + HEADER_BYTES, embedded,
                )
            )  # fmt: skip
        return found
