"""Decisions of garbage collection: when, and in which files (rabbit_msg_store:maybe_compact, maybe_gc).

Source: docs/reference/message-store.md#when-a-combine-is-due and #when-a-compaction-is-due.

RabbitMQ leaves garbage for ever in some corners: combine does nothing while all files together are small, nor for a
file whose neighbours are full; in-place compaction forgets the files that saw a remove while its timer ran, and
never looks at what was removed from the current file.  So there are two triggers here:

    at once        `garbage_is_due`: RabbitMQ's rule for combine, for both collectors
    by the clock   CHECK_INTERVAL after the last look, if anything could have changed: combine, when more than half of
                   everything is garbage, until it is not; compact, each file that is more than half garbage.  And
                   a current file like that, unchanged since the last look, is left for a new one

Together: in a store where nothing happens, at most half is garbage before long.
"""

from __future__ import annotations

from collections.abc import Container

from warrenmq.message_store.file_summary import FileSummary

GARBAGE_FRACTION = 0.5
MAXIMUM_SIMULTANEOUS_GC_FILES = 4
"""Files at the garbage collector: more would wait there, locked, for nothing."""
CHECK_INTERVAL = 15.0
"""Seconds (RabbitMQ's constant)."""


def is_mostly_garbage(valid: int, size: int) -> bool:
    """True if more than half of the bytes are garbage."""
    return valid * 2 < size


def garbage_is_due(sum_valid_data: int, sum_file_size: int, file_size_limit: int, files_at_gc: int) -> bool:
    """Decides whether to collect at once, if there is a file to do it in.

    | all files together | garbage         | files at the collector | due |
    | ------------------ | --------------- | ---------------------- | --- |
    | <= 2 x limit       | any             | any                    | no  |
    | > 2 x limit        | half or less    | any                    | no  |
    | > 2 x limit        | more than half  | 4 and more             | no  |
    | > 2 x limit        | more than half  | fewer                  | yes |
    """
    return (
        sum_file_size > 2 * file_size_limit
        and (sum_file_size - sum_valid_data) / sum_file_size > GARBAGE_FRACTION
        and files_at_gc < MAXIMUM_SIMULTANEOUS_GC_FILES
    )


def find_files_to_combine(files: FileSummary, file_size_limit: int) -> tuple[int, ...] | None:
    """The eldest pair of neighbours (destination, source) whose living data fits into one file.

    | a pair (left, right)                                    | then          |
    | ------------------------------------------------------- | ------------- |
    | right is the current file, or does not exist            | stop: no pair |
    | one of them is locked                                   | go on         |
    | one of them has no living data (it is being deleted)    | go on         |
    | together more living data than the limit                | go on         |
    | else                                                    | this one      |

    So it takes three files: destination, source and the current one.
    """
    rows = files.rows
    for number, row in rows.items():
        source = row.right
        if source is None or rows[source].right is None:
            return None
        right = rows[source]
        if (
            not row.locked
            and not right.locked
            and row.valid_total_size > 0
            and right.valid_total_size > 0
            and row.valid_total_size + right.valid_total_size <= file_size_limit
        ):
            return number, source
    return None


def find_files_to_reclaim(files: FileSummary, file_size_limit: int) -> tuple[int, ...] | None:
    """The files to combine at the end of an interval: the one with the most garbage, if most of it is
    garbage, and a neighbour.

    | its neighbours                                          | then                          |
    | ------------------------------------------------------- | ----------------------------- |
    | right: not locked, not current, living data, both fit   | the file and it               |
    | else left: the same                                     | it and the file               |
    | else                                                    | the file alone                |
    """
    found = find_file_to_compact(files, ())
    if found is None:
        return None
    row = files.rows[found]
    for neighbour in (row.right, row.left):
        other = files.rows[neighbour] if neighbour is not None else None
        if (
            neighbour is not None
            and other is not None
            and other.right is not None
            and not other.locked
            and other.valid_total_size > 0
            and row.valid_total_size + other.valid_total_size <= file_size_limit
        ):
            return (found, neighbour) if neighbour == row.right else (neighbour, found)
    return (found,)


def find_file_to_compact(files: FileSummary, but: Container[int]) -> int | None:
    """The file with the most garbage of those that are mostly garbage.

    Not the current one, none that is locked or in `but`, and none without living data: that is being deleted.
    """
    worst, most = None, 0
    for number, row in files.rows.items():
        garbage = row.file_size - row.valid_total_size
        if (
            garbage > most
            and row.right is not None
            and not row.locked
            and row.valid_total_size > 0
            and is_mostly_garbage(row.valid_total_size, row.file_size)
            and number not in but
        ):
            worst, most = number, garbage
    return worst
