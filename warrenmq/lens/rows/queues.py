"""Rows of queue processes: publishes, deliveries, acks, consumers, paging."""

from __future__ import annotations

from typing import Any

from warrenmq.lens.rows.handler import Handlers, many, take_mail
from warrenmq.lens.rows.handler import words as words_of
from warrenmq.lens.scene import ACKED_KEPT, QueueNotes, Scene, span
from warrenmq.lens.tables import CONFIRM, CONSUMER, ENTRY, OWED, QUEUE, RAM, RUN, Caption
from warrenmq.trace import events as e
from warrenmq.trace.events import ConfirmKind, DeliverFlag, Ev, PublishFlag, State
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_publish = e.Publish.getter("flags", "publisher", "send", "first_seq_id", "count", "sends", "body_size")
_confirm = e.Confirm.getter("kind", "first_seq_id", "count")
_deliver = e.Deliver.getter("flags", "consumer", "first_seq_id", "count")
_ack = e.Ack.getter("acker", "send", "first_seq_id", "count")
_requeue = e.Requeue.getter("cause", "first_seq_id", "count")
_drop = e.Drop.getter("reason", "first_seq_id", "count", "dead_lettered")
_page_out = e.PageOut.getter("state", "first_seq_id", "count")
_page_in = e.PageIn.getter("state", "first_seq_id", "count")
_ram_target = e.RamTarget.getter("target", "ram_messages", "ram_bytes")
_consumer_added = e.ConsumerAdded.getter("flags", "consumer", "prefetch")
_consumer_gone = e.ConsumerGone.getter("reason", "consumer", "held")

_IN_STORE, _PERSISTENT = int(PublishFlag.IN_STORE), int(PublishFlag.PERSISTENT)
_WANTS_CONFIRM = int(PublishFlag.WANTS_CONFIRM)
_NO_ACK, _REDELIVERED = int(DeliverFlag.NO_ACK), int(DeliverFlag.REDELIVERED)
SYNCED = 2
EMBEDDED, IN_PERSISTENT, IN_TRANSIENT = range(3)
"""The places of an entry's body."""
ON_INDEX = frozenset({int(State.GAMMA), int(State.DELTA)})
"""States of messages whose position is on disk."""


def queue_row(scene: Scene, name: str, actor: int) -> tuple[int, int, int, int, int, int]:
    """The table row of a queue; zeros if unknown, or if another process than `actor` owns it (0 = any process)."""
    found: tuple[int, int, int, int, int, int] | None = scene.tables[QUEUE].get(name)
    return found if found is not None and actor in {0, found[0]} else (actor, 0, 0, 0, 0, 0)


@_of(Ev.PUBLISH)
def _taken_in(scene: Scene, actor: int, row: Row) -> Caption:
    flags, sender, send, first, count, sends, size = _publish(row)
    name, message = scene.name(actor), scene.about
    take_mail(scene, actor, sender, send, sends)
    notes = scene.queues[name]
    body = EMBEDDED
    if flags & _IN_STORE:
        body = IN_PERSISTENT if flags & _PERSISTENT else IN_TRANSIENT
    writes = None if not body else notes.writes["p" if body == IN_PERSISTENT else "t"]
    for seq in span(first, count):
        scene.add(
            ENTRY, scene.entry_key(name, seq), (message, "ready", 1, int(seq < notes.written_to), body, size)
        )
        if flags & _PERSISTENT or seq < notes.written_to:
            notes.dirty.append(seq)
        if not flags & _PERSISTENT:
            notes.transient[message] = seq
        if writes is not None:
            writes.append(message)
        if not flags & _WANTS_CONFIRM:
            scene.paid(message)
        scene.landmarks.set(("publish", name, message), scene.number)
        message += 1
    _, _, *rest = queue_row(scene, name, actor)
    scene.set(QUEUE, name, (actor, first + count, *rest))
    scene.move = f"box/{actor}", f"entry/{scene.entry_key(name, first)}"
    words, what = many(scene.about, count)
    if body:
        text = "The body is large, so it will go to the message store."
    elif not flags & _PERSISTENT:
        text = "It is transient: it stays in memory while there is room."
    else:
        text = (
            "The body is small"
            + (", {n4:byte}" if size else "")
            + ", so it stays beside the queue's own index."
        )
    return "{0} takes " + words + " in as number {n3}. " + text, name, *what, first, size


