"""Equivalence of a repeated declaration with what exists, by the arguments that RabbitMQ compares (rabbit_misc:assert_*).

    queue       durable, auto_delete, the arguments that mean something to a classic queue
    exchange    type, durable, auto_delete, internal, alternate-exchange, x-delayed-type (which RabbitMQ's plugin does not compare)

Two values of an argument are the same if they are equal and of one class; all widths of integer are one class.  A queue
without x-queue-type is the same as one with "classic".  Other arguments are kept, and may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import PreconditionFailed
from warrenmq.queue.arguments import type_name, type_of
from warrenmq.routing import TYPES, ExchangeSpec
from warrenmq.routing.delayed import X_DELAYED_MESSAGE, X_DELAYED_TYPE
from warrenmq.routing.exchange_types import routing_type
from warrenmq.routing.headers import MODES, X_MATCH

ALTERNATE = "alternate-exchange"
QUEUE_ARGUMENTS = (
    "x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length",
    "x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-version",
    "x-single-active-consumer", "x-queue-type", "x-queue-master-locator", "x-delivery-limit",
)  # fmt: skip
"""rabbit_classic_queue:capabilities, in the order in which they are compared, and ours behind them."""
_MISSING = object()


def check_queue(words: str, current: QueueRecord, received: QueueRecord) -> None:
    """PreconditionFailed unless both are the same; `words` name the queue in RabbitMQ's way."""
    for field in ("durable", "auto_delete"):
        _check_field(words, field, getattr(current, field), getattr(received, field))
    for name in QUEUE_ARGUMENTS:
        _check_argument(words, name, current.arguments, received.arguments)


def check_exchange(words: str, current: ExchangeSpec, received: ExchangeSpec) -> None:
    """Raise unless two exchanges are declared alike."""
    for field in ("type", "durable", "auto_delete", "internal"):
        _check_field(words, field, getattr(current, field), getattr(received, field))
    for name in (ALTERNATE, X_DELAYED_TYPE) if current.type == X_DELAYED_MESSAGE else (ALTERNATE,):
        _check_argument(words, name, current.arguments, received.arguments)


def check_alternate(words: str, arguments: Mapping[str, Any]) -> None:
    """PreconditionFailed unless the alternate exchange, if there is one, is text."""
    alternate = arguments.get(ALTERNATE, "")
    if not isinstance(alternate, str):
        raise PreconditionFailed(
            f"argument {ALTERNATE!r} is {alternate!r}; give the name of an exchange",
            reply_text=f"invalid type '{type_of(arguments, ALTERNATE)}' for arg '{ALTERNATE}' in {words}",
        )


def check_delayed_type(spec: ExchangeSpec) -> None:
    """PreconditionFailed unless a delayed exchange says how it routes (rabbit_exchange_type_delayed_message:validate)."""
    if routing_type(spec.type, spec.arguments) is None:
        types = ", ".join(each for each in TYPES if each != X_DELAYED_MESSAGE)
        raise PreconditionFailed(
            f"exchange {spec.name!r} of type {X_DELAYED_MESSAGE} needs an argument {X_DELAYED_TYPE!r}, one of {types}",
            reply_text=f"Invalid argument, '{X_DELAYED_TYPE}' must be an existing exchange type",
        )


def check_x_match(arguments: Mapping[str, Any]) -> None:
    """PreconditionFailed unless x-match, if there is one, is a way to match (rabbit_exchange_type_headers:validate_binding).

    | x-match                            | answer                      |
    | ---------------------------------- | --------------------------- |
    | missing                            | fine                        |
    | all, any, all-with-x, any-with-x   | fine                        |
    | any other text                     | Invalid x-match field value |
    | no text                            | Invalid x-match field type  |
    """
    mode = arguments.get(X_MATCH, MODES[0])
    if mode in MODES:
        return
    expected = "all, any, all-with-x, or any-with-x"
    if isinstance(mode, str):
        text = f"Invalid x-match field value {_term(mode)}; expected {expected}"
    else:
        text = f"Invalid x-match field type {type_of(arguments, X_MATCH)} (value {_term(mode)}); expected longstr"
    raise PreconditionFailed(f"x-match is {mode!r}; expected {expected}", reply_text=text)


def _check_field(words: str, field: str, current: Any, received: Any) -> None:
    if current != received:
        raise _inequivalent(words, field, _quoted(received), _quoted(current))


def _check_argument(words: str, name: str, current: Mapping[str, Any], received: Mapping[str, Any]) -> None:
    mine, theirs = current.get(name, _MISSING), received.get(name, _MISSING)
    if mine is theirs or (_class(mine) == _class(theirs) and mine == theirs):
        return
    if name == "x-queue-type" and "classic" in (mine, theirs) and _MISSING in (mine, theirs):
        return
    if _MISSING in (mine, theirs):
        raise _inequivalent(words, name, _value_and_type(received, name), _value_and_type(current, name))
    raise _inequivalent(words, name, _quoted(theirs), _quoted(mine))


def _inequivalent(words: str, name: str, received: str, current: str) -> PreconditionFailed:
    text = f"inequivalent arg '{name}' for {words}: received {received} but current is {current}"
    return PreconditionFailed(
        f"{words} exists and cannot be declared again with another {name}: {text}", reply_text=text
    )


def _class(value: Any) -> str:
    """The type as far as it counts (rabbit_misc:type_class)."""
    kind = type_name(value)
    return "int" if kind in ("signedint", "long") else kind


def _value_and_type(arguments: Mapping[str, Any], name: str) -> str:
    if name not in arguments:
        return "none"
    return f"the value {_quoted(arguments[name])} of type '{type_of(arguments, name)}'"


def _quoted(value: Any) -> str:
    if value is None:  # undefined, as a missing one
        return "none"
    return f"'{value}'" if isinstance(value, str) else f"'{_term(value)}'"


def _term(value: Any) -> str:
    """A value as Erlang prints it (~p)."""
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "undefined"
        case str() if value.isascii() and value.isprintable():
            return '<<"' + value.replace("\\", "\\\\").replace('"', '\\"') + '">>'
        case str():
            return "<<" + ",".join(map(str, value.encode(errors="surrogatepass"))) + ">>"
        case list() | tuple():
            return "[" + ",".join(f"{{{type_name(each)},{_term(each)}}}" for each in value) + "]"
        case dict():
            return (
                "["
                + ",".join(
                    f"{{{_term(name)},{type_name(each)},{_term(each)}}}" for name, each in value.items()
                )
                + "]"
            )
    return str(value)
