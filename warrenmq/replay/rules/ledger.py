"""Machine of the messages of a queue, across restarts: Q1's states and what Q3 says without times (life.py), and C2.

Key: (scope of the run, queue name, sequence id >> 12): 4,096 messages, in all incarnations of the queue, in all runs.

C2 looks at two incarnations, the earlier one's end and what the later one recovered; and at what an incarnation found damaged
(DROP_LOST):

====================================  ==================  ========
at the end of the earlier             in the later        verdict
====================================  ==================  ========
confirmed, persistent, not gone       not recovered       C2: lost
the same                              recovered, damaged  C2: lost
gone before its last QI_SYNC or stop  recovered           C2: came back
transient                             recovered           C2: came back
anything else                         either              fine
confirmed, persistent, in the later   damaged             C2: lost
====================================  ==================  ========

How many messages were damaged, and how many confirmed ones were lost, are figures of their own (incidents.py).

Q4 looks at what an incarnation recovered and delivers for the first time: it may have been delivered before, and must be flagged as
redelivered, if an earlier one did deliver it, or if a recovery since its PUBLISH was DIRTY, after which nobody knows.

An incarnation that wrote nothing beyond RECOVERED, not even the QUEUE_RECOVERED behind those, died while it recovered: it
is passed over.  Of the messages that a run holds at its clean end, and that live in the store, the ledger tells
`references` (a fact each).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.drive.incidents import DAMAGED
from warrenmq.replay.drive.incidents import LOST as INCIDENT_LOST
from warrenmq.replay.drive.machines import INCIDENT, JUDGED, STATE, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.rules.life import (
    CONFIRMED,
    DELIVERED,
    DURABLE,
    LOST,
    NONE,
    READY,
    RECOVERED,
    SHIFT,
    SIZE,
    STORED,
    UNACKED,
    Life,
)
from warrenmq.trace.catalog import FOREVER, Chunk
from warrenmq.trace.events import DIRTY, PRIORITY_SHIFT, Ev
from warrenmq.trace.index import Row

COUNTED = {
    Ev.PUBLISH: "published", Ev.CONFIRM: "confirmed", Ev.DELIVER: "delivered", Ev.ACK: "acked",
    Ev.REQUEUE: "requeued", Ev.DROP: "dropped", Ev.RECOVERED: "recovered", Ev.EXPIRY: "given a time to live",
}  # fmt: skip
_AT_WORK = frozenset(COUNTED) - {Ev.RECOVERED, Ev.EXPIRY}

Entries = tuple[Who, list[int]]
"""The queue's actor; its rows as Life.take wants them."""


def _bits(test: Callable[[int], bool]) -> bytes:
    return bytes(map(test, range(256)))


# bytes.translate tables to sets: a byte for each id, 1 = in it
_HELD = _bits(lambda state: state in {READY, UNACKED})
_KNOWN = _bits(lambda state: state != NONE)
_OWED = _bits(lambda mark: mark & (CONFIRMED | DURABLE) == CONFIRMED | DURABLE)
_RECOVERED = _bits(lambda mark: mark & RECOVERED != 0)
_DAMAGED = _bits(lambda mark: mark & LOST != 0)
_DELIVERED = _bits(lambda mark: mark & DELIVERED != 0)
_TRANSIENT = _bits(lambda mark: mark & (RECOVERED | DURABLE) == 0)
_NOTHING = bytes(SIZE)


def delay_class(delay: int) -> int:
    """The lower end of the class that a delay in ns is counted in; classes are at most 1.6 % wide."""
    shift = max(delay.bit_length() - 7, 0)
    return delay >> shift << shift


@dataclass(slots=True)
class Lives:
    """4,096 ids in all incarnations of their queue."""

    base: int
    lives: dict[Who, Life] = field(default_factory=dict)


