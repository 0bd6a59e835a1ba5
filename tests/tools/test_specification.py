"""The specification of docs/spec, searched by TLC, and traces held against it."""

from __future__ import annotations

import pytest

from tools.observed import Behaviour
from tools.specification import MODULES, accepted, counterexample, of_runs, search

RUNS = 20
SUCCESSOR = 159
"""The seed of a run in which a queue that was restarted removes from the store what its predecessor wrote."""
FORBIDDEN = (
    Behaviour("Confirms", "small", ("publish", "confirm")),
    Behaviour("Confirms", "large", ("publish", "sync", "confirm")),
    Behaviour("Confirms", "large", ("publish", "on disk", "confirm", "sync")),
    Behaviour("Confirms", "small", ("publish", "sync", "confirm", "crash", "gone")),
    Behaviour("Confirms", "large", ("publish", "on disk", "sync", "confirm", "crash", "gone")),
    Behaviour("Confirms", "small", ("publish", "stop", "gone")),
    Behaviour("Confirms", "small", ("publish", "deliver", "ack", "sync", "crash", "found")),
    Behaviour("Confirms", "small", ("publish", "deliver", "ack", "requeue")),
    Behaviour("Confirms", "small", ("publish", "deliver", "deliver")),
    Behaviour("Confirms", "small", ("publish", "sync", "confirm", "confirm")),
    Behaviour("MessageStore", 0, (("write", "q1", 1, "append", 1), ("remove", "q1", -1, "ignore", 1))),
    Behaviour("MessageStore", 0, (("write", "q1", 1, "append", 1), ("write", "q2", 1, "count", 1))),
    Behaviour("MessageStore", 0, (("write", "q1", 1, "append", 1), ("remove", "q1", 0, "remove", 0))),
    Behaviour("MessageStore", 1, (("write", "q1", 1, "append", 1),)),
    Behaviour("MessageStore", 1, (("remove", "q1", -1, "remove", 0), ("remove", "q2", -1, "remove", -1))),
)
"""Each breaks a promise with its last step, but for the third, whose confirm comes one step too early."""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_keeps_what_it_promises_and_none_of_its_mutants_does(module: str) -> None:
    searched = search(module)
    assert not searched.counterexample
    assert searched.states > 100
    assert searched.found
    assert not searched.missed


def test_a_mutant_is_told_with_the_shortest_way_to_what_it_breaks() -> None:
    told = counterexample("Confirms", "confirm before the index is synced")
    assert "State 3: <Confirm" in told
    assert "State 4" not in told


def test_simulated_runs_are_behaviours_of_the_specification_and_planted_faults_are_not() -> None:
    seen = list(of_runs([*range(RUNS), SUCCESSOR]))
    taken = accepted([*seen, *FORBIDDEN])
    assert [each for each, at in zip(seen, taken, strict=False) if at < len(each.steps)] == []
    assert taken[len(seen) :] == [
        len(each.steps) - (2 if place == 2 else 1) for place, each in enumerate(FORBIDDEN)
    ]
    steps = {step for each in seen if each.module == "Confirms" for step in each.steps}
    assert steps >= {"confirm", "on disk", "ack", "requeue", "drop", "crash", "stop", "found", "gone"}
    decided = {step[3] for each in seen if each.module == "MessageStore" for step in each.steps}  # type: ignore[index]
    assert decided >= {"append", "count", "remove"}
