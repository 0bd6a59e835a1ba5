"""Walking a folder's .qi files: what they hold, read once and without a change to them, before the index is opened.

Source: rabbit_classic_queue_index_v2:queue_index_walker, docs/reference/classic-queue.md#seeding-reference-counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from warrenmq.directory.torn import Damage
from warrenmq.queue_index.file_numbers import file_numbers
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.reader import Summary, live_entries, segment_size, summary
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings


def numbers_of(disk: Disk, directory: str, extension: str) -> list[int]:
    """The numbers of a folder's .qi or .qs files, ascending."""
    return file_numbers(disk.listdir(directory), extension)


def segment_size_of(disk: Disk, directory: str, names: list[str], default: int) -> int:
    """The number of messages a segment of a folder with files of these names; `default` when it has none."""
    heads = [
        (number, extension, read_head(disk, f"{directory}/{number}{extension}"))
        for extension in (qi.EXTENSION, qs.EXTENSION)
        for number in file_numbers(names, extension)
    ]
    return segment_size(heads, default) if heads else default


def segments(
    disk: Disk, directory: str, settings: Settings
) -> Iterator[tuple[int, list[tuple[int, qi.Entry]], list[Damage]]]:
    """Read the .qi files: each one's first sequence id, live entries by position, and damage.  Writes nothing."""
    names = disk.listdir(directory)
    entry_count = segment_size_of(disk, directory, names, settings.classic_queue_index_v2_segment_entry_count)
    for number in file_numbers(names, qi.EXTENSION):
        data = disk.read(f"{directory}/{number}{qi.EXTENSION}")
        yield number * entry_count, *live_entries(data, number, entry_count)


class WalkedV2(NamedTuple):
    """The contents of a folder's .qi files."""

    entry_count: int
    """Messages a segment."""
    segments: dict[int, Summary]
    """Ascending."""

    def store_message_ids(self) -> Iterator[tuple[int, bytes]]:
        """Sequence id and message id, ascending, of what a store must keep for this queue: persistent, not acked, not in
        a .qs file.
        """
        for number, segment in self.segments.items():
            for position, msg_id in segment.in_store:
                yield number * self.entry_count + position, msg_id


def walk(disk: Disk, directory: str, names: list[str], settings: Settings) -> WalkedV2:
    """Read each .qi file once.  `names` are those of the folder's files.  Writes nothing."""
    numbers = file_numbers(names, qi.EXTENSION)
    default = settings.classic_queue_index_v2_segment_entry_count
    entry_count, segments = 0, dict[int, Summary]()
    for number in numbers:
        data = disk.read(f"{directory}/{number}{qi.EXTENSION}")
        entry_count = entry_count or segment_size([(number, qi.EXTENSION, data)], default)
        segments[number] = summary(data, number, entry_count)
    if not segments or any(each.damage and each.damage[0].offset == 0 for each in segments.values()):
        # not all headers agree with the first one
        decided = segment_size_of(disk, directory, names, default)
        if decided != entry_count:
            for number in numbers:
                data = disk.read(f"{directory}/{number}{qi.EXTENSION}")
                segments[number] = summary(data, number, decided)
        entry_count = decided
    return WalkedV2(entry_count, segments)


def read_head(disk: Disk, path: str) -> bytes:
    file = disk.open_read(path)
    try:
        return file.pread(qi.HEADER_BYTES, 0)
    finally:
        file.close()
