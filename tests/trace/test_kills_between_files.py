"""A broker that is killed while its trace's files are made: what it leaves is all there, or not there at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from warrenmq.broker import run_trace
from warrenmq.replay.drive.engine import replay
from warrenmq.trace.events import QiFlush
from warrenmq.trace.reader import open_trace, trace_files
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.slab import SLAB_SUFFIX
from warrenmq.trace.tail import Tail
from warrenmq.trace.writers import writer

OPERATIONS = "open", "write", "pwrite", "posix_fallocate", "rename", "replace", "unlink", "ftruncate", "close"
_write = writer(QiFlush)


@contextmanager
def before_each_operation(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> Iterator[None]:
    """Call a function before each change of a file."""
    inside = False

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **named: Any) -> Any:
            nonlocal inside
            if not inside:
                inside = True
                with monkeypatch.context() as plain:
                    for name, one in reals.items():
                        plain.setattr(os, name, one)
                    do()
                inside = False
            return real(*args, **named)

        return operation

    reals = {name: getattr(os, name) for name in OPERATIONS}
    with monkeypatch.context() as patched:
        for name, real in reals.items():
            patched.setattr(os, name, watched(real))
        yield


def test_the_files_of_a_run_tell_at_each_moment_whether_rows_are_missing(tmp_path, monkeypatch):
    trace, states = tmp_path / "trace", tmp_path / "states"
    written: list[int] = []

    def keep() -> None:
        if trace.exists():
            shutil.copytree(trace, states / str(len(written)))
            written.append(sum(rows))

    rows = [0, 0]
    with before_each_operation(monkeypatch, keep):
        recorder = Recorder(trace, run="r", segment_bytes=1_200)
        actors = [recorder.actor(f"actor {number}", "test") for number in range(2)]
        for _ in range(100):
            for number, actor in enumerate(actors):
                _write(actor)
                rows[number] += 1
        recorder.close()
    assert len(list(trace.iterdir())) > 3
    for number, count in enumerate(written):
        state = states / str(number)
        if all(file.name.startswith(".") for file in state.iterdir()):
            continue
        with open_trace(state) as found:
            catalog = found.catalog
            assert (catalog.unread, catalog.damage) == ({}, [])
            assert [run.whole for run in catalog.runs] == [True], number
            # a row that fills its slab is there before it is counted
            assert count <= catalog.rows <= count + 1
            assert all(coverage.complete for coverage in catalog.coverage.values())
        place = Tail(str(state)).look({})
        assert [(run["missing"], run["ended"]) for run in place.values()] == [(False, True)]
        for lost in trace_files(str(state)):
            rest = [name for name in trace_files(str(state)) if name != lost]
            if rest and not lost.endswith(SLAB_SUFFIX):
                with open_trace(*rest) as found:
                    run = found.catalog.runs[0]
                    assert found.catalog.rows == catalog.rows or not run.whole, (number, lost)


def test_a_broker_that_is_killed_as_its_trace_begins_leaves_nothing_in_doubt(tmp_path, monkeypatch):
    data, trace, states = tmp_path / "data", tmp_path / "trace", tmp_path / "states"

    def live(where: Path) -> None:
        with warrenmq.open(where / "data", trace=where / "trace") as broker:
            broker.declare_queue("jobs").publish(b"one")

    def keep() -> None:
        state = states / f"{len(list(states.iterdir())):03d}"
        for folder in (data, trace):
            shutil.copytree(folder, state / folder.name)

    class Watched(run_trace.RunTrace):
        def __init__(self, *args: Any) -> None:
            with before_each_operation(monkeypatch, keep):
                super().__init__(*args)

    states.mkdir()
    live(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("warrenmq.broker.engine.RunTrace", Watched)
        live(tmp_path)
    kept = sorted(states.iterdir())
    assert len(kept) > 8
    for state in kept:
        assert replay(state / "trace").verdict == "ok", state
        for _ in range(2):
            live(state)
            assert replay(state / "trace").verdict == "ok", state
