"""Marks, exchanges, bindings, routes, and the messages of a recovery, as a trace has them."""

import re

import pytest

from tests.support.simulated import BOTH_PROFILES
from warrenmq.errors import ArgumentTypeError, ArgumentValueError
from warrenmq.message.runs import message_runs
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.testing import SimulatedMachine
from warrenmq.trace import schema
from warrenmq.trace.events import (
    BindingGone,
    BindingMade,
    Bound,
    Confirm,
    Ev,
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeType,
    Mark,
    Publish,
    Recovered,
    Routed,
    Send,
    Unrouted,
)
from warrenmq.trace.reader import open_memory
from warrenmq.trace.recorder import MARKS, TEXTS, Recorder
from warrenmq.trace.sentences import Narrator
from warrenmq.trace.sink import MemorySink

LARGE = b"x" * 5_000


@pytest.fixture
def machine():
    with SimulatedMachine(3, traced=True) as machine:
        yield machine


def told(machine, *events):
    """Rows of these events by their columns' names, with the texts for their numbers."""
    with open_memory(machine.sink.files()) as trace:
        runs = trace.catalog.runs
        numbers = {event.number: event for event in events}
        found = []
        for run, row in rows_in_order(trace):
            if row.event in numbers:
                values = {
                    column.name: runs[run].texts.get(value, value) if column.type is schema.TEXT else value
                    for column, value in numbers[row.event].of(row).items()
                }
                found.append((Ev(row.event), values))
        return found


def test_marks_of_a_broker_and_of_a_machine_are_rows_with_their_text(machine):
    machine.mark("before any broker there is no trace")
    broker = machine.open()
    machine.mark("open")
    broker.mark("ärger")
    broker.mark("ärger")
    machine.crash(power_cut=True)
    machine.mark("dark")
    machine.open().close()
    assert [values["text"] for _, values in told(machine, Mark)] == ["open", "ärger", "ärger", "dark"]
    with open_memory(machine.sink.files()) as trace:
        narrator = Narrator(trace.catalog)
        marks = [narrator.sentence(run, row) for run, row in rows_in_order(trace) if row.event == Ev.MARK]
    assert marks[:2] == ["scenario marks: open", "client-1 marks: ärger"]


def test_a_mark_is_checked_and_costs_nothing_without_a_trace():
    with SimulatedMachine() as machine:
        machine.mark("nothing")
        broker = machine.open()
        broker.mark("nothing")
        with pytest.raises(ArgumentTypeError):
            broker.mark(1)
        with pytest.raises(ArgumentValueError):
            broker.mark("x" * 256)


def test_a_trace_holds_so_many_texts_and_keeps_room_for_marks():
    recorder = Recorder(MemorySink(), run="1")
    assert [recorder.text(str(n)) for n in range(TEXTS)] == [*range(1, TEXTS + 1)]
    assert (recorder.text("one more"), recorder.text("0")) == (0, 1)
    assert recorder.text("a mark", TEXTS + MARKS) == TEXTS + 1
    recorder.close()


def test_half_of_a_surrogate_pair_does_not_stop_the_broker():
    sink = MemorySink()
    recorder = Recorder(sink, run="1")
    assert recorder.text("\ud800") == 1
    recorder.close()
    with open_memory(sink.files()) as trace:
        assert trace.catalog.runs[0].texts == {1: "?"}


def test_exchanges_and_bindings_are_told_when_they_change_and_at_each_start(machine):
    broker = machine.open()
    broker.declare_exchange("lost", "direct")
    broker.declare_exchange("mail", "topic", arguments={"alternate-exchange": "lost"})
    broker.declare_queue("orders")
    broker.bind("orders", "mail", "a.*")
    broker.bind("lost", "mail", "b", destination_type="exchange")
    broker.close()
    broker = machine.open()
    broker.unbind("orders", "mail", "a.*")
    broker.delete_exchange("mail")
    broker.close()
    lost = Ev.EXCHANGE_DECLARED, {"type": ExchangeType.DIRECT, "exchange": "lost", "alternate": 0}
    mail = Ev.EXCHANGE_DECLARED, {"type": ExchangeType.TOPIC, "exchange": "mail", "alternate": "lost"}
    queue = {"to": Bound.QUEUE, "exchange": "mail", "destination": "orders", "routing_key": "a.*"}
    exchange = {"to": Bound.EXCHANGE, "exchange": "mail", "destination": "lost", "routing_key": "b"}
    there = [lost, mail, (Ev.BOUND, queue), (Ev.BOUND, exchange)]
    gone = [(Ev.UNBOUND, queue), (Ev.UNBOUND, exchange), (Ev.EXCHANGE_DELETED, {"exchange": "mail"})]
    events = ExchangeDeclared, ExchangeDeleted, BindingMade, BindingGone
    assert told(machine, *events) == [*there, *there, *gone]


