"""Builds a `Picture` from `measures`: histories of the stores' files, their collectors and the actors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from warrenmq.replay.explain.evidence import Placed, in_order
from warrenmq.replay.report.blocking import courses, held_up, mailboxes
from warrenmq.replay.report.measures import Measures
from warrenmq.replay.report.picture import Combine, Cut, FileBar, Life, Picture
from warrenmq.replay.report.picture import Restart as RestartMark
from warrenmq.replay.report.series import Axis, decisions, delays, depth, flows, flushes
from warrenmq.replay.report.store_files import owner
from warrenmq.trace.catalog import Catalog, Run
from warrenmq.trace.events import WANTS_CONFIRM, ActorStop, ChildExit, Escalate, Ev, Reason, Restart

Store = tuple[int, int]
"""One incarnation of a store: (run, actor)."""

RUNNING = "still running"
PROCESS_DIED = "the process died"
_DEATHS = frozenset({Reason.KILLED.name, Reason.CRASH.name, PROCESS_DIED})


def build(measures: Measures, catalog: Catalog) -> Picture:
    """Build the whole picture."""
    runs = catalog.runs
    axis = Axis(measures, runs)
    rare = sorted(measures.rare, key=in_order)
    picture = Picture(axis.width, axis.seconds)
    flows(picture, measures, axis)
    depth(picture, measures, rare, runs, axis)
    delays(picture, measures, axis)
    flushes(picture, measures)
    decisions(picture, measures)
    found = list(courses(measures, catalog))
    mailboxes(picture, found, catalog, axis)
    held_up(picture, found, catalog, axis)
    disk(picture, measures, rare, runs, axis)
    files(picture, measures, rare, runs)
    collections(picture, measures, axis)
    lives(picture, measures, rare, runs, axis)
    return picture


def disk(
    picture: Picture, measures: Measures, rare: Iterable[Placed], runs: Sequence[Run], axis: Axis
) -> None:
    """Bytes in files and bytes of live records over time; each incarnation of a store starts from what it found."""
    started = {
        (run, row.actor): axis.point_at(run, row.t) for run, row in rare if row.event == Ev.STORE_RECOVERED
    }
    on_disk: dict[Store, Counter[int]] = {store: Counter() for store in started}
    live: dict[Store, Counter[int]] = {store: Counter() for store in started}
    for key, tally in measures.tallies.items():
        if key.event == Ev.FILE_WRITE and (key.run, key.actor) in started:
            on_disk[key.run, key.actor][axis.point(key.run, key.slice)] += tally.size
    for (run, actor, slice_), gained in measures.bodies.items():
        if (run, actor) in started:
            live[run, actor][axis.point(run, slice_)] += gained
    _found_and_freed(on_disk, measures, runs, axis)
    for table, changes in ((picture.on_disk, on_disk), (picture.live, live)):
        for store in sorted(started, key=lambda store: (started[store], store)):
            line = table.setdefault(runs[store[0]].actor_name(store[1]), [0] * axis.points)
            total = 0
            for point in range(started[store], axis.points):
                total += changes[store][point]
                line[point] = total


def _found_and_freed(
    on_disk: dict[Store, Counter[int]], measures: Measures, runs: Sequence[Run], axis: Axis
) -> None:
    """Files that a store found at its start, deleted, or had combined or compacted."""
    for run, its in measures.files.items():
        for (actor, slice_), size in its.found.items():
            if (run, actor) in on_disk:
                on_disk[run, actor][axis.point(run, slice_)] += size
    for key, tally in measures.tallies.items():
        if key.event in {Ev.GC_DONE, Ev.TRUNCATE}:
            stores = [actor for run, actor in on_disk if run == key.run]
            store = owner(runs[key.run], key.actor, stores)
        elif key.event == Ev.FILE_DELETE:
            store = key.actor
        else:
            continue
        if store is not None and (key.run, store) in on_disk:
            on_disk[key.run, store][axis.point(key.run, key.slice)] -= tally.size


def files(picture: Picture, measures: Measures, rare: Iterable[Placed], runs: Sequence[Run]) -> None:
    """The files at the end, of the last incarnation of each store."""
    last = {
        runs[run].actor_name(row.actor): (run, row.actor)
        for run, row in rare
        if row.event == Ev.STORE_RECOVERED
    }
    picture.files = [
        FileBar(name, each.file, each.valid_total_size, each.file_size)
        for name, (run, actor) in sorted(last.items())
        for each in measures.files[run].files
        if each.store == actor
    ]


def collections(picture: Picture, measures: Measures, axis: Axis) -> None:
    """Bytes that the collectors reclaimed, and when."""
    for key, tally in measures.tallies.items():
        if key.event in {Ev.GC_DONE, Ev.TRUNCATE}:
            what = "combine" if key.event == Ev.GC_DONE else "compaction"
            times, size = picture.reclaimed.get(what, (0, 0))
            picture.reclaimed[what] = times + tally.rows, size + tally.size
    for run, its in sorted(measures.files.items()):
        for each in its.collected:
            at = axis.second(run, each.t)
            if each.source is None:
                picture.cuts.append(Cut(at, each.file, each.reclaimed))
            else:
                picture.combines.append(Combine(at, each.ns / 1e9, each.file, each.source, each.reclaimed))


def lives(
    picture: Picture, measures: Measures, rare: Sequence[Placed], runs: Sequence[Run], axis: Axis
) -> None:
    """Fill in the start and end of each actor, and the restarts."""
    births: dict[tuple[int, int], float] = {}
    ends: dict[tuple[int, int], tuple[float, str]] = {}
    first = {run: axis.second(run, row.t) for run, row in reversed(rare)}
    last = {run: axis.second(run, row.t) for run, row in rare}
    for key in measures.tallies:
        at = axis.second(key.run, key.slice * measures.slice_ns)
        last[key.run] = max(last.get(key.run, at), at)
    clean = {run for run, row in rare if row.event == Ev.RUN_END}
    for run, row in rare:
        at = axis.second(run, row.t)
        match row.event:
            case Ev.ACTOR_START:
                births[run, row.actor] = at
            case Ev.ACTOR_STOP:
                ends[run, row.actor] = (at, _reason(ActorStop.of(row).reason))
            case Ev.CHILD_EXIT:
                exit_ = ChildExit.of(row)
                ends.setdefault((run, exit_.child), (at, _reason(exit_.reason)))
            case Ev.RESTART | Ev.ESCALATE:
                restart = Restart.of(row) if row.event == Ev.RESTART else Escalate.of(row)
                supervisor, child = (runs[run].actor_name(actor) for actor in (row.actor, restart.child))
                gave_up = row.event == Ev.ESCALATE
                picture.restarts.append(
                    RestartMark(at, supervisor, child, restart.restarts, restart.intensity, gave_up=gave_up)
                )
    owed = _owed(measures)
    for (run, actor), born in births.items():
        entry = runs[run].actors.get(actor)
        end, how = ends.get((run, actor), (last[run], RUNNING if run in clean else PROCESS_DIED))
        name = runs[run].actor_name(actor)
        picture.lives.append(Life(name, entry.kind if entry else "", born, max(end, born), how))
        if owed[run, actor] > 0 and how in _DEATHS:
            picture.unconfirmed[name] = picture.unconfirmed.get(name, 0) + owed[run, actor]
    picture.runs = [(first[run], last[run]) for run in sorted(first)]


def _owed(measures: Measures) -> Counter[tuple[int, int]]:
    """(run, queue's actor) -> messages that were taken in for a confirm and have none at the end."""
    owed: Counter[tuple[int, int]] = Counter()
    for key, tally in measures.tallies.items():
        if key.event == Ev.PUBLISH and key.flag & WANTS_CONFIRM:
            owed[key.run, key.actor] += tally.count
        elif key.event == Ev.CONFIRM:
            owed[key.run, key.actor] -= tally.count
    return owed


def _reason(flag: int) -> str:
    return Reason(flag).name if flag in Reason._value2member_map_ else f"?{flag}"
