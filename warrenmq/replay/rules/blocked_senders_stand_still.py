"""W1: an actor that waits for a peer's credit, or for the alarms to clear, stands still.

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

Array form: waits begin and end in turns, and a thread writes nothing meanwhile.  Most rows of a thread are
its sends; the numbers of its rows show that there is none between the beginning of a wait for credit and its
end, so no SEND has to be looked at.  Open rows are all rows about waiting, flat (event, peer, seq).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Unit, groups, np
from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Link, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import Ev, Send
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_SEND = int(Ev.SEND)
_BLOCKED, _UNBLOCKED = int(Ev.CREDIT_BLOCKED), int(Ev.CREDIT_UNBLOCKED)
_ALARM_BLOCKED = int(Ev.ALARM_BLOCKED)
BLOCKING_EVENTS = frozenset({Ev.CREDIT_BLOCKED, Ev.CREDIT_UNBLOCKED, Ev.ALARM_BLOCKED, Ev.ALARM_UNBLOCKED})

_CREDIT = frozenset({Ev.CREDIT_BLOCKED, Ev.CREDIT_UNBLOCKED})


class _OfCredit(Shared[T], of=_CREDIT):
    granter: T


_sent = Send.getter("message", "receiver")
_waited_for = _OfCredit.getter("granter")

Step = tuple[int, int, int, int]
"""(event, peer, seq, t)"""


@dataclass(slots=True)
class Waiting:
    """The credit and alarms that an actor waits for."""

    credit: dict[int, int] = field(default_factory=dict)
    """Peer -> seq of the CREDIT_BLOCKED."""
    impatient: set[int] = field(default_factory=set)
    """Peers that were sent messages all the same: one finding a wait is enough."""
    alarms: list[int] = field(default_factory=list)
    """seqs of the ALARM_BLOCKED rows; several only of a thread with coroutines."""
    problems: list[tuple[str, int, tuple[int, ...], int]] = field(default_factory=list)
    """(text, peer or 0, seqs, t)"""

    def take(self, step: Step, *, is_thread: bool) -> None:
        """Handle the next row."""
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
    """Follows what each actor waits for."""

    name: ClassVar[str] = "blocking"
    events: ClassVar[frozenset[int]] = BLOCKING_EVENTS | {Ev.SEND}

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Step]]]:
        steps: list[Step] = []
        is_thread = is_a_thread(self.runs[piece.run], piece.actor)
        silent = set[int]()
        """Peers of whom it is known that another SEND to them says nothing new."""
        for row in rows:
            event = row.who >> 8 & 0xFF
            peer = 0
            if event == _SEND:
                msg, peer = _sent(row)
                if not is_thread or not msg or peer in silent:
                    continue
                silent.add(peer)
            elif event in _CREDIT:
                (peer,) = _waited_for(row)
            if event == _BLOCKED:
                silent.discard(peer)
            elif event == _UNBLOCKED:
                silent.add(peer)
            steps.append((event, peer, row.seq, row.t))
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
    """True if the actor is a thread of the application."""
    entry = run.actors.get(actor)
    return entry is not None and entry.kind == "client"


_WIDTH = 3
_EVENT, _PEER, _SEQ = range(_WIDTH)


class BlockingPrecheck(Precheck):
    """The array form of the rule; see the module."""

    machine: ClassVar[type[Machine]] = Blocking

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(BLOCKING_EVENTS)
        granter = np.where(rows.are(_CREDIT), _OfCredit.of(rows).granter, 0)
        table = np.stack((rows.event, granter, rows.seq), axis=1)
        for actor, where in groups(rows.actor):
            yield (unit.run, actor), (table[where].reshape(-1),)

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        run, actor = int(key[0]), int(key[1])
        (rows,) = joined(open_rows, _WIDTH)
        rows = rows[np.argsort(rows[:, _SEQ])]
        is_credit = (rows[:, _EVENT] == Ev.CREDIT_BLOCKED) | (rows[:, _EVENT] == Ev.CREDIT_UNBLOCKED)
        alarms, credit = rows[~is_credit], rows[is_credit]
        if not _take_turns(alarms[:, _EVENT] == Ev.ALARM_BLOCKED):
            return None
        if is_a_thread(context.runs[run], actor):
            last = context.coverage[run, actor].last_seq
            return Outcome() if _stands_still(credit, last) else None
        credit = credit[np.argsort(credit[:, _PEER], kind="stable")]
        begins = credit[:, _EVENT] == Ev.CREDIT_BLOCKED
        fine = all(_take_turns(begins[where]) for _, where in groups(credit[:, _PEER]))
        return Outcome() if fine else None


def _take_turns(begins: Bools) -> bool:
    """True if every other row begins a wait, from the first one on."""
    return bool(np.all(begins[::2]) and not np.any(begins[1::2]))


def _stands_still(rows: Ints, last: int) -> bool:
    """True if each wait for credit is over with the next row of the thread, or the thread wrote none."""
    if not _take_turns(rows[:, _EVENT] == Ev.CREDIT_BLOCKED):
        return False
    begins, ends = rows[::2], rows[1::2]
    over = begins[: len(ends)]
    same = np.all(over[:, _PEER] == ends[:, _PEER]) and np.all(over[:, _SEQ] + 1 == ends[:, _SEQ])
    return bool(same and np.all(begins[len(ends) :, _SEQ] == last))


def _waited(story: Story) -> Chain:
    """The wait that was over, if the actor went on a second time."""
    if len(story.evidence) > 1:
        return []
    begins = Ev.CREDIT_BLOCKED if story.event == Ev.CREDIT_UNBLOCKED else Ev.ALARM_BLOCKED
    seen = [story.near(event, story.last.t, after=False) for event in (begins, Ev(story.event))]
    return [
        *links_of(placed for placed in seen if placed is not None),
        Link(story.run, None, f"{begins.name}: no wait had begun"),
    ]


_SQL = """
WITH waits AS (
    SELECT run, actor, seq, granter AS whom, 1 AS begins FROM credit_blocked_rows
    UNION ALL SELECT run, actor, seq, granter, 0 FROM credit_unblocked_rows
    UNION ALL SELECT w.run, w.actor, seq, 0, 1 FROM alarm_blocked_rows AS w JOIN actors AS a ON a.run = w.run AND a.actor = w.actor
              WHERE kind <> 'client'
    UNION ALL SELECT w.run, w.actor, seq, 0, 0 FROM alarm_unblocked_rows AS w JOIN actors AS a ON a.run = w.run AND a.actor = w.actor
              WHERE kind <> 'client'),
