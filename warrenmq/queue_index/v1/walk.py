"""Walking a folder's journal and segment files: what they hold, before the index is opened.  Writes nothing.

A segment that is as a flush left it is summed up, without an object for each message; its messages are checked when they are
read.  Of one that the journal speaks of too, or that has damage, recovery reads the file again and looks at every message.

Source: rabbit_queue_index:queue_index_walker, docs/reference/classic-queue.md#seeding-reference-counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from warrenmq.directory.torn import Damage
from warrenmq.queue_index.file_numbers import file_numbers
from warrenmq.queue_index.record import HEADER_BYTES, ID_BYTES, expiry_of
from warrenmq.queue_index.v1.alike import alike
from warrenmq.queue_index.v1.journal import FILE_NAME
from warrenmq.queue_index.v1.merge import segment_plus_journal
from warrenmq.queue_index.v1.reader import Reading, read_journal, read_segment
from warrenmq.queue_index.v1.segment import EXTENSION, Facts
from warrenmq.seams.disk import Disk


class Summary(NamedTuple):
    """A healthy segment file that holds everything of its messages."""

    live: int
    first: int
    """Position of the first live message, -1 without any."""
    last: int
    """The last position that was ever published."""
    in_store: list[bytes]
    """Ids of the live messages whose bodies are in the message store."""
    expires: bool
    """True if some message may have an expiry."""


class WalkedV1(NamedTuple):
    """The contents of a folder's files."""

    journal_bytes: bytes
    journal: Reading
    segments: dict[int, Summary | None]
    """Segments with a file, ascending; None = the index has to be read message by message."""
    in_store: list[tuple[int, bytes]]
    """Sequence id and message id, ascending, of what a store must keep for this queue: persistent, not acked,
    not embedded.
    """


def segment_path(directory: str, number: int) -> str:
    return f"{directory}/{number}{EXTENSION}"


def read_file(disk: Disk, path: str) -> bytes:
    """A file's bytes; none of one that is not there."""
    return disk.read(path) if disk.exists(path) else b""


def journal_of(disk: Disk, directory: str, entry_count: int) -> Reading:
    """The journal of a folder; empty if there is no file."""
    return read_journal(read_file(disk, f"{directory}/{FILE_NAME}"), entry_count)


def segments(
    disk: Disk, directory: str, journal: Reading, entry_count: int
) -> Iterator[tuple[int, Facts, list[Damage]]]:
    """Read each segment, ascending: the facts of its file and of the journal together, and the damage in its file.

    Writes nothing.
    """
    on_disk = file_numbers(disk.listdir(directory), EXTENSION)
    for number in sorted({*on_disk, *journal.facts}):
        facts, damage = read_segment(read_file(disk, segment_path(directory, number)), entry_count)
        yield number, segment_plus_journal(facts, journal.facts.get(number, Facts())), damage


def messages(disk: Disk, directory: str, entry_count: int) -> Iterator[tuple[int, bytes, bool]]:
    """Every message that is not acked: (sequence id, record, persistent), ascending.  Writes nothing."""
    journal = journal_of(disk, directory, entry_count)
    for number, facts, _ in segments(disk, directory, journal, entry_count):
        for relative, record in sorted(facts.published.items()):
            yield number * entry_count + relative, record, relative not in facts.transient


def walk(disk: Disk, directory: str, names: list[str], entry_count: int) -> WalkedV1:
    """Read each file once.  `names` are those of the folder's files."""
    data = disk.read(f"{directory}/{FILE_NAME}") if FILE_NAME in names else b""
    journal = read_journal(data, entry_count) if data else Reading()
    walked = WalkedV1(data, journal, {}, [])
    on_disk = file_numbers(names, EXTENSION)
    for number in sorted({*on_disk, *journal.facts}):
        if number in on_disk:
            _walk_segment(walked, number, disk.read(segment_path(directory, number)), entry_count)
        else:
            _note_in_store(walked, number * entry_count, segment_plus_journal(Facts(), journal.facts[number]))
    return walked


def _walk_segment(walked: WalkedV1, number: int, data: bytes, entry_count: int) -> None:
    noted = walked.journal.facts.get(number)
    if noted is None and (run := alike(data, entry_count)) is not None:
        walked.segments[number] = Summary(run.messages, run.first, run.last, [], run.expires)
        return
    facts, damage = read_segment(data, entry_count)
    effective = segment_plus_journal(facts, noted or Facts())
    in_store = _note_in_store(walked, number * entry_count, effective)
    if noted is not None or damage or facts.transient or not facts.published.keys() <= facts.delivered:
        walked.segments[number] = None
        return
    live = effective.published
    walked.segments[number] = Summary(
        len(live), min(live, default=-1), max(facts.published, default=-1), in_store,
        any(map(expiry_of, live.values())),
    )  # fmt: skip


def _note_in_store(walked: WalkedV1, base: int, effective: Facts) -> list[bytes]:
    """Note the messages of a segment that a store must keep; returns their ids."""
    found = [
        (base + relative, record[:ID_BYTES])
        for relative, record in sorted(effective.published.items())
        if len(record) == HEADER_BYTES and relative not in effective.transient
    ]
    walked.in_store.extend(found)
    return [msg_id for _, msg_id in found]
