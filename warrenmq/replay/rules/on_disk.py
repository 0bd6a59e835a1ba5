"""Machines of the store's confirms (C1, the store's side).

synced    a STORE_CONFIRM written comes after the FILE_SYNC that covers the record.  Key: (run, store actor).
on_disk   an ON_DISK row in a queue has the same STORE_CONFIRM in a store.  Key: (run, msg >> 12).

Records are appended to one file at a time and synced in that order, so of a store only the records that are not
synced yet matter.  A piece folds into: confirms and syncs in their order, and the records that it leaves unsynced.
Whether a confirmed message had a record before the piece began, or none at all because it was recovered, is known only
to the state; a message without an unsynced record is fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.life import SHIFT
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import IGNORED, WRITTEN, Ev
from warrenmq.trace.index import Row

_APPEND, _FILE_SYNC, _STORE_CONFIRM = int(Ev.APPEND), int(Ev.FILE_SYNC), int(Ev.STORE_CONFIRM)
_WRITTEN_CONFIRM = _STORE_CONFIRM << 8 | WRITTEN


@dataclass(slots=True)
class Unsynced:
    """Records that no sync has covered yet."""

    records: dict[int, tuple[int, int]] = field(default_factory=dict)
    """message -> (file, end of the record)."""
    early: list[tuple[list[tuple[int, int, int]], tuple[int, int]]] = field(default_factory=list)
    """Steps about older records: confirms (message, seq, t), then a sync (file, safe bytes), if it is not (-1, 0)."""
    problems: list[tuple[int, int, int]] = field(default_factory=list)
    """(message, seq, t)"""

    def sync(self, file: int, safe: int) -> None:
        """All records up to there are safe."""
        self.records = {
            msg: (where, end)
            for msg, (where, end) in self.records.items()
            if where > file or (where == file and end > safe)
        }

    def confirm(self, confirms: list[tuple[int, int, int]]) -> None:
        """What is told to be safe must not be among the records that are not."""
        if self.records:
            self.problems += [each for each in confirms if each[0] in self.records]


class Synced(Machine):
    """See the module."""

    name: ClassVar[str] = "synced"
    events: ClassVar[frozenset[int]] = frozenset({Ev.APPEND, Ev.FILE_SYNC, Ev.STORE_CONFIRM})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Unsynced]]:
        folded = Unsynced()
        confirms: list[tuple[int, int, int]] = []
        for t, seq, msg, _, _, a, b, c, who in rows:
            word = who & 0xFFFF
            if word == _WRITTEN_CONFIRM:
                if msg in folded.records:
                    folded.problems.append((msg, seq, t))
                confirms.append((msg, seq, t))
            elif word >> 8 == _APPEND:
                folded.records[msg] = (a, b + c)
            elif word >> 8 == _FILE_SYNC:
                folded.sync(a, b)
                folded.early.append((confirms, (a, b)))
                confirms = []
        if confirms:
            folded.early.append((confirms, (-1, 0)))
        yield (piece.run, piece.actor), folded

    def start(self, key: Key) -> Unsynced:
        return Unsynced()

    def absorb(self, state: Unsynced, summary: Unsynced) -> None:
        for confirms, (file, safe) in summary.early:
            state.confirm(confirms)
            state.sync(file, safe)
        state.records |= summary.records
        state.problems += summary.problems

    def finish(self, key: Key, state: Unsynced, context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        outcome = Outcome()
        for msg, seq, t in state.problems:
            subject = f"message {msg & 0xFFFFFFFFFFFFFFFF:016x} in {context.name(who)}"
            text = "the store confirmed it before its record was synced"
            outcome.findings.append(Finding("C1", subject, text, ((*who, seq),), t, (who,)))
        return outcome


BatchSummary = tuple[int, list[tuple[int, ...]]]
"""(queue, message, flag, seq, t) of ON_DISK rows (1), or (queue, message, flag) of STORE_CONFIRM rows (0)."""


@dataclass(slots=True)
class Meeting:
    """What stores told queues, and what queues heard."""

    told: dict[tuple[int, ...], int] = field(default_factory=dict)
    heard: dict[tuple[int, ...], list[tuple[int, ...]]] = field(default_factory=dict)
    """(queue, message, flag) -> (seq, t) of rows that nobody has told yet."""


class OnDisk(Machine):
    """See the module.  The order of the two rows is not decided: the way between them is not traced."""

    name: ClassVar[str] = "on_disk"
    events: ClassVar[frozenset[int]] = frozenset({Ev.STORE_CONFIRM, Ev.ON_DISK})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, BatchSummary]]:
        found: dict[tuple[int, bool], list[tuple[int, ...]]] = {}
        actor = piece.actor
        for t, seq, msg, peer, _, _, _, _, who in rows:
            hearing = who >> 8 & 0xFF != _STORE_CONFIRM
            key = (msg >> SHIFT, hearing)
            entries = found.get(key)
            if entries is None:
                entries = found[key] = []
            entries.append((actor, msg, who & 0xFF, seq, t) if hearing else (peer, msg, who & 0xFF))
        for (bucket, hearing), entries in found.items():
            yield (piece.run, bucket), (int(hearing), entries)

    def start(self, key: Key) -> Meeting:
        return Meeting()

    def absorb(self, state: Meeting, summary: BatchSummary) -> None:
        heard, entries = summary
        told, waiting = state.told, state.heard
        if heard:
            for entry in entries:
                key = entry[:3]
                n = told.get(key, 0)
                if n > 1:
                    told[key] = n - 1
                elif n:
                    del told[key]
                else:
                    waiting.setdefault(key, []).append(entry[3:])
            return
        for key in entries:
            if waiting and key in waiting:
                waiting[key].pop()
                if not waiting[key]:
                    del waiting[key]
            else:
                told[key] = told.get(key, 0) + 1

    def finish(self, key: Key, state: Meeting, context: TraceContext) -> Outcome:
        run = int(key[0])
        outcome = Outcome()
        needs = context.incomplete(run)
        for (queue, msg, flag), rows in state.heard.items():
            for seq, t in rows:
                said = "cancelled" if flag == IGNORED else "safe"
                subject = f"message {msg & 0xFFFFFFFFFFFFFFFF:016x} in queue {context.name((run, queue))}"
                text = f"the queue was told that its body is {said}, but no store said so"
                outcome.findings.append(Finding("C1", subject, text, ((run, queue, seq),), t, needs))
        return outcome
