"""Machine of those who wait (W1): for a peer's credit, or for the alarms to clear.

Key: (run, actor), its rows in their order.

====================================================  ==========================================  ==
row                                                   while it
====================================================  ==========================================  ==
CREDIT_BLOCKED                                        waits for this peer already                 W1
CREDIT_UNBLOCKED                                      does not wait for this peer                 W1
SEND of messages to a peer, by an application thread  waits for this peer: it should stand still  W1
ALARM_BLOCKED, not by an application thread           waits for the alarms already                W1
ALARM_UNBLOCKED                                       does not wait for them                      W1
====================================================  ==========================================  ==

The coroutines of one thread are one actor, and many of them may wait for the alarms at a time, one go on before another;
for credit they do not wait, but have a thread do it.  A channel sends what it was given, whether or not it has credit: it is
its connection that waits, and what that had read by then goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row

_SEND = int(Ev.SEND)
_BLOCKED, _UNBLOCKED = int(Ev.CREDIT_BLOCKED), int(Ev.CREDIT_UNBLOCKED)
_ALARM_BLOCKED = int(Ev.ALARM_BLOCKED)
BLOCKING_EVENTS = frozenset({Ev.CREDIT_BLOCKED, Ev.CREDIT_UNBLOCKED, Ev.ALARM_BLOCKED, Ev.ALARM_UNBLOCKED})

Step = tuple[int, int, int, int]
"""(event, peer, seq, t)"""


@dataclass(slots=True)
class Waiting:
    """Whom and what an actor waits for."""

    credit: dict[int, int] = field(default_factory=dict)
    """Peer -> seq of the CREDIT_BLOCKED."""
    impatient: set[int] = field(default_factory=set)
    """Of these peers, those that were sent messages all the same: once a wait is enough."""
    alarms: list[int] = field(default_factory=list)
    """seqs of the ALARM_BLOCKED rows; several only of a thread with coroutines."""
    problems: list[tuple[str, int, tuple[int, ...], int]] = field(default_factory=list)
    """(text, peer or 0, seqs, t)"""

    def take(self, step: Step, *, is_thread: bool) -> None:
        """The next row."""
        event, peer, seq, t = step
        since = self.credit.get(peer)
        if event == _SEND:
            if since is not None and peer not in self.impatient:
                self.impatient.add(peer)
                self.problems.append(
                    ("it sent messages while it waited for the credit", peer, (since, seq), t)
                )
        elif event == _BLOCKED:
            if since is not None:
                self.problems.append(("it began to wait a second time for the credit", peer, (since, seq), t))
            self.credit[peer] = seq
            self.impatient.discard(peer)
        elif event == _UNBLOCKED:
            self.impatient.discard(peer)
            if self.credit.pop(peer, None) is None:
                self.problems.append(("it went on, and had not waited for the credit", peer, (seq,), t))
        elif event == _ALARM_BLOCKED:
            if self.alarms and not is_thread:
                self.problems.append(
                    ("it began to wait a second time for the alarms", 0, (self.alarms[-1], seq), t)
                )
            self.alarms.append(seq)
        elif self.alarms:
            self.alarms.pop()
        else:
            self.problems.append(("it went on, and had not waited for the alarms", 0, (seq,), t))


class Blocking(Machine):
    """See the module."""

    name: ClassVar[str] = "waits"
    events: ClassVar[frozenset[int]] = BLOCKING_EVENTS | {Ev.SEND}

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Step]]]:
        steps: list[Step] = []
        is_thread = is_a_thread(self.runs[piece.run], piece.actor)
        silent = set[int]()
        """Peers of whom it is known that another SEND to them says nothing new."""
        for t, seq, msg, peer, _, _, _, _, who in rows:
            event = who >> 8 & 0xFF
            if event == _SEND:
                if not is_thread or not msg or peer in silent:
                    continue
                silent.add(peer)
            elif event == _BLOCKED:
                silent.discard(peer)
            elif event == _UNBLOCKED:
                silent.add(peer)
            steps.append((event, peer, seq, t))
        if steps:
            yield (piece.run, piece.actor), steps

    def start(self, key: Key) -> tuple[bool, Waiting]:
        return is_a_thread(self.runs[int(key[0])], int(key[1])), Waiting()

    def absorb(self, state: tuple[bool, Waiting], summary: list[Step]) -> None:
        is_thread, waiting = state
        for step in summary:
            waiting.take(step, is_thread=is_thread)

    def finish(self, key: Key, state: tuple[bool, Waiting], context: TraceContext) -> Outcome:
        run, actor = who = int(key[0]), int(key[1])
        outcome = Outcome()
        for text, peer, seqs, t in state[1].problems:
            whose = f" of {context.name((run, peer))}" if peer else ""
            rows = tuple((run, actor, seq) for seq in seqs)
            outcome.findings.append(
                Finding("W1", f"actor {context.name(who)}", text + whose, rows, t, (who,))
            )
        return outcome


def is_a_thread(run: Run, actor: int) -> bool:
    """Whether the actor is a thread of the application."""
    entry = run.actors.get(actor)
    return entry is not None and entry.kind == "client"
