"""R2: an actor's incarnation that has a successor writes nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.evidence import Near
from warrenmq.replay.explain.story import Chain, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import ActorStart, Ev
from warrenmq.trace.index import Row

_started = ActorStart.getter("incarnation")


class Names(Machine):
    """R2: incarnations of a name take turns.  Key: (run, name of the actor).

    The last row of an incarnation must be before its successor's ACTOR_START.  Its farewell does not count: an actor that
    was killed says ACTOR_STOP, and what mail it leaves, when its thread comes to.
    """

    name: ClassVar[str] = "names"
    events: ClassVar[frozenset[int]] = frozenset({Ev.ACTOR_START})

    def summarise(
        self, piece: Chunk, rows: list[Row]
    ) -> Iterator[tuple[Key, list[tuple[int, int, int, int]]]]:
        name = self.runs[piece.run].actor_name(piece.actor)
        yield (piece.run, name), [(_started(row)[0], piece.actor, row.t, row.seq) for row in rows]

    def finish(self, key: Key, state: list[tuple[int, int, int, int]], context: TraceContext) -> Outcome:
        run, name = int(key[0]), str(key[1])
        outcome = Outcome()
        state.sort()
        outcome.figures[EXERCISED, "R2"] = max(len(state) - 1, 0)
        for (incarnation, dead, _, _), (successor, alive, started, seq) in pairwise(state):
            last = context.actor_summary((run, dead)).last_act
            if incarnation < successor and last is not None and last[0] > started:
                text = f"incarnation {incarnation} still acted after incarnation {successor} had started"
                evidence = ((run, alive, seq), (run, dead, last[1]))
                outcome.findings.append(Finding("R2", f"actor {name}", text, evidence, last[0], ()))
        return outcome


def _incarnations(story: Story) -> Chain:
    """Explains the successor by the rows of the supervisor."""
    run, row = story.evidence[0]
    entry = story.runs[run].actors.get(row.actor)
    if entry is None or not entry.parent:
        return []
    seen = [
        story.known.row(Near(run, entry.parent, int(event), row.t, after=False))
        for event in (Ev.CHILD_EXIT, Ev.CHILD_START)
    ]
    return links_of(placed for placed in seen if placed is not None)


_SQL = """
SELECT dead.run, dead.actor, max(last.seq)
FROM actor_start_rows AS dead
JOIN actors AS d ON d.run = dead.run AND d.actor = dead.actor
JOIN actors AS s ON s.run = d.run AND s.name = d.name
JOIN actor_start_rows AS successor ON successor.run = s.run AND successor.actor = s.actor
JOIN stored AS last ON last.run = dead.run AND last.actor = dead.actor
WHERE dead.incarnation < successor.incarnation AND last.t > successor.t AND last.event NOT IN (2, 5)
GROUP BY dead.run, dead.actor
"""

RULE = Rule(
    id="R2",
    name="the dead are silent",
    text=("An incarnation writes no row after its successor has started."),
    sources=("docs/reference/message-store.md#supervision-trees",),
    exercised=Exercised("an incarnation that has a successor"),
    machines=(Names,),
    sql=_SQL,
    explain=_incarnations,
)
