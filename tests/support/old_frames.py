"""Frames as earlier versions wrote them: of any rows of one actor, also with gaps in seq."""

from __future__ import annotations

import zlib
from functools import lru_cache

import msgpack

from warrenmq.trace.block import ROW, Kind, _frame
from warrenmq.trace.schema import COLUMNS

_PLANES = 8


# Of two traces of a test most rows are alike.
@lru_cache(4096)
def encode_rows(raw: bytes, codec: int = 2) -> bytes:
    """A ROWS frame (at least one row) of codec 1, 2 or 3; block.py tells what they are."""
    n = len(raw) // ROW.size
    columns: dict[str, bytes] = {}
    noise = b""
    for place, name in enumerate(COLUMNS):
        planes = [raw[byte :: ROW.size] for byte in range(_PLANES * place, _PLANES * (place + 1))]
        if codec == 3 and name == "seq":
            continue
        if codec == 3 and name == "t":
            noise, planes = b"".join(planes[:2]), planes[2:]
        while codec > 1 and planes and not any(planes[-1]):
            planes.pop()
        if planes:
            columns[name] = b"".join(planes)
    payload = zlib.compress(msgpack.packb(columns), 1) + noise
    first, last = ROW.unpack_from(raw), ROW.unpack(raw[-ROW.size :])
    return _frame(Kind.ROWS, codec, payload, n, last[-1], first[1], first[0], last[0])
