"""The engine of one process: figures, order of runs, and the small parts that the machines are made of."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import A, B, RunRows, event, write_trace
from warrenmq.replay.drive.engine import replay, replay_memory
from warrenmq.replay.drive.result import percentiles
from warrenmq.replay.rules.passes.queue_ledger import delay_class
from warrenmq.replay.rules.passes.ready_order import Ranges
from warrenmq.trace.events import Decision, Ev


def rows(runs: list[RunRows], what: int) -> list[list[int]]:
    return [row for run in runs for actor in run.actors for row in actor.rows if event(row) == what]


def test_the_figures_are_those_of_the_rows() -> None:
    runs = consistent_trace(5)
    told = replay_memory(write_trace(runs)).as_dict()
    assert json.loads(json.dumps(told)) == told
    assert told["verdict"] == "ok"
    assert told["violations"] == told["indeterminate"] == []
    assert told["runs"] == 3
    assert told["events"] == sum(len(actor.rows) for run in runs for actor in run.actors)
    assert told["messages"] == sum(row[B] for row in rows(runs, Ev.PUBLISH))
    assert sum(queue["acked"] for queue in told["queues"].values()) == sum(
        row[B] for row in rows(runs, Ev.ACK)
    )
    runs = [
        RunRows(run.name, run.boot, [each for each in run.actors if "transient" not in each.name])
        for run in runs
    ]
    store = told["stores"]["msg_store_persistent"]
    assert store["appends"] == len(rows(runs, Ev.APPEND))
    assert store["gc_runs"] == len(rows(runs, Ev.GC_DONE)) + len(rows(runs, Ev.COMPACT_DONE))
    cancelled = [row for row in rows(runs, Ev.STORE_WRITE) if row[8] & 0xFF == Decision.IGNORE]
    assert store["cancelled_writes"] == len(cancelled)
    for what in ("confirm", "deliver", "ack"):
        of_queues = sum(
            queue[f"{what}_ms"]["count"] for queue in told["queues"].values() if f"{what}_ms" in queue
        )
        assert of_queues == told["delays_ms"][what]["count"]
    assert told["delays_ms"]["confirm"]["count"] == sum(row[B] for row in rows(runs, Ev.CONFIRM))
    assert told["missing_rows"] == told["damaged_bytes"] == 0


def test_runs_are_taken_in_the_order_of_their_boots_whatever_their_files_are_called() -> None:
    runs = consistent_trace(6)
    for run, name in zip(runs, ("c", "b", "a"), strict=True):
        run.name = name
    result = replay_memory(write_trace(runs))
    assert [run.boot for run in result.catalog.runs] == [1, 2, 3]
    assert result.verdict == "ok"


def test_the_boot_is_the_one_that_the_broker_wrote() -> None:
    runs = consistent_trace(6)
    for run in runs:
        run.boot = 0
    result = replay_memory(write_trace(runs))
    assert [run.boot for run in result.catalog.runs] == [1, 2, 3]


def test_a_trace_that_begins_late_is_judged_by_what_it_shows() -> None:
    """The first runs were deleted: what the third recovers is believed."""
    result = replay_memory(write_trace(consistent_trace(7)[2:]))
    assert result.verdict == "ok"


def test_a_directory_is_read_as_well(tmp_path: object) -> None:
    for name, content in write_trace(consistent_trace(8)).items():
        with open(f"{tmp_path}/{name}", "wb") as file:
            file.write(content)
    assert replay(str(tmp_path)).verdict == "ok"


def test_a_violation_that_missing_rows_cannot_change_stays_one() -> None:
    runs = consistent_trace(9)
    restart = rows(runs, Ev.RESTART)[0]
    restart[A] = 99
    client = runs[1].of("client")[0]
    del client.rows[-3:-1]
    result = replay_memory(write_trace(runs))
    assert {finding.rule for finding in result.violations} == {"R1"}
    assert {finding.rule for finding in result.indeterminate} >= {"T1", "T2"}
    assert result.verdict == "violated"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 10)), max_size=60))
def test_ranges_are_a_set_of_integers(steps: list[tuple[bool, int, int]]) -> None:
    ranges = Ranges()
    plain: set[int] = set()
    for add, lo, n in steps:
        if add:
            ranges.add(lo, lo + n)
            plain |= set(range(lo, lo + n))
        else:
            ranges.remove(lo, lo + n)
            plain -= set(range(lo, lo + n))
        pairs = list(zip(ranges.los, ranges.his, strict=True))
        assert {i for lo, hi in pairs for i in range(lo, hi)} == plain
        assert all(hi < lo for (_, hi), (lo, _) in itertools.pairwise(pairs))


@given(st.integers(0, 1 << 62))
def test_a_delay_is_counted_in_a_class_that_is_never_far_off(delay: int) -> None:
    assert delay * 63 <= delay_class(delay) * 64
    assert delay_class(delay) <= delay


def test_percentiles_of_classes() -> None:
    told = percentiles([(1_000_000 * i, 1) for i in range(1, 101)])
    assert told == {"count": 100, "p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 100.0}
    assert percentiles([]) == {"count": 0}
