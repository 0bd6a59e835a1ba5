"""The table of what durable actors do about refused writes, case by case."""

import errno

import pytest

from warrenmq.durable_actors.refusals import Write, pause_before
from warrenmq.errors import Blocked, BrokerClosed, Nacked, NotFound, ProcessDied

FULL, RESTARTED = Blocked("the disk is full"), Nacked("the process of its queue died")
NO_ROOM = [
    FULL,
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EMFILE, "Too many open files"),
]
OTHERS = [
    OSError(errno.EIO, "Input/output error"),
    ProcessDied("it died"),
    NotFound("no queue"),
    BrokerClosed("closed"),
]

TABLE = [
    # write, pause without room, pause after the death of its receiver
    (Write.STATE, 1.0, None),
    (Write.AT_HAND, 1.0, None),
    (Write.TOLD, 0.05, 0.05),
    (Write.COPY, 1.0, 0.0),
    (Write.ANSWER, 1.0, None),
]  # fmt: skip


@pytest.mark.parametrize(("write", "without_room", "after_death"), TABLE)
def test_a_refused_write_is_tried_again_as_the_table_says(write, without_room, after_death):
    assert {pause_before(write, refusal) for refusal in NO_ROOM} == {without_room}
    assert pause_before(write, RESTARTED) == after_death
    assert {pause_before(write, refusal) for refusal in OTHERS} == {None}


def test_room_is_waited_for_however_long_and_a_receiver_for_half_a_minute():
    assert pause_before(Write.TOLD, FULL, waited=3_600) == 0.05
    assert pause_before(Write.TOLD, RESTARTED, waited=29) == 0.05
    assert pause_before(Write.TOLD, RESTARTED, waited=31) is None


def test_the_table_names_every_write():
    assert [write for write, _, _ in TABLE] == [*Write]
