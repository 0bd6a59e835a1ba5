"""Many publishes in one: what `publish_many` of a process that shares a directory sends (shared/publishing.py).

A basic.publish to the default exchange with the routing key `amq.warrenmq.batch` and the bit `immediate`,
which no message has, stands for the publishes in its body, in order.
They share their method and properties; each counts for itself in everything else (confirms, sizes,
transactions), as if each had come in frames of its own, which cost the owner several times as much.

    | size:32 | payload of a basic.publish | size:32 | property flags and values | then each body: size:32 | bytes |

No queue can have this name: it begins with "amq.".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from pamqp.commands import Basic

from warrenmq.amqp.wire.codec import PUBLISH, PUBLISH_START, encode_method, make
from warrenmq.amqp.wire.errors import SYNTAX_ERROR, AmqpError
from warrenmq.amqp.wire.frames import OVERHEAD

KEY = "amq.warrenmq.batch"
LARGEST = 1 << 20
"""Bytes of a batch."""
_HEAD = OVERHEAD - 1
_size = Struct(">I")


def method_of(frame: bytes) -> bytes:
    """The payload in the frame of a method."""
    return frame[_HEAD:-1]


METHOD = method_of(encode_method(1, make(Basic.Publish, exchange="", routing_key=KEY, immediate=True)))
"""The payload of the publish that carries a batch."""


class Batch(NamedTuple):
    """Publishes that share their method and properties."""

    method: bytes
    raw_properties: bytes
    bodies: list[bytes]


def overhead(frame: bytes, raw_properties: bytes) -> int:
    """Bytes of a batch besides its bodies and their sizes; `frame` is the one of their method."""
    return 2 * _size.size + len(method_of(frame)) + len(raw_properties)


def joined(batch: Batch) -> bytes:
    """A batch as bytes."""
    parts = [
        _size.pack(len(batch.method)),
        batch.method,
        _size.pack(len(batch.raw_properties)),
        batch.raw_properties,
    ]
    for body in batch.bodies:
        parts += (_size.pack(len(body)), body)
    return b"".join(parts)


def split(data: bytes) -> Batch:
    """Decode a batch; AmqpError 502 if the bytes are invalid."""
    parts, at, end, read = [], 0, len(data), _size.unpack_from
    while at + _size.size <= end:
        (size,) = read(data, at)
        at += _size.size
        parts.append(data[at : at + size])
        at += size
    if at != end or len(parts) < 3 or not parts[0].startswith(PUBLISH_START) or parts[0] == METHOD:
        raise AmqpError(SYNTAX_ERROR, f"a message to {KEY} is no batch of publishes", *PUBLISH)
    return Batch(parts[0], parts[1], parts[2:])


def runs(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Join batches in a row that share their method and properties."""
    for _, alike in groupby(batches, itemgetter(0, 1)):
        first, *others = alike
        for each in others:
            first.bodies.extend(each.bodies)
        yield first


def pieces(bodies: Sequence[bytes], room: int) -> list[list[bytes]]:
    """Bodies in order, in lists that have room in a batch; one that has none alone is alone.

    >>> pieces([b"aa", b"b", b"cccc", b"d"], 12)
    [[b'aa', b'b'], [b'cccc'], [b'd']]
    """
    found: list[list[bytes]] = []
    left = -1
    for body in bodies:
        left -= len(body) + _size.size
        if left < 0:
            found.append([])
            left = room - len(body) - _size.size
        found[-1].append(body)
    return found
