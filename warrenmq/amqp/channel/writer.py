"""Encodes and buffers a channel's output, and writes it to the socket in few pieces (rabbit_writer).

It is flushed when the channel has handled its input, and when the buffer is large.  Most of it is
deliveries, and the frames of one delivery differ from those of the next in few bytes: methods are made of templates,
headers are remembered by the properties and the size of the body.
"""

from __future__ import annotations

from functools import lru_cache, partial
from struct import Struct
from typing import Any

import msgpack  # type: ignore[import-untyped]
from pamqp import commands
from pamqp.base import Frame as Method

from warrenmq.amqp.channel.context import ConnectionContext
from warrenmq.amqp.channel.message import Envelope
from warrenmq.amqp.wire.codec import (
    DeliverTemplate,
    encode_content,
    encode_header,
    encode_method,
    make,
    raw_properties,
)
from warrenmq.amqp.wire.errors import ERRORS, NAMES, NO_ROUTE, AmqpError
from warrenmq.amqp.wire.frames import BODY, OVERHEAD

FLUSH_AT = 1 << 16
"""Bytes in the buffer at which it is flushed."""
REMEMBERED = 256
WORTH_REMEMBERING = 512
"""Bytes of properties: larger ones hold what differs from message to message."""
_BODY_HEAD = Struct(">BHI")


class ChannelWriter:
    """The sending side of one channel; it belongs to the channel process."""

    def __init__(self, number: int, context: ConnectionContext) -> None:
        self.closing = False
        """True after channel.close was sent: only close-ok may follow."""
        self._number = number
        self._tells_errors = context.can(ERRORS)
        self._transport = context.transport
        self._frame_max = context.frame_max
        self._body_max = context.frame_max - OVERHEAD if context.frame_max else 1 << 62
        self._parts: list[bytes] = []
        self._size = 0
        self._template = lru_cache(REMEMBERED)(self._make_template)
        self._header = lru_cache(REMEMBERED)(partial(encode_header, number))

    def method(self, method: Method) -> None:
        """Send a method, unless the channel is closing."""
        if not self.closing:
            self._put(encode_method(self._number, method))

    def send(self, kind: type[Method], **values: Any) -> None:
        """Send a method with these fields, unless the channel is closing."""
        self.method(make(kind, **values))

    def close(self, error: AmqpError) -> None:
        """Send channel.close; nothing but close-ok may follow."""
        if self._tells_errors and (cause := error.cause) is not None:
            body = msgpack.packb({"error": type(cause).__name__, "text": str(cause)})
            self._return(error.code, Envelope("", "", raw_properties(None)), [body])
        self.send(commands.Channel.Close, reply_code=error.code, reply_text=error.reply_text,
                  class_id=error.class_id, method_id=error.method_id)  # fmt: skip
        self.closing = True

    def close_ok(self) -> None:
        """Send channel.close-ok."""
        self._put(encode_method(self._number, make(commands.Channel.CloseOk)))

    def deliver(
        self, consumer_tag: str, delivery_tag: int, redelivered: bool, envelope: Envelope, body: bytes
    ) -> None:
        """Send basic.deliver."""
        method = self._template(consumer_tag, envelope.exchange, envelope.routing_key).frame(
            delivery_tag, redelivered
        )
        self._content(method, envelope.raw_properties, body)

    def get_ok(
        self, delivery_tag: int, redelivered: bool, ready: int, envelope: Envelope, body: bytes
    ) -> None:
        """Send basic.get-ok; `ready` messages are left."""
        method = make(commands.Basic.GetOk, delivery_tag=delivery_tag, redelivered=redelivered, exchange=envelope.exchange,
                      routing_key=envelope.routing_key, message_count=ready)  # fmt: skip
        self._content(encode_method(self._number, method), envelope.raw_properties, body)

    def returned(self, envelope: Envelope, bodies: list[bytes]) -> None:
        """Send basic.return of mandatory messages that no queue wanted."""
        self._return(NO_ROUTE, envelope, bodies)

    def _return(self, code: int, envelope: Envelope, bodies: list[bytes]) -> None:
        method = make(commands.Basic.Return, reply_code=code, reply_text=NAMES[code], exchange=envelope.exchange,
                      routing_key=envelope.routing_key)  # fmt: skip
        encoded = encode_method(self._number, method)
        for body in bodies:
            self._content(encoded, envelope.raw_properties, body)

    def flush(self) -> None:
        """Write the buffer to the socket."""
        if self._parts:
            data = b"".join(self._parts)
            self.discard()
            self._transport.write(data)

    def discard(self) -> None:
        """Discard the buffer."""
        self._parts.clear()
        self._size = 0

    def _content(self, method: bytes, raw_properties: bytes, body: bytes) -> None:
        size = len(body)
        if 0 < size <= self._body_max and len(raw_properties) <= WORTH_REMEMBERING:
            header = self._header(raw_properties, size)
            head = _BODY_HEAD.pack(BODY, self._number, size)
            self._parts += (method, header, head, body, b"\xce")
            self._size += len(method) + len(header) + size + OVERHEAD
            if self._size >= FLUSH_AT:
                self.flush()
            return
        for each in encode_content(self._number, method, raw_properties, body, self._frame_max):
            self._put(each)

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= FLUSH_AT:
            self.flush()

    def _make_template(self, consumer_tag: str, exchange: str, routing_key: str) -> DeliverTemplate:
        return DeliverTemplate(self._number, consumer_tag, exchange, routing_key)
