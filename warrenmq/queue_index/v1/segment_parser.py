"""Reading a segment file, whatever its bytes are (the format is in segment.py).

Without a checksum, damage shows as a record that cannot be: a prefix 00, lengths that disagree, a mark without a publish.
What is behind such bytes is still to be found, since a whole publish with its deliver mark is hardly ever seen by chance.

Half a record that was copied to a wrong place claims bytes of the next ones.  So a publish without its own mark is none
if a whole one begins inside it, and it gives way to a whole one of its position.
"""

from __future__ import annotations

import re
from operator import ne
from struct import Struct
from typing import NamedTuple

from warrenmq.directory.torn import OUT_OF_STEP, Damage, in_doubt
from warrenmq.message.stored import bin_header
from warrenmq.queue_index.record import HEADER_BYTES, lengths_agree
from warrenmq.queue_index.v1.segment import (
    MARK,
    MARK_BYTES,
    PERSISTENT,
    PUBLISH,
    RELATIVE,
    Facts,
    pack_prefix,
)

_PUBLISH_BYTES = MARK_BYTES + HEADER_BYTES
_unpack_sizes = Struct(">26xII").unpack_from  # of the body and of the embedded message
_ALIKE = 16
"""Records that are taken together at first; as many again before the next attempt when they were not alike."""

_RUN_OF_MARKS = 13
"""26 bytes, more than a message id, so that random bytes are not taken for a run of marks; the expiry after them is
hardly ever anything but zeros."""

_ANY_PUBLISH = re.compile(
    rb"[\x80-\xff]."  # prefix
    rb"(?!\x00{16}).{16}"  # message id
    rb"\x00.{7}"  # expiry: none, or before the year 4253
    rb".{4}(?:\x00{4}|\x00.{3}[\x83\x95])",  # sizes, first byte of an embedded message
    re.DOTALL,
)


class _Stop(NamedTuple):
    """Where a run of records ends, before the end of the file or there."""

    position: int
    reason: str
    next: int = 0
    """Where records follow for certain, if that is known."""
    believed: int = 0
    """Where the last publish with its own mark ends."""


def parse(data: bytes, entry_count: int) -> tuple[Facts, list[Damage]]:
    """What a segment file says; whatever the bytes, this returns.

    After bytes that make no sense, parsing goes on at the next publish that is whole and has its deliver mark.
    """
    facts = Facts()
    damage: list[Damage] = []
    unmarked: set[int] = set()
    believed = 0
    stop = _parse_run(data, 0, entry_count, facts, unmarked)
    while stop.position < len(data):
        # marks before bytes that make no sense may have been the head of a publish
        believed = max(believed, stop.believed)
        inside = _next_publish(data, max(believed, stop.position - OUT_OF_STEP), stop.position)
        start = min(stop.position, inside)
        resume = inside if inside < stop.position else stop.next or _next_publish(data, stop.position + 1)
        believed = max(believed, resume + 1)
        damage.append(Damage(start, max(resume - start, 1), stop.reason))
        stop = _parse_run(data, resume, entry_count, facts, unmarked)
    return facts, damage


def _parse_run(data: bytes, position: int, entry_count: int, facts: Facts, unmarked: set[int]) -> _Stop:
    """Parse from `position` to the end, or to the first bytes that make no sense; collects positions published without mark."""
    published, transient, delivered, acked = facts.published, facts.transient, facts.delivered, facts.acked
    end = len(data)
    last_publish = last_size = look_again = -1
    believed = 0
    last_mark: set[int] | None = None  # what it was new to
    while position + MARK_BYTES <= end:
        prefix = data[position] << 8 | data[position + 1]
        relative = prefix & RELATIVE
        if relative >= entry_count:
            reason = f"position {relative} is outside a segment of {entry_count} entries"
            return _Stop(position, reason, believed=believed)
        if prefix >= PUBLISH:
            body = position + _PUBLISH_BYTES
            if body > end:
                return _Stop(position, "a publish is cut off", believed=believed)
            size, embedded_size = _unpack_sizes(data, position)
            if size == last_size and position >= look_again:
                after = _parse_alike(data, position, entry_count, facts)
                look_again = after + _ALIKE * (_PUBLISH_BYTES + embedded_size)
                if after > position:
                    position, last_publish, last_mark = after, -1, delivered
                    believed = after
                    continue
            stop = body + embedded_size
            if stop > end or (embedded_size and not lengths_agree(data, body, stop, size)):
                reason = "a publish is cut off, or one of its lengths is wrong"
                return _Stop(position, reason, believed=believed)
            marked = data.startswith(pack_prefix(MARK | relative), stop)
            if not marked and _next_publish(data, position + 1, stop) < stop:
                return _Stop(position, "a publish reaches into the next one", believed=believed)
            if relative in published:
                if not (marked and relative in unmarked):
                    behind = stop + MARK_BYTES if marked else 0
                    return _Stop(position, f"position {relative} is published twice", behind, believed)
                for each in (transient, delivered, acked, unmarked):
                    each.discard(relative)
            published[relative] = data[position + MARK_BYTES : stop]
            if not prefix & PERSISTENT:
                transient.add(relative)
            last_publish, position = position, stop
            last_size = size
            if marked:
                position += MARK_BYTES
                delivered.add(relative)
                last_mark = delivered
                believed = position
            else:
                unmarked.add(relative)
        elif prefix >= MARK:
            if relative in delivered:
                last_mark = acked if relative not in acked else None
                acked.add(relative)
            elif relative in published:
                last_mark = delivered
                delivered.add(relative)
            elif not _in_step(data, position + MARK_BYTES):
                # where records follow, only the publish of this mark was damaged, and it is set aside already
                reason = "a mark without a publish is followed by bytes that are no record"
                return _Stop(position, reason, believed=believed)
            position += MARK_BYTES
        else:
            start = _distrust_last(data, position, facts, last_publish, last_mark)
            return _Stop(start, "no record begins with the bits 00", believed=believed)
    return _Stop(position, "a record is cut off", believed=believed)


