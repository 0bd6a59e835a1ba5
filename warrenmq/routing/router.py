"""Routing: find the queues of (exchange, routing keys, headers) (rabbit_exchange:route).

    default exchange ""    the queues whose names are among the keys; every queue, without a binding
    any other              a walk: what its type matches; exchanges among that are walked in their turn, each once, so
                           cycles end; one whose type matches nothing is followed by its alternate exchange, if it has one

A message goes to a queue once, however many ways lead there (docs/reference/classic-queue.md#routing).  As in
RabbitMQ the default
exchange is no alternate of another: it has no bindings that could match.

Publishers read the tables without a lock while the vhost process changes them: a reader does single look-ups
and walks tuples that never change, and every change puts a new tuple in place with one assignment, so a
reader sees a binding or it does not, never half.  Most messages are routed with two look-ups, in `direct` or
`_fanout`: exchanges of these types that lead to nothing but queues, and the default one.  Other results are
kept until the next change of any table, unless headers had a say in it.  (A walk that began before the change
may not be kept after it: it puts its result into the dict that it found at its beginning, and the change puts
another dict in its place.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from warrenmq.errors import AccessRefused, NotFound
from warrenmq.routing.declared import PREDECLARED, Binding, Destination, ExchangeSpec
from warrenmq.routing.exchange_types import Direct, ExchangeType, Fanout, new_type

ROUTES_KEPT = 1 << 12
"""Results of walks that are kept; publishers with more routing keys than this begin anew."""


class Listener(Protocol):
    """Hears of each change of a router's tables, in the process that makes it."""

    def exchange_added(self, spec: ExchangeSpec) -> None: ...
    def exchange_removed(self, name: str) -> None: ...
    def bound(self, binding: Binding) -> None: ...
    def unbound(self, binding: Binding) -> None: ...


