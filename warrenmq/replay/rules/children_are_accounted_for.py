"""R3: a supervisor records the start and the end of each of its own children, once and truly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Link, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import STRANGER, Chunk
from warrenmq.trace.events import ChildExit, ChildStart, Ev, Reason, Restart
from warrenmq.trace.index import Row

_read = {
    Ev.CHILD_START: ChildStart.getter("child"),
    Ev.CHILD_EXIT: ChildExit.getter("child", "reason"),
    Ev.RESTART: Restart.getter("child"),
}

ChildRow = tuple[int, int, int, int, int]
"""(seq, t, event, child, reason or 0)."""


class Children(Machine):
    """R3: CHILD_START, CHILD_EXIT, and perhaps RESTART, once for each child and in this order.  Key: (run, actor).

    ===========  ===============================================================================================
    CHILD_START  the child is an actor that this one started, and its own ACTOR_START is earlier
    CHILD_EXIT   the child had been started; its own ACTOR_STOP is earlier and gives the same reason, unless either says
                 killed: a killed actor's thread may come to later, with another reason, or never
    RESTART      the child has ended
    the end      a supervisor that ends in good order has told of the end of every child
    ===========  ===============================================================================================
    """

    name: ClassVar[str] = "children"
    events: ClassVar[frozenset[int]] = frozenset(_read)

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[ChildRow]]]:
        told: list[ChildRow] = []
        for row in rows:
            child, *reason = _read[Ev(row.event)](row)
            told.append((row.seq, row.t, row.event, child, reason[0] if reason else 0))
        yield (piece.run, piece.actor), told

    def finish(self, key: Key, state: list[ChildRow], context: TraceContext) -> Outcome:
        run, actor = int(key[0]), int(key[1])
        who = run, actor
        actors = context.runs[run].actors
        outcome = Outcome()
        running: dict[int, ChildRow] = {}
        ended: set[int] = set()

        def complain(
            said: ChildRow, text: str, *, child_matters: bool = False, unproven: bool = False, end: int = 0
        ) -> None:
            seq, t, _, child, _ = said
            text = text.format(f"{context.name((run, child))} (actor {child})")
            needs = (who, (run, child)) if child_matters else (who,)
            if unproven:
                needs = (*needs, (run, STRANGER))
            outcome.findings.append(
                Finding("R3", f"supervisor {context.name(who)}", text, ((*who, seq),), end or t, needs)
            )

        for said in sorted(set(state)):
            _, t, event, child, reason = said
            mark = context.actor_summary((run, child))
            match event:
                case Ev.CHILD_START:
                    entry = actors.get(child)
                    # whose child it is may be lost with a damaged file
                    if entry is not None and entry.parent != actor:
                        complain(said, "says that it started {}, which is no child of it")
                    if child in running or child in ended:
                        complain(said, "says a second time that it started {}")
                    if not mark.started_t or mark.started_t > t:
                        cut = not mark.started_t and context.may_be_cut((run, child), t)
                        complain(
                            said, "says that {} runs, which has not started", child_matters=True, unproven=cut
                        )
                    running[child] = said
                case Ev.CHILD_EXIT:
                    if child not in running:
                        complain(said, "says that {} has ended, which was not running")
                    running.pop(child, None)
                    ended.add(child)
                    if Reason.KILLED in (reason, mark.end_reason):
                        continue
                    if mark.end_reason not in (None, reason):
                        complain(
                            said,
                            "gives another reason for the end of {} than that itself",
                            child_matters=True,
                        )
                    if context.runs[run].closed if mark.stopped is None else mark.stopped.t > t:
                        complain(said, "says that {} has ended, which had not", child_matters=True)
                case Ev.RESTART if child not in ended:
                    complain(said, "restarts {}, which has not ended")
        mine = context.actor_summary(who)
        if mine.stopped is not None and mine.end_reason in (Reason.NORMAL, Reason.SHUTDOWN):
            for said in running.values():
                complain(said, "ended, and never told of the end of {}", end=mine.stopped.t)
        return outcome


def _its_life(story: Story) -> Chain:
    """The rows of both about the child, up to this one."""
    child = _read[Ev(story.event)](story.last)[0]
    told = [story.near(event, story.last.t, after=False) for event in (Ev.CHILD_START, Ev.CHILD_EXIT)]
    told += [
        story.near(event, story.last.t, after=False, actor=child) for event in (Ev.ACTOR_START, Ev.ACTOR_STOP)
    ]
    rows = sorted((each for each in told if each is not None), key=lambda each: each.row.t)
    if told[2] is None:
        return [*links_of(rows), Link(story.run, None, f"ACTOR_START of actor {child}")]
    return links_of(rows)


_SQL = """
WITH ends AS (
  SELECT run, actor, child, min(seq) AS seq FROM child_exit_rows GROUP BY run, actor, child
), starts AS (
  SELECT run, actor, child, min(seq) AS seq, max(seq) AS `last` FROM child_start_rows GROUP BY run, actor, child
)
SELECT s.run, s.actor, s.seq
FROM child_start_rows AS s
LEFT JOIN actors AS a ON a.run = s.run AND a.actor = s.child
LEFT JOIN (SELECT run, actor, min(t) AS t FROM actor_start_rows GROUP BY run, actor) AS b ON b.run = s.run AND b.actor = s.child
WHERE a.parent <> s.actor OR b.t IS NULL OR b.t > s.t
UNION
SELECT run, actor, `last` FROM starts WHERE `last` > seq
UNION
SELECT e.run, e.actor, e.seq
FROM child_exit_rows AS e
LEFT JOIN starts AS s ON s.run = e.run AND s.actor = e.actor AND s.child = e.child AND s.seq < e.seq
LEFT JOIN ends AS f ON f.run = e.run AND f.actor = e.actor AND f.child = e.child AND f.seq < e.seq
LEFT JOIN actor_stop_rows AS z ON z.run = e.run AND z.actor = e.child
LEFT JOIN run_end_rows AS r ON r.run = e.run
WHERE s.seq IS NULL OR f.seq IS NOT NULL OR (e.reason <> 3 AND z.reason <> 3 AND (e.reason <> z.reason OR e.t < z.t))
  OR (e.reason <> 3 AND z.seq IS NULL AND r.seq IS NOT NULL)
UNION
SELECT r.run, r.actor, r.seq
FROM restart_rows AS r LEFT JOIN ends AS e ON e.run = r.run AND e.actor = r.actor AND e.child = r.child AND e.seq < r.seq
WHERE e.seq IS NULL
UNION
SELECT s.run, s.actor, s.seq
FROM starts AS s
JOIN actor_stop_rows AS z ON z.run = s.run AND z.actor = s.actor
LEFT JOIN ends AS e ON e.run = s.run AND e.actor = s.actor AND e.child = s.child
WHERE z.reason IN (1, 2) AND e.seq IS NULL
"""

RULE = Rule(
    id="R3",
    name="children are accounted for",
    text=(
        "A supervisor says once of each of its children that it started and that it ended, after the child and for the "
        "child's own reason; it restarts what has ended, and leaves none behind."
    ),
    sources=("docs/reference/message-store.md#supervision-trees",),
    exercised=Exercised("a start or an end of a child", {Ev.CHILD_START: None, Ev.CHILD_EXIT: None}),
    machines=(Children,),
    sql=_SQL,
    explain=_its_life,
)
