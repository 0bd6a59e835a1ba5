"""Parts shared by the forms of a stored message: the result, and the pieces that several forms contain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from warrenmq.erlang.amqp_table import CLASS_BASIC, properties_of_bytes
from warrenmq.erlang.amqp_table_terms import properties_of_record
from warrenmq.erlang.values import shown


@dataclass(frozen=True, slots=True)
class RabbitMessage:
    """A message as RabbitMQ would deliver it, and the form in which it was stored."""

    exchange: str
    routing_keys: list[str]
    properties: dict[str, Any]
    """The properties that are set, in the form of amqp_table.py."""
    body: bytes
    fragments: int
    persistent: bool | None
    """None: the term does not say."""
    msg_id: bytes | None
    stored_properties: Literal["record"] | None
    """`record`: as an Erlang record, because the broker had changed them; None: as the publisher's bytes."""


class NotAMessage(Exception):
    """The term is not a message; the text says why."""


def content(record: Any) -> tuple[dict[str, Any], Literal["record"] | None, list[bytes]]:
    """(properties, how they were stored, the body's fragments last one first)."""
    match record:
        case ("content", class_id, decoded, encoded, *_, fragments) if len(record) in {5, 6}:
            if class_id != CLASS_BASIC:
                why = f"its content is of class {shown(class_id)}, not of class basic"
                raise NotAMessage(why)
            if not isinstance(fragments, list) or not all(isinstance(each, bytes) for each in fragments):
                raise NotAMessage("its body is not a list of fragments")
            if isinstance(encoded, bytes):
                return properties_of_bytes(encoded), None, fragments
            if isinstance(decoded, tuple):
                return properties_of_record(decoded), "record", fragments
            raise NotAMessage("it has no properties")
    raise NotAMessage("its content is not a content record")


def routing_keys(found: Any) -> list[str]:
    keys = [found] if isinstance(found, bytes) else found  # one, ahead of 2.4
    if not isinstance(keys, list) or not all(isinstance(each, bytes) for each in keys):
        raise NotAMessage("its routing keys are not a list of binaries")
    return [name(each) for each in keys]


def name(data: bytes) -> str:
    """AMQP's short strings are UTF-8, but RabbitMQ does not check: other bytes stay as Python's lone surrogates."""
    return data.decode("utf-8", "surrogateescape")
