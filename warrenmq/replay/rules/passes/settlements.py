"""Pass of what consumers hold and settle, for A1 to A4.

Key: (run, queue actor), its rows in their order.  A delivery that has to be settled is held under its
consumer and delivery tag until an ACK, a REQUEUE or a DROP of its sequence id; these rows say which consumer
and tag the client named.  Consumer and tag are one number here, `word`: consumer << 32 | tag.

A CONSUMER_GONE row says after which tag messages go back.  Their REQUEUE rows follow at once: what is still
held when the queue delivers or settles anything else, syncs or stops, was kept.  Messages that were not held
are not looked at (Q1 does that).  CONSUMER_ADDED says how many messages a consumer may hold.

Of a rule (`judge`):

    fine(which, consumer and tag that were named, consumer and tag of the delivery)
    decide(who, held, context, outcome)        the settlings that were not fine, what was kept, and deliveries to consumers that were gone
    proves(deliveries, gone, ...)              the same of a queue whose settlings are all fine: see Settled

Array form: each delivery with the row that settles it, side by side.  Rows become entries of single messages.
Sorted by sequence id, a delivery and a settling take turns.  Of a unit there are left, by queue process:

    entries   (sequence id, which, word, seq): deliveries and settlings that have not met, and pairs that a CONSUMER_GONE row of the
              unit, or of another one, may speak of
    gone      (consumer, last tag that was taken, seq, seq of the next row of the unit that gives nothing back, or 0)
    lasts     (consumer, seq of its last delivery)
    first     seq of the unit's first row that gives nothing back
    counted   messages settled by tags, those settled one by one, consumers that went, and those with a prefetch count
    levels    (consumer, seq of its first row, how many messages it holds more at the unit's end than at its beginning, and at most)
    added     (consumer, prefetch count)

Who settles without a consumer's name makes no level lower: then the machine has to look.
A pair that met in one unit can only matter to a CONSUMER_GONE row of that unit, unless it was delivered after one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import Ints, Rows, Unit, expand, groups, np
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.rules.rule import questions
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import (
    DEAD_LETTERED,
    DROP_REJECTED,
    MULTIPLE,
    NO_ACK,
    RETURNED,
    Ack,
    ConsumerAdded,
    ConsumerGone,
    Deliver,
    Drop,
    Ev,
)
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_DELIVER, _DROP, _GONE = int(Ev.DELIVER), int(Ev.DROP), int(Ev.CONSUMER_GONE)
_ADDED = int(Ev.CONSUMER_ADDED)
CONSUMER_SHIFT = 32
TAG = Ack.column("delivery_tag").mask
_CONSUMER = Ack.column("consumer").mask
"""A row that settles has so many bits of its consumer and tag."""


class OfConsumer(Shared[T], of=(Ev.DELIVER, Ev.CONSUMER_ADDED, Ev.CONSUMER_GONE)):
    """A consumer, a delivery to it, or its end."""

    consumer: T


class Named(Shared[T], of=(Ev.ACK, Ev.REQUEUE, Ev.DROP)):
    """Messages that were settled, and what the client named; 0 = not said."""

    first_seq_id: T
    count: T
    consumer: T
    delivery_tag: T


_given = Deliver.getter("first_seq_id", "count", "consumer", "delivery_tag")
_named = Named.getter("first_seq_id", "count", "consumer", "delivery_tag")
_lost = ConsumerGone.getter("last_tag", "held", "consumer")
_added = ConsumerAdded.getter("prefetch", "consumer")
_rejected_up_to = Drop.getter("multiple")

DELIVERED, NO_ACK_DELIVERED, UNNAMED, EACH, UP_TO, GIVEN_BACK, GONE, ADDED = range(8)
"""Kinds of steps: a delivery, one that needs no ack; a settling without a consumer and a tag, tag by tag, up
to a tag; a consumer that is gone gives back; a consumer is gone; a consumer is there that has to ack.
"""
WIDTH = 6
"""Numbers of a step: (which, first sequence id, the last tag that was taken or the prefetch count, how many, word, seq, t)."""

SETTLED_SQL = """
WITH delivered AS (
    SELECT d.run, d.actor, d.seq, d.first_seq_id + n AS id, d.consumer, d.delivery_tag + n AS tag
    FROM deliver_rows AS d JOIN numbers ON n < d.count WHERE d.flags & 2 = 0 AND d.consumer <> 0),
