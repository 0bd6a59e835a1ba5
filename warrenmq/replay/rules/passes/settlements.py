"""Machine of what consumers settle: A1, A2 and A3.

Key: (run, queue actor), its rows in their order.  A delivery that has to be settled is held under its consumer and delivery tag
until an ACK, a REQUEUE or a DROP of its sequence id; these rows say which consumer and tag the client named (SETTLED in
trace/events.py).

    what the client named   the message was delivered    ==> otherwise
    ----------------------  ---------------------------  -------------------------------------------------------------
    one tag after another   under just these tags        A2 if one tag was named and older ones went with it, else A1
    MULTIPLE, up to a tag   under that tag or a lower one A1
    either                  to this consumer             A1
    nothing: RETURNED       to a consumer that is gone   -

A CONSUMER_GONE row says after which tag messages go back.  Their REQUEUE rows follow at once: when the queue delivers or settles
anything else, syncs or stops, and one of them is still held, that breaks A3; so does a delivery to a consumer that is gone.

Rows of traces that do not say who settled what are not judged, and neither are messages that were not held (Q1 does that).

Array form: Precheck of what consumers settle (settles.py): each delivery with the row that settles it, side by side.

Rows become entries of single messages.  Sorted by sequence id, a delivery and a settling take turns, and each pair is fine if what was
named fits what was delivered.  Of a unit there are left, by queue process:

    entries   (sequence id, which, consumer and tag, seq): deliveries and settlings that have not met, and pairs that a
              CONSUMER_GONE row of the unit, or of another one, may speak of
    gone      (consumer, last tag that was taken, seq, seq of the next row of the unit that gives nothing back, or 0)
    lasts     (consumer, seq of its last delivery)
    first     seq of the unit's first row that gives nothing back
    judged    how many messages and consumers the rules were asked about

A pair that met in one unit can only matter to a CONSUMER_GONE row of that unit, unless it was delivered after one.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, expand, groups, np
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import (
    DEAD_LETTERED,
    DROP_REJECTED,
    MULTIPLE,
    NO_ACK,
    RETURNED,
    Ev,
)
from warrenmq.trace.index import Row
from warrenmq.trace.settled import CONSUMER_SHIFT, settled_by

_DELIVER, _DROP, _GONE = int(Ev.DELIVER), int(Ev.DROP), int(Ev.CONSUMER_GONE)
_TAG = (1 << CONSUMER_SHIFT) - 1

DELIVERED, NO_ACK_DELIVERED, UNTOLD, EACH, UP_TO, GIVEN_BACK, GONE = range(7)
"""What a step is: a delivery, one that needs no ack; a settling by nobody knows whom, tag by tag, up to a tag; what a consumer that
is gone gives back; a consumer is gone."""
WIDTH = 6
"""Numbers of a step: (which, first sequence id or the last tag that was taken, how many, consumer and tag, seq, t)."""


def step_of(word: int, peer: int, pseq: int, c: int) -> int | None:
    """Which step a row of event << 8 | flag is; None for one that settles nothing, and a delivery to a consumer that is not said.

    | row                          | c = 0    | else               |
    | ---------------------------- | -------- | ------------------ |
    | ACK, REQUEUE                 | UNTOLD   | EACH               |
    | ACK MULTIPLE, REQUEUE ...    | UNTOLD   | UP_TO              |
    | REQUEUE RETURNED             |      GIVEN_BACK               |
    | DROP_REJECTED, pseq = 0 or 1 | UNTOLD   | EACH or UP_TO      |
    | any other DROP               |      None                     |
    """
    event, flag = word >> 8, word & 0xFF
    if event == _DELIVER:
        return None if not peer else NO_ACK_DELIVERED if flag & NO_ACK else DELIVERED
    if event == _GONE:
        return GONE
    if event == _DROP:
        if flag & ~DEAD_LETTERED != DROP_REJECTED:
            return None
        flag = MULTIPLE if pseq else 0
    elif flag == RETURNED:
        return GIVEN_BACK
    return UNTOLD if not c else UP_TO if flag == MULTIPLE else EACH


@dataclass(slots=True)
class Problem:
    """What is wrong with one row; `id` is a sequence id."""

    rule: str
    text: str
    id: int
    seqs: tuple[int, ...]
    t: int


@dataclass(slots=True)
class Held:
    """What the consumers of one queue process hold."""

    words: dict[int, int] = field(default_factory=dict)
    """Sequence id -> consumer and tag."""
    of_consumers: dict[int, dict[int, int]] = field(default_factory=dict)
    """Consumer -> sequence id -> tag."""
    gone: dict[int, int] = field(default_factory=dict)
    """Consumer -> seq of its first CONSUMER_GONE."""
    going_back: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sequence id -> its consumer, and seq of the CONSUMER_GONE after which it has to be requeued."""
    named: int = 0
    """Consumer and tag that the last row named, if it was EACH; else 0."""
    older: Problem | None = None
    """That row settled one message, an older one than it named: which rule that breaks is known when the next row names the same tag."""
    judged: dict[str, int] = field(default_factory=lambda: {"A1": 0, "A2": 0, "A3": 0})
    problems: list[Problem] = field(default_factory=list)

    def take(self, which: int, first: int, n: int, word: int, seq: int, t: int) -> None:
        """The next step."""
        if self.going_back and which not in {GIVEN_BACK, GONE}:
            self.complain_of_kept(t)
        if which <= NO_ACK_DELIVERED:
            self._deliver(which, first, n, word, seq, t)
        elif which == GONE:
            self._lose(word >> CONSUMER_SHIFT, first, seq)
        else:
            self._settle(which, first, n, word, seq, t)
        if which != EACH:
            self.named, self.older = 0, None

    def _deliver(self, which: int, first: int, n: int, word: int, seq: int, t: int) -> None:
        consumer = word >> CONSUMER_SHIFT
        if consumer in self.gone:
            text = f"{first} was delivered to consumer {consumer}, which was gone"
            self.problems.append(Problem("A3", text, first, (self.gone[consumer], seq), t))
        if which == DELIVERED:
            its = self.of_consumers.setdefault(consumer, {})
            for id_ in range(first, first + n):
                self.words[id_] = word
                its[id_] = word & _TAG
                word += 1

    def _settle(self, which: int, first: int, n: int, word: int, seq: int, t: int) -> None:
        if which in {EACH, UP_TO}:
            self.judged["A1"] += n
            self.judged["A2"] += n if which == EACH else 0
        again = which == EACH and word == self.named
        if again and self.older is not None:
            self.older.rule = "A2"
        self.named, self.older = (word if which == EACH else 0), None
        found: dict[str, Problem] = {}
        for place in range(n):
            held = self.words.pop(first + place, None)
            if held is None:
                continue
            consumer, tag = held >> CONSUMER_SHIFT, held & _TAG
            self.of_consumers[consumer].pop(first + place, None)
            self.going_back.pop(first + place, None)
            text = wrong(which, word + (place if which == EACH else 0), consumer, tag)
            if text:
                is_older = which == EACH and consumer == word >> CONSUMER_SHIFT and tag < word & _TAG
                rule = "A2" if is_older and (n > 1 or again) else "A1"
                problem = found.setdefault(
                    rule, Problem(rule, f"{first + place}, {text}", first + place, (seq,), t)
                )
                if is_older and rule == "A1":
                    self.older = problem
        self.problems += found.values()

    def _lose(self, consumer: int, taken: int, seq: int) -> None:
        self.judged["A3"] += 1
        self.gone.setdefault(consumer, seq)
        if taken >= 0:
            for id_, tag in self.of_consumers.get(consumer, {}).items():
                if tag > taken:
                    self.going_back[id_] = consumer, seq

    def complain_of_kept(self, t: int) -> None:
        """By now everything should have been given back."""
        of_each: dict[tuple[int, int], list[int]] = {}
        for id_, (consumer, since) in self.going_back.items():
            of_each.setdefault((consumer, since), []).append(id_)
        for (consumer, since), ids in of_each.items():
            text = (
                f"consumer {consumer} is gone, and {len(ids)} messages from {min(ids)} on did not come back"
            )
            self.problems.append(Problem("A3", text, min(ids), (since,), t))
        self.going_back.clear()


