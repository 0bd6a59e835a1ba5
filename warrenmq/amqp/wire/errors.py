"""Protocol errors: what makes the server close a channel or a connection (AMQP 0-9-1, section 1.5.2.3).

    raise AmqpError(NOT_FOUND, "no queue 'jobs' in vhost '/'", 60, 20)

becomes channel.close(404, "NOT_FOUND - no queue 'jobs' in vhost '/'", 60, 20).  A code decides what is closed, and its
name is the head of the text, as in rabbit_framing's amqp_exception table; on channel 0 all errors close the connection.
"""

from __future__ import annotations

from typing import Literal

from warrenmq.errors import (
    AccessRefused,
    CallerError,
    CommandInvalid,
    Error,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)

CONTENT_TOO_LARGE = 311
NO_ROUTE = 312
NO_CONSUMERS = 313
CONNECTION_FORCED = 320
INVALID_PATH = 402
ACCESS_REFUSED = 403
NOT_FOUND = 404
RESOURCE_LOCKED = 405
PRECONDITION_FAILED = 406
FRAME_ERROR = 501
SYNTAX_ERROR = 502
COMMAND_INVALID = 503
CHANNEL_ERROR = 504
UNEXPECTED_FRAME = 505
RESOURCE_ERROR = 506
NOT_ALLOWED = 530
NOT_IMPLEMENTED = 540
INTERNAL_ERROR = 541

NAMES = {code: name for name, code in sorted(globals().items()) if isinstance(code, int)}
SOFT = frozenset({CONTENT_TOO_LARGE, NO_ROUTE, NO_CONSUMERS, ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED,
                  INTERNAL_ERROR})  # fmt: skip
"""Codes that close the channel; the others close the connection.  541 closes the connection in RabbitMQ; here it is a failure
behind one channel, and closes that (docs/architecture.md, departure 18)."""

_CODES: tuple[tuple[type[CallerError], int], ...] = (
    (NotFound, NOT_FOUND),
    (AccessRefused, ACCESS_REFUSED),
    (ResourceLocked, RESOURCE_LOCKED),
    (PreconditionFailed, PRECONDITION_FAILED),
    (CommandInvalid, COMMAND_INVALID),
)
_LONGEST = 255
"""Bytes of a short string."""
ERRORS = "warrenmq.errors"
"""The capability of a client that wants to know the error of the Broker API behind a channel.close: before
that comes a basic.return with the same reply code, whose body is a msgpack map {"error": class, "text":
sentence}.
"""


class AmqpError(Exception):
    """An amqp_error record: a code, its explanation, and the method that failed (0, 0 when none did)."""

    def __init__(self, code: int, text: str = "", class_id: int = 0, method_id: int = 0, *,
                 cause: Error | None = None) -> None:  # fmt: skip
        """`cause` is the error of the Broker API that this is for a client of AMQP."""
        super().__init__(code, text, class_id, method_id)
        self.cause = cause
        self.code = code
        self.text = text
        """The explanation, without the code's name; empty for none."""
        self.class_id = class_id
        self.method_id = method_id

    @property
    def closes(self) -> Literal["channel", "connection"]:
        """The channel or the connection: which of them this error closes when it happens on a channel."""
        return "channel" if self.code in SOFT else "connection"

    @property
    def reply_text(self) -> str:
        """The text of the close method, cut as RabbitMQ cuts it."""
        name = NAMES[self.code]
        whole = f"{name} - {self.text}" if self.text else name
        if len(whole.encode(errors="replace")) <= _LONGEST:
            return whole
        return whole.encode(errors="replace")[: _LONGEST - 3].decode(errors="ignore") + "..."

    def __str__(self) -> str:
        return f"{self.code} {self.reply_text}"

    def of(self, method: tuple[int, int]) -> AmqpError:
        """The error with the method that failed, unless it names one already."""
        return self if self.class_id else AmqpError(self.code, self.text, *method)


def of_caller_error(error: CallerError, method: tuple[int, int]) -> AmqpError:
    """The protocol error for a broker error that `method` (class id, method id) caused."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), PRECONDITION_FAILED)
    return AmqpError(code, error.reply_text or str(error), *method, cause=error)
