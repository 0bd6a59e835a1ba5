"""Opening a directory of .qi and .qs files: reads their entries, keeps the valid ones, and repairs the files.

No bytes make this raise.  Every entry is looked at:

    persistent, its body in the .qs file           kept: a body is checked when it is read (segment_files.py)
    persistent, its body in the store              kept
    persistent, and the store does not have it     dropped
    transient                                      dropped
    bytes that are no entry                        dropped, told as damage

So a start reads 32 bytes a message, however large the bodies are.  After a clean stop the terms have to name
the same number of messages in each segment, or the stop counts as a crash.  A dropped entry gets a zero as
its first byte, damaged bytes are copied to the quarantine, and a header that makes no sense is written anew
(RabbitMQ deletes such a file).

A directory keeps the segment size that its files were made with.

Source: rabbit_classic_queue_index_v2:recover, docs/reference/classic-queue.md#recovery-of-version-2.
"""

from __future__ import annotations

from warrenmq.directory.quarantine import set_aside
from warrenmq.directory.recovery_terms import Terms
from warrenmq.directory.torn import Damage
from warrenmq.errors import CorruptFile
from warrenmq.log import Log
from warrenmq.queue_index.file_numbers import file_numbers
from warrenmq.queue_index.protocol import Opening
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.reader import Summary, header_problem, live_entries
from warrenmq.queue_index.v2.walk import WalkedV2, read_head

UNSYNCED = "unsynced"
"""Lists files whose sync failed, one a line: what can be read of them is perhaps not on the disk."""
TEMPORARY = ".tmp"


