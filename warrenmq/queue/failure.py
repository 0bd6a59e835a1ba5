"""The properties of a message that a consumer gives back for later, or for good: as they were, and x-death
counts one more rejection.

A dead letter loses its expiration, which x-death keeps, or it would expire among the dead letters (rabbit_dead_letter).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from warrenmq.erlang.amqp_table import properties_of_bytes
from warrenmq.erlang.amqp_table_writer import bytes_of_properties
from warrenmq.message.plain_properties import dict_of_plain, properties_as_plain
from warrenmq.message.properties import Properties
from warrenmq.message.stored import StoredMessage
from warrenmq.queue.x_death import REJECTED, Death, with_death


def after_failure(
    message: StoredMessage, queue: str, now_s: int, more: Mapping[str, str], *, is_dead: bool
) -> tuple[Properties | bytes, bool]:
    """The properties of a message that was rejected once more, with `more` headers of text, and whether it is persistent."""
    stored = message.stored_properties
    raw = isinstance(stored, bytes)
    plain = (
        properties_of_bytes(stored) if isinstance(stored, bytes) else properties_as_plain(message.properties)
    )
    expiration = plain.get("expiration")
    death = Death(REJECTED, queue, now_s, message.exchange, message.routing_keys[0], expiration)
    if is_dead:
        plain.pop("expiration", None)
    headers = with_death(plain.get("headers", []), death)
    headers += [[name, "S", value] for name, value in more.items()]
    if raw:
        return bytes_of_properties(plain | {"headers": headers}), plain.get("delivery_mode") == 2
    known = message.properties
    changed = replace(known, headers=dict_of_plain(headers), expiration=None if is_dead else known.expiration)
    return changed, plain.get("delivery_mode") != 1
