"""DETS files, and the one that RabbitMQ stops with: recovery.dets.

A version 9 file (lib/stdlib/src/dets_v9.erl) is a hash table whose slots point at collections of objects:

    header       56 bytes: freelists:32 | cookie:32 = 00abcdef | closed properly:32 | type:32 | version:32 = 9 | ...
    collection   size:32, of all of it | status:32 = 12345678 (a freed one has another) | object*
    object       size:32, of itself | term

Like Erlang's own repair, and unlike its lookups, we look for collections by their status word and not through
the slots, so that what a torn file still has is found too.

recovery.dets has one object {DirName, Terms} for each queue that was stopped in good order; RabbitMQ empties it
when it starts, so that a crash leaves none.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from warrenmq.erlang.term import BadTerm, decode

_HEADER_BYTES = 36
_u32 = Struct(">I")
_ACTIVE = _u32.pack(0x12345678)


def _objects(data: bytes) -> Iterator[Any]:
    """The terms of all collections that can be read."""
    at = data.find(_ACTIVE, _HEADER_BYTES)
    while at >= 0:
        begin = at - _u32.size
        end = begin + _u32.unpack_from(data, begin)[0]
        behind = at + _u32.size
        for after, term in _collection(data, behind, end):
            yield term
            behind = after
        at = data.find(_ACTIVE, behind)


def _collection(data: bytes, at: int, end: int) -> Iterator[tuple[int, Any]]:
    """(where it ends, the term) of each object that can be read; none where the status word was there by chance."""
    while at + _u32.size < min(end, len(data)):
        (size,) = _u32.unpack_from(data, at)
        try:
            term = decode(
                data[at + _u32.size : min(at + size, end)], path="recovery.dets", offset=at + _u32.size
            )
        except BadTerm:
            return
        at += size
        yield at, term


def read_recovery_terms(data: bytes) -> dict[str, dict[str, Any]]:
    """Read the terms that each queue wrote when it stopped, by the name of its directory.

    Values are as RabbitMQ wrote them: `segments` [(number, unacked)], `persistent_ref` bytes, `persistent_count`,
    `persistent_bytes`, `next_seq_id`, `next_deliver_seq_id`, `v2_index_state` (version, {segment: unacked}).
    """
    found = {}
    for each in _objects(data):
        match each:
            case (key, list() as terms) if (name := _text(key)) is not None:
                found[name] = {str(term[0]): term[1] for term in terms if _is_pair(term)}
    return found


def _is_pair(term: Any) -> bool:
    return isinstance(term, tuple) and len(term) == 2 and isinstance(term[0], str)


def _text(key: Any) -> str | None:
    """A directory's name, which Erlang writes as a list of characters."""
    try:
        return bytes(key).decode() if isinstance(key, (bytes, list)) else None
    except (TypeError, ValueError):
        return None
