"""Wires: bindings of simulated runs that come and go, from exchanges of every type to queues and to other exchanges.

    fans ──► tops ──a.#──► a          hub ──a.b──► a
      │        │ └──*.b──► b           └────x.x──► tops
      │        └─#.x──► heads
      ├──► p, x         │  ├──all of kind, size──► a
      └──► heads ───────┘  ├──any of kind, size──► b
             ▲             └──any of kind──► fans       (a circle)
             └─ fans

`Wiring` says which exchanges and wires are there, and which queues a message comes to.  It matches keys and
headers by itself, so that what the broker's router does is compared with something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from warrenmq.broker.broker import Broker


class WiredExchange(NamedTuple):
    """An exchange that wires begin at: its type, and whether it goes with the last of them."""

    type: str
    auto_delete: bool = False


class Wire(NamedTuple):
    """A binding of an exchange to a queue, or to another exchange."""

    source: str
    destination: str
    key: str = ""
    arguments: Mapping[str, Any] = {}

    @property
    def destination_type(self) -> str:
        return "exchange" if self.destination in WIRED_EXCHANGES else "queue"

    def declare(self, broker: Broker) -> None:
        """Bind."""
        broker.bind(
            self.destination, self.source, self.key, self.arguments, destination_type=self.destination_type
        )

    def remove(self, broker: Broker) -> None:
        """Unbind."""
        broker.unbind(
            self.destination, self.source, self.key, self.arguments, destination_type=self.destination_type
        )


WIRED_EXCHANGES = {
    "fans": WiredExchange("fanout"),
    "tops": WiredExchange("topic", auto_delete=True),
    "heads": WiredExchange("headers"),
    "hub": WiredExchange("direct", auto_delete=True),
}
WIRES = {
    "tops_a": Wire("tops", "a", "a.#"),
    "tops_b": Wire("tops", "b", "*.b"),
    "tops_heads": Wire("tops", "heads", "#.x"),
    "heads_a": Wire("heads", "a", "", {"x-match": "all", "kind": 1, "size": "big"}),
    "heads_b": Wire("heads", "b", "", {"x-match": "any", "kind": 1, "size": "big"}),
    "heads_fans": Wire("heads", "fans", "", {"x-match": "any", "kind": 1}),
    "fans_tops": Wire("fans", "tops"),
    "fans_heads": Wire("fans", "heads"),
    "fans_p": Wire("fans", "p"),
    "fans_x": Wire("fans", "x"),
    "hub_a": Wire("hub", "a", "a.b"),
    "hub_tops": Wire("hub", "tops", "x.x"),
}
WIRED_QUEUES = ("a", "b", "p", "x")
"""Queues that wires lead to."""
KEYS = ("a.b", "a.x", "x.x", "a")
HEADERS: dict[str, dict[str, Any]] = {
    "none": {},
    "kind": {"kind": 1},
    "size": {"size": "big"},
    "both": {"kind": 1, "size": "big"},
    "other": {"kind": 2, "size": "big"},
}
"""Headers of messages, by what a script calls them."""


class Wiring:
    """The exchanges and wires that are there.

    is_changing  one of them is being declared or removed: its messages may come to the queues of before or of then
    """

    def __init__(self) -> None:
        self.exchanges: set[str] = set()
        self.wires: set[str] = set()
        self.is_changing = False

    def reached(self, exchange: str, key: str, headers: Mapping[str, Any]) -> tuple[str, ...]:
        """The queues that a message comes to."""
        queues: dict[str, None] = {}
        seen, left = {exchange}, [exchange]
        while left:
            source = left.pop()
            for name in sorted(self.wires):
                wire = WIRES[name]
                if wire.source != source or not _matches(wire, key, headers):
                    continue
                if wire.destination not in WIRED_EXCHANGES:
                    queues[wire.destination] = None
                elif wire.destination not in seen:
                    seen.add(wire.destination)
                    left.append(wire.destination)
        return tuple(queues)

    def leads_somewhere(self, exchange: str) -> bool:
        """True if a wire begins there."""
        return any(WIRES[name].source == exchange for name in self.wires)

    def leads_to(self, queue: str) -> bool:
        """True if a wire ends at a queue."""
        return any(WIRES[name].destination == queue for name in self.wires)

    def queue_gone(self, queue: str) -> None:
        """A queue was deleted, and the wires to it with it."""
        self.remove([name for name in self.wires if WIRES[name].destination == queue])

    def exchange_gone(self, exchange: str) -> None:
        """An exchange was deleted, and its wires with it."""
        self.exchanges.discard(exchange)
        self.wires = {name for name in self.wires if WIRES[name].source != exchange}
        self.remove([name for name in self.wires if WIRES[name].destination == exchange])

    def remove(self, wires: Iterable[str]) -> None:
        """Remove wires, and auto-delete exchanges with the last wire that began at them."""
        wires = [*wires]
        self.wires.difference_update(wires)
        for source in sorted({WIRES[name].source for name in wires}):
            if WIRED_EXCHANGES[source].auto_delete and not self.leads_somewhere(source):
                self.exchange_gone(source)


def _matches(wire: Wire, key: str, headers: Mapping[str, Any]) -> bool:
    match WIRED_EXCHANGES[wire.source].type:
        case "fanout":
            return True
        case "topic":
            return _fits(wire.key.split("."), key.split("."))
        case "headers":
            wanted = {name: value for name, value in wire.arguments.items() if name != "x-match"}
            same = [headers.get(name) == value for name, value in wanted.items()]
            return all(same) if wire.arguments["x-match"] == "all" else any(same)
        case _:
            return wire.key == key


def _fits(pattern: list[str], words: list[str]) -> bool:
    """True if words fit a pattern, in which `*` is any word and `#` any number of them."""
    if not pattern:
        return not words
    first, *rest = pattern
    if first == "#":
        return any(_fits(rest, words[n:]) for n in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and _fits(rest, words[1:])
