"""The same trace under another sync interval, another garbage collection threshold, or without flying counters.

Each number has a basis:

    recorded    the question does not touch it
    replayed    the decisions were made anew, from the recorded operations: exact
    model       an estimate; `model` is what the same model says of the present settings, to compare with the record

With the settings that the trace was recorded with, every number is the recorded one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from warrenmq.latency import class_middle, percentile
from warrenmq.replay.report.measures import Measures, measure_trace
from warrenmq.replay.report.totals import MB, totals
from warrenmq.replay.rules.passes.files import limits
from warrenmq.replay.what_if.store import GARBAGE_FRACTION, RECORDS, StoreModel, StoreWork
from warrenmq.replay.what_if.syncs import SyncRows, Syncs, with_interval
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    PERSISTENT,
    WRITTEN,
    Decision,
    Ev,
    Publish,
    StoreConfirm,
    StoreWrite,
    seq_ids_of,
)
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import Row

SYNC_INTERVAL = 25.0
"""Milliseconds; the default of msg_store_sync_interval, as traces do not record the setting."""
RECORDED, REPLAYED, MODEL = "recorded", "replayed", "model"
_OF_QUEUES = frozenset({Ev.PUBLISH, Ev.CONFIRM, Ev.QI_WRITE, Ev.QI_SYNC})
_OF_SYNCS = frozenset({Ev.STORE_WRITE, Ev.STORE_CONFIRM, Ev.FILE_WRITE, Ev.FILE_SYNC})
_READ = RECORDS | _OF_QUEUES | _OF_SYNCS


@dataclass(frozen=True, slots=True)
class Question:
    """The changed settings; None leaves one as recorded."""

    sync_interval: float | None = None
    """Milliseconds."""
    gc_threshold: float | None = None
    flying: bool = True
    was_sync_interval: float = SYNC_INTERVAL

    @property
    def asks_syncs(self) -> bool:
        return self.sync_interval is not None and self.sync_interval != self.was_sync_interval

    @property
    def asks_gc(self) -> bool:
        return self.gc_threshold not in {None, GARBAGE_FRACTION} or not self.flying


@dataclass(frozen=True, slots=True)
class Line:
    """One number, as it was and as it would have been."""

    name: str
    recorded: float | None
    """None if the trace does not have it."""
    what_if: float
    basis: str
    model: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "recorded": self.recorded, "what_if": self.what_if, "basis": self.basis, "model": self.model,
        }  # fmt: skip


@dataclass(slots=True)
class _Queue:
    """The messages of one queue process that waited for its index syncs."""

    rows: SyncRows = field(default_factory=SyncRows)
    published: array[int] = field(default_factory=lambda: array("q"))
    """t, first sequence id, how many; of durable ones."""
    confirmed: list[tuple[int, int]] = field(default_factory=list)
    """(first, end)"""

    def take(self, row: Row) -> None:
        match row.event:
            case Ev.PUBLISH:
                publish = Publish.of(row)
                if publish.flags & PERSISTENT:
                    self.published.extend((row.t, publish.first_seq_id, publish.count))
            case Ev.CONFIRM if row.flag == CONFIRM_DURABLE:
                its = seq_ids_of(row)
                self.confirmed.append((its.start, its.stop))
            case Ev.QI_WRITE:
                self.rows.write(row.t, row.flag)
            case Ev.QI_SYNC:
                self.rows.sync(row.t, row.flag)

    def finish(self) -> SyncRows:
        """Count as waiting only messages that were confirmed."""
        self.confirmed.sort()
        starts = [first for first, _ in self.confirmed]
        for at in range(0, len(self.published), 3):
            t, first, count = self.published[at : at + 3]
            run = bisect_right(starts, first) - 1
            if run >= 0 and first < self.confirmed[run][1]:
                self.rows.wait(t, count)
        return self.rows


@dataclass(slots=True)
class _StoreSyncs:
    """The messages of one store that waited for syncs of its current file."""

    rows: SyncRows = field(default_factory=SyncRows)
    open: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(message, client) -> (t of its write, syncs before)"""
    waited: array[int] = field(default_factory=lambda: array("q"))

    def take(self, row: Row) -> None:
        match row.event:
            case Ev.STORE_WRITE:
                write = StoreWrite.of(row)
                if write.decision in {Decision.WRITE, Decision.CONFIRM}:
                    self.open[write.message, write.client] = row.t, len(self.rows.syncs)
            case Ev.STORE_CONFIRM:
                confirm = StoreConfirm.of(row)
                came, syncs = self.open.pop((confirm.message, confirm.client), (0, 0))
                # Without a sync since its write, the record's file was safe already.
                if came and confirm.report == WRITTEN and syncs < len(self.rows.syncs):
                    self.waited.append(came)
            case Ev.FILE_WRITE:
                self.rows.write(row.t, row.flag)
            case Ev.FILE_SYNC:
                self.rows.sync(row.t, row.flag)

    def finish(self) -> SyncRows:
        for t in sorted(self.waited):
            self.rows.wait(t, 1)
        return self.rows


