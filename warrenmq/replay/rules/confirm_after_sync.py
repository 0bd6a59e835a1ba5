"""C1: a durable confirm comes after the syncs that it waits for.

On the queue's side, what lies between the PUBLISH and the CONFIRM of a message (the pass confirms):

==================  ==============================================  ==========
message             between                                         CONFIRM
==================  ==============================================  ==========
embedded            QI_SYNC                                         durable
in the store        QI_SYNC, ON_DISK written                        durable
in the store        ON_DISK ignored (a remove overtook the write)   durable
not persistent      -                                               transient
any                 -                                               nack
==================  ==============================================  ==========

On the store's side:

synced    a STORE_CONFIRM written comes after the FILE_SYNC that covers the record.  Key: (run, store actor).
on_disk   an ON_DISK row in a queue has the same STORE_CONFIRM in a store.  Key: (run, msg >> 12).

Records are appended to one file at a time and synced in that order, so of a store only the records that are not
synced yet matter.  A piece folds into: confirms and syncs in their order, and the records that it leaves unsynced.
Whether a confirmed message had a record before the piece began, or none at all because it was recovered, is known only
to the state; a message without an unsynced record is fine.

Array form of on_disk: a STORE_CONFIRM and the ON_DISK row of the same queue and message cancel each other.
Open rows are the reports (queue, message, flag) that no queue received, and the received ones that no store
made, flat.  At the end some of the first may be left, for a queue that died receives none; none of the
others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, codes, doubles, look_up, np, parts_of
from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome, message_name
from warrenmq.replay.drive.precheck import OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import Chain, Link, Story, confirm_chain, store_chain
from warrenmq.replay.rules.passes.confirms import Confirms, Windows
from warrenmq.replay.rules.passes.message_life import SHIFT
from warrenmq.replay.rules.rule import Exercised, Judge, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import (
    CONFIRM_NACK,
    CONFIRM_TRANSIENT,
    IGNORED,
    IN_STORE,
    PERSISTENT,
    WRITTEN,
    Append,
    Ev,
    FileSync,
    OnDisk,
    StoreConfirm,
)
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_APPEND, _FILE_SYNC, _STORE_CONFIRM = int(Ev.APPEND), int(Ev.FILE_SYNC), int(Ev.STORE_CONFIRM)
_WRITTEN_CONFIRM = _STORE_CONFIRM << 8 | WRITTEN
_append = Append.getter("message", "file", "offset", "size")
_file_sync = FileSync.getter("file", "synced_to")
_store_confirm = StoreConfirm.getter("client", "message", "report")
_heard = OnDisk.getter("t", "seq", "message", "report")


def _is_safe(flags: Any, kind: Any, synced: Any, report: Any) -> Any:
    """The table above, of numbers or of arrays."""
    is_durable = (kind != CONFIRM_NACK) & (kind != CONFIRM_TRANSIENT)
    embedded = flags & IN_STORE == 0
    safe = (synced & (embedded | (report == WRITTEN))) | ((report == IGNORED) & (flags & IN_STORE != 0))
    return (
        (kind == CONFIRM_NACK)
        | ((kind == CONFIRM_TRANSIENT) & (flags & PERSISTENT == 0))
        | (is_durable & safe)
    )


def _too_soon(who: Who, state: Windows, context: TraceContext, outcome: Outcome) -> None:
    for window in state.windows.values():
        for id_, flags, kind, report, seq, t in window.odd:
            if flags < 0:
                text = f"confirmed {id_}, which is not waiting for a confirm"
            elif kind == CONFIRM_TRANSIENT:
                text = f"confirmed {id_}, a persistent message, without a sync"
            elif flags & IN_STORE and not report:
                text = f"confirmed {id_} before the store said that its body is safe"
            else:
                text = f"confirmed {id_} before the index was synced"
            subject = f"queue {context.name(who)}"
            outcome.findings.append(Finding("C1", subject, text, ((*who, seq),), t, (who,), (id_,)))


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
        """Note a sync: all records up to this place are on disk."""
        self.records = {
            msg: (where, end)
            for msg, (where, end) in self.records.items()
            if where > file or (where == file and end > safe)
        }

    def confirm(self, confirms: list[tuple[int, int, int]]) -> None:
        """A body that is reported as safe must not be among the records that are not."""
        if self.records:
            self.problems += [each for each in confirms if each[0] in self.records]


class Synced(Machine):
    """Compares the confirms of a store with its syncs."""

    name: ClassVar[str] = "synced"
    events: ClassVar[frozenset[int]] = frozenset({Ev.APPEND, Ev.FILE_SYNC, Ev.STORE_CONFIRM})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Unsynced]]:
        folded = Unsynced()
        confirms: list[tuple[int, int, int]] = []
        for row in rows:
            word = row.who & 0xFFFF
            if word == _WRITTEN_CONFIRM:
                _, msg, _ = _store_confirm(row)
                if msg in folded.records:
                    folded.problems.append((msg, row.seq, row.t))
                confirms.append((msg, row.seq, row.t))
            elif word >> 8 == _APPEND:
                msg, file, offset, size = _append(row)
                folded.records[msg] = (file, offset + size)
            elif word >> 8 == _FILE_SYNC:
                file, safe = _file_sync(row)
                folded.sync(file, safe)
                folded.early.append((confirms, (file, safe)))
                confirms = []
        if confirms:
            folded.early.append((confirms, (-1, 0)))
        yield (piece.run, piece.actor), folded

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Unsynced]]:
        """`summarise` for arrays, without the confirms of records that the piece itself appended and synced before."""
        word = rows.who & 0xFFFF
        confirmed = np.flatnonzero(word == _WRITTEN_CONFIRM)
        appended, synced = (np.flatnonzero(word >> 8 == event) for event in (_APPEND, _FILE_SYNC))
        append, sync = Append.of(rows.at(appended)), FileSync.of(rows.at(synced))
        messages = StoreConfirm.of(rows.at(confirmed)).message
        ends, safe = codes((append.file, sync.file), (append.offset + append.size, sync.synced_to))
        by_message = np.argsort(append.message, kind="stable")
        records = append.message.take(by_message)
        # of each confirm the last record before it: both as (the first place of the message, where the row stands)
        of_records, of_confirms = codes(
            (np.searchsorted(records, records), np.searchsorted(records, messages)),
            (appended.take(by_message), confirmed),
        )
        last = np.searchsorted(of_records, of_confirms) - 1
        known = last >= 0
        known[known] = records.take(last[known]) == messages[known]
        reached = np.concatenate(([-1], safe))  # behind so many syncs, the place up to which all is safe
        covered = reached.take(np.searchsorted(synced, confirmed[known])) >= ends.take(
            by_message.take(last[known])
        )
        in_order = (
            np.all(np.diff(ends) > 0)
            and np.all(np.diff(safe) >= 0)
            and np.all(reached.take(np.searchsorted(synced, appended)) < ends)
        )
        if not (in_order and np.all(covered)):
            yield from self.summarise(piece, rows.tuples())
            return
        folded = Unsynced()
        older = confirmed[~known]
        confirms = _tuples(messages[~known], rows.seq.take(older), rows.t.take(older))
        until = [*np.searchsorted(older, synced).tolist(), len(confirms), len(confirms)]
        first = 0
        for number, place in enumerate([*_tuples(sync.file, sync.synced_to), (-1, 0)]):
            # of syncs that no such confirm comes between, the last one says all
            if first < until[number] or number == len(synced) - 1 or until[number] < until[number + 1]:
                folded.early.append((confirms[first : until[number]], place))
                first = until[number]
        left = ends > reached[-1]
        places = _tuples(append.file[left], (append.offset + append.size)[left])
        folded.records = dict(zip(append.message[left].tolist(), places, strict=True))
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
            subject = f"{message_name(msg)} in {context.name(who)}"
            text = "the store confirmed it before its record was synced"
            outcome.findings.append(Finding("C1", subject, text, ((*who, seq),), t, (who,)))
        return outcome


def _tuples(*columns: Ints) -> list[Any]:
    """The rows of these columns."""
    return list(zip(*(column.tolist() for column in columns), strict=True))


BatchSummary = tuple[int, list[tuple[int, ...]]]
"""(queue, message, flag, seq, t) of ON_DISK rows (1), or (queue, message, flag) of STORE_CONFIRM rows (0)."""


class _OfBody(Shared[T], of=(Ev.STORE_CONFIRM, Ev.ON_DISK)):
    message: T


@dataclass(slots=True)
class OpenReports:
    """Reports of stores, and those that queues received."""

    reported: dict[tuple[int, ...], int] = field(default_factory=dict)
    received: dict[tuple[int, ...], list[tuple[int, ...]]] = field(default_factory=dict)
    """(queue, message, flag) -> (seq, t) of rows whose STORE_CONFIRM has not come yet."""


class Reports(Machine):
    """Matches the reports of stores with those that queues received.  The order of the two rows is not
    decided: the way between them is not traced.
    """

    name: ClassVar[str] = "on_disk"
    events: ClassVar[frozenset[int]] = frozenset({Ev.STORE_CONFIRM, Ev.ON_DISK})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, BatchSummary]]:
        found: dict[tuple[int, bool], list[tuple[int, ...]]] = {}
        for row in rows:
            hearing = row.who >> 8 & 0xFF != _STORE_CONFIRM
            entry: tuple[int, ...]
            if hearing:
                t, seq, msg, report = _heard(row)
                entry = (piece.actor, msg, report, seq, t)
            else:
                entry = _store_confirm(row)
            key = (entry[1] >> SHIFT, hearing)
            entries = found.get(key)
            if entries is None:
                entries = found[key] = []
            entries.append(entry)
        for (bucket, hearing), entries in found.items():
            yield (piece.run, bucket), (int(hearing), entries)

    def start(self, key: Key) -> OpenReports:
        return OpenReports()

    def absorb(self, state: OpenReports, summary: BatchSummary) -> None:
        heard, entries = summary
        reported, waiting = state.reported, state.received
        if heard:
            for entry in entries:
                key = entry[:3]
                n = reported.get(key, 0)
                if n > 1:
                    reported[key] = n - 1
                elif n:
                    del reported[key]
                else:
                    waiting.setdefault(key, []).append(entry[3:])
            return
        for key in entries:
            if waiting and key in waiting:
                waiting[key].pop()
                if not waiting[key]:
                    del waiting[key]
            else:
                reported[key] = reported.get(key, 0) + 1

    def finish(self, key: Key, state: OpenReports, context: TraceContext) -> Outcome:
        run = int(key[0])
        outcome = Outcome()
        needs = context.incomplete(run)
        for (queue, msg, flag), rows in state.received.items():
            for seq, t in rows:
                said = "cancelled" if flag == IGNORED else "safe"
                subject = f"{message_name(msg)} in queue {context.name((run, queue))}"
                text = f"the queue heard that its body is {said}, but no store reported that"
                outcome.findings.append(Finding("C1", subject, text, ((run, queue, seq),), t, needs))
        return outcome

    def prune(self, key: Key, state: OpenReports, context: TraceContext) -> bool:
        """True when every report was received: then the state is as it was before any row."""
        return not state.reported and not state.received


_MIX = (-0x61C8864680B583EB, 0x2545F4914F6CDD1D, 0x369DEA0F31A53F85)
"""Odd numbers that spread bits; the rows are compared themselves afterwards."""


class ReportsPrecheck(Precheck):
    """The array form of the store's side of the rule; see the module."""

    machine: ClassVar[type[Machine]] = Reports

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        said = unit.of(frozenset({Ev.STORE_CONFIRM}))
        heard = unit.of(frozenset({Ev.ON_DISK}))
        reported = np.stack(_store_confirm(said), axis=1)
        received = np.stack((heard.actor, OnDisk.of(heard).message, OnDisk.of(heard).report), axis=1)
        open_reported, open_received = _cancel(reported, received)
        reported, received = reported[open_reported], received[open_received]
        for bucket, rows_left in parts_of(
            (reported[:, 1] >> SHIFT, reported), (received[:, 1] >> SHIFT, received)
        ):
            yield (unit.run, bucket), rows_left

    def second_part(self, rows: Rows) -> Ints:
        return _OfBody.of(rows).message >> SHIFT

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        reported, received = joined(open_rows, 3, 3)
        _, open_received = _cancel(reported, received)
        return None if open_received.any() else Outcome()


