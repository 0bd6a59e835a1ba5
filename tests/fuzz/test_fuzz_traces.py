"""Traces in which all is well, with anything removed or flipped: what is left is never violated.

    FUZZ=10 python3 tests/run.py tests/fuzz/test_fuzz_traces.py        ten times as many, of other runs

One seed is one trace and one damage, so a failure names all that it takes to see it again.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from tests.fuzz.trace_damage import DAMAGE
from tests.fuzz.trace_sources import Files, simulated, threaded
from tests.support.damage import TIMES
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.trace.reader import NotATrace

TRIES = 34
"""Of each source in a short run: some 100 in all, so that FUZZ=10 makes 1,000."""
ENDS = [["close", "close"], ["kill", "close"], ["close", "kill"], ["kill", "kill", "close"]]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory):
    @cache
    def trace(source: str, number: int) -> Files:
        if source == "simulated":
            return simulated(
                number,
                [["cut", "close"], ["crash", "close"], ["crash", "cut"], ["close", "crash", "close"]][
                    number % 4
                ],
            )
        folder: Path = tmp_path_factory.mktemp(f"{source}-{number}")
        return threaded(folder, number, ["close", "close"] if source == "threaded" else ENDS[1 + number % 3])

    return trace


@pytest.mark.parametrize("source", ["threaded", "killed", "simulated"])
def test_a_damaged_clean_trace_is_never_violated(traces, source: str) -> None:
    told: dict[str, int] = {}
    for number in range(TIMES):
        whole = traces(source, number)
        assert replay_memory(whole).verdict == "ok", f"{source} {number} is not fine to begin with"
        for seed in range(TRIES * number, TRIES * (number + 1)):
            rng, files = random.Random(f"{source} {seed}"), dict(whole)
            harm = [rng.choice(DAMAGE) for _ in range(rng.choice((1, 1, 1, 2)))]
            for each in harm:
                if files:
                    each(files, rng)
            try:
                result = replay_memory(files)
            except NotATrace:
                continue
            assert result.violations == [], f"{source} {seed}: {[each.__name__ for each in harm]}"
            told[result.verdict] = told.get(result.verdict, 0) + 1
    print(source, told)
