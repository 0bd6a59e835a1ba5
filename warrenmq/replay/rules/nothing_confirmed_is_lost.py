"""C2: a confirmed message is there after a restart, an acked one is not."""

from __future__ import annotations

from warrenmq.replay.drive.incidents import DAMAGED
from warrenmq.replay.drive.incidents import LOST as INCIDENT_LOST
from warrenmq.replay.drive.machines import EXERCISED, INCIDENT, Finding, Outcome
from warrenmq.replay.drive.trace_context import ActorSummary, TraceContext, Who
from warrenmq.replay.explain.story import restart_chain
from warrenmq.replay.rules.passes.message_life import GONE, Life
from warrenmq.replay.rules.passes.queue_ledger import (
    HELD,
    KNOWN,
    OWED,
    TRANSIENT,
    WAS_DAMAGED,
    WAS_RECOVERED,
    Alone,
    Ledger,
    Lives,
    ids_with,
    lowest,
)
from warrenmq.replay.rules.rule import Exercised, Judge, Rule
from warrenmq.trace.catalog import FOREVER
from warrenmq.trace.events import PRIORITY_SHIFT, QueueRecovered


def _compare_lives(
    name: str, incarnations: list[Who], state: Lives, context: TraceContext, outcome: Outcome
) -> None:
    """Compare each incarnation with the next."""
    confirmed = owed = gone = settled = transient = 0
    for number, who in enumerate(incarnations):
        life = state.lives.get(who) or Life()
        recovered = ids_with(life.marks, WAS_RECOVERED)
        damaged, confirmed_here = ids_with(life.marks, WAS_DAMAGED), ids_with(life.marks, OWED)
        _count(outcome, DAMAGED, damaged & ~gone)  # files of acked messages may be deleted by halves
        damaged_here, damaged_since = damaged & confirmed_here, damaged & owed & ~confirmed_here
        lost = owed & ~recovered
        _count(outcome, INCIDENT_LOST, damaged_here)
        if (lost or damaged_since) and _is_whole(context.namesakes(name, who[0]), context):
            _count(outcome, INCIDENT_LOST, lost, damaged_since)
        if (first := lowest(damaged_here)) >= 0:
            # The rows of this one life say that they were confirmed and that they are lost: no others are needed.
            outcome.findings.append(_lost(name, who, state.base, life, damaged_here, first, ()))
        if (first := lowest(damaged_since)) >= 0:
            needs = context.namesakes(name, who[0])
            outcome.findings.append(_lost(name, who, state.base, life, damaged_since, first, needs))
        for text, ids in (
            ("confirmed, and not recovered", lost),
            ("acked or dropped, synced, and recovered again", settled & recovered),
            ("transient, and recovered", transient & recovered & ~settled),
        ):
            if (first := lowest(ids)) >= 0:
                said = f"{ids.bit_count()} messages from {state.base + first} on were {text}"
                row = context.actor_summary(who).recovered
                evidence = ((*who, row.seq if row is not None else 1),)
                # Any missing row of the queue could be the ack or the recovery: only whole lives convict.
                needs = context.namesakes(name, who[0])
                about = (state.base + first,)
                outcome.findings.append(Finding("C2", f"queue {name}", said, evidence, FOREVER, needs, about))
        if number + 1 == len(incarnations):
            outcome.figures[EXERCISED, "C2"] += damaged.bit_count()
            return
        outcome.figures[EXERCISED, "C2"] += ids_with(life.states, KNOWN).bit_count()
        # An ack that was not synced may be undone by a restart: then the message is owed as before.
        confirmed = confirmed_here | confirmed & recovered
        held, known = ids_with(life.states, HELD), ids_with(life.states, KNOWN)
        owed = held & confirmed
        gone = (gone | known) & ~held
        mark = context.actor_summary(who)
        settled = _as_before(settled & ~known, mark, state.base) | _settled(life, mark)
        transient = _as_before(transient & ~known, mark, state.base) | known & ids_with(life.marks, TRANSIENT)
        # it may be there again or not, and may begin anew
        if context.was_deleted_between(who, incarnations[number + 1]):
            owed = settled = transient = 0


