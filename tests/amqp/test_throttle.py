"""Connections that are held up, and their notices to the client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.amqp.connection.throttle import FLOW, Throttle

CONTENT = "content"
STEPS = {
    "a connection that does not publish is never blocked": [
        ("+memory", None, False), ("+flow", None, False), ("-memory", None, False), ("-flow", None, False),
    ],
    "publishing blocks once there is a reason": [
        (CONTENT, None, False), ("+memory", None, False), (CONTENT, "blocked", True), (CONTENT, None, True),
        ("-memory", "unblocked", False), ("+memory", None, False), (CONTENT, "blocked", True),
    ],
    "a second alarm is not told": [
        ("+memory", None, False), (CONTENT, "blocked", True), ("+disk", None, True), ("-memory", None, True),
        ("-disk", "unblocked", False),
    ],
    "flow is not told": [("+flow", None, False), (CONTENT, None, True), ("-flow", None, False)],
    "an alarm that comes while flow blocks is told, and flow goes on blocking when it has gone": [
        ("+flow", None, False), (CONTENT, None, True), ("+disk", "blocked", True), ("-disk", "unblocked", True),
        ("-flow", None, False),
    ],
}  # fmt: skip


def step(throttle, what):
    if what == CONTENT:
        return throttle.content_received()
    return throttle.set(what[1:], what[0] == "+")


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_step_by_step(steps):
    throttle = Throttle()
    assert [(what, step(throttle, what), throttle.blocked) for what, _, _ in steps] == steps


def test_connection_blocked_names_the_resource_that_is_low():
    throttle = Throttle()
    for reason in ("memory", FLOW, "disk"):
        throttle.set(reason, True)
    assert throttle.reason_text == "low on memory & disk"


@given(st.lists(st.sampled_from([CONTENT, "+memory", "-memory", "+disk", "-disk", "+flow", "-flow"])))
def test_notices_come_in_turns_and_what_is_blocked_ends_with_the_reasons(steps):
    throttle = Throttle()
    notices = [notice for what in steps if (notice := step(throttle, what)) is not None]
    assert notices == ["blocked", "unblocked"] * (len(notices) // 2) + ["blocked"] * (len(notices) % 2)
    for reason in ("memory", "disk", FLOW):
        throttle.set(reason, False)
    assert not throttle.blocked
