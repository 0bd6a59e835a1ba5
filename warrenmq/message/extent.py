"""Finds the end of a stored message from its own bytes.

Index records and message files say how long a stored message is; where that number was damaged, the message still
says it itself.  Erlang terms are walked without being built, msgpack is skipped.
"""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]

from warrenmq.message.stored import ERLANG_TERM

WARREN_MESSAGE = 0x95
FIRST_BYTES = bytes([ERLANG_TERM, WARREN_MESSAGE])
"""The first bytes of a stored message: of an Erlang term, or of ours."""

_FIXED = {0x61: 2, 0x62: 5, 0x63: 32, 0x46: 9, 0x6A: 1}
"""Tag -> bytes of the whole term."""
_COUNTED = {0x64: (2, 0), 0x76: (2, 0), 0x73: (1, 0), 0x77: (1, 0), 0x6B: (2, 0), 0x6D: (4, 0),
            0x4D: (4, 1), 0x6E: (1, 1), 0x6F: (4, 1)}  # fmt: skip
"""Tag -> width of its length, bytes between that and the contents."""
_NESTED = {0x68: (1, 1, 0), 0x69: (4, 1, 0), 0x6C: (4, 1, 1), 0x74: (4, 2, 0)}
"""Tag -> width of its count, terms for each that is counted, terms more."""


def stored_end(data: bytes, start: int) -> int | None:
    """The end of the stored message at `start`; None if there is none or it is cut off."""
    if start >= len(data):
        return None
    if data[start] == ERLANG_TERM:
        return _term_end(data, start + 1)
    if data[start] == WARREN_MESSAGE:
        return _msgpack_end(data, start)
    return None


def _term_end(data: bytes, at: int) -> int | None:
    """A term without its version byte; what no message contains (pids, funs) is no term here."""
    size = len(data)
    todo = 1
    while todo:
        if at >= size or todo > size - at:
            return None
        todo -= 1
        tag = data[at]
        if fixed := _FIXED.get(tag):
            at += fixed
        elif counted := _COUNTED.get(tag):
            width, more = counted
            at += 1 + width + more + int.from_bytes(data[at + 1 : at + 1 + width], "big")
        elif nested := _NESTED.get(tag):
            width, each, more = nested
            todo += each * int.from_bytes(data[at + 1 : at + 1 + width], "big") + more
            at += 1 + width
        else:
            return None
    return at if at <= size else None


def _msgpack_end(data: bytes, start: int) -> int | None:
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(memoryview(data)[start:])
    try:
        unpacker.skip()
    except (msgpack.UnpackException, ValueError):
        return None
    return start + int(unpacker.tell())
