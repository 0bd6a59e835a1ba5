"""The client side of an AMQP channel: synchronous calls, and hooks for deliveries, confirms and returns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any, NamedTuple, Self

import msgpack  # type: ignore[import-untyped]
from pamqp.base import Frame as Method
from pamqp.commands import Basic, Channel

from warrenmq.amqp.wire.codec import decode_header, decode_method, encode_method, make, start_of
from warrenmq.amqp.wire.errors import NO_ROUTE, PRECONDITION_FAILED
from warrenmq.amqp.wire.frames import BODY, HEADER, METHOD, Frame
from warrenmq.errors import ArgumentValueError, BrokerClosed, Error, PreconditionFailed
from warrenmq.message.stored import StoredMessage
from warrenmq.runtime.thread_event import ThreadEvent
from warrenmq.shared.connection import ClientConnection
from warrenmq.shared.errors import anew, error_in, error_of
from warrenmq.shared.patience import at_most, check, wait

DELIVER, GET_OK, RETURN = start_of(Basic.Deliver), start_of(Basic.GetOk), start_of(Basic.Return)
ACK, NACK, CANCEL = start_of(Basic.Ack), start_of(Basic.Nack), start_of(Basic.Cancel)
_CLOSE, _CLOSE_OK = start_of(Channel.Close), start_of(Channel.CloseOk)
_WITH_CONTENT = frozenset([DELIVER, GET_OK, RETURN])
_UNROUTABLE = NO_ROUTE.to_bytes(2, "big")
"""The reply code of a message that is returned."""
_u64 = Struct(">Q")
_CLOSING = 5.0
"""Seconds that the owner has to close a channel that nobody uses any more."""
TIMED_OUT = "delivery acknowledgement on channel"


class Received(NamedTuple):
    """A message received over AMQP, in the form that Delivery and Message take (the counterpart of Fetched)."""

    payload: bytes
    """The body alone."""
    size: int
    redelivered: bool
    exchange: str
    routing_key: str
    raw_properties: bytes

    def decoded(self) -> StoredMessage:
        """Decode its exchange, routing key and properties."""
        return StoredMessage(self.exchange, [self.routing_key], self.raw_properties, self.payload)


class Content(NamedTuple):
    """A method with content: basic.deliver, get-ok or return."""

    method: bytes
    raw_properties: bytes
    body: bytes


class Answer:
    """The answer that one call waits for.

    The owner answers the methods of a channel in their order, and the calls of amqp/channel/rpc.py in theirs.
    """

    __slots__ = ("known", "rpc", "taker", "value")

    def __init__(self, *, rpc: bool = False) -> None:
        self.rpc = rpc
        self.known = ThreadEvent()
        self.value: Any = None
        self.taker: Callable[[Any], None] | None = None
        """Called with the answer when it comes: it goes back, as its caller was interrupted."""


class ClientChannel:
    """The client side of one channel; `open` comes first, all other calls are for any thread."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.number = 0
        self.written = 0
        """See connection.Receiver."""
        self.error: Error | None = None
        """The reason why the channel is closed."""
        self._refusal: Error | None = None
        """The error behind the channel.close that comes next (amqp/wire/errors.py, ERRORS)."""
        self._mark = self._synced = object()
        """A new object with each thing that is sent and has no answer, and the last one that the owner has dealt with."""
        self._lock = threading.RLock()
        """Held while something is sent, so that nothing follows channel.close-ok: the number may be another
        channel's by then. A thread that holds it does not wait for the owner; an RLock, as a finalizer may
        run at any point.
        """
        self._due: deque[Answer] = deque()
        """Answers due for the calls that were sent, in their order."""
        self._flow: tuple[object, Answer] | None = None
        """The last mark that `sync` asked for, and the answer to it."""
        self._goodbye: Answer | None = None
        """Once channel.close was sent: known with channel.close-ok."""
        self._content: tuple[bytes, bytes, int] | None = None
        self._pieces: list[bytes] = []
        self._have = 0

    def open(self) -> Self:
        """Open it at the owner; closed again if that fails or is interrupted."""
        try:
            self.connection.add(self)
            self.call(Channel.Open)
            self._prepare()
        except BaseException:
            self.close_soon()
            raise
        return self

    def _prepare(self) -> None:
        """Say what the channel is for, once it is open."""

    # -- for everyone

    def call(self, kind: type[Method], answer: Answer | None = None, /, **values: Any) -> Any:
        """Send a method, and return its answer: a decoded method, or Content.

        Raises what the owner refuses with (the channel is closed then), LinkLost when the connection is gone.
        """
        mark = self._mark
        try:
            value = self.wait_for(self.ask_with(self._encoded(kind, values), answer or Answer()))
        except Error:
            raise
        except BaseException:  # of a signal's handler, or Unanswered: `sync` waits for what is given up here
            self.mark()
            raise
        self._synced = mark
        return value

    def ask_with(self, data: bytes, answer: Answer) -> Answer:
        """Send what has one answer."""
        with self._lock:
            self._check_open()
            before = self.written
            try:
                self._due.append(answer)
                self.connection.write(data, self)
            except BaseException:
                if self.written == before:
                    with suppress(ValueError):
                        self._due.remove(answer)
                raise
        return answer

    def hand_over(self, answer: Answer, taker: Callable[[Any], None]) -> None:
        """Have `taker` called with an answer, now or when it comes, whose caller was interrupted; not if
        another one had it.
        """
        with self._lock:
            before, answer.taker = answer.taker, taker
            if answer.known.is_set() and before is None:
                taker(answer.value)

    def wait_for(self, answer: Answer) -> Any:
        """Wait for an answer; raises it if it is an error.  Unanswered when the caller's time is over (patience.py)."""
        if self.connection.is_own_thread():
            raise PreconditionFailed(
                "a callback of a confirm cannot wait for the owner of the directory, whose answers its thread reads; "
                "make the call in another thread"
            )
        wait(answer.known)
        if isinstance(answer.value, Error):
            raise anew(answer.value)
        return answer.value

    def _check_open(self) -> None:
        if self.error is not None:
            raise anew(self.error)

    def send(self, kind: type[Method], **values: Any) -> None:
        """Send a method that has no answer, or whose answer does not matter.  ArgumentValueError when a value
        does not fit.
        """
        data = self._encoded(kind, values)
        with self._lock:
            self._check_open()
            self.connection.write(data, self)

    def _encoded(self, kind: type[Method], values: dict[str, Any]) -> bytes:
        try:
            data = encode_method(self.number, make(kind, **values))
        except (ValueError, TypeError, OverflowError) as why:
            raise ArgumentValueError(
                f"{kind.name} cannot be sent to the owner of the directory: {why}"
            ) from why
        self.check_size(kind.name, len(data))
        return data

    def check_size(self, what: str, size: int) -> None:
        """ArgumentValueError for a method or content header, of so many bytes, that does not fit into one frame."""
        most = self.connection.frame_max
        if most and size > most:
            raise ArgumentValueError(
                f"{what} has {size} bytes, and the owner of the directory takes at most {most} in one frame; "
                "give shorter arguments or headers, or raise its frame_max"
            )

    def mark(self) -> None:
        """Note that a method without an answer was sent, so that `sync` waits for it."""
        self._mark = object()

    def sync(self) -> None:
        """Wait until the owner has processed what was sent before; does nothing once the channel is closed."""
        mark = self._mark
        if mark is self._synced:
            return
        if self._goodbye is not None:
            self._goodbye.known.wait(at_most(_CLOSING))
            check()
        elif self.error is None:
            with suppress(Error):
                self.wait_for(self._asked_for(mark))
        self._synced = mark

    def _asked_for(self, mark: object) -> Answer:
        """The answer that comes when all before `mark` is dealt with, asked for once."""
        with self._lock:
            if self._flow is None or self._flow[0] is not mark:
                flow = encode_method(self.number, make(Channel.Flow, active=True))
                self._flow = mark, self.ask_with(flow, Answer())
            return self._flow[1]

    def close(self) -> None:
        """Close the channel; unacked messages are requeued."""
        self.close_soon()
        if self._goodbye is not None:
            with suppress(Error):
                self.wait_for(self._goodbye)

    def close_soon(self) -> None:
        """Close the channel without waiting for the answer; for a finalizer."""
        with self._lock:
            if self.error is not None:
                return
            before, goodbye, closed = self.written, Answer(), BrokerClosed("the channel is closed")
            try:
                if before:
                    with suppress(Error):
                        self.send(Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
            finally:
                if self.written != before:
                    self._goodbye, self.error = goodbye, closed
            if self.error is None:  # the owner does not know of it, or is gone
                self.connection.remove(self.number)
                self.error = closed

    # -- in the connection's thread

    def frames(self, frames: list[Frame]) -> None:
        """Handle frames of this channel, in the connection's thread (see connection.Receiver)."""
        for kind, _, payload in frames:
            if kind == METHOD:
                start = payload[:4]
                if start in _WITH_CONTENT:
                    self._content = payload, b"", -1
                elif start == _CLOSE:
                    self._closed(payload)
                else:
                    self._method(start, payload)
            elif kind == HEADER and self._content is not None:
                size, raw = decode_header(payload)
                self._content = self._content[0], raw, size
                if not size:
                    self._complete(b"")
            elif kind == BODY and self._content is not None:
                if not self._have and len(payload) == self._content[2]:
                    self._complete(payload)
                    continue
                self._pieces.append(payload)
                self._have += len(payload)
                if self._have >= self._content[2]:
                    body, self._pieces, self._have = b"".join(self._pieces), [], 0
                    self._complete(body)
        self.batch_ended()

    def lost(self, error: Error) -> None:
        """Close the channel because its connection is lost (see connection.Receiver)."""
        with self._lock:
            if self.error is None:
                self.error = error
            self._answer_all(error)
        self.ended(error, lost=True)

    def _answer(self, value: Any, *, rpc: bool = False) -> None:
        """Give the oldest call its answer."""
        with self._lock:
            for each in self._due:
                if each.rpc is rpc:
                    self._due.remove(each)
                    self._told(each, value)
                    return

    def _answer_all(self, error: Error) -> None:
        for each in [*self._due, *([self._goodbye] if self._goodbye is not None else [])]:
            self._told(each, error)
        self._due.clear()

    def _told(self, answer: Answer, value: Any) -> None:
        answer.value = value
        answer.known.set()
        if answer.taker is not None:
            answer.taker(value)

    def blocked(self) -> None:
        """See connection.Receiver."""

    def _complete(self, body: bytes) -> None:
        assert self._content is not None
        method, raw, _ = self._content
        self._content = None
        if method[:4] == RETURN and method[4:6] != _UNROUTABLE:
            self._refusal = error_in(msgpack.unpackb(body))
        else:
            self.content(method[:4], Content(method, raw, body))

    def _method(self, start: bytes, payload: bytes) -> None:
        if start == _CLOSE_OK:
            self.connection.remove(self.number)
            with self._lock:
                self._answer_all(BrokerClosed("the channel is closed"))
        elif not self.event(start, payload):
            self._answer(decode_method(payload))

    def _closed(self, payload: bytes) -> None:
        method: Any = decode_method(payload)
        error = self._refusal or error_of(method.reply_code, method.reply_text)
        timed_out = method.reply_code == PRECONDITION_FAILED and TIMED_OUT in method.reply_text
        with self._lock:
            self.error = error
            with suppress(Error):
                self.connection.write(encode_method(self.number, make(Channel.CloseOk)))
            if self._goodbye is None:  # otherwise the owner's close-ok is still to come
                self.connection.remove(self.number)
            self._answer_all(error)
        self.ended(error, lost=False, timed_out=timed_out)

    # -- hooks for subclasses; in the connection's thread

    def event(self, start: bytes, payload: bytes) -> bool:  # noqa: ARG002
        """Handle a method that the server sent by itself; False if it is the answer to a call."""
        return False

    def content(self, start: bytes, content: Content) -> None:  # noqa: ARG002
        """Handle a method with content; here, the answer to a call."""
        self._answer(content)

    def batch_ended(self) -> None:
        """Called after all frames of one read were handled."""

    def ended(self, error: Error, *, lost: bool, timed_out: bool = False) -> None:
        """Called when the channel is closed: with its connection (`lost`), by the owner for consumer_timeout,
        or for an error.
        """


def delivered(content: Content) -> tuple[int, Received]:
    """Decode the delivery tag and message of a basic.deliver or get-ok."""
    method = content.method
    at = 4
    if method[:4] == DELIVER:
        at += 1 + method[4]
    (tag,) = _u64.unpack_from(method, at)
    at += 8
    redelivered = bool(method[at])
    exchange, key = short_strings(method, at + 1)
    return tag, Received(content.body, len(content.body), redelivered, exchange, key, content.raw_properties)


def short_strings(method: bytes, at: int) -> tuple[str, str]:
    """Decode two adjacent short strings: an exchange and a routing key."""
    middle = at + 1 + method[at]
    end = middle + 1 + method[middle]
    return method[at + 1 : middle].decode(), method[middle + 1 : end].decode()
