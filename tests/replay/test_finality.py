"""Findings that stand while the trace goes on, those that do not yet, and the state that a live replay forgets."""

from array import array

import pytest

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext
from warrenmq.replay.rules.confirm_after_sync import OpenReports
from warrenmq.replay.rules.passes.mail import Bucket, Received
from warrenmq.replay.rules.passes.message_life import GONE, READY, SIZE, Life
from warrenmq.replay.rules.passes.queue_ledger import Lives
from warrenmq.replay.rules.registry import all_machines, is_final
from warrenmq.trace.catalog import FOREVER, Coverage
from warrenmq.trace.schema import Row

MACHINES = {each.name: each for each in all_machines([])}
ONE, TWO = (0, 1), (0, 2)


def context(one=100, two=100, **marks):
    """Actor one is known until so and so, actor two as well; what else is known of two."""
    found = TraceContext([], {ONE: Coverage(*ONE, known_until=one), TWO: Coverage(*TWO, known_until=two)})
    found.actor_summaries[TWO] = ActorSummary(**marks)
    return found


def finding(rule, *needs, t=90, row=(0, 2, 7)):
    return Finding(rule, "", "", (row,), t, needs)


RECOVERED = Row(80, 7, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("case", "at", "expected"),
    [
        (finding("Q1", ONE), context(), True),
        (finding("Q1", ONE), context(one=89), False),
        (finding("T4"), context(one=0, two=0), True),
        # C2: earlier lives are over, and this one is known up to its recovery
        (finding("C2", ONE, TWO, t=FOREVER), context(one=FOREVER, two=80, recovered=RECOVERED), True),
        (finding("C2", ONE, TWO, t=FOREVER), context(one=100, two=80, recovered=RECOVERED), False),
        (finding("C2", ONE, TWO, t=FOREVER), context(one=FOREVER, two=79, recovered=RECOVERED), False),
        (finding("C2", ONE, TWO, t=FOREVER), context(one=FOREVER, two=FOREVER), False),
        # E1: has every actor of the name ended, of those that wrote anything?
        (finding("E1", ONE, (0, 9), t=FOREVER), context(one=FOREVER), True),
        (finding("E1", ONE, TWO, t=FOREVER), context(one=FOREVER), False),
        (finding("E1", ONE), context(), True),
        # S2: will the client turn out to have been leaving?
        (finding("S2", ONE), context(), True),
        (finding("S2", ONE, TWO), context(last_work=90), False),
        (finding("S2", ONE, TWO), context(last_work=91), True),
        (finding("S2", ONE, TWO), context(two=FOREVER), True),
        # S8: will the reader turn out to have been killed?
        (finding("S8", ONE), context(), False),
        (finding("S8", ONE), context(two=FOREVER), True),
    ],
)
def test_the_table_of_what_stands(case, at, expected):
    assert is_final(case, at) is expected


def test_mail_goes_when_its_sender_is_past_it_and_nothing_is_open():
    at = context()
    at.coverage[ONE].last_seq = 4096
    assert MACHINES["mail"].prune((0, 1, 0), Bucket(), at)
    assert not MACHINES["mail"].prune((0, 1, 1), Bucket(), at)
    assert not MACHINES["mail"].prune((0, 1, 0), Bucket(sent={3: (3, 9, 2)}), at)
    assert not MACHINES["mail"].prune((0, 1, 0), Bucket(waiting={3: Received(3, 2, 9, 1)}), at)


def test_a_report_of_a_store_goes_when_it_was_received():
    assert MACHINES["on_disk"].prune((0, 0), OpenReports(), context())
    assert not MACHINES["on_disk"].prune((0, 0), OpenReports(reported={(1, 2, 3): 1}), context())


def test_ids_that_are_all_gone_keep_only_whether_they_were_synced():
    def life(state):
        return Life(
            states=bytearray([state]) * SIZE, marks=bytearray(SIZE), published=array("q", range(SIZE)),
            delivered=array("q", range(SIZE)), messages=array("q", range(SIZE)), gone_at=array("q", range(1, SIZE + 1)),
            ack_delays=array("q", range(SIZE)),
        )  # fmt: skip

    gone, ready = life(GONE), life(READY)
    at = context(last_sync=100)
    assert not MACHINES["ledger"].prune(("queue", 0), Lives(0, {TWO: gone}), at)
    assert not MACHINES["ledger"].prune(("queue", 0), Lives(0, {TWO: ready}), at)
    assert not any(gone.published)
    assert not gone.ack_delays
    assert [seq < 100 for seq in gone.gone_at] == [seq < 100 for seq in range(1, SIZE + 1)]
    assert ready.published[7] == 7