class Router:
    """The routing tables of one vhost.  `route` and `check_publish` may be called from any thread, the rest from one."""

    def __init__(self, vhost: str = "/") -> None:
        self.vhost = vhost
        self.queues: dict[str, tuple[str, ...]] = {}
        """Queue name -> what the default exchange routes it to."""
        self.direct = {"": self.queues}
        """Exchange -> key -> queues, of the default exchange and of direct ones that lead to queues only and
        have no alternate; a publisher may look here before it asks `route`.
        """
        self.exchanges: dict[str, ExchangeSpec] = {}
        """All but the default one."""
        self.internal: frozenset[str] = frozenset()
        """Internal exchanges, which refuse publishes; for a look before `check_publish` raises."""
        self._by_source: dict[str, dict[Binding, None]] = {}
        """Oldest first."""
        self._by_destination: dict[Destination, dict[Binding, None]] = {}
        self._types: dict[str, ExchangeType] = {}
        self._fanout: dict[str, dict[str, tuple[str, ...]]] = {}
        """The same of fanout exchanges; the key is empty."""
        self._kept: dict[tuple[str, str], tuple[str, ...]] = {}
        self._alternates: dict[str, str] = {}
        """Exchange -> the alternate that a policy gives it; one of its own arguments comes first."""
        self._listener: Listener | None = None
        for exchange in PREDECLARED:
            self.add_exchange(exchange)

    # -- for publishers

    def route(self, exchange: str, routing_key: str, headers: Mapping[str, Any] | None = None,
              more_keys: tuple[str, ...] = ()) -> tuple[str, ...]:  # fmt: skip
        """The queues that a message goes to, each once; NotFound when there is no such exchange.

        `more_keys` are those of its CC and BCC headers.
        """
        if not more_keys:
            if (queues := self.direct.get(exchange)) is not None:
                return queues.get(routing_key, ())
            if (queues := self._fanout.get(exchange)) is not None:
                return queues.get("", ())
            kept = self._kept
            if (found := kept.get((exchange, routing_key))) is None:
                found, with_headers = self._walk(exchange, (routing_key,), headers or {})
                if not with_headers:
                    if len(kept) >= ROUTES_KEPT:
                        kept.clear()
                    kept[exchange, routing_key] = found
            return found
        keys = (routing_key, *more_keys)
        if not exchange:
            return tuple(key for key in dict.fromkeys(keys) if key in self.queues)
        return self._walk(exchange, keys, headers or {})[0]

    def check_publish(self, exchange: str) -> None:
        """Raise NotFound, or AccessRefused for an internal exchange, if a client must not publish there."""
        if not exchange:
            return
        spec = self.exchanges.get(exchange)
        if spec is None:
            raise self._no_exchange(exchange)
        if spec.internal:
            msg = f"exchange {exchange!r} is internal: only other exchanges publish to it"
            raise AccessRefused(
                msg, reply_text=f"cannot publish to internal exchange '{exchange}' in vhost '{self.vhost}'"
            )

    def _walk(
        self, exchange: str, keys: tuple[str, ...], headers: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], bool]:
        """The queues, and whether headers had a say."""
        if exchange not in self._types:
            raise self._no_exchange(exchange)
        queues: dict[str, None] = {}
        with_headers = False
        seen = {exchange}
        work = [exchange]
        while work:
            name = work.pop()
            kind, spec = self._types.get(name), self.exchanges.get(name)
            if kind is None or spec is None:
                continue  # an alternate that is not there, or is being deleted
            with_headers |= kind.reads_headers
            matched = kind.match(keys, headers)
            if not matched and (alternate := self._alternate_of(spec)) is not None:
                matched = [Destination("exchange", alternate)]
            for to in matched:
                if to.type == "queue":
                    queues[to.name] = None
                elif to.name not in seen:
                    seen.add(to.name)
                    work.append(to.name)
        return tuple(queues), with_headers

    def _no_exchange(self, exchange: str) -> NotFound:
        return NotFound(
            f"there is no exchange {exchange!r}; declare it first",
            reply_text=f"no exchange '{exchange}' in vhost '{self.vhost}'",
        )

    # -- for the vhost process

    def listen(self, listener: Listener) -> None:
        """Report every change to `listener`, which replaces the one before it, and first all that exists."""
        self._listener = listener
        for spec in self.exchanges.values():
            listener.exchange_added(spec)
        for bindings in self._by_source.values():
            for binding in bindings:
                listener.bound(binding)

    def add_queue(self, name: str) -> None:
        """Bind a queue to the default exchange."""
        self.queues[name] = (name,)

    def remove_queue(self, name: str) -> None:
        """Forget a queue and its bindings."""
        self.queues.pop(name, None)
        for binding in self.bindings_to(Destination("queue", name)):
            self.unbind(binding)

    def alternate(self, exchange: str) -> str | None:
        """The alternate of an exchange, by its argument or by a policy."""
        return self._alternate_of(self.exchanges[exchange])

    def _alternate_of(self, spec: ExchangeSpec) -> str | None:
        return self._alternates.get(spec.name) if spec.alternate is None else spec.alternate

    def set_alternate(self, exchange: str, alternate: str | None) -> None:
        """Set the alternate exchange that a policy gives to an exchange; None removes it."""
        if self._alternates.get(exchange) == alternate:
            return
        if alternate is None:
            del self._alternates[exchange]
        else:
            self._alternates[exchange] = alternate
        self._changed(exchange)

    def add_exchange(self, spec: ExchangeSpec) -> None:
        """Make an exchange known, with no bindings."""
        self._by_source[spec.name] = {}
        self.exchanges[spec.name] = spec
        self._types[spec.name] = new_type(spec)
        if spec.internal:
            self.internal |= {spec.name}
        self._changed(spec.name)
        if self._listener is not None:
            self._listener.exchange_added(spec)

    def remove_exchange(self, name: str) -> None:
        """Forget an exchange, its bindings and those that led to it."""
        for binding in (*self.bindings_of(name), *self.bindings_to(Destination("exchange", name))):
            self.unbind(binding)
        for table in (
            self.direct,
            self._fanout,
            self._types,
            self.exchanges,
            self._by_source,
            self._alternates,
        ):
            table.pop(name, None)
        self.internal -= {name}
        self._kept = {}
        if self._listener is not None:
            self._listener.exchange_removed(name)

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False when it is there already."""
        bindings = self._by_source[binding.source]
        if binding in bindings:
            return False
        bindings[binding] = None
        self._by_destination.setdefault(binding.to, {})[binding] = None
        self._types[binding.source].add(binding)
        self._changed(binding.source)
        if self._listener is not None:
            self._listener.bound(binding)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; False when there is no such binding."""
        bindings = self._by_source.get(binding.source, {})
        if binding not in bindings:
            return False
        # first: a message that is routed before this is told goes by the binding
        if self._listener is not None:
            self._listener.unbound(binding)
        del bindings[binding]
        to = self._by_destination[binding.to]
        del to[binding]
        if not to:
            del self._by_destination[binding.to]
        self._types[binding.source].remove(binding)
        self._changed(binding.source)
        return True

    def is_bound(self, binding: Binding) -> bool:
        """True if there is such a binding."""
        return binding in self._by_source.get(binding.source, {})

    def bindings_of(self, exchange: str) -> tuple[Binding, ...]:
        """The bindings with an exchange as their source, oldest first."""
        return tuple(self._by_source.get(exchange, ()))

    def bindings_to(self, destination: Destination) -> tuple[Binding, ...]:
        """The bindings to a queue or an exchange, oldest first."""
        return tuple(self._by_destination.get(destination, ()))

    def left_unused(self, gone: Iterable[Binding]) -> list[str]:
        """The auto-delete exchanges that go when these bindings go: those that lose their last one, and, because bindings
        to them go as well, those that lose their last one with these (rabbit_binding:maybe_auto_delete).
        """
        removed: dict[Binding, None] = {}
        left: dict[str, int] = {}
        unused: list[str] = []
        work = [*gone]
        while work:
            binding = work.pop(0)
            if binding in removed:
                continue
            removed[binding] = None
            source = binding.source
            left[source] = left.get(source, len(self._by_source[source])) - 1
            if not left[source] and self.exchanges[source].auto_delete:
                unused.append(source)
                work.extend(self.bindings_to(Destination("exchange", source)))
        return unused

    def _changed(self, exchange: str) -> None:
        """Make a change visible to publishers."""
        kind = self._types[exchange]
        if isinstance(kind, Direct):
            fast = self._fanout if isinstance(kind, Fanout) else self.direct
            if not kind.to_exchanges and self.alternate(exchange) is None:
                fast[exchange] = kind.queues
            else:
                fast.pop(exchange, None)
        self._kept = {}
