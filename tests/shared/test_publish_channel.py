"""A publishing channel against an owner that answers in any order: each publish has its own answer, or is given up with what it lacks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp.commands import Basic, Channel
from pamqp.commands import Confirm as ConfirmMode

from tests.shared.test_client_channel import Owner
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.amqp.wire.codec import decode_method
from warrenmq.amqp.wire.frames import METHOD
from warrenmq.errors import Error, Nacked
from warrenmq.runtime import Simulation
from warrenmq.shared.errors import LinkLost
from warrenmq.shared.publishing import PublishChannel, Unconfirmed


class PublishOwner(Owner):
    """An owner that takes publishes, unless nothing can be written to it."""

    blocked = refuses = False

    def write(self, data: bytes, channel: Any = None) -> None:
        if self.refuses:
            raise MemoryError
        if channel is not None:
            channel.written += 1
        for frame in self.cutter.feed(data):
            method = decode_method(frame.payload) if frame.type == METHOD else None
            if isinstance(method, Channel.Open):
                self.say(Channel.OpenOk)
            elif isinstance(method, ConfirmMode.Select):
                self.say(ConfirmMode.SelectOk)


ANSWERS = st.tuples(st.integers(1, 8), st.booleans(), st.booleans())
"""(number, multiple, nacked)"""


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=5),
    st.lists(ANSWERS, max_size=16),
    st.booleans(),
)
@example(publishes=[(2, True), (1, False)], answers=[(1, False, False)], is_lost=False)
def test_each_publish_has_the_answers_of_its_own_numbers(
    publishes: list[tuple[int, bool]], answers: list[tuple[int, bool, bool]], is_lost: bool
) -> None:
    """A publish is (its bodies, whether it cannot be sent); answers come once for each number that was sent."""
    runtime, given_up = Simulation(0), dict[int, Error]()
    owner = PublishOwner()
    channel = PublishChannel(
        owner,  # type: ignore[arg-type]
        lambda items, error: given_up.update({id(each): error for each in items}),
    ).open()
    sent: list[tuple[Unconfirmed, range]] = []
    after = 1
    for bodies, owner.refuses in publishes:
        item = Unconfirmed(
            "", "q", [b"x"] * bodies, None, persistent=True, mandatory=False, confirm=Confirm(runtime)
        )
        if owner.refuses:
            with pytest.raises(MemoryError):
                channel.publish(item)
        else:
            channel.publish(item)
            sent.append((item, range(after, after + bodies)))
            after += bodies
    told: dict[int, bool] = {}
    for number, multiple, nacked in answers:
        numbers = [
            each
            for each in (range(1, number + 1) if multiple else (number,))
            if each not in told and each < after
        ]
        if number < after and numbers:
            told |= dict.fromkeys(numbers, nacked)
            owner.say(Basic.Nack if nacked else Basic.Ack, delivery_tag=number, multiple=multiple)
    if is_lost:
        channel.ended(LinkLost("the owner ended"), lost=True)
    for item, numbers in sent:
        nacked, is_answered = any(told.get(each) for each in numbers), all(each in told for each in numbers)
        assert item.confirm.done() == (nacked or is_answered)
        assert isinstance(item.confirm.exception(), Nacked) == nacked
        assert (id(item) in given_up) == (is_lost and not is_answered)
        if is_lost and not is_answered:
            assert len(item.unanswered()) == sum(each not in told for each in numbers)
    runtime.close()