named AS (
    SELECT run, actor, seq, first_seq_id, count, multiple AS up_to, consumer, delivery_tag FROM ack_rows
    UNION ALL SELECT run, actor, seq, first_seq_id, count, CASE cause WHEN 1 THEN 1 ELSE 0 END, consumer, delivery_tag FROM requeue_rows
              WHERE cause <> 2
    UNION ALL SELECT run, actor, seq, first_seq_id, count, multiple, consumer, delivery_tag FROM drop_rows WHERE reason = 1),
settled AS (
    SELECT s.run, s.actor, s.seq, s.count, s.up_to, s.consumer, s.first_seq_id + n AS id,
           s.delivery_tag + CASE s.up_to WHEN 0 THEN n ELSE 0 END AS tag, s.delivery_tag AS named
    FROM named AS s JOIN numbers ON n < s.count WHERE s.consumer <> 0),
pairs AS (
    SELECT s.run, s.actor, s.seq, s.count, s.up_to, s.consumer, s.tag, s.named, d.consumer AS holder, d.tag AS held
    FROM settled AS s JOIN delivered AS d ON d.run = s.run AND d.actor = s.actor AND d.id = s.id
    WHERE d.seq = (SELECT max(x.seq) FROM delivered AS x
                   WHERE x.run = s.run AND x.actor = s.actor AND x.id = s.id AND x.seq < s.seq)
      AND NOT EXISTS (SELECT 1 FROM steps AS e
                      WHERE e.run = s.run AND e.actor = s.actor AND e.id = s.id AND e.seq > d.seq AND e.seq < s.seq
                        AND (e.event IN (25, 26) OR (e.event = 27 AND e.flag & 15 = 1))))
"""
"""Tables for the SQL of rules: each settled message (consumer, tag that was named) with its delivery (holder,
held), if that was not settled before.
"""


def step_of(word: int, names: int, up_to: int) -> int | None:
    """The step that a row of event << 8 | flag is; None for one that settles nothing, and for a delivery that names no
    consumer.

    `names`: it says a consumer or a tag.  `up_to`: a DROP says that all up to the tag were rejected.

    | row                          | names nothing | else          |
    | ---------------------------- | ------------- | ------------- |
    | DELIVER                      | None          | DELIVERED ... |
    | ACK, REQUEUE                 | UNNAMED        | EACH          |
    | ACK MULTIPLE, REQUEUE ...    | UNNAMED        | UP_TO         |
    | REQUEUE RETURNED             | GIVEN_BACK    | GIVEN_BACK    |
    | DROP_REJECTED                | UNNAMED        | EACH or UP_TO |
    | any other DROP               | None          | None          |
    | CONSUMER_ADDED               | ADDED         | ADDED         |
    | CONSUMER_ADDED NO_ACK ...    | None          | None          |
    """
    event, flag = word >> 8, word & 0xFF
    if event == _DELIVER:
        return None if not names else NO_ACK_DELIVERED if flag & NO_ACK else DELIVERED
    if event == _GONE:
        return GONE
    if event == _ADDED:
        return None if flag & NO_ACK else ADDED
    if event == _DROP:
        if flag & ~DEAD_LETTERED != DROP_REJECTED:
            return None
        flag = MULTIPLE if up_to else 0
    elif flag == RETURNED:
        return GIVEN_BACK
    return UNNAMED if not names else UP_TO if flag == MULTIPLE else EACH


class Misfit(NamedTuple):
    """A message that was settled otherwise than it was delivered."""

    id: int
    held: int
    """Consumer and tag of its delivery."""
    which: int
    """EACH or UP_TO."""
    named: int
    """Consumer and tag that the row named."""
    place: int
    """Messages of the row before this one."""
    several: bool
    """The row settles more messages, or the one before or after it names the same tag."""
    seq: int
    t: int

    def __str__(self) -> str:
        consumer, tag = divmod(self.held, 1 << CONSUMER_SHIFT)
        named, up_to = divmod(self.named + (self.place if self.which == EACH else 0), 1 << CONSUMER_SHIFT)
        how = "all up to tag" if self.which == UP_TO else "tag"
        return f"{self.id}, which consumer {consumer} has under tag {tag}, was settled when consumer {named} named {how} {up_to}"


def findings_of(rule: str, misfits: Iterable[Misfit], who: Who, context: TraceContext) -> Iterator[Finding]:
    """A rule's finding for the first misfit of each row."""
    subject, seq = f"queue {context.name(who)}", 0
    for misfit in misfits:
        if misfit.seq != seq:
            seq = misfit.seq
            yield Finding(rule, subject, str(misfit), ((*who, seq),), misfit.t, (who,), (misfit.id,))


