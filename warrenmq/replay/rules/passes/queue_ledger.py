"""Pass of the messages of a queue across restarts, for Q1, Q3, Q4 and C2; it counts what E1 compares and the report shows.

Key: (scope of the run, queue name, sequence id >> 12): 4,096 messages, in all incarnations of the queue, in
all runs; message_life.py has their states.

Of a rule (`judge`):

    fine(event << 8 | flag, state before, mark before)                     each step of a message (message_life.py)
    decide(name, incarnations, lives, context, outcome)                    at the end: steps that were not fine; one life against others
    proves(alone, context, outcome)                                        the same by arrays, of messages that one incarnation alone had

An incarnation that wrote nothing beyond RECOVERED, not even the QUEUE_RECOVERED behind those, died while it recovered: it
is passed over.  Of the messages that a run holds at its clean end, and that live in the store, the ledger tells
`references` (a fact each).

Array form: messages whose whole life went well leave only their numbers.  A message is over in a unit when
all its rows are fine, it is gone, and has its confirm if it wanted one.  Left open are

    entries   all rows of the messages that are not over
    ranges    (actor, first id, end) of those that are: an id must not come a second time
    counts    (event, messages) of all rows
    delays    (which delay and its class, how many) of those that are over

At the end every message must be fine so far, and no later incarnation of the queue may have anything to do with it: where
a message was still there when its queue died, the machine has to look.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import (
    Bools,
    Ints,
    Places,
    Rows,
    Unit,
    codes,
    expand,
    np,
    parts_of,
    touches,
)
from warrenmq.replay.drive.machines import DELAY, STATE, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.rules.passes.message_life import (
    CONFIRMED,
    DELIVERED,
    DURABLE,
    GONE,
    LOST,
    NONE,
    PUBLISHED,
    READY,
    RECOVERED,
    SHIFT,
    SIZE,
    STORED,
    UNACKED,
    Entries,
    Life,
    Walked,
    walk,
)
from warrenmq.replay.rules.rule import Answers
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import IN_STORE, PERSISTENT, PRIORITY_SHIFT, Ev, Publish
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

COUNTED = {
    Ev.PUBLISH: "published", Ev.CONFIRM: "confirmed", Ev.DELIVER: "delivered", Ev.ACK: "acked",
    Ev.REQUEUE: "requeued", Ev.DROP: "dropped", Ev.RECOVERED: "recovered", Ev.EXPIRY: "given a time to live",
}  # fmt: skip
_AT_WORK = frozenset(COUNTED) - {Ev.RECOVERED, Ev.EXPIRY}


class _Moved(Shared[T], of=COUNTED):
    first_seq_id: T
    count: T


_moved = _Moved.getter("t", "seq", "msg", "who", "first_seq_id", "count")

Told = tuple[Who, list[int]]
"""The queue's actor; its rows as Life.take wants them."""


def _bits(test: Callable[[int], bool]) -> bytes:
    return bytes(map(test, range(256)))


