"""Rows in words, from the registry: labels (`FILE_SYNC TIMER`), columns by name, and sentences.

    words = Words(run)
    words.title(row)        SEND Publish
    words.columns(row)      {"message": 1099511627776, "receiver": "queue:jobs", ...}

    narrator = Narrator(catalog)
    narrator.sentence(0, row)      queue jobs confirmed messages 12 to 75 after the sync at 00:01.204

The template of a sentence stands in its event (events/): a {placeholder} is a column in words, and a part in
[brackets] is left out when one of its placeholders has nothing to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import IntEnum, IntFlag
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from warrenmq.trace.catalog import Catalog, Run
from warrenmq.trace.events import PRIORITY_SHIFT, ConfirmKind, Ev
from warrenmq.trace.schema import (
    ACTOR,
    CONSUMER,
    COUNT,
    EVENTS,
    FLAG,
    LIMIT,
    MESSAGE,
    MESSAGE_KIND,
    MILLISECONDS,
    OFFSET,
    SEQ_ID,
    SIZE,
    SOME,
    SOME_BYTES,
    TEXT,
    WALL_CLOCK,
    YES_NO,
    Column,
    Event,
    Row,
)

_WITHIN_PRIORITY = (1 << PRIORITY_SHIFT) - 1


# -- labels


def flag_names(kinds: Mapping[int, str]) -> dict[tuple[int, int], str]:
    """(event, flag) -> name, for every pair that has one; `kinds` are the run's message kinds."""
    found: dict[tuple[int, int], str] = {}
    for number, event in EVENTS.items():
        columns = [column for column in event.columns if column.place == FLAG]
        for values in product(*(_values(column, kinds) for column in columns)):
            its = {column.name: value for column, (value, _) in zip(columns, values, strict=True)}
            if any(
                its[each.name] and each.when and its[each.when.column] not in each.when.values
                for each in columns
            ):
                continue
            flag = sum(its[column.name] << column.shift for column in columns)
            names = [name for _, name in values if name]
            if names and flag:
                found[number, flag] = ", ".join(names)
    return found