def _cancel(reported: Ints, received: Ints) -> tuple[Bools, Bools]:
    """True for each row that has no equal in the other table; rows that occur twice have none."""
    reported_codes, received_codes = _mixed(reported), _mixed(received)
    order, other = np.argsort(reported_codes, kind="stable"), np.argsort(received_codes, kind="stable")
    reported_codes, received_codes = reported_codes[order], received_codes[other]
    at, found = look_up(reported_codes, received_codes)
    found &= ~doubles(received_codes)
    if len(reported):
        found &= ~doubles(reported_codes)[at] & np.all(reported[order[at]] == received[other], axis=1)
    open_reported, open_received = np.ones(len(reported), np.bool_), np.ones(len(received), np.bool_)
    open_reported[order[at[found]]] = False
    open_received[other[found]] = False
    return open_reported, open_received


def _mixed(rows: Ints) -> Ints:
    mixed: Ints = rows[:, 0] * _MIX[0] ^ rows[:, 1] * _MIX[1] ^ rows[:, 2] * _MIX[2]
    return mixed


def _confirmed(story: Story) -> Chain:
    if story.event == Ev.CONFIRM:
        return confirm_chain(story, story.finding.about[0])
    msg = _OfBody.of(story.last).message
    if story.event == Ev.ON_DISK:
        return [
            *store_chain(story, msg, story.actor, ""),
            Link(story.run, None, "STORE_CONFIRM: no store reported this body"),
        ]
    why = "FILE_SYNC: between the APPEND and the STORE_CONFIRM no sync covers the record"
    return store_chain(story, msg, StoreConfirm.of(story.last).client, why)


