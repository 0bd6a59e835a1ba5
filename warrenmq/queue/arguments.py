"""The arguments of a queue, checked and read (rabbit_amqqueue:check_declare_arguments).

    argument                     must be                                       otherwise
    x-queue-type                 classic                                       see `_check_type`
    x-expires                    integer, 1 to ten years in ms                 value_zero, value_negative, value_too_large
    x-message-ttl                integer, 0 to ten years in ms                 value_negative, value_too_large
    x-dead-letter-exchange       text
    x-dead-letter-routing-key    text, with x-dead-letter-exchange             routing_key_but_no_dlx_defined
    x-max-length, -bytes         integer, not negative                         value_negative
    x-max-priority               integer, 0 to 255                             value_negative, max_value_exceeded
    x-overflow                   drop-head, reject-publish[-dlx]               invalid_overflow
    x-queue-mode                 default, lazy                                 unsupported queue mode
    x-queue-version              1, 2                                          unsupported queue version
    x-single-active-consumer     boolean
    x-delivery-limit             integer, not negative (RabbitMQ's classic queues refuse it; see queue/returns.py)
    those of quorum queues and streams only                                    of queue type rabbit_classic_queue
    anything else                is kept, compared when the queue is declared again, and means nothing

They are checked in this order, and the first that is wrong is reported; a wrong type is `unacceptable_type`, or "expected
integer".  Source: rabbit_amqqueue and rabbit_classic_queue of 3.10.8;
docs/reference/classic-queue.md#arguments-and-limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

from warrenmq.errors import PreconditionFailed
from warrenmq.message.typed_headers import TypedHeaders

MAX_EXPIRY = 315_360_000_000
"""Milliseconds: ten years (MAX_EXPIRY_TIMER)."""
MAX_PRIORITY = 255
OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
QUEUE_MODES = ("default", "lazy")
QUEUE_VERSIONS = (1, 2)
OTHER_QUEUE_TYPES = ("quorum", "stream")
ARGUMENTS_OF_OTHER_TYPES = frozenset({
    "x-dead-letter-strategy", "x-initial-cluster-size", "x-max-age", "x-max-in-memory-bytes",
    "x-max-in-memory-length", "x-queue-leader-locator", "x-quorum-initial-group-size", "x-stream-max-segment-size-bytes",
})  # fmt: skip

_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"), (str, "longstr"), (float, "double"), (bytes, "binary"), (bytearray, "binary"),
    (dict, "table"), (list, "array"), (datetime, "timestamp"), (Decimal, "decimal"), (type(None), "void"),
)  # fmt: skip

Arguments: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """A queue's arguments, decoded; None = not given.  Times are in milliseconds."""

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    queue_mode: str | None = None
    queue_version: int | None = None
    delivery_limit: int | None = None
    queue_type: str = "classic"

    @classmethod
    def of(cls, arguments: Arguments, queue: str, vhost: str) -> QueueArguments:
        """Decode a queue's arguments; raises PreconditionFailed for the first that is wrong."""
        if not arguments:
            return _NONE
        if "x-queue-type" in arguments:
            _check_type(arguments, queue, vhost)
        for name, check in _CHECKS:
            if name in arguments and (problem := check(name, arguments)) is not None:
                raise invalid_argument(name, queue, vhost, problem)
        for name in arguments:
            if name in ARGUMENTS_OF_OTHER_TYPES:
                text = f"invalid arg '{name}' for queue '{queue}' in vhost '{vhost}' of queue type rabbit_classic_queue"
                msg = f"queue argument {name!r} is for quorum queues or streams, and {queue!r} is a classic queue"
                raise PreconditionFailed(msg, reply_text=text)
        given = {field: arguments[name] for name, field in _FIELDS.items() if name in arguments}
        return cls(**given)


_NONE = QueueArguments()
"""The arguments of most queues; a start asks for them several times for each."""


def as_classic(arguments: Arguments) -> dict[str, Any] | None:
    """The arguments of a classic queue in place of a quorum queue; None for a queue of another type."""
    if arguments.get("x-queue-type") != "quorum":
        return None
    others = {"x-queue-type", *ARGUMENTS_OF_OTHER_TYPES}
    return {name: value for name, value in arguments.items() if name not in others}


def invalid_argument(name: str, queue: str, vhost: str, problem: str) -> PreconditionFailed:
    """The refusal of an argument of a queue or of a consumer; `problem` is an Erlang term, as RabbitMQ prints it."""
    return PreconditionFailed(
        f"argument {name!r} of queue {queue!r} is wrong: {problem}",
        reply_text=f"invalid arg '{name}' for queue '{queue}' in vhost '{vhost}': {problem}",
    )


