"""Rows of message stores: writes, removes, records, files, recovery."""

from __future__ import annotations

from warrenmq.lens.rows.handler import Handlers
from warrenmq.lens.rows.index import because
from warrenmq.lens.rows.mail import in_store
from warrenmq.lens.scene import ActorNotes, Scene
from warrenmq.lens.tables import (
    CACHE,
    CANCEL,
    COLLECT,
    FILE,
    FLYING,
    REC,
    RECOVERY,
    ROLL,
    STORE,
    SYNC,
    Caption,
)
from warrenmq.trace import events as e
from warrenmq.trace.events import BodyReport, Decision, Ev, ReadFrom
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_store_write = e.StoreWrite.getter("decision", "client", "flying", "references")
_store_remove = e.StoreRemove.getter("decision", "client", "flying", "references")
_append = e.Append.getter("file", "offset", "size")
_file_write = e.FileWrite.getter("trigger", "file", "offset", "size")
_file_sync = e.FileSync.getter("trigger", "file", "synced_to", "size")
_store_confirm = e.StoreConfirm.getter("report", "client")
_roll = e.Roll.getter("reason", "new_file", "old_file", "old_size")
_read = e.Read.getter("source", "file", "offset", "size")
_file_delete = e.FileDelete.getter("file", "size")
_file_state = e.FileState.getter("file", "valid_total_size", "file_size")
_store_recovered = e.StoreRecovered.getter("messages", "files", "damaged")
_ref_recovered = e.RefRecovered.getter("references", "file", "offset", "size")
_ref_dropped = e.RefDropped.getter("references")
_ROLLED = {
    0: "{n0}.rdq is full with {n1:byte}.",
    1: "{n0}.rdq is full with {n1:byte}.",
    2: "A large message comes, which gets a file of its own: {n0}.rdq is left with {n1:byte}.",
    3: "{n0}.rdq holds a large message alone and is left with {n1:byte}.",
    4: "{n0}.rdq is mostly garbage and nobody uses it: it is left with {n1:byte}.",
}


def _name_of(store: str) -> str:
    return "persistent" if store == "p" else "transient"


# -- writes and removes


def _land(scene: Scene, store: str, client: int, sign: int, value: int) -> str:
    """Apply a handled write (+1) or remove (-1) to the flying counter.  Returns the queue's name."""
    name = scene.actor(client).name
    key = f"{store}/{scene.about}/{name}"
    now = scene.tables[FLYING].get(key)
    if now is not None and (not value or value * sign > 0):
        scene.set(FLYING, key, (now - sign or None) if value else None)
    return name