def wrong(which: int, word: int, consumer: int, tag: int) -> str:
    """What is wrong, if a message that this consumer has under this tag is settled so; else nothing."""
    if which not in {EACH, UP_TO}:
        return ""
    named, up_to = word >> CONSUMER_SHIFT, word & _TAG
    if named == consumer and (tag == up_to or (which == UP_TO and tag < up_to)):
        return ""
    how = "all up to tag" if which == UP_TO else "tag"
    return f"which consumer {consumer} has under tag {tag}, was settled when consumer {named} named {how} {up_to}"


class Settles(Machine):
    """See the module."""

    name: ClassVar[str] = "settles"
    events: ClassVar[frozenset[int]] = frozenset({Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP, Ev.CONSUMER_GONE})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, array[int]]]:
        steps: list[int] = []
        for t, seq, _, peer, pseq, a, b, c, who in rows:
            which = step_of(who & 0xFFFF, peer, pseq, c)
            if which is not None:
                steps += (which, a, b, c if UNTOLD <= which < GONE else settled_by(peer, c), seq, t)
        if steps:
            yield (piece.run, piece.actor), array("q", steps)

    def start(self, key: Key) -> Held:
        return Held()

    def absorb(self, state: Held, summary: array[int]) -> None:
        numbers = iter(summary)
        for step in zip(*[numbers] * WIDTH, strict=True):
            state.take(*step)

    def finish(self, key: Key, state: Held, context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        mark = context.actor_summary(who)
        ended = max(mark.last_sync, mark.closed[1] if mark.closed is not None else 0)
        if mark.last_act is not None and any(since < ended for _, since in state.going_back.values()):
            state = replace(state, problems=list(state.problems), going_back=dict(state.going_back))
            state.complain_of_kept(mark.last_act[0])
        outcome = Outcome()
        subject = f"queue {context.name(who)}"
        for each in state.problems:
            rows = tuple((*who, seq) for seq in each.seqs)
            outcome.findings.append(Finding(each.rule, subject, each.text, rows, each.t, (who,), (each.id,)))
        outcome.figures.update({(EXERCISED, rule): n for rule, n in state.judged.items()})
        return outcome


_LONGEST_ROW = 1 << 20
"""Messages in one row that are looked at one by one."""
_ID, _WHICH, _WORD, _SEQ = range(4)
_NOTHING = -1
_NEVER = 1 << 62


@cache
def _steps_table() -> Ints:
    """step_of for each word, and peer, pseq and c = 0 or not; -1 = none."""
    table = np.full((1 << 16, 2, 2, 2), _NOTHING, np.int64)
    for event in (Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP, Ev.CONSUMER_GONE):
        for flag in range(256):
            for said in product((0, 1), repeat=3):
                which = step_of(event << 8 | flag, *said)
                table[event << 8 | flag, *said] = _NOTHING if which is None else which
    return table


class SettlesPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = Settles

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(Settles.events)
        said = [(column != 0).astype(np.int64) for column in (rows.peer, rows.pseq, rows.c)]
        which = _steps_table()[rows.who & 0xFFFF, *said]
        chosen = which != _NOTHING
        rows, which = rows.where(chosen), which[chosen]
        for actor, where in groups(rows.actor):
            yield (unit.run, actor), _left_of(rows.between(where.start, where.stop), which[where])

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found: Bools = np.isin(rows.actor, [int(key[1]) for key in keys if key[0] == run])
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        entries, gone, lasts = (
            np.concatenate([each[part].reshape(-1, width) for each in open_rows])
            for part, width in ((0, 4), (1, 4), (2, 2))
        )
        firsts = np.sort(np.concatenate([each[3] for each in open_rows]))
        pairs = _pairs(entries)
        if pairs is None or not _come_back(entries, pairs, gone, lasts, firsts):
            return None
        judged = np.sum([each[4] for each in open_rows], axis=0).tolist()
        outcome = Outcome()
        outcome.figures.update(
            {(EXERCISED, rule): n for rule, n in zip(("A1", "A2", "A3"), judged, strict=True)}
        )
        return outcome


def _left_of(rows: Rows, which: Ints) -> OpenRows:
    """The rows of one queue process in a unit."""
    is_gone = which == GONE
    if np.any(rows.b[~is_gone] > _LONGEST_ROW):
        return NEEDS_FULL_CHECK
    of_delivery = which <= NO_ACK_DELIVERED
    of_consumer = of_delivery | is_gone
    word = np.where(of_consumer, (rows.peer & (1 << 31) - 1) << CONSUMER_SHIFT | rows.c & _TAG, rows.c)
    held = np.flatnonzero(~is_gone & (which != NO_ACK_DELIVERED))
    row, ids = expand(rows.a[held], rows.b[held])
    row = held[row]
    one_by_one = (which[row] == DELIVERED) | (which[row] == EACH)
    words = word[row] + np.where(one_by_one, ids - rows.a[row], 0)
    entries = np.stack((ids, which[row], words, rows.seq[row]), axis=1)
    pairs = _pairs(entries)
    if pairs is None:
        return NEEDS_FULL_CHECK
    others = rows.seq[(which != GONE) & (which != GIVEN_BACK)]
    gone = np.stack(
        (
            word[is_gone] >> CONSUMER_SHIFT,
            rows.a[is_gone],
            rows.seq[is_gone],
            _next_of(others, rows.seq[is_gone]),
        ),
        axis=1,
    )
    keep = np.ones(len(entries), np.bool_)
    delivered, settled = pairs
    rest = (entries[settled, _WHICH] != GIVEN_BACK) & ~np.isin(
        entries[delivered, _WORD] >> CONSUMER_SHIFT, gone[:, 0]
    )
    keep[delivered[rest]] = keep[settled[rest]] = False
    told = (which == EACH) | (which == UP_TO)
    judged = [
        int(np.maximum(rows.b[told], 0).sum()),
        int(np.maximum(rows.b[which == EACH], 0).sum()),
        len(gone),
    ]
    return (
        entries[keep].reshape(-1), gone.reshape(-1), _lasts(word[of_delivery] >> CONSUMER_SHIFT, rows.seq[of_delivery]).reshape(-1),
        others[:1], np.array(judged, np.int64),
    )  # fmt: skip


def _next_of(ordered: Ints, wanted: Ints) -> Ints:
    """For each number the next larger one of rising ones; 0 = there is none."""
    if not len(ordered):
        return np.zeros(len(wanted), np.int64)
    at = np.searchsorted(ordered, wanted, side="right")
    found: Ints = np.where(at < len(ordered), ordered[np.minimum(at, len(ordered) - 1)], 0)
    return found


def _lasts(consumers: Ints, seqs: Ints) -> Ints:
    """(consumer, the last of its rising seqs)."""
    found, places = np.unique(consumers[::-1], return_index=True)
    return np.stack((found, seqs[::-1][places]), axis=1)


def _pairs(entries: Ints) -> tuple[Ints, Ints] | None:
    """Places of deliveries, and for each of its settling; None if any is not fine, or something is there without the other."""
    order = np.lexsort((entries[:, _SEQ], entries[:, _ID]))
    id_, which = entries[order, _ID], entries[order, _WHICH]
    is_delivery = which == DELIVERED
    same = id_[1:] == id_[:-1]
    if np.any(same & (is_delivery[1:] == is_delivery[:-1])):
        return None
    at = np.flatnonzero(same & is_delivery[:-1])
    delivered, settled = order[at], order[at + 1]
    has, named, how = entries[delivered, _WORD], entries[settled, _WORD], entries[settled, _WHICH]
    fine = np.select(
        [how == EACH, how == UP_TO],
        [has == named, (has >> CONSUMER_SHIFT == named >> CONSUMER_SHIFT) & (has <= named)],
        default=(how == UNTOLD) | (how == GIVEN_BACK),
    )
    return (delivered, settled) if np.all(fine) else None


def _come_back(entries: Ints, pairs: tuple[Ints, Ints], gone: Ints, lasts: Ints, firsts: Ints) -> bool:
    """True if consumers that are gone got nothing more, and what they gave back came back at once."""
    if not len(gone):
        return True
    last_of: dict[int, int] = {}
    for consumer, seq in lasts.tolist():
        last_of[consumer] = max(last_of.get(consumer, 0), seq)
    delivered, settled = pairs
    deliveries = np.flatnonzero(entries[:, _WHICH] == DELIVERED)
    how, when = np.full(len(entries), _NOTHING, np.int64), np.full(len(entries), _NEVER, np.int64)
    how[delivered], when[delivered] = entries[settled, _WHICH], entries[settled, _SEQ]
    consumers = entries[deliveries, _WORD] >> CONSUMER_SHIFT
    order = np.argsort(consumers, kind="stable")
    deliveries, consumers = deliveries[order], consumers[order]
    for consumer, taken, seq, next_other in gone.tolist():
        if last_of.get(consumer, 0) > seq:
            return False
        if taken < 0:
            continue
        its = deliveries[
            np.searchsorted(consumers, consumer) : np.searchsorted(consumers, consumer, side="right")
        ]
        its = its[(entries[its, _WORD] & _TAG > taken) & (when[its] > seq)]
        later = next_other or int(_next_of(firsts, np.array([seq]))[0]) or _NEVER
        if np.any((how[its] != GIVEN_BACK) | (when[its] >= later)):
            return False
    return True
