"""Combine two neighbouring files into one (rabbit_msg_store_gc).

Source: docs/reference/message-store.md#combine and #crash-points-of-a-combine.

    left  = A x C x D       right = E x F          x: garbage, or a record without references

    1  left.rdq.tmp := A C D E F, in this order, without a gap      datasync
    2  rename left.rdq.tmp to left.rdq                              sync of the folder
    3  delete right.rdq

Until 2 is durable nothing has happened; from then on `right` is garbage.  So a crash at any point leaves each record in
a complete file at least, and in two at most, with the same bytes: recovery takes the first.  (RabbitMQ rewrites
the left file in place, through a temporary file that has only what it overwrites; between its truncation with zeros
and the copying back, a crash loses messages: defect S35 in docs/defects.md.)

A file can also be combined alone: then there is no 3, and its garbage is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from warrenmq.errors import CorruptFile
from warrenmq.message_store import rdq
from warrenmq.message_store.gc_jobs import Survivor
from warrenmq.seams.disk import Disk, File

RUN = 1 << 20
"""Bytes that are copied at once, at least one record."""


def placed(survivors: list[tuple[int, list[Survivor]]]) -> list[Survivor]:
    """The survivors at their new offsets: one behind the other, in the order given."""
    moved = []
    end = 0
    for _, of_file in survivors:
        for msg_id, _, total in of_file:
            moved.append((msg_id, end, total))
            end += total
    return moved


def runs(survivors: list[Survivor]) -> Iterator[tuple[int, int]]:
    """(offset, length) of the pieces to copy: records that lie side by side go together."""
    start = end = 0
    for _, offset, total in survivors:
        if offset != end or end - start + total > RUN:
            if end > start:
                yield start, end - start
            start = offset
        end = offset + total
    if end > start:
        yield start, end - start


def prepare(disk: Disk, directory: str, number: int, survivors: list[tuple[int, list[Survivor]]]) -> None:
    """Write the new file `number` beside the old one (step 1).  After an error nothing has changed."""
    temporary = f"{directory}/{number}{rdq.TEMPORARY}"
    try:
        target = disk.open(temporary, create=True)
        try:
            target.truncate(0)
            for source, of_file in survivors:
                _copy(disk, f"{directory}/{rdq.file_name(source)}", of_file, target)
            target.datasync()
        finally:
            target.close()
    except OSError:
        with suppress(OSError):
            disk.unlink(temporary)
        raise


def commit(disk: Disk, directory: str, number: int) -> None:
    """Put the new file in place of the old one, durably (step 2)."""
    disk.rename(f"{directory}/{number}{rdq.TEMPORARY}", f"{directory}/{rdq.file_name(number)}")
    disk.sync_dir(directory)


def _copy(disk: Disk, path: str, survivors: list[Survivor], target: File) -> None:
    source = disk.open_read(path)
    try:
        for offset, length in runs(survivors):
            data = source.pread(length, offset)
            if len(data) < length:
                raise CorruptFile(path, offset + len(data), "the file ends within a record")
            target.append(data)
    finally:
        source.close()
