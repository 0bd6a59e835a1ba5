"""The ETS table that a message store dumps when it stops in good order: how full its files are.

A dump (ets:tab2file) is a disk_log with the table's description first, then its objects, and a count at the end.

    file_summary.ets      {file_summary, File, ValidTotalSize, Left, Right, FileSize, Locked, Readers}    up to 3.12
                          {file_summary, File, ValidTotalSize, FileSize, Locked}                          from 3.13 on
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from warrenmq.erlang import disk_log

_PATH = "file_summary.ets"


class FileSummary(NamedTuple):
    """A message file's fill."""

    file: int
    valid_total_size: int
    file_size: int


def _objects(data: bytes) -> Iterator[tuple[Any, ...]]:
    """The table's objects, without its description and its end."""
    for place, item in enumerate(disk_log.items(data, _PATH)):
        if place and isinstance(item, tuple):
            yield item


def problem(data: bytes) -> str | None:
    """The damage of the dump, or None; RabbitMQ scans its files if there is any."""
    if why := disk_log.problem(data, _PATH):
        return why
    found, last = -1, None  # the description is no object
    for last in disk_log.items(data, _PATH):
        found += isinstance(last, tuple)
    match last:
        case ["$end_of_table", [("count", int() as count), *_]]:
            return None if found == count else f"it counts {count} objects and has {found}"
    return "its end is missing"


def file_summaries(data: bytes) -> Iterator[FileSummary]:
    """The message files, as they are kept."""
    for each in _objects(data):
        match each:
            case ("file_summary", int() as file, int() as valid, _, _, int() as size, _, _):
                yield FileSummary(file, valid, size)
            case ("file_summary", int() as file, int() as valid, int() as size, _):
                yield FileSummary(file, valid, size)
