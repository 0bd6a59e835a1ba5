"""The functions that write rows, one for each event.

    _confirm = writer(Confirm)
    seq = _confirm(trace, CONFIRM_DURABLE, message, first_seq_id, count)        # or by name; a type checker knows both

`trace` is the ActorTrace of the actor that speaks.  The row is safe when the function returns; the result is the row's seq.

All of them do the same: they take a time above the last one (clock.py), pack the row with its check (row_check.py) and move on; they
differ in the columns.  `_row` does that for any event.  Of some events each message has a row of its own, and a row costs no more than
a few calls of Python functions: so these have functions in which all of it is written out, with their own columns as parameters.
Through `_row`, with a function before it that knows their columns, they would cost a tenth more, through a loop over the columns twice
as much.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec

from warrenmq.trace.block import ROW
from warrenmq.trace.events import (
    Ack,
    Append,
    Confirm,
    Deliver,
    OnDisk,
    Publish,
    QiWrite,
    Recv,
    Send,
    StoreConfirm,
    StoreRemove,
    StoreWrite,
)
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.row_check import CHECK_MASK, SLAB_ROW, mix
from warrenmq.trace.schema import FLAG, STORED, Event

P = ParamSpec("P")
Write = Callable[..., int]

_BYTES = ROW.size
_pack_row = SLAB_ROW.pack_into
_error = struct.error
"""Raised for a number above 63 bits, which `write_unsigned` can store."""


def writer(event: Callable[P, object]) -> Callable[Concatenate[ActorTrace, P], int]:
    """The function that writes rows of an event (a class of events/); its arguments are the event's columns."""
    assert isinstance(event, type)
    assert issubclass(event, Event)
    return _WRITTEN_OUT.get(event.number) or _general(event)


def _packing(event: type[Event[Any]]) -> Callable[..., None]:
    """Pack a row of the event: t, seq, the columns that it uses, event, actor and check.

    Columns that it does not use are bytes that `pack_into` fills with zeros.
    """
    form = "".join("q" if place in event.places else "8x" for place in STORED)
    return struct.Struct(f"<qq{form}{'B' if FLAG in event.places else 'x'}BIH").pack_into


# Any event


def _general(event: type[Event[Any]]) -> Write:
    """The writer of an event that has no function of its own below."""
    number, columns = event.number, event.columns
    is_plain = all(column.is_whole for column in columns)
    index = {column.place: at for at, column in enumerate(columns)}
    in_row = itemgetter(*(index.get(place, len(columns)) for place in (FLAG, *STORED)))

    def write(trace: ActorTrace, *given: int, **named: int) -> int:
        values: tuple[Any, ...] = given
        if named or len(given) != len(columns):
            rest: dict[str, Any] = named
            values += tuple(rest.pop(column.name, column.default) for column in columns[len(given) :])
            if rest or len(given) > len(columns) or None in values:
                names = ", ".join(column.name for column in columns)
                raise TypeError(f"a row of {event.name} takes {names}")
        if is_plain:
            return _row(trace, number, *in_row((*values, 0)))
        stored = dict.fromkeys((FLAG, *STORED), 0)
        for column, value in zip(columns, values, strict=True):
            stored[column.place] |= value if column.is_whole else (value & column.mask) << column.shift
        return _row(trace, number, *stored.values())

    return write