_SQL = """
WITH published AS (
    SELECT p.run, p.actor, p.seq, p.first_seq_id + n AS id, p.message + n AS message, p.flags FROM publish_rows AS p JOIN numbers ON n < p.count),
confirmed AS (
    SELECT c.run, c.actor, c.seq, c.first_seq_id + n AS id, c.kind FROM confirm_rows AS c JOIN numbers ON n < c.count),
latest AS (
    SELECT c.run, c.actor, c.id, c.seq AS confirmed, max(p.seq) AS seq
    FROM confirmed AS c JOIN published AS p ON p.run = c.run AND p.actor = c.actor AND p.id = c.id AND p.seq < c.seq
    GROUP BY c.run, c.actor, c.id, c.seq)
SELECT c.run, c.actor, c.seq
FROM confirmed AS c
LEFT JOIN latest AS l ON l.run = c.run AND l.actor = c.actor AND l.id = c.id AND l.confirmed = c.seq
LEFT JOIN published AS p ON p.run = c.run AND p.actor = c.actor AND p.id = c.id AND p.seq = l.seq
WHERE p.seq IS NULL OR p.flags & 2 = 0 OR (c.kind = 2 AND p.flags & 1 = 1)
   OR (c.kind = 1 AND p.flags & 4 = 0 AND NOT EXISTS (
        SELECT 1 FROM qi_sync_rows AS s WHERE s.run = p.run AND s.actor = p.actor AND s.seq > p.seq AND s.seq < c.seq))
   OR (c.kind = 1 AND p.flags & 4 = 4 AND NOT EXISTS (
        SELECT 1 FROM on_disk_rows AS o WHERE o.run = p.run AND o.actor = p.actor AND o.message = p.message
                  AND o.seq > p.seq AND o.seq < c.seq))
   OR (c.kind = 1 AND p.flags & 4 = 4 AND NOT EXISTS (
        SELECT 1 FROM on_disk_rows AS o WHERE o.run = p.run AND o.actor = p.actor AND o.message = p.message
                  AND o.seq > p.seq AND o.seq < c.seq AND o.report = 2)
                  AND NOT EXISTS (
        SELECT 1 FROM qi_sync_rows AS s WHERE s.run = p.run AND s.actor = p.actor AND s.seq > p.seq AND s.seq < c.seq))
UNION
SELECT run, actor, max(seq) FROM confirmed GROUP BY run, actor, id HAVING count(*) > 1
UNION
SELECT c.run, c.actor, c.seq FROM store_confirm_rows AS c JOIN append_rows AS a
  ON a.run = c.run AND a.actor = c.actor AND a.message = c.message AND a.seq < c.seq
WHERE c.report = 1 AND NOT EXISTS (
    SELECT 1 FROM file_sync_rows AS s WHERE s.run = a.run AND s.actor = a.actor AND s.seq > a.seq AND s.seq < c.seq
              AND (s.file > a.file OR (s.file = a.file AND s.synced_to >= a.`offset` + a.size)))
UNION
SELECT h.run, h.actor, h.seq FROM (
    SELECT run, actor, seq, message, report,
           row_number() OVER (PARTITION BY run, actor, message, report ORDER BY seq) AS nth FROM on_disk_rows) AS h
LEFT JOIN (
    SELECT run, client, message, report, count(*) AS n FROM store_confirm_rows GROUP BY run, client, message, report) AS told
  ON told.run = h.run AND told.client = h.actor AND told.message = h.message AND told.report = h.report
WHERE h.nth > coalesce(told.n, 0)
"""

RULE = Rule(
    id="C1",
    name="confirm after sync",
    text=(
        "A durable confirm comes after the index sync that covers the message and, with a body in the "
        "store, after the body was synced and reported, or its write was cancelled."
    ),
    sources=(
        "docs/reference/message-store.md#sync",
        "docs/reference/message-store.md#confirm-reasons",
        "docs/reference/classic-queue.md#confirms-inside-the-queue",
        "docs/reference/message-store.md#i21",
        "docs/reference/classic-queue.md#p25",
        "docs/reference/classic-queue.md#p12",
        "docs/reference/message-store.md#i20",
    ),
    exercised=Exercised(
        "a confirm, of a queue or of a store, and its report of a body",
        {Ev.CONFIRM: None, Ev.ON_DISK: None, Ev.STORE_CONFIRM: (WRITTEN,)},
    ),
    machines=(Confirms, Synced, Reports),
    judge={Confirms: Judge(_is_safe, _too_soon)},
    sql=_SQL,
    explain=_confirmed,
)