class Kept(NamedTuple):
    """Messages that a consumer did not give back, and the row since which it is gone."""

    consumer: int
    since: int
    ids: list[int]
    t: int


class Late(NamedTuple):
    """A delivery to a consumer that was gone."""

    id: int
    consumer: int
    since: int
    seq: int
    t: int


class Over(NamedTuple):
    """A delivery with which a consumer holds more messages than its prefetch count."""

    id: int
    consumer: int
    held: int
    prefetch: int
    since: int
    """seq of its CONSUMER_ADDED."""
    seq: int
    t: int


@dataclass(slots=True)
class Held:
    """The unacked deliveries of the consumers of one queue process."""

    words: dict[int, int] = field(default_factory=dict)
    """Sequence id -> consumer and tag."""
    of_consumers: dict[int, dict[int, int]] = field(default_factory=dict)
    """Consumer -> sequence id -> tag."""
    gone: dict[int, int] = field(default_factory=dict)
    """Consumer -> seq of its first CONSUMER_GONE."""
    going_back: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sequence id -> its consumer, and seq of the CONSUMER_GONE after which it has to be requeued."""
    named: tuple[int, int] = (0, 0)
    """Consumer and tag that the last row named, if it was EACH, and its seq; else 0."""
    misfits: list[Misfit] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    over: list[Over] = field(default_factory=list)
    prefetch: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Consumer -> its prefetch count, and seq of its CONSUMER_ADDED; those without one are not here."""
    settled: int = 0
    """Messages settled by tags."""
    settled_singly: int = 0
    """Deliveries of these that were settled one by one."""
    consumers_gone: int = 0
    consumers_limited: int = 0

    def take(self, step: tuple[int, ...], asked: Sequence[Callable[..., Any]]) -> None:
        """Handle the next step."""
        which, first, n, word, seq, t = step
        if self.going_back and which not in {GIVEN_BACK, GONE, ADDED}:
            self.keep(t)
        if which <= NO_ACK_DELIVERED:
            self._deliver(which, first, n, word, seq, t)
        elif which == GONE:
            self._lose(word >> CONSUMER_SHIFT, first, seq)
        elif which == ADDED:
            if first:
                self.prefetch[word >> CONSUMER_SHIFT] = first, seq
                self.consumers_limited += 1
        else:
            self._settle(which, first, n, word, seq, t, asked)
        self.named = (word, seq) if which == EACH else (0, 0)

    def _deliver(self, which: int, first: int, n: int, word: int, seq: int, t: int) -> None:
        consumer = word >> CONSUMER_SHIFT
        if consumer in self.gone:
            self.late.append(Late(first, consumer, self.gone[consumer], seq, t))
        if which == DELIVERED:
            its = self.of_consumers.setdefault(consumer, {})
            for id_ in range(first, first + n):
                self.words[id_] = word
                its[id_] = word & TAG
                word += 1
            if (limit := self.prefetch.get(consumer)) is not None and len(its) > limit[0]:
                self.over.append(Over(first, consumer, len(its), *limit, seq, t))

    def _settle(
        self, which: int, first: int, n: int, word: int, seq: int, t: int, asked: Sequence[Callable[..., Any]]
    ) -> None:
        if which in {EACH, UP_TO}:
            self.settled += n
            self.settled_singly += n if which == EACH else 0
        named, named_at = self.named
        again = which == EACH and word == named
        if again and self.misfits and self.misfits[-1].seq == named_at:
            self.misfits[-1] = self.misfits[-1]._replace(several=True)
        for place in range(n):
            held = self.words.pop(first + place, None)
            if held is None:
                continue
            self.of_consumers[held >> CONSUMER_SHIFT].pop(first + place, None)
            self.going_back.pop(first + place, None)
            for fine in asked:
                if not fine(which, word + place if which == EACH else word, held):
                    misfit = Misfit(first + place, held, which, word, place, again or n > 1, seq, t)
                    self.misfits.append(misfit)

    def _lose(self, consumer: int, taken: int, seq: int) -> None:
        self.gone.setdefault(consumer, seq)
        self.consumers_gone += 1
        if taken >= 0:
            for id_, tag in self.of_consumers.get(consumer, {}).items():
                if tag > taken:
                    self.going_back[id_] = consumer, seq

    def keep(self, t: int) -> None:
        """Note that by now everything should have been given back."""
        of_each: dict[tuple[int, int], list[int]] = {}
        for id_, whose in self.going_back.items():
            of_each.setdefault(whose, []).append(id_)
        self.kept += [Kept(*whose, ids, t) for whose, ids in of_each.items()]
        self.going_back.clear()


