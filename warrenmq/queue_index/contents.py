"""What a queue's folder holds, told from its index alone and without changing it: is there anything that anybody misses?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warrenmq.queue_index.v1.recovery import journal_of, segments
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2 import recovery as index_v2_recovery

if TYPE_CHECKING:
    from warrenmq.seams.disk import Disk
    from warrenmq.settings import Settings


class Contents(NamedTuple):
    """What an index, of whichever version, comes to."""

    persistent: bool
    """A message in it would outlive a start."""
    damaged: bool
    """Bytes in it make no sense, so nobody knows what else was in it."""


def contents(disk: Disk, directory: str, settings: Settings) -> Contents:
    """Look at the index files of both versions in a queue's folder."""
    one, two = _version_1(disk, directory, settings), _version_2(disk, directory, settings)
    return Contents(one.persistent or two.persistent, one.damaged or two.damaged)


def _version_1(disk: Disk, directory: str, settings: Settings) -> Contents:
    entry_count = settings.queue_index_segment_entry_count
    journal = journal_of(disk, directory, entry_count)
    persistent, damaged = False, bool(journal.damage)
    for _, facts, damage in segments(disk, directory, journal, entry_count):
        persistent |= bool(facts.published.keys() - facts.transient)
        damaged |= bool(damage)
    return Contents(persistent, damaged)


def _version_2(disk: Disk, directory: str, settings: Settings) -> Contents:
    entry_count = index_v2_recovery.segment_size(
        disk, directory, settings.classic_queue_index_v2_segment_entry_count
    )
    numbers = index_v2_recovery.file_numbers(disk, directory, qi.EXTENSION)
    persistent = damaged = False
    for number in numbers:
        data = disk.read(f"{directory}/{number}{qi.EXTENSION}")
        entries, damage = index_v2_recovery.live_entries(data, number, entry_count)
        persistent |= any(entry.persistent for _, entry in entries)
        damaged |= bool(damage)
    for number in index_v2_recovery.file_numbers(disk, directory, qs.EXTENSION):
        damaged |= (
            number not in numbers and disk.size(f"{directory}/{number}{qs.EXTENSION}") > qi.HEADER_BYTES
        )
    return Contents(persistent, damaged)
