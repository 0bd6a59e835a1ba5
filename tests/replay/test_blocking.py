"""Mailboxes and held-up senders: a trace to count on the fingers, and simulated brokers that know what was so."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

import warrenmq
from tests.replay.hand_made import CLIENT, QUEUE, hand_made
from tests.support.simulated import SimulatedHost, stuck_queue
from tests.support.trace_writer import Actor, write_trace
from warrenmq.queue.messages import Ack
from warrenmq.replay.drive.levels import Kind
from warrenmq.replay.report.blocking import AN_ALARM, courses
from warrenmq.replay.report.blocking_figures import mailboxes, senders, waiting
from warrenmq.replay.report.measures import Measures, measure_trace
from warrenmq.replay.report.report_data import build
from warrenmq.replay.report.totals import waiting_totals
from warrenmq.runtime.life import inbox_of
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Ev, Reason
from warrenmq.trace.reader import open_memory


def measured(files: dict[str, bytes]) -> tuple[Measures, Catalog]:
    trace = open_memory(files)
    return measure_trace(trace), trace.catalog


def drawn(files: dict[str, bytes]):
    return build(*measured(files))


def mail_of(files: dict[str, bytes], name: str):
    """The last incarnation's."""
    measures, catalog = measured(files)
    found = [course for course in courses(measures, catalog)
             if course.kind == Kind.MAIL and catalog.runs[course.who[0]].actor_name(course.who[1]) == name]  # fmt: skip
    return found[-1]


def test_the_numbers_of_a_trace_that_can_be_counted():
    assert waiting_totals(*measured(write_trace(hand_made()))) == {
        "waits for credit": 2,
        "waited for credit s": pytest.approx(0.025 + 0.010),
        "waits for an alarm": 1,
        "waited for an alarm s": pytest.approx(0.020),
        "mail between actors": 4,
        "deepest mailbox": 3,
        "wait in a mailbox mean ms": pytest.approx((23 + 22 + 21 + 3) / 4),
    }


def test_traces_of_an_earlier_version_have_no_figures_of_waiting():
    measures, catalog = measured(write_trace(hand_made()))
    for event in (Ev.CREDIT_BLOCKED, Ev.ALARM_BLOCKED):
        del catalog.runs[0].events[event]
    assert list(waiting_totals(measures, catalog)) == [
        "mail between actors",
        "deepest mailbox",
        "wait in a mailbox mean ms",
    ]


def test_the_picture_of_a_trace_that_can_be_counted():
    picture = drawn(write_trace(hand_made()))
    assert picture.width == 0.01
    assert list(picture.mailboxes) == ["queue:q"], "of the store's sender there is no trace"
    box = picture.mailboxes["queue:q"]
    assert (box.taken, box.most, box.depth) == (4, 3, [3, 3, 0, 1, 0, 0, 0, 0, None])
    assert box.in_and_out == [(3, 0), (0, 0), (0, 3), (1, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0)]
    assert box.wait == pytest.approx(69e-3 / 4)
    assert [(held.sender, held.towards, held.times) for held in picture.held] == [
        ("client-1", "queue:q", 1), ("client-1", AN_ALARM, 1), ("queue:q", "msg_store_persistent", 1),
    ]  # fmt: skip
    assert [held.seconds for held in picture.held] == pytest.approx([0.025, 0.020, 0.010])
    assert picture.waiting["queue:q"] == pytest.approx([0, 0.8, 1, 0.7, 0, 0, 0, 0, 0])
    assert picture.waiting["msg_store_persistent"] == pytest.approx([0, 0.6, 0.4, 0, 0, 0, 0, 0, 0])
    assert picture.waiting[AN_ALARM] == pytest.approx([0, 0, 0, 0, 0.5, 1, 0.5, 0, 0])


def test_plots_without_waits_are_left_out():
    runs = hand_made()
    for actor in runs[0].actors:
        actor.rows = [
            row for row in actor.rows if row[8] >> 8 & 0xFF in {Ev.RUN_START, Ev.ACTOR_START, Ev.RUN_END}
        ]
    picture = drawn(write_trace(runs))
    assert [plot(picture) for plot in (mailboxes, waiting, senders)] == [None] * 3


def test_mail_for_dead_actors_is_gone():
    """The queue stops without having read the last message."""
    runs = hand_made()
    queue = runs[0].actors[QUEUE - 1]
    del queue.rows[-2]
    queue.rows[-1][1] -= 1
    box = mail_of(write_trace(runs), "queue:q")
    assert (box.rises, box.falls, box.until) == (4, 3, 70_000_000)
    assert box.seconds == pytest.approx((23 + 22 + 21 + (70 - 38)) / 1000)


