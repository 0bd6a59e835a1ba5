"""Opening a directory of .qi and .qs files: what is in it, and what of that can be trusted.

Whatever the bytes, nothing here raises for them.  Every entry is looked at:

    persistent, its body whole in the .qs file, or in the store    kept
    persistent, but its body is missing, cut off or damaged        dropped, told as damage when it was in the .qs file
    transient                                                      dropped
    bytes that are no entry                                        dropped, told as damage

After a clean stop bodies are not read: the file has to be long enough, and the terms have to name the same number of
messages in each segment, or the stop counts as a crash.  A dropped entry gets a zero as its first byte, damaged bytes are
copied to the quarantine, and a header that makes no sense is written anew (RabbitMQ deletes such a file).

A directory keeps the segment size that its files were made with.

Source: rabbit_classic_queue_index_v2:recover, docs/reference/classic-queue.md#recovery-of-version-2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from warrenmq.directory.quarantine import set_aside
from warrenmq.directory.torn import Damage
from warrenmq.errors import CorruptFile
from warrenmq.queue_index.file_numbers import file_numbers
from warrenmq.queue_index.record import message_problem
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.reader import header_problem, live_entries, segment_size

if TYPE_CHECKING:
    from warrenmq.directory.recovery_terms import Terms
    from warrenmq.queue_index.protocol import Opening
    from warrenmq.seams.disk import Disk
    from warrenmq.settings import Settings

UNSYNCED = "unsynced"
"""Lists files whose sync failed, one a line: what can be read of them is perhaps not on the disk."""
TEMPORARY = ".tmp"


def numbers_of(disk: Disk, directory: str, extension: str) -> list[int]:
    """The numbers of a folder's .qi or .qs files, ascending."""
    return file_numbers(disk.listdir(directory), extension)


def segment_size_of(disk: Disk, directory: str, default: int) -> int:
    """How many messages a segment of a folder has; `default` when there is no file to ask."""
    heads = (
        (number, extension, _head(disk, f"{directory}/{number}{extension}"))
        for extension in (qi.EXTENSION, qs.EXTENSION)
        for number in numbers_of(disk, directory, extension)
    )
    return segment_size(heads, default)


def segments(
    disk: Disk, directory: str, settings: Settings
) -> Iterator[tuple[int, list[tuple[int, qi.Entry]], list[Damage]]]:
    """Of each .qi file its first sequence id, its live entries by position, and the damage in it.  Writes nothing."""
    entry_count = segment_size_of(disk, directory, settings.classic_queue_index_v2_segment_entry_count)
    for number in numbers_of(disk, directory, qi.EXTENSION):
        data = disk.read(f"{directory}/{number}{qi.EXTENSION}")
        yield number * entry_count, *live_entries(data, number, entry_count)


def store_message_ids(disk: Disk, directory: str, settings: Settings) -> dict[int, bytes]:
    """By sequence id, the messages that a store must keep for this queue: persistent, not acked, not in a .qs file."""
    return {
        first + relative: entry.msg_id
        for first, entries, _ in segments(disk, directory, settings)
        for relative, entry in entries
        if entry.persistent and entry.location == qi.Location.STORE
    }


def read_bodies(disk: Disk, path: str, entries: Sequence[qi.Entry], *, check_crc: bool) -> list[bytes | str]:
    """The bodies of entries in a .qs file, or why there is no such body (qs.read_bodies)."""
    if not disk.exists(path):
        return ["the body file is missing"] * len(entries)
    file = disk.open_read(path)
    try:
        places = [(entry.offset, entry.stored_size) for entry in entries]
        return qs.read_bodies(file, places, check_crc=check_crc)
    finally:
        file.close()


def _head(disk: Disk, path: str) -> bytes:
    file = disk.open_read(path)
    try:
        return file.pread(qi.HEADER_BYTES, 0)
    finally:
        file.close()


