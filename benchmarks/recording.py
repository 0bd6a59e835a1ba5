"""Measures the cost of recording a row of the trace: time of the recording thread, and disk.

    python -m benchmarks.recording [--trace TRACE | --events 1000000] [--repeats 5] [--dir SCRATCH] [--out recording.json]
    python -m benchmarks.recording --smoke

Takes the rows of a real run (benchmarks/trace_run.py, or TRACE) in the order of their times, and emits them
again, each as its actor did, into a Recorder with its defaults on a directory of SCRATCH: the clock, the
packing into the mapped slab, and every 2,048 rows the compression and the write.  Beside it, in the same
process and turn by turn, the bare `struct.pack_into` of the same numbers into a memoryview, which is the
least that a row can cost here.  All times are processor time; the loop is taken off both, but not the
comparisons that choose the call (some 0.04 µs).
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from heapq import merge
from itertools import chain, islice
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from warrenmq.trace.block import ROW
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import (
    Ack,
    Append,
    Confirm,
    OnDisk,
    Publish,
    Recv,
    Send,
    StoreConfirm,
    StoreRemove,
    StoreWrite,
)
from warrenmq.trace.index import Row, rows_of
from warrenmq.trace.reader import Trace, open_trace
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.schema import EVENTS
from warrenmq.trace.writers import writer

WANTED_US, WANTED_BYTES = 1.0, 10.0
MOST_ROWS = 1_000_000
"""That are emitted in a round: they are Python tuples in memory."""

Call = tuple[Any, ...]
"""The event's number, the actor's trace, the columns with zeros behind them, and for a rare event its writer
and its columns.
"""
MOST_COLUMNS = 9
"""Of the events that have a call of their own in `emitted`."""

_send, _ack, _publish, _confirm = writer(Send), writer(Ack), writer(Publish), writer(Confirm)
_store_write, _store_confirm, _on_disk = writer(StoreWrite), writer(StoreConfirm), writer(OnDisk)
_store_remove, _append, _recv = writer(StoreRemove), writer(Append), writer(Recv)
# Plain integers: to look a member up would be taken off with the loop, but is slow enough to disturb it.
SEND, ACK, PUBLISH, CONFIRM, STORE_WRITE, STORE_CONFIRM, ON_DISK, STORE_REMOVE, APPEND, RECV = (
    event.number
    for event in (Send, Ack, Publish, Confirm, StoreWrite, StoreConfirm, OnDisk, StoreRemove, Append, Recv)
)

clock = time.process_time


def real_run(folder: Path, events: int) -> Path:
    command = [sys.executable, "-m", "benchmarks.trace_run", str(folder), "--events", str(events)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder / "trace"


def bytes_an_event(folder: Path) -> tuple[int, float]:
    """The number of events in the trace, and its files' bytes an event."""
    with open_trace(folder) as trace:
        events = sum(each.rows for each in trace.catalog.coverage.values())
    return events, sum(path.stat().st_size for path in folder.iterdir()) / events


def rows_in_order(trace: Trace) -> list[Row]:
    """The first rows of the first run, by their times."""
    chunks: dict[int, list[Chunk]] = {}
    for chunk in trace.catalog.chunks:
        if chunk.run == 0:
            chunks.setdefault(chunk.actor, []).append(chunk)
    of_actors = [
        chain.from_iterable(rows_of(trace.columns(chunk)) for chunk in of_one) for of_one in chunks.values()
    ]
    return list(islice(merge(*of_actors), MOST_ROWS))


def calls(rows: Sequence[Row], recorder: Recorder, trace: Trace) -> list[Call]:
    """The rows as calls of actors of this recorder, which get the numbers that they had."""
    actors = trace.catalog.runs[0].actors
    traces = {number: recorder.actor(*actors[number]) for number in sorted(actors)}
    writers = {number: writer(event) for number, event in EVENTS.items()}
    made: list[Call] = []
    for row in rows:
        event = EVENTS[row.event]
        columns = tuple(getattr(event.of(row), column.name) for column in event.columns)
        padding = (0,) * (MOST_COLUMNS - len(columns))
        made.append(
            (row.event, traces[row.actor], *(columns + padding)[:MOST_COLUMNS], writers[row.event], columns)
        )
    return made


# The commonest events have a call of their own, as in the broker: Python's interpreter adapts each place of
# the code to the function that is called there, and a place that calls many functions is slower by a tenth of
# a microsecond.