def _has_no_successor(alone: Alone, _context: TraceContext, outcome: Outcome) -> bool:
    """True if no other incarnation has to say what became of the messages that this one held; by arrays."""
    if alone.who not in alone.incarnations:
        return True
    is_last = alone.who == alone.incarnations[-1]
    damaged = int(alone.walked.damaged.sum())
    outcome.figures[EXERCISED, "C2"] = damaged if is_last else alone.known
    if damaged:
        outcome.figures[INCIDENT, DAMAGED] = damaged
        if alone.who != alone.incarnations[0]:
            return False  # it may have been acked before
    return is_last or not (alone.walked.state != GONE).any()


def _lost(
    name: str, who: Who, base: int, life: Life, ids: int, first: int, needs: tuple[Who, ...]
) -> Finding:
    said = f"{ids.bit_count()} messages from {base + first} on were confirmed, and lost to damage on the disk"
    evidence = ((*who, life.gone_at[first]),)
    return Finding("C2", f"queue {name}", said, evidence, FOREVER, needs, (base + first,))


def _settled(life: Life, mark: ActorSummary) -> int:
    """The ids that were gone before the last sync, or before a clean stop, of this incarnation."""
    last = FOREVER if mark.closed is not None else mark.last_sync
    return int.from_bytes(bytes([0 < seq < last for seq in life.gone_at]), "little")


def _as_before(ids: int, mark: ActorSummary, base: int) -> int:
    """The ids without those that this incarnation may have given again: if it was killed while it took
    messages in, their row may be missing.
    """
    if mark.closed is not None or mark.recovered is None or base >> PRIORITY_SHIFT:
        return ids
    given_from = max(0, QueueRecovered.of(mark.recovered).next_seq_id - base)
    return ids & (1 << min(given_from, ids.bit_length())) - 1


def _is_whole(needs: tuple[Who, ...], context: TraceContext) -> bool:
    """True if every row of these is here: what may have been acked in rows that are missing is not told as lost."""
    return all(context.known_until(each) == FOREVER for each in needs)


def _count(outcome: Outcome, what: str, *sets: int) -> None:
    if n := sum(ids.bit_count() for ids in sets):
        outcome.figures[INCIDENT, what] += n


def _is_final(finding: Finding, context: TraceContext) -> bool:
    """True when all earlier incarnations have ended, and the one that recovered is known up to its QUEUE_RECOVERED.

    Later rows do not matter.  A finding about one life alone needs no other rows.
    """
    if not finding.needs:
        return True
    run, actor, _ = finding.rows[0]
    who = run, actor
    recovered = context.actor_summary(who).recovered
    if recovered is None or context.known_until(who) < recovered.t:
        return False
    return all(context.has_ended(each) for each in finding.needs if each < who)


