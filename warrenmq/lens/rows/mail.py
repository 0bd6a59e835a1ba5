"""Rows of mailbox messages: SEND, RECV, and undeliverable ones."""

from __future__ import annotations

from itertools import islice
from typing import Any

from warrenmq.lens.rows.handler import Handlers, many, take_mail
from warrenmq.lens.scene import Scene, span
from warrenmq.lens.tables import CACHE, CHOSEN, ENTRY, FLYING, MAIL, OWED, PUB, ROUTE, Caption
from warrenmq.trace import events as e
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import Row

HANDLERS = Handlers()
_of = HANDLERS.of

_send = e.Send.getter("kind", "receiver", "count", "queues", "seq")
_recv = e.Recv.getter("kind", "sender", "send")
_undelivered = e.Undelivered.getter("kind", "send", "sender")
_FORGETS = {"Register", "ClientTerminate", "ClientDelete"}
"""Messages with which the store forgets the writes and removes that a queue's process, or the one before it, had on their way."""


@_of(Ev.SEND)
def _sent(scene: Scene, actor: int, row: Row) -> Caption:
    kind_number, to, count, queues, seq = _send(row)
    kind = scene.runs[scene.run].kinds.get(kind_number, "a message")
    scene.add(MAIL, f"{actor}:{seq}", (to, kind, scene.about, count, actor))
    scene.sent[actor, seq] = scene.number
    if kind == "Publish":
        return _published(scene, actor, to, count, queues)
    anchors, names = scene.anchors, scene.names  # looked up here: a third of all rows are these
    scene.move = anchors.get(actor) or scene.anchor(actor), anchors.get(to) or scene.anchor(to)
    if kind in {"Writes", "Removes"} and (store := scene.store(to)) and scene.is_open(store, to):
        return (_writes_sent if kind == "Writes" else _removes_sent)(scene, scene.name(actor), store, count)
    return (
        "{0} sends {1} to {2}.",
        names.get(actor) or scene.name(actor),
        kind,
        names.get(to) or scene.name(to),
    )


def _published(scene: Scene, actor: int, to: int, count: int, queues: int) -> Caption:
    for message in span(scene.about, count):
        if (owed := scene.tables[OWED].get(message)) is None:
            sent, confirmed = scene.tables[PUB].get(actor, (0, 0))
            scene.add(PUB, actor, (sent + 1, confirmed))
            scene.add(OWED, message, (actor, queues or 1))
        elif not queues:  # an old trace does not say how many
            scene.set(OWED, message, (actor, owed[1] + 1))
    exchange, key, _ = scene.tables[ROUTE].get(actor, ("", "", 0))
    scene.set(ROUTE, actor, (exchange, key, scene.about))
    scene.set(CHOSEN, f"{actor}/{to}", scene.about)
    scene.move = scene.anchor(actor), f"exchange/{exchange}", scene.anchor(to)
    me, you = scene.name(actor), scene.name(to)
    said, where = "{0} publishes {m1} to {2}", "it lies in the queue's mailbox."
    fillers: tuple[Any, ...] = me, scene.about, you
    if count > 1:
        said, where = "{0} publishes {n1:message} from {m2} on to {3}", "one envelope in its mailbox."
        fillers = me, count, scene.about, you
    if exchange:
        return f"{said}, chosen by exchange {{{len(fillers)}}}: {where}", *fillers, exchange
    return f"{said}: {where}", *fillers


def _writes_sent(scene: Scene, me: str, store: str, count: int) -> Caption:
    waiting = scene.queues[me].writes[store]
    while waiting and waiting[0] != scene.about and scene.about in waiting:
        waiting.popleft()  # these were never written: transient ones that left from memory
    if not waiting or waiting[0] != scene.about:
        waiting.clear()
        waiting.append(scene.about)
    unhandled = scene.stores[store].unhandled
    for _ in range(max(0, min(count, len(waiting)))):
        message = waiting.popleft()
        _fly(scene, store, message, me, 1)
        in_store(scene, me, store, message)
        unhandled[message] += 1
        scene.set(CACHE, f"{store}/{message}", 1)
    scene.cause = scene.landmarks.get(("publish", me, scene.about), scene.cause)
    words, what = many(scene.about, count)
    return (
        "{0} sends "
        + words
        + " to the store to be written. Its flying counter says +1: a write is on its way.",
        me,
        *what,
    )


def _removes_sent(scene: Scene, me: str, store: str, count: int) -> Caption:
    gone = scene.queues[me].removes[store]
    if scene.about not in gone:
        gone[scene.about] = None  # of a transient one it was not known that it is in a store
    while next(iter(gone)) != scene.about:
        del gone[next(iter(gone))]  # these were in no store: transient ones that left from memory
    for message in list(islice(gone, max(count, 0))):
        del gone[message]
        _fly(scene, store, message, me, -1)
    scene.cause = scene.landmarks.get(("gone", me, scene.about), scene.cause)
    words, what = many(scene.about, count)
    if scene.tables[FLYING].get(f"{store}/{scene.about}/{me}") == 0:
        return (
            "{0} sends the remove of " + words + " before the store has seen its write. "
            "+1 and \u22121 meet in the flying counter: 0.",
            me, *what,
        )  # fmt: skip
    return "{0} tells the store that it is done with " + words + ": flying counter \u22121.", me, *what


def in_store(scene: Scene, queue: str, store: str, message: int) -> None:
    """Mark a transient message's body as kept in the transient store, once a row shows it."""
    if store == "t" and (seq := scene.queues[queue].transient.pop(message, None)) is not None:
        key = scene.entry_key(queue, seq)
        if (found := scene.tables[ENTRY].get(key)) is not None:
            scene.set(ENTRY, key, (*found[:4], 2, 0))


def _fly(scene: Scene, store: str, message: int, queue: str, by: int) -> None:
    key = f"{store}/{message}/{queue}"
    scene.set(FLYING, key, scene.tables[FLYING].get(key, 0) + by)


@_of(Ev.RECV)
def _received(scene: Scene, actor: int, row: Row) -> Caption:
    kind_number, sender, send = _recv(row)
    take_mail(scene, actor, sender, send)
    kind = scene.runs[scene.run].kinds.get(kind_number, "a message")
    if kind in _FORGETS and (store := scene.store(actor)):
        name = scene.name(sender)
        for key in list(scene.tables[FLYING]):
            if str(key).split("/", 2)[2] == name and str(key)[0] == store:
                scene.set(FLYING, key, None)
    return "{0} takes {1} from its mailbox, sent by {2}.", scene.name(actor), kind, scene.name(sender)


@_of(Ev.UNDELIVERED)
def _came_back(scene: Scene, actor: int, row: Row) -> Caption:
    kind_number, send, sender = _undelivered(row)
    sender = sender or actor
    kind = scene.runs[scene.run].kinds.get(kind_number, "a message")
    if (mail := scene.tables[MAIL].get(f"{sender}:{send}")) is not None:
        scene.about = scene.about or mail[2]
        scene.set(MAIL, f"{sender}:{send}", None)
        if kind == "Publish":
            for message in span(mail[2], mail[3]):
                scene.paid(message)
    scene.cause = scene.sent.pop((sender, send), scene.cause)
    return "{0} of {1} met a dead actor and came back.", kind, scene.name(sender)
