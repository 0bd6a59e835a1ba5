"""S9: a store that is idle collects its garbage.

Key: (run, store actor), with the rows of the store and of its garbage collector.

    quiet     from the last row that changed a file or a reference, or that the collector wrote, to the clean end; on a full disk
              a write of what was taken long before comes when there is room
    garbage   what the FILE_STATE rows of the end say: file_size beyond valid_total_size

A store that was quiet for longer than its collector may take to notice (QUIET) has no more garbage than half.  Of one
that was busy to the end, or did not end cleanly, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import Rows
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Link, Story, links_in_time
from warrenmq.replay.rules.passes.files import store_of_collector
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import Ev, FileState
from warrenmq.trace.index import Row

QUIET = 60 * 10**9
"""Nanoseconds: two intervals of 15 s may pass before a file is left, and one more before it is collected."""

_FILE_STATE = int(Ev.FILE_STATE)
COLLECTOR = frozenset({Ev.GC_START, Ev.GC_DONE, Ev.COMPACT_START, Ev.COMPACT_DONE, Ev.TRUNCATE})
_ACTIVITY = COLLECTOR | {
    Ev.STORE_RECOVERED, Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_DROPPED, Ev.APPEND, Ev.ROLL, Ev.LOCK, Ev.UNLOCK,
    Ev.FILE_DELETE, Ev.FILE_WRITE,
}  # fmt: skip

_state = FileState.getter("seq", "t", "valid_total_size", "file_size")


class State(NamedTuple):
    """A FILE_STATE row."""

    seq: int
    t: int
    valid_total_size: int
    file_size: int


States = list[State]


@dataclass(slots=True)
class StoreActivity:
    """The time of a store's last activity, and its FILE_STATE rows."""

    last: int = 0
    """t of the last activity."""
    states: States = field(default_factory=list)


class Garbage(Machine):
    """Compares the garbage of a store that was quiet."""

    name: ClassVar[str] = "garbage"
    events: ClassVar[frozenset[int]] = frozenset(_ACTIVITY | {Ev.FILE_STATE})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, tuple[int, States]]]:
        found: dict[int, tuple[int, States]] = {}
        collector_of = store_of_collector(self.runs[piece.run], piece.actor)
        for row in rows:
            event = row.who >> 8 & 0xFF
            store = collector_of if event in COLLECTOR else piece.actor
            last, states = found.get(store, (0, []))
            if event == _FILE_STATE:
                states.append(State(*_state(row)))
            else:
                last = max(last, row.t)
            found[store] = last, states
        for store, its in found.items():
            if store:
                yield (piece.run, store), its

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Any]]:
        """Summarise a unit of arrays."""
        yield from fold_garbage(self.runs, piece, rows)

    def start(self, key: Key) -> StoreActivity:
        return StoreActivity()

    def absorb(self, state: StoreActivity, summary: tuple[int, States]) -> None:
        state.last = max(state.last, summary[0])
        state.states += summary[1]

    def finish(self, key: Key, state: StoreActivity, context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        outcome = Outcome()
        told = _of_the_end(sorted(state.states))
        if not told or told[0].t - state.last < QUIET:
            return outcome
        outcome.figures[EXERCISED, "S9"] = 1
        valid, size = sum(each.valid_total_size for each in told), sum(each.file_size for each in told)
        if valid * 2 < size:
            text = (
                f"after {(told[0].t - state.last) / 1e9:.0f} quiet seconds, {valid} of {size} bytes are valid"
            )
            needs = (who, *context.collectors_of(who))
            rows = ((*who, told[-1].seq),)
            outcome.findings.append(Finding("S9", context.name(who), text, rows, told[-1].t, needs))
        return outcome


def _of_the_end(states: States) -> States:
    """The last rows without others in between: of every file, when the store stopped."""
    first = len(states)
    while first and (first == len(states) or states[first - 1].seq + 1 == states[first].seq):
        first -= 1
    return states[first:]


def fold_garbage(runs: Sequence[Run], piece: Chunk, rows: Rows) -> Iterator[tuple[Key, tuple[int, States]]]:
    """Summarise garbage as `Garbage.summarise` does, from arrays."""
    collects = rows.are(COLLECTOR)
    collector_of = store_of_collector(runs[piece.run], piece.actor)
    for store, its in ((piece.actor, rows.where(~collects)), (collector_of, rows.where(collects))):
        if store and len(its):
            acts = its.t[its.event != Ev.FILE_STATE]
            told = its.where(its.event == Ev.FILE_STATE)
            states = list(map(State, *(column.tolist() for column in _state(told))))
            yield (piece.run, store), (int(acts.max()) if len(acts) else 0, states)


def _quiet(story: Story) -> Chain:
    """The last activity in the store, and the LOCK that did not follow."""
    seen = [
        story.near(event, story.last.t, after=False)
        for event in (Ev.APPEND, Ev.STORE_REMOVE, Ev.ROLL, Ev.UNLOCK)
    ]
    return [*links_in_time(seen), Link(story.run, None, "LOCK: no file went to the collector")]


_SQL = """
WITH busy AS (
    SELECT s.run, s.actor, max(s.t) AS t FROM (
        SELECT run, actor, t FROM stored WHERE event IN (53, 40, 42, 55, 41, 43, 46, 47, 48, 51)
        UNION ALL SELECT r.run, collector.parent, r.t FROM stored AS r JOIN actors AS collector
                  ON collector.run = r.run AND collector.actor = r.actor
                  WHERE r.event IN (60, 62, 63, 65, 66)) AS s GROUP BY s.run, s.actor),
at_the_end AS (
    SELECT f.run, f.actor, min(f.t) AS t, max(f.seq) AS seq, sum(f.valid_total_size) AS valid, sum(f.file_size) AS size
    FROM file_state_rows AS f
    WHERE NOT EXISTS (SELECT 1 FROM stored AS r WHERE r.run = f.run AND r.actor = f.actor AND r.seq > f.seq AND r.event NOT IN (52, 56, 2, 5))
    GROUP BY f.run, f.actor)
SELECT e.run, e.actor, e.seq FROM at_the_end AS e JOIN busy AS b ON b.run = e.run AND b.actor = e.actor
WHERE e.t - b.t >= 60000000000 AND e.valid * 2 < e.size
"""

RULE = Rule(
    id="S9",
    name="no garbage is left",
    text=("A store in which nothing happened for a minute before its clean end is not mostly garbage."),
    sources=(
        "docs/reference/message-store.md#when-a-combine-is-due",
        "docs/reference/message-store.md#when-a-compaction-is-due",
    ),
    exercised=Exercised("a store that was quiet for a minute before its clean end"),
    machines=(Garbage,),
    sql=_SQL,
    explain=_quiet,
)
