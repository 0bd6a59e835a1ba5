"""Exit reasons of actors, and the exceptions that carry one."""

from __future__ import annotations

from typing import Any

from pykka import ActorDeadError

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


def in_words(reason: Any) -> str:
    """An exit reason for a sentence.

    >>> in_words(OSError(30, "Read-only file system", "/data/0.rdq")), in_words("killed")
    ("OSError: [Errno 30] Read-only file system: '/data/0.rdq'", 'killed')
    >>> in_words(KeyError())
    'KeyError'
    """
    if isinstance(reason, BaseException):
        return f"{type(reason).__name__}: {reason}".removesuffix(": ")
    return str(reason)


def is_normal(reason: Any) -> bool:
    """True for a normal exit reason, as in OTP: normal, shutdown, {shutdown, _}.

    >>> [is_normal(reason) for reason in ("normal", "shutdown", ("shutdown", "idle"))]
    [True, True, True]
    >>> [is_normal(reason) for reason in ("killed", "noproc", ValueError())]
    [False, False, False]
    """
    if isinstance(reason, tuple):
        return len(reason) == 2 and reason[0] == SHUTDOWN
    return isinstance(reason, str) and reason in (NORMAL, SHUTDOWN)
