"""Pass of the order of a queue, for Q1 and Q2: which sequence ids are ready, and which one leaves next.

It is the smallest one; in a queue with priorities the smallest of the highest priority that has messages.

Key: (run, queue actor).  Only ranges matter, so a piece folds into a few operations:

    NEW     [lo, hi) was published: above all that have been in the queue
    ADD     [lo, hi) became ready: recovered or requeued
    TAKE    [lo, hi) was delivered, in this order
    REMOVE  [lo, hi) was dropped
    SHED    [lo, hi) was dropped by the queue itself: it had expired, or was too much

Neighbouring ranges join.  A publish of priority 0 joins the NEW of earlier publishes across TAKEs in between: new ids are
above all ready ones, so they cannot change what the smallest one was.  Across a requeue or a drop nothing is moved.
Whether an id could be delivered at all is the ledger's question.

A rule (`judge`) has for an operation the method of Ready that finds the id which forbids it, and what to say of the two:

    judge={Fifo: {SHED: (Ready.ahead_of, "dropped {} while {} was ready")}}
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, np
from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import DEAD_LETTERED, DROP_EXPIRED, DROP_MAXLEN, DROP_REJECTED, PRIORITY_SHIFT, Ev
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_PUBLISH, _DELIVER, _DROP = int(Ev.PUBLISH), int(Ev.DELIVER), int(Ev.DROP)
ADD, TAKE, REMOVE, SHED, NEW = 1, 2, 3, 4, 5
UNREADY = (DROP_REJECTED, DROP_REJECTED | DEAD_LETTERED)
SHEDS = (DROP_EXPIRED, DROP_MAXLEN, DROP_EXPIRED | DEAD_LETTERED, DROP_MAXLEN | DEAD_LETTERED)
EVENTS = frozenset({Ev.PUBLISH, Ev.RECOVERED, Ev.DELIVER, Ev.REQUEUE, Ev.DROP})


class _Moved(Shared[T], of=EVENTS):
    first_seq_id: T
    count: T


_moved = _Moved.getter("t", "seq", "who", "first_seq_id", "count")

MOVES_SQL = """
WITH states AS (
    SELECT run, actor, seq, t, id, event, flag,
           CASE WHEN event IN (20, 31, 26) THEN 'ready'
                WHEN event = 24 AND flag & 2 = 0 THEN 'unacked' ELSE 'gone' END AS becomes
    FROM steps),
moves AS (
    SELECT run, actor, seq, id, event, flag, becomes,
           coalesce(lag(becomes) OVER (PARTITION BY run, actor, id ORDER BY seq), 'none') AS was,
           lead(seq) OVER (PARTITION BY run, actor, id ORDER BY seq) AS until
    FROM states)
"""
"""A table for the SQL of rules: each step of a message with the state before it, the state it leaves, and the
row that ends that.
"""

Operation = list[int]
"""[NEW, ADD, TAKE, REMOVE or SHED, lo, hi, seq, t] with the first row's seq and t: if anything is wrong, it is lo."""


@dataclass(slots=True)
class Ranges:
    """A set of integers as disjoint ranges, ascending, none adjacent to the next."""

    los: list[int] = field(default_factory=list)
    his: list[int] = field(default_factory=list)

    def add(self, lo: int, hi: int) -> None:
        los, his = self.los, self.his
        first = bisect_left(his, lo)
        last = bisect_right(los, hi)
        if first < last:
            lo, hi = min(lo, los[first]), max(hi, his[last - 1])
        los[first:last] = [lo]
        his[first:last] = [hi]

    def remove(self, lo: int, hi: int) -> None:
        los, his = self.los, self.his
        first = bisect_right(his, lo)
        last = bisect_left(los, hi)
        if first >= last:
            return
        low, high = los[first], his[last - 1]
        rest = [piece for piece in ((low, min(lo, high)), (max(hi, low), high)) if piece[0] < piece[1]]
        los[first:last] = [piece[0] for piece in rest]
        his[first:last] = [piece[1] for piece in rest]


@dataclass(slots=True)
class Ready:
    """The ready ids of one incarnation, and where the order was broken."""

    ids: dict[int, Ranges] = field(default_factory=dict)
    """Ready sequence ids by priority."""
    tops: dict[int, int] = field(default_factory=dict)
    """The highest id that has been in the queue, and one, by priority."""
    published_to: int = -1
    taken_to: int = -1
    """Where the last NEW and the last TAKE ended, unless something came since that may change the order: what goes on from
    there is the same operation, which a piece's end has cut in two."""
    problems: list[tuple[str, str, int, int, int, int]] = field(default_factory=list)
    """(rule, text, id of the operation, the id that forbids it, seq, t)"""

    def first(self) -> int | None:
        """The id that leaves next."""
        if len(self.ids) == 1:
            (ids,) = self.ids.values()
            return ids.los[0] if ids.los else None
        highest = max((priority for priority, ids in self.ids.items() if ids.los), default=None)
        return None if highest is None else self.ids[highest].los[0]

    def ahead_of(self, id_: int) -> int | None:
        """The ready id that leaves next, if that is before this one: of a higher priority, or smaller in the same."""
        first = self.first()
        if first is None:
            return None
        above = (first >> PRIORITY_SHIFT) - (id_ >> PRIORITY_SHIFT)
        return first if above > 0 or (above == 0 and first < id_) else None

    def not_below(self, id_: int) -> int | None:
        """The highest id of its priority that has been in the queue, if this one is not above it."""
        top = self.tops.get(id_ >> PRIORITY_SHIFT, 0)
        return top - 1 if id_ < top else None


