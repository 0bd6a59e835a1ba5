"""Totals of a trace, some two dozen, and the comparison of two traces by them.

The numbers come from the tables of `measures`, so either engine gives the same ones.  Those that grow with the
length of a run are also given for each message, which is what runs of different lengths can be compared by.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from warrenmq.latency import percentile
from warrenmq.replay.drive.levels import Kind
from warrenmq.replay.report.blocking import courses
from warrenmq.replay.report.measures import CONFIRM_DELAY, CONSUMER_DELAY, WAIT_DELAY, Measures, Tally
from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import REDELIVERED, Decision, Ev, Reason, Trigger

MB = 1e-6
DELAYS = {CONFIRM_DELAY: "confirm", WAIT_DELAY: "delivery", CONSUMER_DELAY: "ack"}
PERCENTS = (50, 99)


@dataclass(frozen=True)
class Counted:
    """A number that is how many rows there are, or the sum of `count` or `size` of a Tally over them."""

    name: str
    events: tuple[Ev, ...]
    what: Literal["rows", "count", "size"] = "rows"
    unit: float = 1
    flag: int | None = None


COUNTED = (
    Counted("messages published", (Ev.PUBLISH,), "count"),
    Counted("messages delivered", (Ev.DELIVER,), "count"),
    Counted("messages acked", (Ev.ACK,), "count"),
    Counted("messages requeued", (Ev.REQUEUE,), "count"),
    Counted("messages dropped", (Ev.DROP,), "count"),
    Counted("messages paged out", (Ev.PAGE_OUT,), "count"),
    Counted("messages paged in", (Ev.PAGE_IN,), "count"),
    Counted("index written MB", (Ev.QI_WRITE,), "size", MB),
    Counted("index flushed MB", (Ev.QI_FLUSH,), "size", MB),
    Counted("index syncs", (Ev.QI_SYNC,)),
    Counted("store written MB", (Ev.FILE_WRITE,), "size", MB),
    Counted("store syncs", (Ev.FILE_SYNC,)),
    *(
        Counted(f"store syncs, {each.name.lower().replace('_', ' ')}", (Ev.FILE_SYNC,), flag=each)
        for each in (Trigger.BUFFER_FULL, Trigger.TIMER, Trigger.MAILBOX_EMPTY, Trigger.ROLL_OVER)
    ),
    Counted("store writes", (Ev.STORE_WRITE,)),
    Counted("store writes saved by flying counters", (Ev.STORE_WRITE,), flag=Decision.IGNORE),
    Counted("store reads", (Ev.READ,)),
    Counted("files made", (Ev.ROLL,)),
    Counted("files deleted", (Ev.FILE_DELETE,)),
    Counted("gc runs", (Ev.GC_DONE, Ev.COMPACT_DONE)),
    Counted("gc copied MB", (Ev.GC_MOVE, Ev.COMPACT_MOVE), "size", MB),
    Counted("actors crashed", (Ev.CHILD_EXIT,), flag=Reason.CRASH),
    Counted("restarts", (Ev.RESTART,)),
)


def totals(measures: Measures) -> dict[str, float]:
    """The totals by name, in a fixed order; delays in ms, a delay that never occurred is left out."""
    sums: defaultdict[tuple[int, int], Tally] = defaultdict(Tally)
    for key, tally in measures.tallies.items():
        sums[key.event, key.flag] += tally
    for _, row in measures.rare:
        sums[row.event, row.flag] += Tally(1)
    found: dict[str, float] = {}
    for each in COUNTED:
        found[each.name] = each.unit * sum(
            getattr(tally, each.what)
            for (event, flag), tally in sums.items()
            if event in each.events and each.flag in {None, flag}
        )
        if each.name == "messages delivered":
            found["messages redelivered"] = sum(
                tally.count
                for (event, flag), tally in sums.items()
                if event == Ev.DELIVER and flag & REDELIVERED
            )
    found |= _for_each_message(found)
    for which, name in DELAYS.items():
        histogram: Counter[int] = Counter()
        for (kind, _, _), classes in measures.delays.items():
            if kind == which:
                histogram.update(classes)
        for percent in PERCENTS if histogram else ():
            found[f"{name} p{percent} ms"] = percentile(histogram, percent) / 1e6
    return found


def waiting_totals(measures: Measures, catalog: Catalog) -> dict[str, float]:
    """Times for which mail and senders waited, by name, in a fixed order; left out for traces older than the events of
    waiting.
    """
    found = list(courses(measures, catalog))
    numbers: dict[str, float] = {}
    for kind, event, what in (
        (Kind.CREDIT, Ev.CREDIT_BLOCKED, "credit"),
        (Kind.ALARM, Ev.ALARM_BLOCKED, "an alarm"),
    ):
        if all(event in run.events for run in catalog.runs):
            waits = [course for course in found if course.kind == kind]
            numbers[f"waits for {what}"] = sum(course.rises for course in waits)
            numbers[f"waited for {what} s"] = sum(course.seconds for course in waits)
    mail = [course for course in found if course.kind == Kind.MAIL]
    numbers["mail between actors"] = taken = sum(course.falls for course in mail)
    numbers["deepest mailbox"] = max((course.most for course in mail), default=0)
    if taken:
        numbers["wait in a mailbox mean ms"] = sum(course.seconds for course in mail) * 1e3 / taken
    return numbers


def _for_each_message(found: dict[str, float]) -> dict[str, float]:
    messages = found["messages published"]
    if not messages:
        return {}
    written = sum(
        found[f"{what} MB"] for what in ("index written", "index flushed", "store written", "gc copied")
    )
    syncs = found["index syncs"] + found["store syncs"]
    return {"bytes written a message": written / MB / messages, "messages a sync": messages / max(syncs, 1)}


@dataclass(frozen=True)
class Change:
    """One number of two traces."""

    name: str
    one: float | None
    other: float | None
    """None where a trace has no such number."""

    @property
    def ratio(self) -> float | None:
        """The other trace's number divided by the first's."""
        return self.other / self.one if self.one and self.other is not None else None

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "a": self.one, "b": self.other, "ratio": self.ratio}


def changes(one: dict[str, float], other: dict[str, float]) -> list[Change]:
    """The totals of either trace, in order, without those that are 0 in both."""
    names = [*one, *(name for name in other if name not in one)]
    return [
        Change(name, one.get(name), other.get(name)) for name in names if one.get(name) or other.get(name)
    ]
