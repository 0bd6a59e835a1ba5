"""R2: an incarnation of an actor starts and ends once, and writes nothing when it has a successor."""

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

ENDED = 0
Life = tuple[int, int, int, int]
"""(incarnation that starts or ENDED, actor, t, seq)."""


class Names(Machine):
    """R2: incarnations of a name take turns, each with a number of its own.  Key: (run, name of the actor).

    The last row of an incarnation must be before its successor's ACTOR_START.  Its farewell does not count: an actor that
    was killed says ACTOR_STOP, and what mail it leaves, when its thread comes to.
    """

    name: ClassVar[str] = "names"
    events: ClassVar[frozenset[int]] = frozenset({Ev.ACTOR_START, Ev.ACTOR_STOP})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Life]]]:
        name = self.runs[piece.run].actor_name(piece.actor)
        yield (
            (piece.run, name),
            [
                (_started(row)[0] if row.event == Ev.ACTOR_START else ENDED, piece.actor, row.t, row.seq)
                for row in rows
            ],
        )

    def finish(self, key: Key, state: list[Life], context: TraceContext) -> Outcome:
        run, name = int(key[0]), str(key[1])
        lives = sorted(set(state))  # a row that is there twice is a copy
        starts = [each for each in lives if each[0] != ENDED]
        outcome = Outcome()
        outcome.figures[EXERCISED, "R2"] = max(len(starts) - 1, 0)
        for (incarnation, one, *_), (again, other, t, seq) in pairwise(lives):
            if incarnation == again and (again != ENDED or one == other):
                text = (
                    "ended more than once"
                    if again == ENDED
                    else f"incarnation {again} started more than once"
                )
                outcome.findings.append(Finding("R2", f"actor {name}", text, ((run, other, seq),), t, ()))
        for actor in {actor for _, actor, *_ in starts}:
            mark = context.actor_summary((run, actor))
            if mark.stopped is not None and mark.last_act is not None and mark.last_act[1] > mark.stopped.seq:
                t, seq = mark.last_act
                outcome.findings.append(
                    Finding("R2", f"actor {name}", "acted after its end", ((run, actor, seq),), t, ())
                )
        for (incarnation, dead, _, _), (successor, alive, started, seq) in pairwise(starts):
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
UNION
SELECT s.run, s.actor, max(s.seq)
FROM stored AS s JOIN actor_stop_rows AS z ON z.run = s.run AND z.actor = s.actor AND z.seq < s.seq
JOIN actor_start_rows AS b ON b.run = s.run AND b.actor = s.actor
WHERE s.event NOT IN (2, 5) GROUP BY s.run, s.actor
UNION
SELECT run, actor, max(seq) FROM actor_stop_rows GROUP BY run, actor HAVING min(seq) < max(seq)
UNION
SELECT s.run, max(s.actor), max(s.seq)
FROM actor_start_rows AS s JOIN actors AS a ON a.run = s.run AND a.actor = s.actor
GROUP BY s.run, a.name, s.incarnation HAVING min(s.seq) < max(s.seq) OR min(s.actor) < max(s.actor)
"""

RULE = Rule(
    id="R2",
    name="the dead are silent",
    text="An incarnation starts once, ends once, and writes no row after its end, or when its successor has started.",
    sources=("docs/reference/message-store.md#supervision-trees",),
    exercised=Exercised("an incarnation that has a successor"),
    machines=(Names,),
    sql=_SQL,
    explain=_incarnations,
)
