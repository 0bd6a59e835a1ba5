"""Machine of a message in the stores: its reference count (S1) and the decisions about it (S2).

Key: (msg >> 12,).  A message is in one store only; within a store its rows come in the store's order.

S2, by the flying counter that the store saw (`message_store/flying.py` says why it departs from RabbitMQ at 2 and -2):

==============  ==================  ==================
seen            a write             a remove
==============  ==================  ==================
no row, 0       ignored             ignored
1 and more      processed           ignored
-1 and less     ignored             processed
==============  ==================  ==================

A processed write is WRITE (no reference before) or CONFIRM (the record exists), a processed remove is REMOVE or DEFER.
Of a client that is being deleted the store may ignore what the counter would process.

S1, the count after each row as the store said it:

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

Array form: Precheck of reference counts and flying decisions (references.py).

Row by row: the decision is the one that the table names for the counter seen.  Message by message, in the order of the
store's rows:

    WRITE           begins at 1, or again after 0
    CONFIRM         one more than the row before said
    REMOVE, DROPPED one less than the row before said, not below 0
    RECOVERED       begins

A message whose rows in a unit begin with a WRITE and end at 0 is over, and only that WRITE is kept; of others open rows
has all rows, flat (store, message, seq, word, count).  At the end each of these begins with a WRITE or RECOVERED, is in one
store, and has no reference where it began once more in another unit; and where a run ended cleanly, those that were written have as many references
as queues hold them (the ledger's facts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, group_starts, groups, np
from warrenmq.replay.drive.machines import STATE, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.rules.passes.message_life import SHIFT
from warrenmq.trace.catalog import FOREVER, Chunk
from warrenmq.trace.events import Decision, Ev
from warrenmq.trace.index import Row

_WRITE, _REMOVE = int(Ev.STORE_WRITE), int(Ev.STORE_REMOVE)
_RECOVERED, _DROPPED = int(Ev.REF_RECOVERED), int(Ev.REF_DROPPED)
_IGNORE, _NEW, _MORE, _LESS, _LATER = (
    int(Decision.IGNORE),
    int(Decision.WRITE),
    int(Decision.CONFIRM),
    int(Decision.REMOVE),
    int(Decision.DEFER),
)

_DECISIONS = {int(each): each.name for each in Decision}
_UNDONE = (_IGNORE,)
_DONE_WRITES, _DONE_REMOVES = (_NEW, _MORE), (_LESS, _LATER)

Entries = tuple[Who, list[int]]
"""The store; flat (event << 8 | flag, msg, client, counter seen, 1 = there was one, references, seq, t)."""
Held = tuple[Who, int]
"""A queue that held a message at the clean end of its run, as the ledger says; (queue, message)."""


@dataclass(slots=True)
class Store:
    """What one store incarnation knows of 4,096 messages."""

    counts: dict[int, int] = field(default_factory=dict)
    recovered: int = 0
    """Messages found at recovery."""
    problems: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    """(rule, text, msg, seq, t)"""
    ignored: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    """Processed by the table, but ignored: (what, msg, client, seq, t)."""

    def take(self, entries: list[int]) -> None:
        counts = self.counts
        numbers = iter(entries)
        for word, msg, client, seen, row, count, seq, t in zip(*[numbers] * 8, strict=True):
            event, flag = word >> 8, word & 0xFF
            if event == _WRITE:
                if flag not in (_DONE_WRITES if row and seen > 0 else _UNDONE):
                    self._decide("write", flag, seen, row, msg, client, seq, t)
                if flag == _NEW:
                    if counts.get(msg) or count != 1:
                        self._wrong_count(msg, count, seq, t)
                elif flag == _MORE:
                    if counts.get(msg, -2) + 1 != count:
                        self._wrong_count(msg, count, seq, t)
                else:
                    continue
            elif event == _REMOVE:
                if flag not in (_DONE_REMOVES if row and seen < 0 else _UNDONE):
                    self._decide("remove", flag, seen, row, msg, client, seq, t)
                if flag != _LESS:
                    continue
                if counts.get(msg, 0) - 1 != count or count < 0:
                    self._wrong_count(msg, count, seq, t)
            elif event == _DROPPED:
                if counts.get(msg, 0) - 1 != count or count < 0:
                    self._wrong_count(msg, count, seq, t)
            else:
                self.recovered += 1
                if msg in counts:
                    self._wrong_count(msg, count, seq, t)
            counts[msg] = count

    def _decide(
        self, what: str, flag: int, seen: int, row: int, msg: int, client: int, seq: int, t: int
    ) -> None:
        """Not what the table says."""
        if flag == _IGNORE:
            self.ignored.append((what, msg, client, seq, t))
        else:
            counter = seen if row else "no"
            text = f"a {what} that met {counter} flying counter was {_DECISIONS.get(flag, flag)}"
            self.problems.append(("S2", text, msg, seq, t))

    def _wrong_count(self, msg: int, said: int, seq: int, t: int) -> None:
        was = self.counts.get(msg, "no record")
        text = f"references went from {was} to {said}" if said >= 0 else f"references are negative: {said}"
        self.problems.append(("S1", text, msg, seq, t))


@dataclass(slots=True)
class Messages:
    """4,096 messages in all stores of all runs."""

    stores: dict[Who, Store] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    """Messages whose first record this trace saw."""
    held: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(run, message) -> queues that hold it at the clean end."""