# bytes.translate tables to sets (ids_with)
HELD = _bits(lambda state: state in {READY, UNACKED})
KNOWN = _bits(lambda state: state != NONE)
OWED = _bits(lambda mark: mark & (CONFIRMED | DURABLE) == CONFIRMED | DURABLE)
WAS_RECOVERED = _bits(lambda mark: mark & RECOVERED != 0)
WAS_DAMAGED = _bits(lambda mark: mark & LOST != 0)
WAS_DELIVERED = _bits(lambda mark: mark & DELIVERED != 0)
TRANSIENT = _bits(lambda mark: mark & (RECOVERED | DURABLE) == 0)


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
    """The machine of the pass; see the module."""

    name: ClassVar[str] = "ledger"
    of_one_run: ClassVar[bool] = False
    events: ClassVar[frozenset[int]] = frozenset(COUNTED)

    def __init__(self, runs: Sequence[Run], judges: Mapping[str, Any] | None = None) -> None:
        super().__init__(runs, judges)
        self._fine = Answers(self.judges)

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Told]]:
        found: dict[int, list[int]] = {}
        for t, seq, msg, who, lo, n in map(_moved, rows):
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

    def absorb(self, state: Lives, summary: Told) -> None:
        who, entries = summary
        life = state.lives.get(who)
        if life is None:
            life = state.lives[who] = Life()
        life.take(entries, state.base, self._fine)

    def finish(self, key: Key, state: Lives, context: TraceContext) -> Outcome:
        scope, name = str(key[0]), str(key[1])
        title = context.title((scope, name))
        outcome = Outcome()
        for who, life in state.lives.items():
            for event, n in life.counts.items():
                outcome.figures["queue", title, COUNTED[Ev(event)]] += n
            self._tell_state(who, state.base, life, outcome)
        lives = state.lives.values()
        for what, delays in zip(_DELAYS, zip(*map(_DELAYS_OF, lives), strict=True), strict=True):
            outcome.histograms[DELAY, title, what] = Counter(map(delay_class, chain.from_iterable(delays)))
        incarnations = [
            who for who in context.incarnations((scope, name)) if counts_as_life(context.actor_summary(who))
        ]
        for judge in self.judges.values():
            judge.decide(name, incarnations, state, context, outcome)
        self._tell_holdings(scope, incarnations, state, context, outcome)
        return outcome

    @staticmethod
    def _tell_state(who: Who, base: int, life: Life, outcome: Outcome) -> None:
        """Report the last state of these ids in this life (end_state.py)."""
        outcome.figures[STATE, *who, "ready"] = life.states.count(READY)
        outcome.figures[STATE, *who, "unacked"] = life.states.count(UNACKED)
        outcome.figures[STATE, *who, "recovered"] = life.counts[Ev.RECOVERED]
        if not base >> PRIORITY_SHIFT:
            outcome.largest[STATE, *who, "next_seq_id"] = base + len(life.states.rstrip(b"\0"))

    @staticmethod
    def _tell_holdings(
        scope: str, incarnations: list[Who], state: Lives, context: TraceContext, outcome: Outcome
    ) -> None:
        """Report the messages in the persistent store that the last incarnation of each clean run holds."""
        for number, who in enumerate(incarnations):
            is_last = number + 1 == len(incarnations) or incarnations[number + 1][0] != who[0]
            if not is_last or not context.ended_cleanly(who[0]):
                continue
            lives = [state.lives[each] for each in incarnations[number::-1] if each in state.lives]
            held = lives[0].states.translate(HELD) if lives and who in state.lives else b""
            place = held.find(1)
            while place >= 0:
                msg = _message_at(place, lives)
                if msg:
                    outcome.facts.append(("references", (scope, msg >> SHIFT), (who, msg)))
                place = held.find(1, place + 1)

    def prune(self, key: Key, state: Lives, context: TraceContext) -> bool:
        """Forget ids that are all gone, but for that fact and which were gone before the last sync (some 100
        bytes): C2 needs it.
        """
        for who, life in state.lives.items():
            if len(life.states) == SIZE and life.states.count(GONE) == SIZE:
                _shrink(life, context.actor_summary(who).last_sync)
        return False


def _shrink(life: Life, last_sync: int) -> None:
    for times in (life.published, life.delivered, life.messages):
        times[:] = array("q", bytes(8 * len(times)))
    for delays in (life.confirm_delays, life.deliver_delays, life.ack_delays):
        del delays[:]
    life.gone_at[:] = array("q", [1 if 0 < seq < last_sync else seq for seq in life.gone_at])


def counts_as_life(mark: ActorSummary) -> bool:
    """True if the incarnation completed its recovery."""
    return mark.recovered is not None or not _AT_WORK.isdisjoint(mark.events)


def _message_at(place: int, lives: list[Life]) -> int:
    """The message at a place of the latest life, if it is in the persistent store.

    It was published in one of them, or in one that was killed before it wrote that row: then a recovery says which it is.
    """
    found = 0
    for life in lives:
        if place >= len(life.marks):
            return found
        mark = life.marks[place]
        if mark & PUBLISHED:
            return life.messages[place] if mark & DURABLE and mark & STORED else 0
        found = found or life.messages[place]
    return found


def ids_with(values: bytearray, table: bytes) -> int:
    """The ids whose state, or mark, a table has: a set as an int, whose byte at the id's place is 1 if the id is in it.

    It is as long as its largest id, so that sets of few ids are cheap.
    """
    return int.from_bytes(values.translate(table), "little")


