"""The ledger of messages that `recover` has moved, so that it can be killed and run again without moving a message twice.

One file for each queue directory of the source, in the target:

    DIR/recovered/<V>/<Q>.log       a run of frames | length of the rest u32 | crc32 of the rest u32 | msgpack |

    [1, first, keys, fingerprints]    about to be published: these, at the sequence ids from `first` on; synced before
    [2, first]                        the last such batch is confirmed
    [3]                               nothing is in doubt any more

A key is 24 bytes, the message's sequence id and its id in the source; a fingerprint is 16 bytes of its contents.  After a
kill the batches without a confirm are in doubt: each of their messages is in the target's queue, at the sequence id that
was written down, or it is not.  The next run looks, before it does anything else, and writes down what it found.

Frames behind a torn one were never acted upon: a batch is published after its frame was synced.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]

from warrenmq.directory.owner_lock import OwnerLock
from warrenmq.seams.disk import Disk
from warrenmq.seams.real_disk import RealDisk

KEY_BYTES = 24
FINGERPRINT_BYTES = 16
_FRAME = Struct(">II")
_NOWHERE = -1


class _Kind(IntEnum):
    """The kinds of frames."""

    MOVING = 1
    MOVED = 2
    NO_DOUBT = 3


def key(seq_id: int, msg_id: bytes) -> bytes:
    """Identifies a message of one directory; neither number alone would do, as a queue may begin to count anew."""
    return seq_id.to_bytes(8, "big") + msg_id


def hold(path: str) -> OwnerLock:
    """Make the folder of all ledgers, or make the name safe that a killed run left, and keep other runs out of it."""
    disk = RealDisk()
    disk.mkdir(path)
    disk.sync_name(path, is_new=True)
    return OwnerLock(path)


class Doubt(NamedTuple):
    """A message that may be in the source, in the target, or in both."""

    seq_id: int
    """The message's sequence id in the target's queue."""
    fingerprint: bytes


class Ledger:
    """The frames of one queue directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Read it, or begin one."""
        self.moved: set[bytes] = set()
        """Keys of messages that are in the target for certain, or were taken from it since."""
        self.doubtful: dict[bytes, Doubt] = {}
        """Key of one that may be there, in the order in which they were published."""
        folder = os.path.dirname(path)
        disk.mkdir(folder)
        data = disk.read(path) if disk.exists(path) else b""
        end = self._load(data)
        self._file = disk.open(path, create=True)
        self._file.truncate(end)
        disk.sync_dir(folder)
        # a run may have been killed when it had made the folder, and not synced its name: a power cut would take the ledger
        disk.sync_dir(os.path.dirname(folder))

    def _load(self, data: bytes) -> int:
        batches: dict[int, list[bytes]] = {}
        end = 0
        for frame, stop in _frames(data):
            end = stop
            match frame:
                case [_Kind.MOVING, int() as first, bytes() as keys, bytes() as fingerprints]:
                    batches[first] = _cut(keys, KEY_BYTES)
                    prints = _cut(fingerprints, FINGERPRINT_BYTES)
                    for seq_id, (key, fingerprint) in enumerate(
                        zip(batches[first], prints, strict=True), first
                    ):
                        self.doubtful[key] = Doubt(seq_id, fingerprint)
                case [_Kind.MOVED, int() as first]:
                    for key in batches.pop(first, ()):
                        self.moved.add(key)
                        self.doubtful.pop(key, None)
                case [_Kind.NO_DOUBT]:
                    batches.clear()
                    self.doubtful.clear()
        return end

    def moving(self, first: int, keys: Sequence[bytes], fingerprints: Sequence[bytes]) -> None:
        """Record messages that are about to be published; on disk when it returns."""
        self._file.append(_frame(_Kind.MOVING, first, b"".join(keys), b"".join(fingerprints)))
        self._file.datasync()

    def done(self, first: int) -> None:
        """Note that a batch is confirmed; if a crash forgets this, the next run only has a doubt."""
        self._file.append(_frame(_Kind.MOVED, first))

    def resolve(self, found: Sequence[bytes]) -> None:
        """Resolve what was in doubt: only these are in the target; on disk when it returns."""
        prints = [self.doubtful[key].fingerprint for key in found]
        frames = (
            (_Kind.MOVING, _NOWHERE, b"".join(found), b"".join(prints)),
            (_Kind.MOVED, _NOWHERE),
            (_Kind.NO_DOUBT,),
        )
        self._file.append(b"".join(_frame(*fields) for fields in frames))
        self._file.datasync()
        self.moved.update(found)
        self.doubtful.clear()

    def close(self) -> None:
        self._file.datasync()
        self._file.close()


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def _frame(*fields: Any) -> bytes:
    payload: bytes = msgpack.packb(fields)
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def _frames(data: bytes) -> Iterator[tuple[Any, int]]:
    """(fields, end) of each whole frame from the start."""
    at = 0
    while at + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if not length or len(payload) < length or zlib.crc32(payload) != crc:
            return
        at += _FRAME.size + length
        yield msgpack.unpackb(payload), at