class References(Machine):
    """See the module."""

    name: ClassVar[str] = "references"
    stage: ClassVar[int] = 2
    of_one_run: ClassVar[bool] = False
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_RECOVERED, Ev.REF_DROPPED}
    )

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Entries]]:
        found: dict[int, list[int]] = {}
        for t, seq, msg, peer, pseq, a, b, c, who in rows:
            entries = found.get(msg >> SHIFT)
            if entries is None:
                entries = found[msg >> SHIFT] = []
            word = who & 0xFFFF
            entries += (word, msg, peer, a, c, pseq if word >> 8 == _RECOVERED else b, seq, t)
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
        store = state.stores.get(who)
        if store is None:
            store = state.stores[who] = Store()
        store.take(told)
        new = int(Ev.STORE_WRITE) << 8 | _NEW
        state.written.update(msg for word, msg in zip(told[::8], told[1::8], strict=True) if word == new)

    def finish(self, key: Key, state: Messages, context: TraceContext) -> Outcome:
        outcome = Outcome()
        for who, store in sorted(state.stores.items()):
            alive = [count for count in store.counts.values() if count > 0]
            outcome.figures[STATE, *who, "messages"] = len(alive)
            outcome.figures[STATE, *who, "references"] = sum(alive)
            outcome.figures[STATE, *who, "recovered"] = store.recovered
            for rule, text, msg, seq, t in store.problems:
                outcome.findings.append(
                    Finding(rule, self._subject(context, who, msg), text, ((*who, seq),), t, (who,), (msg,))
                )
            for what, msg, client, seq, t in store.ignored:
                if not context.was_leaving((who[0], client), t):
                    text = f"a {what} that the flying counter let pass was ignored"
                    client_who = (who[0], client)
                    outcome.findings.append(
                        Finding(
                            "S2",
                            self._subject(context, who, msg),
                            text,
                            ((*who, seq),),
                            FOREVER,
                            (who, client_who),
                            (msg,),
                        )
                    )
            if (
                not context.is_transient_store(who)
                and context.ended_cleanly(who[0])
                and context.is_last_of_name(who)
            ):
                self._compare(who, store, state, context, outcome)
        return outcome

    def _compare(
        self, who: Who, store: Store, state: Messages, context: TraceContext, outcome: Outcome
    ) -> None:
        """S1 at the clean end of a run."""
        run = who[0]
        needs = context.incomplete(run)
        for msg in sorted(state.written):
            count, holders = store.counts.get(msg, 0), state.held.get((run, msg), 0)
            if count != holders:
                text = f"at the clean end it has {count} references and {holders} queues hold it"
                coverage = context.coverage[who]
                outcome.findings.append(
                    Finding(
                        "S1",
                        self._subject(context, who, msg),
                        text,
                        ((*who, coverage.last_seq),),
                        FOREVER,
                        needs,
                        (msg,),
                    )
                )

    @staticmethod
    def _subject(context: TraceContext, who: Who, msg: int) -> str:
        return f"message {msg & 0xFFFFFFFFFFFFFFFF:016x} in {context.name(who)}"


_WIDTH = 5
_WRITTEN = int(Ev.STORE_WRITE) << 8 | Decision.WRITE
_ANOTHER = int(Ev.STORE_WRITE) << 8 | Decision.CONFIRM
_REMOVED = int(Ev.STORE_REMOVE) << 8 | Decision.REMOVE


class ReferencesPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = References

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(References.events)
        wrong = ~_decided(rows)
        word = rows.who & 0xFFFF
        event = rows.event
        counts = (
            (event == Ev.REF_RECOVERED) | (event == Ev.REF_DROPPED) | (word == _REMOVED) | (word == _WRITTEN)
            | (word == _ANOTHER)
        )  # fmt: skip
        count = np.where(event == Ev.REF_RECOVERED, rows.pseq, rows.b)
        table = np.stack((rows.actor, rows.msg, rows.seq, word, count), axis=1)[counts]
        table = table[np.argsort(table[:, 1], kind="stable")]
        starts = group_starts(table[:, 1])
        _, fine = _walk(table, starts)
        ends = np.append(starts, len(table))[1:] - 1
        whole = fine & (table[starts, 3] == _WRITTEN) & (table[ends, 4] == 0)
        left = table[~np.repeat(whole, ends - starts + 1)]
        over = table[starts[whole]][:, [1, 0, 2]]
        unproven = np.unique(rows.msg[wrong] >> SHIFT).tolist()
        overs = dict(groups(over[:, 0] >> SHIFT))
        lefts = dict(groups(left[:, 1] >> SHIFT))
        scope = self.runs[unit.run].scope
        for bucket in sorted({*overs, *lefts}.difference(unproven)):
            its = left[lefts.get(bucket, slice(0))]
            began = over[overs.get(bucket, slice(0))]
            yield (scope, bucket), (its.reshape(-1), began.reshape(-1), np.array([unit.run], np.int64))
        for bucket in unproven:
            yield (scope, bucket), NEEDS_FULL_CHECK

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        scope = self.runs[run].scope
        found: Bools = np.isin(rows.msg >> SHIFT, [int(bucket) for whose, bucket in keys if whose == scope])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Held], context: TraceContext
    ) -> Outcome | None:
        tables = [each[0].reshape(-1, _WIDTH) for each in open_rows]
        table = np.concatenate([np.zeros((0, _WIDTH), np.int64), *tables])
        runs = np.repeat([int(each[2][0]) for each in open_rows], [len(each) for each in tables]).astype(
            np.int64
        )
        order = np.lexsort((table[:, 2], table[:, 0], runs, table[:, 1]))
        table, runs = table[order], runs[order]
        starts = group_starts(table[:, 1])
        _, fine = _walk(table, starts)
        ends = np.append(starts, len(table))[1:] - 1
        begins = table[starts, 3]
        recovered = begins >> 8 == Ev.REF_RECOVERED
        over = np.concatenate([np.zeros((0, 3), np.int64), *(each[1].reshape(-1, 3) for each in open_rows)])
        again = over[np.isin(over[:, 0], table[starts, 1])]
        if not all(_has_none_before(table, *each) for each in again.tolist()):
            return None
        if not (
            np.all(fine) and np.all((begins == _WRITTEN) | recovered) and np.all(runs[starts] == runs[ends])
        ):
            return None
        outcome = Outcome()
        alive = Counter[tuple[int, int]]()
        for run, store, msg, count, found in zip(
            runs[ends].tolist(), table[ends, 0].tolist(), table[ends, 1].tolist(), table[ends, 4].tolist(), recovered.tolist(),
            strict=True,
        ):  # fmt: skip
            who = (run, store)
            outcome.figures[STATE, *who, "messages"] += count > 0
            outcome.figures[STATE, *who, "references"] += count
            outcome.figures[STATE, *who, "recovered"] += found
            if count and not found and _is_compared(context, who):
                alive[run, msg] = count
        holders = Counter((who[0], msg) for who, msg in facts)
        return outcome if alive == holders else None


def _decided(rows: Rows) -> Bools:
    """Which decisions are the table's."""
    event, flag, seen, known = rows.event, rows.flag, rows.a, rows.c != 0
    is_write, is_remove = event == Ev.STORE_WRITE, event == Ev.STORE_REMOVE
    passes = known & np.where(is_write, seen > 0, seen < 0)
    done = np.where(
        is_write,
        (flag == Decision.WRITE) | (flag == Decision.CONFIRM),
        (flag == Decision.REMOVE) | (flag == Decision.DEFER),
    )
    fine: Bools = ~(is_write | is_remove) | np.where(passes, done, flag == Decision.IGNORE)
    return fine


def _walk(table: Ints, starts: Ints) -> tuple[Bools, Bools]:
    """Rows of messages, each message's together and in order -> which steps are fine, which messages are throughout."""
    if not len(table):
        return np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    word, count = table[:, 3], table[:, 4]
    before = np.empty_like(count)
    before[1:] = count[:-1]
    first = np.zeros(len(table), np.bool_)
    first[starts] = True
    same_store = np.ones(len(table), np.bool_)
    same_store[1:] = table[1:, 0] == table[:-1, 0]
    less = (word == _REMOVED) | (word >> 8 == Ev.REF_DROPPED)
    later = same_store & np.select(
        [word == _WRITTEN, word == _ANOTHER, less],
        [(before == 0) & (count == 1), before + 1 == count, (before - 1 == count) & (count >= 0)],
        default=False,
    )
    alone = np.select([word == _WRITTEN, less], [count == 1, count >= 0], default=True)
    steps: Bools = np.where(first, alone, later)
    return steps, np.logical_and.reduceat(steps, starts)


def _has_none_before(table: Ints, msg: int, store: int, seq: int) -> bool:
    """True if the last of a message's rows before one of its store said that there is no reference, if there is any."""
    its = table[table[:, 1] == msg]
    before = its[its[:, 2] < seq]
    return bool(np.all(its[:, 0] == store)) and (not len(before) or int(before[-1, 4]) == 0)


def _is_compared(context: TraceContext, who: Who) -> bool:
    return (
        not context.is_transient_store(who) and context.ended_cleanly(who[0]) and context.is_last_of_name(who)
    )
