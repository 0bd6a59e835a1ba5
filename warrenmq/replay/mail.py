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

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.world import World
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row

_SHIFT = 12
_SEND, _UNDELIVERED = int(Ev.SEND), int(Ev.UNDELIVERED)

Halves = tuple["array[int]", "array[int]"]
"""Sends (seq, t, receiver) and receives (pseq, t, receiver or -1, actor, seq), flat."""


@dataclass(slots=True)
class Bucket:
    """4,096 rows of one sender."""

    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Not received yet: seq -> (t, receiver)."""
    taken: bytearray = field(default_factory=lambda: bytearray(1 << _SHIFT))
    """1 = received."""
    waiting: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    """Receives whose SEND has not come yet."""
    problems: list[tuple[str, str, int, int, int, int]] = field(default_factory=list)
    """(rule, text, seq of the SEND, t, actor, seq)."""


class Mail(Machine):
    """See the module."""

    name: ClassVar[str] = "mail"
    events: ClassVar[frozenset[int]] = frozenset({Ev.SEND, Ev.RECV, Ev.PUBLISH, Ev.ACK, Ev.UNDELIVERED})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Halves]]:
        run, actor = piece.run, piece.actor
        found: dict[tuple[int, int], Halves] = {}
        for t, seq, _, peer, pseq, _, _, _, who in rows:
            event = who >> 8 & 0xFF
            if event == _SEND:
                key = (actor, seq >> _SHIFT)
            elif pseq <= 0:
                continue  # the sender has no trace
            else:
                key = (peer or actor, pseq >> _SHIFT)
            halves = found.get(key)
            if halves is None:
                halves = found[key] = (array("q"), array("q"))
            if event == _SEND:
                halves[0].extend((seq, t, peer))
            else:
                halves[1].extend((pseq, t, -1 if event == _UNDELIVERED else actor, actor, seq))
        for (sender, bucket), halves in found.items():
            yield (run, sender, bucket), halves

    def start(self, key: Key) -> Bucket:  # noqa: ARG002
        return Bucket()

    def absorb(self, state: Bucket, summary: Halves) -> None:
        sent, waiting = state.sent, state.waiting
        sends, receives = summary
        for seq, t, receiver in zip(sends[::3], sends[1::3], sends[2::3], strict=True):
            sent[seq] = (t, receiver)
            if waiting and (receive := waiting.pop(seq, None)) is not None:
                self._meet(state, seq, *receive)
        if receives:
            for pseq, t, receiver, actor, seq in zip(*[receives[i::5] for i in range(5)], strict=True):
                self._meet(state, pseq, t, receiver, actor, seq)

    @staticmethod
    def _meet(state: Bucket, send: int, t: int, receiver: int, actor: int, seq: int) -> None:
        """A receive looks for its SEND."""
        found = state.sent.pop(send, None)
        place = send & ((1 << _SHIFT) - 1)
        if found is None:
            if state.taken[place] or send in state.waiting:
                state.problems.append(("T2", "was received twice", send, t, actor, seq))
            else:
                state.waiting[send] = (t, receiver, actor, seq)
            return
        state.taken[place] = 1
        sent_t, expected = found
        if receiver >= 0 and expected not in {0, receiver}:
            state.problems.append(("T2", f"was sent to actor {expected}", send, t, actor, seq))
        if sent_t >= t:
            state.problems.append(
                ("T4", f"was received {sent_t - t} ns before it was sent", send, t, actor, seq)
            )

    def finish(self, key: Key, state: Bucket, world: World) -> Outcome:
        run, sender = int(key[0]), int(key[1])
        outcome = Outcome()
        for rule, text, send, t, actor, seq in state.problems:
            evidence = ((run, sender, send), (run, actor, seq))
            outcome.findings.append(
                Finding(rule, self._subject(world, run, sender, send), text, evidence, t, ())
            )
        for send, (t, _, actor, seq) in state.waiting.items():
            text = f"was received by {world.name((run, actor))}, but there is no such row"
            finding = Finding(
                "T2", self._subject(world, run, sender, send), text, ((run, actor, seq),), t, ((run, sender),)
            )
            outcome.findings.append(finding)
        outcome.figures["messages between actors", "in flight at the end"] = len(state.sent)
        return outcome

    @staticmethod
    def _subject(world: World, run: int, sender: int, send: int) -> str:
        return f"message {send} of actor {world.name((run, sender))}"
