"""The queues, exchanges and bindings of simulated runs, each declared when a script first needs it, and where
a publish goes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

TTL_MS = 50
"""The time to live of messages in queue `t`, and in a queue with the policy `ttl`."""
DEAD_LETTER = "", "dead"
"""The exchange and the routing key of dead letters."""
LIMITED, RETURNS = "l", 1
"""A queue with a delivery limit: what comes back to it more often is a dead letter."""
DEAD_LETTERING = ("d", LIMITED)
"""Queues that dead-letter what is rejected."""
TRANSIENT = ("x",)
"""Queues that are gone with their broker."""
EXPIRING, EXPIRES_S = "e", 10.0
"""A queue that is deleted when nobody has used it for so many seconds."""
SINGLE = "s"
"""A queue with a single active consumer."""
LENGTH = 3
"""The length of a queue with the policy `length` or `reject`."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "p": {"x-max-priority": 2},
    "t": {"x-message-ttl": TTL_MS},
    "d": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    LIMITED: {"x-delivery-limit": RETURNS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    EXPIRING: {"x-expires": round(EXPIRES_S * 1_000)},
    SINGLE: {"x-single-active-consumer": True},
}
"""Arguments of the queues that have any."""
OTHER: dict[str, Any] = {"x-max-length": 1_000}
"""Arguments that no queue has."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange with its bindings (queue, key), and an exchange that has to be there before it."""

    type: str
    bindings: tuple[tuple[str, str], ...]
    alternate: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        return {"alternate-exchange": self.alternate} if self.alternate else {}


EXCHANGES = {
    "all": Exchange("fanout", (("a", ""), ("b", ""))),
    "rest": Exchange("fanout", (("b", ""),)),
    "keys": Exchange("topic", (("a", "a.#"), ("b", "*.b")), alternate="rest"),
}


class Route(NamedTuple):
    """The way of a publish to a target: the exchange, the key, and the queues whose bindings match it."""

    exchange: str
    key: str
    queues: tuple[str, ...]


ROUTES = {
    "all": Route("all", "", ("a", "b")),
    "a.b": Route("keys", "a.b", ("a", "b")),
    "a.x": Route("keys", "a.x", ("a",)),
    "x.x": Route("keys", "x.x", ()),
}
"""Routes by target; any other target is a queue.  `x.x` matches no binding of `keys`, so its alternate exchange gets it."""

POLICIES: dict[str, dict[str, Any]] = {
    "length": {"max-length": LENGTH},
    "reject": {"max-length": LENGTH, "overflow": "reject-publish"},
    "ttl": {"message-ttl": TTL_MS},
    "dead": {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"},
}
"""The definitions of policies, by what a script calls them."""
DEAD_LETTERS = "dead-letter-exchange"
"""The key of a policy that makes dead letters."""
_TO_DEAD = POLICIES["dead"]
MOST_BYTES = 1_000
"""The bytes in a queue with the policy `bytes`."""
GRAVES = "graves"
"""An exchange of dead letters, which keep their routing keys there."""
MORE_POLICIES: dict[str, dict[str, Any]] = {
    "bytes": {"max-length-bytes": MOST_BYTES},
    "returns": {"delivery-limit": RETURNS},
    "dead_length": {"max-length": LENGTH, **_TO_DEAD},
    "dead_ttl": {"message-ttl": TTL_MS, **_TO_DEAD},
    "dead_reject": {"max-length": LENGTH, "overflow": "reject-publish-dlx", **_TO_DEAD},
    "dead_returns": {"delivery-limit": RETURNS, **_TO_DEAD},
    "graves": {DEAD_LETTERS: GRAVES},
}
"""The same for wide scripts."""
ALL_POLICIES = {**POLICIES, **MORE_POLICIES}
POLICED = ("a", "b")
"""Queues that scripts set policies for."""
ALL_POLICED = (*POLICED, "p")
"""The same, with those of wide scripts."""
EXCLUSIVE, AUTO_DELETE = "own", "brief"
"""Queues that one step declares and sees go: with a connection, with a consumer."""


def route(to: str) -> Route:
    """The route of a target."""
    return ROUTES.get(to) or Route("", to, (to,))


def reach(way: Route) -> tuple[str, ...]:
    """The queues that a message may come to if some are deleted before it is routed: those of the alternate exchange, too."""
    return tuple(dict.fromkeys((*way.queues, *_of_alternate(way))))


def reached(way: Route, bound: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The queues that a message comes to with these bindings (queue, exchange); those of the alternate
    exchange only if there is no other.
    """
    if not way.exchange:
        return way.queues
    alternate = EXCHANGES[way.exchange].alternate
    return tuple(queue for queue in way.queues if (queue, way.exchange) in bound) or tuple(
        queue for queue in _of_alternate(way) if (queue, alternate) in bound
    )


def _of_alternate(way: Route) -> tuple[str, ...]:
    alternate = EXCHANGES[way.exchange].alternate if way.exchange in EXCHANGES else ""
    return tuple(queue for queue, _ in EXCHANGES[alternate].bindings) if alternate else ()
