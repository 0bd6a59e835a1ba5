"""Builds a `Picture` from `measures`: histories of the stores' files, their collectors and the actors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from warrenmq.replay.report.blocking import courses, held_up, mailboxes
from warrenmq.replay.report.measures import Measures, Row
from warrenmq.replay.report.picture import Combine, Cut, FileBar, Life, Picture, Restart
from warrenmq.replay.report.series import Axis, decisions, delays, depth, flows, flushes
from warrenmq.trace.catalog import Catalog, Run
from warrenmq.trace.events import Ev, Reason

Store = tuple[int, int]
"""One incarnation of a store: (run, actor)."""

RUNNING = "still running"
PROCESS_DIED = "the process died"


def build(measures: Measures, catalog: Catalog) -> Picture:
    """Build the whole picture."""
    runs = catalog.runs
    axis = Axis(measures, runs)
    rare = sorted(measures.rare, key=lambda row: (row.run, row.t, row.actor, row.seq))
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
    files(picture, rare, runs)
    collections(picture, rare, axis)
    lives(picture, measures, rare, runs, axis)
    return picture


def disk(picture: Picture, measures: Measures, rare: Iterable[Row], runs: Sequence[Run], axis: Axis) -> None:
    """Bytes in files and bytes of live records over time; each incarnation of a store starts from what it found."""
    started = {(row.run, row.actor): axis.point_of(row) for row in rare if row.event == Ev.STORE_RECOVERED}
    on_disk: dict[Store, Counter[int]] = {store: Counter() for store in started}
    live: dict[Store, Counter[int]] = {store: Counter() for store in started}
    for key, (_, _, _, c) in measures.tallies.items():
        if key.event == Ev.FILE_WRITE and (key.run, key.actor) in started:
            on_disk[key.run, key.actor][axis.point(key.run, key.slice)] += c
    for (run, actor, slice_), gained in measures.bodies.items():
        if (run, actor) in started:
            live[run, actor][axis.point(run, slice_)] += gained
    _found_and_freed(on_disk, rare, runs, axis)
    for table, changes in ((picture.on_disk, on_disk), (picture.live, live)):
        for store in sorted(started, key=lambda store: (started[store], store)):
            line = table.setdefault(runs[store[0]].actor_name(store[1]), [0] * axis.points)
            total = 0
            for point in range(started[store], axis.points):
                total += changes[store][point]
                line[point] = total


def _found_and_freed(
    on_disk: dict[Store, Counter[int]], rare: Iterable[Row], runs: Sequence[Run], axis: Axis
) -> None:
    """Files that a store found at its start, deleted, or had combined or compacted."""
    known: dict[Store, set[int]] = defaultdict(set)
    for row in rare:
        store = (row.run, row.actor)
        if row.event == Ev.ROLL:
            known[store] |= {row.a, row.b}
        elif row.event == Ev.FILE_STATE and store in on_disk and row.a not in known[store]:
            known[store].add(row.a)
            on_disk[store][axis.point_of(row)] += row.c
        elif row.event == Ev.FILE_DELETE and store in on_disk:
            on_disk[store][axis.point_of(row)] -= row.b
        elif row.event in {Ev.GC_DONE, Ev.TRUNCATE}:
            owner = _owner(row, on_disk, runs)
            if owner is not None:
                on_disk[owner][axis.point_of(row)] -= row.c


def _owner(row: Row, stores: Iterable[Store], runs: Sequence[Run]) -> Store | None:
    """The store whose collector wrote the row: its parent, else the one whose name its own begins with."""
    run = runs[row.run]
    entry = run.actors.get(row.actor)
    beside = [store for store in stores if store[0] == row.run]
    if entry is None:
        return None
    by_name = [store for store in beside if entry.name.startswith(run.actor_name(store[1]))]
    by_parent = [store for store in beside if store[1] == entry.parent]
    found = by_parent or by_name
    return found[-1] if found else None


def files(picture: Picture, rare: Sequence[Row], runs: Sequence[Run]) -> None:
    """The files at the end: a combine removes its source, a delete its file."""
    bars: dict[str, dict[int, FileBar]] = defaultdict(dict)
    stores = [(row.run, row.actor) for row in rare if row.event == Ev.STORE_RECOVERED]
    for row in rare:
        store = runs[row.run].actor_name(row.actor)
        if row.event == Ev.STORE_RECOVERED:
            bars[store] = {}
        elif row.event == Ev.FILE_STATE:
            bars[store][row.a] = FileBar(store, row.a, row.b, row.c)
        elif row.event == Ev.FILE_DELETE:
            bars[store].pop(row.a, None)
        elif row.event == Ev.GC_DONE and row.a != row.b and (owner := _owner(row, stores, runs)):
            bars[runs[row.run].actor_name(owner[1])].pop(row.b, None)
    picture.files = [bar for store in sorted(bars) for _, bar in sorted(bars[store].items())]


def collections(picture: Picture, rare: Iterable[Row], axis: Axis) -> None:
    """Bytes that the collectors reclaimed, and when."""
    started: dict[tuple[int, int, int], Row] = {}
    for row in rare:
        job = (row.run, row.actor, row.a)
        if row.event == Ev.GC_START:
            started[job] = row
        elif row.event == Ev.GC_DONE:
            start = axis.second(row.run, started.pop(job, row).t)
            picture.combines.append(Combine(start, axis.second(row.run, row.t) - start, row.a, row.b, row.c))
        elif row.event == Ev.TRUNCATE:
            picture.cuts.append(Cut(axis.second(row.run, row.t), row.a, row.c))


def lives(picture: Picture, measures: Measures, rare: Sequence[Row], runs: Sequence[Run], axis: Axis) -> None:
    births: dict[tuple[int, int], float] = {}
    ends: dict[tuple[int, int], tuple[float, str]] = {}
    first = {row.run: axis.second(row.run, row.t) for row in reversed(rare)}
    last = {row.run: axis.second(row.run, row.t) for row in rare}
    for key in measures.tallies:
        at = axis.second(key.run, key.slice * measures.slice_ns)
        last[key.run] = max(last.get(key.run, at), at)
    clean = {row.run for row in rare if row.event == Ev.RUN_END}
    for row in rare:
        at = axis.second(row.run, row.t)
        if row.event == Ev.ACTOR_START:
            births[row.run, row.actor] = at
        elif row.event == Ev.ACTOR_STOP:
            ends[row.run, row.actor] = (at, _reason(row.flag))
        elif row.event == Ev.CHILD_EXIT:
            ends.setdefault((row.run, row.peer), (at, _reason(row.flag)))
        elif row.event in {Ev.RESTART, Ev.ESCALATE}:
            supervisor, child = (runs[row.run].actor_name(actor) for actor in (row.actor, row.peer))
            picture.restarts.append(
                Restart(at, supervisor, child, row.a, row.b, gave_up=row.event == Ev.ESCALATE)
            )
    for (run, actor), born in births.items():
        entry = runs[run].actors.get(actor)
        end, how = ends.get((run, actor), (last[run], RUNNING if run in clean else PROCESS_DIED))
        name = runs[run].actor_name(actor)
        picture.lives.append(Life(name, entry.kind if entry else "", born, max(end, born), how))
    picture.runs = [(first[run], last[run]) for run in sorted(first)]


def _reason(flag: int) -> str:
    return Reason(flag).name if flag in Reason._value2member_map_ else f"?{flag}"
