"""A live trace is judged as a replay judges it at its end: each violation is printed once, and no other."""

import io
import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.trace_damage import DAMAGE
from tests.replay.live_trace import grow
from tests.replay.planted_violations import PLANTS, planted
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import side_by_side, with_a_gap
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.batch_summary import batches, summarise_batch
from warrenmq.replay.drive.watch import Watch, watch
from warrenmq.trace.reader import NotATrace
from warrenmq.trace.tail import Tail


class Watcher:
    """A watch that can be killed after each batch, and what it printed."""

    def __init__(self, folder, checkpoint):
        self.folder, self.checkpoint = str(folder), str(checkpoint)
        self.lines = []
        self.start()

    def start(self):
        self.out = io.StringIO()
        self.watch = Watch(self.checkpoint, as_json=True, to=self.out)
        self.tail = Tail(self.folder)

    def restart(self):
        self.read()
        self.watch.close()
        self.start()

    def look(self):
        place = self.watch.progress or {}
        now = self.tail.look(place)
        if now != place:
            self.watch.take([summarise_batch(batch) for batch in batches(self.tail, place, now)], now)
        return now != place

    def read(self):
        self.lines += [json.loads(line) for line in self.out.getvalue().splitlines()]
        self.out.truncate(0)
        self.out.seek(0)
        return self.lines

    def violations(self):
        return sorted(
            (line["rule"], line["subject"], line["text"])
            for line in self.read()
            if line["event"] == "violation"
        )


def replayed(folder):
    return sorted(finding[:3] for finding in engine.replay(str(folder)).violations)


def live(tmp_path, runs, moments=4, restarts=True):
    """Watch the trace grow, restart the watch after each step, and return it."""
    watcher = Watcher(tmp_path / "trace", tmp_path / "checkpoint")
    for _ in grow(tmp_path / "trace", runs, moments):
        watcher.look()
        if restarts:
            watcher.restart()
        watcher.look()
    while watcher.look():
        pass
    return watcher


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_printed_of_a_consistent_trace(tmp_path, seed):
    watcher = live(tmp_path, consistent_trace(seed), moments=7)
    assert watcher.read() == []
    watcher.watch.close()


@pytest.mark.parametrize("at", range(len(PLANTS)), ids=lambda at: f"{PLANTS[at][0]}-{PLANTS[at][1].__name__}")
def test_a_planted_violation_is_printed_once_over_restarts(tmp_path, at):
    """Every second one; in the others states stay in memory."""
    runs = planted(PLANTS[at][1])
    for run in runs:
        run.closed = True
    watcher = live(tmp_path, runs, moments=(2, 3, 2)[at % 3], restarts=at % 2 == 0)
    assert watcher.violations() == replayed(tmp_path / "trace")
    watcher.watch.close()


def test_missing_rows_are_reported_and_are_no_violation(tmp_path):
    watcher = live(tmp_path, with_a_gap(3))
    found = watcher.read()
    assert {line["event"] for line in found} == {"missing"}
    watcher.watch.close()


def test_many_traces_at_once(tmp_path):
    runs = side_by_side([consistent_trace(seed) for seed in range(3)])
    watcher = live(tmp_path, runs, moments=2)
    assert watcher.violations() == replayed(tmp_path / "trace") == []
    watcher.watch.close()


def test_a_watch_that_comes_late_sees_all_at_once(tmp_path):
    runs = side_by_side([*(planted(plant) for _, plant, _ in PLANTS[::11]), consistent_trace(1)])
    for run in runs:
        run.closed = True
    for _ in grow(tmp_path / "trace", runs, 1):
        pass
    watcher = Watcher(tmp_path / "trace", tmp_path / "checkpoint")
    while watcher.look():
        pass
    assert watcher.violations() == replayed(tmp_path / "trace") != []
    watcher.watch.close()


def test_a_watch_ends_with_the_trace_and_says_what_is_in_flight(tmp_path):
    runs = consistent_trace(1)[:1]
    runs[0].closed = True
    for _ in grow(tmp_path / "trace", runs, 3):
        pass
    out = io.StringIO()
    taken_by = Watch(str(tmp_path / "checkpoint"), to=out)
    waits = []
    watch([str(tmp_path / "trace")], taken_by, wait=waits.append, until_closed=True)
    assert taken_by.closed
    assert "0 violations" in taken_by.summary()
    assert out.getvalue() == ""
    assert waits
    taken_by.close()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, len(PLANTS) - 1) | st.none(),
    st.lists(st.sampled_from(DAMAGE), max_size=2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_a_watch_convicts_nothing_that_a_replay_leaves_open(
    number: int | None, harm: list, all_at_once: bool, restarts: bool, dice: int
) -> None:
    """Of a trace from which pages, blocks and files were taken."""
    rng = random.Random(dice)
    runs = consistent_trace(dice % 12, 20) if number is None else planted(PLANTS[number][1])
    for run in runs:
        run.closed = rng.random() < 0.7
    files = write_trace(runs, piece=rng.choice((10, 50)), a_file=rng.choice((6, 1 << 30)))
    for each in harm:
        if files:
            each(files, rng)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace")
        trace.mkdir()
        watcher = Watcher(trace, Path(folder, "checkpoint"))
        for run in (None,) if all_at_once else sorted({name.partition("-")[0] for name in files}):
            for name in files:
                if run in {None, name.partition("-")[0]}:
                    (trace / name).write_bytes(files[name])
            watcher.look()
            if restarts:
                watcher.restart()
        while watcher.look():
            pass
        convicted = {found[:2] for found in watcher.violations()}
        watcher.watch.close()
    try:
        result = engine.replay_memory(files)
    except NotATrace:
        return
    assert convicted <= {finding[:2] for finding in result.violations}
