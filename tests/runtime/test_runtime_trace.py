"""Rows that the runtime itself writes into the trace, which cost nothing when there is none."""

from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

import pytest

from tests.support.kept_rows import KeptRows
from tests.support.schedulers import LIMIT, Worker, busy, do, end_of, until
from warrenmq.runtime import Server
from warrenmq.trace import events as e
from warrenmq.trace.events import Reason
from warrenmq.trace.writers import writer

_write_read = writer(e.Read)


class FakeRecorder:
    def __init__(self):
        self.actors, self.traces, self.kinds = {}, {}, {}
        self.tick = count(1)

    def actor(self, name, kind, parent=0):
        number = len(self.actors) + 1
        self.actors[number] = (name, kind, parent)
        trace = self.traces[number] = KeptRows(number, self.tick)
        return trace

    def kind(self, message_class):
        return self.kinds.setdefault(message_class, len(self.kinds) + 1)

    def of(self, event):
        """(actor, seq of the row, what it says) of every row of an event, in the order of their times."""
        rows = sorted(
            row for trace in self.traces.values() for row in trace.rows() if row.event == event.number
        )
        return [
            (row.actor, row.seq, {column.name: value for column, value in event.of(row).items()})
            for row in rows
        ]


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
    assert [(actor, said["incarnation"]) for actor, _, said in recorder.of(e.ActorStart)] == [
        (1, 1),
        (2, 1),
        (3, 2),
    ]
    assert [(actor, said["reason"]) for actor, _, said in recorder.of(e.ActorStop)] == [
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
    publish, ping = recorder.of(e.Send)
    kinds = recorder.kinds
    assert publish == (
        1,
        2,
        {
            "kind": kinds[Publish],
            "message": 1007,
            "receiver": 2,
            "size": 0,
            "first_seq_id": 7,
            "count": 1,
            "queues": 0,
        },
    )
    assert ping == (
        1,
        3,
        {
            "kind": kinds[Ping],
            "message": 0,
            "receiver": 2,
            "size": 0,
            "first_seq_id": 0,
            "count": 0,
            "queues": 0,
        },
    )
    (received,) = recorder.of(e.Recv)
    assert received == (2, 2, {"kind": kinds[Ping], "sender": 1, "send": 3}), (
        "Publish has a row of the receiver's own"
    )
    assert recorder.traces[2].last_t > 0


def test_an_outsider_with_a_trace_sends_like_an_actor(runtime, recorder):
    receiver = runtime.start(Receiver)
    outside = recorder.actor("app", "application")
    assert runtime.cast(receiver, Publish(1), outside)
    assert runtime.call(receiver, "what came", trace=outside) == [(1, outside.id, 1)]
    assert len(recorder.of(e.Send)) == 2
    assert [said["send"] for _, _, said in recorder.of(e.Recv)] == [2]


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
    rows = [
        (actor, said["kind"], said["sender"], said["send"]) for actor, _, said in recorder.of(e.Undelivered)
    ]
    kind = recorder.kinds[Publish]
    keepers = keeper.actor_inbox.trace_id
    assert rows == [(keepers, kind, outside.id, 1), (outside.id, kind, 0, 2), (outside.id, kind, 0, 4)]
    assert returned == [Publish(1), Publish(2)]


@pytest.mark.parametrize("starting", [False, True])
def test_one_that_was_killed_writes_no_row_but_its_last(runtime, recorder, starting):
    """Its thread goes on, and its successor may have rows by then."""
    killed, gate = runtime.channel(), runtime.event()

    def slow(server):
        killed.put(server.actor_ref)
        gate.wait(LIMIT)
        _write_read(server.trace, e.BY_SERVER, 1, 0, 0, 1, 2, 3)

    starter = runtime.start(Worker)
    if starting:
        runtime.cast(starter, lambda server: server.runtime.start(Worker, None, slow))
    else:
        runtime.cast(starter, lambda server: server.runtime.cast(server.runtime.start(Worker), slow))
    ref = killed.get(timeout=LIMIT)
    runtime.kill(ref)
    gate.set()
    trace = recorder.traces[ref.actor_inbox.trace_id]
    until(runtime, lambda: trace.closed)
    assert [event for event, _ in trace.said()] == [e.ActorStart, e.ActorStop][starting:]


def test_priorities_see_through_the_wrapping(runtime, recorder):
    class Ranked(Worker):
        ranks = MappingProxyType({Publish: 1})

    ranked = runtime.start(Ranked)
    outside = recorder.actor("app", "application")
    gate = busy(runtime, ranked)
    for message in (Ping(), Publish(3), Publish(2)):
        runtime.cast(ranked, message, outside)
    gate.set()
    assert runtime.call(ranked, "what came") == [Publish(3), Publish(2), Ping()]


def test_without_a_recorder_messages_travel_bare(runtime):
    class Bare(Server):
        def handle_call(self, request, sender):
            return self.trace, self.sender_id, self.actor_inbox.trace_id

    assert runtime.call(runtime.start(Bare), "x") == (None, 0, 0)
