"""When to combine files, and which (rabbit_msg_store:maybe_compact; reference, section 8.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warrenmq.storage.file_summary import FileSummary

GARBAGE_FRACTION = 0.5
MAXIMUM_SIMULTANEOUS_GC_FILES = 4
"""Files at the garbage collector: more would wait there, locked, for nothing."""


def garbage_is_due(sum_valid_data: int, sum_file_size: int, file_size_limit: int, files_at_gc: int) -> bool:
    """Whether a combine should begin, if a pair can be found.

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


def find_files_to_combine(files: FileSummary, file_size_limit: int) -> tuple[int, int] | None:
    """The eldest pair of neighbours (destination, source) whose living data fits into one file.

    | a pair (left, right)                                    | then          |
    | ------------------------------------------------------- | ------------- |
    | right is the current file, or there is none             | stop: no pair |
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
