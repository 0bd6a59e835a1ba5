"""The entries of an index of version 2, N.qi and N.qs, read without changing anything.

queue_index/v2/reader.py reads the files, as for a start; here their entries get the places of their messages,
and their damage is noted.  RabbitMQ deletes a segment whose header is damaged, and crashes over a torn last
entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from warrenmq.inspect.entries import Entry, Where
from warrenmq.inspect.reading import Findings
from warrenmq.queue_index.file_numbers import file_numbers
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.reader import header_problem, live_entries, segment_size, torn_entry

ENTRIES = 4096
"""A segment's entries, if no header has their number (classic_queue_index_v2_segment_entry_count)."""
_MOST_BYTES = qi.HEADER_BYTES + (1 << 16) * qi.ENTRY_BYTES


class IndexV2:
    """N.qi and N.qs of one folder."""

    def __init__(self, findings: Findings, folder: str) -> None:
        self._findings = findings
        self._folder = folder
        names = findings.names(folder)
        self.numbers = file_numbers(names, qi.EXTENSION)
        self.orphans = [each for each in file_numbers(names, qs.EXTENSION) if each not in self.numbers]
        """Numbers of .qs files without a .qi file."""
        self.entry_count = segment_size(self._heads(), ENTRIES)

    def _heads(self) -> Iterator[tuple[int, str, bytes]]:
        for number in self.numbers:
            for extension in (qi.EXTENSION, qs.EXTENSION):
                if (head := self.data(number, extension, qi.HEADER_BYTES)) is not None:
                    yield number, extension, head

    def data(self, number: int, extension: str, most: int = _MOST_BYTES) -> bytes | None:
        """The bytes of a file; None if it is missing."""
        return self._findings.read(f"{self._folder}/{number}{extension}", most)

    def entries(self, number: int) -> tuple[list[Entry], str | None]:
        """The live entries of a segment, ascending, and why RabbitMQ would not give them back, if it would not."""
        name, bodies_name = f"{number}{qi.EXTENSION}", f"{number}{qs.EXTENSION}"
        data = self.data(number, qi.EXTENSION)
        if data is None:
            return [], None
        found, damage = live_entries(data, number, self.entry_count)
        for each in damage:
            self._findings.note(f"{self._folder}/{name}", each.offset, each.reason)
        refused = None
        if isinstance(qi.unpack_header(qi.MAGIC, data), str):
            refused = f"RabbitMQ deletes {name}, whose header is damaged"
        elif any(each.offset + each.length == len(data) and each.length < qi.ENTRY_BYTES for each in damage):
            refused = f"RabbitMQ does not start a queue with a torn entry at the end of {name}"
        torn = None
        bodies = self._findings.open(f"{self._folder}/{bodies_name}")
        if bodies is not None:
            with bodies:
                head = bodies.pread(qi.HEADER_BYTES, 0)
                if (
                    head
                    and (problem := header_problem(qs.EXTENSION, head, number, self.entry_count)) is not None
                ):
                    bodies.note(0, problem)
                torn = torn_entry(data, bodies, self.entry_count)
        else:
            torn = torn_entry(data, None, self.entry_count)
        first = number * self.entry_count
        entries = [_entry(first + position, each, position, name, bodies_name) for position, each in found]
        if torn is not None:
            position, entry = torn
            salvaged = "its index entry is cut off"
            entries.append(
                _entry(first + position, entry, position, name, bodies_name)._replace(salvaged=salvaged)
            )
        return entries, refused


def _entry(seq_id: int, entry: qi.Entry, position: int, name: str, bodies_name: str) -> Entry:
    if entry.location == qi.Location.STORE:
        place = qi.HEADER_BYTES + position * qi.ENTRY_BYTES
        return Entry(
            seq_id, entry.persistent, entry.msg_id, entry.expiry, entry.size, Where.STORE, name, place
        )
    return Entry(
        seq_id, entry.persistent, b"", entry.expiry, entry.size, Where.QUEUE_STORE,
        bodies_name, entry.offset, qs.ENTRY_HEADER_BYTES, entry.stored_size,
    )  # fmt: skip