def _row(
    trace: ActorTrace, event: int, flag: int, msg: int, peer: int, pseq: int, a: int, b: int, c: int
) -> int:
    clock = trace.clock  # looked up before it is called: `trace.clock()` takes Python 0.02 us more, to look for a method of that name
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, msg, peer, pseq, a, b, c, flag, event, me)) & CHECK_MASK
    try:
        _pack_row(trace.slab, at, t, seq, msg, peer, pseq, a, b, c, flag, event, me, check)
    except _error:
        trace.write_unsigned(at, _pack_row, (t, seq, msg, peer, pseq, a, b, c, flag, event, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


# Events of which each message has rows: `_row`, written out with the event's own columns


_SEND, _pack_send = Send.number, _packing(Send)
_RECV, _pack_recv = Recv.number, _packing(Recv)
_PUBLISH, _pack_publish = Publish.number, _packing(Publish)
_QI_WRITE, _pack_qi_write = QiWrite.number, _packing(QiWrite)
_CONFIRM, _pack_confirm = Confirm.number, _packing(Confirm)
_DELIVER, _pack_deliver = Deliver.number, _packing(Deliver)
_ACK, _pack_ack = Ack.number, _packing(Ack)
_ON_DISK, _pack_on_disk = OnDisk.number, _packing(OnDisk)
_STORE_CONFIRM, _pack_store_confirm = StoreConfirm.number, _packing(StoreConfirm)
_APPEND, _pack_append = Append.number, _packing(Append)

# fmt: off


def _send(trace: ActorTrace, kind: int, message: int = 0, receiver: int = 0, size: int = 0,
          first_seq_id: int = 0, count: int = 0, queues: int = 0) -> int:
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, message, receiver, size, first_seq_id, count, queues, kind, _SEND, me)) & CHECK_MASK
    try:
        _pack_send(trace.slab, at, t, seq, message, receiver, size, first_seq_id, count, queues, kind, _SEND, me, check)
    except _error:
        trace.write_unsigned(at, _pack_send, (t, seq, message, receiver, size, first_seq_id, count, queues, kind, _SEND, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _recv(trace: ActorTrace, kind: int, sender: int, send: int) -> int:
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, sender, send, kind, _RECV, me)) & CHECK_MASK
    try:
        _pack_recv(trace.slab, at, t, seq, sender, send, kind, _RECV, me, check)
    except _error:
        trace.write_unsigned(at, _pack_recv, (t, seq, sender, send, kind, _RECV, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _publish(trace: ActorTrace, flags: int, message: int, publisher: int, send: int, first_seq_id: int,
             count: int, body_size: int = 0, checksum: int = 0, sends: int = 0) -> int:
    c = (body_size & 0x7FFF) << 48 | (checksum & 0xFFFF) << 32 | sends & 0xFFFFFFFF
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, message, publisher, send, first_seq_id, count, c, flags, _PUBLISH, me)) & CHECK_MASK
    try:
        _pack_publish(trace.slab, at, t, seq, message, publisher, send, first_seq_id, count, c, flags, _PUBLISH, me, check)
    except _error:
        trace.write_unsigned(at, _pack_publish, (t, seq, message, publisher, send, first_seq_id, count, c, flags, _PUBLISH, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _qi_write(trace: ActorTrace, trigger: int, size: int, records: int, offset_or_body_bytes: int,
              first: int = 0, published: int = 0, acked: int = 0) -> int:
    a = size & 0xFFFFFFFF | (acked & 0x7FFFFFFF) << 32
    b = records & 0xFFFFFFFF | (published & 0x7FFFFFFF) << 32
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, first, a, b, offset_or_body_bytes, trigger, _QI_WRITE, me)) & CHECK_MASK
    try:
        _pack_qi_write(trace.slab, at, t, seq, first, a, b, offset_or_body_bytes, trigger, _QI_WRITE, me, check)
    except _error:
        trace.write_unsigned(at, _pack_qi_write, (t, seq, first, a, b, offset_or_body_bytes, trigger, _QI_WRITE, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _confirm(trace: ActorTrace, kind: int, message: int, first_seq_id: int, count: int) -> int:
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, message, first_seq_id, count, kind, _CONFIRM, me)) & CHECK_MASK
    try:
        _pack_confirm(trace.slab, at, t, seq, message, first_seq_id, count, kind, _CONFIRM, me, check)
    except _error:
        trace.write_unsigned(at, _pack_confirm, (t, seq, message, first_seq_id, count, kind, _CONFIRM, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _deliver(trace: ActorTrace, flags: int, consumer: int, checksum: int, first_seq_id: int, count: int,
             delivery_tag: int) -> int:
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, consumer, checksum, first_seq_id, count, delivery_tag, flags, _DELIVER, me)) & CHECK_MASK
    try:
        _pack_deliver(trace.slab, at, t, seq, consumer, checksum, first_seq_id, count, delivery_tag, flags, _DELIVER, me, check)
    except _error:
        trace.write_unsigned(at, _pack_deliver, (t, seq, consumer, checksum, first_seq_id, count, delivery_tag, flags, _DELIVER, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _ack(trace: ActorTrace, multiple: int, acker: int, send: int, first_seq_id: int, count: int,
         consumer: int = 0, delivery_tag: int = 0) -> int:
    c = (consumer & 0x7FFFFFFF) << 32 | delivery_tag & 0xFFFFFFFF
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, acker, send, first_seq_id, count, c, multiple, _ACK, me)) & CHECK_MASK
    try:
        _pack_ack(trace.slab, at, t, seq, acker, send, first_seq_id, count, c, multiple, _ACK, me, check)
    except _error:
        trace.write_unsigned(at, _pack_ack, (t, seq, acker, send, first_seq_id, count, c, multiple, _ACK, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _on_disk(trace: ActorTrace, report: int, message: int) -> int:
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, message, report, _ON_DISK, me)) & CHECK_MASK
    try:
        _pack_on_disk(trace.slab, at, t, seq, message, report, _ON_DISK, me, check)
    except _error:
        trace.write_unsigned(at, _pack_on_disk, (t, seq, message, report, _ON_DISK, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _store_confirm(trace: ActorTrace, report: int, message: int, client: int) -> int:
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, message, client, report, _STORE_CONFIRM, me)) & CHECK_MASK
    try:
        _pack_store_confirm(trace.slab, at, t, seq, message, client, report, _STORE_CONFIRM, me, check)
    except _error:
        trace.write_unsigned(at, _pack_store_confirm, (t, seq, message, client, report, _STORE_CONFIRM, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _append(trace: ActorTrace, message: int, checksum: int, file: int, offset: int, size: int) -> int:
    clock = trace.clock
    t = clock()
    if t <= trace.last_t:
        t = trace.last_t + 1
    trace.last_t = t
    trace.seq = seq = trace.seq + 1
    at, me = trace.at, trace.id
    check = mix((t, seq, message, checksum, file, offset, size, _APPEND, me)) & CHECK_MASK
    try:
        _pack_append(trace.slab, at, t, seq, message, checksum, file, offset, size, _APPEND, me, check)
    except _error:
        trace.write_unsigned(at, _pack_append, (t, seq, message, checksum, file, offset, size, _APPEND, me))
    trace.at = at = at + _BYTES
    if at == trace.end:
        trace.full()
    return seq


def _store_decision(event: type[Event[Any]]) -> Write:
    """The writer of STORE_WRITE or STORE_REMOVE, whose columns are the same."""
    number, pack = event.number, _packing(event)

    def write(trace: ActorTrace, decision: int, message: int, client: int, file: int, flying: int,
              references: int, was_flying: int) -> int:
        clock = trace.clock
        t = clock()
        if t <= trace.last_t:
            t = trace.last_t + 1
        trace.last_t = t
        trace.seq = seq = trace.seq + 1
        at, me = trace.at, trace.id
        check = mix((t, seq, message, client, file, flying, references, was_flying, decision, number, me)) & CHECK_MASK
        try:
            pack(trace.slab, at, t, seq, message, client, file, flying, references, was_flying, decision, number, me, check)
        except _error:
            trace.write_unsigned(at, pack, (t, seq, message, client, file, flying, references, was_flying, decision, number, me))
        trace.at = at = at + _BYTES
        if at == trace.end:
            trace.full()
        return seq

    return write


# fmt: on

_WRITTEN_OUT: dict[int, Write] = {
    Send.number: _send,
    Recv.number: _recv,
    Publish.number: _publish,
    QiWrite.number: _qi_write,
    Confirm.number: _confirm,
    Deliver.number: _deliver,
    Ack.number: _ack,
    OnDisk.number: _on_disk,
    StoreConfirm.number: _store_confirm,
    Append.number: _append,
    StoreWrite.number: _store_decision(StoreWrite),
    StoreRemove.number: _store_decision(StoreRemove),
}
