"""What travels between actors besides their own messages, and the reasons actors end for.

Erlang's terms: `$gen_call`, `'DOWN'`, `'EXIT'`, the info of a timer.  A cast travels bare, so that it costs
nothing; only with tracing on is it wrapped in Traced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

if TYPE_CHECKING:
    from pykka import ActorRef

    from warrenmq.runtime.calls import From

NORMAL = "normal"
SHUTDOWN = "shutdown"
KILLED = "killed"
NO_PROC = "noproc"


class Stop(Exception):
    """Raised in a callback to end the server in good order; `terminate(reason)` follows."""

    def __init__(self, reason: Any = NORMAL) -> None:
        super().__init__(reason)
        self.reason = reason


class CallFailed(ActorDeadError):
    """The server died, or was dead, before it answered; `reason` is what it died of (also the cause).

    `handling`: it died while it handled this very request, which may have taken effect, and may be what it died of: the
    request must not be sent again.  Any other has not been begun and may be sent to a successor.
    """

    def __init__(self, reason: Any, *, handling: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.handling = handling
        if isinstance(reason, BaseException):
            self.__cause__ = reason


class Killed(BaseException):
    """Raised in an actor that was killed while it ran, where it next meets the runtime: it unwinds quietly."""


@dataclass(slots=True)
class Info:
    """A message for `handle_info`."""

    message: Any


@dataclass(slots=True)
class Down:
    """A monitored actor died."""

    monitor: int
    ref: ActorRef[Any] | None
    """None: nobody had that name when the monitor was asked for; `reason` is then "noproc"."""
    reason: Any


@dataclass(slots=True)
class Exit:
    """An exit signal: a linked actor died; from the parent, or with no `ref`, the order to stop."""

    ref: ActorRef[Any] | None
    reason: Any


@dataclass(slots=True)
class Call:
    """A request whose sender waits."""

    request: Any
    sender: From


@dataclass(slots=True)
class ProxyRequest:
    """Pykka's own proxy messages (method call, attribute get or set); `sender` is None when nobody waits."""

    message: Any
    sender: From | None


@dataclass(slots=True)
class Traced:
    """A message, who sent it, and which row of the sender's trace says so."""

    message: Any
    peer: int
    pseq: int
    t: int


def is_normal(reason: Any) -> bool:
    """Is this an orderly end?  As in OTP: normal, shutdown, {shutdown, _}.

    >>> [is_normal(reason) for reason in ("normal", "shutdown", ("shutdown", "idle"))]
    [True, True, True]
    >>> [is_normal(reason) for reason in ("killed", "noproc", ValueError())]
    [False, False, False]
    """
    if isinstance(reason, tuple):
        return len(reason) == 2 and reason[0] == SHUTDOWN
    return isinstance(reason, str) and reason in (NORMAL, SHUTDOWN)
