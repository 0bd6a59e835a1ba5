"""Opening a queue's directory: what is in it, and what of that can be trusted.

No bytes make this raise: parts of a file that make no sense are copied to the quarantine, counted, and
cut out of a segment file (the journal is begun anew by the flush that follows).  A healthy segment, of which the journal
says nothing, is taken over as the walk summed it up, and its messages are checked when they are read.  Of others every
message is looked at:

    persistent, and embedded or in the store      kept
    persistent, embedded, without its checksum    dropped, told as damage
    persistent, but the store does not have it    dropped
    transient                                     dropped

Messages that are kept count as delivered, dropped ones are acked, both as actions in memory that a flush takes to the segment
files.  So recovering again, after a crash at any point of a recovery, finds the same messages.

Source: rabbit_queue_index:recover and queue_index_walker, docs/reference/classic-queue.md#start-and-recovery,
#torn-tails and #seeding-reference-counts.  RabbitMQ believes the
counts that a clean stop saved; here they are always counted, the walk for the store reads every file anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from warrenmq.directory.quarantine import set_aside
from warrenmq.directory.torn import Damage
from warrenmq.errors import CorruptFile
from warrenmq.queue_index.record import ID_BYTES, all_whole, embedded, expiry_of, record_problem
from warrenmq.queue_index.v1.journal import ACTION_BYTES, FILE_NAME, TEMPORARY
from warrenmq.queue_index.v1.merge import journal_minus_segment, segment_plus_journal
from warrenmq.queue_index.v1.reader import read_segment
from warrenmq.queue_index.v1.segment import (
    EXTENSION,
    MARK,
    MARK_BYTES,
    Facts,
    Segment,
    pack_prefix,
    what_no_kill_did,
)
from warrenmq.queue_index.v1.walk import Summary, WalkedV1, read_file, segment_path
from warrenmq.seams.disk import Disk


@dataclass(slots=True)
class Found:
    """The figures of a recovery."""

    count: int = 0
    """Messages: persistent ones, as no others survive."""
    low: int = 0
    """The first of these messages' sequence id; those that the opening itself left out (`lost`) do not count."""
    next_seq_id: int = 0
    """Above every sequence id that the files name."""
    expires: bool = False
    """True if some of them may have an expiry."""
    dropped: int = 0
    """Messages that were transient, not in the store, or damaged when they were to be converted."""
    lost: list[int] = field(default_factory=list)
    """Sequence ids of those among the dropped whose bytes are in the queue's own files, but damaged."""
    damage: list[CorruptFile] = field(default_factory=list)
    """The places of invalid bytes."""

    @property
    def quarantined(self) -> int:
        """The number of pieces of files that were set aside."""
        return len(self.damage)


_EMPTY = "it was written, and no message is in it"