def _parse_alike(data: bytes, position: int, entry_count: int, facts: Facts) -> int:
    """Parse persistent publishes, each with its mark, that have the lengths of the one at `position`; returns where
    that ends, which is at `position` when anything is odd: the other loop then looks at it.

    Most queues hold messages of one size.  Taking them by the column, not by the record, halves the time of a read.
    """
    size, embedded_size = _unpack_sizes(data, position)
    # what tells that the lengths agree: both of them, the first byte of the message and the header of its body
    start, body = HEADER_BYTES + 1, HEADER_BYTES + embedded_size - size
    header = body - len(bin_header(size))
    first = data[position + MARK_BYTES : position + _PUBLISH_BYTES + embedded_size]
    if not lengths_agree(first, HEADER_BYTES, len(first), size):
        return position
    if not embedded_size:
        header = body = start
    lengths = first[24:start], first[header:body]
    layout = Struct(f">H{HEADER_BYTES + embedded_size}sH")
    view = memoryview(data)
    many = _ALIKE
    while many := min(many, (len(data) - position) // layout.size):
        stop = position + many * layout.size
        prefixes, records, marks = zip(*layout.iter_unpack(view[position:stop]), strict=True)
        relatives = [prefix - (PUBLISH | PERSISTENT) for prefix in prefixes]
        if (
            any(map(ne, marks, [prefix - PUBLISH for prefix in prefixes]))
            or min(relatives) < 0
            or max(relatives) >= entry_count
            or len({*relatives}) < many
            or not facts.published.keys().isdisjoint(relatives)
            or any((record[24:start], record[header:body]) != lengths for record in records)
        ):
            break
        facts.published.update(zip(relatives, records, strict=True))
        facts.delivered.update(relatives)
        position = stop
        many *= 2
    return position


def _distrust_last(
    data: bytes, position: int, facts: Facts, last_publish: int, last_mark: set[int] | None
) -> int:
    """Zeros begin at `position`: take back the record before them if they may have replaced its end.

    After a power cut a file can have its new length before it has its bytes.  A publish has its mark behind it, or
    it is torn; of a mark only one that ends in zeros across a sector boundary is in doubt.
    """
    if last_publish >= 0:
        relative = int.from_bytes(data[last_publish : last_publish + MARK_BYTES], "big") & RELATIVE
        if last_publish + MARK_BYTES + len(facts.published[relative]) == position:
            del facts.published[relative]
            facts.transient.discard(relative)
            return last_publish
    start = position - MARK_BYTES
    if last_mark is not None and in_doubt(data[start:position], start):
        last_mark.discard(int.from_bytes(data[start:position], "big") & RELATIVE)
        return start
    return position


def _in_step(data: bytes, position: int) -> bool:
    """Whether records seem to begin here; asked after a mark without a publish, which may be a damaged publish."""
    for _ in range(_RUN_OF_MARKS):
        if position + MARK_BYTES > len(data):
            return True
        if data[position] >= PUBLISH >> 8:
            return _ANY_PUBLISH.match(data, position) is not None
        if data[position] < MARK >> 8:
            return False
        position += MARK_BYTES
    return True


def _next_publish(data: bytes, position: int, limit: int | None = None) -> int:
    """Where the next whole publish with its deliver mark begins; `limit`, or the end of the data, when there is none before."""
    limit = len(data) if limit is None else limit
    while (
        position < limit
        and (match := _ANY_PUBLISH.search(data, position, limit + _PUBLISH_BYTES)) is not None
    ):
        position = match.start()
        size, embedded_size = _unpack_sizes(data, position)
        body = position + _PUBLISH_BYTES
        stop = body + embedded_size
        mark = bytes((MARK >> 8 | data[position] & RELATIVE >> 8, data[position + 1]))
        if data.startswith(mark, stop) and lengths_agree(data, body, stop, size):
            return min(position, limit)
        position += 1
    return limit
