"""Erlang's terms in records of the text format, as the plugin's JSON would have them (rabbit_misc:amqp_table).

    Routing keys: [<<"order.new">>]                       ->  ("order.new",)
    Properties:   [{<<"message_id">>,longstr,<<"m-0">>},  ->  {"message_id": "m-0",
                   {<<"headers">>,table,[...]}]                "headers": {...}}

A binary whose bytes cannot be printed is written as numbers; nothing is lost.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any

from warrenmq.erlang.consult import consult
from warrenmq.erlang.term import BadTerm
from warrenmq.rabbit_logs.record import BadRecord

_DEPTH = 32
_REMEMBERED = 512
"""Terms repeat from record to record."""


def names_of(term: bytes) -> tuple[str, ...]:
    """A list of binaries."""
    return _names(bytes(term))


def properties_of(term: bytes) -> dict[str, Any]:
    """A table of properties; the caller gets it for itself."""
    return _table(_parsed(bytes(term)), _DEPTH)


@lru_cache(maxsize=_REMEMBERED)
def _names(term: bytes) -> tuple[str, ...]:
    found = _parsed(term)
    if not isinstance(found, list) or not all(isinstance(each, bytes) for each in found):
        raise BadRecord("not a list of names")
    return tuple(map(_text, found))


@lru_cache(maxsize=_REMEMBERED)
def _parsed(term: bytes) -> Any:
    try:
        # a byte of the file is a character of the term, whatever it means in UTF-8
        (found,) = consult(term.decode("latin-1").encode() + b".")
    except (BadTerm, ValueError):
        raise BadRecord("not a term of Erlang") from None
    return found


def _table(term: Any, depth: int) -> dict[str, Any]:
    if not isinstance(term, list):
        raise BadRecord("not a table")
    found = {}
    for entry in term:
        match entry:
            case (bytes(name), kind, value):
                found[_text(name)] = _value(str(kind), value, depth)
            case _:
                raise BadRecord("not a table")
    return found


def _value(kind: str, value: Any, depth: int) -> Any:
    """A typed value as the plugin's JSON has it, its slips included: a decimal's dot, and void as a word."""
    if not depth:
        raise BadRecord("nested too deeply")
    match kind, value:
        case "table", _:
            return _table(value, depth - 1)
        case "array", list():
            return [_value(str(of), each, depth - 1) for of, each in _pairs(value)]
        case "decimal", (int(before), int(after)):
            return float(f"{before}.{after}")
        case _, bytes():
            return _text(value)
        case _, str("true" | "false"):
            return value == "true"
        case _, (int() | float()):
            return value
    return str(value)


def _pairs(value: list[Any]) -> list[tuple[Any, Any]]:
    if not all(isinstance(each, tuple) and len(each) == 2 for each in value):
        raise BadRecord("not an array")
    return value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "Not UTF-8, base64 is: " + base64.b64encode(data).decode()
