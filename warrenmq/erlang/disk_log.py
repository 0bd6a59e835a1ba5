"""disk_log files in Erlang's own format: tables dumped by ets:tab2file, Mnesia's .DCD, .DCL and LATEST.LOG.

    01020304 | 63584d0b closed, 06070809 open | item*
    item   size:32 | 62574c41 | term                    terms below 65528 bytes
           size:32 | 62574c41 | MD5 of size | term      larger ones
           size:32 | 0c212c37 | term                    ahead of R12

Source: lib/kernel/src/disk_log_1.erl.  After damage the next item is looked for by its magic number.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from warrenmq.erlang.term import BadTerm, decode

_MAGIC = b"\1\2\3\4"
_CLOSED = b"cXM\x0b"
_OPEN = b"\6\7\x08\x09"
_ITEM = b"bWLA"
_OLD_ITEM = b"\x0c\x21\x2c\x37"
_MD5_FROM = 65528
_MD5 = 16
_u32 = Struct(">I")


def problem(data: bytes, path: str = "a disk_log file") -> str | None:
    """The damage of the file, or None; `items` gives everything readable in any case."""
    if data[:4] != _MAGIC or data[4:8] not in {_CLOSED, _OPEN}:
        return "its header is not that of a disk_log file"
    end = 8
    for at, after, _ in _items(data, path):
        if at != end:
            return f"bytes {end} to {at} are no item"
        end = after
    if end != len(data):
        return f"bytes {end} to {len(data)} are no item"
    return None if data[4:8] == _CLOSED else "it was not closed"


def items(data: bytes, path: str = "a disk_log file") -> Iterator[Any]:
    """All terms that can be read."""
    return (term for _, _, term in _items(data, path))


def _items(data: bytes, path: str) -> Iterator[tuple[int, int, Any]]:
    """(where it begins, where it ends, the term)."""
    at = 8
    while at >= 0:
        found = _item(data, at, path)
        if found is None:
            at = _next(data, at + 1)
        else:
            end, term = found
            yield at, end, term
            at = end


def _item(data: bytes, at: int, path: str) -> tuple[int, Any] | None:
    magic = data[at + 4 : at + 8]
    if magic not in {_ITEM, _OLD_ITEM}:
        return None
    (size,) = _u32.unpack_from(data, at)
    begin = at + 8 + (_MD5 if magic == _ITEM and size >= _MD5_FROM else 0)
    try:
        return begin + size, decode(data[begin : begin + size], path=path, offset=begin)
    except BadTerm:
        return None


def _next(data: bytes, at: int) -> int:
    """The offset at which the next item's size may stand, or -1."""
    places = [data.find(magic, at + 4) for magic in (_ITEM, _OLD_ITEM)]
    return min((place for place in places if place >= 0), default=3) - 4