_SQL = """
WITH lives AS (
    SELECT run, actor, scope, name, sum(1 + deleted) OVER (PARTITION BY scope, name ORDER BY run, actor) - deleted AS life
    FROM (
        SELECT a.run, a.actor, a.scope, a.name, max(CASE r.event WHEN 102 THEN 1 ELSE 0 END) AS deleted
        FROM actors AS a JOIN stored AS r ON r.run = a.run AND r.actor = a.actor
        WHERE r.event IN (20, 23, 24, 25, 26, 27, 30, 102) GROUP BY a.run, a.actor, a.scope, a.name) AS whose),
ends AS (
    SELECT l.run, l.actor, max(CASE WHEN r.event = 32 THEN 4611686018427387904 WHEN r.event = 22 THEN r.seq ELSE 0 END) AS safe_to
    FROM lives AS l JOIN stored AS r ON r.run = l.run AND r.actor = l.actor GROUP BY l.run, l.actor),
last_steps AS (
    SELECT run, actor, id, max(seq) AS seq, min(CASE event WHEN 31 THEN seq END) AS recovered FROM steps GROUP BY run, actor, id),
known AS (
    SELECT l.scope, l.name, l.life, s.id, s.recovered, x.seq,
           CASE WHEN x.event IN (25, 27) OR (x.event = 24 AND x.flag & 2 = 2) THEN 1 ELSE 0 END AS gone,
           CASE WHEN x.seq < e.safe_to THEN 1 ELSE 0 END AS safely,
           CASE WHEN s.recovered IS NULL AND coalesce(p.flag, 0) & 1 = 0 THEN 1 ELSE 0 END AS transient
    FROM last_steps AS s JOIN lives AS l ON l.run = s.run AND l.actor = s.actor
    JOIN ends AS e ON e.run = s.run AND e.actor = s.actor
    JOIN steps AS x ON x.run = s.run AND x.actor = s.actor AND x.id = s.id AND x.seq = s.seq
    LEFT JOIN steps AS p ON p.run = s.run AND p.actor = s.actor AND p.id = s.id AND p.event = 20),
confirmed AS (
    SELECT l.scope, l.name, l.life, c.first_seq_id + n AS id
    FROM confirm_rows AS c JOIN numbers ON n < c.count JOIN lives AS l ON l.run = c.run AND l.actor = c.actor
    JOIN steps AS p ON p.run = c.run AND p.actor = c.actor AND p.id = c.first_seq_id + n AND p.event = 20 AND p.flag & 1 = 1
    WHERE c.kind = 1)
SELECT q.run, q.actor, q.seq FROM lives AS l JOIN queue_recovered_rows AS q ON q.run = l.run AND q.actor = l.actor
WHERE EXISTS (
    SELECT 1 FROM known AS k JOIN confirmed AS c ON c.scope = k.scope AND c.name = k.name AND c.id = k.id AND c.life <= k.life
    LEFT JOIN known AS later ON later.scope = k.scope AND later.name = k.name AND later.life = l.life AND later.id = k.id
    WHERE k.scope = l.scope AND k.name = l.name AND k.life = l.life - 1 AND k.gone = 0 AND later.recovered IS NULL)
OR EXISTS (
    SELECT 1 FROM known AS k JOIN known AS b ON b.scope = k.scope AND b.name = k.name AND b.id = k.id
    WHERE k.scope = l.scope AND k.name = l.name AND k.life = l.life AND k.recovered IS NOT NULL AND b.life < k.life
      AND ((b.gone = 1 AND b.safely = 1) OR b.transient = 1)
      AND NOT EXISTS (SELECT 1 FROM known AS m WHERE m.scope = k.scope AND m.name = k.name AND m.id = k.id
                      AND m.life > b.life AND m.life < k.life)
      AND NOT EXISTS (SELECT 1 FROM lives AS m JOIN ends AS e ON e.run = m.run AND e.actor = m.actor
                      JOIN queue_recovered_rows AS began ON began.run = m.run AND began.actor = m.actor
                      WHERE m.scope = k.scope AND m.name = k.name AND m.life > b.life AND m.life < k.life
                        AND e.safe_to < 4611686018427387904 AND began.next_seq_id <= k.id AND k.id < 281474976710656))
UNION
SELECT d.run, d.actor, d.seq FROM steps AS d JOIN lives AS l ON l.run = d.run AND l.actor = d.actor
JOIN confirmed AS c ON c.scope = l.scope AND c.name = l.name AND c.id = d.id AND c.life <= l.life
LEFT JOIN known AS k ON k.scope = l.scope AND k.name = l.name AND k.id = d.id AND k.life = l.life - 1
WHERE d.event = 27 AND d.flag & 15 = 4 AND (c.life = l.life OR k.gone = 0)
"""

RULE = Rule(
    id="C2",
    name="nothing confirmed is lost",
    text=(
        "A confirmed persistent message is acked, dropped, recovered by the next incarnation of its "
        "queue, or still there, unless the queue is deleted, and its body is not found damaged; what was acked and synced does not "
        "come back, and nothing transient does."
    ),
    sources=(
        "docs/reference/classic-queue.md#start-and-recovery",
        "docs/reference/classic-queue.md#recovery-of-version-2",
        "docs/reference/classic-queue.md#p8",
        "docs/reference/classic-queue.md#p10",
        "docs/reference/classic-queue.md#p11",
        "docs/reference/classic-queue.md#p13",
        "docs/reference/classic-queue.md#p5",
        "docs/reference/message-store.md#i28",
    ),
    exercised=Exercised(
        "a message of an incarnation that has a successor, or one whose body was found damaged"
    ),
    machines=(Ledger,),
    judge={Ledger: Judge(decide=_compare_lives, proves=_has_no_successor)},
    sql=_SQL,
    explain=restart_chain,
    is_final=_is_final,
)
