"""Times for which mail waited in mailboxes, and senders for credit or alarms: from the levels of `measures` to the lines of
a `Picture`.

The course of a level ends with its actor, at the earliest of

    its ACTOR_STOP, or the CHILD_EXIT that its supervisor writes of it
    the start of its successor: a killed supervisor writes no exits of its children
    the last row of its run, for actors alive when the process was killed
    its first missing row: behind it a fall may be missing, and the level is not known
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from warrenmq.replay.drive.levels import Change, Kind, Span, spans
from warrenmq.replay.explain.evidence import in_order
from warrenmq.replay.report.measures import Measures
from warrenmq.replay.report.picture import Held, Mailbox, Picture
from warrenmq.replay.report.series import Axis
from warrenmq.trace.catalog import FOREVER, Catalog
from warrenmq.trace.events import ActorStart, ChildExit, Ev

AN_ALARM = "an alarm"
"""The peer of a sender that waits for an alarm, instead of an actor's name."""
TOP = 8
"""Lines of a plot."""

Who = tuple[int, int]
"""(run, actor)"""


class LevelOverTime(NamedTuple):
    """One level over time."""

    kind: int
    who: Who
    towards: str
    """The name of the peer, of CREDIT; AN_ALARM, of ALARM."""
    until: int
    """The time at which it ended."""
    changes: dict[int, Change]
    """Changes by slice of time."""
    spans: list[Span]

    @property
    def rises(self) -> int:
        return sum(change[0] for change in self.changes.values())

    @property
    def falls(self) -> int:
        return sum(change[1] for change in self.changes.values())

    @property
    def seconds(self) -> float:
        """The area under the level: the sum of all waits, in seconds."""
        return sum(span.ns for span in self.spans) / 1e9

    @property
    def most(self) -> int:
        """The highest at the end of a slice."""
        return max((span.level for span in self.spans), default=0)


def courses(measures: Measures, catalog: Catalog) -> Iterator[LevelOverTime]:
    """The courses of all levels, in a fixed order."""
    ends = _ends(measures, catalog)
    changes: dict[tuple[int, int, int, int], dict[int, Change]] = defaultdict(dict)
    for key, change in measures.levels.items():
        changes[key[:4]][key.slice] = change
    for (kind, run, actor, peer), by_slice in sorted(changes.items()):
        if (until := ends.get((run, actor))) is None:
            continue  # SENDs name this receiver, which has no row of its own
        towards = {Kind.CREDIT: catalog.runs[run].actor_name(peer), Kind.ALARM: AN_ALARM}.get(Kind(kind), "")
        counted = {
            slice_: change for slice_, change in by_slice.items() if slice_ <= until // measures.slice_ns
        }
        yield LevelOverTime(
            kind, (run, actor), towards, until, counted, list(spans(counted, until, measures.slice_ns))
        )


def _ends(measures: Measures, catalog: Catalog) -> dict[Who, int]:
    """The time until which each actor's levels are known."""
    last: Counter[int] = Counter()
    for who, coverage in catalog.coverage.items():
        last[who[0]] = max(last[who[0]], coverage.t_last)
    ends = {
        who: last[who[0]] if coverage.known_until == FOREVER else coverage.known_until
        for who, coverage in catalog.coverage.items()
    }

    def end(who: Who, t: int) -> None:
        if who in ends:
            ends[who] = min(ends[who], t)

    living: dict[tuple[int, str], Who] = {}
    for run, row in sorted(measures.rare, key=in_order):
        match row.event:
            case Ev.ACTOR_STOP:
                end((run, row.actor), row.t)
            case Ev.CHILD_EXIT:
                end((run, ChildExit.of(row).child), row.t)
            case Ev.ACTOR_START:
                name = run, catalog.runs[run].actor_name(row.actor)
                if ActorStart.of(row).incarnation > 1 and name in living:
                    end(living[name], row.t)
                living[name] = run, row.actor
    return ends


def mailboxes(picture: Picture, found: list[LevelOverTime], catalog: Catalog, axis: Axis) -> None:
    """The deepest, each with all incarnations of its actor."""
    boxes: dict[str, list[LevelOverTime]] = defaultdict(list)
    for course in found:
        if course.kind == Kind.MAIL and course.spans:
            boxes[catalog.runs[course.who[0]].actor_name(course.who[1])].append(course)
    deepest = sorted(
        boxes,
        key=lambda name: (
            -max(each.most for each in boxes[name]),
            -sum(each.seconds for each in boxes[name]),
            name,
        ),
    )
    for name in deepest[:TOP]:
        its = boxes[name]
        if most := max(each.most for each in its):
            taken, seconds = sum(each.falls for each in its), sum(each.seconds for each in its)
            wait = seconds / max(taken, 1)
            picture.mailboxes[name] = Mailbox(taken, wait, most, _depth(its, axis), _in_and_out(its, axis))


def _depth(its: list[LevelOverTime], axis: Axis) -> list[int | None]:
    """The greatest depth within each point; None while the actor is not running."""
    line: list[int | None] = [None] * axis.points
    for course in its:
        run = course.who[0]
        for point in range(axis.point(run, course.spans[0].first), axis.point_at(run, course.until) + 1):
            line[point] = line[point] or 0
        for span in course.spans:
            for point in range(axis.point(run, span.first), axis.point(run, span.end - 1) + 1):
                line[point] = max(line[point] or 0, span.level)
    return line


def _in_and_out(its: list[LevelOverTime], axis: Axis) -> list[tuple[int, int]]:
    found = [(0, 0)] * axis.points
    for course in its:
        for slice_, (rises, falls, _) in course.changes.items():
            point = axis.point(course.who[0], slice_)
            found[point] = found[point][0] + rises, found[point][1] + falls
    return found


def held_up(picture: Picture, found: list[LevelOverTime], catalog: Catalog, axis: Axis) -> None:
    """Fill in the senders that waited, and the number that waited at a time, by cause."""
    waits = [course for course in found if course.kind != Kind.MAIL and course.rises]
    longest: defaultdict[str, float] = defaultdict(float)
    for course in waits:
        longest[course.towards] += course.seconds
    names = sorted(longest, key=lambda name: (-longest[name], name))
    rest = f"{len(names) - TOP} more"
    picture.waiting = {name: [0.0] * axis.points for name in [*names[:TOP], *([rest] if names[TOP:] else [])]}
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    times: Counter[tuple[str, str]] = Counter()
    for course in waits:
        towards = course.towards if course.towards in picture.waiting else rest
        whose = catalog.runs[course.who[0]].actor_name(course.who[1]), towards
        seconds[whose] += course.seconds
        times[whose] += course.rises
        line = picture.waiting[towards]
        for span in course.spans:
            for point, share in axis.shares(course.who[0], span.first, span.end):
                line[point] += share * span.ns / 1e9 / axis.width
    picture.held = [
        Held(*whose, seconds[whose], times[whose])
        for whose in sorted(seconds, key=lambda each: (-seconds[each], each))
    ]
