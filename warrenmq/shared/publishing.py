"""Publishing to the owner over one channel in confirm mode, shared by all threads of an attached process.

    publish ──► numbered, noted in `_unconfirmed` ──► the wire ──► ack ──► the publisher's Confirm
                                                              └──► nack, return ──► its error

A publish is noted before it is sent, so an answer always finds it.  Publishes that are still noted when the owner ends are
handed to Links (links.py), which has them fail or publishes them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pamqp.commands import Basic
from pamqp.commands import Confirm as ConfirmMode

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.amqp.wire import batch
from warrenmq.amqp.wire.codec import decode_method, encode_content, encode_method, make, raw_properties
from warrenmq.amqp.wire.frames import METHOD, OVERHEAD, frame
from warrenmq.checks import SHORT_STRING, shown
from warrenmq.errors import ArgumentValueError, Blocked, Error, Nacked, Returned
from warrenmq.message.properties import Properties
from warrenmq.routing.message_options import header_routes, parse_expiration
from warrenmq.shared.channel import ACK, NACK, RETURN, Answer, ClientChannel, Content
from warrenmq.shared.connection import ClientConnection
from warrenmq.shared.errors import LinkLost

_PERSISTENT, _TRANSIENT = Properties(delivery_mode=2), Properties(delivery_mode=1)
_REMEMBERED = 256
_HEADER = 22
"""Bytes of a content header's frame besides its properties."""
NACKED = "the owner of the directory does not have the message: publish it again"


@dataclass(slots=True, eq=False)
class Unconfirmed:
    """One publish whose confirm is outstanding."""

    exchange: str
    routing_key: str
    bodies: list[bytes]
    properties: Properties | None
    persistent: bool
    mandatory: bool
    confirm: Confirm
    first: int = 0
    """The number of the first body on its channel."""
    closures: int = 0
    """Times that its channel was closed for one of the publishes that had no answer."""
    left: int = 0
    """Bodies that have no answer yet."""
    answered: set[int] | None = None
    """Their numbers, where some have one."""

    def unanswered(self) -> list[bytes]:
        """The bodies without a confirm, in order."""
        if self.answered is None:
            return self.bodies
        return [body for number, body in enumerate(self.bodies, self.first) if number not in self.answered]


