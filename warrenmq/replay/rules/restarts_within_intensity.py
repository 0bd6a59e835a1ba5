"""R1: a supervisor restarts its children within its intensity, and gives up only beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.evidence import Placed
from warrenmq.replay.explain.story import LONGEST, Chain, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T


class _Counted(Shared[T], of=(Ev.RESTART, Ev.ESCALATE)):
    restarts: T
    intensity: T
    period_ms: T


_limit = _Counted.getter("restarts", "intensity", "period_ms")

Complaint = tuple[int, int, str]
"""(seq, t, what is wrong)."""


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
    """

    name: ClassVar[str] = "supervisor"
    events: ClassVar[frozenset[int]] = frozenset({Ev.RESTART, Ev.ESCALATE})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Complaint]]]:
        complaints: list[Complaint] = []
        for row in rows:
            restarts, intensity, period = _limit(row)
            count = f"{restarts} restarts in {period} ms, intensity {intensity}"
            if row.event == Ev.RESTART and restarts > intensity:
                complaints.append((row.seq, row.t, f"restarted a child beyond its intensity: {count}"))
            if row.event == Ev.ESCALATE and restarts <= intensity:
                complaints.append((row.seq, row.t, f"gave up within its intensity: {count}"))
        if complaints:
            yield (piece.run, piece.actor), complaints

    def finish(self, key: Key, state: list[Complaint], context: TraceContext) -> Outcome:
        run, actor = int(key[0]), int(key[1])
        subject = f"supervisor {context.name((run, actor))}"
        return Outcome([Finding("R1", subject, text, ((run, actor, seq),), t, ()) for seq, t, text in state])


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
    return links_of([*found, *([exited] if exited is not None else [])])


_SQL = """
SELECT run, actor, seq FROM restart_rows WHERE restarts > intensity
UNION
SELECT run, actor, seq FROM escalate_rows WHERE restarts <= intensity
"""

RULE = Rule(
    id="R1",
    name="restarts within intensity",
    text=(
        "A supervisor restarts no more often than its intensity allows, and gives up only when it is "
        "exceeded."
    ),
    sources=("docs/reference/message-store.md#supervisor2",),
    exercised=Exercised("a restart, or a supervisor that gives up", {Ev.RESTART: None, Ev.ESCALATE: None}),
    machines=(Supervisor,),
    sql=_SQL,
    explain=_restarts,
)