class Settles(Machine):
    """Follows what the consumers of a queue hold."""

    name: ClassVar[str] = "settles"
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP, Ev.CONSUMER_ADDED, Ev.CONSUMER_GONE}
    )

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, array[int]]]:
        steps: list[int] = []
        for row in rows:
            word = row.who & 0xFFFF
            if word >> 8 == _DELIVER:
                first, n, consumer, tag = _given(row)
                which = step_of(word, consumer, 0)
            elif word >> 8 == _GONE:
                (first, n, consumer), tag, which = _lost(row), 0, GONE
            elif word >> 8 == _ADDED:
                (first, consumer), n, tag, which = _added(row), 0, 0, step_of(word, 1, 0)
            else:
                first, n, consumer, tag = _named(row)
                which = step_of(word, consumer | tag, word >> 8 == _DROP and _rejected_up_to(row)[0])
            if which is not None:
                whose = (consumer & _CONSUMER) << CONSUMER_SHIFT | tag & TAG
                steps += (which, first, n, whose, row.seq, row.t)
        if steps:
            yield (piece.run, piece.actor), array("q", steps)

    def start(self, key: Key) -> Held:
        return Held()

    def absorb(self, state: Held, summary: array[int]) -> None:
        numbers = iter(summary)
        asked = questions(self.judges)
        for step in zip(*[numbers] * WIDTH, strict=True):
            state.take(step, asked)

    def finish(self, key: Key, state: Held, context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        mark = context.actor_summary(who)
        ended = max(mark.last_sync, mark.closed.seq if mark.closed is not None else 0)
        if mark.last_act is not None and any(since < ended for _, since in state.going_back.values()):
            state = replace(state, kept=list(state.kept), going_back=dict(state.going_back))
            state.keep(mark.last_act[0])
        outcome = Outcome()
        for judge in self.judges.values():
            judge.decide(who, state, context, outcome)
        _count(outcome, state.settled, state.settled_singly, state.consumers_gone, state.consumers_limited)
        return outcome


_LONGEST_ROW = 1 << 20
"""Messages in one row that are looked at one by one."""
_ID, _WHICH, _WORD, _SEQ = range(4)
_NOTHING = -1
NEVER = 1 << 62


def _count(outcome: Outcome, *counted: int) -> None:
    """Put the numbers of messages and consumers that each rule looked at into the outcome."""
    outcome.figures.update(
        {(EXERCISED, rule): n for rule, n in zip(("A1", "A2", "A3", "A4"), counted, strict=True)}
    )


class Settled(NamedTuple):
    """The deliveries of a queue process as arrays, consumer by consumer, and how each was settled."""

    consumer: Ints
    tag: Ints
    how: Ints
    """-1 if it was not."""
    when: Ints
    """seq; NEVER if it was not."""
    added: Ints
    """(consumer, prefetch count)"""
    most: Ints
    """(consumer, the most messages that it held, or more)"""


@cache
def _steps_table() -> Ints:
    """step_of for each word, and both of its other arguments; -1 = none."""
    table = np.full((1 << 16, 2, 2), _NOTHING, np.int64)
    for event in Settles.events:
        for flag, names, up_to in product(range(256), (0, 1), (0, 1)):
            which = step_of(event << 8 | flag, names, up_to)
            table[event << 8 | flag, names, up_to] = _NOTHING if which is None else which
    return table


class SettlesPrecheck(Precheck):
    """The array form of the pass; see the module."""

    machine: ClassVar[type[Machine]] = Settles

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(Settles.events)
        of_consumer = (rows.event == _DELIVER) | (rows.event == _GONE) | (rows.event == _ADDED)
        consumer = np.where(of_consumer, OfConsumer.of(rows).consumer, Named.of(rows).consumer)
        tag = np.where(rows.event == _DELIVER, Deliver.of(rows).delivery_tag, Named.of(rows).delivery_tag)
        names = consumer | np.where(of_consumer, 0, tag)
        which = _steps_table()[
            rows.who & 0xFFFF, (names != 0).astype(np.int64), (Drop.of(rows).multiple != 0).astype(np.int64)
        ]
        words = (consumer & _CONSUMER) << CONSUMER_SHIFT | tag & TAG
        chosen = which != _NOTHING
        rows, which, words = rows.where(chosen), which[chosen], words[chosen]
        for actor, its in groups(rows.actor):
            yield (unit.run, actor), self._left_of(rows.between(its.start, its.stop), which[its], words[its])

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        entries, gone, lasts, firsts, added, levels = joined(open_rows, 4, 4, 2, 1, 2, 4)
        pairs = self._pairs(entries)
        if pairs is None:
            return None
        settled = Settled(*_settled(entries, *pairs), added, _most(levels))
        if not all(
            judge.proves(settled, gone, lasts, np.sort(firsts[:, 0])) for judge in self.judges.values()
        ):
            return None
        outcome = Outcome()
        _count(outcome, *np.sum([each[6] for each in open_rows], axis=0).tolist())
        return outcome

    def _left_of(self, rows: Rows, which: Ints, word: Ints) -> OpenRows:
        """The rows of one queue process in a unit."""
        is_gone, is_added = which == GONE, which == ADDED
        moves = ~(is_gone | is_added)
        first, n = Named.of(rows).first_seq_id, Named.of(rows).count
        if np.any(n[moves] > _LONGEST_ROW):
            return NEEDS_FULL_CHECK
        held = np.flatnonzero(moves & (which != NO_ACK_DELIVERED))
        row, ids = expand(first[held], n[held])
        row = held[row]
        one_by_one = (which[row] == DELIVERED) | (which[row] == EACH)
        words = word[row] + np.where(one_by_one, ids - first[row], 0)
        entries = np.stack((ids, which[row], words, rows.seq[row]), axis=1)
        pairs = self._pairs(entries)
        if pairs is None:
            return NEEDS_FULL_CHECK
        others = rows.seq[moves & (which != GIVEN_BACK)]
        lost = rows.where(is_gone)
        consumers = word >> CONSUMER_SHIFT
        gone = np.stack(
            (consumers[is_gone], ConsumerGone.of(lost).last_tag, lost.seq, next_of(others, lost.seq)), axis=1
        )
        keep = np.ones(len(entries), np.bool_)
        delivered, settled = pairs
        rest = (entries[settled, _WHICH] != GIVEN_BACK) & ~np.isin(
            entries[delivered, _WORD] >> CONSUMER_SHIFT, gone[:, 0]
        )
        keep[delivered[rest]] = keep[settled[rest]] = False
        each = np.maximum(n[which == EACH], 0).sum()
        prefetch = ConsumerAdded.of(rows.where(is_added)).prefetch
        added = np.stack((consumers[is_added], prefetch), axis=1)[prefetch > 0]
        counted = np.array(
            [each + np.maximum(n[which == UP_TO], 0).sum(), each, len(gone), len(added)], np.int64
        )
        of_delivery = which <= NO_ACK_DELIVERED
        lasts = _lasts(consumers[of_delivery], rows.seq[of_delivery])
        levels = _levels(
            consumers[held], np.where(which[held] == DELIVERED, n[held], -n[held]), rows.seq[held]
        )
        return (
            entries[keep].reshape(-1), gone.reshape(-1), lasts.reshape(-1), others[:1], added.reshape(-1), levels.reshape(-1), counted
        )  # fmt: skip

    def _pairs(self, entries: Ints) -> tuple[Ints, Ints] | None:
        """Places of deliveries, and for each of its settling; None if any is not fine, or something is there
        without the other.
        """
        order = np.lexsort((entries[:, _SEQ], entries[:, _ID]))
        id_, which = entries[order, _ID], entries[order, _WHICH]
        is_delivery = which == DELIVERED
        same = id_[1:] == id_[:-1]
        if np.any(same & (is_delivery[1:] == is_delivery[:-1])):
            return None
        at = np.flatnonzero(same & is_delivery[:-1])
        delivered, settled = order[at], order[at + 1]
        how, named = entries[settled, _WHICH], entries[settled, _WORD]
        fine = (np.all(each(how, named, entries[delivered, _WORD])) for each in questions(self.judges))
        return (delivered, settled) if all(fine) else None


def _settled(entries: Ints, delivered: Ints, settled: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The first four columns of Settled."""
    how, when = np.full(len(entries), _NOTHING, np.int64), np.full(len(entries), NEVER, np.int64)
    how[delivered], when[delivered] = entries[settled, _WHICH], entries[settled, _SEQ]
    deliveries = np.flatnonzero(entries[:, _WHICH] == DELIVERED)
    deliveries = deliveries[np.argsort(entries[deliveries, _WORD] >> CONSUMER_SHIFT, kind="stable")]
    word = entries[deliveries, _WORD]
    return word >> CONSUMER_SHIFT, word & TAG, how[deliveries], when[deliveries]


def _levels(consumers: Ints, change: Ints, seqs: Ints) -> Ints:
    """(consumer, its first seq, the sum of its changes, the largest sum on the way, 0 or more) of rising seqs."""
    order = np.argsort(consumers, kind="stable")
    consumers = consumers[order]
    begins = np.flatnonzero(np.diff(consumers, prepend=-1))
    if not len(begins):
        return np.zeros((0, 4), np.int64)
    sums = np.cumsum(change[order])
    ends = sums[np.append(begins, len(sums))[1:] - 1]
    before = np.append(0, ends[:-1])
    tops = np.maximum(np.maximum.reduceat(sums, begins) - before, 0)
    return np.stack((consumers[begins], seqs[order][begins], ends - before, tops), axis=1)


def _most(levels: Ints) -> Ints:
    """(consumer, the most that it held) out of the `_levels` of several units."""
    levels = levels[np.lexsort((levels[:, 1], levels[:, 0]))]
    before = np.cumsum(levels[:, 2]) - levels[:, 2]
    begins = np.flatnonzero(np.diff(levels[:, 0], prepend=-1))
    own = before - np.repeat(before[begins], np.diff(np.append(begins, len(levels))))
    return np.stack((levels[:, 0], own + levels[:, 3]), axis=1)


def next_of(ordered: Ints, wanted: Ints) -> Ints:
    """The next larger one for each of rising numbers; 0 for the last."""
    if not len(ordered):
        return np.zeros(len(wanted), np.int64)
    at = np.searchsorted(ordered, wanted, side="right")
    found: Ints = np.where(at < len(ordered), ordered[np.minimum(at, len(ordered) - 1)], 0)
    return found


def _lasts(consumers: Ints, seqs: Ints) -> Ints:
    """(consumer, the last of its rising seqs)."""
    found, places = np.unique(consumers[::-1], return_index=True)
    return np.stack((found, seqs[::-1][places]), axis=1)
