"""Behaviours of the specification as traces tell of them: what happened to each message, in the names of docs/spec.

A behaviour of `Confirms` is a persistent message of a queue, over all lives of the queue; one of
`MessageStore` is a message in one life of a persistent store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from warrenmq.trace import events
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import (
    BodyReport,
    ConfirmKind,
    Decision,
    DeliverFlag,
    DropReason,
    Ev,
    PublishFlag,
    seq_ids_of,
)
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import Row

STORE = "msg_store_persistent"
_CLIENTS = 4
"""Queues that MessageStoreTrace has names for; a message of more is left out."""


class Behaviour(NamedTuple):
    """The life of a message, as the rows of a queue or of a store tell it."""

    module: str
    """The module of docs/spec that it is held against."""
    of: str | int
    """Confirms: "small" or "large"; MessageStore: the references that the recovery of the store counted."""
    steps: tuple[object, ...]
    """Confirms: names; MessageStore: (operation, client, flying count, decision, references afterwards)."""


class Life(NamedTuple):
    """The rows of one life of a queue, and the number of their run."""

    run: int
    rows: list[Row]


def behaviours_of(trace: Trace) -> Iterator[Behaviour]:
    """All behaviours that a trace shows."""
    lives: defaultdict[tuple[str, str], list[Life]] = defaultdict(list)
    stores: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    rows: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
    for chunk in trace.catalog.chunks:
        rows[chunk.run, chunk.actor] += trace.rows(chunk)
    for (number, actor), its in sorted(rows.items(), key=lambda each: (each[0][0], each[1][0].t)):
        run = trace.catalog.runs[number]
        if any(row.event == Ev.QUEUE_RECOVERED for row in its):
            lives[run.scope, run.actor_name(actor)].append(Life(number, its))
        if run.actor_name(actor) == STORE:
            yield from _of_store(its, run)
            stores[run.scope] += [(number, row.t, row.event) for row in its if row.event in _OF_STORES]
    for (scope, _), queue in lives.items():
        yield from _of_queue(queue, sorted(stores[scope]))


_OF_STORES = (Ev.STORE_RECOVERED, Ev.STORE_CLOSED)
_NAMES = {Ev.ACK: "ack", Ev.REQUEUE: "requeue", Ev.DROP: "drop"}


class _Told:
    """The steps of one queue's messages, as its rows tell them."""

    def __init__(self) -> None:
        self.open: dict[int, tuple[str, list[str]]] = {}
        """By sequence id: small or large, and its steps."""
        self.of_message: dict[int, int] = {}
        """Message ids to sequence ids."""
        self.done: list[Behaviour] = []

    def add(self, seq_id: int, name: str) -> None:
        """Add a step; a sync right after another adds nothing."""
        if seq_id in self.open:
            steps = self.open[seq_id][1]
            if (name, steps[-1]) != ("sync", "sync"):
                steps.append(name)

    def all(self, name: str) -> None:
        for seq_id in self.open:
            self.add(seq_id, name)

    def end(self, seq_id: int) -> None:
        if seq_id in self.open:
            message, steps = self.open.pop(seq_id)
            self.done.append(Behaviour("Confirms", message, tuple(steps)))


def _of_queue(lives: Sequence[Life], stores: Sequence[tuple[int, int, int]]) -> Iterator[Behaviour]:
    told = _Told()
    for number, (_, rows) in enumerate(lives):
        up = next(place for place, row in enumerate(rows) if row.event == Ev.QUEUE_RECOVERED)
        if number:
            told.all(_end(lives[number - 1], stores))
            found = {seq_id for row in rows if row.event == Ev.RECOVERED for seq_id in seq_ids_of(row)}
            for seq_id in told.open:
                told.add(seq_id, "found" if seq_id in found else "gone")
        for row in rows[up:]:
            _note(told, row)
    for seq_id in list(told.open):
        told.end(seq_id)
    yield from told.done


