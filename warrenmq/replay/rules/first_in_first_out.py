"""Q1: the order of a queue, and the states of its messages.

A message takes a step only from the states of this table; it is flagged redelivered when it is delivered
again in an incarnation, and not when it was published there and is delivered for the first time (after a
restart Q4 decides):

    PUBLISH, RECOVERED              not in the queue
    DELIVER                         ready; and it is the smallest ready id, of the highest priority
    ACK, REQUEUE, DROP rejected     unacked
    DROP deleted                    ready or unacked
    any other DROP                  ready
"""

from __future__ import annotations

from typing import Any

from warrenmq.replay.drive.machines import Finding, Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import queue_chain
from warrenmq.replay.rules.passes.message_life import (
    ACK,
    DELIVER,
    DELIVERED,
    DROP,
    NONE,
    PUBLISHED,
    READY,
    REQUEUE,
    UNACKED,
    Odd,
    by_word,
    value_of,
)
from warrenmq.replay.rules.passes.queue_ledger import Ledger, Lives
from warrenmq.replay.rules.passes.ready_order import MOVES_SQL, NEW, TAKE, Fifo, Ready
from warrenmq.replay.rules.rule import Exercised, Judge, Rule
from warrenmq.trace.events import DEAD_LETTERED, DROP_DELETED, DROP_REJECTED, REDELIVERED, Ev

_STATES = ("not in the queue", "ready", "unacked", "gone")


def _wanted(event: int, flag: int) -> int:
    """The states of the table, a bit each."""
    reason = flag & ~DEAD_LETTERED
    if event == DROP and reason == DROP_DELETED:
        return 1 << READY | 1 << UNACKED
    if event in {ACK, REQUEUE} or (event == DROP and reason == DROP_REJECTED):
        return 1 << UNACKED
    return 1 << READY if event in {DELIVER, DROP} else 1 << NONE


_WANTED = by_word(_wanted, 0)


def _is_from(word: Any, before: Any) -> Any:
    return value_of(_WANTED, word) >> before & 1 == 1


def _is_flagged(word: Any, mark: Any) -> Any:
    redelivered, again = word & REDELIVERED != 0, mark & DELIVERED != 0
    is_first = mark & (PUBLISHED | DELIVERED) == PUBLISHED
    return (
        (word >> 8 != DELIVER) | (redelivered & (is_first ^ True)) | ((redelivered ^ True) & (again ^ True))
    )


def _is_a_step(word: Any, before: Any, mark: Any) -> Any:
    return _is_from(word, before) & _is_flagged(word, mark)


def _missteps(
    name: str, _incarnations: list[Who], state: Lives, _context: TraceContext, outcome: Outcome
) -> None:
    for who, life in state.lives.items():
        for odd in life.odd:
            for place, text in _said(odd):
                id_ = odd.first + place
                outcome.findings.append(
                    Finding("Q1", f"queue {name}", text, ((*who, odd.seq),), odd.t, (who,), (id_,))
                )


def _said(odd: Odd) -> list[tuple[int, str]]:
    """Each thing that is wrong with a row: the place of the first message that it is wrong with, and a text."""
    found = []
    wrong = [place for place, state in enumerate(odd.states) if not _is_from(odd.word, state)]
    if wrong:
        ids = f"{odd.first}" if len(odd.states) == 1 else f"{odd.first} to {odd.first + len(odd.states) - 1}"
        states = " and ".join(sorted({_STATES[state] for state in odd.states}))
        found.append((wrong[0], f"{Ev(odd.word >> 8).name} of {ids}: {states}"))
    unflagged = [place for place, mark in enumerate(odd.marks) if not _is_flagged(odd.word, mark)]
    if unflagged:
        how = "for the first time with" if odd.word & REDELIVERED else "again without"
        text = f"delivered {odd.first + unflagged[0]} {how} the redelivered flag"
        found.append((unflagged[0], text))
    return found


_SQL = """
,
first_deliveries AS (
    SELECT run, actor, id, min(seq) AS first FROM steps WHERE event = 24 GROUP BY run, actor, id)
SELECT run, actor, seq FROM moves
WHERE CASE WHEN event IN (20, 31) THEN was <> 'none'
           WHEN event = 24 THEN was <> 'ready'
           WHEN event IN (25, 26) THEN was <> 'unacked'
           WHEN event = 27 AND flag & 15 = 1 THEN was <> 'unacked'
           WHEN event = 27 AND flag = 3 THEN was NOT IN ('ready', 'unacked')
           ELSE was <> 'ready' END
UNION
SELECT m.run, m.actor, m.seq FROM moves AS m JOIN first_deliveries AS f ON f.run = m.run AND f.actor = m.actor AND f.id = m.id
WHERE m.event = 24 AND ((m.seq > f.first AND m.flag & 1 = 0)
   OR (m.seq = f.first AND m.flag & 1 = 1 AND EXISTS (
        SELECT 1 FROM steps AS p WHERE p.run = m.run AND p.actor = m.actor AND p.id = m.id AND p.event = 20)))
UNION
SELECT d.run, d.actor, d.seq FROM moves AS d JOIN moves AS r
  ON r.run = d.run AND r.actor = d.actor AND r.becomes = 'ready' AND r.seq < d.seq AND coalesce(r.until, d.seq + 1) > d.seq
WHERE d.event = 24 AND (r.id >> 48 > d.id >> 48 OR (r.id >> 48 = d.id >> 48 AND r.id < d.id))
UNION
SELECT p.run, p.actor, p.seq FROM moves AS p JOIN moves AS o
  ON o.run = p.run AND o.actor = p.actor AND o.seq < p.seq AND o.id >> 48 = p.id >> 48 AND o.id >= p.id
WHERE p.event = 20 AND o.event IN (20, 31)
"""

RULE = Rule(
    id="Q1",
    name="first in, first out",
    text=(
        "Sequence ids rise; a delivery takes the smallest ready one, of the highest priority; a "
        "message is acked or requeued only while it is unacked, and is flagged redelivered if, and "
        "only if, it was delivered before."
    ),
    sources=(
        "docs/reference/classic-queue.md#five-queues",
        "docs/reference/classic-queue.md#priority-queues",
        "docs/reference/classic-queue.md#p1",
        "docs/reference/classic-queue.md#p2",
        "docs/reference/classic-queue.md#p3",
        "docs/reference/classic-queue.md#p4",
        "docs/reference/classic-queue.md#p5",
        "docs/reference/classic-queue.md#p22",
    ),
    exercised=Exercised(
        "a message that is published, delivered, acked, requeued or dropped",
        dict.fromkeys((Ev.PUBLISH, Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP)),
    ),
    machines=(Fifo, Ledger),
    judge={
        Ledger: Judge(_is_a_step, _missteps),
        Fifo: {
            TAKE: (Ready.ahead_of, "delivered {} while {} was ready"),
            NEW: (Ready.not_below, "published {}, although {} had been in the queue"),
        },
    },
    sql=MOVES_SQL + _SQL,
    explain=queue_chain,
)
