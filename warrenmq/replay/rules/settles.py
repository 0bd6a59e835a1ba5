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
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from warrenmq.replay.drive.machines import JUDGED, Finding, Key, Machine, Outcome
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
        outcome.figures.update({(JUDGED, rule): n for rule, n in state.judged.items()})
        return outcome