class Ledger(Machine):
    """See the module."""

    name: ClassVar[str] = "ledger"
    events: ClassVar[frozenset[int]] = frozenset(COUNTED)

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Entries]]:
        found: dict[int, list[int]] = {}
        for t, seq, msg, _, _, lo, n, _, who in rows:
            at = lo
            while at < lo + n:
                place = at & (SIZE - 1)
                here = min(lo + n - at, SIZE - place) if n > 1 else 1
                entries = found.get(at >> SHIFT)
                if entries is None:
                    entries = found[at >> SHIFT] = []
                entries += (who & 0xFFFF, place, here, msg + at - lo, seq, t)
                at += here
        run = self.runs[piece.run]
        name = run.scope, run.actor_name(piece.actor)
        for bucket, entries in found.items():
            yield (*name, bucket), ((piece.run, piece.actor), entries)

    def start(self, key: Key) -> Lives:
        return Lives(int(key[2]) << SHIFT)

    def absorb(self, state: Lives, summary: Entries) -> None:
        who, entries = summary
        life = state.lives.get(who)
        if life is None:
            life = state.lives[who] = Life()
        life.take(entries, state.base)

    def finish(self, key: Key, state: Lives, context: TraceContext) -> Outcome:
        scope, name = str(key[0]), str(key[1])
        title = context.title((scope, name))
        outcome = Outcome()
        for who, life in state.lives.items():
            for rule, text, id_, seq, t in life.problems:
                outcome.findings.append(
                    Finding(rule, f"queue {name}", text, ((*who, seq),), t, (who,), (id_,))
                )
            for event, n in life.counts.items():
                outcome.figures["queue", title, COUNTED[Ev(event)]] += n
            for what, delays in (
                ("confirm", life.confirm_delays), ("deliver", life.deliver_delays), ("ack", life.ack_delays)
            ):  # fmt: skip
                for delay, n in Counter(map(delay_class, delays)).items():
                    outcome.figures["delay", title, what, delay] += n
            self._tell_state(who, state.base, life, outcome)
        incarnations = [
            who for who in context.incarnations((scope, name)) if counts_as_life(context.actor_summary(who))
        ]
        self._compare_lives(name, incarnations, state, context, outcome)
        self._compare_flags(name, incarnations, state, context, outcome)
        self._tell_holdings(scope, incarnations, state, context, outcome)
        return outcome

    @staticmethod
    def _tell_state(who: Who, base: int, life: Life, outcome: Outcome) -> None:
        """What this life makes of these ids (end_state.py)."""
        outcome.figures[STATE, *who, "ready"] = life.states.count(READY)
        outcome.figures[STATE, *who, "unacked"] = life.states.count(UNACKED)
        outcome.figures[STATE, *who, "recovered"] = life.counts[Ev.RECOVERED]
        if not base >> PRIORITY_SHIFT:
            outcome.figures[STATE, *who, "next", base] = base + len(life.states.rstrip(b"\0"))

    @staticmethod
    def _lost(
        name: str, who: Who, base: int, life: Life, ids: bytes, first: int, needs: tuple[Who, ...]
    ) -> Finding:
        said = (
            f"{ids.count(1)} messages from {base + first} on were confirmed, and lost to damage on the disk"
        )
        evidence = ((*who, life.gone_at[first]),)
        return Finding("C2", f"queue {name}", said, evidence, FOREVER, needs, (base + first,))

    def _compare_lives(
        self, name: str, incarnations: list[Who], state: Lives, context: TraceContext, outcome: Outcome
    ) -> None:
        """C2, from each incarnation to the next."""
        owed = settled = transient = _NOTHING
        for number, who in enumerate(incarnations):
            life = state.lives.get(who) or Life()
            recovered = _set(life.marks, _RECOVERED)
            damaged, confirmed_here = _set(life.marks, _DAMAGED), _set(life.marks, _OWED)
            _count(outcome, DAMAGED, damaged)
            damaged_here, damaged_since = (
                _and(damaged, confirmed_here),
                _and(damaged, _minus(owed, confirmed_here)),
            )
            lost = _minus(owed, recovered)
            _count(outcome, INCIDENT_LOST, lost, damaged_here, damaged_since)
            if (first := damaged_here.find(1)) >= 0:
                # The queue says itself, in this one life, that they were confirmed and that they are lost: nothing else counts.
                outcome.findings.append(self._lost(name, who, state.base, life, damaged_here, first, ()))
            if (first := damaged_since.find(1)) >= 0:
                needs = context.namesakes(name, who[0])
                outcome.findings.append(self._lost(name, who, state.base, life, damaged_since, first, needs))
            for text, ids in (
                ("confirmed, and not recovered", lost),
                ("acked or dropped, synced, and recovered again", _and(settled, recovered)),
                ("transient, and recovered", _minus(_and(transient, recovered), settled)),
            ):
                if (first := ids.find(1)) >= 0:
                    said = f"{ids.count(1)} messages from {state.base + first} on were {text}"
                    row = context.actor_summary(who).recovered
                    evidence = ((*who, row[1] if row is not None else 1),)
                    # Any missing row of the queue could be the ack or the recovery: only whole lives convict.
                    needs = context.namesakes(name, who[0])
                    about = (state.base + first,)
                    outcome.findings.append(
                        Finding("C2", f"queue {name}", said, evidence, FOREVER, needs, about)
                    )
            if number + 1 == len(incarnations):
                return
            owed = _and(_set(life.states, _HELD), _or(_set(life.marks, _OWED), _and(owed, recovered)))
            known = _set(life.states, _KNOWN)
            settled = _or(_minus(settled, known), _settled(life, context.actor_summary(who)))
            transient = _or(_minus(transient, known), _and(known, _set(life.marks, _TRANSIENT)))

    @staticmethod
    def _compare_flags(
        name: str, incarnations: list[Who], state: Lives, context: TraceContext, outcome: Outcome
    ) -> None:
        """Q4, over all incarnations."""
        before = _NOTHING
        for who in incarnations:
            life = state.lives.get(who) or Life()
            row = context.actor_summary(who).recovered
            recovered, delivered = _set(life.marks, _RECOVERED), _set(life.marks, _DELIVERED)
            before = recovered if row is not None and row[8] & 0xFF == DIRTY else _and(before, recovered)
            outcome.figures[JUDGED, "Q4"] += _and(before, delivered).count(1)
            for place, (seq, t) in life.unflagged.items():
                if before[place]:
                    id_ = state.base + place
                    text = f"delivered {id_} without the redelivered flag, which may have been delivered before the restart"
                    needs = context.namesakes(name, who[0])
                    outcome.findings.append(
                        Finding("Q4", f"queue {name}", text, ((*who, seq),), t, needs, (id_,))
                    )
            before = _or(before, delivered)

    @staticmethod
    def _tell_holdings(
        scope: str, incarnations: list[Who], state: Lives, context: TraceContext, outcome: Outcome
    ) -> None:
        """What the last incarnation of each clean run holds of the persistent store."""
        for number, who in enumerate(incarnations):
            is_last = number + 1 == len(incarnations) or incarnations[number + 1][0] != who[0]
            if not is_last or not context.ended_cleanly(who[0]):
                continue
            lives = [state.lives[each] for each in incarnations[number::-1] if each in state.lives]
            held = _set(lives[0].states, _HELD) if lives and who in state.lives else _NOTHING
            place = held.find(1)
            while place >= 0:
                msg = _message_at(place, lives)
                if msg:
                    outcome.facts.append(("references", (scope, msg >> SHIFT), (who, msg)))
                place = held.find(1, place + 1)