class RecoveryV2:
    """One recovery: `segments` (number -> unacked) is what the index goes on with, `found` what to tell."""

    def __init__(self, opening: Opening) -> None:
        self._disk = disk = opening.disk
        self._directory = directory = opening.directory
        self._contains = opening.contains
        self._quarantine = opening.quarantine
        settings, terms = opening.settings, opening.terms
        self.found = Found()
        self.segments: dict[int, int] = {}
        default = settings.classic_queue_index_v2_segment_entry_count
        self.entry_count = segment_size_of(disk, directory, default)
        for name in disk.listdir(directory):
            if name.endswith(TEMPORARY):
                disk.unlink(f"{directory}/{name}")
        self._make_good()
        self._check_crc = settings.classic_queue_store_v2_check_crc32
        numbers = numbers_of(disk, directory, qi.EXTENSION)
        files = {number: self._read(number) for number in numbers} if terms is not None else {}
        self._clean = terms is not None and self._as_left(
            terms, {n: len(entries) for n, (_, entries, _) in files.items()}
        )
        self._highest = -1
        for number in numbers:
            self._recover_segment(number, *(files.pop(number, None) or self._read(number)))
        self._remove_orphans(numbers)
        high = (max(numbers, default=-1) + 1) * self.entry_count
        self.found.next_seq_id = high if terms is None else max(terms.next_seq_id, self._highest + 1)
        if not self.found.count:
            self.found.low = self.found.next_seq_id
        if not self._clean:
            disk.sync_dir(directory)

    def _make_good(self) -> None:
        """Write the files anew whose sync failed."""
        note = f"{self._directory}/{UNSYNCED}"
        if not self._disk.exists(note):
            return
        for name in sorted({*self._disk.read(note).decode(errors="replace").split("\n")}):
            path = f"{self._directory}/{name}"
            if name.endswith((qi.EXTENSION, qs.EXTENSION)) and self._disk.exists(path):
                self._disk.replace(path, self._disk.read(path))
        self._disk.unlink(note)
        self._disk.sync_dir(self._directory)

    def _read(self, number: int) -> tuple[bytes, list[tuple[int, qi.Entry]], list[Damage]]:
        data = self._disk.read(self._path(number, qi.EXTENSION))
        return data, *live_entries(data, number, self.entry_count)

    def _as_left(self, terms: Terms, counts: dict[int, int]) -> bool:
        """True if the files hold what the clean stop left."""
        if terms.segments is None:
            return not counts
        whole = True
        for number, unacked in terms.segments:
            if (here := counts.get(number, 0)) != unacked:
                whole = False
                reason = f"{unacked} messages were here at the last stop, now there are {here}"
                self.found.damage.append(CorruptFile(self._path(number, qi.EXTENSION), 0, reason))
        return whole and len(counts) == len(terms.segments)

    def _recover_segment(
        self, number: int, data: bytes, entries: list[tuple[int, qi.Entry]], damage: list[Damage]
    ) -> None:
        base = number * self.entry_count
        dropped: list[int] = []
        kept: list[tuple[int, qi.Entry]] = []
        bodies: list[tuple[int, qi.Entry]] = []
        for relative, entry in entries:
            if not entry.persistent:
                dropped.append(relative)
            elif entry.location == qi.Location.QUEUE_STORE:
                bodies.append((relative, entry))
            elif self._contains(entry.msg_id):
                kept.append((relative, entry))
            else:
                dropped.append(relative)
        without = self._without_body(number, bodies)
        kept += [each for each in bodies if each[0] not in without]
        dropped += without
        self.found.lost += [base + relative for relative in sorted(without)]
        if entries:
            self._highest = max(self._highest, base + entries[-1][0])
        self._count(base, kept, len(dropped))
        self._set_aside(number, qi.EXTENSION, data, damage)
        if not kept:
            self._disk.unlink(self._path(number, qi.EXTENSION))
            self._disk.unlink(self._path(number, qs.EXTENSION))
            self._disk.sync_dir(self._directory)
            return
        self.segments[number] = len(kept)
        self._repair(number, data, dropped, damage)

    def _count(self, base: int, kept: list[tuple[int, qi.Entry]], dropped: int) -> None:
        found = self.found
        if kept and not found.count:
            found.low = base + min(relative for relative, _ in kept)
        found.count += len(kept)
        found.bytes += sum(entry.size for _, entry in kept)
        found.dropped += dropped

    def _without_body(self, number: int, entries: list[tuple[int, qi.Entry]]) -> set[int]:
        """The positions of entries whose bodies are not there, or not whole."""
        if not entries:
            return set()
        path, base = self._path(number, qs.EXTENSION), number * self.entry_count
        problems: dict[int, Damage] = {}
        if self._clean:
            end = self._disk.size(path) if self._disk.exists(path) else 0
            for relative, entry in entries:
                stop = entry.offset + qs.ENTRY_HEADER_BYTES + entry.stored_size
                if stop > end:
                    problems[relative] = Damage(entry.offset, max(0, end - entry.offset), "a body is cut off")
        else:
            bodies = read_bodies(self._disk, path, [entry for _, entry in entries], check_crc=self._check_crc)
            for (relative, entry), body in zip(entries, bodies, strict=True):
                length = qs.ENTRY_HEADER_BYTES + entry.stored_size
                if isinstance(body, str):
                    problems[relative] = Damage(entry.offset, length, body)
                elif (problem := message_problem(body, base + relative, entry.size)) is not None:
                    problems[relative] = Damage(entry.offset, length, problem)
        if problems:
            data = self._disk.read(path) if self._disk.exists(path) else b""
            self._set_aside(number, qs.EXTENSION, data, list(problems.values()))
        return set(problems)

    def _repair(self, number: int, data: bytes, dropped: list[int], damage: list[Damage]) -> None:
        """Ack what was dropped, make headers right, and have both files safe unless a clean stop did it."""
        if self._clean and not dropped and not damage:
            return
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
        path = self._path(number, qs.EXTENSION)
        if self._disk.exists(path):
            file = self._disk.open(path)
            try:
                self._repair_bodies(number, file.pread(qi.HEADER_BYTES, 0), path)
                file.datasync()
            finally:
                file.close()

    def _repair_bodies(self, number: int, head: bytes, path: str) -> None:
        problem = header_problem(qs.EXTENSION, head, number, self.entry_count)
        if len(head) == qi.HEADER_BYTES and problem is not None:
            self._set_aside(number, qs.EXTENSION, head, [Damage(0, len(head), problem)])
            file = self._disk.open(path)
            try:
                file.pwrite(qi.pack_header(qs.MAGIC, *self._span(number)), 0)
            finally:
                file.close()

    def _remove_orphans(self, numbers: list[int]) -> None:
        """Remove body files without an index file, since their acks are unknown; what they hold is set aside."""
        for number in numbers_of(self._disk, self._directory, qs.EXTENSION):
            if number in numbers:
                continue
            path = self._path(number, qs.EXTENSION)
            data = self._disk.read(path)
            if len(data) > qi.HEADER_BYTES:
                self._set_aside(number, qs.EXTENSION, data, [Damage(0, len(data), "it has no index file")])
            self._disk.unlink(path)

    def _span(self, number: int) -> tuple[int, int]:
        return number * self.entry_count, (number + 1) * self.entry_count

    def _path(self, number: int, extension: str) -> str:
        return f"{self._directory}/{number}{extension}"

    def _set_aside(self, number: int, extension: str, data: bytes, damage: list[Damage]) -> None:
        """Copy the damaged bytes of one file to one file in the quarantine."""
        if not damage:
            return
        path = self._path(number, extension)
        self.found.damage += [CorruptFile(path, each.offset, each.reason) for each in damage]
        queue = self._directory.rpartition("/")[2]
        set_aside(
            self._disk, self._quarantine, f"{queue}-{number}{extension}", data, [each[:2] for each in damage]
        )
