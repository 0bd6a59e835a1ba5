"""S1: a store counts the queues that hold a message.

Key: (scope, msg >> 12).  A message is in one store only; within a store its rows come in the store's order,
and each says the count after it:

=======================  =======================
row                      count
=======================  =======================
WRITE                    1, was 0
CONFIRM                  one more; the message is known
REMOVE, REF_DROPPED      one less, was at least 1
REF_RECOVERED            as recovered, once
=======================  =======================

At the clean end of a run the count of each message that was written in this trace is the number of queues that
hold it, which the ledger says (stage 2).

Array form: message by message, in the order of the store's rows.  A message whose rows in a unit begin with a
WRITE and end at 0 is over, and only that WRITE and its last row are kept; of others all rows are left open.
Both are flat (store, message, seq, word, count).  At the end each message that is open in a unit begins with
a WRITE or RECOVERED, is in one store, and moves by one, with what is kept of it where it was over in another
unit: a fan-out may write it there once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, group_starts, np, parts_of
from warrenmq.replay.drive.machines import STATE, Finding, Held, Key, Machine, Outcome, message_name
from warrenmq.replay.drive.precheck import OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import count_chain
from warrenmq.replay.rules.passes.message_life import SHIFT
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import FOREVER, Chunk
from warrenmq.trace.events import Decision, Ev, RefRecovered
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_NEW = int(Ev.STORE_WRITE) << 8 | Decision.WRITE
_MORE = int(Ev.STORE_WRITE) << 8 | Decision.CONFIRM
_LESS = int(Ev.STORE_REMOVE) << 8 | Decision.REMOVE
_RECOVERED, _DROPPED = int(Ev.REF_RECOVERED), int(Ev.REF_DROPPED)
_UNKNOWN = -1 << 40
"""Stands for the count of a message that no row has told."""

Entries = tuple[Who, list[int]]
"""The store; flat (event << 8 | flag, msg, references, seq, t)."""


class _Counted(Shared[T], of=(Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_DROPPED)):
    references: T


class _OfMessage(Shared[T], of=(Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_DROPPED, Ev.REF_RECOVERED)):
    message: T


_counted = _Counted.getter("references")
_recovered = RefRecovered.getter("references")
_of_message = _OfMessage.getter("t", "seq", "who", "message")


def _counts(word: Any) -> Any:
    """True if a row changes a count; of numbers and of arrays, as the next one."""
    of_recovery = (word >> 8 == _RECOVERED) | (word >> 8 == _DROPPED)
    return (word == _NEW) | (word == _MORE) | (word == _LESS) | of_recovery


def _moves_by_one(word: Any, before: Any, count: Any) -> Any:
    """True if the count moved as the table above says."""
    less = (word == _LESS) | (word >> 8 == _DROPPED)
    return (
        ((word == _NEW) & (count == 1) & ((before == 0) | (before == _UNKNOWN)))
        | ((word == _MORE) & (before + 1 == count))
        | (less & (before - 1 == count) & (count >= 0))
        | ((word >> 8 == _RECOVERED) & (before == _UNKNOWN))
    )


_counts_one, _moves_one = cache(_counts), cache(_moves_by_one)


@dataclass(slots=True)
class StoreCounts:
    """The counts of 4,096 messages in one store incarnation."""

    counts: dict[int, int] = field(default_factory=dict)
    recovered: int = 0
    """Messages found at recovery."""
    miscounted: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(message, count before, count, seq, t)"""

    def take(self, entries: list[int]) -> None:
        counts = self.counts
        numbers = iter(entries)
        for word, msg, count, seq, t in zip(*[numbers] * 5, strict=True):
            before = counts.get(msg, _UNKNOWN)
            if not _moves_one(word, before, count):
                self.miscounted.append((msg, before, count, seq, t))
            self.recovered += word >> 8 == _RECOVERED
            counts[msg] = count


