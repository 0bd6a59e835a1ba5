"""Machine of the messages of a queue (Q1's states, C2), across restarts.

Key: (queue name, sequence id >> 12): 4,096 messages, in all incarnations of the queue, in all runs.

    state        PUBLISH, RECOVERED      DELIVER            ACK, DROP
      none ───────────────────► ready ─────────► unacked ──────────► gone
                                  ▲    (no_ack: straight to gone)      ▲
                                  └──── REQUEUE ───┘    DROP of a ready message

Any other step is a violation of Q1; so is a second delivery without the redelivered flag.  C2 looks at two
incarnations, the earlier one's end and what the later one recovered:

====================================  =============  ========
at the end of the earlier             recovered      verdict
====================================  =============  ========
confirmed, persistent, not gone       no             C2: lost
gone before its last QI_SYNC or stop  yes            C2: came back
anything else                         either         fine
====================================  =============  ========

An incarnation that never wrote QUEUE_RECOVERED died while it recovered: it is passed over.  Of the messages that a run
holds at its clean end, and that live in the store, the ledger tells `references` (a fact each).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.world import Landmarks, Who, World
from warrenmq.trace.catalog import FOREVER, Chunk
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    DROP_PURGED,
    DROP_REJECTED,
    IN_STORE,
    NO_ACK,
    PERSISTENT,
    REDELIVERED,
    Ev,
)
from warrenmq.trace.index import Row

SHIFT = 12
SIZE = 1 << SHIFT

Bytes = bytes | bytearray

NONE, READY, UNACKED, GONE = range(4)
_WORDS = ("not in the queue", "ready", "unacked", "gone")

# marks, bits
DURABLE, STORED, CONFIRMED, DELIVERED, RECOVERED = 1, 2, 4, 8, 16


def _table(change: Callable[[int], int]) -> bytes:
    return bytes(change(value) for value in range(256))


# bytes.translate tables, so that a range of any length is one step
_SET = {bit: _table(lambda value, bit=bit: value | bit) for bit in (CONFIRMED, DELIVERED)}  # type: ignore[misc]
_IS_HELD = _table(lambda state: state in {READY, UNACKED})
_IS_OWED = _table(lambda mark: mark & (CONFIRMED | DURABLE) == CONFIRMED | DURABLE)
_IS_RECOVERED = _table(lambda mark: mark & RECOVERED != 0)
_IS_KNOWN = _table(lambda state: state != NONE)
_UNDELIVERED = bytes(value for value in range(256) if not value & DELIVERED)

Entries = tuple[Who, "array[int]"]
"""The queue's actor; flat (event << 8 | flag, place, n, message of the first, seq, t)."""

_PUBLISH, _CONFIRM, _DELIVER, _ACK = int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.DELIVER), int(Ev.ACK)
_REQUEUE, _DROP, _RECOVERED = int(Ev.REQUEUE), int(Ev.DROP), int(Ev.RECOVERED)
_COUNTED = {
    _PUBLISH: "published", _CONFIRM: "confirmed", _DELIVER: "delivered", _ACK: "acked", _REQUEUE: "requeued",
    _DROP: "dropped", _RECOVERED: "recovered",
}  # fmt: skip


def delay_class(delay: int) -> int:
    """The lower end of the class that a delay in ns is counted in; classes are at most 1.6 % wide."""
    shift = max(delay.bit_length() - 7, 0)
    return delay >> shift << shift


