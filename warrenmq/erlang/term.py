"""Erlang's external term format, read without trust.

    83 | tag | ...           a term: one byte says its kind, then its contents
    83 | 50 | size:32 | zlib the same, compressed

    tag (hex)                   Erlang                  here
    61 62 6E 6F                 integer                 int
    46 63                       float                   float
    64 73 76 77                 atom                    Atom, a str (also `true`, `false` and `undefined`)
    68 69                       tuple                   tuple
    6A 6B 6C                    list                    list; with a tail that is no list: ImproperList
    6D 4D                       binary, bit string      bytes, BitString
    74                          map                     dict; a key that cannot be hashed is Opaque
    67 58 66 59 78 65 72 5A     pid, port, reference    Opaque
    70 71                       fun                     Opaque; it is never looked up or called

Anything else is BadTerm, which says where and why.  Nothing here is kept between two calls (an atom is only a
string), and nothing is as large as a few bytes claim: a count is compared with the bytes that follow before
anything is built, a compressed term says its size and is held to it, and nesting ends at `max_depth`.

Source: the External Term Format chapter of the ERTS user's guide.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Any

from warrenmq.erlang.term_reader import NotATerm, Reader
from warrenmq.errors import CorruptFile

MAX_DEPTH = 256
"""Nesting of a term unless the reader asks for more: comparing, printing and hashing take a stack."""
MAX_SIZE = 64 << 20
"""Bytes that a compressed term may unpack to.  RabbitMQ compresses nothing that it stores."""

_VERSION = 131
_COMPRESSED = 80
_u32 = Struct(">I")


class BadTerm(CorruptFile):
    """Raised for bytes that are not an Erlang term, or one beyond the limits."""


def decode(
    data: bytes,
    *,
    max_depth: int = MAX_DEPTH,
    max_size: int = MAX_SIZE,
    zero_padded: bool = False,
    path: str = "an Erlang term",
    offset: int = 0,
) -> Any:
    """The term that `data` is, all of it, or BadTerm, which names `path` and the place counted from `offset`.

    `zero_padded`: zero bytes may follow the term, as in `.qs` files since RabbitMQ 3.12.
    """
    reader = Reader(data, max_depth)
    try:
        if reader.byte() != _VERSION:
            raise NotATerm(0, f"a term begins with {_VERSION}, this with {data[0]}")
        if data[1:2] == bytes([_COMPRESSED]):
            return _compressed(reader, max_depth, max_size, zero_padded=zero_padded)
        found = reader.term()
        _end(data, reader.at, zero_padded=zero_padded)
    except NotATerm as bad:
        raise BadTerm(path, offset + bad.at, bad.reason) from None
    return found


def _end(data: bytes, at: int, *, zero_padded: bool) -> None:
    rest = len(data) - at
    if rest and not (zero_padded and data.count(0, at) == rest):
        raise NotATerm(at, f"{rest} bytes follow the term")


def _compressed(reader: Reader, max_depth: int, max_size: int, *, zero_padded: bool) -> Any:
    """The term inside; what is wrong with it is said at the place where its compressed bytes begin."""
    reader.at += 1
    size = reader.number(_u32)
    if size > max_size:
        raise NotATerm(2, f"a compressed term claims {size} bytes, {max_size} are allowed")
    unpack = zlib.decompressobj()
    try:
        inside = unpack.decompress(reader.data[reader.at :], size + 1)  # one more shows that there is more
    except zlib.error as why:
        raise NotATerm(reader.at, f"a compressed term cannot be unpacked ({why})") from None
    if len(inside) != size or not unpack.eof:
        raise NotATerm(reader.at, f"a compressed term is not the {size} bytes long that it claims")
    _end(reader.data, len(reader.data) - len(unpack.unused_data), zero_padded=zero_padded)
    inner = Reader(inside, max_depth)
    try:
        found = inner.term()
        _end(inside, inner.at, zero_padded=False)
    except NotATerm as bad:
        raise NotATerm(reader.at, f"unpacked, at its byte {bad.at}: {bad.reason}") from None
    return found