@dataclass(slots=True)
class Messages:
    """4,096 messages in all stores of all runs."""

    stores: dict[Who, StoreCounts] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    """Messages whose first record this trace saw."""
    held: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(run, message) -> queues that hold it at the clean end."""


class References(Machine):
    """Follows the reference counts of messages."""

    name: ClassVar[str] = "references"
    stage: ClassVar[int] = 2
    of_one_run: ClassVar[bool] = False
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_RECOVERED, Ev.REF_DROPPED}
    )

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Entries]]:
        found: dict[int, list[int]] = {}
        for row in rows:
            t, seq, who, msg = _of_message(row)
            word = who & 0xFFFF
            if _counts_one(word):
                entries = found.get(msg >> SHIFT)
                if entries is None:
                    entries = found[msg >> SHIFT] = []
                references = _recovered(row) if word >> 8 == _RECOVERED else _counted(row)
                entries += (word, msg, references[0], seq, t)
        scope = self.runs[piece.run].scope
        for bucket, entries in found.items():
            yield (scope, bucket), ((piece.run, piece.actor), entries)

    def start(self, key: Key) -> Messages:
        return Messages()

    def absorb(self, state: Messages, summary: Entries | Held) -> None:
        who, told = summary
        if isinstance(told, int):
            state.held[who[0], told] += 1
            return
        state.stores.setdefault(who, StoreCounts()).take(told)
        state.written.update(msg for word, msg in zip(told[::5], told[1::5], strict=True) if word == _NEW)

    def finish(self, key: Key, state: Messages, context: TraceContext) -> Outcome:
        outcome = Outcome()
        for who, store in sorted(state.stores.items()):
            _tell_state(who, store.counts.values(), store.recovered, outcome)
            for msg, before, count, seq, t in store.miscounted:
                was = "no record" if before == _UNKNOWN else before
                text = f"references went from {was} to {count}"
                if count < 0:
                    text = f"references are negative: {count}"
                outcome.findings.append(_finding(context, who, msg, text, seq, t, (who,)))
            if _is_compared(context, who):
                needs, last = context.incomplete(who[0]), context.coverage[who].last_seq
                for msg in sorted(state.written):
                    count, holders = store.counts.get(msg, 0), state.held.get((who[0], msg), 0)
                    if count != holders:
                        text = f"at the clean end it has {count} references and {holders} queues hold it"
                        outcome.findings.append(_finding(context, who, msg, text, last, FOREVER, needs))
        return outcome


def _tell_state(who: Who, counts: Collection[int], recovered: int, outcome: Outcome) -> None:
    """Report the counts that E1 compares with the store's own."""
    alive = [count for count in counts if count > 0]
    outcome.figures[STATE, *who, "messages"] += len(alive)
    outcome.figures[STATE, *who, "references"] += sum(alive)
    outcome.figures[STATE, *who, "recovered"] += recovered


def _finding(
    context: TraceContext, who: Who, msg: int, text: str, seq: int, t: int, needs: tuple[Who, ...]
) -> Finding:
    subject = f"{message_name(msg)} in {context.name(who)}"
    return Finding("S1", subject, text, ((*who, seq),), t, needs, (msg,))


def _is_compared(context: TraceContext, who: Who) -> bool:
    """True if it is known which queues hold the messages of a store at the end."""
    return (
        not context.is_transient_store(who) and context.ended_cleanly(who[0]) and context.is_last_of_name(who)
    )


_WIDTH = 5
_STORE, _MSG, _SEQ, _WORD, _COUNT = range(_WIDTH)


