"""Rows of runs, actor starts and stops, supervisors, and alarms."""

from __future__ import annotations

from warrenmq.lens.rows.handler import Handlers
from warrenmq.lens.rows.handler import words as words_of
from warrenmq.lens.scene import ActorNotes, Scene, span
from warrenmq.lens.tables import (
    ACTOR,
    ALARM,
    BOUNDARY,
    CACHE,
    CONSUMER,
    CRASH,
    ENTRY,
    FILE,
    FLYING,
    GC,
    JOURNAL,
    MAIL,
    QUEUE,
    RAM,
    REC,
    RUN,
    SHORTAGE,
    STORE,
    WAIT,
    Caption,
)
from warrenmq.trace import events as e
from warrenmq.trace.events import Ev, Reason
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_run_start = e.RunStart.getter(
    "profile", "boot", "fsync", "entries_v1", "entries_v2", "embed_below", "file_size_limit"
)
_stop, _exit = e.ActorStop.getter("reason"), e.ChildExit.getter("reason", "child")
_restart = e.Restart.getter("child", "restarts", "intensity", "period_ms")
_ENDS = {
    Reason.NORMAL: "normally",
    Reason.SHUTDOWN: "in good order",
    Reason.KILLED: "killed",
    Reason.CRASH: "by a crash",
}
_EXITS = {
    Reason.NORMAL: "ended",
    Reason.SHUTDOWN: "ended in good order",
    Reason.KILLED: "was killed",
    Reason.CRASH: "has crashed",
}
_STATES = {Reason.KILLED: "killed", Reason.CRASH: "crashed"}
_SUDDEN = {int(Reason.KILLED), int(Reason.CRASH)}
_PROFILES = {
    0: "",
    1: " in the classic profile, that of RabbitMQ up to 3.11",
    2: " in the modern profile, that of RabbitMQ from 3.13 on",
}


