"""Conversion of messages between their stored form and AMQP's publish and deliver.

    Envelope    of a delivery: exchange, routing key, properties
    Template    of a publish: what all publishes with the same method and the same properties have in common, checked once

Source: rabbit_basic, and the publish clause of rabbit_channel:handle_method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from pamqp import commands

from warrenmq.amqp.channel.context import User
from warrenmq.amqp.wire.codec import PUBLISH, decode_method, decode_properties, raw_properties
from warrenmq.amqp.wire.errors import PRECONDITION_FAILED, AmqpError, of_caller_error
from warrenmq.errors import CallerError, CorruptFile
from warrenmq.log import Log
from warrenmq.message.properties import PERSISTENT, TRANSIENT, Properties
from warrenmq.message.queue_message import Fetched
from warrenmq.message.stored import bin_header, decode, head_of
from warrenmq.message.typed_headers import TypedHeaders
from warrenmq.routing.message_options import header_routes, parse_expiration

REPLY_TO = "amq.rabbitmq.reply-to"
PLAIN = "warrenmq.plain_publishes"
"""The capability of a client whose publishes are messages whatever their routing keys and reply_to: no calls
(rpc.py), no direct replies.
"""
IMPERSONATOR = "impersonator"
"""The tag of users who may claim to be another."""
_RECORD_HEADER = 32
"""Bytes of an index record before the embedded stored message."""
_SHORT_STRING = 255
"""Bytes of AMQP's names."""
_REMEMBERED = 1024
_WORTH_REMEMBERING = 1024
"""Bytes of a head: longer ones hold what differs from message to message."""

log = Log("warrenmq.channel")


class Envelope(NamedTuple):
    """A delivered message without its body: exchange, routing key, properties."""

    exchange: str
    routing_key: str
    raw_properties: bytes


def opened(fetched: Fetched) -> tuple[Envelope, bytes]:
    """The envelope and the body of a message that comes from a queue."""
    payload, size = fetched.payload, fetched.size
    body_at = len(payload) - size
    body = payload[body_at:]
    head = head_of(payload[0 if fetched.in_store else _RECORD_HEADER : body_at - len(bin_header(size))])
    return (_envelope if len(head) <= _WORTH_REMEMBERING else _decode_envelope)(head), body


def _decode_envelope(head: bytes) -> Envelope:
    try:
        stored = decode(head + bin_header(0))
        properties = stored.stored_properties
        raw = properties if isinstance(properties, bytes) else _sayable(stored.properties)
    except (CorruptFile, ValueError):
        # A client that a damaged message was kept from could never get rid of it.
        log.exception("a message is delivered without its properties")
        return Envelope("", "", raw_properties(None))
    return Envelope(
        _short(stored.exchange), _short(stored.routing_keys[0] if stored.routing_keys else ""), raw
    )


def _sayable(properties: Properties) -> bytes:
    """The properties of a Python publisher's message, without those that AMQP has no room for."""
    if properties.delivery_mode is None:
        # only a transient one has it; to AMQP it means transient, and a copy that a client publishes would be
        properties = replace(properties, delivery_mode=PERSISTENT)
    try:
        return raw_properties(properties)
    except ValueError:
        left_out = [each.name for each in fields(Properties) if not _is_sayable(each.name, properties)]
        log.warning(
            "a message is delivered without properties that AMQP has no room for", properties=left_out
        )
        return raw_properties(replace(properties, **dict.fromkeys(left_out)))


def _is_sayable(name: str, properties: Properties) -> bool:
    try:
        raw_properties(replace(Properties(), **{name: getattr(properties, name)}))
    except ValueError:
        return False
    return True


def _short(name: str) -> str:
    """A name cut to AMQP's 255 bytes; Python publishers may use longer ones."""
    encoded = name.encode()
    return name if len(encoded) <= _SHORT_STRING else encoded[:_SHORT_STRING].decode(errors="ignore")


