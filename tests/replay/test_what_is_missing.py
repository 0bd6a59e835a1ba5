"""Traces with parts removed are never found violated, and never found fine, by accident.

Rows, frames, ends of files and whole files are deleted, or bytes turned.  Of a trace in which all is well, what is left shows no
violation; and if anything is gone at all, the verdict is indeterminate.  Of a trace with a violation, what is left shows no
other one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warrenmq
from tests.fuzz.trace_damage import PAGE, Files, a_file, a_frame, a_header, a_run, a_tail, names_in, without
from tests.replay.planted_violations import PLANTS, planted
from tests.support.simulated import EVERY_KIND, SimulatedHost
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import RunRows, write_trace
from warrenmq.broker.broker import Broker
from warrenmq.replay.drive.engine import judge_trace, replay, replay_memory
from warrenmq.replay.drive.result import Result
from warrenmq.simulate.run import run_traced
from warrenmq.simulate.script import parse
from warrenmq.trace.reader import NotATrace, open_memory
from warrenmq.trace.recorder import Recorder

STEPS = 20


def rows(runs: list[RunRows], rng: random.Random) -> None:
    """Some consecutive rows of an actor are gone; it wrote them all the same."""
    actor = rng.choice([actor for run in runs for actor in run.actors if len(actor.rows) > 1])
    first = rng.randrange(len(actor.rows) - 1)
    # the last one stays: what a slab file ends with is the end
    del actor.rows[first : min(first + rng.choice((1, 1, 3, 20, 1000)), len(actor.rows) - 1)]


def some_bytes(files: Files, rng: random.Random) -> None:
    names = sorted(name for name in files if name.endswith(".wtr") and files[name])
    if names:
        name = rng.choice(names)
        data = bytearray(files[name])
        at = rng.randrange(len(data))
        data[at : at + 40] = bytes(len(data[at : at + 40]))
        files[name] = bytes(data)


DAMAGE: list[Callable[[Files, random.Random], None]] = [a_frame, a_tail, a_file, a_run, a_header, some_bytes]


def damaged(runs: list[RunRows], what: list[int], rng: random.Random) -> Result | None:
    """The outcome of a replay of the trace after these; None when there is no trace any more."""
    for each in what:
        if each < 0:
            rows(runs, rng)
    files = write_trace(runs, piece=10, a_file=6)
    for each in what:
        if each >= 0 and files:
            DAMAGE[each](files, rng)
    try:
        return replay_memory(files)
    except NotATrace:
        return None


damages = st.lists(st.integers(-2, len(DAMAGE) - 1), min_size=1, max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 12), damages, st.integers(0, 10**6))
def test_a_consistent_trace_with_something_gone_is_indeterminate(
    seed: int, what: list[int], dice: int
) -> None:
    runs = consistent_trace(seed, STEPS)
    events = sum(len(actor.rows) for run in runs for actor in run.actors)
    result = damaged(runs, what, random.Random(dice))
    if result is None:
        return
    assert result.violations == []
    assert result.figures["incidents"]["lost_messages"] == 0, (
        "what was acked in rows that are gone is not told as lost"
    )
    boots = [run.boot for run in result.catalog.runs]
    cut_off = boots == list(range(boots[0], boots[0] + len(boots))) and len(boots) < 3
    if result.catalog.unread or (result.figures["events"] < events and not cut_off):
        assert result.verdict == "indeterminate"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(PLANTS) - 1), damages, st.integers(0, 10**6))
def test_a_violated_trace_with_something_gone_shows_no_other_violation(
    number: int, what: list[int], dice: int
) -> None:
    result = damaged(planted(PLANTS[number][1]), what, random.Random(dice))
    if result is not None:
        assert {(finding.rule, finding.subject) for finding in result.violations} <= of_the_whole(number)


@cache
def of_the_whole(number: int) -> set[tuple[str, str]]:
    found = replay_memory(write_trace(planted(PLANTS[number][1]))).violations
    return {(finding.rule, finding.subject) for finding in found}


@pytest.mark.parametrize("seed", range(2))
def test_a_brokers_trace_with_missing_rows_is_neither_violated_nor_fine(seed: int) -> None:
    """Three runs under simulation, the second one killed, in small files."""
    host = SimulatedHost(seed, EVERY_KIND[3 * seed])
    for boot in (1, 2, 3):
        host.runs += 1
        recorder = Recorder(host.sink, run=f"{boot:06d}", boot=boot, clock=host.sim, segment_bytes=6_000)
        broker = Broker("/data", host.settings, host.sim, host.disk, host.memory, recorder)
        queues = [broker.declare_queue(name) for name in ("a", "b")]
        for number in range(60):
            queue = queues[number % 2]
            queue.publish(b"m" * (number % 3 * 1_000), persistent=number % 5 > 0).result()
            if number % 4 and (message := queue.get(0)) is not None:
                message.ack()
        if boot == 2:
            host.crash(power_cut=bool(seed))
        else:
            broker.close()
    whole = dict(host.sink.files())
    host.close()
    events = replay_memory(whole).figures["events"]
    for dice in range(30):
        rng, files = random.Random(dice), dict(whole)
        for _ in range(rng.randrange(1, 4)):
            if files:
                rng.choice(DAMAGE)(files, rng)
        try:
            result = replay_memory(files)
        except NotATrace:
            continue
        assert result.violations == [], dice
        assert result.figures["incidents"]["lost_messages"] == 0, dice
        boots = [run.boot for run in result.catalog.runs]
        cut_off = len(boots) < 3 and boots != [1, 3]
        if result.catalog.unread or (result.figures["events"] < events and not cut_off):
            assert result.verdict == "indeterminate", dice


@pytest.mark.parametrize("end", ["restart", "crash cut=0"])
def test_a_name_that_is_missing_convicts_nobody(end):
    """The rows of a collector that nobody can tell for one moved records and cut files; those of a queue are of no queue."""
    consumed = "; ".join(["get", "consume count=3"] * 4)
    told = f"publish_many count=20 size=900; publish_many count=20 size=900; settle; {consumed}; sleep ms=16000; {end}; get; restart"
    script = parse("\n".join(told.split("; ")))
    outcome, files = run_traced(1, script, "modern")
    assert outcome.verdict == "ok"
    names = names_in({**files})
    assert len(names) > 20
    for name, frame in names:
        found = replay_memory(without({**files}, name, frame))
        assert found.violations == [], frame.payload
        assert found.verdict == "indeterminate", frame.payload


def test_a_trace_that_was_copied_while_it_was_written_convicts_nobody():
    """Its slab file is older than its segments, or its first pages are older than the others."""
    host = SimulatedHost(0, EVERY_KIND[0])
    recorder = Recorder(host.sink, run="000001", boot=1, clock=host.sim, segment_bytes=6_000)
    broker = Broker("/data", host.settings, host.sim, host.disk, host.memory, recorder)
    moments: list[Files] = []
    for number in range(60):
        queue = broker.declare_queue(f"q{number % 4}")
        queue.publish(b"m" * (number % 3 * 3_000)).result()
        if number % 3 and (message := queue.get(0)) is not None:
            message.ack()
        moments.append(dict(host.sink.files()))
    host.close()
    (slab,) = (name for name in moments[0] if name.endswith(".slab"))
    told = set()
    for number, (earlier, later) in enumerate(list(pairwise(moments))[::3]):
        at = 16 * PAGE if number % 2 else len(later[slab])
        verdict, _ = judge_trace(open_memory(later | {slab: earlier[slab][:at] + later[slab][at:]}))
        assert verdict.violations == []
        told.add(verdict.word)
    assert told == {"ok", "indeterminate"}


def test_a_child_whose_last_rows_are_missing_is_not_said_to_have_never_started():
    """The trace was copied page by page, and its supervisor's page later than its own."""
    runs = consistent_trace(0, STEPS)
    (child,) = (actor for actor in runs[0].actors if actor.name == "rabbit_alarm")
    del child.rows[:]
    found = replay_memory(write_trace(runs))
    assert (found.verdict, found.violations) == ("indeterminate", [])


def test_a_directory_that_was_open_without_a_trace_is_told(tmp_path):
    """Nothing is missing from the trace, so the reason is not that something is."""
    for trace in (tmp_path / "trace", None, tmp_path / "trace"):
        with warrenmq.open(tmp_path / "data", trace=trace) as broker:
            broker.declare_queue("jobs")
    found = replay(tmp_path / "trace")
    text = "its directory was open without a trace before it: there may have been actors of whom nothing is known"
    assert {row.text for row in found.missing} == {finding.text for finding in found.indeterminate} == {text}