@_of(Ev.CONFIRM)
def _confirmed(scene: Scene, actor: int, row: Row) -> Caption:
    kind, first, count = _confirm(row)
    name, message = scene.name(actor), scene.about
    entries = scene.tables[ENTRY]
    for place, seq in enumerate(span(first, count)):
        found = entries.get(scene.entry_key(name, seq))  # confirmed together need not mean published together
        scene.paid(found[0] if found is not None and found[0] else message + place)
    marks = scene.landmarks
    scene.cause = max(marks.get(("on_disk", name, message + count - 1)), marks.get(("qi_sync", name)))
    actor_, next_seq, confirmed, *rest = queue_row(scene, name, actor)
    scene.set(QUEUE, name, (actor_, next_seq, confirmed + count, *rest))
    key = scene.entry_key(name, first)
    scene.move = (f"entry/{key}" if key in scene.tables[ENTRY] else f"queue/{name}"), "pub"
    scene.mark = CONFIRM
    words, what = many(message, count)
    if kind == ConfirmKind.NACK:
        return "{0} must say no to " + words + ": it does not have it.", name, *what
    if kind == ConfirmKind.TRANSIENT:
        return "{0} confirms " + words + " at once: nothing has to survive.", name, *what
    text = "{0} confirms " + words + ": body and index entry are safe"
    if message in scene.tables[OWED]:
        return text + ". The publisher still waits for another queue.", name, *what
    return text + " on disk.", name, *what


@_of(Ev.DELIVER)
def _delivered(scene: Scene, actor: int, row: Row) -> Caption:
    flags, consumer, first, count = _deliver(row)
    name = scene.name(actor)
    gone = flags & _NO_ACK
    for seq, key, (message, _, *rest) in scene.entries(name, first, count):
        scene.about = scene.about or message
        if gone:
            _leaves(scene, name, seq, key, (message, "acked", *rest))
        else:
            scene.add(ENTRY, key, (message, "unacked", *rest))
    scene.move = f"entry/{scene.entry_key(name, first)}", f"con/{consumer}"
    scene.spend("acknowledged" if gone else "delivered", count)
    words, what = many(scene.about, count)
    again = ", again" if flags & _REDELIVERED else ""
    if gone:
        text = " to a consumer that does not acknowledge: with that it is gone from the queue."
        return "{0} gives " + words + again + text, name, *what
    keeps = (
        " and keeps it until it is acknowledged."
        if count <= 1
        else " and keeps them until they are acknowledged."
    )
    return "{0} delivers " + words + again + keeps, name, *what


def _leaves(scene: Scene, name: str, seq: int, key: str, value: tuple[Any, ...]) -> None:
    """Settle a message: its ack record and store remove become pending, and old settled messages leave the picture."""
    message, state, place, index, body, size = value
    notes = scene.queues[name]
    if index:
        notes.dirty.append(seq)
    # a message whose publish was never written needs no ack record
    scene.set(ENTRY, key, (message, state, place, 0 if index else SYNCED, body, size))
    scene.landmarks.set(("gone", name, message), scene.number)
    notes.transient.pop(message, None)
    if body and message:
        notes.removes["p" if body == IN_PERSISTENT else "t"][message] = None
    notes.acked.append(seq)
    while len(notes.acked) > ACKED_KEPT and _forgotten(scene, name, notes):
        pass


def _forgotten(scene: Scene, name: str, notes: QueueNotes) -> bool:
    """Remove the oldest settled message; False if its ack is not on disk yet, as a crash would bring it back."""
    key = scene.entry_key(name, notes.acked[0])
    found = scene.tables[ENTRY].get(key)
    if found is not None and found[1] in {"acked", "dropped"}:
        if found[3] != SYNCED:
            return False
        scene.set(ENTRY, key, None)
    notes.acked.popleft()
    return True


@_of(Ev.ACK)
def _acked(scene: Scene, actor: int, row: Row) -> Caption:
    sender, send, first, count = _ack(row)
    name = scene.name(actor)
    take_mail(scene, actor, sender, send)
    for seq, key, (message, _, *rest) in scene.entries(name, first, count):
        scene.about = scene.about or message
        _leaves(scene, name, seq, key, (message, "acked", *rest))
    scene.move = "con", f"entry/{scene.entry_key(name, first)}"
    scene.spend("acknowledged", count)
    words, what = many(scene.about, count)
    return "The consumer acknowledges " + words + ": {0} is done with it.", name, *what


@_of(Ev.REQUEUE)
def _requeued(scene: Scene, actor: int, row: Row) -> Caption:
    cause, first, count = _requeue(row)
    name = scene.name(actor)
    to_memory = _memory_ends(scene, name, first, count)
    for seq, key, (message, _, place, *rest) in scene.entries(name, first, count):
        scene.set(ENTRY, key, (message, "ready", 1 if seq < to_memory else place, *rest))
        scene.about = scene.about or message
    scene.move = "con", f"entry/{scene.entry_key(name, first)}"
    words, what = many(scene.about, count)
    why = ": the consumer that held it is gone" if cause == e.Settle.RETURNED else ""
    return "{0} puts " + words + " back to its old place" + why + ".", name, *what


