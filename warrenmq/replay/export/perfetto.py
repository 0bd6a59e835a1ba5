"""The timeline of a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: Chrome's JSON trace events.

    a run        a process
    an actor     a thread of it: one track, each row a slice that lasts until the actor's next row, LONGEST at most;
                 its arguments are the row's sentence (trace/sentences.py) and its columns by name
    a cast       an arrow from its SEND to the row that received it
    a message    an arrow from row to row, from actor to actor, of those that name it
    a queue      a counter of its messages, ready and unacked
    a mailbox    a counter of the mail in it, as far as its SENDs are exported
    waiting      a counter for each actor that grants no credit, and one of the senders that wait for an alarm to clear

Times are microseconds, as the format wants them, since the first row that is exported.
Format: "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from warrenmq.replay.drive.levels import CHANGING, RECEIVES, Kind, step
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Ev, sends_of, seq_ids_of
from warrenmq.trace.schema import Row
from warrenmq.trace.sentences import Narrator, Words

LONGEST = 1_000
"""The longest that a slice is drawn, in ns, when the actor's next row is further away."""
_DEPTH: dict[int, int] = {Ev.PUBLISH: 1, Ev.RECOVERED: 1, Ev.ACK: -1, Ev.DROP: -1}


def write_perfetto(
    catalog: Catalog, rows: Iterable[tuple[int, Row]], to: TextIO, limit: int
) -> tuple[int, bool]:
    """Write rows (of `select_rows`); returns how many, and whether there were more than `limit`."""
    timeline = _Timeline(catalog)
    to.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    written, more = 0, False
    for number, row in rows:
        if written == limit:
            more = True
            break
        written += 1
        _write(timeline.events(number, row), to)
    _write(timeline.last_slices(), to)
    # JSON allows no comma before the bracket: end with an event without an effect.
    to.write('{"ph":"M","pid":0,"name":"process_sort_index","args":{"sort_index":0}}\n]}\n')
    return written, more


def _write(events: Iterable[dict[str, Any]], to: TextIO) -> None:
    for event in events:
        to.write(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
        to.write(",\n")


class _Timeline:
    """Rows in, events of the format out.

    _slices    actor -> the slice of its last row, which ends where its next row begins
    _last_of   message -> the track of its last row, for its arrow
    _depths    queue process -> messages in it
    _levels    (run, Kind, whose mailbox or whose credit, 0 of an alarm) -> how many
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._words = [Words(run) for run in catalog.runs]
        self._narrator = Narrator(catalog)
        self._known: set[tuple[int, int]] = set()
        self._runs: set[int] = set()
        self._origin: int | None = None
        self._slices: dict[tuple[int, int], tuple[int, dict[str, Any]]] = {}
        self._last_of: dict[tuple[int, int], tuple[int, int]] = {}
        self._depths: dict[tuple[int, int], int] = {}
        self._levels: dict[tuple[int, int, int], int] = {}

    def events(self, number: int, row: Row) -> Iterator[dict[str, Any]]:
        if self._origin is None:
            self._origin = row.t
        actor, event = row.actor, row.event
        yield from self._introduce(number, actor)
        at = {"pid": number + 1, "tid": actor, "ts": (row.t - self._origin) / 1000}
        words = self._words[number]
        if (before := self._slices.get((number, actor))) is not None:
            began, drawn = before
            yield {**drawn, "dur": min(row.t - began, LONGEST) / 1000}
        args = {"sentence": self._narrator.sentence(number, row), **words.columns(row)}
        drawn = {"ph": "X", "cat": "row", "name": words.title(row), "args": args, **at}
        self._slices[number, actor] = row.t, drawn
        cast = {"cat": "cast", "name": "cast", **at}
        if event == Ev.SEND:
            yield {"ph": "s", "id": f"{number}.{actor}.{row.seq}", **cast}
        elif event in RECEIVES:
            sender, sends = sends_of(row)
            for sent in sends:
                yield {"ph": "f", "bp": "e", "id": f"{number}.{sender}.{sent}", **cast}
        if row.msg:
            yield from self._message_arrow(number, actor, row.msg, at)
        if (change := _DEPTH.get(event)) is not None:
            depth = self._depths[number, actor] = self._depths.get((number, actor), 0) + change * len(
                seq_ids_of(row)
            )
            name = f"messages of {self._catalog.runs[number].actor_name(actor)}"
            yield {"ph": "C", "name": name, "args": {"messages": depth}, **at}
        if event in CHANGING and (moved := step(event, row)) is not None:
            yield from self._level(number, *moved, at)

    def _level(
        self, number: int, kind: int, actor: int, peer: int, by: int, at: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        whose = {Kind.MAIL: actor, Kind.CREDIT: peer}.get(Kind(kind), 0)
        if kind == Kind.MAIL and (number, actor) not in self._known:
            return  # no row of this actor is exported, so its level would only rise
        place = number, kind, whose
        # a level that falls below 0 rose before the export begins
        level = self._levels[place] = max(self._levels.get(place, 0) + by, 0)
        name = self._catalog.runs[number].actor_name(whose) if whose else ""
        name = {Kind.MAIL: f"mail of {name}", Kind.CREDIT: f"waiting for credit of {name}"}.get(
            Kind(kind), "waiting for an alarm"
        )
        yield {"ph": "C", "name": name, "args": {"mail" if kind == Kind.MAIL else "senders": level}, **at}

    def last_slices(self) -> Iterator[dict[str, Any]]:
        """The last slices of the actors, from their last rows."""
        for _, drawn in self._slices.values():
            yield {**drawn, "dur": LONGEST / 1000}

    def _introduce(self, number: int, actor: int) -> Iterator[dict[str, Any]]:
        if number not in self._runs:
            self._runs.add(number)
            run = self._catalog.runs[number]
            name = f"boot {run.boot} on {run.node} ({run.name})"
            yield {"ph": "M", "pid": number + 1, "name": "process_name", "args": {"name": name}}
        if (number, actor) not in self._known:
            self._known.add((number, actor))
            name = self._catalog.runs[number].actor_name(actor)
            yield {"ph": "M", "pid": number + 1, "tid": actor, "name": "thread_name", "args": {"name": name}}

    def _message_arrow(
        self, number: int, actor: int, msg: int, at: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        before = self._last_of.get((number, msg))
        self._last_of[number, msg] = number, actor
        arrow = {"cat": "message", "name": "message", "id": f"m{number}.{msg}", "bp": "e", **at}
        if before is None:
            yield {"ph": "s", **arrow}
        elif before != (number, actor):
            yield {"ph": "t", **arrow}
