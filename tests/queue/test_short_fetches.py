"""Messages that were dealt out and turn out to be gone: expired, or without a body."""

from __future__ import annotations

from threading import Lock
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from warrenmq.actors.queue.consumers import QueueConsumers
from warrenmq.message.queue_message import Fetched
from warrenmq.queue.limiter import Limiter
from warrenmq.queue.messages import Consume, Deliveries, Resume


class Process:
    """As much of a queue process, and of a runtime, as consumers and limiters need."""

    lock = staticmethod(Lock)
    actor_ref = "queue"

    def __init__(self) -> None:
        self.resumes: list[Resume] = []

    def monitor(self, _channel: str) -> int:
        return 1

    def cast(self, _queue: str, message: Resume) -> None:
        self.resumes.append(message)


class Head:
    """The front of a queue: True = a message, False = one that is gone when it is fetched."""

    def __init__(self, messages: list[bool]) -> None:
        self._messages = list(enumerate(messages))

    @property
    def ready(self) -> int:
        return len(self._messages)

    def fetch(self, most: int, *, ack_required: bool) -> list[Fetched]:
        del ack_required
        taken, self._messages = self._messages[:most], self._messages[most:]
        return [Fetched(seq, b"", 0, redelivered=False, in_store=False) for seq, there in taken if there]


class Outlet:
    def __init__(self) -> None:
        self.got: list[int] = []

    def put(self, item: Deliveries) -> None:
        self.got += [message.seq_id for message in item.messages]


wishes = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([None, "one", "two"]), st.integers(0, 1)),
    min_size=1, max_size=4,
)  # fmt: skip
"""(prefetch, no_ack, channel, priority) of each consumer."""


@example(messages=[False, False, True], wished=[(1, False, None, 0)], limit=0)
@example(messages=[False, False, True], wished=[(0, False, "one", 0)], limit=1)
@settings(max_examples=400)
@given(
    messages=st.lists(st.booleans(), min_size=1, max_size=30),
    wished=wishes,
    limit=st.sampled_from([0, 0, 1, 2]),
)
def test_nobody_is_taken_for_full_of_messages_that_were_gone(
    messages: list[bool], wished: list[tuple[int, bool, str | None, int]], limit: int
) -> None:
    process: Any = Process()
    consumers = QueueConsumers(
        "q", process, cast("Any", Head(messages)), lambda *_: None, rows=None, single_active=False, in_use=""
    )
    limiters = {channel: Limiter(process.lock()) for channel in ("one", "two")}
    for limiter in limiters.values():
        limiter.limit(limit)
    outlets = [Outlet() for _ in wished]
    for number, (outlet, (prefetch, no_ack, channel, priority)) in enumerate(
        zip(outlets, wished, strict=True)
    ):
        limiter = None if channel is None else limiters[channel]
        consumers.consume(
            Consume(number, outlet, prefetch, no_ack, False, cast("Any", channel), "", priority, limiter)
        )
    consumers.deliver()
    while process.resumes:
        consumers.resume(process.resumes.pop(0).channel)
        consumers.deliver()
    there = [seq for seq, is_there in enumerate(messages) if is_there]
    delivered = sorted(seq for outlet in outlets for seq in outlet.got)
    assert delivered == there[: len(delivered)]
    held = dict.fromkeys(limiters, 0)
    for outlet, (_, no_ack, channel, _) in zip(outlets, wished, strict=True):
        if channel is not None and not no_ack:
            held[channel] += len(outlet.got)
    if len(delivered) < len(there):
        for outlet, (prefetch, no_ack, channel, _) in zip(outlets, wished, strict=True):
            own = bool(prefetch) and not no_ack and len(outlet.got) == prefetch
            assert own or (channel is not None and 0 < limit == held[channel])
