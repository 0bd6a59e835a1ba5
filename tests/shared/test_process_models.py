"""Programs whose processes are made by others: pools that spawn, subinterpreters, handles that are sent to another process."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.source_tree import ROOT
from warrenmq import aio

held: list[warrenmq.Broker] = []
"""The broker of a worker process of a pool."""


def begin(directory: str) -> None:
    held.append(warrenmq.open(directory, shared=True))


def put(number: int) -> int:
    held[0].queue("jobs").publish(b"%d" % number).result(LIMIT)
    return number


def open_alone(directory: str) -> None:
    warrenmq.open(directory)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_of_a_pool_use_the_directory_that_their_parent_has_open(tmp_path: Path, method: str) -> None:
    with warrenmq.open(tmp_path, shared=True) as broker:
        jobs = broker.declare_queue("jobs")
        with ProcessPoolExecutor(
            2, multiprocessing.get_context(method), initializer=begin, initargs=(str(tmp_path),)
        ) as pool:
            assert sorted(pool.map(put, range(20), timeout=LIMIT)) == [*range(20)]
            with pytest.raises(warrenmq.DirectoryInUse, match="shared=True"):
                pool.submit(open_alone, str(tmp_path)).result(LIMIT)
            with pytest.raises(TypeError, match="a QueueHandle belongs to the process that made it"):
                pool.submit(len, jobs).result(LIMIT)
        assert sorted(int(each.body) for each in jobs.peek(100)) == [*range(20)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_no_handle_is_pickled_or_copied(
    tmp_path: Path, shared: bool, duplicate: Callable[[object], object]
) -> None:
    """It was "cannot pickle '_thread.lock' object", and copies shared their parts with the original."""
    with (
        warrenmq.open(tmp_path / "1", shared=shared) as broker,
        warrenmq.Queue(tmp_path / "2") as simple,
        broker.declare_queue("q").consume() as consumer,
    ):
        queue = broker.queue("q")
        confirm = queue.publish(b"1")
        behind = asyncio.run(aio.Broker(lambda: broker).start())
        for handle in (
            broker,
            queue,
            broker.declare_exchange("x"),
            consumer,
            confirm,
            consumer.get(LIMIT),
            broker.tx(),
            simple,
            behind,
            behind.tx(),
            aio.Queue(behind, queue),
            aio.Queue(behind, queue).consume(),
        ):
            with pytest.raises(TypeError, match=f"a {type(handle).__name__} belongs to the process"):
                duplicate(handle)
        for value in (broker.stats(), queue.info(), queue.retry_policy()):
            duplicate(value)
        assert repr(broker) == f"<{type(broker).__name__} {str(tmp_path / '1')!r}>"


IN_ANOTHER = """
import sys, time
try:
    import _interpreters as interpreters
    another = interpreters.create("legacy")
    run = lambda program: interpreters.exec(another, program)
except ImportError:
    import _xxsubinterpreters as interpreters
    another = interpreters.create(isolated=False)
    run = lambda program: interpreters.run_string(another, program)
failed = run(f'''
import sys
sys.path[:] = {sys.path!r}
import warrenmq
with warrenmq.open({sys.argv[1]!r}, shared={sys.argv[2]}) as broker:
    jobs = broker.declare_queue("jobs")
    jobs.publish(b"1").result(30)
    assert jobs.get().body == b"1"
''')
assert failed is None, failed
for _ in range(100):
    try:
        interpreters.destroy(another)
        break
    except RuntimeError:  # a thread that was joined is in CPython's list for a moment longer
        time.sleep(0.1)
else:
    sys.exit("threads go on after the broker was closed")
import warrenmq
with warrenmq.open(sys.argv[1]) as broker:
    print(len(broker.queue("jobs")))
"""


@pytest.mark.parametrize("shared", [False, True])
def test_a_subinterpreter_that_may_have_threads_has_a_broker(tmp_path: Path, shared: bool) -> None:
    """As mod_wsgi's are: its main thread is none in which signals are handled, and the process was aborted."""
    program = [sys.executable, "-c", IN_ANOTHER, str(tmp_path), str(shared)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
