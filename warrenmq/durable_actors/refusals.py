"""The decision whether a durable actor tries a refused write again: the one place that says what a full disk means to it.

write      there is no room       its receiver's process died    any other error
-------    -------------------    ---------------------------    -----------------------
STATE      again in 1 s           -                              the actor dies
AT_HAND    again in 1 s           the messages come again        the message failed
TOLD       again in 50 ms         again in 50 ms, for 30 s       the message failed
COPY       handled again in 1 s   handled again at once          the actor dies
ANSWER     again in 1 s           dropped: the asker knows       dropped
"""

from __future__ import annotations

from enum import Enum

from warrenmq.errors import Blocked, Nacked
from warrenmq.seams.disk_errors import lack_of

_UNTIL_ROOM = 1.0
_SOON = 0.05
_PATIENCE = 30.0
"""Seconds after which what was told, and not taken over, counts as failed: a queue's process is restarted sooner."""


class Write(Enum):
    """A write of a durable actor that may be refused."""

    STATE = "the snapshot"
    AT_HAND = "the messages at hand, which their queue has to have on the disk"
    TOLD = "a message that on_receive told or published"
    COPY = "a message that failed, for its next attempt or as a dead letter"
    ANSWER = "the answer to an ask"


def pause_before(write: Write, refusal: Exception, waited: float = 0.0) -> float | None:
    """Seconds until a write is tried again that was refused; None if it is not.  `waited` is what all tries took so far.

    >>> pause_before(Write.ANSWER, Blocked("the disk is full"))
    1.0
    >>> pause_before(Write.ANSWER, Nacked("the process of its queue died"))
    """
    if isinstance(refusal, Blocked) or (isinstance(refusal, OSError) and lack_of(refusal) is not None):
        return _SOON if write is Write.TOLD else _UNTIL_ROOM
    if isinstance(refusal, Nacked):
        if write is Write.COPY:
            return 0.0
        if write is Write.TOLD and waited <= _PATIENCE:
            return _SOON
    return None