def _count(outcome: Outcome, what: str, *sets: bytes) -> None:
    if n := sum(ids.count(1) for ids in sets):
        outcome.figures[INCIDENT, what] += n


def counts_as_life(mark: ActorSummary) -> bool:
    """It got through its recovery."""
    return mark.recovered is not None or not _AT_WORK.isdisjoint(mark.events)


def _message_at(place: int, lives: list[Life]) -> int:
    """The message at a place of the latest life, if it is in the persistent store; it was published in one of them."""
    for life in lives:
        if place >= len(life.marks):
            return 0
        mark = life.marks[place]
        if not mark & RECOVERED:
            return life.messages[place] if mark & DURABLE and mark & STORED else 0
    return 0


def _settled(life: Life, mark: ActorSummary) -> bytes:
    """What was gone before the last sync, or before a clean stop, of this incarnation."""
    last = FOREVER if mark.closed is not None else mark.last_sync
    return bytes(0 < seq < last for seq in life.gone_at).ljust(SIZE, b"\0")


def _set(values: bytearray, table: bytes) -> bytes:
    return bytes(values.translate(table)).ljust(SIZE, b"\0")


def _and(one: bytes, two: bytes) -> bytes:
    return (int.from_bytes(one) & int.from_bytes(two)).to_bytes(SIZE)


def _or(one: bytes, two: bytes) -> bytes:
    return (int.from_bytes(one) | int.from_bytes(two)).to_bytes(SIZE)


def _minus(one: bytes, two: bytes) -> bytes:
    return (int.from_bytes(one) & ~int.from_bytes(two)).to_bytes(SIZE)
