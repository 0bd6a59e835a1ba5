"""A seed is a run: the same seed gives the same trace, byte for byte, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.broker.lives import long_life, short_life, trace_of
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from tests.support.source_tree import ROOT
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.settings import Settings
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_memory


def test_two_runs_of_one_seed_give_the_same_trace() -> None:
    distinct = set()
    for seed in range(100):
        first, second = trace_of(seed, short_life), trace_of(seed, short_life)
        assert first == second, f"two runs of seed {seed}"
        trace = open_memory(first)
        distinct.add(repr([trace.rows(piece) for piece in trace.catalog.chunks]))
    # a life as short as this has few turns to take: now and then two seeds take the same ones
    assert len(distinct) > 90


@pytest.mark.parametrize("settings", BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def test_two_runs_of_one_seed_give_the_same_trace_through_kills_and_a_power_cut(settings: Settings) -> None:
    for seed in range(3):
        first, second = trace_of(seed, long_life, settings), trace_of(seed, long_life, settings)
        assert first == second, f"two runs of seed {seed}"
        result = replay_memory(first)
        assert result.verdict == "ok", "\n".join(map(str, [*result.violations, *result.indeterminate]))


def test_the_hash_seed_of_the_process_does_not_change_the_trace() -> None:
    def run(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.broker.lives", "11"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout

    with ThreadPoolExecutor() as pool:
        digests = set(pool.map(run, ["0", "4242"]))
    assert len(digests) == 1


def test_a_run_of_a_broker_counts_incarnations_from_one() -> None:
    """Also where a simulation opens one broker after another: what is counted is the run's own."""
    host = SimulatedHost(3)
    for _ in range(3):
        with host.open() as broker:
            broker.declare_queue("q").publish(b"m").result(10)
            assert {actor.restarts for actor in broker.stats().actors} == {0}
    trace = open_memory(host.sink.files())
    host.close()
    rows = [(piece.run, row) for piece in trace.catalog.chunks for row in trace.rows(piece)]
    assert {(run, row[5]) for run, row in rows if row[8] >> 8 & 0xFF == Ev.ACTOR_START} == {
        (0, 1),
        (1, 1),
        (2, 1),
    }
