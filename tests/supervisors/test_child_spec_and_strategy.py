"""The pure parts of a supervisor: tables walked row by row, and the errors for what cannot work."""

import pykka
import pytest

from warrenmq.runtime import Server
from warrenmq.supervisors import ChildSpec
from warrenmq.supervisors.child_spec import check_children, restarts
from warrenmq.supervisors.strategy import Intensity, affected, check_strategy

NORMAL = ["normal", "shutdown", ("shutdown", "idle")]
ABNORMAL = ["killed", "noproc", ValueError(), ("shutdown",), None, 7]


@pytest.mark.parametrize(
    ("restart", "after_normal", "after_abnormal"),
    [("permanent", True, True), ("transient", False, True), ("temporary", False, False)],
)
def test_which_ends_lead_to_a_restart(restart, after_normal, after_abnormal):
    assert [restarts(restart, reason) for reason in NORMAL] == [after_normal] * len(NORMAL)
    assert [restarts(restart, reason) for reason in ABNORMAL] == [after_abnormal] * len(ABNORMAL)


@pytest.mark.parametrize(
    ("strategy", "fallen", "share_its_fate"),
    [
        ("one_for_one", "b", "b"),
        ("one_for_all", "b", "abc"),
        ("rest_for_one", "a", "abc"),
        ("rest_for_one", "b", "bc"),
        ("rest_for_one", "c", "c"),
        ("simple_one_for_one", "b", "b"),
    ],
)
def test_which_children_are_restarted_together(strategy, fallen, share_its_fate):
    assert list(affected(strategy, list("abc"), fallen)) == list(share_its_fate)


def test_intensity_counts_the_restarts_within_the_period_this_one_included():
    intensity = Intensity(2, 100)
    assert [intensity.restart(now) for now in (0, 50, 100, 101, 151, 300)] == [1, 2, 3, 3, 3, 1]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ChildSpec("w", Server, restart="always"), "child 'w': restart is 'always', but must be one of"),
        (lambda: ChildSpec("w", Server, shutdown=-1), "child 'w': shutdown is -1, but must be seconds, or None"),
        (lambda: check_strategy("all_for_one", 1, 5), "strategy is 'all_for_one', but must be one of one_for_one"),
        (lambda: check_strategy("one_for_one", -1, 5), "intensity is -1 in period 5 s"),
        (lambda: check_strategy("one_for_one", 1, 0), "intensity is 1 in period 0 s"),
        (lambda: check_strategy("one_for_one", 1, 5, "always"), "auto_shutdown is 'always', but must be one of never"),
        (lambda: check_children([ChildSpec("w", Server)] * 2), "two children have the id 'w'"),
        (lambda: ChildSpec("w", Server, significant=True), "child 'w': significant is True; give True or False"),
        (lambda: ChildSpec("w", Server, significant=1), "child 'w': significant is 1; give True or False"),
        (
            lambda: check_children([ChildSpec("w", Server, restart="transient", significant=True)]),
            "child 'w' is significant; give its supervisor auto_shutdown",
        ),
    ],
)  # fmt: skip
def test_impossible_specs_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(ValueError, match="^" + sentence.replace("(", r"\(")) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("actor", [object, "Worker", Server.__init__])
def test_a_child_must_be_an_actor_class(actor):
    with pytest.raises(TypeError, match="is not a Pykka actor class"):
        ChildSpec("w", actor)
    assert ChildSpec("w", pykka.ThreadingActor).restart == "permanent"