def _values(column: Column, kinds: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """Every value that a column of a flag can have, with its name."""
    type_ = column.type
    if type_ is MESSAGE_KIND:
        yield from kinds.items()
    elif type_ is YES_NO:
        yield from ((0, ""), (1, column.name.upper()))
    elif isinstance(type_, type) and issubclass(type_, IntFlag):
        bits = list(type_)
        for chosen in product((False, True), repeat=len(bits)):
            its = [bit for bit, is_set in zip(bits, chosen, strict=True) if is_set]
            yield sum(its), "|".join(bit.name or "" for bit in its)
    elif isinstance(type_, type):
        yield from ((member.value, member.name) for member in type_)


class Words:
    """Labels for the rows of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._flags = flag_names(run.kinds)

    def title(self, row: Row) -> str:
        """The row's event with its flag: `SEND Publish`, `FILE_SYNC TIMER`."""
        name = self._run.event_name(row.event)
        return f"{name} {self._flags.get((row.event, row.flag), row.flag)}" if row.flag else name

    def columns(self, row: Row) -> dict[str, Any]:
        """The columns of the row by name, without its flag; of an event of a later version, its stored columns.

        An actor is given by its name, a consumer by its number.
        """
        event = EVENTS.get(row.event)
        if event is None:
            stored = (
                ("msg", row.msg),
                ("peer", row.peer),
                ("pseq", row.pseq),
                ("a", row.a),
                ("b", row.b),
                ("c", row.c),
            )
            return {name: value for name, value in stored if value}
        named: dict[str, Any] = {}
        for column, value in event.of(row).items():
            if column.place != FLAG:
                is_actor = column.type is ACTOR
                named[column.name] = (self._run.actor_name(value) if value else "") if is_actor else value
        return named


# -- sentences


class _Part(NamedTuple):
    """A piece of a template: words, or a placeholder; those of one pair of brackets share a number above 0."""

    words: str
    name: str
    optional: int


@cache
def _parts(template: str) -> tuple[_Part, ...]:
    parts, optional, inside = [], 0, 0
    for piece in re.split(r"(\{\w+\}|\[|\])", template):
        if piece == "[":
            optional += 1
            inside = optional
        elif piece == "]":
            inside = 0
        elif piece.startswith("{"):
            parts.append(_Part("", piece[1:-1], inside))
        elif piece:
            parts.append(_Part(piece, "", inside))
    return tuple(parts)


class Narrator:
    """Makes sentences of the rows of a trace, which must come in their order.

    It remembers the last index sync of each queue, at most one time an actor, so that a confirm can name it.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._runs = catalog.runs
        self._began = [0] * len(catalog.runs)
        for chunk in catalog.chunks:
            before = self._began[chunk.run]
            self._began[chunk.run] = min(before, chunk.t_first) if before else chunk.t_first
        self._synced: dict[tuple[int, int], int] = {}

    def time(self, run: int, t: int) -> str:
        """Minutes, seconds and milliseconds since the first row of its run."""
        return clock(t - self._began[run])

    def notice(self, run: int, row: Row) -> None:
        """Take note of a row that gets no sentence."""
        if row.event == Ev.QI_SYNC:
            self._synced[run, row.actor] = row.t

    def sentence(self, run: int, row: Row) -> str:
        """A row in plain English."""
        event = EVENTS.get(row.event)
        actor = self._actor(run, row.actor)
        if event is None:
            return f"{actor} wrote a row of event {row.event}, which this version does not know"
        self.notice(run, row)
        said: dict[str, str] = {"actor": actor, **self._covered(event, row)}
        for column, value in event.of(row).items():
            said[column.name] = self._in_words(run, column, value)
        if (
            event.number == Ev.CONFIRM
            and row.flag == ConfirmKind.DURABLE
            and (run, row.actor) in self._synced
        ):
            said["synced"] = self.time(run, self._synced[run, row.actor])
        parts = _parts(event.says)
        empty = {part.optional for part in parts if part.name and not said.get(part.name)}
        return "".join(
            part.words or said.get(part.name) or "?"
            for part in parts
            if not part.optional or part.optional not in empty
        )

    def _covered(self, event: type[Event[Any]], row: Row) -> dict[str, str]:
        """The messages of a row, by their places in the queue and by their ids."""
        found: dict[str, str] = {}
        view: Any = event.of(row)
        count = max(view.count, 1) if event.has("count") else 1
        if event.has("first_seq_id"):
            first = view.first_seq_id
            low, priority = first & _WITHIN_PRIORITY, first >> PRIORITY_SHIFT
            found["messages"] = _range("message", low, count) + (
                f" of priority {priority}" if priority else ""
            )
        if event.has("message") and view.message:
            found["message_ids"] = _range("message id", view.message, count)
        return found

    def _actor(self, run: int, actor: int) -> str:
        return self._runs[run].actor_name(actor).replace(":", " ", 1)

    def _in_words(self, run: int, column: Column, value: int) -> str:
        type_ = column.type
        if isinstance(type_, type):
            return _of_enum(type_, value)
        if type_ is MESSAGE_KIND and not value:
            return "a message"
        if type_.absent == value:
            return ""
        if type_ is ACTOR:
            return self._actor(run, value)
        if type_ is MESSAGE_KIND:
            return self._runs[run].kinds.get(value, f"a message of kind {value}")
        if type_ is TEXT:
            return self._runs[run].texts.get(value, f"(text {value})")
        if type_ is YES_NO:
            return column.name.replace("_", "-") if value else ""
        if type_ is WALL_CLOCK:
            return f"{datetime.fromtimestamp(value / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
        form = _FORMS.get(type_, "{}")
        return form.format(value)


_FORMS = {
    CONSUMER: "consumer {}",
    MESSAGE: "message id {}",
    COUNT: "{:,}",
    SOME: "{:,}",
    LIMIT: "{:,}",
    SIZE: "{:,} bytes",
    SOME_BYTES: "{:,} bytes",
    OFFSET: "byte {:,}",
    MILLISECONDS: "{:,} ms",
    SEQ_ID: "{}",
}


def _of_enum(type_: type[IntEnum | IntFlag], value: int) -> str:
    """The words of a value, or of its bits; a value of a later version as its number."""
    if issubclass(type_, IntFlag):
        return ", ".join(getattr(bit, "words", "") for bit in type_ if value & bit)
    if not value:
        return ""
    known = type_._value2member_map_.get(value)
    return getattr(known, "words", f"({value})")


def _range(what: str, first: int, count: int) -> str:
    return f"{what} {first}" if count == 1 else f"{what}s {first} to {first + count - 1}"


def clock(ns: int) -> str:
    """Nanoseconds as 00:01.204, with hours where there are any."""
    ms = ns // 1_000_000
    hours, rest = divmod(ms, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}"
    return f"{hours}:{seconds}" if hours else seconds