def what_if(trace: Trace, question: Question) -> list[Line]:
    """The numbers of a trace as recorded and under other settings."""
    measures = measure_trace(trace)
    found = _Walk(trace, question, measures)
    return _lines(question, totals(measures), measures, found)


class _Walk:
    """One pass over a trace's rows."""

    def __init__(self, trace: Trace, question: Question, measures: Measures) -> None:
        self._question = question
        self._queues: dict[tuple[int, int], _Queue] = {}
        self._store_syncs: dict[tuple[int, int], _StoreSyncs] = {}
        self._stores: dict[tuple[int, int], tuple[StoreModel, StoreModel]] = {}
        self._trace = trace
        self._in_place = not any(key.event == Ev.GC_DONE for key in measures.tallies)
        self._mean = _mean_record(measures)
        for piece in trace.catalog.chunks:
            for row in trace.rows(piece):
                if row.event in _READ:
                    self._take((piece.run, piece.actor), row)
        self.index = self._syncs([queue.finish() for queue in self._queues.values()])
        self.store = self._syncs([store.finish() for store in self._store_syncs.values()])
        self.present, self.asked = StoreWork(), StoreWork()
        for present, asked in self._stores.values():
            self.present.add(present.work)
            self.asked.add(asked.work)

    def _take(self, who: tuple[int, int], row: Row) -> None:
        if row.event in _OF_QUEUES:
            self._queues.setdefault(who, _Queue()).take(row)
            return
        if row.event in _OF_SYNCS:
            self._store_syncs.setdefault(who, _StoreSyncs()).take(row)
        if row.event in RECORDS and self._question.asks_gc:
            for store in self._stores.get(who) or self._begin(who):
                store.take(row)

    def _begin(self, who: tuple[int, int]) -> tuple[StoreModel, StoreModel]:
        limit, _ = limits(self._trace.catalog.runs[who[0]])
        question = self._question
        asked = GARBAGE_FRACTION if question.gc_threshold is None else question.gc_threshold
        stores = self._stores[who] = (
            StoreModel(limit, GARBAGE_FRACTION, self._mean, in_place=self._in_place, flying=True),
            StoreModel(limit, asked, self._mean, in_place=self._in_place, flying=question.flying),
        )
        return stores

    def _syncs(self, all_rows: list[SyncRows]) -> tuple[Syncs, Syncs]:
        """(as recorded, as asked)."""
        question = self._question
        was = round(question.was_sync_interval * 1e6)
        now = was if question.sync_interval is None else round(question.sync_interval * 1e6)
        found = Syncs(), Syncs()
        for rows in all_rows:
            found[0].add(with_interval(rows, was, was))
            found[1].add(with_interval(rows, was, now))
        return found


