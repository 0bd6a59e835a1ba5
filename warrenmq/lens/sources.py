"""Sources of a feed's rows: a recorded trace, a part of a long one, or a live trace."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice, repeat
from operator import itemgetter

from warrenmq.errors import CallerError
from warrenmq.lens.feed import Feed
from warrenmq.lens.marked import Evidence
from warrenmq.lens.saved import require_known
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.index import rows_of
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import Row
from warrenmq.trace.tail import Place, Tail, read_parts

WHOLE_ROWS = 200_000
"""Traces up to this are shown whole."""
WINDOW_ROWS = 30_000
"""The most rows that are shown at once; of a longer trace those around the row that was asked for."""
WARM_ROWS = 500_000
"""A window that begins later than this is shown without what was there before: to fold all of it would take seconds."""
CHECKED_ROWS = 300_000
"""Traces up to this are replayed at the start, for the marks of violated rules."""
SETTLED = 0.1
"""Seconds until a row that an actor had stamped is certainly written, so that all rows before it are there."""
PAUSE = 0.05
"""Seconds without a look at a live trace."""
_NAMED_RUNS = 3
"""Runs that an error names."""
_LARGE = 64 << 20
"""A live trace of more bytes than this is shown from now on, not from its beginning."""


def recorded(trace: Trace, title: str, at: int = 0) -> Feed:
    """Make a feed of a recorded trace, or of the rows around row `at` of a long one."""
    require_known(trace.catalog.runs)
    rows = trace.catalog.rows
    if not 0 <= at <= rows:
        raise CallerError(f"the trace has rows 1 to {rows}; there is no row {at}.")
    evidence = Evidence.of_findings(replay_trace(trace).violations if rows <= CHECKED_ROWS else ())
    if rows <= WHOLE_ROWS:
        feed = Feed(trace.catalog.runs, title, evidence=evidence)
        feed.add(rows_in_order(trace))
        return feed
    first = max(0, min(at - WINDOW_ROWS // 2, rows - WINDOW_ROWS))
    note = f"rows {first + 1:,} to {first + WINDOW_ROWS:,} of {rows:,}"
    if first <= WARM_ROWS:
        feed = Feed(trace.catalog.runs, title, note=note, evidence=evidence)
        feed.skip(islice(rows_in_order(trace), WINDOW_ROWS + first), first)
        return feed
    feed = Feed(trace.catalog.runs, title, first=first, note=f"{note}; what was there before is not shown")
    feed.add(islice(rows_from(trace, first), WINDOW_ROWS))
    return feed


def row_of(trace: Trace, actor: str, seq: int) -> int:
    """The number of the row that a finding names by its actor, before it perhaps the run, and the actor's own
    number of it; CallerError if there is none, or one in several runs.
    """
    found: dict[str, Chunk] = {}
    for chunk in trace.catalog.chunks:
        if chunk.seq_first <= seq < chunk.seq_end:
            run = trace.catalog.runs[chunk.run]
            name = run.actor_name(chunk.actor)
            if actor in {name, f"{run.name} {name}"}:
                found[run.name] = chunk
    if not found:
        raise CallerError(f"no actor {actor!r} of this trace has written a row {seq}.")
    if len(found) > 1:
        ways = " or ".join(f"'{run} {actor} {seq}'" for run in list(found)[:_NAMED_RUNS])
        raise CallerError(f"{len(found)} runs of this trace have a row {seq} of {actor}; say {ways}.")
    (chunk,) = found.values()
    return row_at(trace, chunk.run, trace.columns(chunk)[0][seq - chunk.seq_first])


def row_at(trace: Trace, run: int, t: int) -> int:
    """The number of the first row of a run that has this time or a later one."""
    return _rows_before(trace, run, t) + 1


def rows_from(trace: Trace, first: int) -> Iterator[tuple[int, Row]]:
    """The rows behind the first ones, of which only the pieces just before them are read."""
    chunks = sorted(trace.catalog.chunks, key=lambda chunk: (chunk.run, chunk.t_first))
    ends = sorted((chunk.run, chunk.t_last, chunk.rows) for chunk in chunks)
    ended = [0, *accumulate(rows for _, _, rows in ends)]
    low = begun = 0
    for place, chunk in enumerate(chunks):  # the last piece before which not too many rows were written
        # what has begun by then has not ended by then, so half of the difference is a guess
        if (begun + ended[bisect_left(ends, (chunk.run, chunk.t_first))]) // 2 > first:
            break
        low, begun = place, begun + chunk.rows
    while (before := _rows_before(trace, chunks[low].run, chunks[low].t_first)) > first:
        low -= 1  # the guess was too high; the first piece has none before it
    run, t = chunks[low].run, chunks[low].t_first
    return islice(rows_in_order(trace, since=(run, t)), first - before, None)


def _rows_before(trace: Trace, run: int, t: int) -> int:
    found = 0
    for chunk in trace.catalog.chunks:
        if chunk.run < run or (chunk.run == run and chunk.t_last < t):
            found += chunk.rows
        elif chunk.run == run and chunk.t_first < t:
            found += bisect_left(trace.columns(chunk, ("t",))[0], t)
    return found


class Follower:
    """A thread that adds the rows of a live trace to a feed."""

    def __init__(self, path: str, title: str) -> None:
        self._tail = Tail(os.path.abspath(path))
        self._runs: list[Run] = []
        self._place: Place = {}
        self._waiting: dict[int, list[Row]] = {}
        """Run -> its rows that are later than what is sure to be complete."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        note = ""
        if _bytes_in(path) > _LARGE:
            self._place = self._tail.look({})
            self._name_runs(self._place)
            note = "from now on; what was there before is not shown"
        self.feed = Feed(self._runs, title, live=True, note=note)

    def start(self) -> None:
        """Read what is there, then start the thread; CallerError for a run of a later version."""
        self.look()
        self._thread = threading.Thread(target=self._follow, name="lens", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.wait(PAUSE):
            try:
                self.look()
            except CallerError as why:  # a run of a later version has begun
                self.feed.end(str(why))
                return
            except OSError:  # no descriptors, say: the next look finds what this one did not
                continue

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Add the rows that are written now, and take SETTLED for it; CallerError for a run of a later version."""
        now = self._tail.look(self._place)
        self._stop.wait(SETTLED)
        now = self._tail.look(now)
        self._name_runs(now)
        parts, _ = self._tail.parts(self._place, now)
        numbers = {key: place["n"] for key, place in now.items()}
        found = [(chunk.run, rows_of(columns)) for chunk, columns in read_parts(parts, numbers)]
        settled = {place["n"]: place["settled"] for place in now.values()}
        self._place = now  # once nothing can fail any more, so that a look that failed is repeated whole
        for run, rows in found:
            self._waiting.setdefault(run, []).extend(rows)
        for run, rows in sorted(self._waiting.items()):
            rows.sort(key=_by_time)
            count = bisect_right(rows, settled[run], key=itemgetter(0))
            self.feed.add(zip(repeat(run), rows[:count]))
            del rows[:count]
            if rows:
                break  # runs follow one another

    def _name_runs(self, place: Place) -> None:
        for key, each in sorted(place.items(), key=lambda pair: int(pair[1]["n"])):
            if each["n"] == len(self._runs):
                self._runs.append(self._tail.runs[key].run)
        require_known(self._runs)


def _by_time(row: Row) -> tuple[int, int]:
    return row.t, row.who >> 16


def _bytes_in(path: str) -> int:
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
