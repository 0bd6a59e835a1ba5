"""The types of exchange: which destinations one of them has for a message (rabbit_exchange_type_*).

    direct     bindings whose key is one of the message's keys
    fanout     all bindings
    topic      bindings whose pattern fits one of the keys (topic.py)
    headers    bindings whose arguments fit the headers (headers.py)
    x-delayed-message    the queue in which messages wait, for one that has to; any other as its x-delayed-type does (delayed.py)

One thread adds and removes, any thread matches, without a lock: what a reader takes out of a table is a tuple that
never changes, and is replaced with one assignment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from warrenmq.routing.declared import Binding, Destination, ExchangeSpec
from warrenmq.routing.delayed import X_DELAYED_MESSAGE, X_DELAYED_TYPE, delay_of, store_of
from warrenmq.routing.headers import HeadersMatch, comparable
from warrenmq.routing.topic import TopicTrie


class ExchangeType(ABC):
    """The bindings of one exchange, arranged for matching."""

    reads_headers: ClassVar[bool] = False
    """True if a message's headers have a say."""

    @abstractmethod
    def add(self, binding: Binding) -> None:
        """Add a new binding."""

    @abstractmethod
    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""

    @abstractmethod
    def match(self, keys: tuple[str, ...], headers: Mapping[str, Any]) -> Iterable[Destination]:
        """The destinations of a message; the same one may come twice."""


class Direct(ExchangeType):
    """Destinations by key."""

    def __init__(self) -> None:
        self.queues: dict[str, tuple[str, ...]] = {}
        """Key -> names of the queues bound with it, for exchanges that lead to nothing but queues."""
        self.to_exchanges = 0
        """Bindings that lead to an exchange."""
        self._destinations: dict[str, tuple[Destination, ...]] = {}
        self._counts: dict[str, dict[Destination, int]] = {}
        """Key -> destination -> bindings, which may differ in their arguments."""

    def add(self, binding: Binding) -> None:
        self._count(binding, 1)

    def remove(self, binding: Binding) -> None:
        self._count(binding, -1)

    def match(self, keys: tuple[str, ...], headers: Mapping[str, Any]) -> Iterable[Destination]:  # noqa: ARG002
        return [each for key in keys for each in self._destinations.get(key, ())]

    def key(self, binding: Binding) -> str:
        """The key under which a binding is kept."""
        return binding.routing_key

    def _count(self, binding: Binding, change: int) -> None:
        key, to = self.key(binding), binding.to
        counts = self._counts.setdefault(key, {})
        counts[to] = counts.get(to, 0) + change
        if not counts[to]:
            del counts[to]
        if to.type == "exchange":
            self.to_exchanges += change
        if counts:
            self._destinations[key] = tuple(counts)
            self.queues[key] = tuple(each.name for each in counts if each.type == "queue")
        else:
            for table in (self._counts, self._destinations, self.queues):
                del table[key]


class Fanout(Direct):
    """The bindings of a fanout exchange: all destinations under one key."""

    def key(self, binding: Binding) -> str:  # noqa: ARG002  # that is what a fanout exchange is
        return ""

    def match(self, keys: tuple[str, ...], headers: Mapping[str, Any]) -> Iterable[Destination]:  # noqa: ARG002
        return self._destinations.get("", ())


class Topic(ExchangeType):
    """Destinations by pattern."""

    def __init__(self) -> None:
        self.trie = TopicTrie()

    def add(self, binding: Binding) -> None:
        self.trie.add(binding.routing_key, binding.to)

    def remove(self, binding: Binding) -> None:
        self.trie.remove(binding.routing_key, binding.to)

    def match(self, keys: tuple[str, ...], headers: Mapping[str, Any]) -> Iterable[Destination]:  # noqa: ARG002
        return [each for key in keys for each in self.trie.match(key)]


class Headers(ExchangeType):
    """Destinations by what they ask of the headers."""

    reads_headers = True

    def __init__(self) -> None:
        self._asked: dict[Binding, tuple[HeadersMatch, Destination]] = {}
        self._readable: tuple[tuple[HeadersMatch, Destination], ...] = ()

    def add(self, binding: Binding) -> None:
        self._asked[binding] = HeadersMatch(binding.arguments), binding.to
        self._readable = tuple(self._asked.values())

    def remove(self, binding: Binding) -> None:
        del self._asked[binding]
        self._readable = tuple(self._asked.values())

    def match(self, keys: tuple[str, ...], headers: Mapping[str, Any]) -> Iterable[Destination]:  # noqa: ARG002
        prepared = comparable(headers)
        return [to for fits, to in self._readable if fits(prepared)]


class Delayed(ExchangeType):
    """A queue for messages that have to wait, in front of an exchange of another type."""

    reads_headers = True

    def __init__(self, inner: ExchangeType, store: str) -> None:
        self._inner = inner
        self._store = (Destination("queue", store),)

    def add(self, binding: Binding) -> None:
        self._inner.add(binding)

    def remove(self, binding: Binding) -> None:
        self._inner.remove(binding)

    def match(self, keys: tuple[str, ...], headers: Mapping[str, Any]) -> Iterable[Destination]:
        return self._store if delay_of(headers) else self._inner.match(keys, headers)


_PLAIN: dict[str, type[ExchangeType]] = {
    "direct": Direct,
    "fanout": Fanout,
    "headers": Headers,
    "topic": Topic,
}
TYPES = (*_PLAIN, X_DELAYED_MESSAGE)
"""The types that can be declared."""


def routing_type(type: str, arguments: Mapping[str, Any]) -> str | None:
    """The type by which an exchange routes: of a delayed one its x-delayed-type; None if that is not one of
    the other four.
    """
    routes_as = arguments.get(X_DELAYED_TYPE) if type == X_DELAYED_MESSAGE else type
    return routes_as if isinstance(routes_as, str) and routes_as in _PLAIN else None


def new_type(spec: ExchangeSpec) -> ExchangeType:
    """An exchange without bindings."""
    name = routing_type(spec.type, spec.arguments)
    assert name is not None, "a declaration is checked before"
    inner = _PLAIN[name]()
    return Delayed(inner, store_of(spec.name)) if spec.type == X_DELAYED_MESSAGE else inner