class RecoveryV2:
    """One recovery; `segments` (number -> unacked) is for the index, `found` has the figures to report.

    The files have been synced since the process before this one, or a clean stop did it.
    """

    def __init__(self, opening: Opening, walked: WalkedV2) -> None:
        self._disk = disk = opening.disk
        self._directory = directory = opening.directory
        self._contains = opening.contains
        self._quarantine = opening.quarantine
        terms = opening.terms
        self.found = Found()
        self.segments: dict[int, int] = {}
        self.entry_count = walked.entry_count
        self._folder_changed = False
        self._bodies_left: list[int] = []
        names = disk.listdir(directory)
        for name in names:
            if name.endswith(TEMPORARY):
                disk.unlink(f"{directory}/{name}")
        if UNSYNCED in names:
            self._make_good()
        self._clean = terms is not None and self._as_left(terms, walked.segments)
        self._in_use = terms.next_seq_id // self.entry_count if self._clean and terms is not None else None
        """The segment that the next message goes to, which is kept when it is empty (rule 3 of the index)."""
        self._highest = -1
        bodies = file_numbers(names, qs.EXTENSION)
        for number, segment in walked.segments.items():
            self._recover_segment(number, segment)
        if not self._clean:
            for number in self.segments.keys() & bodies:
                self._repair_bodies(number)
        self._keep_orphans(
            [number for number in bodies if number not in walked.segments], crashed=terms is None
        )
        high = (max(walked.segments, default=-1) + 1) * self.entry_count
        self.found.next_seq_id = high if terms is None else max(terms.next_seq_id, self._highest + 1)
        if not self.found.count:
            self.found.low = self.found.next_seq_id
        if self._folder_changed:
            disk.sync_dir(directory)
        self._remove_bodies()

    def _make_good(self) -> None:
        """Write the files anew whose sync failed."""
        note = f"{self._directory}/{UNSYNCED}"
        for name in sorted({*self._disk.read(note).decode(errors="replace").split("\n")}):
            path = f"{self._directory}/{name}"
            if name.endswith((qi.EXTENSION, qs.EXTENSION)) and self._disk.exists(path):
                self._disk.replace(path, self._disk.read(path))
        self._disk.unlink(note)
        self._disk.sync_dir(self._directory)

    def _as_left(self, terms: Terms, segments: dict[int, Summary]) -> bool:
        """True if the files hold what the clean stop left."""
        if terms.segments is None:
            return not segments
        whole = True
        for number, unacked in terms.segments:
            here = segments[number].live if number in segments else 0
            if here != unacked:
                whole = False
                reason = f"{unacked} messages were here at the last stop, now there are {here}"
                self.found.damage.append(CorruptFile(self._path(number, qi.EXTENSION), 0, reason))
        return whole and len(segments) == len(terms.segments)

    def _recover_segment(self, number: int, segment: Summary) -> None:
        base = number * self.entry_count
        dropped = {*segment.transient}
        dropped |= {position for position, msg_id in segment.in_store if not self._contains(msg_id)}
        kept = segment.live - len(dropped)
        if segment.live:
            self._highest = max(self._highest, base + segment.last)
        self.found.dropped += len(dropped)
        data = b""
        if dropped or segment.damage:
            data = self._disk.read(self._path(number, qi.EXTENSION))
            self._set_aside(number, qi.EXTENSION, data, segment.damage)
        if not kept and (dropped or segment.damage or number != self._in_use):
            self._disk.unlink(self._path(number, qi.EXTENSION))
            self._folder_changed = True
            self._bodies_left.append(number)
            return
        if not self.found.count:
            self.found.low = base + segment.first
        if dropped or segment.damage:
            self._repair(number, data, dropped, segment.damage)
        self.found.count += kept
        self.found.expires |= segment.expires
        self.segments[number] = kept

    def _repair(self, number: int, data: bytes, dropped: set[int], damage: list[Damage]) -> None:
        """Ack what was dropped, blank what is damaged, make the header right, and have that safe."""
        if not self.found.count:
            entries, _ = live_entries(data, number, self.entry_count)
            self.found.low = number * self.entry_count + min(
                position for position, _ in entries if position not in dropped
            )
        header = qi.pack_header(qi.MAGIC, *self._span(number))
        file = self._disk.open(self._path(number, qi.EXTENSION))
        try:
            if data[: qi.HEADER_BYTES] != header:
                file.pwrite(header, 0)
            for relative in sorted(dropped):
                file.pwrite(b"\0", qi.HEADER_BYTES + qi.ENTRY_BYTES * relative)
            for each in damage:
                if each.offset:
                    file.pwrite(bytes(each.length), each.offset)
            file.datasync()
        finally:
            file.close()

    def _repair_bodies(self, number: int) -> None:
        """Make the header of a body file right."""
        path = self._path(number, qs.EXTENSION)
        head = read_head(self._disk, path)
        problem = header_problem(qs.EXTENSION, head, number, self.entry_count)
        if len(head) == qi.HEADER_BYTES and problem is not None:
            self._set_aside(number, qs.EXTENSION, head, [Damage(0, len(head), problem)])
            file = self._disk.open(path)
            try:
                file.pwrite(qi.pack_header(qs.MAGIC, *self._span(number)), 0)
                file.datasync()
            finally:
                file.close()

    def _keep_orphans(self, numbers: list[int], *, crashed: bool) -> None:
        """Set aside what body files without an index file hold, since their acks are unknown.

        After a clean stop that is damage.  A crash leaves such files of segments that were being deleted, as
        their bodies go last.
        """
        for number in numbers:
            data = self._disk.read(self._path(number, qs.EXTENSION))
            if len(data) > qi.HEADER_BYTES:
                damage = [Damage(0, len(data), "it has no index file")]
                self._set_aside(number, qs.EXTENSION, data, damage, told=not crashed)
        self._bodies_left += numbers

    def _remove_bodies(self) -> None:
        """Remove the bodies of segments whose entries are gone for certain: an entry that comes back without
        its body is a lost message.
        """
        for number in self._bodies_left:
            self._disk.unlink(self._path(number, qs.EXTENSION))
        if self._bodies_left:
            self._disk.sync_dir(self._directory)

    def _span(self, number: int) -> tuple[int, int]:
        return number * self.entry_count, (number + 1) * self.entry_count

    def _path(self, number: int, extension: str) -> str:
        return f"{self._directory}/{number}{extension}"

    def _set_aside(
        self, number: int, extension: str, data: bytes, damage: list[Damage], *, told: bool = True
    ) -> None:
        """Copy the damaged bytes of one file to one file in the quarantine; a line in the log says so where
        they are not told as damage.
        """
        if not damage:
            return
        path = self._path(number, extension)
        if told:
            self.found.damage += [CorruptFile(path, each.offset, each.reason) for each in damage]
        else:
            Log("warrenmq.queue").warning(
                "bodies without entries, as a kill leaves them of a segment that was being deleted, were copied to the quarantine", path=path
            )  # fmt: skip
        queue = self._directory.rpartition("/")[2]
        set_aside(
            self._disk, self._quarantine, f"{queue}-{number}{extension}", data, [each[:2] for each in damage]
        )
