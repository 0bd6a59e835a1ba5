"""The fold's working state: the picture's tables, and bookkeeping that is not shown.

The notes of a run are let go with it, and those that a long run could grow without end are bounded
(`LatestRows`), so the memory of a fold depends on what the broker holds and not on how many rows there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from warrenmq.lens.tables import (
    ACTOR,
    COST,
    ENTRY,
    FILE,
    IN_MEMORY,
    MAIL,
    NAMES,
    OWED,
    PUB,
    REC,
    RUN,
    STORE,
    Change,
    Key,
    Tables,
    empty,
)
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import PRIORITY_SHIFT

ACKED_KEPT = 64
"""So many acked entries of a queue stay in the picture."""
_LATEST_ROWS = 5_000
_MOST_AT_ONCE = 1 << 20
NO_PROCESSES = frozenset({"Nacks", "QueueDeletion"})
"""The kinds of actors that are no processes: what others write of a queue whose process is dead."""
_BOOT_SHIFT = 40
"""A message id has the number of its boot above these bits."""
_LOW = (1 << PRIORITY_SHIFT) - 1


def span(first: int, count: int) -> Sequence[int]:
    """The numbers that a row names by the first and the count, bounded against broken rows."""
    if count == 1:  # nearly always
        return (first,)
    return range(first, first + (count if 0 <= count <= _MOST_AT_ONCE else 0 if count < 0 else _MOST_AT_ONCE))


def entry_key(queue: str, seq: int) -> str:
    """The key of a queue's message in the table of entries."""
    return f"{queue}/{seq}" if seq <= _LOW else f"{queue}/{seq >> PRIORITY_SHIFT}.{seq & _LOW}"


class LatestRows:
    """The last row of each kind for a message, file or queue, from which the causes of later rows are taken.

    Only the latest are kept: at least _LATEST_ROWS, at most twice as many.  That is far more than lie between
    a row and its cause, and little beside the tables: with ten times as many, no row of 1.3 million had
    another cause, and a fold took four times the memory.
    """

    def __init__(self) -> None:
        self._young: dict[Any, int] = {}
        self._old: dict[Any, int] = {}

    def set(self, key: Any, row: int) -> None:
        """Remember the row."""
        self._young[key] = row
        if len(self._young) > _LATEST_ROWS:
            self._old, self._young = self._young, {}

    def get(self, key: Any, otherwise: int = 0) -> int:
        """The row, or `otherwise`."""
        found = self._young.get(key)
        return self._old.get(key, otherwise) if found is None else found


@dataclass(slots=True)
class ActorNotes:
    """Bookkeeping of one actor, which every row of it needs: looked up once a row."""

    number: int
    name: str
    """Without the prefix `queue:`."""
    anchor: str = ""
    """The anchor on the page; "" if the trace does not name the actor (yet)."""
    store: str = ""
    """The store, p or t, that a store's process or its collector works on; "" of any other actor."""
    is_met: bool = False
    """True once it is in the table of actors."""
    handling: int = 0
    """The row with which it began what it is doing."""
    last: int = 0
    """Its latest row."""


@dataclass(slots=True)
class QueueNotes:
    """Bookkeeping of one queue process."""

    dirty: dict[int, str] = field(default_factory=dict)
    """Sequence ids whose index records are not synced yet -> the keys of their entries."""
    writes: dict[str, deque[int]] = field(default_factory=lambda: {"p": deque(), "t": deque()})
    """Messages taken in whose bodies have not been sent to the store, by store."""
    removes: dict[str, dict[int, None]] = field(default_factory=lambda: {"p": {}, "t": {}})
    """Messages that are done with, whose removes have not been sent, by store."""
    transient: dict[int, int] = field(default_factory=dict)
    """Transient messages -> their sequence ids: whether such a body is in the store shows when it is written there."""
    acked: deque[tuple[int, str]] = field(default_factory=deque)
    """Entries that were settled and are still shown: their sequence ids and keys."""
    unconfirmed: dict[int, int] = field(default_factory=dict)
    """Sequence ids -> messages taken in whose publishers wait for this queue; their entries may be gone before."""
    closed: bool = False
    """True once it has said that everything is on disk."""
    written_to: int = 0
    """Publishes below this sequence id were written before their rows: a full buffer is written in the middle
    of taking them in.
    """

    def copied(self) -> QueueNotes:
        """Notes that go their own way from here."""
        return QueueNotes(
            dict(self.dirty),
            {store: copy(waiting) for store, waiting in self.writes.items()},
            {store: copy(gone) for store, gone in self.removes.items()},
            dict(self.transient),
            copy(self.acked),
            dict(self.unconfirmed),
            self.closed,
            self.written_to,
        )


