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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.drive.machines import STATE, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.rules.life import SHIFT
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
