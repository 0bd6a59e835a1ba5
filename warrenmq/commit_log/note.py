"""The note beside the commit log: which record of it was written last.

    warrenmq.committed    | "WQln" | crc32 of the rest | id of the log (u64) | number (u64) | flags (u32) |

All numbers are big-endian, and the flags are as in record.py.

It is overwritten behind the sync of each record, without a sync of its own: a kill leaves the newest note, a
power cut perhaps an older one, and neither one of a record that was not safe.  So a log that ends before the
record of its note is an older copy, another one's, or damaged: replayed, it would write old bytes over newer
ones.  A directory of an earlier version has no note.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from zlib import crc32

from warrenmq.commit_log.record import CLEAN

NAME = "warrenmq.committed"
_HEAD, _FIELDS = Struct(">4sI"), Struct(">QQI")
_MAGIC = b"WQln"


class Note(NamedTuple):
    """The newest record of a log."""

    id: int
    """Of the log."""
    number: int
    clean: bool
    """True if it says that the log was closed."""


def pack(log: int, number: int, flags: int) -> bytes:
    """Encode a note.

    >>> committed(pack(7, 12, CLEAN))
    Note(id=7, number=12, clean=True)
    """
    fields = _FIELDS.pack(log, number, flags)
    return _HEAD.pack(_MAGIC, crc32(fields)) + fields


def committed(data: bytes) -> Note | None:
    """Decode a note: the record that was committed last; None if it is none, which says nothing of the log."""
    fields = data[_HEAD.size :]
    if data[: _HEAD.size] != _HEAD.pack(_MAGIC, crc32(fields)) or len(fields) != _FIELDS.size:
        return None
    log, number, flags = _FIELDS.unpack(fields)
    return Note(log, number, bool(flags & CLEAN))
