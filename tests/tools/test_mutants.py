"""Mutations of the broker: each still fits the code, and the simulation's judges kill what they should."""

import pytest

from tools.broker_mutations import MUTATIONS, WORKLOADS
from tools.mutants import BY_NAME, Killed, Result, read, table, try_one
from warrenmq.simulate.run import PROFILES, run
from warrenmq.simulate.script import parse


@pytest.mark.parametrize("name", BY_NAME)
def test_every_mutation_fits_the_code_once(name):
    mutation = BY_NAME[name]
    source = read(mutation)
    changed = mutation.applied(source)
    assert changed != source
    compile(changed, mutation.module, "exec")


def test_mutations_have_names_of_their_own():
    assert len(BY_NAME) == len(MUTATIONS) >= 150


@pytest.mark.parametrize("times", [0, 2])
def test_a_mutation_that_does_not_fit_is_an_error(times):
    mutation = MUTATIONS[0]
    with pytest.raises(ValueError, match=f"{times} times"):
        mutation.applied(mutation.old * times)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_sound_broker_passes_each_workload(workload):
    profile = PROFILES[len(workload) % 2]
    assert run(1, parse(WORKLOADS[workload]), profile).text == ""


def test_a_broker_that_loses_messages_is_killed_by_both_judges():
    result = try_one(BY_NAME["another-body"], range(0))
    assert result.model is not None
    assert result.rules is not None
    assert (result.model.by, result.rules.by, result.rules.is_random) == ("delivered twice", "Q6", False)
    assert str(result).startswith("another-body: killed by the model (delivered twice, workload 0 classic)")


def test_what_survives_says_so():
    result = Result("no-credit", None, None, 1)
    assert not result.is_killed
    assert str(result) == "no-credit: SURVIVED 1 random scripts"
    assert str(result._replace(tests="passed")) == "no-credit: SURVIVED 1 random scripts; tests: passed"


def test_results_are_kept_in_a_file():
    result = Result("no-credit", Killed(4, "modern", "lost", True), None, 9, tests="failed")
    assert Result.of_json(result.as_json()) == result


def test_the_table_says_after_how_many_seeds_each_judge_has_killed():
    mutation = MUTATIONS[0]
    rows = table([Result(mutation.name, Killed(4, "modern", "lost", True), None, 9)]).splitlines()
    assert (
        rows[2]
        == f"| `{mutation.name}` | {mutation.does} | {mutation.workload} | lost, random 5 | - | not run |"
    )
    assert "| hangs, 3 |" in table([Result(mutation.name, None, None, 2, hangs=True)])
