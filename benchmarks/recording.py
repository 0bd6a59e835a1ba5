"""What a row of the trace costs who writes it, and how much disk.

    python -m benchmarks.recording [--trace TRACE | --events 1000000] [--repeats 5] [--dir SCRATCH] [--out recording.json]
    python -m benchmarks.recording --smoke

Takes the rows of a real run (benchmarks/trace_run.py, or TRACE) in the order of their times, and emits them again, each as
its actor did, into a Recorder with its defaults on a directory of SCRATCH: the clock, the packing into the mapped slab, and every
1,024 rows the compression and the write.  Beside it, in the same process and turn by turn, the bare `struct.pack_into` of
the same numbers into a memoryview, which is the least that a row can cost here.  The time of the loop is taken off both.
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

from warrenmq.trace.block import ROW
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.index import Row, rows_of
from warrenmq.trace.reader import Trace, open_trace
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.schema import EVENTS
from warrenmq.trace.writers import writer

ROOT = Path(__file__).resolve().parents[1]
WANTED_US, WANTED_BYTES = 1.0, 10.0
MOST_ROWS = 1_000_000
"""That are emitted in a round: they are Python tuples in memory."""

Call = tuple[Any, ...]
"""A writer, how many columns it takes, the actor's trace, and these columns with zeros behind them."""
MOST_COLUMNS = 8

clock = time.perf_counter


def real_run(folder: Path, events: int) -> Path:
    command = [sys.executable, "-m", "benchmarks.trace_run", str(folder), "--events", str(events)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder / "trace"


def bytes_an_event(folder: Path) -> tuple[int, float]:
    """How many events there are, and the files of the trace, over them."""
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
        columns = [getattr(event.of(row), column.name) for column in event.columns]
        padding = [0] * (MOST_COLUMNS - len(columns))
        made.append((writers[row.event], len(columns), traces[row.actor], *columns, *padding))
    return made


# Both loops choose by the number of columns, since a call with `*columns` is slower than the calls that the broker makes.


def empty_loop(made: Sequence[Call]) -> float:
    started = clock()
    for _write, columns, _trace, _1, _2, _3, _4, _5, _6, _7, _8 in made:
        if columns == 4 or columns == 7 or columns == 3 or columns == 6 or columns == 5 or columns == 2:  # noqa: PLR1714
            pass
    return clock() - started


def emitted(made: Sequence[Call], recorder: Recorder) -> float:
    """To the end: what the slabs still hold is written, too."""
    started = clock()
    for write, columns, trace, c1, c2, c3, c4, c5, c6, c7, c8 in made:
        if columns == 4:
            write(trace, c1, c2, c3, c4)
        elif columns == 7:
            write(trace, c1, c2, c3, c4, c5, c6, c7)
        elif columns == 3:
            write(trace, c1, c2, c3)
        elif columns == 6:
            write(trace, c1, c2, c3, c4, c5, c6)
        elif columns == 5:
            write(trace, c1, c2, c3, c4, c5)
        elif columns == 2:
            write(trace, c1, c2)
        elif columns == 1:
            write(trace, c1)
        elif columns == 0:
            write(trace)
        else:
            write(trace, c1, c2, c3, c4, c5, c6, c7, c8)
    recorder.close()
    return clock() - started


def packed(rows: Sequence[Row]) -> float:
    """The bare packing of the same numbers, the loop taken off."""
    slab, pack_into = memoryview(bytearray(ROW.size)), ROW.pack_into
    started = clock()
    for _ in rows:
        pass
    loop = clock() - started
    started = clock()
    for t, seq, msg, peer, pseq, a, b, c, who in rows:
        pack_into(slab, 0, t, seq, msg, peer, pseq, a, b, c, who)
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
        gc.freeze()  # a broker's heap is not a million prepared calls
        for number in range(repeats):
            folder = scratch / f"again-{number}"
            with closing(Recorder(folder, run=f"again-{number}")) as recorder:
                made = calls(rows, recorder, trace)
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
