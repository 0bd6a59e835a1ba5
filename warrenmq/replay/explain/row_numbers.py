"""The numbers of rows in a trace, by which `warrenmq trace show --from` and `warrenmq lens --at` find them.

    numbers = row_numbers(trace, {(run, actor, seq), ...})
    numbers[run, actor, seq]                # from 1, run by run in the order of their times, as rows_in_order gives them

Only the pieces that were being written at the time of a row are decoded, and of those before it only the counts are taken.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import merge
from operator import attrgetter

from warrenmq.trace.index import rows_of
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import Row

RowId = tuple[int, int, int]
"""(index of the run, actor, the actor's own number of the row)."""


def row_numbers(trace: Trace, wanted: Iterable[RowId]) -> dict[RowId, int]:
    """The numbers of the wanted rows; rows that the trace does not have are left out."""
    places = set(wanted)
    runs = {run for run, _, _ in places}
    times: dict[int, dict[int, list[RowId]]] = {run: {} for run in runs}
    chunks = sorted(
        (each for each in trace.catalog.chunks if each.run in runs), key=attrgetter("run", "t_first")
    )
    for chunk in chunks:
        here = [
            p for p in places if p[:2] == (chunk.run, chunk.actor) and chunk.seq_first <= p[2] < chunk.seq_end
        ]
        column = trace.columns(chunk)[0] if here else None
        for place in here:
            assert column is not None
            times[chunk.run].setdefault(column[place[2] - chunk.seq_first], []).append(place)
    before: dict[tuple[int, int], int] = {}
    alike: dict[tuple[int, int], list[list[Row]]] = {}
    for chunk in chunks:
        found = sorted(times[chunk.run])
        first, last = bisect_left(found, chunk.t_first), bisect_right(found, chunk.t_last)
        columns = trace.columns(chunk) if first < last else []
        for place_, t in enumerate(found):
            key = chunk.run, t
            if place_ < first:
                continue  # the piece is later
            if place_ >= last:
                before[key] = before.get(key, 0) + chunk.rows
                continue
            low, high = bisect_left(columns[0], t), bisect_right(columns[0], t)
            before[key] = before.get(key, 0) + low
            if low < high:
                alike.setdefault(key, []).append(rows_of([column[low:high] for column in columns]))
    numbers: dict[RowId, int] = {}
    for run in runs:
        earlier = sum(chunk.rows for chunk in trace.catalog.chunks if chunk.run < run)
        for t, here in times[run].items():
            for number, row in enumerate(merge(*alike[run, t]), earlier + before.get((run, t), 0) + 1):
                if (run, row.actor, row.seq) in here:
                    numbers[run, row.actor, row.seq] = number
    return numbers
