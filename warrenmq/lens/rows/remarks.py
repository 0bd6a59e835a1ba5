"""Rows that have a caption and change little or nothing in the picture: limits, expiry, rest, nacks, a deletion that begins."""

from __future__ import annotations

from warrenmq.lens.rows.handler import Handlers, it, many, words
from warrenmq.lens.scene import ActorNotes, Scene, entry_key, span
from warrenmq.lens.tables import ENTRY, Caption
from warrenmq.trace import events as e
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_channel_limit = e.ChannelLimit.getter("scope", "prefetch")
_queue_limits = e.QueueLimits.getter("overflow", "max_length", "max_length_bytes", "single_active")
_expiry = e.Expiry.getter("first_seq_id", "count")
_queue_rests = e.QueueRests.getter("ready", "with_room", "consumers")
_nacks = e.Nacks.getter("queue", "count")


@_of(Ev.CHANNEL_LIMIT)
def _channel_limited(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    scope, prefetch = _channel_limit(row)
    which = words(e.QosScope, scope, "")
    limit = "no limit" if not prefetch else "{n1:message} unacked at a time"
    return "{0} is given a prefetch count: " + limit + f" {which}.", me.name, prefetch


@_of(Ev.QUEUE_LIMITS)
def _limits_told(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    overflow, messages, size, alone = _queue_limits(row)
    said = []
    if messages >= 0:
        said.append("at most {n1:message}")
    if size >= 0:
        said.append("at most {n2:byte}")
    if said:
        said.append(f"when full, {words(e.Overflow, overflow, 'it drops some')}")
    if alone:
        said.append("one consumer at a time is active")
    return "{0} has its arguments: " + "; ".join(said) + ".", me.name, messages, size


@_of(Ev.EXPIRY)
def _expires(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    first, count = _expiry(row)
    name = me.name
    found = scene.tables[ENTRY].get(entry_key(name, first))
    if found is None or not found[0]:
        return "{0} notes when {n1:message} from number {n2} on will expire.", name, count, first
    scene.about = found[0]
    return "{0} notes when " + many(count) + " will expire.", name, scene.about, count


@_of(Ev.QUEUE_RESTS)
def _rests(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    ready, room, consumers = _queue_rests(row)
    if not consumers:
        return "{0} has nothing to do: {n1:message} ready, and no consumer.", me.name, ready
    return (
        "{0} has nothing to do: {n1:message} ready, and {n2} of {n3:consumer} with room.",
        me.name,
        ready,
        room,
        consumers,
    )


@_of(Ev.NACKED)
def _nacked(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    queue, count = _nacks(row)
    for message in span(scene.about, count):
        scene.nacked(message)
    if queue == me.number:
        return (
            "{0} tells the publishers of " + many(count) + " that it cannot write " + it(count) + " now.",
            me.name, scene.about, count,
        )  # fmt: skip
    return (
        "The publishers of " + many(count) + " are told that {0} ended before it confirmed " + it(count) + ".",
        scene.actor(queue).name, scene.about, count,
    )  # fmt: skip


@_of(Ev.QUEUE_DELETED)
def _queue_deleted(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    if not me.is_met:  # no process, and perhaps there is none that says what goes with the queue
        for key, _ in scene.entries_of(me.name):
            scene.set(ENTRY, key, None)
    return "{0} is deleted: from here on nothing of it has to be there after a restart.", me.name
