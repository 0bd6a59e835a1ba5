"""Builds a `Picture` from `measures`: histories of the stores' files, their collectors and the actors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from warrenmq.replay.explain.evidence import Placed, in_order
from warrenmq.replay.report.blocking import courses, held_up, mailboxes
from warrenmq.replay.report.measures import Measures
from warrenmq.replay.report.picture import Combine, Cut, FileBar, Life, Picture
from warrenmq.replay.report.picture import Restart as RestartMark
from warrenmq.replay.report.series import Axis, decisions, delays, depth, flows, flushes
from warrenmq.trace.catalog import Catalog, Run
from warrenmq.trace.events import (
    ActorStop,
    ChildExit,
    Escalate,
    Ev,
    FileDelete,
    FileState,
    GcDone,
    GcStart,
    Reason,
    Restart,
    Roll,
    Truncate,
)
from warrenmq.trace.schema import Row

Store = tuple[int, int]
"""One incarnation of a store: (run, actor)."""

RUNNING = "still running"
PROCESS_DIED = "the process died"


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
    files(picture, rare, runs)
    collections(picture, rare, axis)
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
    _found_and_freed(on_disk, rare, runs, axis)
    for table, changes in ((picture.on_disk, on_disk), (picture.live, live)):
        for store in sorted(started, key=lambda store: (started[store], store)):
            line = table.setdefault(runs[store[0]].actor_name(store[1]), [0] * axis.points)
            total = 0
            for point in range(started[store], axis.points):
                total += changes[store][point]
                line[point] = total


def _found_and_freed(
    on_disk: dict[Store, Counter[int]], rare: Iterable[Placed], runs: Sequence[Run], axis: Axis
) -> None:
    """Files that a store found at its start, deleted, or had combined or compacted."""
    known: dict[Store, set[int]] = defaultdict(set)
    for run, row in rare:
        store: Store | None = (run, row.actor)
        by = 0
        match row.event:
            case Ev.ROLL:
                roll = Roll.of(row)
                known[run, row.actor] |= {roll.new_file, roll.old_file}
            case Ev.FILE_STATE:
                state = FileState.of(row)
                if state.file not in known[run, row.actor]:
                    known[run, row.actor].add(state.file)
                    by = state.file_size
            case Ev.FILE_DELETE:
                by = -FileDelete.of(row).size
            case Ev.GC_DONE:
                store, by = _owner(run, row, on_disk, runs), -GcDone.of(row).reclaimed
            case Ev.TRUNCATE:
                store, by = _owner(run, row, on_disk, runs), -Truncate.of(row).size
        if store in on_disk:
            on_disk[store][axis.point_at(run, row.t)] += by


def _owner(number: int, row: Row, stores: Iterable[Store], runs: Sequence[Run]) -> Store | None:
    """The store whose collector wrote the row: its parent, else the one whose name its own begins with."""
    run = runs[number]
    entry = run.actors.get(row.actor)
    beside = [store for store in stores if store[0] == number]
    if entry is None:
        return None
    by_name = [store for store in beside if entry.name.startswith(run.actor_name(store[1]))]
    by_parent = [store for store in beside if store[1] == entry.parent]
    found = by_parent or by_name
    return found[-1] if found else None


def files(picture: Picture, rare: Sequence[Placed], runs: Sequence[Run]) -> None:
    """The files at the end: a combine removes its source, a delete its file."""
    bars: dict[str, dict[int, FileBar]] = defaultdict(dict)
    stores = [(run, row.actor) for run, row in rare if row.event == Ev.STORE_RECOVERED]
    for run, row in rare:
        store = runs[run].actor_name(row.actor)
        match row.event:
            case Ev.STORE_RECOVERED:
                bars[store] = {}
            case Ev.FILE_STATE:
                state = FileState.of(row)
                bars[store][state.file] = FileBar(store, state.file, state.valid_total_size, state.file_size)
            case Ev.FILE_DELETE:
                bars[store].pop(FileDelete.of(row).file, None)
            case Ev.GC_DONE:
                done, owner = GcDone.of(row), _owner(run, row, stores, runs)
                if done.destination != done.source and owner is not None:
                    bars[runs[run].actor_name(owner[1])].pop(done.source, None)
    picture.files = [bar for store in sorted(bars) for _, bar in sorted(bars[store].items())]


def collections(picture: Picture, rare: Iterable[Placed], axis: Axis) -> None:
    """Bytes that the collectors reclaimed, and when."""
    started: dict[tuple[int, int, int], int] = {}
    for run, row in rare:
        at = axis.second(run, row.t)
        match row.event:
            case Ev.GC_START:
                started[run, row.actor, GcStart.of(row).destination] = row.t
            case Ev.GC_DONE:
                done = GcDone.of(row)
                start = axis.second(run, started.pop((run, row.actor, done.destination), row.t))
                picture.combines.append(
                    Combine(start, at - start, done.destination, done.source, done.reclaimed)
                )
            case Ev.TRUNCATE:
                cut = Truncate.of(row)
                picture.cuts.append(Cut(at, cut.file, cut.size))


def lives(
    picture: Picture, measures: Measures, rare: Sequence[Placed], runs: Sequence[Run], axis: Axis
) -> None:
    """When each actor started and ended, and the restarts."""
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
    for (run, actor), born in births.items():
        entry = runs[run].actors.get(actor)
        end, how = ends.get((run, actor), (last[run], RUNNING if run in clean else PROCESS_DIED))
        name = runs[run].actor_name(actor)
        picture.lives.append(Life(name, entry.kind if entry else "", born, max(end, born), how))
    picture.runs = [(first[run], last[run]) for run in sorted(first)]


def _reason(flag: int) -> str:
    return Reason(flag).name if flag in Reason._value2member_map_ else f"?{flag}"
