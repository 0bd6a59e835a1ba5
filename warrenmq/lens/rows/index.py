"""Rows of a queue's index on disk: journal, segments, syncs, and recovery."""

from __future__ import annotations

from typing import Any

from warrenmq.lens.rows.handler import Handlers
from warrenmq.lens.rows.queues import SYNCED, is_classic, queue_row
from warrenmq.lens.scene import ActorNotes, Scene, entry_key, span
from warrenmq.lens.tables import ENTRY, JOURNAL, QUEUE, RECOVERY, RUN, SYNC, Caption
from warrenmq.trace import events as e
from warrenmq.trace.events import PRIORITY_SHIFT, BodyReport, Ev, State, Trigger
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_qi_write = e.QiWrite.getter("trigger", "size", "records", "first", "published", "acked")
_qi_sync = e.QiSync.getter("trigger", "size")
_flush = e.QiFlush.getter("segments", "size", "restarted")
_queue_recovered = e.QueueRecovered.getter("recovery", "messages", "next_seq_id", "dropped")
_recovered = e.Recovered.getter("first_seq_id", "count", "message")
_on_disk = e.OnDisk.getter("report")
WHY = {
    int(Trigger.BUFFER_FULL): "its buffer is full",
    int(Trigger.TIMER): "its timer rang",
    int(Trigger.MAILBOX_EMPTY): "its mailbox is empty",
    int(Trigger.ROLL_OVER): "the file is full",
    int(Trigger.CLOSE): "it closes",
    int(Trigger.READ): "somebody wants to read it",
    int(Trigger.JOURNAL_FLUSH): "the journal moves to segment files",
}
WRITTEN = 1


def because(trigger: int) -> str:
    """The reason of a write or a sync as a part of a sentence."""
    return f", because {WHY[trigger]}" if trigger in WHY else ""


