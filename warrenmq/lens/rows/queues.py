"""Rows of queue processes: publishes, deliveries, acks, consumers, paging."""

from __future__ import annotations

from typing import Any

from warrenmq.lens.rows.handler import Handlers, it, many, take_mail
from warrenmq.lens.rows.handler import words as words_of
from warrenmq.lens.scene import ACKED_KEPT, ActorNotes, QueueNotes, Scene, entry_key, span
from warrenmq.lens.tables import CONFIRM, CONSUMER, ENTRY, OWED, QUEUE, RAM, RUN, Caption
from warrenmq.trace import events as e
from warrenmq.trace.events import ConfirmKind, DeliverFlag, Ev, PublishFlag, State
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_publish = e.Publish.getter("flags", "publisher", "send", "first_seq_id", "count")
_packed_publish = e.Publish.getter("sends", "body_size")
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
def _taken_in(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    flags, sender, send, first, count = _publish(row)
    sends, size = _packed_publish(row)
    name, message = me.name, scene.about
    take_mail(scene, me, sender, send, sends)
    notes = scene.queues[name]
    persistent, body = flags & _PERSISTENT, EMBEDDED
    if flags & _IN_STORE:
        body = IN_PERSISTENT if persistent else IN_TRANSIENT
    writes = None if not body else notes.writes["p" if persistent else "t"]
    for seq in span(first, count):
        key, is_written = entry_key(name, seq), seq < notes.written_to
        scene.add(ENTRY, key, (message, "ready", 1, int(is_written), body, size))
        if persistent or is_written:
            notes.dirty[seq] = key
        if not persistent:
            notes.transient[message] = seq
        if writes is not None:
            writes.append(message)
        if body or not persistent:  # it may be sent to a store
            scene.latest_rows.set(("publish", name, message), scene.number)
        if flags & _WANTS_CONFIRM:
            notes.unconfirmed[seq] = message
        else:
            scene.unasked(message)
        message += 1
    _, _, confirmed, written, synced, version = queue_row(scene, name, me.number)
    scene.set(QUEUE, name, (me.number, first + count, confirmed, written, synced, version))
    scene.move = me.anchor, f"entry/{entry_key(name, first)}"
    one = count <= 1
    if body:
        text = "The body is large, so it" if one else "The bodies are large, so they"
        text += " will go to the message store."
    elif not persistent:
        text = "It is transient: it stays" if one else "They are transient: they stay"
        text += " in memory while there is room."
    else:
        text = "The body is small" if one else "The bodies are small"
        if size:
            text += ", {n4:byte}" if one else ", {n4:byte} on average"
        text += f", so {'it stays' if one else 'they stay'} beside the queue's own index."
    words = many(count)
    return f"{{0}} takes {words} in as number {{n3}}. {text}", name, scene.about, count, first, size


@_of(Ev.CONFIRM)
def _confirmed(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    kind, first, count = _confirm(row)
    name, message = me.name, scene.about
    entries, unconfirmed = scene.tables[ENTRY], scene.queues[name].unconfirmed
    answer = scene.nacked if kind == ConfirmKind.NACK else scene.confirmed
    for place, seq in enumerate(span(first, count)):
        # confirmed together need not mean published together
        answer(unconfirmed.pop(seq, 0 if place else message))
    marks = scene.latest_rows
    scene.cause = max(marks.get(("on_disk", name, message + count - 1)), marks.get(("qi_sync", name)))
    actor, next_seq, confirmed, written, synced, version = queue_row(scene, name, me.number)
    scene.set(QUEUE, name, (actor, next_seq, confirmed + count, written, synced, version))
    key = entry_key(name, first)
    scene.move = (f"entry/{key}" if key in entries else f"queue/{name}"), "pub"
    scene.mark = CONFIRM
    words = many(count)
    if kind == ConfirmKind.NACK:
        text = "must say no to " + words + f": it does not have {it(count)}."
    elif kind == ConfirmKind.TRANSIENT:
        text = "confirms " + words + " at once: nothing has to survive."
    else:
        where = "safe on disk" if scene.syncs else "with the system"
        waits = " The publisher still waits for another queue." if message in scene.tables[OWED] else ""
        text = f"confirms {words}: body and index entry are {where}.{waits}"
    return "{0} " + text, name, message, count


@_of(Ev.DELIVER)
def _delivered(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    flags, consumer, first, count = _deliver(row)
    name = me.name
    gone = flags & _NO_ACK
    for seq, key, value in scene.entries(name, first, count):
        scene.about = scene.about or value[0]
        if gone:
            _leaves(scene, name, seq, key, value, "acked")
        else:
            message, _, place, index, body, size = value
            scene.add(ENTRY, key, (message, "unacked", place, index, body, size))
    scene.move = f"entry/{entry_key(name, first)}", f"con/{consumer}"
    scene.spend("acknowledged" if gone else "delivered", count)
    words = many(count)
    again = " again" if flags & _REDELIVERED else ""
    if gone:
        text = f" to a consumer that does not acknowledge: with that {'it is' if count <= 1 else 'they are'} gone from the queue."
        return f"{{0}} gives {words}{again}{text}", name, scene.about, count
    until = "it is" if count <= 1 else "they are"
    keeps = f", and keeps {it(count)} until {until} acknowledged."
    return f"{{0}} delivers {words}{again}{keeps}", name, scene.about, count


def _leaves(scene: Scene, name: str, seq: int, key: str, value: tuple[Any, ...], state: str) -> None:
    """Settle a message: its ack record and store remove become pending, and old settled messages leave the picture."""
    message, _, place, index, body, size = value
    notes = scene.queues[name]
    if index:
        notes.dirty[seq] = key
    # a message whose publish was never written needs no ack record
    scene.set(ENTRY, key, (message, state, place, 0 if index else SYNCED, body, size))
    scene.latest_rows.set(("gone", name, message), scene.number)
    notes.transient.pop(message, None)
    if body and message:
        notes.removes["p" if body == IN_PERSISTENT else "t"][message] = None
    notes.acked.append((seq, key))
    while len(notes.acked) > ACKED_KEPT and _forgotten(scene, notes):
        pass


def _forgotten(scene: Scene, notes: QueueNotes) -> bool:
    """Remove the oldest settled message; False if its ack is not on disk yet, as a crash would bring it back."""
    _, key = notes.acked[0]
    found = scene.tables[ENTRY].get(key)
    if found is not None and found[1] in {"acked", "dropped"}:
        if found[3] != SYNCED:
            return False
        scene.set(ENTRY, key, None)
    notes.acked.popleft()
    return True


@_of(Ev.ACK)
def _acked(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    sender, send, first, count = _ack(row)
    name = me.name
    take_mail(scene, me, sender, send)
    for seq, key, value in scene.entries(name, first, count):
        scene.about = scene.about or value[0]
        _leaves(scene, name, seq, key, value, "acked")
    scene.move = "con", f"entry/{entry_key(name, first)}"
    scene.spend("acknowledged", count)
    words = many(count)
    return f"The consumer acknowledges {words}: {{0}} is done with {it(count)}.", name, scene.about, count


@_of(Ev.REQUEUE)
def _requeued(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    cause, first, count = _requeue(row)
    name = me.name
    to_memory, lets_go = _memory_ends(scene, name, first, count), not is_classic(scene)
    for seq, key, (message, _, place, index, body, size) in scene.entries(name, first, count):
        state = place
        if seq < to_memory:
            state = int(State.ALPHA)
        elif lets_go and _is_stored(scene, name, seq, index, body):
            state = int(State.GAMMA)
        scene.set(ENTRY, key, (message, "ready", state, index, body, size))
        scene.about = scene.about or message
    scene.move = "con", f"entry/{entry_key(name, first)}"
    words = many(count)
    why = ": the consumer that held it is gone" if cause == e.Settle.RETURNED else ""
    place = "its old place" if count <= 1 else "their old places"
    return "{0} puts " + words + f" back to {place}" + why + ".", name, scene.about, count


def _is_stored(scene: Scene, name: str, seq: int, index: int, body: int) -> bool:
    """True if a store has the body, so that a queue which reads ahead let go of it when the message was delivered; that of
    a transient message only if it has been in the tail, and so has an index entry, perhaps one that is not written.
    """
    return body == IN_PERSISTENT or (body == IN_TRANSIENT and (index > 0 or seq in scene.queues[name].dirty))


def _memory_ends(scene: Scene, name: str, first: int, count: int) -> int:
    """The sequence id below which a classic queue requeues to memory: that of its first beta, gamma or delta."""
    if not is_classic(scene):
        return 0
    entries, end = scene.tables[ENTRY], queue_row(scene, name, 0)[1]
    ends = end
    for seq in span(first + count, end - first - count):
        found = entries.get(entry_key(name, seq))
        if found is not None and found[1] == "ready" and found[2] > 1:
            ends = seq
            break
    for seq in range(first - 1, -1, -1):
        found = entries.get(entry_key(name, seq))
        if found is None:
            break
        if found[1] == "ready" and found[2] > 1:
            ends = seq
    return ends


def is_classic(scene: Scene) -> bool:
    """True if queues page to disk as in RabbitMQ up to 3.11."""
    run = scene.tables[RUN].get("run")
    return run is not None and run[3] == e.Profile.CLASSIC


@_of(Ev.DROP)
def _dropped(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    reason, first, count, dead_lettered = _drop(row)
    name = me.name
    for seq, key, value in scene.entries(name, first, count):
        scene.about = scene.about or value[0]
        _leaves(scene, name, seq, key, value, "dropped")
    words = many(count)
    why = words_of(e.DropReason, reason, "no reason is given")
    copy = " A copy goes to the dead-letter exchange." if dead_lettered else ""
    return "{0} drops " + words + ": " + why + "." + copy, name, scene.about, count


# -- memory


def _paged(scene: Scene, me: ActorNotes, state: int, first: int, count: int) -> None:
    on_index = state in ON_INDEX
    for seq, key, (message, what, _, index, body, size) in scene.entries(me.name, first, count):
        scene.about = scene.about or message
        if on_index and not index:
            scene.queues[me.name].dirty[seq] = key
        scene.set(ENTRY, key, (message, what, state, index, body, size))
    scene.cause = me.last or scene.cause


@_of(Ev.PAGE_OUT)
def _paged_out(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    state, first, count = _page_out(row)
    _paged(scene, me, state, first, count)
    return f"{{0}} lets go of {many(count)} in memory: {_state(state)}.", me.name, scene.about, count


@_of(Ev.PAGE_IN)
def _paged_in(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    state, first, count = _page_in(row)
    _paged(scene, me, state, first, count)
    return f"{{0}} brings {many(count)} back to memory: {_state(state)}.", me.name, scene.about, count


def _state(state: int) -> str:
    return words_of(State, state, f"state {state}")


@_of(Ev.RAM_TARGET)
def _target_set(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    target, messages, size = _ram_target(row)
    name = me.name
    scene.set(RAM, name, (target, messages, size))
    scene.cause = me.last or scene.cause
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
def _consumer_added_(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    flags, consumer, prefetch = _consumer_added(row)
    name = me.name
    scene.set(CONSUMER, consumer, (name, prefetch, int(bool(flags & e.NO_ACK))))
    limit = "as many messages as there are" if not prefetch else "at most {n2:message} unacked at a time"
    return "{0} has a new consumer, {1}; it takes " + limit + ".", name, f"consumer {consumer}", prefetch


@_of(Ev.CONSUMER_GONE)
def _consumer_gone_(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    reason, consumer, held = _consumer_gone(row)
    scene.set(CONSUMER, consumer, None)
    words = words_of(e.ConsumerEnd, reason, "is gone")
    return (
        "{0}, a consumer of {1}, " + words + ". It held {n2:message}.",
        f"Consumer {consumer}",
        me.name,
        held,
    )