@dataclass(slots=True)
class Life:
    """4,096 ids in one incarnation; the arrays are as long as the largest id met."""

    states: bytearray = field(default_factory=bytearray)
    marks: bytearray = field(default_factory=bytearray)
    published: array[int] = field(default_factory=lambda: array("q"))
    """t"""
    delivered: array[int] = field(default_factory=lambda: array("q"))
    """t of the last delivery"""
    gone_at: array[int] = field(default_factory=lambda: array("q"))
    """seq of the row that made it gone"""
    stored: list[tuple[int, int, int]] = field(default_factory=list)
    """Durable blocks in the store: (place, n, message of the first)."""
    problems: list[tuple[str, int, int]] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    delays: dict[str, Counter[int]] = field(
        default_factory=lambda: {"confirm": Counter(), "deliver": Counter(), "ack": Counter()}
    )

    def grow(self, size: int) -> None:
        """Make room for `size` ids."""
        more = min(max(size, 2 * len(self.states), 64), SIZE) - len(self.states)
        self.states += bytes(more)
        self.marks += bytes(more)
        for times in (self.published, self.delivered, self.gone_at):
            times.frombytes(bytes(8 * more))

    def take(self, word: int, place: int, n: int, msg: int, seq: int, t: int, base: int) -> None:
        """One row; `base` is the id of place 0."""
        event, flag = word >> 8, word & 0xFF
        end = place + n
        if end > len(self.states):
            self.grow(end)
        self.counts[event] += n
        if event == _CONFIRM:
            if flag == CONFIRM_DURABLE:
                self.marks[place:end] = self.marks[place:end].translate(_SET[CONFIRMED])
            _delay(self.delays["confirm"], self.published, place, end, t)
            return
        states = self.states
        was = states[place]
        if n > 1 and states.count(was, place, end) != n:
            was = -1
        if event == _PUBLISH:
            fits, becomes = was == NONE, READY
            self._publish(place, n, flag, msg, t)
        elif event == _DELIVER:
            fits, becomes = was == READY, GONE if flag & NO_ACK else UNACKED
            self._deliver(place, end, flag, seq, t, base)
        elif event == _ACK:
            fits, becomes = was == UNACKED, GONE
            _delay(self.delays["ack"], self.delivered, place, end, t)
        elif event == _REQUEUE:
            fits, becomes = was == UNACKED, READY
        elif event == _DROP:
            fits, becomes = self._may_drop(was, place, end, flag), GONE
        else:
            fits, becomes = was == NONE, READY
            self.marks[place:end] = bytes((RECOVERED,)) * n
        if not fits:
            self._complain(event, place, end, seq, t, base)
        if n == 1:
            states[place] = becomes
            if becomes == GONE:
                self.gone_at[place] = seq
        else:
            states[place:end] = bytes((becomes,)) * n
            if becomes == GONE:
                self.gone_at[place:end] = array("q", (seq,)) * n

    def _publish(self, place: int, n: int, flag: int, msg: int, t: int) -> None:
        mark = (DURABLE if flag & PERSISTENT else 0) | (STORED if flag & IN_STORE else 0)
        if mark == DURABLE | STORED:
            self.stored.append((place, n, msg))
        if n == 1:
            self.marks[place], self.published[place] = mark, t
        else:
            self.marks[place : place + n] = bytes((mark,)) * n
            self.published[place : place + n] = array("q", (t,)) * n

    def _deliver(self, place: int, end: int, flag: int, seq: int, t: int, base: int) -> None:
        marks = self.marks[place:end]
        if not marks.translate(None, _UNDELIVERED):
            _delay(self.delays["deliver"], self.published, place, end, t)
        elif not flag & REDELIVERED:
            again = base + place + next(i for i, mark in enumerate(marks) if mark & DELIVERED)
            self.problems.append((f"delivered {again} again without the redelivered flag", seq, t))
        self.marks[place:end] = marks.translate(_SET[DELIVERED])
        if end - place == 1:
            self.delivered[place] = t
        else:
            self.delivered[place:end] = array("q", (t,)) * (end - place)

    def _may_drop(self, was: int, place: int, end: int, flag: int) -> bool:
        if flag == DROP_REJECTED:
            return was == UNACKED
        if flag == DROP_PURGED:
            return was == READY
        return self.states.find(NONE, place, end) < 0 and self.states.find(GONE, place, end) < 0

    def settled(self, mark: Landmarks) -> bytes:
        """1 for each id that was gone before the last sync, or before a clean stop, of this incarnation."""
        last = FOREVER if mark.closed is not None else mark.last_sync
        return bytes(0 < seq < last for seq in self.gone_at)

    def _complain(self, event: int, place: int, end: int, seq: int, t: int, base: int) -> None:
        found = sorted({_WORDS[state] for state in self.states[place:end]})
        ids = f"{base + place}" if end - place == 1 else f"{base + place} to {base + end - 1}"
        self.problems.append((f"{Ev(event).name} of {ids}: {' and '.join(found)}", seq, t))


def _delay(counter: Counter[int], times: array[int], place: int, end: int, t: int) -> None:
    if end - place == 1:
        if since := times[place]:
            counter[delay_class(t - since)] += 1
    else:
        for since, n in Counter(times[place:end]).items():
            if since:
                counter[delay_class(t - since)] += n