def _end(life: Life, stores: Sequence[tuple[int, int, int]]) -> str:
    """The end of a queue's life: "crash", "stop", or "stop alone" if its store did not stop cleanly after it."""
    closed = next((row.t for row in life.rows if row.event == Ev.QUEUE_CLOSED), None)
    if closed is None:
        return "crash"
    after = next((event for run, t, event in stores if (run, t) > (life.run, closed)), 0)
    return "stop" if after == Ev.STORE_CLOSED else "stop alone"


def _note(told: _Told, row: Row) -> None:
    match row.event:
        case Ev.PUBLISH:
            publish = events.Publish.of(row)
            large = bool(publish.flags & PublishFlag.IN_STORE)
            for place, seq_id in enumerate(seq_ids_of(row)):
                told.end(seq_id)  # what was lost in a crash may have left its number to this one
                if publish.flags & PublishFlag.PERSISTENT:
                    told.open[seq_id] = "large" if large else "small", ["publish"]
                    told.of_message[publish.message + place] = seq_id
        case Ev.QI_SYNC:
            told.all("sync")
        case Ev.ON_DISK:
            heard = events.OnDisk.of(row)
            name = "on disk" if heard.report == BodyReport.WRITTEN else "cancelled"
            told.add(told.of_message.get(heard.message, -1), name)
        case Ev.CONFIRM if events.Confirm.of(row).kind == ConfirmKind.DURABLE:
            for seq_id in seq_ids_of(row):
                told.add(seq_id, "confirm")
        case Ev.DELIVER:
            for seq_id in seq_ids_of(row):
                told.add(seq_id, "deliver")
                if row.flag & DeliverFlag.NO_ACK:
                    told.add(seq_id, "ack")
        case Ev.ACK | Ev.REQUEUE | Ev.DROP:
            for seq_id in seq_ids_of(row):
                told.add(seq_id, _NAMES[Ev(row.event)])
                if row.event == Ev.DROP and events.Drop.of(row).reason == DropReason.DELETED:
                    told.end(seq_id)


_DECIDED = {
    Decision.WRITE: "append",
    Decision.IGNORE: "ignore",
    Decision.CONFIRM: "count",
    Decision.REMOVE: "remove",
}


class _Stored:
    """The rows of a store about one message, as steps of the specification."""

    def __init__(self) -> None:
        self.found = 0
        self.steps: list[object] = []
        self.clients: dict[str, str] = {}
        self.is_open = True
        """Until the collector has the message's file: what is put off then is not followed."""

    def operation(self, name: str, queue: str, row: events.StoreWrite[int] | events.StoreRemove[int]) -> None:
        """Note a write or a remove; a queue that was restarted is the same client."""
        client = self.clients.setdefault(queue, f"q{len(self.clients) + 1}")
        self.is_open = self.is_open and row.decision in _DECIDED
        if self.is_open:
            self.steps.append((name, client, row.flying, _DECIDED[Decision(row.decision)], row.references))


def _of_store(rows: Sequence[Row], run: Run) -> Iterator[Behaviour]:
    stored: defaultdict[int, _Stored] = defaultdict(_Stored)
    for row in rows:
        match row.event:
            case Ev.REF_RECOVERED:
                stored[events.RefRecovered.of(row).message].found = events.RefRecovered.of(row).references
            case Ev.STORE_WRITE:
                write = events.StoreWrite.of(row)
                stored[write.message].operation("write", run.actor_name(write.client), write)
            case Ev.STORE_REMOVE:
                remove = events.StoreRemove.of(row)
                stored[remove.message].operation("remove", run.actor_name(remove.client), remove)
            case Ev.REF_DROPPED:
                dropped = events.RefDropped.of(row)
                stored[dropped.message].steps.append(("drop", "", 0, "", dropped.references))
    for each in stored.values():
        if each.steps and len(each.clients) <= _CLIENTS:
            yield Behaviour("MessageStore", each.found, tuple(each.steps))
