"""R1: a supervisor counts its restarts right, restarts within its intensity, and gives up only beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.evidence import Placed
from warrenmq.replay.explain.story import LONGEST, Chain, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

MS = 1_000_000
"""Nanoseconds of a millisecond."""


class _Counted(Shared[T], of=(Ev.RESTART, Ev.ESCALATE)):
    restarts: T
    intensity: T
    period_ms: T


_limit = _Counted.getter("restarts", "intensity", "period_ms")


class SupervisorRow(NamedTuple):
    """A row of a supervisor; a CHILD_EXIT has no limits."""

    seq: int
    t: int
    event: int
    restarts: int = 0
    intensity: int = 0
    period_ms: int = 0


class Supervisor(Machine):
    """R1: a RESTART only while the count is within the intensity, an ESCALATE only beyond it.  Key: (run, actor).

    ==========  =====================  ========
    row         restarts ? intensity   verdict
    ==========  =====================  ========
    RESTART     <=                     fine
    RESTART     >                      violated
    ESCALATE    >                      fine
    ESCALATE    <=                     violated
    ==========  =====================  ========

    The count is that of these rows within the period.  The supervisor looks at the clock between the row
    before, as a rule the CHILD_EXIT, and this one; where that leaves open whether an old restart is still
    within the period, both counts are fine.
    """

    name: ClassVar[str] = "supervisor"
    events: ClassVar[frozenset[int]] = frozenset({Ev.CHILD_EXIT, Ev.RESTART, Ev.ESCALATE})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[SupervisorRow]]]:
        yield (
            (piece.run, piece.actor),
            [
                SupervisorRow(row.seq, row.t, row.event, *(() if row.event == Ev.CHILD_EXIT else _limit(row)))
                for row in rows
            ],
        )

    def finish(self, key: Key, state: list[SupervisorRow], context: TraceContext) -> Outcome:
        run, actor = int(key[0]), int(key[1])
        subject = f"supervisor {context.name((run, actor))}"
        outcome = Outcome()
        counted: list[tuple[int, SupervisorRow]] = []
        before = 0
        for row in sorted({SupervisorRow(*each) for each in state}):
            if row.event != Ev.CHILD_EXIT:
                if wrong := self._wrong(row, before, counted):
                    told = (
                        f"{wrong}: {row.restarts} restarts in {row.period_ms} ms, intensity {row.intensity}"
                    )
                    needs = ((run, actor),)
                    outcome.findings.append(
                        Finding("R1", subject, told, ((*needs[0], row.seq),), row.t, needs)
                    )
                counted.append((before, row))
            before = row.t
        return outcome

    @staticmethod
    def _wrong(row: SupervisorRow, before: int, counted: list[tuple[int, SupervisorRow]]) -> str:
        """The complaint about a row, if there is one; `counted` are those before it, each with the t after
        which it was counted.
        """
        if row.event == Ev.RESTART and row.restarts > row.intensity:
            return "restarted a child beyond its intensity"
        if row.event == Ev.ESCALATE and row.restarts <= row.intensity:
            return "gave up within its intensity"
        if counted and counted[-1][1][-2:] != row[-2:]:
            return "has another limit than before"
        began = row.t - row.period_ms * MS
        surely = sum(earliest >= began for earliest, _ in counted) + 1
        at_most = sum(each.t >= began - MS - (row.t - before) for _, each in counted) + 1
        return "" if surely <= row.restarts <= at_most else f"counted wrong, there were {surely} in this time"


def _restarts(story: Story) -> Chain:
    """The restarts before this one."""
    found: list[Placed] = []
    t = story.last.t
    while len(found) < min(_Counted.of(story.last).restarts, LONGEST // 2) - 1:
        earlier = story.near(Ev.RESTART, t, after=False)
        if earlier is None:
            break
        found.insert(0, earlier)
        t = earlier[1].t
    exited = story.near(Ev.CHILD_EXIT, story.last.t, after=False)
    return links_of([*found, exited])


_SQL = """
WITH told AS (
  SELECT run, actor, seq, t, 0 AS restarts, 0 AS intensity, 0 AS period_ms, 0 AS counts FROM child_exit_rows
  UNION SELECT run, actor, seq, t, restarts, intensity, period_ms, 1 FROM restart_rows
  UNION SELECT run, actor, seq, t, restarts, intensity, period_ms, 1 FROM escalate_rows
), timed AS (
  SELECT run, actor, seq, t, restarts, intensity, period_ms, counts,
    coalesce(lag(t) OVER (PARTITION BY run, actor ORDER BY seq), 0) AS earliest
  FROM told
), counted AS (SELECT * FROM timed WHERE counts = 1)
SELECT run, actor, seq FROM restart_rows WHERE restarts > intensity
UNION
SELECT run, actor, seq FROM escalate_rows WHERE restarts <= intensity
UNION
SELECT l.run, l.actor, l.seq
FROM counted AS l JOIN counted AS e ON e.run = l.run AND e.actor = l.actor AND e.seq <= l.seq
GROUP BY l.run, l.actor, l.seq, l.restarts
HAVING l.restarts < sum(CASE WHEN e.seq = l.seq OR e.earliest >= l.t - l.period_ms * 1000000 THEN 1 ELSE 0 END)
  OR l.restarts > sum(CASE WHEN e.seq = l.seq OR e.t >= l.earliest - (l.period_ms + 1) * 1000000 THEN 1 ELSE 0 END)
UNION
SELECT l.run, l.actor, l.seq
FROM (
  SELECT run, actor, seq, intensity, period_ms, lag(intensity) OVER (PARTITION BY run, actor ORDER BY seq) AS intensity_before,
    lag(period_ms) OVER (PARTITION BY run, actor ORDER BY seq) AS period_before
  FROM counted
) AS l
WHERE l.intensity <> l.intensity_before OR l.period_ms <> l.period_before
"""

RULE = Rule(
    id="R1",
    name="restarts within intensity",
    text=(
        "A supervisor counts its restarts right, restarts no more often than its intensity allows, and gives up only "
        "when it is exceeded."
    ),
    sources=("docs/reference/message-store.md#supervisor2",),
    exercised=Exercised("a restart, or a supervisor that gives up", {Ev.RESTART: None, Ev.ESCALATE: None}),
    machines=(Supervisor,),
    sql=_SQL,
    explain=_restarts,
)