Check = tuple[Callable[[Ready, int], int | None], str]


class Fifo(Machine):
    """Follows which messages of a queue are ready."""

    name: ClassVar[str] = "fifo"
    events: ClassVar[frozenset[int]] = EVENTS

    def __init__(self, runs: Sequence[Run], judges: Mapping[str, Mapping[int, Check]] | None = None) -> None:
        super().__init__(runs, judges)
        self._checks = {
            operation: (rule, *check)
            for rule, checks in self.judges.items()
            for operation, check in checks.items()
        }

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Operation]]]:
        operations: list[Operation] = []
        published: Operation | None = None
        latest: Operation = [0, 0, -1, 0, 0]
        for t, seq, who, lo, n in map(_moved, rows):
            event = who >> 8 & 0xFF
            hi = lo + n
            if event == _PUBLISH:
                if published is not None and published[2] == lo < 1 << PRIORITY_SHIFT:
                    published[2] = hi
                    continue
                latest = published = [NEW, lo, hi, seq, t]
            elif event == _DELIVER:
                if latest[0] == TAKE and latest[2] == lo:
                    latest[2] = hi
                    continue
                latest = [TAKE, lo, hi, seq, t]
            elif event == _DROP:
                if who & 0xFF in UNREADY:
                    continue
                kind = SHED if who & 0xFF in SHEDS else REMOVE
                latest, published = [kind, lo, hi, seq, t], None
            else:
                latest, published = [ADD, lo, hi, seq, t], None
            operations.append(latest)
        if operations:
            yield (piece.run, piece.actor), operations

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Any]]:
        """Summarise a unit of arrays."""
        yield from fold_fifo(piece, rows)

    def start(self, key: Key) -> Ready:
        return Ready()

    def absorb(self, state: Ready, summary: list[Operation]) -> None:
        for operation, lo, hi, seq, t in summary:
            priority = lo >> PRIORITY_SHIFT
            ids = state.ids.get(priority)
            if ids is None:
                ids = state.ids[priority] = Ranges()
            if operation == NEW:
                goes_on = not priority and lo == state.published_to
            else:
                goes_on = operation == TAKE and lo == state.taken_to
            if operation in self._checks and not goes_on:
                rule, forbidden_by, said = self._checks[operation]
                other = forbidden_by(state, lo)
                if other is not None:
                    state.problems.append((rule, said.format(lo, other), lo, other, seq, t))
            if operation in {NEW, ADD}:
                state.tops[priority] = max(hi, state.tops.get(priority, 0))
                ids.add(lo, hi)
            else:
                ids.remove(lo, hi)
            if operation == NEW:
                state.published_to = hi
                if priority:
                    state.taken_to = -1  # it may be before what is ready
            else:
                state.taken_to = hi if operation == TAKE else -1
                state.published_to = state.published_to if operation == TAKE else -1

    def finish(self, key: Key, state: Ready, context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        subject = f"queue {context.name(who)}"
        return Outcome(
            [
                Finding(rule, subject, text, ((*who, seq),), t, (who,), (lo, other))
                for rule, text, lo, other, seq, t in state.problems
            ]
        )


def fold_fifo(piece: Chunk, rows: Rows) -> Iterator[tuple[Key, list[Operation]]]:
    """The array form of Fifo.summarise: the same summaries, from arrays of rows."""
    event, flag = rows.event, rows.flag
    rows = rows.where(~((event == Ev.DROP) & np.isin(flag, UNREADY)))
    if not len(rows):
        return
    event, flag, lo = rows.event, rows.flag, _Moved.of(rows).first_seq_id
    hi = lo + _Moved.of(rows).count
    publishes, takes = event == Ev.PUBLISH, event == Ev.DELIVER
    begins = ~(publishes | takes)  # requeued, recovered, dropped: these join nothing
    barriers = np.cumsum(begins)
    begins[publishes] = ~_joins(lo[publishes], hi[publishes], barriers[publishes], below=1 << PRIORITY_SHIFT)
    barriers = np.cumsum(begins)
    begins[takes] = ~_joins(lo[takes], hi[takes], barriers[takes], below=1 << 62)
    kind = np.select(
        [publishes, takes, (event == Ev.DROP) & np.isin(flag, SHEDS), event == Ev.DROP],
        [NEW, TAKE, SHED, REMOVE],
        default=ADD,
    )
    end = hi.copy()
    for joined in (publishes, takes):
        end[joined] = _ends(hi[joined], begins[joined])
    operations = np.stack((kind, lo, end, rows.seq, rows.t), axis=1)[begins]
    yield (piece.run, piece.actor), operations.tolist()


def _joins(lo: Ints, hi: Ints, barriers: Ints, *, below: int) -> Bools:
    """True for each range that continues the one before it, with nothing in between that counts."""
    joins = np.zeros(len(lo), np.bool_)
    joins[1:] = (lo[1:] == hi[:-1]) & (barriers[1:] == barriers[:-1]) & (lo[1:] < below)
    return joins


def _ends(hi: Ints, begins: Bools) -> Ints:
    """The end of the last range that each range is joined with; right at the places where one begins."""
    places = np.flatnonzero(begins)
    lasts = np.append(places, len(hi))[1:] - 1
    found = hi.copy()
    found[places] = hi[lasts]
    return found