@_of(Ev.QI_WRITE)
def _written(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    trigger, size, records, first, published, acked = _qi_write(row)
    name = me.name
    publishes, acks = _unwritten(scene, name, first)
    if published or acked:  # else an earlier version wrote the row
        to_come = published - len(publishes)
        publishes, acks = publishes[:published], acks[:acked]
        # an index of version 1 writes what was acked meanwhile, too
        if to_come > 0 and not is_classic(scene):
            scene.queues[name].written_to = max(queue_row(scene, name, me.number)[1], first) + to_come
    its = publishes + acks
    for key, (message, state, place, _, body, bytes_) in its:
        scene.add(ENTRY, key, (message, state, place, WRITTEN, body, bytes_))
    if len(its) == 1:
        scene.move = me.anchor, f"entry/{its[0][0]}"
    old = queue_row(scene, name, me.number)
    scene.set(QUEUE, name, (*old[:3], old[3] + size, *old[4:]))
    if (journal := scene.tables[JOURNAL].get(name)) is not None:
        scene.set(JOURNAL, name, (journal[0] + records, journal[1]))
    scene.spend("index bytes", size)
    scene.latest_rows.set(("qi_write", name), scene.number)
    scene.cause = me.last or scene.cause
    what = ", ".join(text for number, text in ((published, "{n3:message}"), (acked, "{n4:ack}")) if number)
    which = f" ({what}, from number {{n5}} on)" if what else ""
    return (
        "{0} hands {n1:index record}" + which + ", {n2:byte}, to the operating system" + because(trigger)
        + ". Nothing of it is safe yet.",
        name, records, size, published, acked, first,
    )  # fmt: skip


_Found = list[tuple[str, tuple[Any, ...]]]


def _unwritten(scene: Scene, name: str, first: int) -> tuple[_Found, _Found]:
    """Entries (key, value) from `first` on, of its priority, whose publishes and whose acks are in no file yet; ascending."""
    publishes: _Found = []
    acks: _Found = []
    entries = scene.tables[ENTRY]
    dirty = scene.queues[name].dirty
    end = (first >> PRIORITY_SHIFT) + 1 << PRIORITY_SHIFT
    for seq in sorted(dirty):
        if first <= seq < end and (found := entries.get(key := dirty[seq])) is not None and not found[3]:
            (acks if found[1] in {"acked", "dropped"} else publishes).append((key, found))
    return publishes, acks


@_of(Ev.QI_SYNC)
def _synced(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    trigger, size = _qi_sync(row)
    name = me.name
    notes, entries = scene.queues[name], scene.tables[ENTRY]
    left: dict[int, str] = {}
    for seq, key in notes.dirty.items():
        found = entries.get(key)
        if found is None:
            continue
        message, state, place, index, body, bytes_ = found
        if not index:
            left[seq] = key
        elif index == WRITTEN:
            scene.add(ENTRY, key, (message, state, place, SYNCED, body, bytes_))
            scene.about = scene.about or message
    notes.dirty = left
    old = queue_row(scene, name, me.number)
    scene.set(QUEUE, name, (*old[:4], old[3], old[5]))
    scene.cause = scene.latest_rows.get(("qi_write", name), scene.cause)
    scene.latest_rows.set(("qi_sync", name), scene.number)
    if not scene.syncs:
        return (
            "{0} need not sync its index, with durability os: the system has {n1:byte} more of it.",
            name,
            size,
        )
    scene.spend("syncs")
    scene.mark = SYNC
    if not size:
        return "{0} syncs its index: nothing new was in it.", name
    return "{0} syncs its index" + because(trigger) + ": {n1:byte} are safe on disk.", name, size


@_of(Ev.QI_FLUSH)
def _flushed(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    segments, size, restarted = _flush(row)
    name = me.name
    records, written = scene.tables[JOURNAL].get(name) or (0, 0)
    old = queue_row(scene, name, me.number)
    scene.set(QUEUE, name, (*old[:5], 1))
    scene.set(JOURNAL, name, (0 if restarted else records, written + segments))
    scene.cause = me.last or scene.cause
    end = " The journal begins anew." if restarted else ""
    return (
        "{0} moves what its journal holds to {n1:segment file}, {n2:byte}." + end, name, segments, size,
    )  # fmt: skip


@_of(Ev.SEGMENT_DELETE)
def _segment_deleted(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    segment = e.SegmentDelete.of(row).segment
    name = me.name
    size = segment_entries(scene, name)
    if size:
        entries = scene.tables[ENTRY]
        for seq, key in sorted(scene.queues[name].acked):
            if seq // size == segment and key in entries and entries[key][1] in {"acked", "dropped"}:
                scene.set(ENTRY, key, None)
    return "{0} deletes segment {n1} of its index: nothing in it is wanted any more.", name, segment


def segment_entries(scene: Scene, name: str) -> int:
    """The number of entries in a segment of a queue's index; 0 = the trace does not say."""
    settings = scene.tables[RUN].get("settings")
    if settings is None:
        return 0
    queue = scene.tables[QUEUE].get(name)
    entries: int = settings[2] if queue is not None and queue[5] == 1 else settings[3]
    return entries


@_of(Ev.ON_DISK)
def _told_on_disk(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    (report,) = _on_disk(row)
    name = me.name
    scene.latest_rows.set(("on_disk", name, scene.about), scene.number)
    scene.cause = scene.latest_rows.get(("told", me.number, scene.about), scene.cause)
    if report == BodyReport.IGNORED:
        return "{0} hears that the body of {m1} never needs to be written.", name, scene.about
    if not scene.syncs:
        return "{0} hears that the system has the body of {m1}.", name, scene.about
    return "{0} hears that the body of {m1} is safe.", name, scene.about


# -- recovery and the end


@_of(Ev.RECOVERED)
def _found(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    first, count, named = _recovered(row)
    name = me.name
    entries = scene.tables[ENTRY]
    for seq in span(first, count):
        key = entry_key(name, seq)
        message, _, _, _, *body = entries.get(key) or (
            scene.message(named + seq - first) if named else 0,
            "",
            0,
            0,
            0,
            0,
        )
        scene.set(ENTRY, key, (message, "ready", int(State.DELTA), SYNCED, *body))
        scene.about = scene.about or message
    scene.move = "", f"entry/{entry_key(name, first)}"
    return "{0} finds {n1:message} in its index, from number {n2} on.", name, count, first


@_of(Ev.QUEUE_RECOVERED)
def _queue_is_up(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    _, messages, next_seq, dropped = _queue_recovered(row)
    name = me.name
    for key, value in scene.entries_of(name):
        if value[1] == "asleep":
            scene.set(ENTRY, key, None)
    if is_classic(scene) and messages:
        _read_first_segment(scene, name, next_seq)
    scene.set(QUEUE, name, (me.number, next_seq, 0, 0, 0, 0))
    if messages or next_seq:
        scene.mark = RECOVERY
        return "{0} is back with {n1:message}, and dropped {n2}.", name, messages, dropped
    return "{0} is there, an empty queue.", name


def _read_first_segment(scene: Scene, name: str, end: int) -> None:
    """Load the positions of a classic queue's first index segment into memory, as its recovery does."""
    size = scene.tables[RUN]["settings"][2]
    first = next((seq for seq, *_ in scene.entries(name, 0, end)), end)
    if not size:
        return
    for _, key, (message, state, _, *rest) in scene.entries(name, first, size - first % size):
        scene.set(ENTRY, key, (message, state, int(State.GAMMA), *rest))


@_of(Ev.QUEUE_CLOSED)
def _queue_closed(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    name = me.name
    for key, value in scene.entries_of(name):
        scene.set(ENTRY, key, (*value[:3], SYNCED, *value[4:]))
    scene.queues[name].closed = True
    where = "on disk" if scene.syncs else "with the system"
    return "{0} stops with {n1:message}, all of them " + where + ".", name, e.QueueClosed.of(row).messages