def lowest(ids: int) -> int:
    """The first place in a set; -1 if it is empty."""
    return (ids & -ids).bit_length() - 1 >> 3


_LONGEST_ROW = 1 << 20
"""Messages in one row that are looked at one by one."""
_ROWS_AT_ONCE = 1 << 15
"""Rows whose entries, a few times as many, fit into a processor's cache."""
_DELAYS = ("confirm", "deliver", "ack")
"""The delays of a message: a number of a delay's class times three, and which of these it is, tell both."""
_DELAYS_OF = attrgetter("confirm_delays", "deliver_delays", "ack_delays")


class Alone(NamedTuple):
    """Messages, in an incarnation that alone had rows of them, by arrays."""

    who: Who
    incarnations: list[Who]
    """All incarnations of the queue."""
    walked: Walked
    known: int
    """The number of these, with those that were over in their unit."""


class LedgerPrecheck(Precheck):
    """The array form of the pass; see the module."""

    machine: ClassVar[type[Machine]] = Ledger

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(Ledger.events)
        large = _Moved.of(rows).count > _LONGEST_ROW
        for row in rows.where(large).tuples():
            _, _, _, who, first, n = _moved(row)
            actor = who >> 16
            for bucket in range(first >> SHIFT, (first + n - 1 >> SHIFT) + 1):
                yield self._key(unit.run, actor, bucket), NEEDS_FULL_CHECK
        for part in rows.where(~large).by_actors(_ROWS_AT_ONCE):
            yield from self._open_of(part, unit.run)

    def _open_of(self, rows: Rows, run: int) -> Iterator[tuple[Key, OpenRows]]:
        """The open rows of some queues in a unit."""
        entries, code = _entries(rows)
        if not len(code):
            return
        walked = walk(entries, code, self.judges)
        delays, measurable = _delays(walked)
        # of others, earlier incarnations matter
        published = entries.word.take(walked.begins) >> 8 == Ev.PUBLISH
        over = (
            walked.fine & (walked.state == GONE) & walked.confirmed & measurable & published & ~walked.damaged
        )
        actors, ids = entries.actor.take(walked.starts), entries.id.take(walked.starts)
        tables = (
            entries.at(np.flatnonzero(~np.repeat(over, walked.sizes))).table(),
            _ranges(actors[over], ids[over]),
            _counts(entries),
            _classes(actors, ids, over, delays),
        )
        numbers = codes([each[:, 0] for each in tables], [each[:, 1] >> SHIFT for each in tables])
        for _, (left, ranges, *sums) in parts_of(*zip(numbers, tables, strict=True)):
            actor, id_ = next(part[:2].tolist() for part in (left, ranges, *sums) if len(part))
            counts, classes = (part.reshape(-1, 4)[:, 2:].reshape(-1) for part in sums)
            key = self._key(run, actor, id_ >> SHIFT)
            yield key, (np.array([run], np.int64), left, ranges, counts, classes)

    def _key(self, run: int, actor: int, bucket: int) -> Key:
        return (self.runs[run].scope, self.runs[run].actor_name(actor), bucket)

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found = np.zeros(len(rows), np.bool_)
        buckets: dict[str, list[int]] = {}
        for scope, name, bucket in keys:
            if scope == self.runs[run].scope:
                buckets.setdefault(str(name), []).append(int(bucket))
        for actor in np.unique(rows.actor).tolist():
            wanted = np.sort(np.array(buckets.get(self.runs[run].actor_name(actor), []), np.int64))
            if len(wanted):
                moved = _Moved.of(rows)
                last = moved.first_seq_id + np.maximum(moved.count, 1) - 1
                found |= (rows.actor == actor) & touches(moved.first_seq_id >> SHIFT, last >> SHIFT, wanted)
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        name, bucket = (str(key[0]), str(key[1])), int(key[2])
        title = context.title(name)
        table, ranges = (
            np.concatenate([each[part].reshape(-1, width) for each in open_rows])
            for part, width in ((1, len(Entries._fields)), (2, 3))
        )
        entries = Entries(*np.ascontiguousarray(table.T))
        actors = np.unique(np.concatenate((entries.actor, ranges[:, 0])))
        runs = {int(each[0][0]) for each in open_rows}
        if len(actors) != 1 or len(runs) != 1:
            return None
        who = runs.pop(), int(actors[0])
        entries = entries.at(np.lexsort((entries.seq, entries.id)))
        walked = walk(entries, entries.id, self.judges)
        delays, measurable = _delays(walked)
        ids = entries.id.take(walked.starts)
        if not (np.all(walked.fine & measurable) and _are_apart(ranges, ids)):
            return None
        outcome = Outcome()
        incarnations = [
            each for each in context.incarnations(name) if counts_as_life(context.actor_summary(each))
        ]
        alone = Alone(who, incarnations, walked, len(ids) + int((ranges[:, 2] - ranges[:, 1]).sum()))
        if not all(judge.proves(alone, context, outcome) for judge in self.judges.values()):
            return None
        if who in incarnations and context.ended_cleanly(who[0]):
            self._tell_holdings(name[0], who, walked, outcome)
        self._tell_state(who, bucket << SHIFT, walked, ranges, outcome)
        counted = np.concatenate([each[3].reshape(-1, 2) for each in open_rows])
        for event, n in zip(*map(np.ndarray.tolist, _sums(counted)), strict=True):
            outcome.figures["queue", title, COUNTED[Ev(event)]] = n
            if event == Ev.RECOVERED:
                outcome.figures[STATE, *who, "recovered"] = n
        found = [each[4].reshape(-1, 2) for each in open_rows]
        numbers, n = _sums(np.concatenate([*found, _in_classes(delays)]))
        kind, which = np.divmod(numbers, len(_DELAYS))
        for place, what in enumerate(_DELAYS):
            its = which == place
            classes = zip(class_of(kind[its]).tolist(), n[its].tolist(), strict=True)
            outcome.histograms[DELAY, title, what] = dict(classes)
        return outcome

    @staticmethod
    def _tell_state(who: Who, base: int, walked: Walked, ranges: Ints, outcome: Outcome) -> None:
        outcome.figures[STATE, *who, "ready"] = int(np.count_nonzero(walked.state == READY))
        outcome.figures[STATE, *who, "unacked"] = int(np.count_nonzero(walked.state == UNACKED))
        if not base >> PRIORITY_SHIFT:
            tops = chain(ranges[:, 2].tolist(), (walked.entries.id + 1).tolist())
            outcome.largest[STATE, *who, "next_seq_id"] = max(tops)

    @staticmethod
    def _tell_holdings(scope: str, who: Who, walked: Walked, outcome: Outcome) -> None:
        """Tell `references` what is there at the clean end."""
        begun = walked.entries.at(walked.begins[walked.state != GONE])
        stored = (
            (begun.word >> 8 == Ev.PUBLISH) & (begun.word & PERSISTENT != 0) & (begun.word & IN_STORE != 0)
        )
        outcome.facts += [
            ("references", (scope, msg >> SHIFT), (who, msg)) for msg in begun.message[stored].tolist()
        ]


