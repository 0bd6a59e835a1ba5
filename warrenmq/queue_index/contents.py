"""Checks an index for contents that would outlive a start; read from its index without changing it."""

from __future__ import annotations

from typing import NamedTuple

from warrenmq.queue_index.v1 import walk as version_1
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2 import walk as version_2
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings


class Contents(NamedTuple):
    """The result of looking at an index of either version."""

    persistent: bool
    """A message in it would outlive a start."""
    damaged: bool
    """True if some of its bytes are invalid, so it may have held more."""


def contents(disk: Disk, directory: str, settings: Settings) -> Contents:
    """Look at the index files of both versions in a queue's folder."""
    one, two = _version_1(disk, directory, settings), _version_2(disk, directory, settings)
    return Contents(one.persistent or two.persistent, one.damaged or two.damaged)


def _version_1(disk: Disk, directory: str, settings: Settings) -> Contents:
    entry_count = settings.queue_index_segment_entry_count
    journal = version_1.journal_of(disk, directory, entry_count)
    persistent, damaged = False, bool(journal.damage)
    for _, facts, damage in version_1.segments(disk, directory, journal, entry_count):
        persistent |= bool(facts.published.keys() - facts.transient)
        damaged |= bool(damage)
    return Contents(persistent, damaged)


def _version_2(disk: Disk, directory: str, settings: Settings) -> Contents:
    persistent = damaged = False
    for _, entries, damage in version_2.segments(disk, directory, settings):
        persistent |= any(entry.persistent for _, entry in entries)
        damaged |= bool(damage)
    numbers = version_2.numbers_of(disk, directory, qi.EXTENSION)
    for number in version_2.numbers_of(disk, directory, qs.EXTENSION):
        damaged |= (
            number not in numbers and disk.size(f"{directory}/{number}{qs.EXTENSION}") > qi.HEADER_BYTES
        )
    return Contents(persistent, damaged)
