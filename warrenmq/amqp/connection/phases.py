"""The phases of a connection and what is allowed in each (rabbit_reader's connection_state): pure tables.

Rules for maintainers: what a phase allows, what an error does in it, and how tuning is judged stand in this file only;
the connection process looks them up and acts.

    INIT ─header─► STARTING ─start-ok─► SECURING ─login─► TUNING ─tune-ok─► OPENING ─open─► RUNNING
                                                                                             │
                      CLOSED ◄── all channels have ended, close-ok is sent ── CLOSING ◄──close┘
                        ▲
                        └── an error: connection.close is sent, and close-ok waited for

SECURING is left at once: none of our mechanisms asks a second question, so connection.secure is never sent.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from pamqp.base import Frame as Method
from pamqp.commands import Connection

from warrenmq.amqp.wire.errors import ACCESS_REFUSED, CHANNEL_ERROR, NOT_ALLOWED, AmqpError
from warrenmq.amqp.wire.frames import FRAME_MIN_SIZE
from warrenmq.settings import Settings


class Phase(Enum):
    """rabbit_reader's connection_state; its `blocked` is in the Throttle."""

    INIT = "init"
    """Waiting for the protocol header."""
    STARTING = "starting"
    SECURING = "securing"
    """The login is being judged."""
    TUNING = "tuning"
    OPENING = "opening"
    RUNNING = "running"
    CLOSING = "closing"
    """The client has closed; its channels are ending."""
    CLOSED = "closed"
    """Waiting for close-ok only."""


ALLOWED: dict[Phase, tuple[type[Method], ...]] = {
    Phase.INIT: (),
    Phase.STARTING: (Connection.StartOk,),
    Phase.SECURING: (Connection.SecureOk,),
    Phase.TUNING: (Connection.TuneOk,),
    Phase.OPENING: (Connection.Open,),
    Phase.RUNNING: (Connection.Close, Connection.UpdateSecret),
    Phase.CLOSING: (Connection.Close,),
    Phase.CLOSED: (Connection.Close, Connection.CloseOk),
}
"""Methods of channel 0 that are handled."""

LOOSE = (Phase.CLOSING, Phase.CLOSED)
"""Phases in which other methods are ignored: the client may not know yet that the connection closes."""


def judge(phase: Phase, method: Method) -> bool:
    """True to handle a method of channel 0, False to ignore it.  Raises AmqpError when the phase does not allow it."""
    if type(method) in ALLOWED[phase]:
        return True
    if phase in LOOSE:
        return False
    raise AmqpError(CHANNEL_ERROR, f"unexpected method in connection state {phase.value}")


def after_error(phase: Phase, code: int) -> Literal["close", "refuse", "drop", "ignore"]:
    """Decide what to do about an error in each phase (rabbit_reader:handle_exception).

    | phase                      | code          |                                                                |
    | -------------------------- | ------------- | -------------------------------------------------------------- |
    | closed                     | any           | ignore                                                         |
    | opening, running, closing  | any           | close: connection.close, then wait for close-ok                |
    | starting, securing         | 403           | refuse: the same, but sent only to who announced that it is    |
    |                            |               | understood (authentication_failure_close)                      |
    | all else                   |               | drop: nothing is sent, and after a while the socket is closed  |
    """
    match phase:
        case Phase.CLOSED:
            return "ignore"
        case Phase.OPENING | Phase.RUNNING | Phase.CLOSING:
            return "close"
        case Phase.STARTING | Phase.SECURING if code == ACCESS_REFUSED:
            return "refuse"
    return "drop"


def check_tuning(tune_ok: Connection.TuneOk, settings: Settings) -> None:
    """Raise AmqpError 530 (for the log) if a tune-ok exceeds the limits that were offered; 0 asks for no limit.

    | field       | least | most                                  |
    | ----------- | ----- | ------------------------------------- |
    | frame_max   | 4096  | the setting                           |
    | channel_max | 1     | the setting                           |
    | heartbeat   |       | any: the client decides (0: none)     |
    """
    _check("frame_max", tune_ok.frame_max, FRAME_MIN_SIZE, settings.frame_max)
    _check("channel_max", tune_ok.channel_max, 1, settings.channel_max)


def _check(field: str, value: int, least: int, most: int) -> None:
    if 0 != value < least:
        why = f"negotiated {field} = {value} is lower than the minimum allowed value ({least})"
    elif value == 0 or value > most:
        detail = " (no limit)" if value == 0 and field == "channel_max" else ""
        why = f"negotiated {field} = {value}{detail} is higher than the maximum allowed value ({most})"
    else:
        return
    raise AmqpError(NOT_ALLOWED, why, 10, 30)
