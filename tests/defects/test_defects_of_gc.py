"""RabbitMQ's defects in garbage collection, expressed against our store (docs/defects.md)."""

from dataclasses import replace
from itertools import accumulate
from random import Random

import pytest

from tests.message_store.actors_kit import LIMIT, STORE, StoreHost, Watched
from tests.message_store.kit import FOLDER, QUARANTINE, SMALL, body_of, held_by, msg_id, new_disk, record
from warrenmq.message_store import compact, scan
from warrenmq.message_store.gc_plan import CHECK_INTERVAL
from warrenmq.message_store.recovery import recover
from warrenmq.runtime import Simulation
from warrenmq.seams.disk import SECTOR


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


@pytest.fixture
def idle_host(host, monkeypatch):
    """A store whose clock runs fast."""
    monkeypatch.setattr("warrenmq.actors.store.process.CHECK_INTERVAL", 0.01)
    return host


def test_a_burst_of_removes_and_then_silence_leaves_less_than_half_garbage(idle_host):
    """With no more writes, removes or reads, the collection that is due is done all the same."""
    host = idle_host
    queue = host.queue("q")
    host.write(queue, *range(100))
    host.confirmed(queue, *range(100))
    host.remove(queue, *(n for n in range(100) if n % 5))
    host.until(host.little_garbage)
    host.at_rest(queue)
    for number in range(0, 100, 5):
        assert host.read(queue, number) == body_of(number)


def test_a_file_is_never_collected_while_it_is_being_deleted(host):
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


def test_garbage_of_messages_larger_than_a_file_is_given_back_too(idle_host):
    """A file that a large message ended is mostly that message; with small ones in it, no two files fit into one."""
    host = idle_host
    queue = host.queue("q")
    kept, large = [], []
    for number in range(0, 40, 2):
        host.ask(queue, lambda q, n=number: q.client.write(msg_id(n), b"\x83" * 2500))
        host.ask(
            queue, lambda q, n=number: [q.client.write(msg_id(n + 1), b"\x83" * 40_000), q.client.send()]
        )
        kept.append(number)
        large.append(number + 1)
    host.confirmed(queue, *kept, *large)
    host.remove(queue, *large)
    host.until(host.little_garbage)
    host.at_rest(queue)
    assert host.bytes()[1] == len(kept) * 2525
    for number in kept:
        assert host.read(queue, number) == b"\x83" * 2500


# compaction in place


def records(*numbers):
    return [record(number, body_of(number)) for number in numbers]


def compacted(disk, data, alive):
    """Steps 1 to 3 of a compaction of this file, whose records `alive` (offset, total) are referenced; its plan."""
    disk.replace(f"{FOLDER}/0.rdq", data)
    plan = compact.plan(alive)
    compact.fill_holes(disk, f"{FOLDER}/0.rdq", plan)
    return plan


def test_a_file_that_is_being_emptied_is_not_compacted_on_the_way():
    """A file that loses records while the clock runs is looked at when it has stopped losing them."""
    with Simulation(1) as runtime:
        host = StoreHost(runtime, new_disk(), replace(SMALL, msg_store_gc="compact"))
        host.start()
        queue = host.queue("q")
        host.write(queue, *range(60))
        host.confirmed(queue, *range(60))
        lookup = Watched.newest._state.tables.index.lookup
        first = [n for n in range(60) if lookup(msg_id(n))[1] == 0]
        changes = []
        host.disk.before_op = lambda op, path: changes.append(op) if path.endswith("/0.rdq") else None
        host.remove(queue, *first[:-2])
        runtime.event().wait(CHECK_INTERVAL - 1)
        host.remove(queue, first[-2])
        runtime.event().wait(2)
        host.remove(queue, first[-1])
        runtime.event().wait(1)
        assert changes == ["unlink"]