def type_name(value: object) -> str:
    """RabbitMQ's name for the type of a table's value; of an integer, for the width in which most clients send it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), type(value).__name__)


def type_of(arguments: Arguments, name: str) -> str:
    """RabbitMQ's name for the type of an argument: as it was sent, where that is known."""
    sent = arguments.type_name(name) if isinstance(arguments, TypedHeaders) else None
    return sent or type_name(arguments[name])


def check_integer(name: str, arguments: Arguments) -> str | None:
    """The problem of an integer argument; None if it is valid (rabbit_amqqueue:check_int_arg)."""
    value = arguments[name]
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return f'"expected integer, got {type_of(arguments, name)}"'


def check_boolean(name: str, arguments: Arguments) -> str | None:
    """The problem of a boolean argument; None if it is valid."""
    return None if isinstance(arguments[name], bool) else _unacceptable(name, arguments)


def check_expiry(milliseconds: int) -> str | None:
    """The problem of a time to live or of x-expires; None if it is valid (rabbit_misc:check_expiry)."""
    if milliseconds < 0:
        return f"{{value_negative,{milliseconds}}}"
    return f"{{value_too_large,{milliseconds}}}" if milliseconds > MAX_EXPIRY else None


def _unacceptable(name: str, arguments: Arguments) -> str:
    return f"{{unacceptable_type,{type_of(arguments, name)}}}"


def _expires(name: str, arguments: Arguments) -> str | None:
    value = arguments[name]
    return check_integer(name, arguments) or (check_expiry(value) if value else "{value_zero,0}")


def _message_ttl(name: str, arguments: Arguments) -> str | None:
    return check_integer(name, arguments) or check_expiry(arguments[name])


def _not_negative(name: str, arguments: Arguments) -> str | None:
    value = arguments[name]
    return check_integer(name, arguments) or (f"{{value_negative,{value}}}" if value < 0 else None)


def _max_priority(name: str, arguments: Arguments) -> str | None:
    value = arguments[name]
    exceeds = f"{{max_value_exceeded,{value}}}"
    return _not_negative(name, arguments) or (exceeds if value > MAX_PRIORITY else None)


def _text(name: str, arguments: Arguments) -> str | None:
    return None if isinstance(arguments[name], str) else _unacceptable(name, arguments)


def _dead_letter_routing_key(name: str, arguments: Arguments) -> str | None:
    without = None if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"
    return _text(name, arguments) or without


def _overflow(name: str, arguments: Arguments) -> str | None:
    return _text(name, arguments) or (None if arguments[name] in OVERFLOWS else "invalid_overflow")


def _queue_mode(name: str, arguments: Arguments) -> str | None:
    value = arguments[name]
    return _text(name, arguments) or (
        None if value in QUEUE_MODES else f"\"unsupported queue mode '{value}'\""
    )


def _queue_version(name: str, arguments: Arguments) -> str | None:
    value = arguments[name]
    unsupported = f"\"unsupported queue version '{value}'\""
    return _not_negative(name, arguments) or (None if value in QUEUE_VERSIONS else unsupported)


def _check_type(arguments: Arguments, queue: str, vhost: str) -> None:
    """The problem of x-queue-type: of RabbitMQ's three types only the classic one exists here.

    ==================  =========================================
    x-queue-type        answer
    ==================  =========================================
    "classic"           fine
    "quorum", "stream"  refused, in words of our own
    another text        unsupported queue type
    no text             unacceptable_type
    ==================  =========================================
    """
    value = arguments["x-queue-type"]
    if not isinstance(value, str):
        raise invalid_argument("x-queue-type", queue, vhost, _unacceptable("x-queue-type", arguments))
    if value in OTHER_QUEUE_TYPES:
        raise PreconditionFailed(
            f"queue {queue!r} cannot be of type {value!r}: this broker has classic queues only, so leave the type out",
            reply_text=f"queue type '{value}' of queue '{queue}' in vhost '{vhost}' is not supported, only classic is",
        )
    if value != "classic":
        raise invalid_argument("x-queue-type", queue, vhost, f"\"unsupported queue type '{value}'\"")


_CHECKS: tuple[tuple[str, Callable[[str, Arguments], str | None]], ...] = (
    ("x-expires", _expires),
    ("x-message-ttl", _message_ttl),
    ("x-dead-letter-exchange", _text),
    ("x-dead-letter-routing-key", _dead_letter_routing_key),
    ("x-max-length", _not_negative),
    ("x-max-length-bytes", _not_negative),
    ("x-max-priority", _max_priority),
    ("x-overflow", _overflow),
    ("x-queue-mode", _queue_mode),
    ("x-queue-version", _queue_version),
    ("x-single-active-consumer", check_boolean),
    ("x-delivery-limit", _not_negative),
)
"""rabbit_amqqueue:declare_args, those that rabbit_classic_queue has, and x-delivery-limit, which quorum queues have there."""

_FIELDS = {name: name[2:].replace("-", "_") for name, _ in _CHECKS}