class ReferencesPrecheck(Precheck):
    """The array form of the rule; see the module."""

    machine: ClassVar[type[Machine]] = References

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(References.events)
        word = rows.who & 0xFFFF
        chosen = _counts(word)
        rows, word = rows.where(chosen), word[chosen]
        count = np.where(
            rows.event == _RECOVERED, RefRecovered.of(rows).references, _Counted.of(rows).references
        )
        table = np.stack((rows.actor, _OfMessage.of(rows).message, rows.seq, word, count), axis=1)
        table = table[np.argsort(table[:, _MSG], kind="stable")]
        starts = group_starts(table[:, _MSG])
        fine = _walk(table, starts)
        ends = np.append(starts, len(table))[1:] - 1
        whole = fine & (table[starts, _WORD] == _NEW) & (table[ends, _COUNT] == 0)
        left = table[~np.repeat(whole, ends - starts + 1)]
        over = table[np.stack((starts[whole], ends[whole]), axis=1).reshape(-1)]
        over[1::2, _WORD], over[1::2, _COUNT] = _LESS, 0
        run = np.array([unit.run], np.int64)
        for bucket, tables in parts_of((left[:, _MSG] >> SHIFT, left), (over[:, _MSG] >> SHIFT, over)):
            yield (self.runs[unit.run].scope, bucket), (*tables, run)

    def second_part(self, rows: Rows) -> Ints:
        return _OfMessage.of(rows).message >> SHIFT

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Held], context: TraceContext
    ) -> Outcome | None:
        if not open_rows:
            return None
        table, over = joined(open_rows, _WIDTH, _WIDTH)
        of_run = [int(each[2][0]) for each in open_rows]
        runs, runs_of_over = (
            np.repeat(of_run, [len(each[part]) // _WIDTH for each in open_rows]) for part in range(2)
        )
        again = np.isin(over[:, _MSG], table[:, _MSG])
        table, runs = np.concatenate((table, over[again])), np.concatenate((runs, runs_of_over[again]))
        order = np.lexsort((table[:, _SEQ], table[:, _STORE], runs, table[:, _MSG]))
        table, runs = table[order], runs[order]
        starts = group_starts(table[:, _MSG])
        ends = np.append(starts, len(table))[1:] - 1
        begins = table[starts, _WORD]
        recovered = begins >> 8 == _RECOVERED
        if not (
            np.all(_walk(table, starts))
            and np.all((begins == _NEW) | recovered)
            and np.all(runs[starts] == runs[ends])
        ):
            return None
        outcome = Outcome()
        alive = Counter[tuple[int, int]]()
        lasts = table[ends]
        for run, store, msg, count, found in zip(
            runs[ends].tolist(), *lasts[:, [_STORE, _MSG, _COUNT]].T.tolist(), recovered.tolist(), strict=True
        ):
            _tell_state((run, store), (count,), found, outcome)
            if count and not found and _is_compared(context, (run, store)):
                alive[run, msg] = count
        return outcome if alive == Counter((who[0], msg) for who, msg in facts) else None


def _walk(table: Ints, starts: Ints) -> Bools:
    """Rows of messages, each message's together and in order: which messages are fine throughout."""
    if not len(table):
        return np.zeros(0, np.bool_)
    word, count = table[:, _WORD], table[:, _COUNT]
    before, same_store = np.empty_like(count), np.ones(len(table), np.bool_)
    before[1:], same_store[1:] = count[:-1], table[1:, _STORE] == table[:-1, _STORE]
    # of a first row nothing is known: suppose the count that makes it right, if any does
    begins, first = word[starts], count[starts]
    before[starts] = np.select(
        [begins == _NEW, begins == _MORE, begins >> 8 == _RECOVERED],
        [0, first - 1, _UNKNOWN],
        default=first + 1,
    )
    same_store[starts] = True
    fine: Bools = np.logical_and.reduceat(same_store & _moves_by_one(word, before, count), starts)
    return fine


_SQL = """
WITH counted AS (
    SELECT run, actor, seq, message, 'new' AS what, `references` AS now FROM store_write_rows WHERE decision = 1
    UNION ALL SELECT run, actor, seq, message, 'more', `references` FROM store_write_rows WHERE decision = 3
    UNION ALL SELECT run, actor, seq, message, 'less', `references` FROM store_remove_rows WHERE decision = 4
    UNION ALL SELECT run, actor, seq, message, 'less', `references` FROM ref_dropped_rows
    UNION ALL SELECT run, actor, seq, message, 'found', `references` FROM ref_recovered_rows)
SELECT run, actor, seq FROM (
    SELECT run, actor, seq, what, now,
           lag(now) OVER (PARTITION BY run, actor, message ORDER BY seq) AS before
    FROM counted) AS steps_of_counts
WHERE CASE what WHEN 'new' THEN now <> 1 OR coalesce(before, 0) <> 0
                WHEN 'more' THEN before IS NULL OR now <> before + 1
                WHEN 'less' THEN now < 0 OR now <> coalesce(before, 0) - 1
                ELSE before IS NOT NULL END
"""

RULE = Rule(
    id="S1",
    name="reference counts",
    text=(
        "A reference count moves by one, is never negative, and at a clean end equals the number of "
        "queues that hold the message."
    ),
    sources=(
        "docs/reference/message-store.md#write-action",
        "docs/reference/message-store.md#remove-action",
        "docs/reference/message-store.md#counting-references",
        "docs/reference/message-store.md#i3",
        "docs/reference/message-store.md#i28",
        "docs/reference/classic-queue.md#p27",
        "docs/reference/message-store.md#i22",
        "docs/reference/message-store.md#i23",
    ),
    exercised=Exercised("a write, a remove, a reference found or dropped", dict.fromkeys(References.events)),
    machines=(References,),
    sql=_SQL,
    not_in_sql=(
        "that a count equals the number of queues that hold the message at a clean end: it takes C2's and Q1's states of all queues"
    ),
    explain=count_chain,
)
