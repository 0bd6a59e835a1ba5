"""A trace in numbers, and two traces beside each other."""

import json

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import write_trace
from warrenmq.cli import main
from warrenmq.replay.report.measures import Measures, measure_trace
from warrenmq.replay.report.totals import Change, changes, totals
from warrenmq.trace.reader import open_memory, open_trace

SMALL, LARGE = 40, 10


def run(folder, confirm_each):
    """A run whose numbers are known: SMALL bodies in the index, LARGE in the store, confirmed one by one or all at once."""
    with warrenmq.open(folder / "data", trace=folder / "trace") as broker:
        jobs = broker.declare_queue("jobs")
        bodies = [b"s" * 10] * SMALL + [b"l" * 8_000] * LARGE
        confirms = []
        for body in bodies:
            confirms.append(jobs.publish(body))
            if confirm_each:
                confirms[-1].result()
        for confirm in confirms:
            confirm.result()
        for _ in bodies:
            jobs.get(timeout=LIMIT).ack()
    return str(folder / "trace")


def test_the_numbers_of_a_run_are_what_was_done(tmp_path):
    with open_trace(run(tmp_path, confirm_each=True)) as trace:
        found = totals(measure_trace(trace))
    assert (
        found["messages published"] == found["messages delivered"] == found["messages acked"] == SMALL + LARGE
    )
    assert found["messages redelivered"] == found["messages dropped"] == found["restarts"] == 0
    assert found["store writes"] == LARGE
    assert found["store written MB"] > LARGE * 8_000 * 1e-6
    assert found["index syncs"] >= SMALL + LARGE, "each was confirmed before the next was published"
    assert 0 < found["confirm p50 ms"] <= found["confirm p99 ms"]


def test_the_differences_between_two_runs_are_printed(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = run(tmp_path / "a", confirm_each=True), run(tmp_path / "b", confirm_each=False)
    assert main(["trace", "compare", one, two, "--json"]) == 0
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert told["messages published"]["ratio"] == 1
    assert told["index syncs"]["ratio"] < 1, "many messages share a sync"
    assert told["mail between actors"]["a"] >= 2 * (SMALL + LARGE), "a publish and an ack of each"
    assert "restarts" not in told, "0 in both"
    assert main(["trace", "compare", one, two]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(told)
    assert lines[1].split() == ["messages", "published", "50", "50", "1.00"]


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_beside_itself_is_unchanged(seed):
    found = totals(measure_trace(open_memory(write_trace(consistent_trace(seed)))))
    assert all(change.ratio == 1 for change in changes(found, found))


def test_nothing_has_no_numbers_for_each_message():
    assert "messages a sync" not in totals(Measures())


def test_a_number_that_only_one_has_has_no_ratio():
    assert changes({"x": 1.0, "y": 0.0}, {"z": 2.0}) == [Change("x", 1.0, None), Change("z", None, 2.0)]
    assert [change.ratio for change in changes({"x": 0.0}, {"x": 2.0})] == [None]
