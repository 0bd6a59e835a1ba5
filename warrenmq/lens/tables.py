"""The picture's state: flat tables of short tuples, and the changes between two rows.

A value is replaced, never changed in place, so applying each `new` goes forwards and applying each `old` in
reverse order goes back; neither needs to know what a broker is.

| table | key | value |
| --- | --- | --- |
| run | "run" | (name, boot, "up", "closed" or "lost", profile: 0, 1 classic, 2 modern) |
| run | "settings" | (fsync: 1 or 0, file size limit, entries of a .idx segment, of a .qi file, bodies below this are embedded) |
| actor | actor | (name, kind, parent, "starting", "up", "ended", "killed" or "crashed", incarnation) |
| mail | "sender:seq" | (receiver, kind of message, message, how many, sender): one envelope in a mailbox |
| pub | client | (messages sent, of these confirmed, nacked, and sent without asking for a confirm) |
| exchange | name | "direct", "fanout", "topic", "headers", ...; the name of the default exchange is empty, and it has no row |
| binding | exchange, destination, key and "queue" or "exchange", with U+001F between them | these four |
| route | client | (exchange, routing key, the first message of its latest publish): through which exchange it publishes |
| chosen | "client/queue's actor" | the first message of the client's latest publish to that queue |
| owed | message | (client, queues that have yet to confirm) |
| queue | name | (actor, next sequence id, confirmed, bytes of index written, of these synced, version of the index: 0 = not known yet) |
| ram | name | (target or -1, messages in memory, bytes in memory): the memory monitor's last word |
| journal | name | (records since the last flush to segment files, segment files written so far): of an index of version 1 |
| entry | "name/seq" | (message, "ready", "unacked", "acked", "dropped" or "asleep", State, index, body, bytes of an embedded body) |
| consumer | number | (queue, prefetch count, 1 = takes without acks) |
| wait | "actor/granter" | (actor, granter): no credit left; granter 0 = an alarm is set |
| alarm | "memory" or "disk" | (measured, limit) |
| store | "p" or "t" | (actor, current file) |
| file | "p/0" | (bytes appended, handed to the system, synced, garbage, "", "current", "locked", "compacting" or "asleep") |
| rec | "p/0/6038" | (message, bytes, references, "", "moved", "old place", "found" or "asleep"); without references it is garbage |
| flying | "p/7/orders" | value of the flying counter |
| cache | "p/7" | 1: the body is in the current-file cache |
| gc | "p" | (file, destination, bytes to copy, bytes copied) |
| cost | name | number |

An entry's index is 0 in memory, 1 written, 2 synced; its body 0 embedded, 1 in the persistent store, 2 in the
transient one.  The bytes of an embedded body are on average those that were published together, 0 = not known.

p and t are the persistent and the transient store.  "asleep" is what lies on disk, and no process has opened
yet.  An entry of a queue with priorities has the key "name/priority.seq".  A message is shown by its number,
m1, m2, ... (`Scene.message`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

NAMES = (
    "run", "actor", "mail", "pub", "exchange", "binding", "route", "chosen", "owed", "queue", "ram", "journal",
    "entry", "consumer", "wait", "alarm", "store", "file", "rec", "flying", "cache", "gc", "cost",
)  # fmt: skip
(
    RUN, ACTOR, MAIL, PUB, EXCHANGE, BINDING, ROUTE, CHOSEN, OWED, QUEUE, RAM, JOURNAL,
    ENTRY, CONSUMER, WAIT, ALARM, STORE, FILE, REC, FLYING, CACHE, GC, COST,
) = range(len(NAMES))  # fmt: skip
IN_MEMORY = (
    ACTOR, MAIL, PUB, EXCHANGE, BINDING, ROUTE, CHOSEN, OWED, QUEUE, RAM, JOURNAL, CONSUMER, WAIT, ALARM, STORE, FLYING, CACHE, GC,
)  # fmt: skip
"""Tables whose rows end with the process."""

Key: TypeAlias = int | str
Change: TypeAlias = tuple[int, Key, Any, Any]
"""(table, key, new, old); None = no such row."""
Caption: TypeAlias = tuple[Any, ...]
"""A template, and what fills it: `captions.render` has the placeholders."""


class Step(NamedTuple):
    """The changes that one row makes, with its caption."""

    changes: list[Change]
    caption: Caption
    message: int
    """The number of the message that it is about; 0 = none."""
    move: tuple[str, ...] | None
    """(from, to) or (from, by way of, to): anchors on the page between which something travels; see `Scene.move`."""
    mark: int
    """Index in MARKS."""
    cause: int
    """Number of the row that led to this one; 0 = none that is known."""


MARKS = ("", "sync", "confirm", "cancel", "roll", "gc", "crash", "recovered", "run", "alarm")
_, SYNC, CONFIRM, CANCEL, ROLL, COLLECT, CRASH, RECOVERY, BOUNDARY, SHORTAGE = range(len(MARKS))

Tables: TypeAlias = list[dict[Key, Any]]
"""A table for each name in NAMES."""


def empty() -> Tables:
    """The state before the first row."""
    return [{} for _ in NAMES]


def named(tables: Tables) -> dict[str, dict[Key, Any]]:
    """The tables by name."""
    return dict(zip(NAMES, tables, strict=True))


def apply(tables: Tables, changes: list[Change]) -> None:
    """Apply a row's changes."""
    for table, key, new, _ in changes:
        _put(tables[table], key, new)


def undo(tables: Tables, changes: list[Change]) -> None:
    """Undo a row's changes."""
    for table, key, _, old in reversed(changes):
        _put(tables[table], key, old)


def _put(table: dict[Key, Any], key: Key, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
