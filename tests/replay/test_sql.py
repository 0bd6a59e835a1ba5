"""Each rule's SQL is a third judge: it finds a violation where the machines do, on planted violations and on random histories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replay.planted_violations import PLANTS, every_plant
from tests.replay.trace_mutations import mutated, mutations
from tests.support.simulated import SMALL, SimulatedHost
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side
from tests.support.trace_writer import RunRows, write_trace
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.rules.registry import RULES
from warrenmq.replay.rules.sql import violations
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_memory

QUERIES = {rule.id: rule.sql for rule in RULES.values() if rule.sql}
IN_PART = {rule.id for rule in RULES.values() if rule.sql and rule.not_in_sql}
STEPS = 20
TOGETHER = 6
"""Traces that are one trace for a while: a query costs more than twice as much of twice as many rows."""
EVERY = 9
"""Of the mutations one in so many is tried, and others each time that there are more or fewer of them."""
_SAME_ID = "two PUBLISH rows speak of one sequence id: for the machine a confirm answers one of them and the other waits on, for the query both"
MIXED_UP = {
    **{(what, Ev.PUBLISH, rule): _SAME_ID for what in ("a", "b", "twice") for rule in ("C1", "C3", "C4")},
    ("late", Ev.PUBLISH, "C1"): "an id is published behind a greater one: the machine looks for the publish of a confirm where ids go up, "
    "the query anywhere",
    ("flag", Ev.DELIVER, "C2"): "a message that went without an ack is requeued: for the machine it stays gone, the query goes by the last row",
}  # fmt: skip
"""Wrongs of which the machine alone finds that this rule is broken, and why: sequence ids make no sense, and both find so (Q1)."""
ONCE_DIFFERED = (
    ("drop", Ev.APPEND, 2), ("a", Ev.APPEND, 0), ("a", Ev.FILE_STATE, 0), ("late", Ev.COMPACT_MOVE, 1), ("b", Ev.DROP, 1), ("b", Ev.ACK, 1),
    ("b", Ev.DELIVER, 0), ("drop", Ev.ACK, 2), ("drop", Ev.PUBLISH, 1), ("drop", Ev.PUBLISH, 2), ("b", Ev.CONFIRM, 1), ("peer", Ev.RECV, 1),
    ("late", Ev.PUBLISH, 9),
)  # fmt: skip
"""(what, event, seed) of wrongs that the machine or the query missed."""

FOR_PICTURES = {Ev.EXCHANGE_DELETED, Ev.MARK}
SAID_BESIDES = {("pseq", Ev.SEND), ("msg", Ev.RECOVERED)}
"""Events and columns that no rule reads, by a machine or in SQL."""

Found = set[tuple[str, str]]
"""(trace, rule)"""


def judged(runs: list[RunRows]) -> tuple[Found, Found, Found]:
    """Violations by the machines, by SQL, and what the machines leave open; each of several traces side by side by itself."""
    trace = open_memory(write_trace(runs))
    result = replay_trace(trace)
    names = [run.name[:3] for run in trace.catalog.runs]
    ours = {(names[finding.rows[0][0]], finding.rule) for finding in result.violations}
    undecided = {(name, finding.rule) for finding in result.indeterminate for name in names}
    told = zip(QUERIES, violations(trace, QUERIES.values()), strict=True)
    return ours, {(names[run], rule) for rule, rows in told for run, _, _ in rows}, undecided


def differences(ours: Found, theirs: Found) -> Iterator[tuple[str, str]]:
    for trace, rule in ours ^ theirs:
        left_out = rule not in QUERIES or (rule in IN_PART and (trace, rule) in ours)
        if not left_out:
            yield trace, rule


def test_they_agree_on_every_planted_violation_and_nothing_is_found_in_consistent_traces() -> None:
    traces = [*every_plant(), *(consistent_trace(seed) for seed in range(4))]
    found: set[str] = set()
    for at in range(0, len(traces), TOGETHER):
        ours, theirs, undecided = judged(side_by_side(traces[at : at + TOGETHER]))
        assert not undecided
        assert list(differences(ours, theirs)) == []
        found |= {rule for _, rule in theirs}
    assert found == set(QUERIES)


@pytest.mark.parametrize("first", range(2))
def test_they_agree_on_random_histories(first: int) -> None:
    read = [each for each in mutations() if each[1] not in FOR_PICTURES and each not in SAID_BESIDES]
    for number, mutation in list(enumerate(read))[first * 4 + len(PLANTS) % 4 :: EVERY]:
        runs = mutated(mutation, number % 3, STEPS)
        if runs is None:
            continue
        ours, theirs, undecided = judged(runs)
        for trace, rule in differences(ours - undecided, theirs - undecided):
            assert (*mutation, rule) in MIXED_UP, mutation
            assert (trace, "Q1") in ours & theirs, mutation


@pytest.mark.parametrize(("what", "event", "seed"), ONCE_DIFFERED)
def test_they_agree_where_one_of_them_missed_a_wrong(what: str, event: Ev, seed: int) -> None:
    ours, theirs, undecided = judged(mutated((what, event), seed, STEPS) or [])
    assert ours
    assert list(differences(ours - undecided, theirs - undecided)) == []


def test_an_id_that_begins_again_after_a_crash_is_another_messages() -> None:
    """The first message of that id was delivered and, being transient, lost; the second one is delivered first after a stop."""
    host = SimulatedHost(0, SMALL)
    for boot in range(3):
        broker = host.open()
        jobs = broker.declare_queue("jobs")
        if boot < 2:
            jobs.publish(b"a job", persistent=boot == 1).result()
        if boot != 1:
            assert jobs.get(0) is not None
        if boot:
            broker.close()
        else:
            host.crash(power_cut=False)
    trace = open_memory(host.sink.files())
    assert replay_trace(trace).verdict == "ok"
    assert violations(trace, QUERIES.values()) == [[]] * len(QUERIES)


def test_a_rule_without_sql_says_why() -> None:
    assert [rule.id for rule in RULES.values() if not rule.sql and not rule.not_in_sql] == []
