"""Matches deliveries to publishes: messages' lives in queues, from a log whose records have no message id.

A record has no id, so messages are identified by their contents: queue, exchange, routing keys, properties (a
`message_id` among them) and body.  A delivery belongs to a message that is alike:

    | of the messages alike in this queue                   | the delivery is                                       |
    | ----------------------------------------------------- | ----------------------------------------------------- |
    | one or more were published and not delivered          | the first of the eldest of them                       |
    | all were delivered                                    | one more of them, in turn                             |
    | none is known                                         | of a message whose publish is not in the log          |

and `matched` says how sure that is: by "message_id", by "content" (no other message is alike), by "order" (several are: any
could be another one), or "none" (published before the log begins, dead-lettered or shovelled).

A log that is younger at its publishes than at its deliveries (two logs, or two nodes' channels) may tell a delivery first: a
publish takes a delivery without one that is at most CLOCK_DIFFERENCE older, if there are several logs or a `message_id`.

Properties that RabbitMQ adds on the way (ADDED) are not looked at.  Lives are kept until the end of the log,
because a message may be delivered again as long as no record says that it was acked; beyond `limit` of them,
the lives with the oldest last record are given out, and a later record of one looks like another message
(`forgotten` counts them).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import blake2b
from sys import intern
from typing import NamedTuple

from warrenmq.rabbit_logs.record import Record

CLOCK_DIFFERENCE = 1_000_000
"""Microseconds."""
LIMIT = 1_000_000
"""Lives that are kept: less than 1 GB."""
ADDED = frozenset({
    "x-delivery-count", "x-acquired-count", "x-stream-offset", "x-death", "x-first-death-exchange", "x-first-death-queue",
    "x-first-death-reason", "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason",
})  # fmt: skip
"""Headers of quorum queues, streams and dead letters."""
_ENCODER = json.JSONEncoder(sort_keys=True, default=str)
BY_ID, BY_CONTENT, BY_ORDER, UNMATCHED = "message_id", "content", "order", "none"


class SeenRecord(NamedTuple):
    """A record's facts on one queue: all that matching needs, without the body."""

    vhost: str
    queue: str | None
    """None: published, and routed nowhere."""
    t: int
    published: bool
    exchange: str
    routing_keys: tuple[str, ...]
    connection: str
    channel: int
    user: str
    message_id: str | None
    correlation_id: str | None
    priority: int
    size: int
    dead_lettered: bool
    from_stream: bool
    identity: bytes


def sights(record: Record) -> list[SeenRecord]:
    """The record as each of its queues saw it."""
    properties, headers = record.properties, record.headers
    priority = properties.get("priority")
    told = (
        record.t,
        record.published,
        intern(record.exchange),
        tuple(map(intern, record.routing_keys)),
        intern(record.connection),
        record.channel,
        intern(record.user),
        _word(properties.get("message_id")),
        _word(properties.get("correlation_id")),
        priority if isinstance(priority, int) and 0 <= priority <= 255 else 0,
        len(record.payload),
        "x-death" in headers,
        "x-stream-offset" in headers,
        _identity(record),
    )
    vhost = intern(record.vhost)
    if not record.queues:
        return [SeenRecord(vhost, None, *told)]
    return [SeenRecord(vhost, intern(queue), *told) for queue in record.queues]


@dataclass(slots=True)
class Lifecycle:
    """One message in one queue; times in microseconds since 1970."""

    vhost: str
    queue: str | None
    """None: it was published and routed to no queue."""
    exchange: str
    routing_keys: tuple[str, ...]
    message_id: str | None
    correlation_id: str | None
    priority: int
    size: int
    """Bytes of the body in the log: no more than the trace's max_payload_bytes."""
    published_t: int | None = None
    published_connection: str = ""
    published_channel: int = 0
    published_user: str = ""
    delivered_t: int | None = None
    """The first time."""
    delivered_connection: str = ""
    delivered_channel: int = 0
    delivered_user: str = ""
    last_delivered_t: int | None = None
    deliveries: int = 0
    dead_lettered: bool = False
    """True if it was delivered with an x-death header."""
    from_stream: bool = False
    matched: str = UNMATCHED
    number: int = 0
    """The place of its publish among all sights."""

    @property
    def delay(self) -> int | None:
        """Microseconds from publish to first delivery; not below 0, whatever clocks say."""
        if self.published_t is None or self.delivered_t is None:
            return None
        return max(self.delivered_t - self.published_t, 0)


class Step(Enum):
    """The role of a record in a life."""

    PUBLISHED = auto()
    UNROUTED = auto()
    DELIVERED = auto()
    """Delivered for the first time."""
    REDELIVERED = auto()
    SURFACED = auto()
    """Delivered for the first time, and its publish is not in the log."""
    EXPLAINED = auto()
    """Published; its first delivery was logged before."""


@dataclass(slots=True)
class _Alike:
    """The lives of indistinguishable messages, in the order of their first records."""

    lives: list[Lifecycle] = field(default_factory=list)
    delivered: int = 0
    """The number of them, from the first on, that were delivered."""
    turn: int = 0
    """The index of the next one to be delivered again."""