@pytest.mark.parametrize("told_by", ["its supervisor", "its successor"])
def test_a_killed_actor_counts_as_gone_without_an_actor_stop(told_by):
    runs = hand_made()
    queue = runs[0].actors[QUEUE - 1]
    del queue.rows[-2:]
    queue.last -= 2
    if told_by == "its supervisor":
        other, row = Actor(9, "queue_sup", "Supervisor", 0), (Ev.CHILD_EXIT << 8 | Reason.KILLED, QUEUE, 0)
    else:
        other, row = Actor(9, "queue:q", "QueueProcess", 0), (Ev.ACTOR_START << 8, 0, 2)
    what, peer, a = row
    other.rows.append([60_000_000, 1, 0, peer, 0, a, 0, 0, 9 << 16 | what])
    other.last = 1
    runs[0].actors.append(other)
    box = mail_of(write_trace(runs), "queue:q")
    assert (box.until, box.spans[-1].level) == (60_000_000, 1)


def test_a_wait_lasts_until_the_process_is_killed():
    runs = hand_made()
    runs[0].closed = False
    for actor in (CLIENT, QUEUE):
        del runs[0].actors[actor - 1].rows[4:]
    picture = drawn(write_trace(runs))
    assert picture.held[0][:2] == ("client-1", "queue:q")
    assert picture.held[0].seconds == pytest.approx((72 - 12) / 1000), "the run's last row is at 72 ms"


def test_behind_a_missing_receive_nothing_is_said_of_a_mailbox():
    """Of the queue, everything from the first PUBLISH to its end is missing: the mail may have been taken."""
    runs = hand_made()
    queue = runs[0].actors[QUEUE - 1]
    del queue.rows[3:-1]
    box = mail_of(write_trace(runs), "queue:q")
    assert box.until == 24_000_000
    assert box.rises == 3
    assert box.seconds == pytest.approx((19 + 18 + 17) / 1000)


def test_mail_whose_send_is_missing_is_not_counted_twice():
    """The client's first two rows are lost: of the three that are received together, two were never seen to come."""
    runs = hand_made()
    del runs[0].actors[CLIENT - 1].rows[:2]
    box = mail_of(write_trace(runs), "queue:q")
    assert box.most == 1
    assert (box.spans[-1].level, box.rises, box.falls) == (0, 2, 4)
    assert box.seconds <= (21 + 3) / 1000


def test_a_mailbox_is_as_deep_as_the_broker_says():
    host = SimulatedHost(3)
    with host.open() as broker:
        queue = broker.declare_queue("q")
        queue.publish(b"m").result()
        stuck_queue(host, broker, 5.0)
        for length in (1, 5, 40):
            while inbox_of(broker.inside.client.calls.address("q")).length() < length:
                host.sim.cast(
                    broker.inside.client.calls.address("q"), Ack(0, 0), broker.inside.client.trace()
                )
            host.sleep(0.1)
            box = mail_of(host.sink.files(), "queue:q")
            assert box.spans[-1].level - length in {0, 1}, "the batch that it is at has not been taken in yet"
    host.check_trace()
    host.close()


@pytest.mark.parametrize("victim", [None, "queue:a", "msg_store_persistent", "vhost_sup"])
@pytest.mark.parametrize("seed", range(6))
def test_when_nothing_goes_on_the_mailboxes_of_the_living_are_empty(seed, victim):
    host = SimulatedHost(seed)
    rng = random.Random(seed)
    with host.open() as broker:
        queues = [broker.declare_queue(name) for name in "ab"]
        for number in range(60):
            queue = rng.choice(queues)
            confirm = queue.publish_many(
                [b"m" * rng.choice((5, 2_000))] * rng.randrange(1, 4), persistent=rng.random() < 0.5
            )
            if number % 20 == 10 and victim is not None:
                host.sim.kill(host.sim.whereis(victim))
            if rng.random() < 0.4:
                with suppress(warrenmq.Nacked):
                    confirm.result()
            if rng.random() < 0.4 and (message := queue.get(0)) is not None:
                rng.choice((message.ack, message.nack))()
        host.sleep(1.0)
        measures, catalog = measured(host.sink.files())
        mail = [course for course in courses(measures, catalog) if course.kind == Kind.MAIL]
        end = max(course.until for course in mail)
        living = [course for course in mail if course.until == end]
        assert len(living) > 2
        assert all(course.rises == course.falls and course.spans[-1].level == 0 for course in living)
        assert len({course.who for course in living}) <= len(host.sim.living()), (
            "the dead are known to be dead"
        )
    host.close()


def test_a_real_wait_is_measured_as_long_as_it_took():
    host = SimulatedHost(5)
    with host.open() as broker:
        stuck_queue(host, broker, 2.0).publish(b"one too many").result()
    picture = drawn(host.sink.files())
    (held,) = picture.held
    assert (held.sender, held.towards, held.times) == ("client-1", "queue:q", 1)
    assert held.seconds == pytest.approx(2.0, rel=0.05)
    assert max(picture.waiting["queue:q"]) == pytest.approx(1.0, rel=0.01)
    assert sum(picture.waiting["queue:q"]) * picture.width == pytest.approx(held.seconds)
    host.close()