def test_every_hole_is_blanked_before_anything_moves_into_it_the_first_too():
    """Garbage in a hole that looks like a record would be taken for one: a live message, or the end of one."""
    disk = new_disk()
    parts = records(50, 1, 51, 2, 52, 53, 3, 54)
    data = b"".join(parts)
    ends = list(accumulate(map(len, parts)))
    alive = [(ends[n] - len(parts[n]), len(parts[n])) for n in (1, 3, 6)]
    plan = compacted(disk, data, alive)
    whole = disk.read(f"{FOLDER}/0.rdq")[: plan.size]  # the rest will be cut off
    disk.replace(f"{FOLDER}/1.rdq", whole)
    found = scan.whole_records(disk.open_read(f"{FOLDER}/1.rdq"), ())
    assert {int.from_bytes(m[8:], "big") for m, _, _ in found} == {1, 2, 3}
    covered = sorted(
        [
            *(each for each in alive if each[0] < plan.size),
            *((move.target, move.total) for move in plan.moves),
        ]
    )
    end = 0
    for offset, total in covered:
        assert not any(whole[end:offset])
        end = offset + total


def test_a_compaction_reads_what_it_moves_and_nothing_else():
    """RabbitMQ scanned byte by byte for a while, and could not keep up with its publishers."""
    disk = new_disk()
    parts = [record(n, b"\x83" * 400) for n in range(40)]
    alive = [(425 * n, 425) for n in range(40) if n % 3 == 0]
    reads = []
    disk.before_op = lambda op, path: reads.append(op) if op == "pread" else None
    plan = compacted(disk, b"".join(parts), alive)
    assert plan.moves
    assert len(reads) <= len(plan.moves)


@pytest.mark.parametrize("collector", ["compact"])
def test_a_message_that_was_written_anew_while_its_old_record_moved_is_found_in_its_new_place(host):
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    arrived, go = host.gate("datasync", "/0.rdq")
    index = Watched.newest._state.tables.index
    first = [n for n in range(60) if index.lookup(msg_id(n))[1] == 0]
    host.remove(queue, *(n for n in range(60) if n != first[-1]))
    assert arrived.wait(LIMIT)  # the last record of the file is on its way to the front
    host.remove(queue, first[-1])
    host.write(other, first[-1])
    host.confirmed(other, first[-1])
    place = index.lookup(msg_id(first[-1]))
    assert place[1] > 0
    go.set()
    host.at_rest(queue, other)
    assert index.lookup(msg_id(first[-1])) == place
    assert host.read(other, first[-1]) == body_of(first[-1])


def test_a_copy_that_was_torn_in_the_middle_does_not_win_over_the_whole_record():
    """Each message is read back unaltered for any subset of a compaction's sectors that reaches the disk."""
    parts = [record(n, b"\x83" + bytes([n]) * 1_500) for n in range(12)]
    size = len(parts[0])
    kept = [n for n in range(12) if n not in (0, 1, 2, 5)]
    alive = [(size * n, size) for n in kept]
    for cut in range(1, 40):
        for seed in range(4):
            disk = new_disk(seed)
            disk.replace(f"{FOLDER}/0.rdq", b"".join(parts))
            disk.replace(f"{FOLDER}/1.rdq", record(99))
            with disk.power_fails_at(cut):
                compact.fill_holes(disk, f"{FOLDER}/0.rdq", compact.plan(alive))
            scattered(disk, Random(cut * 10 + seed))
            recovered = recover(disk, FOLDER, held_by(q=[msg_id(n) for n in kept]), QUARANTINE, "store")
            data = disk.read(f"{FOLDER}/0.rdq")
            for number in kept:
                _, _, offset, total = recovered.index.lookup(msg_id(number))
                assert data[offset : offset + total] == parts[number]


def scattered(disk, rng):
    """A power cut of a disk that writes sectors in any order: any of those that were not synced arrived."""
    for inode in disk._files.values():
        content = bytearray(inode.durable)
        for change in inode.pending:
            end = change.offset + len(change.data or b"")
            for sector in range(change.offset // SECTOR, -(-end // SECTOR)):
                start, stop = max(change.offset, sector * SECTOR), min(end, sector * SECTOR + SECTOR)
                if rng.random() < 0.5:
                    content[start:stop] = change.data[start - change.offset : stop - change.offset]
        inode.live, inode.durable = bytearray(content), bytearray(content)
        inode.pending.clear()