def _entries(rows: Rows) -> tuple[Entries, Ints]:
    """A row of n messages as n entries, sorted by message; and the codes of the messages."""
    first = _Moved.of(rows).first_seq_id
    row, ids = expand(first, _Moved.of(rows).count)
    actor = rows.actor
    (code,) = codes((actor.take(row),), (ids,))
    order = np.argsort(code, kind="stable")
    row, ids = row.take(order), ids.take(order)
    messages = np.where(rows.event == Ev.PUBLISH, Publish.of(rows).message - first, 0)
    columns = (actor, None, rows.who & 0xFFFF, messages, rows.seq, rows.t)
    entries = Entries._make(ids if column is None else column.take(row) for column in columns)
    return entries._replace(message=entries.message + ids), code.take(order)


def _delays(walked: Walked) -> tuple[list[tuple[Ints, Ints]], Bools]:
    """The delays of each kind (messages, ns), and which messages all have a length that has a class."""
    times = walked.entries.t
    begun = times.take(walked.begins)
    published = walked.entries.word.take(walked.begins) >> 8 == Ev.PUBLISH
    found = []
    measurable = np.ones(len(walked.starts), np.bool_)
    for ends in (walked.confirm, walked.delivery):
        whose = np.flatnonzero(published & (ends >= 0))
        found.append((whose, times.take(ends.take(whose)) - begun.take(whose)))
    acked = walked.last_delivery >= 0
    acks = walked.acks[acked]
    whose = np.searchsorted(walked.starts, acks, side="right") - 1
    found.append((whose, times.take(acks) - times.take(walked.last_delivery[acked])))
    for whose, delay in found:
        measurable[whose[(delay < 0) | (delay >= LONGEST)]] = False
    return found, measurable


