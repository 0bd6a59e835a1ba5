"""RabbitMQ's defects in garbage collection, expressed against our store (docs/defects.md)."""

from __future__ import annotations

import pytest

from tests.support.store import FOLDER, SMALL, body_of, msg_id, new_disk
from tests.support.store_actors import LIMIT, STORE, StoreHost, Watched
from warrenmq.runtime import Simulation


def test_a_collector_that_hangs_keeps_no_store_from_stopping(logs):
    """Stuck in the disk for longer than there is time: the store gives it up, and the next start reads the files."""
    with Simulation(1) as runtime:
        host = StoreHost(runtime, new_disk())
        host.start()
        queue = host.queue("q")
        host.write(queue, *range(60))
        host.confirmed(queue, *range(60))
        arrived, go = runtime.event(), runtime.event()

        def hang(op, path):
            if op == "pread" and runtime.is_registered(STORE) and path.endswith(".rdq"):
                arrived.set()
                go.wait(None)

        host.disk.before_op = hang
        host.remove(queue, *(n for n in range(60) if n % 4))
        assert arrived.wait(LIMIT)
        host.runtime.stop_actor(queue)
        stopped = runtime.stop_actor(host.store, timeout=SMALL.msg_store_shutdown_timeout / 1000)
        assert stopped
        host.disk.before_op = None
        go.set()
        host.claims["q"] = range(0, 60, 4)
        host.start()
        queue = host.queue("q", range(0, 60, 4))
        for number in range(0, 60, 4):
            assert host.read(queue, number) == body_of(number)
        host.at_rest(queue)


def test_a_burst_of_removes_and_then_silence_leaves_less_than_half_garbage(host):
    """Nobody writes, removes or reads any more: what is due is done all the same."""
    queue = host.queue("q")
    host.write(queue, *range(100))
    host.confirmed(queue, *range(100))
    host.remove(queue, *(n for n in range(100) if n % 5))
    host.at_rest(queue)
    size, valid = host.bytes()
    assert size - valid <= size / 2 or size <= 2 * SMALL.msg_store_file_size_limit
    for number in range(0, 100, 5):
        assert host.read(queue, number) == body_of(number)


def test_a_file_is_never_combined_while_it_is_being_deleted(host):
    queue = host.queue("q")
    host.write(queue, *range(100))
    host.confirmed(queue, *range(100))
    lookup = Watched.newest._state.tables.index.lookup
    emptied = [n for n in range(100) if lookup(msg_id(n))[1] == 1]
    arrived, go = host.gate("unlink", "/1.rdq")
    host.remove(queue, *emptied)
    assert arrived.wait(LIMIT)
    host.remove(queue, *(n for n in range(100) if n % 5 and n not in emptied))
    host.until(lambda: len(Watched.newest._state.gc.pending) > 1)
    jobs = [job.files for job in Watched.newest._state.gc.jobs]
    assert jobs[0] == (1,)
    assert all(1 not in files for files in jobs[1:])
    go.set()
    host.at_rest(queue)
    assert "1.rdq" not in host.disk.listdir(FOLDER)


def test_garbage_of_messages_larger_than_a_file_is_given_back_too(host):
    """A file that a large message ended is mostly that message; with small ones in it, no two files fit into one."""
    queue = host.queue("q")
    kept, large = [], []
    for number in range(0, 40, 2):
        host.ask(queue, lambda q, n=number: q.client.write(msg_id(n), b"k" * 2500))
        host.ask(queue, lambda q, n=number: [q.client.write(msg_id(n + 1), b"L" * 40_000), q.client.send()])
        kept.append(number)
        large.append(number + 1)
    host.confirmed(queue, *kept, *large)
    host.remove(queue, *large)
    host.at_rest(queue)
    size, valid = host.bytes()
    assert valid == len(kept) * 2525
    assert size - valid <= size / 2
    for number in kept:
        assert host.read(queue, number) == b"k" * 2500
