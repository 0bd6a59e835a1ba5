"""The checks of a broker that was opened again, or of queues whose process ended, against what the client knows."""

from __future__ import annotations

import json
from collections.abc import Mapping

from warrenmq.errors import NotFound
from warrenmq.simulate.found import judge_found
from warrenmq.simulate.messages import PromiseBroken, State
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import ALL_POLICED, ALL_POLICIES, ARGUMENTS, EXCLUSIVE, EXPIRING, TRANSIENT

_RECOVERED = 1.0
"""Seconds in which a vhost has recovered."""


def check_reopened(session: Session, *, clean: bool) -> int:
    """Check a broker that was opened again after a clean stop or another end; returns how many messages were
    lost to damage.
    """
    for name in sorted(session.deleted):
        _check_deleted(session, name)
    _check_policies(session)
    for name in TRANSIENT:
        if name in session.models:
            _check_deleted(session, name)
            session.gone(name)
            session.held = [each for each in session.held if each.queue != name]
    _check_deleted(session, EXCLUSIVE)
    sent = {name: model.sent_so_far() for name, model in session.models.items()}
    return check_queues(session, sent, clean=clean)


def check_queues(session: Session, sent: Mapping[str, set[int]], *, clean: bool, is_safe: bool = True) -> int:
    """Read these queues whole, compare with what must be there, and put all back; returns how many messages
    were lost to damage.

    `sent`: what each was sent before its end; `is_safe`: not only one queue ended.
    """
    session.held = [each for each in session.held if each.queue not in sent]
    for name in sent:  # a channel that ends gives back what it holds
        model = session.models[name]
        held = [copy for copy in model.copies.values() if copy.state is State.HELD]
        model.may_have_come_back(held)
        session.came_back(name, held)
    lost: set[int] = set()
    for name, before in sent.items():
        lost.update(_lost(session, name, before, clean=clean, is_safe=is_safe))
    if not session.is_damaged:  # what is in no queue any more is no dead letter that may come again
        for number in [*session.rejected]:
            if not any(number in model.copies for model in session.models.values()):
                del session.rejected[number]
    damage = session.broker.stats().damage
    if damage and not (session.is_damaged or session.may_be_torn):
        raise PromiseBroken("damage", f"nothing was damaged, and stats() tells {damage[0]}")
    if lost and not session.is_silent and not damage:
        raise PromiseBroken(
            "lost without a word",
            f"after damage messages {sorted(lost)} are gone, and stats() names no damage",
        )
    return len(lost)


def _lost(session: Session, name: str, sent: set[int], *, clean: bool, is_safe: bool) -> list[int]:
    """Read one queue; returns the messages that are gone, which only damage may cost."""
    model = session.models[name]
    if name in TRANSIENT:  # it has nothing that its process has not
        model.all_may_be_gone()
    try:
        queue = session.broker.queue(name)
    except NotFound:
        has_expired = name == EXPIRING and not session.lease.must_hold(session.now())
        if name == session.being_deleted or name in TRANSIENT or has_expired:
            session.gone(name)
            return []
        if not session.is_damaged:
            raise PromiseBroken(
                "queue lost", f"queue {name} is not there, though its declare had returned"
            ) from None
        queue = session.broker.declare_queue(
            name, durable=name not in TRANSIENT, arguments=ARGUMENTS.get(name)
        )
    if name == EXPIRING:
        session.lease.renewed(session.now())
    deliveries = list(iter(queue.get, None))
    lost = judge_found(
        model,
        [(each.body, each.redelivered) for each in deliveries],
        sent,
        clean=clean,
        is_safe=is_safe,
        may_lose=session.is_damaged,
    )
    for delivery in reversed(deliveries):
        delivery.nack()
    back = [copy for copy in model.copies.values() if copy.was_found]
    model.may_have_come_back(back)
    session.came_back(name, back)
    ready = queue.info().ready
    if model.is_too_long(ready):  # its vhost may still be recovering, and until then nothing is dropped
        session.machine.sleep(_RECOVERED)
        ready = queue.info().ready
    model.check_length(ready)
    if model.length.bytes is not None:
        model.check_bytes(each.body for each in queue.peek(len(deliveries)))
    for copy in model.copies.values():
        if copy.was_found:
            copy.is_redelivered = True
    return lost


def _check_deleted(session: Session, name: str) -> None:
    try:
        session.broker.queue(name)
    except NotFound:
        return
    raise PromiseBroken(
        "queue returned", f"queue {name} is there after a restart, though it had been deleted"
    )


def _check_policies(session: Session) -> None:
    """Check that the policies that were set are there; one whose change was cut off may hold or not."""
    keys = {json.dumps(definition, sort_keys=True): key for key, definition in ALL_POLICIES.items()}
    there = {
        each.name.removeprefix("of "): keys[json.dumps(dict(each.definition), sort_keys=True)]
        for each in session.broker.policies()
    }
    expected = dict(session.policies)
    if session.changing or session.is_damaged:
        for name in sorted(session.changing) or ALL_POLICED:
            expected.pop(name, None)
            if name in there:
                expected[name] = there[name]
            if name in session.models:
                session.models[name].policy(there.get(name, "none"))
        session.link_dead_letters()
    session.changing.clear()
    if there != expected:
        raise PromiseBroken("policy", f"after a restart the policies {there} hold, and not {expected}")
    session.policies = expected