class Recovery:
    """One recovery: `segments` is what the index goes on with, `found` what to tell."""

    def __init__(
        self, disk: Disk, directory: str, entry_count: int, contains: Callable[[bytes], bool], quarantine: str,
        walked: WalkedV1,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._directory = directory
        self._entry_count = entry_count
        self._contains = contains
        self._quarantine = quarantine
        self.found = Found()
        self.segments: dict[int, Segment] = {}
        for name in disk.listdir(directory):
            if name.endswith(TEMPORARY):
                disk.unlink(f"{directory}/{name}")
        journal, replay = walked.journal_bytes, walked.journal
        self._set_aside(FILE_NAME, journal, replay.damage)
        self.journal_actions = replay.actions
        self.journal_whole = replay.end == len(journal) and not replay.damage
        """The journal can be appended to as it is."""
        self.next_seq_id = replay.next_seq_id
        """Above every sequence id that is published, or named by the journal."""
        for number in sorted({*walked.segments, *replay.facts}):
            healthy = walked.segments.get(number)
            if healthy is not None and all(map(contains, healthy.in_store)):
                self._take_over(number, healthy)
            else:
                self._recover_segment(
                    number, replay.facts.get(number, Facts()), on_disk=number in walked.segments
                )
        self.segments_without_journal = bool(
            self.found.count and walked.segments and not disk.exists(f"{directory}/{FILE_NAME}")
        )
        """There are messages in segments, and the journal that is made before any of them is gone."""
        self.high = (max([*walked.segments, (replay.next_seq_id - 1) // entry_count]) + 1) * entry_count
        """Above every sequence id that lies in a segment which any file names."""

    def tell_gone(self, name: str, reason: str) -> None:
        """Tell a file that is as no kill and no power cut leaves it: the journal is made before all others,
        and has what they may lack.
        """
        self.found.damage.append(CorruptFile(f"{self._directory}/{name}", 0, reason))

    def _take_over(self, number: int, segment: Summary) -> None:
        """Go on with a segment in whose file everything is as it should be."""
        base = number * self._entry_count
        if segment.last < 0:
            self.tell_gone(f"{number}{EXTENSION}", _EMPTY)
        self.next_seq_id = max(self.next_seq_id, base + segment.last + 1)
        if segment.live and not self.found.count:
            self.found.low = base + segment.first
        self.found.count += segment.live
        self.found.expires |= segment.expires
        self.segments[number] = Segment(number, unacked=segment.live, on_disk=True)

    def _recover_segment(self, number: int, journal: Facts, *, on_disk: bool) -> None:
        file = self._repaired(number, journal) if on_disk else Facts()
        if on_disk and not (file.published or journal.published):
            self.tell_gone(f"{number}{EXTENSION}", _EMPTY)
        self.next_seq_id = max(
            self.next_seq_id, number * self._entry_count + max(file.published, default=-1) + 1
        )
        kept, dropped = set[int](), set[int]()
        without_checksum: dict[int, str] = {}
        base = number * self._entry_count
        effective = segment_plus_journal(file, journal)
        whole = all_whole(
            [*effective.published.values()], [base + relative for relative in effective.published]
        )
        for relative, record in effective.published.items():
            if relative in effective.transient:
                dropped.add(relative)
            elif not whole and (problem := record_problem(record, base + relative)) is not None:
                dropped.add(relative)
                without_checksum[relative] = problem
            elif embedded(record) or self._contains(record[:ID_BYTES]):
                kept.add(relative)
                self.found.expires = self.found.expires or expiry_of(record) > 0
            else:
                dropped.add(relative)
        if without_checksum:
            self.found.lost += [base + relative for relative in sorted(without_checksum)]
            self._set_aside_records(number, file, journal, without_checksum)
        if kept and not self.found.count:
            self.found.low = number * self._entry_count + min(kept)
        self.found.count += len(kept)
        self.found.dropped += len(dropped)
        journal.delivered |= kept | dropped
        journal.acked |= dropped
        rest = journal_minus_segment(journal, file)
        published = {relative: record for relative, record in rest.published.items() if relative in kept}
        if kept or on_disk:
            self.segments[number] = Segment(
                number,
                unacked=len(kept),
                on_disk=on_disk,
                published=published,
                delivered=rest.delivered - rest.published.keys(),
                acked=rest.acked - rest.published.keys(),
            )

    def _repaired(self, number: int, journal: Facts) -> Facts:
        """A segment file's facts; bytes that make no sense are cut out of the file.

        A flush was interrupted while it wrote what the journal has, too.  We can read it, but perhaps only from
        the system's cache: it was not synced, or the sync failed, and then no later one makes it good.  The journal
        is about to forget it, so the file is written anew.
        """
        path = segment_path(self._directory, number)
        data = read_file(self._disk, path)
        facts, damage = read_segment(data, self._entry_count)
        damage = sorted([*damage, *self._torn(number, data, facts, journal)])
        self._set_aside(f"{number}{EXTENSION}", data, what_no_kill_did(damage, data, journal))
        if damage or facts.published.keys() & journal.published.keys() or facts.acked & journal.acked:
            starts = [0, *(each.offset + each.length for each in damage)]
            ends = [*(each.offset for each in damage), len(data)]
            self._disk.replace(path, b"".join(data[a:b] for a, b in zip(starts, ends, strict=True)))
        return facts

    def _torn(self, number: int, data: bytes, facts: Facts, journal: Facts) -> Iterator[Damage]:
        """Records of a segment file that are damaged while the journal's are not; takes them out of `facts`."""
        base = number * self._entry_count
        for relative in facts.published.keys() & journal.published.keys():
            record, other = facts.published[relative], journal.published[relative]
            if record == other or record_problem(other, base + relative) is not None:
                continue
            if (problem := record_problem(record, base + relative)) is not None:
                start = facts.places[relative]
                end = start + MARK_BYTES + len(record)
                if data.startswith(pack_prefix(MARK | relative), end):
                    end += MARK_BYTES
                yield Damage(start, end - start, problem)
                del facts.published[relative]
                facts.transient.discard(relative)
                facts.delivered.discard(relative)

    def _set_aside_records(self, number: int, file: Facts, journal: Facts, problems: dict[int, str]) -> None:
        """Copy records that do not have their checksum; the files keep them, with an ack."""
        for name, facts, prefix in (
            (f"{number}{EXTENSION}", file, MARK_BYTES),
            (FILE_NAME, journal, ACTION_BYTES),
        ):
            damage = [
                Damage(facts.places[relative] + prefix, len(facts.published[relative]), problem)
                for relative, problem in problems.items()
                if relative in facts.published
            ]
            if damage:
                self._set_aside(name, read_file(self._disk, f"{self._directory}/{name}"), sorted(damage))

    def _set_aside(self, name: str, data: bytes, damage: list[Damage]) -> None:
        """Copy the damaged bytes of one file to one file in the quarantine."""
        if not damage:
            return
        path = f"{self._directory}/{name}"
        self.found.damage += [CorruptFile(path, each.offset, each.reason) for each in damage]
        queue = self._directory.rpartition("/")[2]
        set_aside(self._disk, self._quarantine, f"{queue}-{name}", data, [each[:2] for each in damage])
