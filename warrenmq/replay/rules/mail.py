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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.trace.catalog import STRANGER, Chunk
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row

SHIFT = 12
_MASK = (1 << SHIFT) - 1
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
    events: ClassVar[frozenset[int]] = frozenset({Ev.SEND, Ev.RECV, Ev.PUBLISH, Ev.ACK, Ev.UNDELIVERED})

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
