"""Every rule finds what is planted for it, nothing else does, and a consistent trace is fine."""

from __future__ import annotations

import json
import random

import pytest

from tests.replay.planted_violations import each_plant
from tests.replay.planting import PLANTS, Plant, planted
from tests.replay.trace_mutations import mutated
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import write_trace
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.replay.drive.result import Result
from warrenmq.replay.rules.registry import RULES, all_machines
from warrenmq.trace.events import Ev

PIECES = (1, 7, 64)
"""Rows."""


def told(result: Result) -> list[str]:
    return [
        json.dumps(each) for each in (*result.as_dict()["violations"], *result.as_dict()["indeterminate"])
    ]


@pytest.mark.parametrize("seed", range(8))
def test_a_consistent_trace_is_fine(seed: int) -> None:
    result = replay_memory(write_trace(consistent_trace(seed)))
    assert told(result) == []
    assert result.verdict == "ok"


def test_the_consistent_traces_have_every_kind_of_row_that_a_machine_asks_for_but_two() -> None:
    seen = {
        row[8] >> 8 & 0xFF
        for seed in range(20)
        for run in consistent_trace(seed)
        for actor in run.actors
        for row in actor.rows
    }
    asked = {event for machine in all_machines([]) for event in machine.events}
    assert {Ev(event).name for event in asked - seen} == {"ESCALATE", "UNBOUND"}


def test_every_rule_has_a_plant() -> None:
    assert {rule for rule, _, _ in PLANTS} == set(RULES)


@each_plant
def test_a_planted_violation_is_found_by_its_rule_alone(
    rule: str, plant: Plant, implied: frozenset[str]
) -> None:
    """And says the same when the rows come in pieces of another size, the last first."""
    runs = planted(plant)
    result = replay_memory(write_trace(runs, 1000))
    found = {finding.rule for finding in result.violations}
    assert rule in found, told(result)
    assert found <= {rule} | implied, told(result)
    assert result.indeterminate == []
    assert result.verdict == "violated"
    piece = PIECES[PLANTS.index((rule, plant, implied)) % len(PIECES)]
    assert told(replay_memory(write_trace(runs, piece, backwards=True))) == told(result)


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_plant_that_finds_a_place_in_another_trace_is_found_there_too(seed: int) -> None:
    """Else the plants would fail whenever a change of the broker gives its simulations other traces."""
    for rule, plant, implied in PLANTS[seed % 8 :: 8]:
        runs = consistent_trace(seed, 12)
        if plant(runs):
            result = replay_memory(write_trace(runs, 1000))
            found = {finding.rule for finding in result.violations}
            assert rule in found <= {rule} | implied, (plant.__name__, told(result))
            assert result.indeterminate == [], plant.__name__


@pytest.mark.parametrize("seed", range(10))
def test_missing_rows_make_a_trace_indeterminate_and_never_violated(seed: int) -> None:
    rng = random.Random(seed)
    runs = consistent_trace(seed % 10)
    run = rng.choice(runs)
    actor = rng.choice([actor for actor in run.actors if len(actor.rows) > 3])
    first = rng.randrange(len(actor.rows) - 1)
    del actor.rows[first : min(first + rng.choice((1, 2, 10)), len(actor.rows) - 1)]
    result = replay_memory(write_trace(runs))
    assert told(result) != []
    assert result.violations == []
    assert result.verdict == "indeterminate"


def test_a_confirmed_message_that_came_back_after_its_ack_is_owed_again():
    """Its ack was not synced: it came back, and was lost the next time."""
    lost = replay_memory(write_trace(mutated(("drop", Ev.ACK), 2, 20)))
    assert "C2" in {finding.rule for finding in lost.violations}