@dataclass(slots=True)
class StoreNotes:
    """Bookkeeping of one message store."""

    where: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Message -> (file, offset) of the record with its references."""
    unhandled: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Message -> writes of it that are in the mailbox."""
    offsets: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """File -> the places of its records, ascending."""
    asleep: dict[int, str] = field(default_factory=dict)
    """Message -> the key of the record that an earlier process left."""

    def copied(self) -> StoreNotes:
        """Notes that go their own way from here."""
        offsets = defaultdict(list, {file: places[:] for file, places in self.offsets.items()})
        return StoreNotes(dict(self.where), copy(self.unhandled), offsets, dict(self.asleep))


class Scene:
    """The state after a row, and the step being built."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """`runs` may grow, and their actors too, while a trace is being written."""
        self.runs = runs
        self.tables: Tables = empty()
        self.number = 0
        self.run = -1
        self.kinds: dict[int, str] = {}
        """The kinds of messages between the run's actors, by their numbers; grows while a trace is written."""
        self.bases: dict[int, int] = {}
        """Boot of this broker -> what is added to the ids of its messages."""
        self.bases_of: dict[str, dict[int, int]] = {}
        """`bases` by the scope of a run."""
        self._highest = 0
        """The highest message number so far."""
        self.changes: list[Change] = []
        """The changes of the step being built; so are move, mark, about and cause."""
        self.move: tuple[str, ...] | None = None
        """(from, to) or (from, by way of, to).  Anchors: pub, con, exchange/<name>, box/<actor>,
        queue/<name>, entry/<name>/<seq>, rec/<store>/<file>/<offset>, file/<store>/<file>,
        flying/<store>/<message>/<queue>, cache/<store>/<message>.
        """
        self.mark = 0
        """The kind of thing that the row is, for colours and chapters (tables.py); 0 for nothing special."""
        self.about = 0
        """The message that the row is about; 0 for none."""
        self.cause = 0
        """The row that the actor is handling, and so the cause of this one; 0 for none."""
        self.loss = (0, 0, 0)
        """The losses at the end of the run before: unconfirmed messages, unsynced bytes, envelopes."""
        self._forget()

    def _forget(self) -> None:
        """Clear everything that belongs to a process."""
        self.actors: dict[int, ActorNotes] = {}
        self.latest_rows = LatestRows()
        self.sent: dict[str, int] = {}
        """The key of an envelope -> the row of its SEND, until it is received."""
        self.queues: defaultdict[str, QueueNotes] = defaultdict(QueueNotes)
        self.stores: defaultdict[str, StoreNotes] = defaultdict(StoreNotes)
        self.lives: defaultdict[str, int] = defaultdict(int)

    def copied(self) -> Scene:
        """Copy the scene; the copy is independent, and has no latest_rows: they are many, and only causes come from them."""
        other = copy(self)
        other.tables = [dict(table) for table in self.tables]
        other.changes = []
        other.bases, other.sent, other.lives = copy(self.bases), dict(self.sent), copy(self.lives)
        other.actors = {number: copy(notes) for number, notes in self.actors.items()}
        other.bases_of = {scope: copy(bases) for scope, bases in self.bases_of.items()}
        if self.run >= 0:
            other.bases = other.bases_of[self.runs[self.run].scope]
        other.latest_rows = LatestRows()
        other.queues = defaultdict(QueueNotes, {name: notes.copied() for name, notes in self.queues.items()})
        other.stores = defaultdict(StoreNotes, {name: notes.copied() for name, notes in self.stores.items()})
        return other

    # -- changes

    def set(self, table: int, key: Key, new: Any) -> None:
        """Change a row of a table; None removes it."""
        rows = self.tables[table]
        old = rows.get(key)
        if old == new:
            return
        if new is None:
            del rows[key]
        else:
            rows[key] = new
        self.changes.append((table, key, new, old))

    def add(self, table: int, key: Key, new: Any) -> None:
        """Give a row of a table a value that it does not have yet; quicker than `set`, which looks."""
        rows = self.tables[table]
        self.changes.append((table, key, new, rows.get(key)))
        rows[key] = new

    def spend(self, what: str, by: int = 1) -> None:
        """Add to a cost counter."""
        if by:
            costs = self.tables[COST]
            old = costs.get(what)
            costs[what] = new = by if old is None else old + by
            self.changes.append((COST, what, new, old))

    @property
    def syncs(self) -> bool:
        """False with durability "os": what is told as synced is then with the operating system."""
        settings = self.tables[RUN].get("settings")
        return settings is None or bool(settings[0])

    # -- names

    def message(self, msg: int) -> int:
        """The display number of a message: messages of a boot keep the order in which its broker numbered them."""
        if not msg:
            return 0
        boot = msg >> _BOOT_SHIFT
        base = self.bases.get(boot)
        if base is None:
            base = self.bases[boot] = self._highest + 1 - (boot << _BOOT_SHIFT)
        number = base + msg
        if number > self._highest:  # noqa: PLR1730 - max() costs three times as much, on every row
            self._highest = number
        return number

    def actor(self, number: int) -> ActorNotes:
        """The notes of an actor; of one that the trace does not name (yet) they are kept once it has written a row."""
        found = self.actors.get(number)
        return found if found is not None and found.anchor else self._look_up(number)

    def _look_up(self, number: int) -> ActorNotes:
        run = self.runs[self.run]
        entry = run.actors.get(number)
        if entry is None:
            return self.actors.get(number) or ActorNotes(
                number, run.actor_name(number) if number else "somebody"
            )
        found = self.actors.setdefault(number, ActorNotes(number, ""))
        found.name = entry.name.removeprefix("queue:")
        found.anchor = f"pub/{number}" if entry.kind == "client" else f"box/{number}"
        if entry.kind in {"MsgStore", "MsgStoreGc"}:
            found.store = entry.name.removeprefix("msg_store_")[:1]
        return found

    def is_open(self, store: str, actor: int) -> bool:
        """True if this process has the store open."""
        row = self.tables[STORE].get(store)
        return row is not None and row[0] == actor

    def entries(self, queue: str, first: int, count: int) -> Iterable[tuple[int, str, tuple[Any, ...]]]:
        """The known entries of a range, as (sequence id, key, value)."""
        if count != 1:
            return self._entries(queue, first, count)
        key = entry_key(queue, first)  # nearly always: no generator
        found = self.tables[ENTRY].get(key)
        return () if found is None else ((first, key, found),)

    def entries_of(self, queue: str) -> list[tuple[Key, tuple[Any, ...]]]:
        """All entries of a queue, as (key, value)."""
        return [
            (key, value) for key, value in self.tables[ENTRY].items() if str(key).rpartition("/")[0] == queue
        ]

    def _entries(self, queue: str, first: int, count: int) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
        entries = self.tables[ENTRY]
        for seq in span(first, count):
            key = entry_key(queue, seq)
            if (found := entries.get(key)) is not None:
                yield seq, key, found

    # -- runs and actors

    def meet(self, actor: int) -> ActorNotes:
        """Add an actor, and its parents, to the table on its first row."""
        notes = self.actor(actor)
        self.actors[actor] = notes
        entry = self.runs[self.run].actors.get(actor)
        if entry is None or entry.kind in NO_PROCESSES:
            return notes
        notes.is_met = True  # first, as the parents of a broken trace may be in a circle
        if entry.parent and not self.actor(entry.parent).is_met:
            self.meet(entry.parent)
        self.lives[entry.name] += 1
        state = "starting" if entry.parent else "up"
        self.set(ACTOR, actor, (notes.name, entry.kind, entry.parent, state, self.lives[entry.name]))
        return notes

    def new_run(self, run: int) -> None:
        """Begin a run: clear what was in memory; what was on disk stays, marked asleep, until recovery finds it.

        Of another broker, one of another directory or virtual host, nothing stays: its queues and messages
        have the same names.
        """
        scope = self.runs[run].scope
        if self.run >= 0:
            follows = scope == self.runs[self.run].scope
            files = self.tables[FILE].values()
            unsynced = sum(size - synced for size, _, synced, *_ in files)
            self.loss = len(self.tables[OWED]), unsynced, len(self.tables[MAIL])
            for table in IN_MEMORY if follows else range(len(NAMES)):
                for key in list(self.tables[table]):
                    self.set(table, key, None)
            self.sleep_entries(None)
        self.run = run
        self.kinds = self.runs[run].kinds
        self.bases = self.bases_of.setdefault(scope, {})
        self._forget()
        for store in ("p", "t"):
            self.sleep_store(store)

    def sleep_store(self, store: str) -> None:
        """Mark a store's files and records as asleep, because its process has ended."""
        notes = self.stores[store] = StoreNotes()
        for table in (FILE, REC):
            for key, value in list(self.tables[table].items()):
                if str(key)[0] == store:
                    self.set(table, key, (*value[:-1], "asleep"))
                    if table == REC and value[2]:
                        notes.asleep[value[0]] = str(key)

    def sleep_entries(self, queue: str | None) -> None:
        """Mark the entries of a queue (None = of all) as asleep, and drop those that were only in memory."""
        entries = list(self.tables[ENTRY].items()) if queue is None else self.entries_of(queue)
        for key, (msg, state, place, index, *body) in entries:
            # a settled message that is not synced lacks only its ack on disk: its publish was written
            on_disk = int(index < 2) if state in {"acked", "dropped"} else index
            self.set(ENTRY, key, (msg, "asleep", place, on_disk, *body) if on_disk else None)

    def publisher(self, client: int) -> tuple[int, int, int, int]:
        """The table row of a publisher; zeros if it is unknown."""
        found: tuple[int, int, int, int] | None = self.tables[PUB].get(client)
        return found or (0, 0, 0, 0)

    def confirmed(self, message: int) -> None:
        """Count one queue's confirm of a message; the last one confirms it to the publisher."""
        owed = self.tables[OWED].get(message)
        if owed is not None and owed[1] > 1:
            self.add(OWED, message, (owed[0], owed[1] - 1))
        elif (client := self._owed_no_longer(message)) is not None:
            sent, confirmed, nacked, unasked = self.publisher(client)
            self.add(PUB, client, (sent, confirmed + 1, nacked, unasked))

    def nacked(self, message: int) -> None:
        """Count a nack of a message: one queue's is the publisher's."""
        if (client := self._owed_no_longer(message)) is not None:
            sent, confirmed, nacked, unasked = self.publisher(client)
            self.add(PUB, client, (sent, confirmed, nacked + 1, unasked))

    def unasked(self, message: int) -> None:
        """Count a message whose publisher wants no confirm."""
        if (client := self._owed_no_longer(message)) is not None:
            sent, confirmed, nacked, unasked = self.publisher(client)
            self.add(PUB, client, (sent, confirmed, nacked, unasked + 1))

    def _owed_no_longer(self, message: int) -> int | None:
        """Nothing is owed for a message any more; returns its publisher, or None if nothing was."""
        owed = self.tables[OWED].pop(message, None)
        if owed is None:
            return None
        self.changes.append((OWED, message, None, owed))
        client: int = owed[0]
        return client

    # -- records

    def put_record(self, store: str, file: int, offset: int, value: tuple[Any, ...]) -> None:
        """Add or replace a record."""
        offsets = self.stores[store].offsets[file]
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
        elif offsets[bisect_left(offsets, offset)] != offset:
            insort(offsets, offset)
        self.set(REC, f"{store}/{file}/{offset}", value)

    def drop_record(self, store: str, file: int, offset: int) -> None:
        """Remove a record."""
        offsets = self.stores[store].offsets[file]
        place = bisect_left(offsets, offset)
        if place < len(offsets) and offsets[place] == offset:
            del offsets[place]
        self.set(REC, f"{store}/{file}/{offset}", None)

    def records(self, store: str, file: int, begin: int = 0) -> list[tuple[int, tuple[Any, ...]]]:
        """Iterate over the records of a file from offset `begin` on, as (offset, value)."""
        offsets, records = self.stores[store].offsets.get(file, []), self.tables[REC]
        return [(at, records[f"{store}/{file}/{at}"]) for at in offsets[bisect_left(offsets, begin) :]]

    def cut_file(self, store: str, file: int, size: int) -> None:
        """Remove the records of a file from an offset on."""
        for offset, _ in self.records(store, file, size):
            self.drop_record(store, file, offset)
        if not size:
            self.stores[store].offsets.pop(file, None)

    def file(self, store: str, number: int) -> tuple[int, int, int, int, str]:
        """The table row of a file; zeros if it is unknown."""
        found: tuple[int, int, int, int, str] = self.tables[FILE].get(f"{store}/{number}") or (0, 0, 0, 0, "")
        return found
