"""Q6: a message is delivered with the body with which it was published.

Key: (run, queue actor).  PUBLISH and DELIVER have a checksum of their messages: a sum over them in which each counts by its place (trace/events.py),
so rows that cover the same messages in other portions have to add up to the same.  Sequence ids are places on a line, and each row says how far
two of them are apart:

    PUBLISH  0 ─────── 17 ───────► 5         DELIVER  0 ── 9 ──► 3 ── 8 ──► 5    fine: 9 + 8 = 17
                                             DELIVER  0 ── 9 ──► 3 ── 6 ──► 5    Q6

A row that says otherwise than those before it is a violation, whatever rows are missing: no process gives a sequence id twice.  What an earlier
process of the queue took in has no PUBLISH here, and says nothing.

Array form: a delivery that has the same messages as a PUBLISH of the same piece of rows, and the same checksum, is fine; both are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import Ints, Rows, np
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import Deliver, Ev, Publish
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_MODULUS = 0xFFFF
"""Checksums are one more than a sum modulo this."""


class _Covers(Shared[T], of=(Ev.PUBLISH, Ev.DELIVER)):
    """Messages that were published or delivered together."""

    first_seq_id: T
    count: T


_covers = _Covers.getter("seq", "t", "first_seq_id", "count")
_checksum = {each.number: each.getter("checksum") for each in (Publish, Deliver)}


class Part(NamedTuple):
    """A row with a checksum."""

    seq: int
    t: int
    first: int
    messages: int
    checksum: int


Parts = tuple[list[Part], int]
"""Rows that have to be compared, and how many deliveries have a checksum."""


class Line:
    """Sequence ids as places on a line, as far as rows say how far apart they are."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        """Sequence id -> one that it is joined to, and how far behind that one it is."""

    def join(self, part: Part) -> bool:
        """Take a row in; False if the rows before it say otherwise."""
        (left, before), (right, behind) = self._find(part.first), self._find(part.first + part.messages)
        apart = before + part.checksum - 1 - behind
        if left == right:
            return apart % _MODULUS == 0
        self._places[right] = left, apart
        return True

    def _find(self, id_: int) -> tuple[int, int]:
        """The id that this one is joined to in the end, and how far behind that one it is."""
        way: list[int] = []
        while (joined := self._places.get(id_)) is not None:
            way.append(id_)
            id_ = joined[0]
        behind = 0
        for each in reversed(way):
            behind += self._places[each][1]
            self._places[each] = id_, behind
        return id_, behind


class Bodies(Machine):
    """Compares the checksums of what came in and what went out."""

    name: ClassVar[str] = "bodies"
    events: ClassVar[frozenset[int]] = frozenset({Ev.PUBLISH, Ev.DELIVER})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, Parts]]:
        deliveries = 0
        parts: list[Part] = []
        for row in rows:
            (checksum,) = _checksum[row.event](row)
            if checksum:
                seq, t, first, messages = _covers(row)
                parts.append(Part(seq, t, first, messages, checksum))
                deliveries += row.event == Ev.DELIVER
        if parts:
            yield (piece.run, piece.actor), (parts, deliveries)

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Parts]]:
        """Leave everything out if each delivery says the same as a publish."""
        published, delivered = (_table(event, rows).tolist() for event in (Publish, Deliver))
        into, out = ({tuple(each[2:]) for each in table} for table in (published, delivered))
        wanted = (
            [*published, *delivered]
            if out - into
            else [each for each in published if tuple(each[2:]) not in out]
        )
        if wanted or delivered:
            yield (piece.run, piece.actor), ([Part(*each) for each in wanted], len(delivered))

    def absorb(self, state: list[Parts], summary: Parts) -> None:
        state.append(summary)

    def finish(self, key: Key, state: list[Parts], context: TraceContext) -> Outcome:
        who, outcome, line = (int(key[0]), int(key[1])), Outcome(), Line()
        outcome.figures[EXERCISED, "Q6"] = sum(deliveries for _, deliveries in state)
        for part in sorted(part for parts, _ in state for part in parts):
            if not line.join(part):
                text = f"{part.messages} messages from {part.first} on were not delivered with the bodies that were published"
                rows = ((*who, part.seq),)
                outcome.findings.append(
                    Finding("Q6", f"queue {context.name(who)}", text, rows, part.t, (), (part.first,))
                )
        return outcome


def _table(event: type[Publish[Any] | Deliver[Any]], rows: Rows) -> Ints:
    """The rows of an event that have a checksum, each as a Part."""
    its = rows.where(rows.event == event.number)
    view = event.of(its)
    parts = np.stack((its.seq, its.t, view.first_seq_id, view.count, view.checksum), axis=1)
    found: Ints = parts[parts[:, 4] != 0]
    return found


def _both(story: Story) -> Chain:
    """Everything that befell the first of the messages."""
    return [*links_of(story.of_id(story.finding.about[0])), *links_of(story.evidence)]


_SQL = """
SELECT d.run, d.actor, d.seq FROM deliver_rows AS d
JOIN publish_rows AS p ON p.run = d.run AND p.actor = d.actor AND p.first_seq_id = d.first_seq_id AND p.count = d.count AND p.seq < d.seq
WHERE d.checksum <> 0 AND p.checksum <> 0 AND d.checksum <> p.checksum
"""

RULE = Rule(
    id="Q6",
    name="bodies as published",
    text="A message is delivered with the body with which it was published.",
    sources=("docs/reference/classic-queue.md#what-is-stored", "docs/reference/classic-queue.md#p19"),
    exercised=Exercised("a delivery with a checksum"),
    machines=(Bodies,),
    sql=_SQL,
    not_in_sql="deliveries that cover other messages together than were published together",
    explain=_both,
)