class Ledger(Machine):
    """See the module."""

    name: ClassVar[str] = "ledger"
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.PUBLISH, Ev.CONFIRM, Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP, Ev.RECOVERED}
    )

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Entries]]:
        found: dict[int, array[int]] = {}
        for t, seq, msg, _, _, lo, n, _, who in rows:
            at = lo
            while at < lo + n:
                place = at & (SIZE - 1)
                here = min(lo + n - at, SIZE - place)
                entries = found.get(at >> SHIFT)
                if entries is None:
                    entries = found[at >> SHIFT] = array("q")
                entries.extend((who & 0xFFFF, place, here, msg + at - lo, seq, t))
                at += here
        name = self.runs[piece.run].actor_name(piece.actor)
        for bucket, entries in found.items():
            yield (name, bucket), ((piece.run, piece.actor), entries)

    def start(self, key: Key) -> Lives:
        return Lives(int(key[1]) << SHIFT)

    def absorb(self, state: Lives, summary: Entries) -> None:
        who, entries = summary
        life = state.lives.get(who)
        if life is None:
            life = state.lives[who] = Life()
        take, base = life.take, state.base
        for word, place, n, msg, seq, t in zip(*[entries[i::6] for i in range(6)], strict=True):
            take(word, place, n, msg, seq, t, base)

    def finish(self, key: Key, state: Lives, world: World) -> Outcome:
        name = str(key[0])
        outcome = Outcome()
        for who, life in state.lives.items():
            for text, seq, t in life.problems:
                outcome.findings.append(Finding("Q1", f"queue {name}", text, ((*who, seq),), t, (who,)))
            for event, n in life.counts.items():
                outcome.figures["queue", name, _COUNTED[event]] += n
            for what, delays in life.delays.items():
                for delay, n in delays.items():
                    outcome.figures["delay", what, delay] += n
        state.walk(name, world, outcome)
        return outcome


@dataclass(slots=True)
class Lives:
    """4,096 ids in all incarnations of their queue."""

    base: int
    lives: dict[Who, Life] = field(default_factory=dict)

    def walk(self, name: str, world: World, outcome: Outcome) -> None:
        """C2: go through the incarnations in order, and compare what one left with what the next recovered."""
        owed = settled = bytes(SIZE)
        stored: dict[int, int] = {}
        begun = False
        incarnations = world.incarnations(name)
        for number, who in enumerate(incarnations):
            life = self.lives.get(who)
            mark = world.landmark(who)
            if mark.recovered is None and life is None:
                continue
            if life is None:
                life = Life()
            life.grow(SIZE)
            recovered = life.marks.translate(_IS_RECOVERED)
            if begun:
                self._compare(name, who, owed, settled, recovered, world, outcome)
            held = life.states.translate(_IS_HELD)
            known = life.states.translate(_IS_KNOWN)
            owed = _and(held, _or(life.marks.translate(_IS_OWED), _and(owed, recovered)))
            settled = _or(_minus(settled, known), life.settled(mark))
            stored = {place: msg for place, msg in stored.items() if recovered[place] or not known[place]}
            for place, n, msg in life.stored:
                stored.update(zip(range(place, place + n), range(msg, msg + n), strict=True))
            begun = True
            last_of_run = number + 1 == len(incarnations) or incarnations[number + 1][0] != who[0]
            if last_of_run and stored and world.ended_cleanly(who[0]):
                for msg in (msg for place, msg in stored.items() if held[place]):
                    outcome.facts.append(("references", (msg >> SHIFT,), (who, msg)))

    def _compare(
        self,
        name: str,
        after: Who,
        owed: bytes,
        settled: bytes,
        recovered: Bytes,
        world: World,
        outcome: Outcome,
    ) -> None:
        row = world.landmark(after).recovered
        needs = world.namesakes(name, after[0])
        evidence = ((*after, row[1] if row is not None else 1),)
        for text, ids in (
            ("confirmed, and not recovered", _minus(owed, recovered)),
            ("acked or dropped, synced, and recovered again", _and(settled, recovered)),
        ):
            if first := ids.find(1) + 1:
                said = f"{ids.count(1)} messages from {self.base + first - 1} on were {text}"
                # Any missing row of its lives could be the ack or the recovery: only whole ones convict.
                outcome.findings.append(Finding("C2", f"queue {name}", said, evidence, FOREVER, needs))


def _and(one: Bytes, two: Bytes) -> bytes:
    return (int.from_bytes(one) & int.from_bytes(two)).to_bytes(SIZE)


def _or(one: Bytes, two: Bytes) -> bytes:
    return (int.from_bytes(one) | int.from_bytes(two)).to_bytes(SIZE)


def _minus(one: Bytes, two: Bytes) -> bytes:
    return (int.from_bytes(one) & ~int.from_bytes(two)).to_bytes(SIZE)
