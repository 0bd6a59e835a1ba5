"""The tables that the site adds to docs/trace.md, written from the registry of events: `python -m
tools.trace_page` prints it.
"""

from __future__ import annotations

import sys
from enum import IntEnum, IntFlag
from typing import Any

from warrenmq.trace import events as _declared  # noqa: F401 - fills EVENTS
from warrenmq.trace import schema, words
from warrenmq.trace.schema import EVENTS, FLAG, Column, Event, Kind


def events() -> str:
    """The types of columns, every event, and the values of its columns, as Markdown."""
    parts = ["## Types of columns\n", "| type | |\n| --- | --- |"]
    parts += [f"| {kind.name} | {kind.text} |" for kind in _kinds()]
    parts.append("\n## Events\n")
    for event in EVENTS.values():
        parts.append(_of_event(event))
    parts.append("## Values\n")
    for type_ in _enums():
        parts.append(_of_enum(type_))
    return "\n".join(parts).rstrip() + "\n"


def _kinds() -> list[Kind]:
    return [value for value in vars(schema).values() if isinstance(value, Kind)]


def _enums() -> list[type[IntEnum | IntFlag]]:
    used = {column.type for event in EVENTS.values() for column in event.columns}
    return [value for value in vars(words).values() if isinstance(value, type) and value in used]


def _of_event(event: type[Event[Any]]) -> str:
    text = " ".join((event.__doc__ or "").split())
    lines = [f"### {event.name} ({event.number})\n", f"{text}\n", f"> `{event.says}`\n"]
    if event.columns:
        lines += ["| column | type | stored in | |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{column.name}` | {_type(column)} | {_place(column)} | {column.text}{_when(event, column)} |"
            for column in event.columns
        ]
        lines.append("")
    return "\n".join(lines)


def _type(column: Column) -> str:
    return (
        column.type.name
        if isinstance(column.type, Kind)
        else f"[{column.type.__name__}](#{column.type.__name__.lower()})"
    )


def _place(column: Column) -> str:
    if column.mask == -1 or (column.place == FLAG and column.mask == 0xFF):
        return f"`{column.place}`"
    first, last = column.shift, column.shift + column.mask.bit_length() - 1
    return f"`{column.place}`, bit {first}" if first == last else f"`{column.place}`, bits {first} to {last}"


def _when(event: type[Event[Any]], column: Column) -> str:
    if column.when is None:
        return ""
    type_: Any = event.column(column.when.column).type
    return (
        f" (where `{column.when.column}` is {' or '.join(type_(value).name for value in column.when.values)})"
    )


def _of_enum(type_: type[IntEnum | IntFlag]) -> str:
    kind = "bits" if issubclass(type_, IntFlag) else "one of"
    lines = [
        f"### {type_.__name__}\n",
        f"{type_.__doc__} ({kind})\n",
        "| value | name | in a sentence |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {member.value} | {member.name} | {getattr(member, 'words', '')} |" for member in type_]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(events())
