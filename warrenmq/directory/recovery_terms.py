"""The recovery terms of a queue, written at a clean stop (RabbitMQ's recovery.dets, one file a queue).

    recovery.terms    | crc32 of the rest (u32) | msgpack [version, next_seq_id, next_deliver_seq_id, segments, files, asleep] |

`segments` is a list of [number, unacked], None for an index of version 1 (RabbitMQ's v2_index_state).
`files` is a list of [name, size, checksum] of the index's files as the stop left them; the checksum (CRC-32)
is None but for .qi files, whose entries have none of their own.  With it a file that was cut, changed or
removed meanwhile is noticed, and the terms are not believed.  `asleep` is [messages, bytes or None] of a
queue that need not be opened at the next start, None of another.  Each may be missing at the end: terms of
older versions are believed without.

A start removes them, durably, before the queue writes anything (vhost/last_stops.py).  Terms that cannot be
read count as missing.

Source: rabbit_recovery_terms, docs/reference/classic-queue.md#start-and-recovery and #init-and-terminate.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]

from warrenmq.seams.disk import Disk

FILE_NAME = "recovery.terms"
_OF_THE_INDEX = (".jif", ".idx", ".qi", ".qs")
_CHECKED = ".qi"
_VERSION = 1


class Terms(NamedTuple):
    """The terms of one queue."""

    next_seq_id: int
    next_deliver_seq_id: int
    """Messages below it may have been delivered."""
    segments: tuple[tuple[int, int], ...] | None = None
    """Number of each segment, and how many messages in it were not acked; None when they were not counted."""
    files: tuple[tuple[str, int, int | None], ...] = ()
    """Name, bytes and checksum, if it has one, of each file of the index; empty when they were not listed."""
    asleep: tuple[int, int | None] | None = None
    """Messages of the queue, of all its priorities, and the bytes of their bodies if they were counted; None
    when the next start must open it, be it for messages that expire.
    """


def save_terms(disk: Disk, directory: str, terms: Terms) -> None:
    """Leave the terms of a clean stop, with the index's files as they are; the last thing that a queue does.

    They are synced for all queues together (`paths_to_sync`).  A power cut before that costs only their words: terms that
    are torn, or do not fit the files, count as missing.
    """
    files = []
    for name in disk.listdir(directory):
        if name.endswith(_OF_THE_INDEX):
            path = f"{directory}/{name}"
            files.append(
                (name, disk.size(path), zlib.crc32(disk.read(path)) if name.endswith(_CHECKED) else None)
            )
    counted: list[object] = [terms.segments, files, terms.asleep]
    while counted and counted[-1] in (None, []):
        counted.pop()
    data: bytes = msgpack.packb([_VERSION, *terms[:2], *counted])
    _write(disk, directory, zlib.crc32(data).to_bytes(4, "big") + data)


def paths_to_sync(disk: Disk, directories: Iterable[str]) -> list[str]:
    """The paths to sync so that the terms in these folders are safe."""
    there = [each for each in directories if disk.exists(f"{each}/{FILE_NAME}")]
    return [path for each in there for path in (f"{each}/{FILE_NAME}", each)]


def parse(stored: bytes) -> Terms | None:
    """Decode a file of recovery terms; None if it cannot be read."""
    if not stored[4:] or zlib.crc32(stored[4:]) != int.from_bytes(stored[:4], "big"):
        return None
    match msgpack.unpackb(stored[4:]):
        case [version, int() as next_seq_id, int() as next_deliver_seq_id, *more] if (
            version == _VERSION and len(more) <= 3
        ):
            segments, files, asleep = [*more, None, None, None][:3]
            counts = None if segments is None else tuple((number, unacked) for number, unacked in segments)
            return Terms(
                next_seq_id, next_deliver_seq_id, counts, tuple(tuple(each) for each in files or ()), asleep and tuple(asleep)
            )  # fmt: skip
    return None


class Change(NamedTuple):
    """A file that is not as a clean stop left it."""

    name: str
    offset: int
    reason: str


def changes_since(terms: Terms, sizes: Mapping[str, int], read: Callable[[str], bytes]) -> Iterator[Change]:
    """The index files that changed since the stop; `sizes` of the present files by name, `read` for a file's bytes."""
    for name, size, checksum in terms.files:
        if name not in sizes:
            yield Change(name, 0, f"it had {size} bytes when its queue was stopped in order, and is gone")
        elif sizes[name] != size:
            at = min(size, sizes[name])
            yield Change(
                name, at, f"it had {size} bytes when its queue was stopped in order, now it has {sizes[name]}"
            )
        elif checksum is not None and zlib.crc32(read(name)) != checksum:
            yield Change(name, 0, "its bytes are not those that it had when its queue was stopped in order")


def twins(name: str) -> tuple[str, ...]:
    """The file without which a file of the index says nothing: a segment's bodies and its entries."""
    stem, _, extension = name.rpartition(".")
    return {"qi": (f"{stem}.qs",), "qs": (f"{stem}.qi",)}.get(extension, ())


def discard_terms(disk: Disk, directory: str) -> bool:
    """Remove the terms; False if there are none."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return False
    disk.unlink(path)
    return True


def stored_terms(disk: Disk, directories: Iterable[str]) -> dict[str, bytes]:
    """The terms in these folders as bytes, by folder."""
    paths = {each: f"{each}/{FILE_NAME}" for each in directories}
    return {each: disk.read(path) for each, path in paths.items() if disk.exists(path)}


def restore_terms(disk: Disk, stored: Mapping[str, bytes]) -> None:
    """Write terms again that a start took before it failed: those of folders whose files are still as they say.

    Without room for them the next start is as after a crash, which loses nothing.
    """
    for directory, data in stored.items():
        terms = parse(data)
        with suppress(OSError):
            if terms is not None and _is_unchanged(disk, directory, terms):
                _write(disk, directory, data)


def _is_unchanged(disk: Disk, directory: str, terms: Terms) -> bool:
    sizes = {name: disk.size(f"{directory}/{name}") for name in disk.listdir(directory)}
    return not any(changes_since(terms, sizes, lambda name: disk.read(f"{directory}/{name}")))


def _write(disk: Disk, directory: str, data: bytes) -> None:
    file = disk.open(f"{directory}/{FILE_NAME}", create=True)
    try:
        file.truncate(0)
        file.append(data)
    finally:
        file.close()