def _mean_record(measures: Measures) -> int:
    """Bytes of a record in the stores, the cancelled ones not among them."""
    size = sum(tally.size for key, tally in measures.tallies.items() if key.event == Ev.FILE_WRITE)
    return size // max(_records(measures), 1)


def _records(measures: Measures) -> int:
    return sum(
        tally.rows
        for key, tally in measures.tallies.items()
        if key.event == Ev.STORE_WRITE and key.flag == Decision.WRITE
    )


def _lines(question: Question, recorded: dict[str, float], measures: Measures, found: _Walk) -> list[Line]:
    lines = []
    messages = recorded["messages published"]
    syncs = MODEL if question.asks_syncs else RECORDED
    for name, (was, now) in (("index", found.index), ("store", found.store)):
        lines.append(
            Line(
                f"{name} syncs",
                recorded[f"{name} syncs"],
                recorded[f"{name} syncs"] + now.count - was.count,
                syncs,
            )
        )
        lines.append(Line(f"{name} syncs by the timer", was.by_timer, now.by_timer, syncs))
        for percent in (50, 99) if was.delays else ():
            name_ = f"{name}: wait for a sync p{percent} ms"
            lines.append(
                Line(
                    name_, percentile(was.delays, percent) / 1e6, percentile(now.delays, percent) / 1e6, syncs
                )
            )
        if was.delays:
            lines.append(
                Line(f"{name}: wait for a sync mean ms", _mean(was.delays), _mean(now.delays), syncs)
            )
    before = recorded["index syncs"] + recorded["store syncs"]
    after = before + sum(now.count - was.count for was, now in (found.index, found.store))
    lines.append(Line("messages a sync", messages / max(before, 1), messages / max(after, 1), syncs))
    return lines + _store_lines(question, recorded, measures, found)


def _store_lines(
    question: Question, recorded: dict[str, float], measures: Measures, found: _Walk
) -> list[Line]:
    present, asked = found.present, found.asked
    saved = recorded["store writes saved by flying counters"]
    appended = _records(measures)
    flying = RECORDED if question.flying else REPLAYED
    more, more_bytes = asked.writes - present.writes, (asked.bytes - present.bytes) * MB
    lines = [
        Line("records appended", appended, appended + more, flying),
        Line("store writes saved by flying counters", saved, saved if question.flying else 0, flying),
        Line("store written MB", recorded["store written MB"], recorded["store written MB"] + more_bytes,
             RECORDED if question.flying else MODEL),
    ]  # fmt: skip
    copied = recorded["gc copied MB"]
    if question.asks_gc:
        copied = asked.gc_bytes * MB
        lines += [
            Line("gc runs", recorded["gc runs"], asked.gc_runs, MODEL, present.gc_runs),
            Line("gc copied MB", recorded["gc copied MB"], copied, MODEL, present.gc_bytes * MB),
            Line("files deleted", recorded["files deleted"], asked.deleted, MODEL, present.deleted),
            Line("store files MB, at most", None, asked.largest * MB, MODEL, present.largest * MB),
            Line("garbage MB, at most", None, asked.most_garbage * MB, MODEL, present.most_garbage * MB),
        ]
    else:
        lines += [
            Line(name, recorded[name], recorded[name], RECORDED)
            for name in ("gc runs", "gc copied MB", "files deleted")
        ]
    flushed = recorded["index written MB"] + recorded["index flushed MB"] + recorded["store written MB"]
    written = Line(
        "bytes written MB", flushed + recorded["gc copied MB"], flushed + more_bytes + copied, RECORDED
    )
    if question.asks_gc:
        written = replace(written, basis=MODEL, model=flushed + present.gc_bytes * MB)
    return [*lines, written]


def _mean(delays: Counter[int]) -> float:
    return sum(class_middle(cls) * n for cls, n in delays.items()) / max(delays.total(), 1) / 1e6