@_of(Ev.RUN_START)
def _run_started(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    profile, boot, fsync, entries_v1, entries_v2, embed, limit = _run_start(row)
    before = scene.tables[RUN].get("run")
    lost = before is not None and before[2] == "up"
    scene.set(RUN, "run", (scene.runs[scene.run].name, boot, "up", profile))
    scene.set(RUN, "settings", (fsync, limit, entries_v1, entries_v2, embed))
    if lost:
        scene.mark = CRASH
        scene.cause = scene.number - 1
        return (
            "The process went without a goodbye. Gone with its memory: {n0:unconfirmed message}, {n1:unsynced byte}, "
            "{n2:envelope}. Boot {n3} opens the disk.",
            *scene.loss, boot,
        )  # fmt: skip
    scene.mark = BOUNDARY
    os = (
        ""
        if fsync
        else " Its durability is os: it syncs nothing, and confirms what the operating system has."
    )
    return "Boot {n0}: a broker opens the data directory" + _PROFILES.get(profile, "") + "." + os, boot


@_of(Ev.RUN_END)
def _run_ended(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    name, boot, _, profile = scene.tables[RUN].get("run") or ("", 0, "", 0)
    scene.set(RUN, "run", (name, boot, "closed", profile))
    scene.mark = BOUNDARY
    where = "on disk" if scene.syncs else "with the system"
    return ("The broker is closed: everything is " + where + " and nothing needs recovery.",)


@_of(Ev.ACTOR_START)
def _actor_started(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    old = scene.tables[ACTOR].get(me.number)
    if old is None:
        return ("An actor without a name is up.",)
    name, kind, parent, _, life = old
    scene.set(ACTOR, me.number, (name, kind, parent, "up", life))
    if kind == "MsgStore":
        _wake(scene, me.store)
    if life > 1:
        for number, value in list(scene.tables[ACTOR].items()):
            if value[:2] == (name, kind) and value[4] < life:
                scene.set(ACTOR, number, None)
        return "{0} is up again, incarnation {n1} under the same name.", name, life
    return "{0} is up.", name


def _wake(scene: Scene, store: str) -> None:
    """Remove the files and records that a store's recovery did not find."""
    for table in (FILE, REC):
        for key, value in list(scene.tables[table].items()):
            if str(key)[0] == store and value[-1] == "asleep":
                scene.set(table, key, None)


@_of(Ev.ACTOR_STOP)
def _actor_stopped(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    (reason,) = _stop(row)
    name = me.name
    if (old := scene.tables[ACTOR].get(me.number)) is not None:
        scene.set(
            ACTOR, me.number, (*old[:3], _STATES.get(Reason(reason), "ended") if reason else "ended", old[4])
        )
    scene.latest_rows.set(("stop", me.number), scene.number)
    _bury(scene, me.number, sudden=reason in _SUDDEN)
    if reason in _SUDDEN:
        scene.mark = CRASH
        return "{0} is gone where it stood, " + _ENDS[
            Reason(reason)
        ] + ". What it held in memory is lost.", name
    return "{0} ends " + (_ENDS[Reason(reason)] if reason else "normally") + ".", name


@_of(Ev.CHILD_START)
def _child_started(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    child = e.ChildStart.of(row).child
    scene.cause = scene.actor(child).last or scene.cause
    return "{0} has started {1}.", me.name, scene.actor(child).name


@_of(Ev.CHILD_EXIT)
def _child_ended(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    reason, child = _exit(row)
    scene.cause = scene.latest_rows.get(("stop", child), scene.cause)
    scene.latest_rows.set(("exit", me.number), scene.number)
    if reason in _SUDDEN:
        if (old := scene.tables[ACTOR].get(child)) is not None:
            scene.set(ACTOR, child, (*old[:3], _STATES[Reason(reason)], old[4]))
        scene.mark = CRASH
    _bury(scene, child, sudden=reason in _SUDDEN)
    text = _EXITS[Reason(reason)] if reason else "ended"
    return "{0} learns that {1} " + text + ".", me.name, scene.actor(child).name


@_of(Ev.RESTART)
def _restarted(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    child, restarts, intensity, period = _restart(row)
    scene.cause = scene.latest_rows.get(("exit", me.number), scene.cause)
    return (
        "{0} starts {1} again: restart {n2} of the {n3} it allows in {4} s.",
        me.name, scene.actor(child).name, restarts, intensity, f"{period / 1000:g}",
    )  # fmt: skip


@_of(Ev.ESCALATE)
def _escalated(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    child, restarts, intensity, period = e.Escalate.getter("child", "restarts", "intensity", "period_ms")(row)
    scene.cause = scene.latest_rows.get(("exit", me.number), scene.cause)
    scene.mark = CRASH
    return (
        "{0} gives up: {1} would need restart {n2}, and {n3} are allowed in {4} s.",
        me.name, scene.actor(child).name, restarts, intensity, f"{period / 1000:g}",
    )  # fmt: skip


def _bury(scene: Scene, actor: int, *, sudden: bool) -> None:
    """Remove a stopped actor, and its state in memory."""
    old = scene.tables[ACTOR].get(actor)
    if old is None:
        return
    name, kind = old[0], old[1]
    for key, mail in list(scene.tables[MAIL].items()):
        if mail[0] == actor:
            if mail[1] == "Publish":
                for message in span(mail[2], mail[3]):
                    scene.nacked(message)
            scene.set(MAIL, key, None)
    for key, wait in list(scene.tables[WAIT].items()):
        if wait[0] == actor:
            scene.set(WAIT, key, None)
    if kind == "MsgStore":
        _bury_store(scene, actor)
    queue = scene.tables[QUEUE].get(name)
    if kind == "QueueProcess" and queue is not None and queue[0] == actor:
        _bury_queue(scene, name, sudden=sudden)


def _bury_store(scene: Scene, actor: int) -> None:
    store = scene.actor(actor).store
    if (scene.tables[STORE].get(store) or (0,))[0] != actor:
        return  # its successor is up already
    for table in (STORE, GC, FLYING, CACHE):
        for key in list(scene.tables[table]):
            if str(key)[0] == store:
                scene.set(table, key, None)
    scene.sleep_store(store)


def _bury_queue(scene: Scene, name: str, *, sudden: bool) -> None:
    """Remove a queue whose process has stopped; its index stays on disk unless the queue was deleted."""
    closed = scene.queues[name].closed
    if sudden:
        for message in scene.queues[name].unconfirmed.values():
            scene.nacked(message)
    if sudden or closed:
        scene.sleep_entries(name)
    else:
        for key, _ in scene.entries_of(name):
            scene.set(ENTRY, key, None)
    for key, consumer in list(scene.tables[CONSUMER].items()):
        if consumer[0] == name:
            scene.set(CONSUMER, key, None)
    for table in (QUEUE, RAM, JOURNAL):
        scene.set(table, name, None)
    scene.queues.pop(name, None)


# -- alarms and credit


@_of(Ev.ALARM_SET)
def _alarm_set(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    alarm, measured, limit = e.AlarmSet.getter("alarm", "measured", "limit")(row)
    what = words_of(e.Alarm, alarm, "something")
    scene.set(ALARM, what, (measured, limit))
    scene.mark = SHORTAGE
    return (
        "{0} blocks the publishers: " + what + " is short, {n1:byte}, the limit is {n2}.",
        me.name,
        measured,
        limit,
    )


@_of(Ev.ALARM_CLEAR)
def _alarm_cleared(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    alarm, measured, limit = e.AlarmClear.getter("alarm", "measured", "limit")(row)
    what = words_of(e.Alarm, alarm, "something")
    scene.set(ALARM, what, None)
    scene.mark = SHORTAGE
    return "There is enough " + what + " again: {n0:byte}, the limit is {n1}.", measured, limit


@_of(Ev.ALARM_BLOCKED)
def _blocked_by_alarm(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    scene.set(WAIT, f"{me.number}/0", (me.number, 0))
    return "{0} must wait until no alarm is set.", me.name


@_of(Ev.ALARM_UNBLOCKED)
def _let_go_by_alarm(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    scene.set(WAIT, f"{me.number}/0", None)
    return "{0} waits for the alarms no longer.", me.name


@_of(Ev.CREDIT_BLOCKED)
def _blocked(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    granter = e.CreditBlocked.of(row).granter
    scene.set(WAIT, f"{me.number}/{granter}", (me.number, granter))
    return "{0} has no credit left towards {1}, and waits.", me.name, scene.actor(granter).name


@_of(Ev.CREDIT_UNBLOCKED)
def _let_go(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    granter = e.CreditUnblocked.of(row).granter
    scene.set(WAIT, f"{me.number}/{granter}", None)
    return "{0} need not wait for credit of {1} any more.", me.name, scene.actor(granter).name
