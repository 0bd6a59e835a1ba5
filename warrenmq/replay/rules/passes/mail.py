"""Machine of messages between actors: every receive has its send (T2), which was before it (T4).

A SEND is known by (sender, seq); RECV, PUBLISH, ACK and UNDELIVERED name it by (peer, pseq).  Key: (run, sender,
seq >> 12 of the SEND), so both sides meet wherever they were written.  Their order does not matter: whichever comes first
waits for the other.

==========================  =======================  ========
receive                     its SEND                 verdict
==========================  =======================  ========
t above                     there, not received yet  fine
t not above                 there                    T4
any                         received before          T2
by another actor            names its receiver       T2
any                         not there                T2, if the sender's rows up to that t are whole
==========================  =======================  ========

A SEND that nobody received is no violation: it may lie in a mailbox.

Array form: Precheck of messages between actors (mail.py): a SEND and its one receive, wherever they are, cancel each other.

Open rows are the sends that nobody received (seq, t, receiver) and the receives without a send (seq of the SEND, t,
actor, 1 = UNDELIVERED), flat.  At the end sends may be left, they lie in mailboxes; receives may not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import (
    Bools,
    Ints,
    Rows,
    Unit,
    codes,
    doubles,
    expand,
    groups,
    look_up,
    np,
    touches,
)
from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import STRANGER, Chunk
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row

SHIFT = 12
_MASK = (1 << SHIFT) - 1
RECEIVES = frozenset({Ev.RECV, Ev.PUBLISH, Ev.ACK, Ev.UNDELIVERED})
_SEND, _UNDELIVERED, _PUBLISH = int(Ev.SEND), int(Ev.UNDELIVERED), int(Ev.PUBLISH)

Halves = tuple[int, list[int], list[int]]
"""An actor's sends, flat (seq, t, receiver), and receives, flat (pseq, t, seq; negative seq = UNDELIVERED)."""


@dataclass(slots=True)
class Bucket:
    """4,096 rows of one sender."""

    sent: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Not received yet: seq -> (seq, t, receiver)."""
    taken: bytearray = field(default_factory=lambda: bytearray(1 << SHIFT))
    """1 = received."""
    waiting: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Receives whose SEND has not come yet: seq of the SEND -> (actor, t, seq of the receive)."""
    problems: list[tuple[str, str, int, int, int, int]] = field(default_factory=list)
    """(rule, text, seq of the SEND, t, actor, seq)."""


class Mail(Machine):
    """See the module."""

    name: ClassVar[str] = "mail"
    events: ClassVar[frozenset[int]] = RECEIVES | {Ev.SEND}

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Halves]]:
        run, actor = piece.run, piece.actor
        found: dict[tuple[int, int], Halves] = {}
        last: tuple[int, int] | None = None
        halves: Halves = (actor, [], [])
        for t, seq, _, peer, pseq, _, _, c, who in rows:
            event = who >> 8 & 0xFF
            if event == _PUBLISH and pseq > 0:
                for each in range(
                    pseq, pseq + max(c, 1)
                ):  # one row for publishes that were sent one after the other
                    key = (peer, each >> SHIFT)
                    if key != last:
                        last = key
                        halves = found.setdefault(key, (actor, [], []))
                    halves[2].extend((each, t, seq))
                continue
            if event == _SEND:
                key = (actor, seq >> SHIFT)
            elif pseq > 0:
                key = (peer or actor, pseq >> SHIFT)
            else:
                continue  # the sender has no trace
            if key != last:
                last = key
                halves = found.setdefault(key, (actor, [], []))
            if event == _SEND:
                halves[1].extend((seq, t, peer))
            else:
                halves[2].extend((pseq, t, seq if event != _UNDELIVERED else -seq))
        for (sender, bucket), its in found.items():
            yield (run, sender, bucket), its

    def start(self, key: Key) -> Bucket:
        return Bucket()

    def absorb(self, state: Bucket, summary: Halves) -> None:
        sent, taken, waiting = state.sent, state.taken, state.waiting
        actor, sends, receives = summary
        numbers = iter(sends)
        for send in zip(numbers, numbers, numbers, strict=True):
            sent[send[0]] = send
            if waiting and (receive := waiting.pop(send[0], None)) is not None:
                self._meet(state, send[0], *receive)
        numbers = iter(receives)
        for pseq, t, seq in zip(numbers, numbers, numbers, strict=True):
            found = sent.get(pseq)
            if found is not None and found[1] < t and found[2] == actor:  # as it should be
                del sent[pseq]
                taken[pseq & _MASK] = 1
            else:
                self._meet(state, pseq, actor, t, seq)

    @staticmethod
    def _meet(state: Bucket, send: int, actor: int, t: int, seq: int) -> None:
        """A receive looks for its SEND."""
        found = state.sent.pop(send, None)
        place = send & _MASK
        if found is None:
            if state.taken[place] or send in state.waiting:
                state.problems.append(("T2", "was received twice", send, t, actor, abs(seq)))
            else:
                state.waiting[send] = (actor, t, seq)
            return
        state.taken[place] = 1
        _, sent_t, receiver = found
        if seq > 0 and receiver not in {0, actor}:
            state.problems.append(("T2", f"was sent to actor {receiver}", send, t, actor, seq))
        if sent_t >= t:
            text = f"was received {sent_t - t} ns before it was sent"
            state.problems.append(("T4", text, send, t, actor, abs(seq)))

    def finish(self, key: Key, state: Bucket, context: TraceContext) -> Outcome:
        run, sender = int(key[0]), int(key[1])
        outcome = Outcome()
        for rule, text, send, t, actor, seq in state.problems:
            evidence = ((run, sender, send), (run, actor, seq))
            outcome.findings.append(
                Finding(rule, self._subject(context, run, sender, send), text, evidence, t, ())
            )
        for send, (actor, t, seq) in state.waiting.items():
            text = f"was received by {context.name((run, actor))}, but there is no such row"
            needs: tuple[Who, ...] = ((run, sender),)
            if context.ends_unproven((run, sender), send):
                needs = (*needs, (run, STRANGER))
            finding = Finding(
                "T2",
                self._subject(context, run, sender, send),
                text,
                ((run, actor, abs(seq)),),
                t,
                needs,
            )
            outcome.findings.append(finding)
        outcome.figures["messages between actors", "in flight at the end"] = len(state.sent)
        return outcome

    @staticmethod
    def _subject(context: TraceContext, run: int, sender: int, send: int) -> str:
        return f"message {send} of actor {context.name((run, sender))}"

    def prune(self, key: Key, state: Bucket, context: TraceContext) -> bool:
        """When the sender is past these rows and no SEND is open; a second receive of one is then still T2: there is none."""
        coverage = context.coverage.get((int(key[0]), int(key[1])))
        is_past = coverage is not None and coverage.last_seq >= (int(key[2]) + 1) << SHIFT
        return is_past and not state.sent and not state.waiting


class MailPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = Mail

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        sent = unit.of(frozenset({Ev.SEND}))
        took = unit.of(RECEIVES - {Ev.PUBLISH})
        took = took.where(took.pseq > 0)
        published = unit.of(frozenset({Ev.PUBLISH}))
        published = published.where(published.pseq > 0)
        row, send = expand(published.pseq, np.maximum(published.c, 1))
        sender = np.concatenate((np.where(took.peer != 0, took.peer, took.actor), published.peer[row]))
        pseq = np.concatenate((took.pseq, send))
        receives = np.stack((
            pseq,
            np.concatenate((took.t, published.t[row])),
            np.concatenate((took.actor, published.actor[row])),
            np.concatenate(((took.event == Ev.UNDELIVERED).astype(np.int64), np.zeros(len(row), np.int64))),
        ), axis=1)  # fmt: skip
        sends = np.stack((sent.seq, sent.t, sent.peer), axis=1)
        send_codes, receive_codes = codes((sent.actor, sender), (sent.seq, pseq))
        open_sends, open_receives, wrong = _meet(sends, send_codes, receives, receive_codes)
        unproven = np.unique(np.stack((sender[wrong], pseq[wrong] >> SHIFT), axis=1), axis=0)
        left = _by_bucket(
            sent.actor[open_sends], sends[open_sends], sender[open_receives], receives[open_receives]
        )
        for each in unproven.tolist():
            left[each[0], each[1]] = NEEDS_FULL_CHECK
        for (whose, bucket), rows_left in left.items():
            yield (unit.run, whose, bucket), rows_left

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found = np.zeros(len(rows), np.bool_)
        sends = rows.event == Ev.SEND
        mine = sends | ((rows.peer == 0) & (rows.event != Ev.PUBLISH))
        sender = np.where(mine, rows.actor, rows.peer)
        first = np.where(sends, rows.seq, rows.pseq)
        last = first + np.where(rows.event == Ev.PUBLISH, np.maximum(rows.c, 1), 1) - 1
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
        sends = np.concatenate([each[0].reshape(-1, 3) for each in open_rows])
        receives = np.concatenate([each[1].reshape(-1, 4) for each in open_rows])
        sends = sends[np.argsort(sends[:, 0], kind="stable")]
        open_sends, open_receives, wrong = _meet(sends, sends[:, 0], receives, receives[:, 0])
        if wrong.any() or open_receives.any() or doubles(sends[:, 0]).any():
            return None
        outcome = Outcome()
        outcome.figures["messages between actors", "in flight at the end"] = int(open_sends.sum())
        return outcome


def _meet(sends: Ints, send_codes: Ints, receives: Ints, receive_codes: Ints) -> tuple[Bools, Bools, Bools]:
    """Sends, by rising codes, and receives: which sends and which receives are open, which receives are not as they should be."""
    order = np.argsort(receive_codes, kind="stable")
    twice = np.empty(len(order), np.bool_)
    twice[order] = doubles(receive_codes[order])
    at, found = look_up(send_codes, receive_codes)
    if not len(sends):
        return np.zeros(0, np.bool_), ~found, twice
    meets = sends[at]
    right = (meets[:, 1] < receives[:, 1]) & (
        (meets[:, 2] == receives[:, 2]) | (meets[:, 2] == 0) | (receives[:, 3] == 1)
    )
    wrong = twice | (found & ~right)
    open_sends = np.ones(len(sends), np.bool_)
    open_sends[at[found]] = False
    return open_sends, ~found, wrong


def _by_bucket(actors: Ints, sends: Ints, senders: Ints, receives: Ints) -> dict[tuple[int, int], OpenRows]:
    nothing = np.zeros(0, np.int64)
    found: dict[tuple[int, int], OpenRows] = {}
    for who, bucket, rows in _split(actors, sends):
        found[who, bucket] = (rows.reshape(-1), nothing)
    for who, bucket, rows in _split(senders, receives):
        found[who, bucket] = (found.get((who, bucket), (nothing,))[0], rows.reshape(-1))
    return found


def _split(actors: Ints, rows: Ints) -> Iterator[tuple[int, int, Ints]]:
    (code,) = codes((actors,), (rows[:, 0] >> SHIFT,))
    order = np.argsort(code, kind="stable")
    for _, where in groups(code[order]):
        its = order[where]
        yield int(actors[its[0]]), int(rows[its[0], 0] >> SHIFT), rows[its]
