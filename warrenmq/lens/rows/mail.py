"""Rows of mailbox messages: SEND, RECV, and undeliverable ones."""

from __future__ import annotations

from itertools import islice

from warrenmq.lens.rows.handler import Handlers, many, take_mail
from warrenmq.lens.scene import ActorNotes, Scene, entry_key, span
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
"""Messages with which the store forgets the writes and removes that a queue's process, or the one before it,
had on their way.
"""
_PUBLISHES_ONE = (
    "{0} publishes {m1} to {2}: it lies in the queue's mailbox.",
    "{0} publishes {m1} to {2}, chosen by exchange {3}: it lies in the queue's mailbox.",
)
_PUBLISHES_SEVERAL = (
    "{0} publishes {n1:message} from {m2} on to {3}: one envelope in its mailbox.",
    "{0} publishes {n1:message} from {m2} on to {3}, chosen by exchange {4}: one envelope in its mailbox.",
)
"""Without an exchange, and with one."""


@_of(Ev.SEND)
def _sent(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    kind_number, to, count, queues, seq = _send(row)
    kind, you = scene.kinds.get(kind_number, "a message"), scene.actor(to)
    key = f"{me.number}:{seq}"
    scene.add(MAIL, key, (to, kind, scene.about, count, me.number))
    scene.sent[key] = scene.number
    if kind == "Publish":
        return _published(scene, me, you, count, queues)
    scene.move = me.anchor, you.anchor
    if you.store and kind in {"Writes", "Removes"} and scene.is_open(you.store, to):
        return (_writes_sent if kind == "Writes" else _removes_sent)(scene, me.name, you.store, count)
    return "{0} sends {1} to {2}.", me.name, kind, you.name


def _published(scene: Scene, me: ActorNotes, you: ActorNotes, count: int, queues: int) -> Caption:
    actor, about = me.number, scene.about
    exchange, key, latest = scene.tables[ROUTE].get(actor, ("", "", 0))
    for message in span(about, count):
        if (owed := scene.tables[OWED].get(message)) is None:
            if latest == about:
                continue  # nacked by a queue to which this publish went before
            sent, *answered = scene.publisher(actor)
            scene.add(PUB, actor, (sent + 1, *answered))
            scene.add(OWED, message, (actor, queues or 1))
        elif not queues:  # an old trace does not say how many
            scene.add(OWED, message, (actor, owed[1] + 1))
    scene.set(ROUTE, actor, (exchange, key, about))
    scene.set(CHOSEN, f"{actor}/{you.number}", about)
    scene.move = me.anchor, f"exchange/{exchange}", you.anchor
    if count <= 1:
        alone, chosen = _PUBLISHES_ONE
        return (chosen, me.name, about, you.name, exchange) if exchange else (alone, me.name, about, you.name)
    alone, chosen = _PUBLISHES_SEVERAL
    said = me.name, count, about, you.name
    return (chosen, *said, exchange) if exchange else (alone, *said)


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
    scene.cause = scene.latest_rows.get(("publish", me, scene.about), scene.cause)
    counter = (
        "Its flying counter says +1: a write is"
        if count <= 1
        else "The flying counter of each says +1: writes are"
    )
    return (
        "{0} sends " + many(count) + f" to the store to be written. {counter} on {'its' if count <= 1 else 'their'} way.",
        me, scene.about, count,
    )  # fmt: skip


def _removes_sent(scene: Scene, me: str, store: str, count: int) -> Caption:
    gone = scene.queues[me].removes[store]
    if scene.about not in gone:
        gone[scene.about] = None  # of a transient one it was not known that it is in a store
    while next(iter(gone)) != scene.about:
        del gone[next(iter(gone))]  # these were in no store: transient ones that left from memory
    for message in list(islice(gone, max(count, 0))):
        del gone[message]
        _fly(scene, store, message, me, -1)
    scene.cause = scene.latest_rows.get(("gone", me, scene.about), scene.cause)
    meets = scene.tables[FLYING].get(f"{store}/{scene.about}/{me}") == 0
    if count > 1:
        said = (
            "{0} tells the store that it is done with "
            + many(count)
            + ": \u22121 for the flying counter of each."
        )
        if meets:
            said += " The store has not seen the write of the first yet: +1 and \u22121 make 0."
    elif meets:
        said = (
            "{0} sends the remove of {m1} before the store has seen its write. "
            "+1 and \u22121 meet in the flying counter: 0."
        )
    else:
        said = "{0} tells the store that it is done with {m1}: flying counter \u22121."
    return said, me, scene.about, count


def in_store(scene: Scene, queue: str, store: str, message: int) -> None:
    """Mark a transient message's body as kept in the transient store, once a row shows it."""
    if store == "t" and (seq := scene.queues[queue].transient.pop(message, None)) is not None:
        key = entry_key(queue, seq)
        if (found := scene.tables[ENTRY].get(key)) is not None:
            scene.set(ENTRY, key, (*found[:4], 2, 0))


def _fly(scene: Scene, store: str, message: int, queue: str, by: int) -> None:
    key = f"{store}/{message}/{queue}"
    scene.set(FLYING, key, scene.tables[FLYING].get(key, 0) + by)


@_of(Ev.RECV)
def _received(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    kind_number, sender, send = _recv(row)
    mail = scene.tables[MAIL].get(f"{sender}:{send}")
    take_mail(scene, me, sender, send)
    if not kind_number and mail is not None and mail[1] == "Publish":
        return _refused(scene, me.name, mail[2], mail[3])
    kind = scene.kinds.get(kind_number, "a message" if mail is None else mail[1])
    if me.store and kind in _FORGETS:
        name = scene.actor(sender).name
        for key in list(scene.tables[FLYING]):
            if str(key).split("/", 2)[2] == name and str(key)[0] == me.store:
                scene.set(FLYING, key, None)
    return "{0} takes {1} from its mailbox, sent by {2}.", me.name, kind, scene.actor(sender).name


def _refused(scene: Scene, me: str, message: int, count: int) -> Caption:
    """Handle a publish that was received, and has no row of being taken in."""
    for each in span(message, count):
        scene.nacked(each)
    return (
        "{0} refuses " + many(count) + ": it has no room, and the publisher is told so.",
        me,
        message,
        count,
    )


@_of(Ev.UNDELIVERED)
def _came_back(scene: Scene, me: ActorNotes, row: Row) -> Caption:
    kind_number, send, sender = _undelivered(row)
    sender = sender or me.number
    kind = scene.kinds.get(kind_number, "a message")
    key = f"{sender}:{send}"
    if (mail := scene.tables[MAIL].get(key)) is not None:
        scene.about = scene.about or mail[2]
        scene.set(MAIL, key, None)
        if kind == "Publish":
            for message in span(mail[2], mail[3]):
                scene.nacked(message)
    scene.cause = scene.sent.pop(key, scene.cause)
    return "{0} of {1} met a dead actor and came back.", kind, scene.actor(sender).name
