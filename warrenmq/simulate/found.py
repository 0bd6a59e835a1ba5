"""The judgement of what a queue holds after the end of its process, of the broker or of the machine.

Every confirmed, persistent message that was not settled is there, in order, once; none that is known to be gone is; those
that were delivered before say so.  A message that was settled may come back, until a persistent publish to the same queue
that was sent later is confirmed: one journal holds both in order (docs/queue.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from warrenmq.simulate.messages import Copy, PromiseBroken, State
from warrenmq.simulate.model import QueueModel
from warrenmq.simulate.topology import RETURNS


def judge_found(
    model: QueueModel,
    deliveries: Sequence[tuple[bytes, bool]],
    sent: set[int],
    *,
    clean: bool,
    is_safe: bool,
    may_lose: bool = False,
) -> list[int]:
    """Judge the whole queue, as (body, redelivered flag), after its process ended; after a clean stop settled ones
    are gone.  Returns what was lost, and has the model go on with what is there.  PromiseBroken.

    `sent`: what it had been sent before; what other publishers sent since may be on its way.  `is_safe`:
    more than this queue began anew, so what is here is on disk.  `may_lose`: data was damaged, so losses
    are returned and not raised.
    """
    back = [model.known(body) for body, _ in deliveries]
    if not clean:  # who sent them may have ended, too, and send them again
        for copy in model.copies.values():
            if copy.message.number in model.repeated:
                model.length.may_come_again(copy.message)
    _check_found(model, back, sent, clean=clean)
    for copy, (_, is_redelivered) in zip(back, deliveries, strict=True):
        _check_flag(model, copy, is_redelivered=is_redelivered)
    there = {copy.message.number for copy in back}
    lost = [
        number
        for number, copy in model.copies.items()
        if number in sent
        and number not in there
        and copy.state is not State.SETTLED
        and _must_survive(model, copy, clean=clean)
        # damage took nothing that may not have been dropped
        and not (may_lose and model.has_dropped)
    ]
    if lost and not may_lose:
        raise PromiseBroken("lost", f"queue {model.name} lost messages {lost}, which were confirmed")
    _go_on_with(model, back, sent, clean=clean, is_safe=is_safe)
    return lost


def _check_found(model: QueueModel, back: list[Copy], sent: set[int], *, clean: bool) -> None:
    """Check that nothing is there that should not be, and that the order is right."""
    model.check_once(back, "recovered twice", "has")
    kept = [copy.message for copy in back if copy.message.number in sent]
    if transient := [message.number for message in kept if not message.persistent]:
        raise PromiseBroken("transient", f"queue {model.name} brought transient messages back: {transient}")
    known = [copy for copy in back if copy.message.number not in model.repeated]
    if clean and (settled := [copy.message.number for copy in known if copy.state is State.SETTLED]):
        raise PromiseBroken(
            "came back", f"queue {model.name} has messages {settled} after a clean stop, which were settled"
        )
    if clean and (dropped := [copy.message.number for copy in known if copy.sure_returns > RETURNS]):
        raise PromiseBroken(
            "delivery limit", f"queue {model.name} has messages {dropped}, which came back too often"
        )
    model.check_order(known)


def _go_on_with(model: QueueModel, back: list[Copy], sent: set[int], *, clean: bool, is_safe: bool) -> None:
    """Take what was found for the queue's messages, and expect what may be on its way."""
    there = {copy.message.number for copy in back}
    # what has expired may come back once more, and with it what was settled: that it was dropped was
    # perhaps not on disk yet
    on_their_way = {
        number: copy
        for number, copy in model.copies.items()
        if number not in there
        and (
            number not in sent
            or number in model.strays
            or (model.has_dropped and not (clean and copy.state is State.SETTLED))
        )
    }
    for copy in on_their_way.values():
        copy.settled_at = inf
        if copy.state is State.HELD:
            copy.state = State.READY
        copy.is_certain, copy.is_redelivered, copy.sent_at = False, None, -inf
        copy.may_be_gone |= copy.is_dead_letter
    model.copies = {copy.message.number: copy for copy in back} | on_their_way
    for copy in back:
        copy.was_found = True
        copy.sent_at = -inf
        copy.is_safe |= is_safe and copy.message.number in sent
        copy.may_expire |= model.may_drop
        copy.state, copy.is_certain, copy.is_redelivered = State.READY, not copy.may_expire, None
        copy.settled_at = inf
        if not clean:
            copy.sure_returns = 0


def _check_flag(model: QueueModel, copy: Copy, *, is_redelivered: bool) -> None:
    """Check that a message that was delivered before its queue ended says so; of others it cannot be
    known after a crash.
    """
    was_delivered = copy.state is not State.READY or copy.is_redelivered is True
    if was_delivered and not is_redelivered and copy.message.number not in model.repeated:
        raise PromiseBroken(
            "redelivered flag",
            f"queue {model.name} has message {copy.message.number} without the redelivered flag after its recovery; "
            "it was delivered before",
        )


def _must_survive(model: QueueModel, copy: Copy, *, clean: bool) -> bool:
    """A clean stop writes everything, but for what was still being sent; after any other end what was confirmed is there."""
    was_sent = clean and copy.message.confirm is not None
    return model.must_have(copy) and copy.message.persistent and (was_sent or copy.is_confirmed)