def test_a_route_is_told_when_it_changes_and_never_of_a_queue_s_own_publishes(machine):
    broker = machine.open()
    broker.declare_exchange("mail", "fanout")
    orders = broker.declare_queue("orders")
    broker.bind("orders", "mail")
    orders.publish(b"1").result()
    for key in ("a", "a", "b"):
        broker.publish("mail", key, b"22").result()
    orders.publish_many([b"333", b"4"]).result()
    orders.publish(b"5").result()
    broker.publish("", "nowhere", b"lost").result()
    broker.close()
    routes = [values for event, values in told(machine, Routed)]
    assert [(each["exchange"], each["routing_key"]) for each in routes] == [
        ("mail", "a"), ("mail", "b"), ("", 0),
    ]  # fmt: skip
    publishes = [values for _, values in told(machine, Send) if values["count"]]
    assert [values["size"] for values in publishes] == [1, 2, 2, 2, 4, 1]
    (unrouted,) = [values for _, values in told(machine, Unrouted)]
    assert unrouted.pop("since") > 0
    assert unrouted == {"count": 1, "exchange": "", "routing_key": "nowhere"}


@pytest.mark.parametrize("power_cut", [True, False])
@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_a_recovery_names_the_messages_that_the_files_name(profile, power_cut):
    """Files of version 2 do not have the ids of bodies that they hold."""
    with SimulatedMachine(1, BOTH_PROFILES[profile], traced=True) as machine:
        first, found = machine.sim.run(lambda: recovered(machine, power_cut=power_cut))
    small = {"classic": first + 2, "modern": 0}[profile]
    runs = {"classic": [(1, 3, first + 1)], "modern": [(1, 1, first + 1), (2, 1, small), (3, 1, first + 3)]}
    assert found == runs[profile]


def recovered(machine, *, power_cut):
    """The first message id, and the RECOVERED rows after a crash."""
    broker = machine.open()
    jobs = broker.declare_queue("jobs", arguments={"x-max-priority": 1})
    for body in (LARGE, LARGE, b"small", LARGE):
        jobs.publish(body).result()
    jobs.get(1.0).ack()
    machine.sleep(1.0)
    machine.crash(power_cut=power_cut)
    machine.open()
    first = next(values["message"] for _, values in told(machine, Publish))
    return first, [tuple(values.values()) for _, values in told(machine, Recovered)]


@pytest.mark.parametrize(
    ("messages", "runs"),
    [
        ([(3, 0), (4, 0), (5, 0)], [(3, 3, 0)]),
        ([(3, 7), (4, 8), (5, 9)], [(3, 3, 7)]),
        ([(3, 7), (4, 9), (5, 10), (6, 0)], [(3, 1, 7), (4, 2, 9), (6, 1, 0)]),
        ([(3, 0), (4, 0), (5, 1)], [(3, 2, 0), (5, 1, 1)]),
        ([(1, 5), (3, 6)], [(1, 1, 5), (3, 1, 6)]),
        ([], []),
    ],
)
def test_runs_are_cut_where_message_ids_are_not_consecutive(messages, runs):
    assert [*message_runs(messages)] == runs


@pytest.mark.parametrize("event", schema.EVENTS.values(), ids=lambda event: event.__name__)
def test_a_sentence_names_what_its_event_has(event):
    """A name that no column has is printed as "?"."""
    said = {column.name for column in event.columns} | {"actor"}
    said |= {"messages"} if event.has("first_seq_id") else set()
    said |= {"message_ids"} if event.has("message") else set()
    said |= {"synced"} if event is Confirm else set()
    assert set(re.findall(r"\{(\w+)\}", event.says)) <= said
