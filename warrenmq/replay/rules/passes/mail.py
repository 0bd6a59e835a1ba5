"""Pass of messages between actors, for T2 and T4: it brings each receive together with its SEND.

A SEND is known by (sender, seq); RECV, PUBLISH, ACK and UNDELIVERED name it.  Key: (run, sender, seq >> 12 of
the SEND), so both sides meet wherever they were written.  Their order does not matter: whichever comes first
waits for the other, and a receive by an actor that the SEND was not for never counts as its receive.

Of a rule (`judge`):

    fine(t of the SEND, its receiver, t of the receive, actor that received, whether UNDELIVERED)
    decide(key, bucket, context, outcome)      the bucket has the pairs that were not fine, second receives, receives without a SEND

A SEND without a receive is no violation: it may lie in a mailbox.

Array form: a SEND and its one receive, wherever they are, cancel each other.  Open rows are the sends without
a receive (seq, t, receiver) and the receives without a send (seq of the SEND, t, actor, 1 = UNDELIVERED),
flat.  At the end sends may be left, receives may not.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import (
    Bools,
    Ints,
    Rows,
    Unit,
    codes,
    doubles,
    expand,
    look_up,
    np,
    parts_of,
    touches,
)
from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.rules.rule import questions
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import Ev, Publish, Send
from warrenmq.trace.index import Row
from warrenmq.trace.receives import RECEIVES, Receive

SHIFT = 12
_MASK = (1 << SHIFT) - 1
_SEND, _UNDELIVERED, _PUBLISH = int(Ev.SEND), int(Ev.UNDELIVERED), int(Ev.PUBLISH)


_sent = Send.getter("t", "seq", "receiver")
_received = Receive.getter("t", "seq", "sender", "send")
_sends_of = Publish.getter("sends")

Halves = tuple[int, list[int], list[int]]
"""An actor's sends, flat (seq, t, receiver), and receives, flat (seq of the SEND, t, seq; negative seq = UNDELIVERED)."""


ANYONE = -1


def is_its_receiver(receiver: Any, actor: Any, undelivered: Any) -> Any:
    """A SEND that does not know its receiver is for any actor; an undelivered message comes back to its sender."""
    return (receiver == actor) | (receiver == 0) | undelivered


class Received(NamedTuple):
    """A receive; its SEND is known by its seq."""

    send: int
    actor: int
    t: int
    seq: int


