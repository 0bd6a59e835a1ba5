"""A message as RabbitMQ stores it, in the message store, in an index or in a per-queue store.

Up to 3.12 it is the record

    {basic_message, {resource, VHost, exchange, Name}, [RoutingKey], Content, Id, IsPersistent}
    Content = {content, ClassId, Properties | none, PropertiesBin | none, Protocol, [Fragment]}

with the body's fragments last one first, and the properties as the publisher's bytes, or, where the broker changed
them (dead lettering, BCC), as a `P_basic` record.  Ahead of 2.4 there was one routing key and no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from warrenmq.erlang.amqp_table import CLASS_BASIC, BadTable, properties_of_bytes, properties_of_record
from warrenmq.erlang.term import BadTerm
from warrenmq.erlang.term import decode as decode_term
from warrenmq.erlang.values import Atom


@dataclass(frozen=True, slots=True)
class RabbitMessage:
    """What RabbitMQ would deliver, and how it was stored."""

    exchange: str
    routing_keys: list[str]
    properties: dict[str, Any]
    """Those that are set; amqp_table.py says how."""
    body: bytes
    fragments: int
    persistent: bool | None
    """None: the term does not say."""
    msg_id: bytes | None
    stored_properties: Literal["record"] | None
    """`record`: as an Erlang record, because the broker had changed them; None: as the publisher's bytes."""


def decode(data: bytes, *, zero_padded: bool = False, path: str = "a message", offset: int = 0) -> RabbitMessage:
    """The message, or BadTerm, which names `path` and `offset`."""
    found = decode_term(data, zero_padded=zero_padded, path=path, offset=offset)
    try:
        match found:
            case ("basic_message", exchange, keys, content, msg_id, persistent):
                return _basic_message(exchange, keys, content, msg_id, persistent)
    except _NotOne as why:
        raise BadTerm(path, offset, str(why)) from None
    except BadTable as why:
        raise BadTerm(path, offset, f"the message's properties cannot be read: at byte {why.offset}, {why.reason}") from None
    raise BadTerm(path, offset, "it is an Erlang term, but no message of RabbitMQ")


class _NotOne(Exception):
    """Why this term is not the message it looked like."""


def _basic_message(exchange: Any, keys: Any, content: Any, msg_id: Any, persistent: Any) -> RabbitMessage:
    properties, stored, fragments = _content(content)
    return RabbitMessage(
        exchange=_exchange(exchange),
        routing_keys=_routing_keys(keys),
        properties=properties,
        body=b"".join(reversed(fragments)),
        fragments=len(fragments),
        persistent=persistent == "true" if isinstance(persistent, Atom) else None,
        msg_id=msg_id if isinstance(msg_id, bytes) else None,
        stored_properties=stored,
    )


def _content(content: Any) -> tuple[dict[str, Any], Literal["record"] | None, list[bytes]]:
    """(properties, how they were stored, the body's fragments last one first)."""
    match content:
        case ("content", class_id, record, encoded, *_, fragments) if len(content) in {5, 6}:
            if class_id != CLASS_BASIC:
                why = f"its content is of class {str(class_id)[:40]}, not of class basic"
                raise _NotOne(why)
            if not isinstance(fragments, list) or not all(isinstance(each, bytes) for each in fragments):
                raise _NotOne("its body is not a list of fragments")
            if isinstance(encoded, bytes):
                return properties_of_bytes(encoded), None, fragments
            if isinstance(record, tuple):
                return properties_of_record(record), "record", fragments
            raise _NotOne("it has no properties")
    raise _NotOne("its content is not a content record")


def _exchange(found: Any) -> str:
    match found:
        case ("resource", bytes(), "exchange", bytes() as name):
            return _name(name)
    raise _NotOne("its exchange is not a resource")


def _routing_keys(found: Any) -> list[str]:
    keys = [found] if isinstance(found, bytes) else found  # one, ahead of 2.4
    if not isinstance(keys, list) or not all(isinstance(each, bytes) for each in keys):
        raise _NotOne("its routing keys are not a list of binaries")
    return [_name(each) for each in keys]


def _name(data: bytes) -> str:
    """AMQP's short strings are UTF-8, but nobody checks: other bytes stay as Python's lone surrogates."""
    return data.decode("utf-8", "surrogateescape")
