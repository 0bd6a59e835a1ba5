"""Exchanges and bindings as they are declared (the records exchange and binding of rabbit.hrl).

    ""                    direct    every queue, under its own name; it cannot be bound to
    amq.direct            direct
    amq.fanout            fanout
    amq.topic             topic
    amq.headers           headers
    amq.match             headers
    amq.rabbitmq.trace    topic     internal

are always there, in each vhost (rabbit_vhost:declare_default_exchanges; docs/reference/classic-queue.md#exchanges).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """An exchange as it was declared."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def alternate(self) -> str | None:
        """The exchange that gets what this one routes nowhere."""
        return self.arguments.get("alternate-exchange")


PREDECLARED = (
    ExchangeSpec("amq.direct", "direct"),
    ExchangeSpec("amq.fanout", "fanout"),
    ExchangeSpec("amq.topic", "topic"),
    ExchangeSpec("amq.headers", "headers"),
    ExchangeSpec("amq.match", "headers"),
    ExchangeSpec("amq.rabbitmq.trace", "topic", internal=True),
)
"""All but the default exchange, which is in no table."""


class Destination(NamedTuple):
    """The destination of a binding: a queue or an exchange."""

    type: str
    """ "queue" or "exchange"."""
    name: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A queue or an exchange that wants another exchange's messages.

    Two are the same if destination, source, key and arguments are (5.5); arguments by value and type, as their order
    counts for nothing but 1, 1.0 and true are three.
    """

    destination: str = field(compare=False)
    source: str = field(compare=False)
    routing_key: str = field(default="", compare=False)
    arguments: dict[str, Any] = field(default_factory=dict, compare=False)
    destination_type: str = field(default="queue", compare=False)
    identity: tuple[Any, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        identity = (
            self.destination_type,
            self.destination,
            self.source,
            self.routing_key,
            _exactly(self.arguments),
        )
        object.__setattr__(self, "identity", identity)

    @property
    def to(self) -> Destination:
        """The binding's destination."""
        return Destination(self.destination_type, self.destination)


def _exactly(value: Any) -> tuple[str, Any]:
    """Something hashable that is equal only to the same value of the same type."""
    match value:
        case dict():
            return "table", tuple(sorted((name, _exactly(each)) for name, each in value.items()))
        case list() | tuple():
            return "array", tuple(map(_exactly, value))
        case float():
            return "double", value.hex()
        case bytearray() | memoryview():
            return "bytes", bytes(value)
        case _:
            return type(value).__name__, value