_envelope = lru_cache(_REMEMBERED)(_decode_envelope)


@dataclass(frozen=True, slots=True)
class Template:
    """The checked method and properties of publishes that differ in their bodies only."""

    exchange: str
    routing_key: str
    mandatory: bool
    more_keys: tuple[str, ...]
    """Routing keys from the CC and BCC headers."""
    headers: dict[str, Any] | None
    """Headers, for headers exchanges."""
    raw_properties: bytes
    """The properties as stored, without BCC."""
    persistent: bool
    expiration: int | None
    priority: int

    @property
    def envelope(self) -> Envelope:
        """The envelope for basic.return."""
        return Envelope(self.exchange, self.routing_key, self.raw_properties)


def template(method: commands.Basic.Publish, raw: bytes, user: User, reply_to: Callable[[], str]) -> Template:
    """Check the properties of a publish in RabbitMQ's order; AmqpError 406.

    | property      | must be                                      | otherwise                                   |
    | ------------- | -------------------------------------------- | ------------------------------------------- |
    | user_id       | absent, the user, or any for impersonators   | user_id property set to ...                 |
    | expiration    | absent, or milliseconds in digits            | invalid expiration ...                      |
    | delivery_mode | absent or 1: transient; 2: persistent        | invalid message: {delivery_mode_unknown,3}  |
    | CC, BCC       | absent, or an array                          | invalid message: {unacceptable_type_in_...  |

    `reply_to` gives the address that stands for amq.rabbitmq.reply-to, or refuses.
    """
    properties = decode_properties(raw)
    if properties.reply_to == REPLY_TO:
        properties = replace(properties, reply_to=reply_to())
        raw = raw_properties(properties)
    check_user_id(properties.user_id, user)
    try:
        expiration = parse_expiration(properties.expiration)
        if properties.delivery_mode not in (None, TRANSIENT, PERSISTENT):
            why = f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}"
            raise AmqpError(PRECONDITION_FAILED, why, *PUBLISH)
        routes = header_routes(properties.headers)
    except CallerError as error:
        raise of_caller_error(error, PUBLISH) from error
    if properties.headers and "BCC" in properties.headers:
        raw = raw_properties(without_bcc(properties))
    return Template(method.exchange, method.routing_key, method.mandatory, (*routes.cc, *routes.bcc), properties.headers,
                    raw, properties.delivery_mode == PERSISTENT, expiration, properties.priority or 0)  # fmt: skip


def check_user_id(user_id: str | None, user: User) -> None:
    """Raise AmqpError unless the user may publish with this `user_id`."""
    if user_id is not None and user_id != user.name and IMPERSONATOR not in user.tags:
        why = f"user_id property set to '{user_id}' but authenticated user was '{user.name}'"
        raise AmqpError(PRECONDITION_FAILED, why, *PUBLISH)


def without_bcc(properties: Properties) -> Properties:
    """The headers without BCC."""
    headers = properties.headers
    if isinstance(headers, TypedHeaders):
        return replace(properties, headers=TypedHeaders([each for each in headers.typed if each[0] != "BCC"]))
    return replace(
        properties, headers={name: value for name, value in (headers or {}).items() if name != "BCC"}
    )


class Templates:
    """The templates of one channel, by the bytes that clients repeat."""

    def __init__(self, user: User, reply_to: Callable[[], str]) -> None:
        self._user = user
        self._reply_to = reply_to
        self._known: dict[tuple[bytes, bytes], Template] = {}

    def of(self, method: bytes, raw: bytes) -> Template:
        """The template of a basic.publish with these properties; AmqpError."""
        found = self._known.get((method, raw))
        if found is None:
            found = template(decode_method(method), raw, self._user, self._reply_to)  # type: ignore[arg-type]
            if found.raw_properties is raw and len(raw) <= _WORTH_REMEMBERING:  # an address is this moment's
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[method, raw] = found
        return found