@dataclass(slots=True)
class Bucket:
    """4,096 rows of one sender."""

    sent: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Messages that were not received yet: seq -> (seq, t, receiver)."""
    taken: array[int] = field(default_factory=lambda: array("i"))
    """The receivers of those that were received, 0 of others, up to the last that a receive names; ANYONE of
    one that did not name it.
    """
    waiting: dict[int, list[Received]] = field(default_factory=dict)
    """Receives whose SEND has not come yet, by its seq."""
    odd: list[tuple[int, int, bool, Received]] = field(default_factory=list)
    """Pairs that are not as they should be: (t of the SEND or 0, receiver, whether UNDELIVERED, the receive)."""
    again: list[Received] = field(default_factory=list)
    """Receives of what was received before."""


class Mail(Machine):
    """Pairs the SENDs and receives of a trace."""

    name: ClassVar[str] = "mail"
    events: ClassVar[frozenset[int]] = RECEIVES | {Ev.SEND}

    def __init__(self, runs: Sequence[Run], judges: Mapping[str, Any] | None = None) -> None:
        super().__init__(runs, judges)
        self._asked = questions(self.judges)

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Halves]]:
        run, actor = piece.run, piece.actor
        found: dict[tuple[int, int], Halves] = {}
        last: tuple[int, int] | None = None
        halves: Halves = (actor, [], [])
        for row in rows:
            event = row.who >> 8 & 0xFF
            if event == _SEND:
                t, seq, receiver = _sent(row)
                key = (actor, seq >> SHIFT)
            else:
                t, seq, sender, send = _received(row)
                if send <= 0:
                    continue
                if event == _PUBLISH:  # one row for publishes that were sent one after the other
                    for each in range(send, send + max(_sends_of(row)[0], 1)):
                        found.setdefault((sender, each >> SHIFT), (actor, [], []))[2].extend((each, t, seq))
                    continue
                key = (sender or actor, send >> SHIFT)
            if key != last:
                last = key
                halves = found.setdefault(key, (actor, [], []))
            if event == _SEND:
                halves[1].extend((seq, t, receiver))
            else:
                halves[2].extend((send, t, seq if event != _UNDELIVERED else -seq))
        for (sender, bucket), its in found.items():
            yield (run, sender, bucket), its

    def start(self, key: Key) -> Bucket:
        return Bucket()

    def absorb(self, state: Bucket, summary: Halves) -> None:
        actor, sends, receives = summary
        numbers = iter(sends)
        for each in zip(numbers, numbers, numbers, strict=True):
            state.sent[each[0]] = each
            if state.waiting:
                for receive in state.waiting.pop(each[0], ()):
                    self._meet(state, *receive)
        sent, taken, asked = state.sent, state.taken, self._asked
        if receives:
            more = (max(receives[::3]) & _MASK) + 1 - len(taken)
            taken.frombytes(bytes(taken.itemsize * max(0, more)))
        numbers = iter(receives)
        for send, t, seq in zip(numbers, numbers, numbers, strict=True):
            found = sent.get(send)
            if found is None:
                self._meet(state, send, actor, t, seq)
                continue
            for fine in asked:
                if not fine(found[1], found[2], t, actor, seq < 0):
                    self._meet(state, send, actor, t, seq)
                    break
            else:
                del sent[send]
                taken[send & _MASK] = found[2] or ANYONE

    def _meet(self, state: Bucket, send: int, actor: int, t: int, seq: int) -> None:
        """A receive looks for its SEND."""
        found = state.sent.get(send)
        _, sent_t, receiver = found or (0, 0, state.taken[send & _MASK])
        if found is None and not receiver:
            state.waiting.setdefault(send, []).append(Received(send, actor, t, seq))
            return
        undelivered, receive = seq < 0, Received(send, actor, t, abs(seq))
        if receiver != ANYONE and not is_its_receiver(receiver, actor, undelivered):
            state.odd.append((sent_t, receiver, undelivered, receive))
        elif found is None:
            state.again.append(receive)
        else:
            del state.sent[send]
            state.taken[send & _MASK] = receiver or ANYONE
            if not all(fine(sent_t, receiver, t, actor, undelivered) for fine in self._asked):
                state.odd.append((sent_t, receiver, undelivered, receive))

    def finish(self, key: Key, state: Bucket, context: TraceContext) -> Outcome:
        outcome = Outcome()
        for judge in self.judges.values():
            judge.decide(key, state, context, outcome)
        outcome.figures["messages between actors", "in flight at the end"] = len(state.sent)
        return outcome

    def prune(self, key: Key, state: Bucket, context: TraceContext) -> bool:
        """True when the sender is past these rows and no SEND is open; a second receive of one is then still T2, as a
        receive without a SEND.
        """
        coverage = context.coverage.get((int(key[0]), int(key[1])))
        is_past = coverage is not None and coverage.last_seq >= (int(key[2]) + 1) << SHIFT
        return is_past and not state.sent and not state.waiting


def misreceived(
    rule: str,
    key: Key,
    receive: Received,
    text: str,
    context: TraceContext,
    needs: tuple[Who, ...] | None = None,
) -> Finding:
    """A finding about a receive.  Of one whose SEND is not there: the actors that might have written it."""
    run, sender = int(key[0]), int(key[1])
    rows = ((run, receive.actor, abs(receive.seq)),)
    return Finding(
        rule,
        f"message {receive.send} of actor {context.name((run, sender))}",
        text,
        rows if needs is not None else ((run, sender, receive.send), *rows),
        receive.t,
        needs or (),
    )


class MailPrecheck(Precheck):
    """The array form of the pass; see the module."""

    machine: ClassVar[type[Machine]] = Mail

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        sent = unit.of(frozenset({Ev.SEND}))
        took = unit.of(RECEIVES)
        took = took.where(Receive.of(took).send > 0)
        is_publish = took.event == Ev.PUBLISH
        several = np.where(is_publish, np.maximum(Publish.of(took).sends, 1), 1)
        row, send = expand(Receive.of(took).send, several)
        named = Receive.of(took).sender
        sender = np.where((named == 0) & ~is_publish, took.actor, named).take(row)
        undelivered = took.event == Ev.UNDELIVERED
        receives = (send, took.t.take(row), took.actor.take(row), undelivered.take(row).astype(np.int64))
        sends = (sent.seq, sent.t, Send.of(sent).receiver)
        open_sends, open_receives, wrong = self._meet(
            sends, receives, *codes((sent.actor, sender), (sent.seq, send))
        )
        unproven = {
            (each, at >> SHIFT) for each, at in zip(sender[wrong].tolist(), send[wrong].tolist(), strict=True)
        }
        for key in unproven:
            yield (unit.run, *key), NEEDS_FULL_CHECK
        unmet = np.stack([each[open_sends] for each in (sent.actor, *sends)], axis=1)
        unsent = np.stack([each[open_receives] for each in (sender, *receives)], axis=1)
        numbers = codes((unmet[:, 0], unsent[:, 0]), (unmet[:, 1] >> SHIFT, unsent[:, 1] >> SHIFT))
        for _, (left, right) in parts_of((numbers[0], unmet), (numbers[1], unsent)):
            whose, number = (left if len(left) else right)[:2].tolist()
            if (whose, number >> SHIFT) not in unproven:
                tables = left.reshape(-1, 4)[:, 1:], right.reshape(-1, 5)[:, 1:]
                yield (unit.run, whose, number >> SHIFT), tuple(map(np.ravel, tables))

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found = np.zeros(len(rows), np.bool_)
        sends = rows.event == Ev.SEND
        publishes = rows.event == Ev.PUBLISH
        receive = Receive.of(rows)
        mine = sends | ((receive.sender == 0) & ~publishes)
        sender = np.where(mine, rows.actor, receive.sender)
        first = np.where(sends, rows.seq, receive.send)
        last = first + np.where(publishes, np.maximum(Publish.of(rows).sends, 1), 1) - 1
        buckets: dict[int, list[int]] = {}
        for of_run, whose, bucket in keys:
            if of_run == run:
                buckets.setdefault(int(whose), []).append(int(bucket))
        for whose, its in buckets.items():
            found |= (sender == whose) & touches(first >> SHIFT, last >> SHIFT, np.sort(np.array(its)))
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        sends, receives = joined(open_rows, 3, 4)
        sends = sends[np.argsort(sends[:, 0], kind="stable")]
        open_sends, open_receives, wrong = self._meet([*sends.T], [*receives.T], sends[:, 0], receives[:, 0])
        if wrong.any() or open_receives.any() or doubles(sends[:, 0]).any():
            return None
        outcome = Outcome()
        outcome.figures["messages between actors", "in flight at the end"] = int(open_sends.sum())
        return outcome

    def _meet(
        self, sends: Sequence[Ints], receives: Sequence[Ints], send_codes: Ints, receive_codes: Ints
    ) -> tuple[Bools, Bools, Bools]:
        """Sends, by rising codes, and receives, as columns: which sends and which receives are open, which
        receives are not as they should be.
        """
        order = np.argsort(receive_codes, kind="stable")
        twice = np.empty(len(order), np.bool_)
        twice[order] = doubles(receive_codes.take(order))
        at, found = look_up(send_codes, receive_codes)
        if not len(send_codes):
            return np.zeros(0, np.bool_), ~found, twice
        _, sent_t, receiver = sends
        _, t, actor, undelivered = receives
        sent_t, receiver = sent_t.take(at), receiver.take(at)
        right = np.ones(len(receive_codes), np.bool_)
        for fine in questions(self.judges):
            right &= fine(sent_t, receiver, t, actor, undelivered != 0)
        open_sends = np.ones(len(send_codes), np.bool_)
        open_sends[at[found]] = False
        return open_sends, ~found, twice | (found & ~right)