def _in_classes(delays: list[tuple[Ints, Ints]]) -> Ints:
    """(which and class, how many)."""
    numbers = [class_numbers(delay) * len(_DELAYS) + which for which, (_, delay) in enumerate(delays)]
    return np.stack(np.unique(np.concatenate(numbers), return_counts=True), axis=1)


def _sums(counted: Ints) -> tuple[Ints, Ints]:
    """(number, how many) -> the numbers, and the sum for each."""
    numbers, places = np.unique(counted[:, 0], return_inverse=True)
    sums = np.zeros(len(numbers), np.int64)
    np.add.at(sums, places, counted[:, 1])
    return numbers, sums


def _classes(actor: Ints, ids: Ints, over: Bools, delays: list[tuple[Ints, Ints]]) -> Ints:
    """(actor, an id of the bucket, class and which, how many) of the messages that are over."""
    whose, numbers = [], []
    for which, (messages, delay) in enumerate(delays):
        counted = over.take(messages)
        whose.append(messages[counted])
        numbers.append(class_numbers(delay[counted]) * len(_DELAYS) + which)
    return _tally(actor, ids, np.concatenate(whose), np.concatenate(numbers))


def _counts(entries: Entries) -> Ints:
    """(actor, an id of the bucket, event, how many)."""
    return _tally(entries.actor, entries.id, None, entries.word >> 8)


_BINS = 8
"""Bins for each number up to which counting in bins is quicker than sorting."""


def _tally(actor: Ints, ids: Ints, places: Places | None, numbers: Ints) -> Ints:
    """Count each number in each bucket of these sorted ids; a number belongs to the id at the same index of
    `places`, None = of its own.
    """
    buckets = ids >> SHIFT
    begins = np.ones(len(buckets), np.bool_)
    begins[1:] = (buckets[1:] != buckets[:-1]) | (actor[1:] != actor[:-1])
    group = np.cumsum(begins) - 1
    width = int(numbers.max(initial=0)) + 1
    which = (group if places is None else group.take(places)) * width + numbers
    firsts = np.flatnonzero(begins)
    if len(firsts) * width <= _BINS * len(which):
        in_bins = np.bincount(which)
        found = np.flatnonzero(in_bins)
        n = in_bins[found]
    else:
        found, n = np.unique(which, return_counts=True)
    heads = firsts.take(found // width)
    return np.stack((actor.take(heads), ids.take(heads), found % width, n), axis=1)


def _ranges(actor: Ints, ids: Ints) -> Ints:
    """Messages, sorted -> (actor, first id, end), none across the end of a bucket."""
    begins = np.ones(len(ids), np.bool_)
    begins[1:] = (actor[1:] != actor[:-1]) | (ids[1:] != ids[:-1] + 1) | (ids[1:] & (1 << SHIFT) - 1 == 0)
    first = np.flatnonzero(begins)
    last = np.append(first, len(ids))[1:] - 1
    return np.stack((actor[first], ids[first], ids[last] + 1), axis=1)


def _are_apart(ranges: Ints, ids: Ints) -> bool:
    """True if no id is in two ranges, or in one and among these."""
    firsts = np.concatenate((ranges[:, 1], ids))
    ends = np.concatenate((ranges[:, 2], ids + 1))
    order = np.argsort(firsts, kind="stable")
    return bool(np.all(ends[order][:-1] <= firsts[order][1:]))


LONGEST = 1 << 52
"""The longest delay that has a class here, in nanoseconds (52 days); negative ones have none either."""
_BITS = 7


def class_numbers(delays: Ints) -> Ints:
    """A small number for the class of each delay."""
    _, length = np.frexp(delays.astype(np.float64))
    shift = np.maximum(length.astype(np.int64) - _BITS, 0)
    numbers: Ints = shift << _BITS | delays >> shift
    return numbers


def class_of(number: Any) -> Any:
    """The class itself, of a number or of an array of them: its lower end in ns."""
    return (number & (1 << _BITS) - 1) << (number >> _BITS)
