"""The step of wide scripts that compares a quiet queue with its model to the last message: its counts, its
length, its dead letters.
"""

from __future__ import annotations

from warrenmq.errors import Nacked
from warrenmq.simulate.messages import Copy, PromiseBroken, State, number_of
from warrenmq.simulate.publishing import PATIENCE, Publishing
from warrenmq.simulate.script import Step
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import DEAD_LETTERING, LENGTH, RETURNS, TTL_MS

_QUIET = 3.0
"""Seconds after which nothing is on its way any more."""
_ALL = 1_000_000
"""More messages than any queue of a script holds."""


class Auditing:
    """Audits a queue."""

    def __init__(self, session: Session, publishing: Publishing) -> None:
        self._session = session
        self._publishing = publishing

    def audit(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        if session.faults.may_block or session.faults.ever_refused:
            return
        session.queue(name)
        session.machine.sleep(_QUIET)
        self._publishing.settle()
        session.dead_letters_arrived()
        session.queue(name)
        if session.later or not self._publishing.is_alone or session.models[name].repeated:
            return
        self._check_counts(name)
        self._check_dead_letters(name)
        if step.number("fill"):
            self._check_room(name)

    def _check_counts(self, name: str) -> None:
        session, model = self._session, self._session.models[name]
        model.asked()
        info = session.broker.queue(name).info()
        ready = [copy for copy in model.copies.values() if copy.state is State.READY]
        held = sum(each.queue == name for each in session.held)
        if not len(model.waiting()) <= info.ready <= len(ready):
            raise PromiseBroken(
                "count",
                f"queue {name} says that {info.ready} messages are ready; of {len(ready)} messages {len(model.waiting())} must be",
            )
        if info.unacked != held:
            raise PromiseBroken(
                "count",
                f"queue {name} says that {info.unacked} messages are unacked; its client holds {held}",
            )
        model.check_length(info.ready)
        bodies = [each.body for each in session.broker.queue(name).peek(_ALL)]
        model.check_bytes(bodies)
        if len(bodies) != info.ready:
            raise PromiseBroken(
                "count", f"queue {name} shows {len(bodies)} messages, and says that {info.ready} are ready"
            )
        if name == "t" and info.ready and not session.faults.clock_jumped:
            raise PromiseBroken(
                "not expired",
                f"queue {name} has messages that live {TTL_MS} ms, {_QUIET:g} s after the last one came",
            )

    def _check_dead_letters(self, name: str) -> None:
        """Check that what the queue dropped, or refused, is a dead letter."""
        session, model, dead = self._session, self._session.models[name], self._session.models.get("dead")
        if dead is None or not (name in DEAD_LETTERING or model.dead_letters):
            return
        bodies = [*session.broker.queue(name).peek(_ALL), *session.queue("dead").peek(_ALL)]
        there = {number_of(each.body) for each in bodies}
        taken = {number for number, copy in dead.copies.items() if copy.state is not State.READY}
        lost = [
            number
            for number, copy in model.copies.items()
            if number > session.calm_since
            and copy.state is State.READY
            and (not copy.may_be_gone or copy.sure_returns > RETURNS)
            and _has_come(copy, refused=model.rejects)
            and number not in there | taken
        ]
        if lost:
            raise PromiseBroken(
                "dead letters", f"messages {lost} are neither in queue {name}, nor dead letters"
            )

    def _check_room(self, name: str) -> None:
        """Publish a message: what is refused, or dropped, depends on the length alone."""
        session, model = self._session, self._session.models[name]
        queue = session.queue(name)
        if name in session.changing or name == "t" or model.has_ttl or model.length.bytes is not None:
            return
        before = queue.info().ready
        messages = session.messages(1, 10)
        confirm = self._publishing.publish_messages(
            name, messages, lambda exchange, key: session.broker.publish(exchange, key, messages[0].body)
        )
        try:
            confirm.result(timeout=PATIENCE)
            is_taken = True
        except Nacked:
            is_taken = False
        has_room = not model.rejects or before < LENGTH
        if is_taken != has_room:
            raise PromiseBroken(
                "room",
                f"queue {name}, in which {before} messages were ready, has {'taken' if is_taken else 'refused'} one more",
            )
        expected = (
            before + is_taken if model.length.messages is None else min(before + 1, model.length.messages)
        )
        if (after := queue.info().ready) != expected:
            raise PromiseBroken(
                "room", f"queue {name} had {before} messages, and with one more has {after}, not {expected}"
            )


def _has_come(copy: Copy, *, refused: bool) -> bool:
    """True if a queue has had the message, or with `refused` has refused it."""
    confirm = copy.message.confirm
    if confirm is None or not confirm.done():
        return False
    return confirm.exception() is None or (refused and isinstance(confirm.exception(), Nacked))