@_of(Ev.STORE_WRITE)
def _write(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    decision, client, flying, references = _store_write(row)
    store, message = me.store, scene.about
    name = _land(scene, store, client, 1, flying)
    notes = scene.stores[store]
    in_store(scene, name, store, message)
    if message in notes.unhandled:
        notes.unhandled[message] -= 1
        if notes.unhandled[message] <= 0:
            del notes.unhandled[message]
            mine, current = notes.where.get(message), scene.tables[STORE].get(store)
            in_current = mine is not None and current is not None and mine[0] == current[1]
            if decision != Decision.WRITE and not in_current:
                scene.set(CACHE, f"{store}/{message}", None)
    scene.latest_rows.set(("write", store, message), scene.number)
    if decision == Decision.IGNORE:
        scene.mark = CANCEL
        scene.spend("writes cancelled")
        scene.move = me.anchor, f"flying/{store}/{message}/{name}"
        scene.cause = scene.latest_rows.get(("gone", name, message), scene.cause)
        return (
            "The store looks at the flying counter of {m0}: {n1}. It was removed before it was written, so the write "
            "is cancelled: the disk never sees it.",
            message, flying,
        )  # fmt: skip
    if decision == Decision.CONFIRM:
        if (found := _recount(scene, store, message, references)) is not None:
            scene.move = me.anchor, f"rec/{found[1]}"
        return (
            "The store has {m0} already: no byte is written, it only counts {n1:reference}.",
            message,
            references,
        )
    return (
        "The store looks at the flying counter of {m0}: +{n1}, so its body must be written.",
        message,
        flying,
    )


def _recount(scene: Scene, store: str, message: int, references: int) -> tuple[int, str] | None:
    """Set a record's reference count; at zero its bytes become garbage.  Returns the record's file and key."""
    if (place := scene.stores[store].where.get(message)) is None:
        return None
    file, offset = place
    key = f"{store}/{file}/{offset}"
    if (found := scene.tables[REC].get(key)) is None:
        return None  # the rows contradict each other
    _, size, before, _ = found
    scene.set(REC, key, (message, size, references, ""))
    if bool(before) != bool(references):
        handed, written, synced, garbage, state = scene.file(store, file)
        garbage += size if before else -size
        scene.set(FILE, f"{store}/{file}", (handed, written, synced, garbage, state))
    return file, key


@_of(Ev.STORE_REMOVE)
def _remove(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    decision, client, flying, references = _store_remove(row)
    store, message = me.store, scene.about
    name = _land(scene, store, client, -1, flying)
    if decision == Decision.IGNORE:
        scene.move = me.anchor, f"flying/{store}/{message}/{name}"
        return (
            "The remove of {m0} finds nothing to remove: its write was cancelled. The two have met.",
            message,
        )
    if decision == Decision.DEFER:
        return "{0} is done with {m1}, but its file is with the collector: the remove waits.", name, message
    if (found := _recount(scene, store, message, references)) is None:
        return "The store is told that {0} is done with {m1}.", name, message
    file, key = found
    scene.move = me.anchor, f"rec/{key}"
    scene.latest_rows.set(("garbage", store, file), scene.number)
    if references:
        return "{0} is done with {m1}: {n2:reference} left, so the record stays.", name, message, references
    size, _, _, garbage, _ = scene.file(store, file)
    share = round(100 * garbage / max(size, 1))
    return (
        "{0} was the last to want {m1}: its record is garbage now, {n2} % of {n3}.rdq.", name, message, share, file,
    )  # fmt: skip


@_of(Ev.REF_DROPPED)
def _reference_dropped(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    (references,) = _ref_dropped(row)
    store = me.store
    if (found := _recount(scene, store, scene.about, references)) is not None:
        scene.move = me.anchor, f"rec/{found[1]}"
        scene.latest_rows.set(("garbage", store, found[0]), scene.number)
    return "A dead client held {m0}: that reference is dropped, {n1} are left.", scene.about, references


@_of(Ev.STORE_CONFIRM)
def _told(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    report, client = _store_confirm(row)
    store, message = me.store, scene.about
    marks = scene.latest_rows
    marks.set(("told", client, message), scene.number)
    scene.move = me.anchor, scene.actor(client).anchor
    written = marks.get(("write", store, message))
    if report == BodyReport.IGNORED:
        scene.cause = written or scene.cause
        return (
            "The store tells {0} that {m1} need not be written any more.",
            scene.actor(client).name,
            message,
        )
    scene.cause = max(marks.get(("file_sync", store)), written) or scene.cause
    said = "is on disk" if scene.syncs else "is with the system"
    return "The store tells {0} that the body of {m1} " + said + ".", scene.actor(client).name, message


# -- the current file


@_of(Ev.APPEND)
def _appended(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, offset, size = _append(row)
    store, message = me.store, scene.about
    scene.put_record(store, file, offset, (message, size, 1, ""))
    scene.stores[store].where[message] = file, offset
    _, written, synced, garbage, _ = scene.file(store, file)
    scene.set(FILE, f"{store}/{file}", (offset + size, written, synced, garbage, "current"))
    scene.spend("body bytes", size)
    scene.cause = scene.latest_rows.get(("write", store, message), scene.cause)
    scene.latest_rows.set(("append", store), scene.number)
    scene.move = me.anchor, f"rec/{store}/{file}/{offset}"
    return (
        "{m0} is appended to {n1}.rdq at byte {n2}: {n3:byte} in the write buffer, not on disk yet.",
        message, file, offset, size,
    )  # fmt: skip


@_of(Ev.FILE_WRITE)
def _file_written(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    trigger, file, offset, size = _file_write(row)
    store = me.store
    handed, _, *rest = scene.file(store, file)
    scene.set(FILE, f"{store}/{file}", (max(handed, offset + size), offset + size, *rest))
    scene.spend("writes")
    scene.cause = scene.latest_rows.get(("append", store), scene.cause)
    scene.latest_rows.set(("file_write", store), scene.number)
    return (
        "The write buffer, {n0:byte}, goes to {n1}.rdq" + because(trigger) + ". The system has it, the disk may not.",
        size, file,
    )  # fmt: skip


@_of(Ev.FILE_SYNC)
def _file_synced(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    trigger, file, synced_to, size = _file_sync(row)
    store = me.store
    handed, written, _, *rest = scene.file(store, file)
    scene.set(FILE, f"{store}/{file}", (handed, max(written, synced_to), synced_to, *rest))
    scene.cause = scene.latest_rows.get(("file_write", store), scene.cause)
    scene.latest_rows.set(("file_sync", store), scene.number)
    if not scene.syncs:
        return (
            "{n0}.rdq need not be synced, with durability os: the system has {n1:byte} more of it, up to byte {n2}.",
            file, size, synced_to,
        )  # fmt: skip
    scene.spend("syncs")
    scene.mark = SYNC
    return (
        "{n0}.rdq is synced" + because(trigger) + ": {n1} more bytes are safe, up to byte {n2}.", file, size, synced_to,
    )  # fmt: skip


@_of(Ev.ROLL)
def _rolled(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    reason, new, old, size = _roll(row)
    store = me.store
    scene.set(FILE, f"{store}/{old}", (*scene.file(store, old)[:4], ""))
    scene.set(FILE, f"{store}/{new}", (0, 0, 0, 0, "current"))
    scene.set(STORE, store, (me.number, new))
    unhandled = scene.stores[store].unhandled
    for key in list(scene.tables[CACHE]):
        kept, _, message = str(key).partition("/")
        if kept == store and int(message) not in unhandled:
            scene.set(CACHE, key, None)
    scene.mark = ROLL
    scene.cause = scene.latest_rows.get(("append", store), scene.cause)
    why = _ROLLED.get(reason, _ROLLED[0])
    return why + " The store opens {n2}.rdq, and empties the current-file cache.", old, size, new


# -- reads


@_of(Ev.READ)
def _body_read(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    source, file, offset, size = _read(row)
    name, message = me.name, scene.about
    if source == ReadFrom.FROM_CACHE:
        scene.spend("reads from the cache")
        store = "t" if f"t/{message}" in scene.tables[CACHE] else "p"
        scene.move = f"cache/{store}/{message}", me.anchor
        return (
            "{0} finds {m1} in the current-file cache: it asks neither the store nor the disk.",
            name,
            message,
        )
    scene.spend("reads from disk")
    store = me.store or scene.actor(e.Read.of(row).store).store
    if f"{store}/{file}/{offset}" in scene.tables[REC]:
        scene.move = f"rec/{store}/{file}/{offset}", me.anchor
    who = " by itself" if source == ReadFrom.DIRECT else " for a queue"
    return "{0} reads {m1} from {n2}.rdq" + who + ", {n3:byte} at {n4}.", name, message, file, size, offset


@_of(Ev.DEFER)
def _deferred(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    return "{m0} waits: its file {n1}.rdq is with the garbage collector.", scene.about, e.Defer.of(row).file


# -- files


@_of(Ev.LOCK)
def _locked(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, store = e.Lock.of(row).file, me.store
    scene.set(FILE, f"{store}/{file}", (*scene.file(store, file)[:4], "locked"))
    scene.cause = scene.latest_rows.get(("garbage", store, file), scene.cause)
    return "{n0}.rdq is handed to the garbage collector: from now on only that may write to it.", file


@_of(Ev.UNLOCK)
def _unlocked(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, store = e.Unlock.of(row).file, me.store
    scene.set(FILE, f"{store}/{file}", (*scene.file(store, file)[:4], ""))
    return "{n0}.rdq comes back from the garbage collector.", file


@_of(Ev.FILE_DELETE)
def _deleted(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, size = _file_delete(row)
    store = me.store
    forget_places(scene, store, file)
    scene.cut_file(store, file, 0)
    scene.set(FILE, f"{store}/{file}", None)
    scene.spend("bytes given back", size)
    scene.mark = COLLECT
    scene.cause = max(scene.cause, scene.latest_rows.get(("garbage", store, file)))
    return "{n0}.rdq is deleted: nothing in it was alive. {n1:byte} are given back.", file, size


def forget_places(scene: Scene, store: str, file: int, begin: int = 0) -> None:
    """Forget the places of messages whose records in this file are about to be removed."""
    where = scene.stores[store].where
    for offset, (message, *_) in scene.records(store, file, begin):
        if where.get(message) == (file, offset):
            del where[message]


@_of(Ev.FILE_STATE)
def _file_told(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    file, valid, size = _file_state(row)
    store = me.store
    old = scene.file(store, file)
    current = (scene.tables[STORE].get(store) or (0, -1))[1]
    scene.cut_file(store, file, size)
    is_current = file >= current
    state = "current" if is_current else old[4] if old[4] != "asleep" else ""
    scene.set(FILE, f"{store}/{file}", (size, size, size, size - valid, state))
    if file > current:
        if (before := scene.tables[FILE].get(f"{store}/{current}")) is not None:
            scene.set(FILE, f"{store}/{current}", (*before[:4], ""))
        scene.set(STORE, store, (me.number, file))
    return "File summary: {n0}.rdq has {n1:byte}, {n2} of them alive.", file, size, valid


# -- recovery and the end


@_of(Ev.STORE_RECOVERED)
def _recovered(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    messages, files, damaged = _store_recovered(row)
    store = me.store
    scene.set(STORE, store, (me.number, -1))
    if not messages:
        return "The {0} store is there, and empty.", _name_of(store)
    scene.mark = RECOVERY
    return (
        "The {0} store has read its files: {n1:message} in {n2:file}; {n3:damaged record} set aside.",
        _name_of(store), messages, files, damaged,
    )  # fmt: skip


@_of(Ev.REF_RECOVERED)
def _record_found(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    references, file, offset, size = _ref_recovered(row)
    store, message = me.store, scene.about
    before = scene.stores[store].asleep.pop(message, None)
    if before is not None and scene.tables[REC].get(before, ("",))[-1] == "asleep":
        scene.set(REC, before, None)  # it may have been moved, and the process ended before it could say so
    scene.put_record(store, file, offset, (message, size, references, "found"))
    scene.stores[store].where[message] = file, offset
    scene.move = me.anchor, f"rec/{store}/{file}/{offset}"
    return (
        "Found {m0} in {n1}.rdq at byte {n2}, with {n3:reference}.", message, file, offset, references,
    )  # fmt: skip


@_of(Ev.STORE_CLOSED)
def _closed(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    messages, files = e.StoreClosed.getter("messages", "files")(row)
    return "The store stops in good order with {n0:message} in {n1:file}.", messages, files
