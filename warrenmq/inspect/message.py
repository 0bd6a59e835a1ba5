"""A stored message, RabbitMQ's or ours, in one form: what is listed, shown and moved.

Properties are as in erlang/amqp_table.py: only those that are set, `headers` as [name, letter, value].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warrenmq.erlang import rabbit_message
from warrenmq.errors import CorruptFile
from warrenmq.message import stored as stored_message
from warrenmq.message.plain_properties import properties_as_plain
from warrenmq.message.stored import ERLANG_TERM


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it would be delivered."""

    exchange: str
    routing_keys: list[str]
    properties: dict[str, Any]
    body: bytes
    msg_id: bytes | None
    """None: the stored message does not have it."""


def decode(
    stored: bytes, path: str, offset: int, bound: int, size: int | None = None, *, zero_padded: bool = False
) -> Message:
    """The message, or CorruptFile; `bound` and `size` are those of `stored_message.problem_of`."""
    if not stored:
        raise CorruptFile(path, offset, "it is empty")
    if (problem := stored_message.problem_of(stored, bound, size)) is not None:
        raise CorruptFile(path, offset, problem)
    if stored[:1] == bytes([ERLANG_TERM]):
        found = rabbit_message.decode(stored, zero_padded=zero_padded, path=path, offset=offset)
        return Message(found.exchange, found.routing_keys, found.properties, found.body, found.msg_id)
    ours = stored_message.decode(stored, path, offset)
    properties = properties_as_plain(ours.properties) if ours.stored_properties else {}
    return Message(ours.exchange, ours.routing_keys, properties, ours.body, None)
