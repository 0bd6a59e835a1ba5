"""From (exchange, routing key) to queue names (rabbit_exchange, rabbit_exchange_type_direct and _fanout).

Publishers read the tables without a lock while the vhost process changes them: a reader does single look-ups
only, and every change of an exchange's routes builds a new table and puts it in place with one assignment, so a
reader sees either the old or the new, never half.

    default exchange ""   the queue whose name is the routing key; every queue, bound by nobody
    direct                bindings whose key equals the routing key
    fanout                all bindings

A message goes to a queue once, however many bindings match (reference/classic-queue.md, 5.6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warrenmq.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

EXCHANGE_TYPES = ("direct", "fanout")


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """An exchange as it was declared."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)


PREDECLARED = (ExchangeSpec("amq.direct", "direct"), ExchangeSpec("amq.fanout", "fanout"))
"""Exchanges that are always there, besides the default one (5.5)."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A queue that wants an exchange's messages with this key; its identity is all four (5.5)."""

    destination: str
    source: str
    routing_key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


class Router:
    """The routing tables of one vhost.  `route` may be called from any thread, the rest from one."""

    def __init__(self) -> None:
        self.queues: dict[str, tuple[str]] = {}
        """Queue name -> what the default exchange routes it to."""
        self.exchanges: dict[str, ExchangeSpec] = {}
        self.bindings: dict[str, tuple[Binding, ...]] = {}
        """Exchange -> its bindings, oldest first."""
        self._routes: dict[str, dict[str, tuple[str, ...]]] = {}
        """Direct exchange -> routing key -> queues; fanout exchange -> {"": queues}."""
        for exchange in PREDECLARED:
            self.add_exchange(exchange)

    def route(self, exchange: str, routing_key: str, headers: Mapping[str, Any] | None = None,
              more_keys: tuple[str, ...] = ()) -> tuple[str, ...]:  # fmt: skip
        """The queues that a message goes to, each once; NotFound when there is no such exchange."""
        if more_keys:
            keys = (routing_key, *more_keys)
            return tuple(dict.fromkeys(queue for key in keys for queue in self.route(exchange, key, headers)))
        if not exchange:
            return self.queues.get(routing_key, ())
        spec = self.exchanges.get(exchange)
        if spec is None:
            msg = f"there is no exchange {exchange!r}; declare it first"
            raise NotFound(msg)
        return self._routes[exchange].get("" if spec.type == "fanout" else routing_key, ())

    def add_queue(self, name: str) -> None:
        """Let the default exchange know a queue."""
        self.queues[name] = (name,)

    def remove_queue(self, name: str) -> list[Binding]:
        """Forget a queue; returns the bindings that went with it."""
        self.queues.pop(name, None)
        gone = [binding for bindings in self.bindings.values() for binding in bindings if binding.destination == name]
        for binding in gone:
            self.unbind(binding)
        return gone

    def add_exchange(self, spec: ExchangeSpec) -> None:
        """Make an exchange known, with no bindings."""
        self._routes = {**self._routes, spec.name: {}}
        self.bindings.setdefault(spec.name, ())
        self.exchanges = {**self.exchanges, spec.name: spec}

    def remove_exchange(self, name: str) -> tuple[Binding, ...]:
        """Forget an exchange; returns the bindings that went with it."""
        self.exchanges = {each: spec for each, spec in self.exchanges.items() if each != name}
        self._routes = {each: routes for each, routes in self._routes.items() if each != name}
        return self.bindings.pop(name, ())

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False when it is there already."""
        bindings = self.bindings[binding.source]
        if binding in bindings:
            return False
        self._set_bindings(binding.source, (*bindings, binding))
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; False when there is no such binding."""
        bindings = self.bindings.get(binding.source, ())
        if binding not in bindings:
            return False
        self._set_bindings(binding.source, tuple(each for each in bindings if each != binding))
        return True

    def _set_bindings(self, exchange: str, bindings: tuple[Binding, ...]) -> None:
        self.bindings[exchange] = bindings
        fanout = self.exchanges[exchange].type == "fanout"
        routes: dict[str, dict[str, None]] = {}
        for binding in bindings:
            routes.setdefault("" if fanout else binding.routing_key, {})[binding.destination] = None
        self._routes = {**self._routes, exchange: {key: tuple(queues) for key, queues in routes.items()}}
