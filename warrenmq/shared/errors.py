"""Map AMQP reply codes and error names to the exceptions that the same call raises in the owner."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from warrenmq import errors
from warrenmq.amqp.wire.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NAMES,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    RESOURCE_LOCKED,
)
from warrenmq.errors import (
    AccessRefused,
    Blocked,
    BrokerClosed,
    CommandInvalid,
    Error,
    NotFound,
    PreconditionFailed,
    ProcessDied,
    ResourceLocked,
)
from warrenmq.terminal import plain


class LinkLost(BrokerClosed):
    """The connection to the owner is lost; another process will own the directory."""


class OwnerSilent(BrokerClosed):
    """The owner is there, and does not answer a new connection."""


class NobodyServes(LinkLost):
    """The owner does not serve the directory's socket, because it is recovering or stopping."""


_OF_CODE: dict[int, type[Error]] = {
    ACCESS_REFUSED: AccessRefused,
    NOT_FOUND: NotFound,
    RESOURCE_LOCKED: ResourceLocked,
    PRECONDITION_FAILED: PreconditionFailed,
    COMMAND_INVALID: CommandInvalid,
    NOT_ALLOWED: AccessRefused,
    RESOURCE_ERROR: Blocked,
    INTERNAL_ERROR: ProcessDied,
    CONNECTION_FORCED: LinkLost,
}


def error_of(code: int | None, text: str | None) -> Error:
    """The error for channel.close or connection.close; BrokerClosed for a code that no call of ours causes.

    | code                   | error              |
    | ---------------------- | ------------------ |
    | 403, 530               | AccessRefused      |
    | 404, 405, 406          | NotFound, ResourceLocked, PreconditionFailed |
    | 503                    | CommandInvalid     |
    | 506                    | Blocked            |
    | 541                    | ProcessDied        |
    | 320: the owner ends    | LinkLost           |
    """
    number = code or 0
    sentence = plain((text or "").removeprefix(f"{NAMES.get(number, '')} - "))
    return _OF_CODE.get(number, BrokerClosed)(sentence)


def anew(error: Error) -> Error:
    """An error that is kept, to be raised: raised itself it would keep the frames it went through, and a
    consumer that is dropped.
    """
    return copy(error)


def error_in(answer: Mapping[str, str]) -> Error:
    """The error that the owner answers with, {"error": class, "text": sentence}."""
    kind, text = getattr(errors, answer["error"], None), answer["text"]
    if (
        isinstance(kind, type)
        and issubclass(kind, Error)
        and kind.__init__ in (Error.__init__, errors.CallerError.__init__)
    ):
        return kind(text)
    return Error(text)