class PublishChannel(ClientChannel):
    """The publishing channel in confirm mode; `publish` is thread-safe."""

    def __init__(
        self, connection: ClientConnection, give_up: Callable[[list[Unconfirmed], Error], None]
    ) -> None:
        """`give_up` gets the unconfirmed publishes when the channel ends, and the error."""
        self._give_up = give_up
        self._next = 1
        self._low = 1
        """The lowest number that may be unanswered."""
        self._unconfirmed: dict[int, Unconfirmed] = {}
        self._mandatory: dict[Unconfirmed, None] = {}
        """Unanswered publishes that may come back, in order."""
        self._known_exchanges: set[str] = {""}
        self._flows: deque[Answer] = deque(maxlen=_REMEMBERED)
        """Flows of the callers of `sync`."""
        super().__init__(connection)

    def _prepare(self) -> None:
        self.call(ConfirmMode.Select)

    def knows(self, exchange: str) -> bool:
        """True if the exchange existed when this channel first published to it."""
        return exchange in self._known_exchanges

    def know(self, exchange: str) -> None:
        """Remember that the exchange takes publishes."""
        self._known_exchanges.add(exchange)

    def forget_exchanges(self) -> None:
        """Ask anew for each exchange: one may be gone, and its next publish would close the channel, which
        others publish on.
        """
        self._known_exchanges = {""}

    def publish(self, item: Unconfirmed) -> None:
        """Send a publish.  LinkLost, and nothing was sent, once the connection is gone; ArgumentValueError
        for values AMQP cannot encode.
        """
        publish = _method(self.number, item.exchange, item.routing_key, item.mandatory)
        raw = self._raw(item.properties, persistent=item.persistent)
        with self._lock:
            self._check_open()
            first, count, before = self._next, len(item.bodies), self.written
            item.first, item.left = first, count
            try:
                self._unconfirmed.update(dict.fromkeys(range(first, first + count), item))
                if item.mandatory:
                    self._mandatory[item] = None
                self._next = first + count
                self.mark()
                self.connection.write(
                    _encoded(self.number, publish, raw, item.bodies, self.connection.frame_max), self
                )
            except BaseException:
                if self.written == before:
                    self._next = first
                    for number in range(first, first + count):
                        self._unconfirmed.pop(number, None)
                    self._mandatory.pop(item, None)
                raise

    def check(self, exchange: str, routing_key: str, properties: Properties | None) -> None:
        """PreconditionFailed for wrong properties, ArgumentValueError for what AMQP cannot say."""
        _method(self.number, exchange, routing_key, mandatory=False)
        self._raw(properties, persistent=True)

    def _raw(self, properties: Properties | None, *, persistent: bool) -> bytes:
        """The property flags and values; PreconditionFailed for wrong ones, ArgumentValueError for what a
        content header cannot hold.
        """
        if properties is not None:
            parse_expiration(properties.expiration)
            header_routes(properties.headers)
        raw = _properties(properties, persistent=persistent)
        self.check_size("a message's content header", len(raw) + _HEADER)
        return raw

    def _asked_for(self, mark: object) -> Answer:
        """Ask, as ClientChannel does; Blocked, at once, while an alarm blocks the connection."""
        with self._lock:
            if self.connection.blocked:
                raise Blocked("an alarm of the directory's owner is set")
            answer = super()._asked_for(mark)
            self._flows.append(answer)
            return answer

    # -- in the connection's thread

    def blocked(self) -> None:
        """See connection.Receiver: who waits for all that was published goes on without it."""
        with self._lock:
            for each in self._flows:
                each.value = Blocked("an alarm of the directory's owner is set")
                each.known.set()
            self._flows.clear()

    def event(self, start: bytes, payload: bytes) -> bool:
        """Handle basic.ack and basic.nack."""
        if start == ACK:
            self._settle(int.from_bytes(payload[4:12], "big"), multiple=bool(payload[12] & 1), nacked=False)
        elif start == NACK:
            self._settle(int.from_bytes(payload[4:12], "big"), multiple=bool(payload[12] & 1), nacked=True)
        else:
            return False
        return True

    def _settle(self, number: int, *, multiple: bool, nacked: bool) -> None:
        unconfirmed = self._unconfirmed
        numbers = range(self._low, number + 1) if multiple else (number,)
        for each in numbers:
            if (item := unconfirmed.pop(each, None)) is None:
                continue
            item.left -= 1
            if nacked:
                item.confirm.fail(Nacked(NACKED))
            if not item.left:
                self._mandatory.pop(item, None)
                item.confirm.confirm()
            else:
                if item.answered is None:
                    item.answered = set()
                item.answered.add(each)
        if multiple:
            self._low = max(self._low, number + 1)

    def content(self, start: bytes, content: Content) -> None:
        """Handle basic.return: the oldest of equal publishes fails; it does not matter which of them was returned."""
        if start != RETURN:
            super().content(start, content)
            return
        method: Any = decode_method(content.method)
        returned = method.exchange, method.routing_key
        for item in list(self._mandatory):
            if (
                (item.exchange, item.routing_key) == returned
                and content.body in item.bodies
                and not item.confirm.done()
            ):
                item.confirm.fail(Returned(item.exchange, item.routing_key))
                return

    def ended(self, error: Error, *, lost: bool, timed_out: bool = False) -> None:  # noqa: ARG002
        """Hand the unconfirmed publishes to `give_up`: their confirms cannot arrive on this channel any more."""
        with self._lock:
            items = list(dict.fromkeys(self._unconfirmed.values()))
            self._unconfirmed.clear()
            self._mandatory.clear()
        if items:
            self._give_up(items, LinkLost(str(error)) if lost else error)


@lru_cache(_REMEMBERED)
def _method(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    """The frame of a basic.publish."""
    values = {"exchange": exchange, "routing_key": routing_key, "mandatory": mandatory}
    try:
        return encode_method(channel, make(Basic.Publish, **values))
    except (ValueError, TypeError) as why:
        what, value = (
            ("routing_key", routing_key) if len(exchange.encode()) <= SHORT_STRING else ("exchange", exchange)
        )
        raise ArgumentValueError(
            f"{what} is {shown(value)}; while another process owns the directory, give at most {SHORT_STRING} bytes of UTF-8, "
            "which is what AMQP has room for"
        ) from why


def _properties(properties: Properties | None, *, persistent: bool) -> bytes:
    """Encode property flags and values; `persistent` becomes AMQP's delivery_mode."""
    if properties is None:
        return _PLAIN[persistent]
    lasting = persistent and properties.delivery_mode != _TRANSIENT.delivery_mode
    try:
        return raw_properties(replace(properties, delivery_mode=2 if lasting else 1))
    except ValueError as why:
        raise ArgumentValueError(f"properties cannot be sent to the owner of the directory: {why}") from why


_PLAIN = {True: raw_properties(_PERSISTENT), False: raw_properties(_TRANSIENT)}


def _encoded(channel: int, publish: bytes, raw: bytes, bodies: list[bytes], frame_max: int) -> bytes:
    """Encode publishes that differ only in their bodies; small ones share batches, each of them one body frame."""
    room = min(batch.LARGEST, frame_max - OVERHEAD if frame_max else batch.LARGEST)
    parts: list[bytes] = []
    for piece in [bodies] if len(bodies) == 1 else batch.pieces(bodies, room - batch.overhead(publish, raw)):
        if len(piece) == 1:
            parts += encode_content(channel, publish, raw, piece[0], frame_max)
        else:
            together = batch.joined(batch.Batch(batch.method_of(publish), raw, piece))
            parts += encode_content(channel, frame(METHOD, channel, batch.METHOD), _NONE, together, frame_max)
    return b"".join(parts)


_NONE = raw_properties(None)