turns AS (
    SELECT run, actor, seq, whom, begins,
           coalesce(lag(begins) OVER (PARTITION BY run, actor, whom ORDER BY seq), 0) AS before,
           lead(seq) OVER (PARTITION BY run, actor, whom ORDER BY seq) AS until
    FROM waits)
SELECT run, actor, seq FROM turns WHERE begins = before
UNION
SELECT s.run, s.actor, s.seq FROM send_rows AS s
JOIN actors AS a ON a.run = s.run AND a.actor = s.actor AND a.kind = 'client'
JOIN turns AS w ON w.run = s.run AND w.actor = s.actor AND w.whom = s.receiver AND w.begins = 1
WHERE s.message <> 0 AND s.seq > w.seq AND s.seq < coalesce(w.until, s.seq + 1)
UNION
SELECT run, actor, max(seq) FROM (
    SELECT w.run, w.actor, seq, sum(change) OVER (PARTITION BY w.run, w.actor ORDER BY seq) AS waiting FROM (
        SELECT run, actor, seq, 1 AS change FROM alarm_blocked_rows
        UNION ALL SELECT run, actor, seq, -1 FROM alarm_unblocked_rows) AS w) AS levels
WHERE waiting < 0 GROUP BY run, actor
"""

RULE = Rule(
    id="W1",
    name="blocked senders stand still",
    text=(
        "An actor that waits for a peer's credit, or for the alarms to clear, says so once before it "
        "goes on, and goes on only when it has waited; a thread that waits for a queue's credit sends "
        "it nothing."
    ),
    sources=(
        "docs/reference/classic-queue.md#what-an-alarm-blocks",
        "docs/reference/classic-queue.md#credit",
        "docs/reference/message-store.md#credit_flow",
        "docs/reference/classic-queue.md#p30",
        "docs/reference/message-store.md#i27",
    ),
    exercised=Exercised("a row about waiting", dict.fromkeys(BLOCKING_EVENTS)),
    machines=(Blocking,),
    sql=_SQL,
    explain=_waited,
)
