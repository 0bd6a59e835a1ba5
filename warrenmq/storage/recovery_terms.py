"""What a queue leaves behind at a clean stop (RabbitMQ's recovery.dets, one file a queue).

    recovery.terms    | crc32 of the rest (u32) | msgpack [version, next_seq_id, next_deliver_seq_id, segments] |

`segments` is a list of [number, unacked], there only for an index of version 2 (RabbitMQ's v2_index_state): with it a file
that was cut or removed while nobody looked is noticed.

Taking the terms removes them, durably, before the queue writes anything: from then on every stop is a crash until the
next clean one.  Terms that cannot be read are none.

Source: rabbit_recovery_terms, reference/classic-queue.md 1.11 and 3.9.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgpack  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from warrenmq.storage.disk import Disk

FILE_NAME = "recovery.terms"
_VERSION = 1


class Terms(NamedTuple):
    """The terms of one queue."""

    next_seq_id: int
    next_deliver_seq_id: int
    """Messages below it may have been delivered."""
    segments: tuple[tuple[int, int], ...] | None = None
    """Number of each segment, and how many messages in it were not acked; None when nobody counted."""


def save_terms(disk: Disk, directory: str, terms: Terms) -> None:
    """Leave the terms of a clean stop; the last thing that a queue does."""
    counted = [] if terms.segments is None else [terms.segments]
    data: bytes = msgpack.packb([_VERSION, *terms[:2], *counted])
    disk.replace(f"{directory}/{FILE_NAME}", zlib.crc32(data).to_bytes(4, "big") + data)


def take_terms(disk: Disk, directory: str) -> Terms | None:
    """The terms of the last stop, if it was a clean one.  They can be taken once."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    stored = disk.read(path)
    discard_terms(disk, directory)
    disk.sync_dir(directory)
    return parse(stored)


def parse(stored: bytes) -> Terms | None:
    """What a file of them says; None if they cannot be read."""
    if not stored[4:] or zlib.crc32(stored[4:]) != int.from_bytes(stored[:4], "big"):
        return None
    match msgpack.unpackb(stored[4:]):
        case [version, int() as next_seq_id, int() as next_deliver_seq_id] if version == _VERSION:
            return Terms(next_seq_id, next_deliver_seq_id)
        case [version, int() as next_seq_id, int() as next_deliver_seq_id, list() as segments] if version == _VERSION:
            return Terms(next_seq_id, next_deliver_seq_id, tuple((number, unacked) for number, unacked in segments))
    return None


def discard_terms(disk: Disk, directory: str) -> None:
    """Remove the terms, if there are any."""
    disk.unlink(f"{directory}/{FILE_NAME}")
