"""Registry of event handlers: functions that take the scene and the row, change the scene, and return the caption."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from warrenmq.lens.scene import ActorNotes, Scene, span
from warrenmq.lens.tables import MAIL, Caption
from warrenmq.trace.events import Ev, Worded
from warrenmq.trace.schema import Row

_EVENTS = 256
"""Numbers that a row can say."""
Handler: TypeAlias = Callable[[Scene, ActorNotes, Row], Caption]
"""(scene, notes of the actor that wrote the row, row) -> caption."""


class Handlers:
    """The handlers of one module, by event."""

    def __init__(self) -> None:
        self.by_event: dict[int, Handler] = {}

    def of(self, *events: Ev) -> Callable[[Handler], Handler]:
        """Decorator: register the function for these events."""

        def take(handler: Handler) -> Handler:
            for event in events:
                self.by_event[int(event)] = handler
            return handler

        return take


def merged(all_handlers: Iterable[Handlers], otherwise: Handler) -> list[Handler]:
    """Merge the handlers of all modules into one for each event, `otherwise` for those that none is for;
    TypeError if two are for one.
    """
    found: dict[int, Handler] = {}
    for each in all_handlers:
        if twice := found.keys() & each.by_event.keys():
            raise TypeError(f"two functions are for event {min(twice)}")
        found |= each.by_event
    return [found.get(event, otherwise) for event in range(_EVENTS)]


def take_mail(scene: Scene, me: ActorNotes, sender: int, send: int, sends: int = 1) -> None:
    """Take from the mailbox the `sends` messages of a sender that a row receives, from its row `send` on; 0 = none."""
    if not send:
        return
    mail, sent = scene.tables[MAIL], scene.sent
    for seq in (send,) if sends == 1 else span(send, sends):
        key = f"{sender}:{seq}"
        found = mail.get(key)
        if found is not None and (found[0] == me.number or not found[0]):
            if not scene.about:
                scene.about = found[2]
            del mail[key]
            scene.changes.append((MAIL, key, None, found))
        scene.cause = sent.pop(key, scene.cause)
    me.handling = scene.number


def many(count: int) -> str:
    """Caption template for `count` messages from one on: its fillers 1 and 2 are the first message and the count."""
    return "{m1}" if count <= 1 else "{n2:message} ({m1} first)"


def it(count: int) -> str:
    """The word that stands for `count` messages."""
    return "it" if count <= 1 else "them"


def words(type_: type[Worded], value: int, otherwise: str) -> str:
    """The words of an enum value in a sentence; `otherwise` for a value that this version does not know."""
    known = type_._value2member_map_.get(value)
    return known.words if isinstance(known, Worded) else otherwise
