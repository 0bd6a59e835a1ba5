"""The headers that a dead-lettered message carries: x-death and x-first-death-* (rabbit_dead_letter).

    x-death = [{count, reason, queue, time, exchange, routing-keys, original-expiration}, ...]

One table for each queue and reason; that of the latest death is the first.  A death for the second time in the same
queue and for the same reason is counted in the table that is there, which keeps its time.  When there are more
tables than one, those behind the first change their order with each death, as they do in RabbitMQ 3.10.

Headers are in the plain form of warrenmq/erlang: [[name, letter, value], ...].  Pure.

Source: rabbit_dead_letter of 3.10.8; docs/reference/classic-queue.md#dead-lettering.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, NamedTuple, TypeAlias

Table: TypeAlias = list[list[Any]]
"""[[name, letter, value], ...]"""

X_DEATH = "x-death"
REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"


class Death(NamedTuple):
    """The reason for which a message leaves a queue for its dead-letter exchange."""

    reason: str
    """rejected, expired, maxlen or delivery_limit"""
    queue: str
    time: int
    """Seconds since 1970."""
    exchange: str
    """The exchange that it was published to."""
    routing_key: str
    """The first one."""
    expiration: Any
    """The message's expiration property; None = not set."""


def lookup(table: Table, name: str) -> tuple[str, Any] | None:
    """The first entry of this name: (letter, value)."""
    return next(((each[1], each[2]) for each in table if each[0] == name), None)


def with_death(headers: Table, death: Death) -> Table:
    """The headers of a message that died once more, sorted by name."""
    info = _info(headers, death)
    counted = [["count", "l", 1], *info]
    match lookup(headers, X_DEATH):
        case None:
            for key, value in (
                ("reason", death.reason),
                ("queue", death.queue),
                ("exchange", death.exchange),
            ):
                headers = _put(headers, f"x-first-death-{key}", "S", value)
            deaths = [["F", counted]]
        case "A", list() as earlier:
            grouped = _grouped([each for each in earlier if each[0] == "F"])
            same = [each for each in grouped if _queue_and_reason(each) == (death.queue, death.reason)]
            others = [each for each in grouped if _queue_and_reason(each) != (death.queue, death.reason)]
            deaths = [["F", _sorted(_incremented(same[0][1]) if same else counted)], *others]
        case _:  # another application's header of this name
            deaths = [["F", counted]]
    return _put(headers, X_DEATH, "A", deaths)


def without_cc(headers: Table) -> Table:
    """The headers without CC: a message that is dead-lettered with another routing key is not copied to the old ones."""
    place = next((i for i, each in enumerate(headers) if each[0] == "CC"), len(headers))
    return headers[:place] + headers[place + 1 :]


def is_cycle(queue: str, headers: Table) -> bool:
    """True if a message has come back to this queue in a cycle of dead-lettering without a rejection.

    =========================================  =====
    x-death, newest first, seen from queue a   cycle
    =========================================  =====
    none                                       no
    b expired                                  no
    a expired                                  yes
    b expired, a expired                       yes
    b rejected, a expired                      no
    b expired, a rejected                      no
    b expired, a expired, c rejected           yes
    =========================================  =====
    """
    found = lookup(headers, X_DEATH)
    if found is None or found[0] != "A":
        return False
    for letter, table in found[1]:
        if letter != "F" or lookup(table, "reason") == ("S", REJECTED):
            return False
        if lookup(table, "queue") == ("S", queue):
            return True
    return False


def _info(headers: Table, death: Death) -> Table:
    keys = [["S", death.routing_key]]
    for name in ("CC", "BCC"):
        found = lookup(headers, name)
        if found is not None and found[0] == "A":
            keys += [list(each) for each in found[1] if each[0] == "S"]
    info: Table = [
        ["reason", "S", death.reason],
        ["queue", "S", death.queue],
        ["time", "T", death.time],
        ["exchange", "S", death.exchange],
        ["routing-keys", "A", keys],
    ]
    return info if death.expiration is None else [*info, ["original-expiration", "S", death.expiration]]


def _queue_and_reason(death: list[Any]) -> tuple[Any, Any]:
    queue, reason = lookup(death[1], "queue"), lookup(death[1], "reason")
    return queue and queue[1], reason and reason[1]


def _grouped(deaths: list[Any]) -> list[Any]:
    """One table for each queue and reason (group_by_queue_and_reason): releases before 3.5.4 wrote one for each death."""
    if len(deaths) < 2:
        return deaths
    grouped: list[Any] = []
    seen: list[Any] = []
    for death in deaths:
        if (origin := _queue_and_reason(death)) not in seen:
            seen.append(origin)
            alike = sum(_queue_and_reason(each) == origin for each in deaths)
            table = death[1] if lookup(death[1], "count") else [["count", "l", alike], *death[1]]
            grouped.insert(0, ["F", table])
    return grouped


def _incremented(table: Table) -> Table:
    count = lookup(table, "count")
    if count is None:
        return [["count", "l", 1], *table]
    return [["count", "l", count[1] + 1] if each[0] == "count" else each for each in table]


def _put(table: Table, name: str, letter: str, value: Any) -> Table:
    """Replace the first entry of this name, or add one (rabbit_misc:set_table_value)."""
    entry = [name, letter, value]
    place = next((i for i, each in enumerate(table) if each[0] == name), len(table))
    return _sorted([*table[:place], entry, *table[place + 1 :]])


def _sorted(table: Table) -> Table:
    return sorted(table, key=lambda entry: _bytes(entry[0]))


def _bytes(name: str | dict[str, str]) -> bytes:
    return name.encode() if isinstance(name, str) else b64decode(name["b64"])