def _memory_ends(scene: Scene, name: str, first: int, count: int) -> int:
    """The sequence id below which a classic queue requeues to memory: that of its first beta, gamma or delta."""
    if not is_classic(scene):
        return 0
    entries, end = scene.tables[ENTRY], queue_row(scene, name, 0)[1]
    ends = end
    for seq in span(first + count, end - first - count):
        found = entries.get(scene.entry_key(name, seq))
        if found is not None and found[1] == "ready" and found[2] > 1:
            ends = seq
            break
    for seq in range(first - 1, -1, -1):
        found = entries.get(scene.entry_key(name, seq))
        if found is None:
            break
        if found[1] == "ready" and found[2] > 1:
            ends = seq
    return ends


def is_classic(scene: Scene) -> bool:
    """True if queues page to disk as in RabbitMQ 3.6."""
    run = scene.tables[RUN].get("run")
    return run is not None and run[3] == e.Profile.CLASSIC


@_of(Ev.DROP)
def _dropped(scene: Scene, actor: int, row: Row) -> Caption:
    reason, first, count, dead_lettered = _drop(row)
    name = scene.name(actor)
    for seq, key, (message, _, *rest) in scene.entries(name, first, count):
        scene.about = scene.about or message
        _leaves(scene, name, seq, key, (message, "dropped", *rest))
    words, what = many(scene.about, count)
    why = words_of(e.DropReason, reason, "no reason is given")
    copy = " A copy goes to the dead-letter exchange." if dead_lettered else ""
    return "{0} drops " + words + ": " + why + "." + copy, name, *what


# -- memory


def _paged(scene: Scene, actor: int, state: int, first: int, count: int) -> tuple[str, str, tuple[int, ...]]:
    name = scene.name(actor)
    notes = scene.queues[name]
    for seq, key, (message, what, _, index, *body) in scene.entries(name, first, count):
        scene.about = scene.about or message
        if state in ON_INDEX and not index:
            notes.dirty.append(seq)
        scene.set(ENTRY, key, (message, what, state, index, *body))
    scene.cause = scene.last_of.get(actor, scene.cause)
    return name, *many(scene.about, count)


@_of(Ev.PAGE_OUT)
def _paged_out(scene: Scene, actor: int, row: Row) -> Caption:
    state, first, count = _page_out(row)
    name, words, what = _paged(scene, actor, state, first, count)
    return "{0} lets go of " + words + " in memory: " + _state(state) + ".", name, *what


@_of(Ev.PAGE_IN)
def _paged_in(scene: Scene, actor: int, row: Row) -> Caption:
    state, first, count = _page_in(row)
    name, words, what = _paged(scene, actor, state, first, count)
    return "{0} brings " + words + " back to memory: " + _state(state) + ".", name, *what


def _state(state: int) -> str:
    return words_of(State, state, f"state {state}")


@_of(Ev.RAM_TARGET)
def _target_set(scene: Scene, actor: int, row: Row) -> Caption:
    target, messages, size = _ram_target(row)
    name = scene.name(actor)
    scene.set(RAM, name, (target, messages, size))
    scene.cause = scene.last_of.get(actor, scene.cause)
    if target < 0:
        return (
            "{0} has {n1:message} in memory, {n2:byte}, and may keep as many as there are.",
            name,
            messages,
            size,
        )
    return "{0} has {n1:message} in memory, {n2:byte}, and may keep {n3}.", name, messages, size, target


# -- consumers


@_of(Ev.CONSUMER_ADDED)
def _consumer_added_(scene: Scene, actor: int, row: Row) -> Caption:
    flags, consumer, prefetch = _consumer_added(row)
    name = scene.name(actor)
    scene.set(CONSUMER, consumer, (name, prefetch, int(bool(flags & e.NO_ACK))))
    limit = "as many messages as there are" if not prefetch else "at most {n2:message} unacked at a time"
    return "{0} has a new consumer, {1}; it takes " + limit + ".", name, f"consumer {consumer}", prefetch


@_of(Ev.CONSUMER_GONE)
def _consumer_gone_(scene: Scene, actor: int, row: Row) -> Caption:
    reason, consumer, held = _consumer_gone(row)
    scene.set(CONSUMER, consumer, None)
    words = words_of(e.ConsumerEnd, reason, "is gone")
    return (
        "{0}, a consumer of {1}, " + words + ". It held {n2:message}.",
        f"Consumer {consumer}",
        scene.name(actor),
        held,
    )
