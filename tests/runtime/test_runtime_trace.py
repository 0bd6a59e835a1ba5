"""What the runtime itself writes into the trace, and that it costs nothing when there is none."""

from dataclasses import dataclass
from itertools import count

import pytest

from tests.support.schedulers import LIMIT, Worker, busy, do, end_of, until
from warrenmq.runtime import Server
from warrenmq.trace.events import Ev, Reason


class FakeTrace:
    """Rows as tuples; a clock that only counts."""

    def __init__(self, number, rows, tick):
        self.id, self.rows, self.tick = number, rows, tick
        self.last_t, self.seq, self.closed = 0, 0, False

    def emit(self, event, flag=0, msg=0, peer=0, pseq=0, a=0, b=0, c=0):
        assert not self.closed, "ACTOR_STOP is the last row"
        self.seq += 1
        self.last_t = max(next(self.tick), self.last_t + 1)
        self.rows.append((self.id, self.seq, Ev(event), flag, msg, peer, pseq, a, b, c))
        return self.seq

    def observe(self, t):
        self.last_t = max(self.last_t, t)

    def close(self):
        self.closed = True


class FakeRecorder:
    def __init__(self):
        self.rows, self.actors, self.traces, self.kinds = [], {}, {}, {}
        self.tick = count(1)

    def actor(self, name, kind, parent=0):
        number = len(self.actors) + 1
        self.actors[number] = (name, kind, parent)
        trace = self.traces[number] = FakeTrace(number, self.rows, self.tick)
        return trace

    def kind(self, message_class):
        return self.kinds.setdefault(message_class, len(self.kinds) + 1)

    def of(self, event):
        return [row for row in self.rows if row[2] is event]


@dataclass(slots=True)
class Publish:
    number: int

    def traced(self):
        return 1000 + self.number, self.number, 1


@dataclass(slots=True)
class Ping:
    pass


class Receiver(Worker):
    receives = frozenset({Publish})

    def handle_cast(self, message):
        if isinstance(message, Publish):
            self.seen.append((message.number, self.sender_id, self.sender_seq))
        else:
            super().handle_cast(message)


@pytest.fixture
def recorder(runtime):
    runtime.recorder = FakeRecorder()
    return runtime.recorder


def test_an_actor_has_a_first_and_a_last_row_and_a_parent(runtime, recorder):
    parent = runtime.start(Worker, name="p")
    child = runtime.start(Worker, parent=parent)
    runtime.stop_actor(child, "normal", timeout=LIMIT)
    runtime.stop_actor(parent, timeout=LIMIT)
    runtime.start(Worker, name="p")
    assert recorder.actors == {1: ("p", "Worker", 0), 2: ("Worker-1", "Worker", 1), 3: ("p", "Worker", 0)}
    assert [(row[0], row[7]) for row in recorder.of(Ev.ACTOR_START)] == [(1, 1), (2, 1), (3, 2)]
    assert [(row[0], row[3]) for row in recorder.of(Ev.ACTOR_STOP)] == [
        (2, Reason.NORMAL),
        (1, Reason.SHUTDOWN),
    ]
    assert recorder.traces[1].closed


def test_a_send_and_its_receive_name_each_other(runtime, recorder):
    sender, receiver = runtime.start(Worker), runtime.start(Receiver)
    runtime.call(
        sender, do(lambda server: [server.cast(receiver, Publish(7)), server.cast(receiver, Ping())])
    )
    assert runtime.call(receiver, "what came")[:1] == [(7, 1, 2)]
    publish, ping = recorder.of(Ev.SEND)
    kinds = recorder.kinds
    assert publish == (1, 2, Ev.SEND, kinds[Publish], 1007, 2, 0, 7, 1, 0)
    assert ping == (1, 3, Ev.SEND, kinds[Ping], 0, 2, 0, 0, 0, 0)
    (received,) = recorder.of(Ev.RECV)
    assert received == (2, 2, Ev.RECV, kinds[Ping], 0, 1, 3, 0, 0, 0), (
        "Publish has a row of the receiver's own"
    )
    assert recorder.traces[2].last_t > 0


def test_an_outsider_with_a_trace_sends_like_an_actor(runtime, recorder):
    receiver = runtime.start(Receiver)
    outside = recorder.actor("app", "application")
    assert runtime.cast(receiver, Publish(1), outside)
    assert runtime.call(receiver, "what came", trace=outside) == [(1, outside.id, 1)]
    assert len(recorder.of(Ev.SEND)) == 2
    assert [row[6] for row in recorder.of(Ev.RECV)] == [2]


def test_a_callers_clock_is_never_behind_the_answer(runtime, recorder):
    caller, server = runtime.start(Worker), runtime.start(Worker)

    def ahead(server):
        server.trace.last_t = 10_000

    runtime.cast(server, ahead)
    runtime.call(caller, do(lambda caller: caller.call(server, "what came")))
    assert recorder.traces[1].last_t >= 10_000


def test_the_sender_is_reset_after_a_traced_message(runtime, recorder):
    receiver = runtime.start(Receiver)
    outside = recorder.actor("app", "application")
    runtime.cast(receiver, Publish(1), outside)
    runtime.cast(receiver, Publish(2))
    assert runtime.call(receiver, "what came") == [(1, outside.id, 1), (2, 0, 0)]


def test_undelivered_mail_is_traced_by_the_sender_or_by_the_dying_actor(runtime, recorder):
    returned = []

    class Keeper(Worker):
        def undelivered(self, message):
            returned.append(message)

    outside = recorder.actor("app", "application")
    keeper = runtime.start(Keeper)
    gate = busy(runtime, keeper, first=lambda server: None)
    runtime.cast(keeper, Publish(1), outside)
    stopper = runtime.start(Worker)
    runtime.cast(stopper, lambda server: server.runtime.stop_actor(keeper, timeout=LIMIT))
    until(runtime, lambda: keeper.actor_inbox._exits)
    gate.set()
    end_of(runtime, keeper)
    assert runtime.cast(keeper, Publish(2), outside) is False
    assert runtime.cast("nobody", Publish(3), outside) is False
    rows = [(row[0], row[3], row[5], row[6]) for row in recorder.of(Ev.UNDELIVERED)]
    kind = recorder.kinds[Publish]
    keepers = keeper.actor_inbox.trace_id
    assert rows == [(keepers, kind, outside.id, 1), (outside.id, kind, 0, 2), (outside.id, kind, 0, 4)]
    assert returned == [Publish(1), Publish(2)]


def test_priorities_see_through_the_wrapping(runtime, recorder):
    class Ranked(Worker):
        @staticmethod
        def priority(message):
            return message.number if isinstance(message, Publish) else 0

    ranked = runtime.start(Ranked)
    outside = recorder.actor("app", "application")
    gate = busy(runtime, ranked)
    for number in (1, 3, 2):
        runtime.cast(ranked, Publish(number), outside)
    gate.set()
    assert runtime.call(ranked, "what came") == [Publish(3), Publish(2), Publish(1)]


def test_without_a_recorder_messages_travel_bare(runtime):
    class Bare(Server):
        def handle_call(self, request, sender):
            return self.trace, self.sender_id, self.actor_inbox.trace_id

    assert runtime.call(runtime.start(Bare), "x") == (None, 0, 0)
