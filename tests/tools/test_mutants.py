"""Mutations of the broker: each still fits the code, and the simulation's judges kill what they should."""

from __future__ import annotations

import pytest

from tools.broker_mutations import MUTATIONS
from tools.mutants import Killed, Result, mutated, read, table, try_one

BY_NAME = {each.name: each for each in MUTATIONS}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_mutation_fits_the_code_once(name):
    mutation = BY_NAME[name]
    source = read(mutation)
    changed = mutated(source, mutation)
    assert changed != source
    compile(changed, mutation.module, "exec")


def test_mutations_have_names_of_their_own():
    assert len(BY_NAME) == len(MUTATIONS) >= 20


@pytest.mark.parametrize("times", [0, 2])
def test_a_mutation_that_does_not_fit_is_an_error(times):
    mutation = MUTATIONS[0]
    with pytest.raises(ValueError, match=f"{times} times"):
        mutated(mutation.old * times, mutation)


@pytest.mark.parametrize(
    ("name", "seeds", "promise"),
    [("fan-out-misses", range(2, 3), "lost"), ("flush-drops-last", range(1, 2), "lost")],
)
def test_a_broker_that_loses_messages_is_killed_by_the_model(name, seeds, promise):
    result = try_one(BY_NAME[name], seeds)
    assert result.model is not None
    assert (result.model.by, result.model.seed) == (promise, seeds.start)
    assert str(result).startswith(f"{name}: killed by the model (lost, seed {seeds.start} classic)")


def test_a_mutation_that_is_not_exercised_survives():
    result = try_one(BY_NAME["no-credit"], range(1))
    assert not result.is_killed
    assert "SURVIVED 1 seeds" in str(result)


def test_the_table_says_after_how_many_seeds_each_judge_has_killed():
    mutation = MUTATIONS[0]
    rows = table([Result(mutation, Killed(4, "modern", "lost"), None, 9)]).splitlines()
    assert rows[2] == f"| `{mutation.name}` | {mutation.does} | lost, 5 | - |"
    assert "| hangs, 3 |" in table([Result(mutation, None, None, 2, hangs=True)])