def empty_loop(made: Sequence[Call]) -> float:
    started = clock()
    for _event, _trace, _1, _2, _3, _4, _5, _6, _7, _8, _9, _write, _columns in made:
        pass
    return clock() - started


def emitted(made: Sequence[Call], recorder: Recorder) -> float:
    """To the end: what the slabs still hold is written, too."""
    started = clock()
    for event, trace, c1, c2, c3, c4, c5, c6, c7, c8, c9, write, columns in made:
        if event == SEND:
            _send(trace, c1, c2, c3, c4, c5, c6)
        elif event == ACK:
            _ack(trace, c1, c2, c3, c4, c5, c6, c7)
        elif event == PUBLISH:
            _publish(trace, c1, c2, c3, c4, c5, c6, c7, c8, c9)
        elif event == CONFIRM:
            _confirm(trace, c1, c2, c3, c4)
        elif event == STORE_WRITE:
            _store_write(trace, c1, c2, c3, c4, c5, c6, c7)
        elif event == STORE_CONFIRM:
            _store_confirm(trace, c1, c2, c3)
        elif event == ON_DISK:
            _on_disk(trace, c1, c2)
        elif event == STORE_REMOVE:
            _store_remove(trace, c1, c2, c3, c4, c5, c6, c7)
        elif event == APPEND:
            _append(trace, c1, c2, c3, c4, c5)
        elif event == RECV:
            _recv(trace, c1, c2, c3)
        else:
            write(trace, *columns)
    recorder.close()
    return clock() - started


def packed(rows: Sequence[Row]) -> float:
    """The bare packing of the same numbers, the loop taken off."""
    slab, pack_into = memoryview(bytearray(ROW.size)), ROW.pack_into
    placed = [(0, *row) for row in rows]
    started = clock()
    for _at, _1, _2, _3, _4, _5, _6, _7, _8, _9 in placed:
        pass
    loop = clock() - started
    started = clock()
    for at, c1, c2, c3, c4, c5, c6, c7, c8, c9 in placed:
        pack_into(slab, at, c1, c2, c3, c4, c5, c6, c7, c8, c9)
    return clock() - started - loop


def measured(source: Path, scratch: Path, repeats: int) -> dict[str, Any]:
    events, size = bytes_an_event(source)
    found: dict[str, Any] = {
        "events": events,
        "bytes": size,
        "emit_us": [],
        "pack_into_us": [],
        "bytes_again": [],
    }
    with open_trace(source) as trace:
        rows = rows_in_order(trace)
        for number in range(repeats):
            folder = scratch / f"again-{number}"
            with closing(Recorder(folder, run=f"again-{number}")) as recorder:
                made = calls(rows, recorder, trace)
                gc.freeze()  # a broker's heap is not a million prepared calls
                loop = empty_loop(made)
                found["pack_into_us"].append(packed(rows) / len(made) * 1e6)
                found["emit_us"].append((emitted(made, recorder) - loop) / len(made) * 1e6)
            found["bytes_again"].append(bytes_an_event(folder)[1])
    return found


def table(found: dict[str, Any]) -> str:
    emit, pack_into = (statistics.median(found[name]) for name in ("emit_us", "pack_into_us"))
    rounds = ", ".join(f"{each:.2f}" for each in found["emit_us"])
    again = statistics.median(found["bytes_again"])
    return "\n".join([
        f"{found['events']:,} events of a real run\n",
        "| figure | wanted | measured | rounds |",
        "| --- | --- | --- | --- |",
        f"| a writer | at most {WANTED_US:g} µs | {emit:.2f} µs | {rounds} |",
        f"| bare `struct.pack_into` of the same numbers | | {pack_into:.2f} µs ({emit / pack_into:.1f} x) | |",
        f"| on disk | at most {WANTED_BYTES:g} bytes an event | {found['bytes']:.1f} bytes | |",
        f"| the same rows, emitted again | | {again:.1f} bytes | |",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--events", type=int, default=MOST_ROWS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--smoke", action="store_true", help="a few thousand events, one round")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.dir:
        args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.dir) as made:
        scratch = Path(made)
        source = args.trace or real_run(scratch / "run", 5_000 if args.smoke else args.events)
        found = measured(source, scratch, 1 if args.smoke else args.repeats)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1))
    print(table(found))


if __name__ == "__main__":
    main()
