"""A message as RabbitMQ stores it, in the message store, in an index or in a per-queue store.

Up to 3.12 it is the record

    {basic_message, {resource, VHost, exchange, Name}, [RoutingKey], Content, Id, IsPersistent}
    Content = {content, ClassId, Properties | none, PropertiesBin | none, Protocol, [Fragment]}

with the body's fragments last one first, and the properties as the publisher's bytes, or, where the broker changed
them (dead lettering, BCC), as a `P_basic` record.  Ahead of 2.4 there was one routing key, ahead of 2.0 no protocol.
From 3.13 on it is a message container (mc.py); stores of that age hold both.
"""

from __future__ import annotations

from typing import Any

from warrenmq.erlang.amqp_table import BadTable
from warrenmq.erlang.mc import container
from warrenmq.erlang.message_parts import NotAMessage, RabbitMessage, content, name, routing_keys
from warrenmq.erlang.term import BadTerm
from warrenmq.erlang.term import decode as decode_term
from warrenmq.erlang.values import Atom

__all__ = ["RabbitMessage", "decode"]

DEEPEST = 1 << 16
"""Nesting of a stored message: two levels for each of its headers, of which RabbitMQ's largest frame has room for 26,213."""


def decode(
    data: bytes, *, zero_padded: bool = False, path: str = "a message", offset: int = 0
) -> RabbitMessage:
    """The message, or BadTerm, which names `path` and the place counted from `offset`."""
    term = decode_term(data, max_depth=DEEPEST, zero_padded=zero_padded, path=path, offset=offset)
    try:
        match term:
            case ("basic_message", exchange, keys, record, msg_id, persistent):
                return _basic_message(exchange, keys, record, msg_id, persistent)
            case ("mc", protocol, stored, dict() as annotations, *_):
                return container(protocol, stored, annotations)
    except NotAMessage as why:
        raise BadTerm(path, offset, f"a message cannot be read: {why}") from None
    except BadTable as why:
        reason = f"a message's properties cannot be read: at their byte {why.offset}, {why.reason}"
        raise BadTerm(path, offset, reason) from None
    raise BadTerm(path, offset, "it is an Erlang term, but no message of RabbitMQ")


def _basic_message(exchange: Any, keys: Any, record: Any, msg_id: Any, persistent: Any) -> RabbitMessage:
    properties, stored, fragments = content(record)
    return RabbitMessage(
        exchange=_exchange(exchange),
        routing_keys=routing_keys(keys),
        properties=properties,
        body=b"".join(reversed(fragments)),
        fragments=len(fragments),
        persistent=persistent == "true" if isinstance(persistent, Atom) else None,
        msg_id=msg_id if isinstance(msg_id, bytes) else None,
        stored_properties=stored,
    )


def _exchange(found: Any) -> str:
    match found:
        case ("resource", bytes(), "exchange", bytes() as text):
            return name(text)
    raise NotAMessage("its exchange is not a resource")