class Matcher:
    """Makes lives of messages out of sights of them; a life that is over goes to `done`."""

    def __init__(
        self, done: Callable[[Lifecycle], object], *, several: bool = False, limit: int = LIMIT
    ) -> None:
        self.forgotten = 0
        self._done = done
        self._several = several
        self._limit = limit
        self._alive = 0
        self._number = 0
        self._alike: dict[bytes, _Alike] = {}
        """Messages that are alike, in the order of their last records."""

    def take(self, seen: SeenRecord) -> tuple[Step, Lifecycle]:
        """Take the next sight; returns its life and its role in it."""
        self._number += 1
        if seen.queue is None:
            life = self._new(seen)
            self._publish(life, seen)
            self._done(life)
            return Step.UNROUTED, life
        key = blake2b(
            f"{len(seen.vhost)} {seen.vhost}{seen.queue}".encode() + seen.identity, digest_size=16
        ).digest()
        alike = self._alike.pop(key, None) or _Alike()
        self._alike[key] = alike
        found = self._published(alike, seen) if seen.published else self._received(alike, seen)
        while self._alive > self._limit:
            self._forget()
        return found

    def finish(self) -> None:
        """The log has ended: give out all lives."""
        for alike in self._alike.values():
            self._give_out(alike)
        self._alike.clear()
        self._alive = 0

    def _published(self, alike: _Alike, seen: SeenRecord) -> tuple[Step, Lifecycle]:
        early = self._early(alike, seen)
        if early is not None:
            self._publish(early, seen)
            early.matched = _sureness(early, alike)
            return Step.EXPLAINED, early
        life = self._new(seen)
        self._add(alike, life)
        self._publish(life, seen)
        return Step.PUBLISHED, life

    def _early(self, alike: _Alike, seen: SeenRecord) -> Lifecycle | None:
        # only the first one of those that are alike can be without a publish: the next ones look like its redeliveries
        if not alike.lives or (not self._several and seen.message_id is None):
            return None
        life = alike.lives[0]
        young = (life.last_delivered_t or 0) >= seen.t - CLOCK_DIFFERENCE
        return life if life.published_t is None and young else None

    def _received(self, alike: _Alike, seen: SeenRecord) -> tuple[Step, Lifecycle]:
        if alike.delivered < len(alike.lives):
            step, life = Step.DELIVERED, alike.lives[alike.delivered]
            alike.delivered += 1
            life.matched = _sureness(life, alike)
        elif alike.lives:
            step, life = Step.REDELIVERED, alike.lives[alike.turn]
            alike.turn = (alike.turn + 1) % alike.delivered
        else:
            step, life = Step.SURFACED, self._new(seen)
            self._add(alike, life)
            alike.delivered = 1
        if life.delivered_t is None:
            life.delivered_t = seen.t
            life.delivered_connection, life.delivered_channel = seen.connection, seen.channel
            life.delivered_user = seen.user
        life.last_delivered_t = seen.t
        life.deliveries += 1
        life.dead_lettered = life.dead_lettered or seen.dead_lettered
        life.from_stream = life.from_stream or seen.from_stream
        return step, life

    def _new(self, seen: SeenRecord) -> Lifecycle:
        return Lifecycle(
            seen.vhost, seen.queue, seen.exchange, seen.routing_keys, seen.message_id, seen.correlation_id,
            seen.priority, seen.size,
        )  # fmt: skip

    def _publish(self, life: Lifecycle, seen: SeenRecord) -> None:
        life.published_t = seen.t
        life.published_connection, life.published_channel = seen.connection, seen.channel
        life.published_user = seen.user
        life.number = self._number

    def _add(self, alike: _Alike, life: Lifecycle) -> None:
        alike.lives.append(life)
        self._alive += 1

    def _forget(self) -> None:
        eldest = next(iter(self._alike))
        alike = self._alike.pop(eldest)
        self.forgotten += self._give_out(alike)

    def _give_out(self, alike: _Alike) -> int:
        for life in alike.lives:
            if life.published_t is not None and life.delivered_t is not None:
                life.matched = _sureness(life, alike)
            self._done(life)
        self._alive -= len(alike.lives)
        return len(alike.lives)


def _sureness(life: Lifecycle, alike: _Alike) -> str:
    if len(alike.lives) > 1:
        return BY_ORDER
    return BY_CONTENT if life.message_id is None else BY_ID


def lifecycles(
    records: Iterable[Record], *, several: bool = False, limit: int = LIMIT
) -> Iterator[Lifecycle]:
    """The lives in a stream of records; those that last to the end come in the order of their times."""
    done: list[Lifecycle] = []
    matcher = Matcher(done.append, several=several, limit=limit)
    for record in records:
        for seen in sights(record):
            matcher.take(seen)
        yield from done
        done.clear()
    matcher.finish()
    yield from sorted(done, key=_begin)


def _identity(record: Record) -> bytes:
    """The parts of a record that a message's publish and its deliveries share."""
    properties = {name: value for name, value in record.properties.items() if name != "headers"}
    headers = {name: value for name, value in record.headers.items() if name not in ADDED}
    told = [record.exchange, record.routing_keys, properties, headers]
    content = blake2b(_ENCODER.encode(told).encode(), digest_size=16)
    content.update(record.payload)
    return content.digest()


def _word(value: object) -> str | None:
    return None if value is None else str(value)


def _begin(life: Lifecycle) -> int:
    return (life.delivered_t or 0) if life.published_t is None else life.published_t
