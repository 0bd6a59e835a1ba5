"""Rows of garbage collectors: files combined, or compacted in place."""

from __future__ import annotations

from typing import Any

from warrenmq.lens.rows.handler import Handlers
from warrenmq.lens.rows.stores import forget_places
from warrenmq.lens.scene import ActorNotes, Scene
from warrenmq.lens.tables import COLLECT, FILE, GC, REC, Caption
from warrenmq.trace import events as e
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_gc_start = e.GcStart.getter("destination", "source", "valid_size")
_gc_move = e.GcMove.getter("file", "offset", "size")
_gc_done = e.GcDone.getter("destination", "source", "reclaimed")
_compact_start = e.CompactStart.getter("file", "valid_size", "end")
_compact_move = e.CompactMove.getter("file", "old_offset", "new_offset", "size")
_compact_done = e.CompactDone.getter("file", "new_size", "copied")
_truncate = e.Truncate.getter("file", "new_size", "size")


def _state(scene: Scene, store: str, file: int, state: str) -> None:
    scene.set(FILE, f"{store}/{file}", (*scene.file(store, file)[:4], state))


def _place(scene: Scene, store: str, file: int, offset: int, value: tuple[Any, ...]) -> None:
    """Write a record over garbage; garbage that it covers in part is cut."""
    end, where = offset + value[1], scene.stores[store].where
    for at, (message, size, references, _) in scene.records(store, file):
        stop = at + size
        if references or stop <= offset or at >= end:
            continue
        scene.drop_record(store, file, at)
        if where.get(message) == (file, at):
            del where[message]
        if at < offset:
            scene.put_record(store, file, at, (0, offset - at, 0, ""))
        if stop > end:
            scene.put_record(store, file, end, (0, stop - end, 0, ""))
    scene.put_record(store, file, offset, value)


def _copied(scene: Scene, me: ActorNotes, store: str, size: int) -> None:
    file, destination, wanted, done = scene.tables[GC].get(store) or (0, 0, 0, 0)
    scene.set(GC, store, (file, destination, wanted, done + size))
    scene.spend("bytes copied", size)
    scene.mark = COLLECT
    scene.cause = me.last or scene.cause


# -- combined: RabbitMQ to 3.12


@_of(Ev.GC_START)
def _combine_begins(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    destination, source, valid = _gc_start(row)
    store = me.store
    scene.set(GC, store, (source, destination, valid, 0))
    for file in {destination, source}:
        _state(scene, store, file, "compacting")
    scene.mark = COLLECT
    if destination == source:
        return "The collector rewrites {n0}.rdq: {n1:byte} of it are alive.", destination, valid
    return (
        "The collector combines {n0}.rdq and {n1}.rdq: {n2:byte} in both are alive.",
        destination,
        source,
        valid,
    )


@_of(Ev.GC_MOVE)
def _combine_moves(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, offset, size = _gc_move(row)
    store, message = me.store, scene.about
    notes = scene.stores[store]
    references = 1
    if (before := notes.where.get(message)) is not None and before != (file, offset):
        key = f"{store}/{before[0]}/{before[1]}"
        references = (scene.tables[REC].get(key) or (message, size, 1, ""))[2]
        scene.set(REC, key, (message, size, 0, "old place"))
        scene.move = f"rec/{key}", f"rec/{store}/{file}/{offset}"
    _place(scene, store, file, offset, (message, size, references, "moved"))
    notes.where[message] = file, offset
    _copied(scene, me, store, size)
    return "{m0} has a new place: {n1}.rdq, byte {n2}.", message, file, offset


@_of(Ev.GC_DONE)
def _combine_ends(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    destination, source, reclaimed = _gc_done(row)
    store = me.store
    scene.set(GC, store, None)
    for file in (destination, source):
        for offset, (message, _, references, _) in scene.records(store, file):
            if not references:
                if scene.stores[store].where.get(message) == (file, offset):
                    del scene.stores[store].where[message]
                scene.drop_record(store, file, offset)
    end = max((at + value[1] for at, value in scene.records(store, destination)), default=0)
    scene.set(FILE, f"{store}/{destination}", (end, end, end, 0, "locked"))
    if source != destination:
        scene.cut_file(store, source, 0)
        scene.set(FILE, f"{store}/{source}", None)
    scene.spend("bytes given back", reclaimed)
    scene.mark = COLLECT
    scene.cause = me.last or scene.cause
    return (
        "The combined file is on disk: {n0}.rdq holds what was alive, {n1:byte} are given back.",
        destination,
        reclaimed,
    )


# -- compacted in place: RabbitMQ from 3.13


@_of(Ev.COMPACT_START)
def _compaction_begins(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, valid, end = _compact_start(row)
    store = me.store
    scene.set(GC, store, (file, file, 0, 0))
    _state(scene, store, file, "compacting")
    scene.mark = COLLECT
    return (
        "Compaction of {n0}.rdq begins: of {n1:byte} only {n2} are alive. Records from its end move into its holes.",
        file, end, valid,
    )  # fmt: skip


@_of(Ev.COMPACT_MOVE)
def _compaction_moves(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, old, new, size = _compact_move(row)
    store, message = me.store, scene.about
    notes = scene.stores[store]
    key = f"{store}/{file}/{old}"
    references = (scene.tables[REC].get(key) or (message, size, 1, ""))[2]
    if notes.where.get(message) == (file, old):
        notes.where[message] = file, new
    else:
        references = 0  # it lost its last reference meanwhile: a copy of garbage
    scene.put_record(store, file, old, (message, size, 0, "old place"))
    _place(scene, store, file, new, (message, size, references, "moved"))
    _copied(scene, me, store, size)
    scene.move = f"rec/{key}", f"rec/{store}/{file}/{new}"
    return (
        "The collector copies {m0} from byte {n1} into the hole at byte {n2}. Whoever reads the old place still may.",
        message, old, new,
    )  # fmt: skip


@_of(Ev.COMPACT_DONE)
def _compaction_ends(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, new_size, _ = _compact_done(row)
    store = me.store
    scene.set(GC, store, None)
    scene.mark = COLLECT
    scene.cause = me.last or scene.cause
    return (
        "The copies are on disk. {n0}.rdq can be cut at byte {n1}, once nobody reads the old places.",
        file,
        new_size,
    )


@_of(Ev.TRUNCATE)
def _cut(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, new_size, size = _truncate(row)
    store = me.store
    forget_places(scene, store, file, new_size)
    scene.cut_file(store, file, new_size)
    handed, _, _, garbage, state = scene.file(store, file)
    garbage = max(0, garbage - (handed - new_size))
    scene.set(FILE, f"{store}/{file}", (new_size, new_size, new_size, garbage, state))
    scene.spend("bytes given back", size)
    scene.mark = COLLECT
    return (
        "No reader is left that could know an old place: {n0}.rdq is cut to {n1:byte}, {n2} are given back.",
        file, new_size, size,
    )  # fmt: skip
