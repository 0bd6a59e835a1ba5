"""Many small traces in one directory, so that one Spark job replays them all."""

from __future__ import annotations

from pathlib import Path

from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import MSG, RunRows, write_trace

APART = 1 << 40
"""Message ids are unique in a directory: each trace gets its own range."""


def side_by_side(traces: list[list[RunRows]]) -> list[RunRows]:
    """The traces as one, each with a directory, runs, actors and messages of its own."""
    for number, runs in enumerate(traces):
        for run in runs:
            run.name, run.directory = f"{number:03d}{run.name}", f"{number:032x}"
            for actor in run.actors:
                actor.name = f"{number:03d}.{actor.name}"
                for row in actor.rows:
                    row[MSG] += APART * number if row[MSG] else 0
    return [run for runs in traces for run in runs]


def with_a_gap(seed: int, steps: int = 50) -> list[RunRows]:
    """A consistent trace that lost ten rows of its busiest queue."""
    runs = consistent_trace(seed, steps)
    queue = max(runs[0].of("QueueProcess"), key=lambda actor: len(actor.rows))
    middle = len(queue.rows) // 2
    del queue.rows[middle : middle + 10]
    return runs


def write_directory(folder: Path, runs: list[RunRows]) -> str:
    """Files on disk, for what reads paths."""
    folder.mkdir()
    for name, content in write_trace(runs).items():
        (folder / name).write_bytes(content)
    return str(folder)
