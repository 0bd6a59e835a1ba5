"""A client's channel against an owner that answers in any order of events: each call is told once, and its own answer."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic, Channel, Queue

from tests.support.limits import LIMIT
from warrenmq.amqp.wire.codec import decode_method, encode_content, encode_method, make, raw_properties
from warrenmq.amqp.wire.frames import FrameCutter
from warrenmq.errors import BrokerClosed, Error, NotFound
from warrenmq.queue.messages import Consume
from warrenmq.shared.channel import Answer, ClientChannel
from warrenmq.shared.consuming import ConsumerChannel
from warrenmq.shared.patience import Unanswered, limited

OPS = (
    "call",
    "answer",
    "interrupt",
    "too late",
    "sync too late",
    "ack",
    "owner closes",
    "close",
    "owner answers close",
    "lost",
)

FLOW = -1
"""Stands in `waiting` for a channel.flow."""


class Owner:
    """Stands for the connection and for the owner behind it; the test says when it answers."""

    frame_max = 0

    def __init__(self) -> None:
        self.cutter = FrameCutter()
        self.sent: list[Any] = []
        self.removed = 0
        self.channel: ClientChannel | None = None

    def is_own_thread(self) -> bool:
        return False

    def add(self, channel: ClientChannel) -> None:
        self.channel = channel
        channel.number = 1

    def remove(self, _number: int) -> None:
        self.removed += 1

    def write(self, data: bytes, channel: ClientChannel | None = None) -> None:
        if channel is not None:
            channel.written += 1
        for frame in self.cutter.feed(data):
            self.sent.append(decode_method(frame.payload))
            if isinstance(self.sent[-1], Channel.Open):
                self.say(Channel.OpenOk)

    def say(self, kind: Any, **values: Any) -> None:
        assert self.channel is not None
        self.channel.frames(FrameCutter().feed(encode_method(1, make(kind, **values))))


@given(st.lists(st.sampled_from(OPS), max_size=30))
def test_every_call_is_told_once_and_nothing_follows_close_ok(ops: list[str]) -> None:
    owner = Owner()
    channel = ClientChannel(owner).open()  # type: ignore[arg-type]
    calls: list[Answer] = []
    answers: dict[int, int] = {}
    waiting: deque[int] = deque()
    dropped: list[int] = []
    interrupted: set[int] = set()
    closed = closing = asked_to_close = False
    for op in ops:
        if op == "call":
            try:
                calls.append(channel.ask_with(channel._encoded(Queue.Purge, {"queue": "q"}), Answer()))
            except Error:
                assert closed or closing
            else:
                assert not closed
                assert not closing
                waiting.append(len(calls) - 1)
        elif op == "too late":
            answer = Answer()
            try:
                limited(-LIMIT, lambda: channel.call(Queue.Purge, answer, queue="q"))  # noqa: B023
            except Unanswered:
                calls.append(answer)
                waiting.append(len(calls) - 1)
            except Error:
                assert closed or closing
        elif op == "sync too late":
            for most in (1, 0):  # once for all that is given up before
                before = owner.sent.copy()
                with suppress(Unanswered):
                    limited(-LIMIT, channel.sync)
                flows = owner.sent[len(before) :]
                assert len(flows) <= most
                waiting.extend([FLOW] * len(flows))
        elif op == "answer" and waiting and not closed:
            number = waiting.popleft()
            if number == FLOW:
                owner.say(Channel.FlowOk, active=True)
                continue
            answers[number] = number
            owner.say(Queue.PurgeOk, message_count=number)
        elif op == "interrupt" and waiting and waiting[0] not in {*interrupted, FLOW}:
            interrupted.add(waiting[0])
            channel.hand_over(
                calls[waiting[0]], lambda value: dropped.append(getattr(value, "message_count", -1))
            )
        elif op == "ack":
            try:
                channel.send(Basic.Ack, delivery_tag=1)
            except Error:
                assert closed or closing
        elif op == "owner closes" and not closed:
            closed = True
            owner.say(Channel.Close, reply_code=404, reply_text="NOT_FOUND - no queue 'q' in vhost '/'")
        elif op == "close" and not closed and not closing:
            closing = asked_to_close = True
            channel.close_soon()
        elif op == "owner answers close" and asked_to_close:
            asked_to_close, closed = False, True
            owner.say(Channel.CloseOk)
            channel.sync()
        elif op == "lost":
            closed = True
            channel.lost(BrokerClosed("the owner ended"))
            break
        last = [type(each) for each in owner.sent]
        if Channel.CloseOk in last:
            assert set(last[last.index(Channel.CloseOk) :]) == {Channel.CloseOk}
        assert owner.removed == (closed and not asked_to_close)
    for number, each in enumerate(calls):
        assert each.known.is_set() == (number in answers or closed)
        if number in answers:
            assert each.value.message_count == number
        elif closed:
            assert isinstance(each.value, NotFound | BrokerClosed)
    assert len(dropped) == len([each for each in interrupted if each in answers or closed])


def test_deliveries_that_come_with_the_end_of_a_consumer_are_put_before_it() -> None:
    """Behind it they had the tags of the next channel, whose messages their acks settled."""
    outlet: list[Any] = []
    box = SimpleNamespace(put=outlet.append)
    channel = ConsumerChannel(Owner(), Consume(1, box, 5, no_ack=False, exclusive=False), "q", None)  # type: ignore[arg-type]
    channel.number = 1
    channel.on_end(lambda _reason: outlet.append("the end"))
    deliver = make(
        Basic.Deliver, consumer_tag="c", delivery_tag=1, redelivered=False, exchange="", routing_key="q"
    )
    content = encode_content(1, encode_method(1, deliver), raw_properties(None), b"body", 0)
    channel.frames(
        FrameCutter().feed(b"".join([*content, encode_method(1, make(Basic.Cancel, consumer_tag="c"))]))
    )
    first, last = outlet
    assert (first.first_tag, [each.payload for each in first.messages], last) == (1, [b"body"], "the end")
