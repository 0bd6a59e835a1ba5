"""The message store's actors, under threads and in simulation."""

from __future__ import annotations

import errno

import pytest
from pykka import ActorDeadError

from tests.message_store.actors_kit import LIMIT, STORE, StoreHost, Watched
from tests.message_store.kit import FOLDER, QUARANTINE, body_of, msg_id, new_disk, record
from tests.support.schedulers import end_of
from warrenmq.actors.store.messages import (
    CREDIT_BYTES,
    ClientDying,
    JobDone,
    Read,
    Register,
    SyncTimeout,
    Writes,
)
from warrenmq.actors.store.process import MsgStore
from warrenmq.message_store.tables import Client
from warrenmq.runtime import CallFailed, Simulation
from warrenmq.settings import Settings
from warrenmq.trace.events import Ev, Trigger
from warrenmq.trace.reader import open_memory
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.sink import MemorySink

pytestmark = pytest.mark.usefixtures("logs")


@pytest.fixture
def host(runtime):
    host = StoreHost(runtime, new_disk())
    host.start()
    return host


# writing and reading


def test_a_written_message_is_confirmed_once_and_read_back(host) -> None:
    queue = host.queue("q")
    host.write(queue, 1, 2, 3)
    assert host.read(queue, 2) == body_of(2)
    host.confirmed(queue, 1, 2, 3)
    assert host.confirms(queue) == [1, 2, 3]
    assert host.confirms(queue, "ignored") == []
    host.at_rest(queue)


def test_a_message_can_be_read_before_it_was_even_sent(host) -> None:
    queue = host.queue("q")

    def write_and_read(q):
        q.client.write(msg_id(1), b"one")
        return q.client.read(msg_id(1)), q.client.read_many([msg_id(1), msg_id(2)])

    assert host.ask(queue, write_and_read) == (b"one", {msg_id(1): b"one"})


def test_messages_of_full_files_are_read_directly_and_together(host) -> None:
    queue = host.queue("q")
    host.write(queue, *range(30))
    host.confirmed(queue, *range(30))
    files = Watched.newest._state.tables.files
    assert len(files.rows) > 3
    for number in range(30):
        assert host.read(queue, number) == body_of(number)
    found = host.ask(queue, lambda q: q.client.read_many([msg_id(n) for n in (29, 3, 99, 4, 5, 0, 1)]))
    assert found == {msg_id(n): body_of(n) for n in (29, 3, 4, 5, 0, 1)}
    host.at_rest(queue)


def test_who_was_killed_while_it_registered_does_not_take_its_successors_place(host) -> None:
    """A killed thread goes on until it next sends: what it was sending may come later than all that its successor sent."""
    runtime = host.runtime
    dead, queue = host.queue("other"), host.queue("q")
    runtime.kill(dead)
    with pytest.raises(CallFailed, match="killed"):
        runtime.call(STORE, Register(Client(bytes(16), "q", True, 0), dead, None, ()), timeout=LIMIT)
    host.write(queue, 1)
    host.confirmed(queue, 1)
    host.at_rest(queue)


def test_a_message_that_the_store_does_not_have_is_read_as_none(host) -> None:
    queue = host.queue("q")
    host.write(queue, *range(20))
    host.confirmed(queue, *range(20))
    host.remove(queue, 0, 1)
    host.rest()
    assert host.read(queue, 0) is None
    assert host.read(queue, 99) is None


def test_a_message_of_many_queues_is_stored_once(host) -> None:
    queues = [host.queue(f"q{n}") for n in range(3)]
    for queue in queues:
        host.write(queue, 7)
    for queue in queues:
        host.confirmed(queue, 7)
    assert host.bytes()[0] == len(record(7, body_of(7)))
    for queue in queues[:2]:
        host.remove(queue, 7)
    assert host.read(queues[2], 7) == body_of(7)
    host.remove(queues[2], 7)
    assert host.statistics().messages == 0
    host.at_rest(*queues)


def test_a_write_whose_remove_was_sent_before_it_was_handled_never_touches_the_disk(host) -> None:
    queue = host.queue("q")
    arrived, go = host.gate("datasync", ".rdq")
    host.write(queue, 1)
    assert arrived.wait(LIMIT)  # the store is busy syncing
    host.write(queue, 2)
    host.remove(queue, 2)
    go.set()
    host.until(lambda: host.confirms(queue, "ignored") == [2])
    assert host.bytes()[0] == len(record(1, body_of(1)))
    host.at_rest(queue)


def test_a_message_removed_before_it_was_synced_is_confirmed_as_ignored(host) -> None:
    queue, other = host.queue("q"), host.queue("other")
    arrived, go = host.gate("datasync", ".rdq")
    host.write(other, 9)
    assert arrived.wait(LIMIT)
    host.write(queue, 1)
    go.set()
    host.remove(queue, 1)
    host.until(lambda: len(host.confirms(queue, "ignored") + host.confirms(queue)) == 1)
    host.at_rest(queue, other)


# confirms and credit


def test_priorities_are_rabbitmqs() -> None:
    assert MsgStore.ranks == {JobDone: 8, SyncTimeout: 8, ClientDying: 7, Read: 2}


def test_a_store_that_falls_behind_blocks_its_client_and_lets_it_go_on_later(runtime) -> None:
    settings = Settings(msg_store_credit_disc_bound=(100, 20), msg_store_file_size_limit=1 << 20)
    host = StoreHost(runtime, new_disk(), settings)
    host.start()
    queue = host.queue("q")
    arrived, go = host.gate("datasync", ".rdq")
    host.write(queue, 0)
    assert arrived.wait(LIMIT)
    host.write(queue, *range(1, 99))
    assert not host.ask(queue, lambda q: q.client.blocked)
    host.write(queue, 99)
    assert host.ask(queue, lambda q: q.client.blocked)
    go.set()
    host.confirmed(queue, *range(100))
    host.until(lambda: not host.ask(queue, lambda q: q.client.blocked))


def test_large_bodies_use_up_the_credit_by_their_bytes(runtime) -> None:
    host = StoreHost(runtime, new_disk(), Settings(msg_store_credit_disc_bound=(100, 20)))
    host.start()
    queue = host.queue("q")
    arrived, go = host.gate("datasync", ".rdq")
    host.write(queue, 0)
    assert arrived.wait(LIMIT)

    def write(number: int, size: int) -> None:
        host.ask(queue, lambda q: (q.client.write(msg_id(number), bytes(size)), q.client.send()))

    write(1, 98 * CREDIT_BYTES)
    assert not host.ask(queue, lambda q: q.client.blocked)
    write(2, 1)
    assert host.ask(queue, lambda q: q.client.blocked)
    write(3, 1_000 * CREDIT_BYTES)  # more than all
    go.set()
    host.confirmed(queue, *range(4))
    host.until(lambda: not host.ask(queue, lambda q: q.client.blocked))


@pytest.mark.parametrize(
    ("sizes", "credit"),
    [([0] * 5, 5), ([CREDIT_BYTES] * 5, 5), ([CREDIT_BYTES * 3, 1], 3), ([CREDIT_BYTES * 2 - 1], 1)],
)
def test_a_batch_takes_one_credit_a_message_or_more(sizes, credit) -> None:
    assert Writes(b"", [(b"", bytes(size)) for size in sizes]).credit == credit


def test_a_full_disk_makes_writes_wait_while_removes_go_on(host, logs) -> None:
    queue = host.queue("q")
    host.write(queue, *range(6))
    host.confirmed(queue, *range(6))
    host.disk.free_bytes = 100
    host.write(queue, *range(10, 40))
    host.until(lambda: host.statistics().disk_full)
    host.remove(queue, 0, 10)
    assert host.read(queue, 12) == body_of(12)
    assert host.confirms(queue) == list(range(6))
    assert host.ask(queue, lambda q: q.client.blocked) is False
    host.disk.free_bytes = None
    host.confirmed(queue, *range(11, 40))
    assert not host.statistics().disk_full
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == ["the disk is full: writes wait until there is room"]
    for number in range(11, 40):
        assert host.read(queue, number) == body_of(number)
    host.at_rest(queue)


def test_a_sync_that_fails_ends_the_store_and_confirms_nothing(host) -> None:
    queue = host.queue("q")
    host.disk.fail_next("datasync", ".rdq", errno.EIO)
    store = host.store
    host.write(queue, 1)
    reason = end_of(host.runtime, store)
    assert isinstance(reason, OSError)
    assert host.confirms(queue) == []
    assert "clean.dot" not in host.disk.listdir(FOLDER)


def test_confirms_do_not_wait_for_a_mailbox_that_never_runs_dry():
    """They are given after 25 ms, before the mail that came meanwhile."""
    sink = MemorySink()
    with Simulation(1) as sim:
        sim.recorder = Recorder(sink, run="1", clock=sim)
        host = StoreHost(
            sim, new_disk(), Settings(msg_store_file_size_limit=1 << 20, msg_store_write_buffer=4096)
        )
        host.start()
        queue = host.queue("q")
        busy, go_on = host.gate("datasync", ".rdq")
        host.write(queue, 0)
        assert busy.wait(LIMIT)
        flushing, go_on_again = host.gate("append", ".rdq")
        host.write(queue, 1)
        host.write(queue, *range(10, 20))  # more than the buffer takes
        host.write(queue, 2)
        go_on.set()
        assert flushing.wait(LIMIT)
        sim.event().wait(0.03)
        go_on_again.set()
        host.confirmed(queue, 0, 1, 2, *range(10, 20))
        sim.crash()
    trace = open_memory(sink.files())
    rows = [row for piece in trace.catalog.chunks for row in trace.rows(piece)]
    syncs = [row[8] & 0xFF for row in rows if row[8] >> 8 & 0xFF == Ev.FILE_SYNC]
    assert syncs == [Trigger.MAILBOX_EMPTY, Trigger.TIMER, Trigger.MAILBOX_EMPTY]


# garbage


def test_an_idle_store_gets_rid_of_its_garbage_by_itself(host) -> None:
    queue = host.queue("q")
    host.write(queue, *range(100))
    host.confirmed(queue, *range(100))
    kept = [number for number in range(100) if number % 5 == 0]
    host.remove(queue, *(number for number in range(100) if number % 5))
    host.at_rest(queue)
    assert host.statistics().messages == len(kept)
    size, valid = host.bytes()
    assert size - valid <= size / 2 or size <= 2 * 4096
    for number in kept:
        assert host.read(queue, number) == body_of(number)


def test_files_without_living_messages_are_deleted_even_if_they_were_emptied_while_current(host) -> None:
    queue = host.queue("q")
    for number in range(40):
        host.write(queue, number)
        host.remove(queue, number)
    host.at_rest(queue)
    assert len(host.disk.listdir(FOLDER)) == 1


def queue_during_a_combine(host):
    """A queue that holds every fourth of 60 messages while a combine is stopped at its first append, and what lets it go on."""
    queue = host.queue("q")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    arrived, go = host.gate("append", ".rdq.tmp")
    host.remove(queue, *(number for number in range(60) if number % 4))
    assert arrived.wait(LIMIT)
    return queue, go


def test_reads_and_removes_of_locked_files_wait_and_are_answered_in_order(host) -> None:
    queue, go = queue_during_a_combine(host)
    state = Watched.newest._state
    locked = [
        m for m, entry in state.tables.index.items() if entry[0] and state.tables.files.rows[entry[1]].locked
    ]
    assert locked
    answers = host.runtime.channel()
    host.runtime.cast(queue, lambda q: answers.put(q.client.read_many(locked)))
    host.until(lambda: any(state.gc.pending.values()))
    other = host.queue("other")
    first = int.from_bytes(locked[0][8:], "big")
    host.write(other, first)
    host.remove(other, first)
    go.set()
    found = answers.get(timeout=LIMIT)
    assert found == {m: body_of(int.from_bytes(m[8:], "big")) for m in locked}
    host.at_rest(queue, other)


def test_a_reader_holds_the_collector_up_and_a_dead_reader_does_not(host) -> None:
    queue, other = host.queue("q"), host.queue("other")
    host.write(queue, *range(20))
    host.confirmed(queue, *range(20))
    _, go = host.hold_read(queue, 0)
    in_first = [
        n for n in range(20) if (e := Watched.newest._state.tables.index.lookup(msg_id(n))) and e[1] == 0
    ]
    host.claims["q"] = range(20)
    host.runtime.kill(queue)
    second = host.queue("q", [n for n in range(20) if n not in in_first])
    host.until(lambda: "0.rdq" not in host.disk.listdir(FOLDER))
    go.set()
    host.at_rest(second, other)


def test_a_full_disk_puts_a_combine_off(host, logs, monkeypatch) -> None:
    monkeypatch.setattr("warrenmq.actors.store.process.JOB_RETRY", 0.01)
    queue = host.queue("q")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    host.disk.fail_next("append", ".rdq.tmp", errno.ENOSPC)
    host.remove(queue, *(number for number in range(60) if number % 4))
    host.until(
        lambda: any(
            line["event"] == "garbage is collected later, when there is room for that" for line in logs
        )
    )
    assert host.read(queue, 0) == body_of(0)
    host.until(lambda: host.bytes()[0] < 2 * host.bytes()[1] + 8192)
    host.at_rest(queue)


def test_a_collector_that_dies_takes_its_store_with_it(host) -> None:
    store = host.store
    host.runtime.kill(host.runtime.whereis(f"{STORE}_gc"))
    end_of(host.runtime, store)
    assert not host.runtime.is_registered(STORE)


def test_a_collector_whose_store_was_killed_does_not_touch_the_files_any_more(host) -> None:
    queue = host.queue("q")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    arrived, go = host.gate("pread", ".rdq")  # the collector reads what it is going to copy
    host.remove(queue, *(number for number in range(60) if number % 4))
    assert arrived.wait(LIMIT)
    collector = host.runtime.whereis(f"{STORE}_gc")
    host.runtime.kill(queue)
    host.runtime.kill(host.store)
    before = {name: host.disk.read(f"{FOLDER}/{name}") for name in host.disk.listdir(FOLDER)}
    host.runtime.disown(collector)
    go.set()
    host.claims["q"] = [number for number in range(60) if number % 4 == 0]
    for _ in range(20):
        host.runtime.event().wait(0.001)
    assert {name: host.disk.read(f"{FOLDER}/{name}") for name in host.disk.listdir(FOLDER)} == before
    host.start()
    second = host.queue("q", host.claims["q"])
    assert len(host.ask(second, lambda q: q.present)) == 15


# clients come and go


def test_references_of_a_killed_queue_go_to_its_successor_or_are_dropped(host) -> None:
    queue, other = host.queue("q"), host.queue("other")
    host.write(queue, 1, 2, 3)
    host.write(other, 2, 3)
    host.confirmed(queue, 1, 2, 3)
    host.runtime.kill(queue)
    second = host.queue("q", [3, 4])
    assert host.ask(second, lambda q: q.present) == {msg_id(3)}
    assert host.statistics().messages == 2
    host.remove(second, 3)
    assert host.read(other, 3) == body_of(3)
    assert host.read(other, 2) == body_of(2)
    host.remove(other, 2, 3)
    assert host.statistics().messages == 0
    host.at_rest(second, other)


def test_a_deleted_queue_takes_its_references_along(host) -> None:
    queue, other = host.queue("q"), host.queue("other")
    host.write(queue, 1, 2, 3)
    host.write(other, 3)

    def write_and_delete(q):
        q.write(4, 5)
        q.client.delete()

    host.ask(queue, write_and_delete)
    host.until(lambda: host.statistics().messages == 1)
    assert host.read(other, 3) == body_of(3)
    host.at_rest(other)


def test_a_queue_that_ends_in_order_keeps_its_messages(host) -> None:
    queue = host.queue("q")
    host.ask(queue, lambda q: [q.client.write(msg_id(n), body_of(n)) for n in range(3)])
    host.runtime.stop_actor(queue)
    assert host.statistics().messages == 3
    second = host.queue("q", range(3))
    assert host.ask(second, lambda q: q.present) == {msg_id(n) for n in range(3)}
    host.at_rest(second)


def test_removing_what_a_queue_does_not_hold_ends_the_store(host) -> None:
    queue, other = host.queue("q"), host.queue("other")
    host.write(other, 1)
    host.confirmed(other, 1)
    store = host.store
    host.remove(queue, 1)
    assert isinstance(end_of(host.runtime, store), ValueError)


# starting and stopping


def test_a_clean_stop_is_believed_and_only_once(host) -> None:
    queue = host.queue("q")
    host.write(queue, *range(20))
    host.remove(queue, 4, 5)
    host.claims["q"] = [n for n in range(20) if n not in (4, 5)]
    host.runtime.stop_actor(queue)
    host.runtime.stop_actor(host.store)
    assert host.disk.listdir(FOLDER)[-3:] == ["clean.dot", "file_summary.ets", "msg_store_index.ets"]
    host.asked = 0
    host.start()
    assert host.asked == 0
    assert not {"clean.dot", "file_summary.ets"} & set(host.disk.listdir(FOLDER))
    queue = host.queue("q", host.claims["q"])
    for number in host.claims["q"]:
        assert host.read(queue, number) == body_of(number)
    host.at_rest(queue)
    host.runtime.kill(host.store)
    host.runtime.kill(queue)
    host.start()
    assert host.asked == 1
    queue = host.queue("q", host.claims["q"])
    assert len(host.ask(queue, lambda q: q.present)) == 18
    host.at_rest(queue)


@pytest.mark.parametrize("end", ["stop_actor", "kill"])
@pytest.mark.parametrize("stops", [1, 2])
def test_a_message_that_a_queue_names_no_more_is_damage_if_the_queue_had_said_goodbye(
    host, end, stops
) -> None:
    """Of a queue that was killed an ack may be in its index and not have come here."""
    queue = host.queue("q")
    host.write(queue, *range(8))
    host.confirmed(queue, *range(8))
    getattr(host.runtime, end)(queue)
    for _ in range(stops):
        host.runtime.stop_actor(host.store)
        host.start()
    host.queue("q", range(6))
    assert len(Watched.newest._damage.places) == (2 if end == "stop_actor" else 0)
    assert bool(host.disk.listdir(QUARANTINE)) == (end == "stop_actor")


def test_of_a_queue_that_outlives_its_store_nobody_knows_whether_all_acks_have_come(host) -> None:
    host.write(queue := host.queue("q"), *range(8))
    host.confirmed(queue, *range(8))
    host.runtime.stop_actor(host.store)
    host.runtime.kill(queue)
    host.start()
    host.queue("q", range(6))
    assert Watched.newest._damage.places == []


def test_a_store_that_stops_while_a_combine_runs_still_leaves_its_dumps(host) -> None:
    queue, go = queue_during_a_combine(host)
    host.runtime.stop_actor(queue)
    go.set()
    host.runtime.stop_actor(host.store)
    assert "clean.dot" in host.disk.listdir(FOLDER)
    host.asked = 0
    host.start()
    assert host.asked == 0
    queue = host.queue("q", range(0, 60, 4))
    for number in range(0, 60, 4):
        assert host.read(queue, number) == body_of(number)
    host.at_rest(queue)


def test_a_transient_store_begins_with_nothing(runtime) -> None:
    disk = new_disk()
    disk.replace(f"{FOLDER}/0.rdq", record(1))
    disk.replace(f"{FOLDER}/7.rdq", record(2))
    host = StoreHost(runtime, disk)
    host.start(keeps=False)
    queue = host.queue("q", on_disk=False)
    assert disk.listdir(FOLDER) == ["0.rdq"]
    host.write(queue, *range(20))
    assert host.read(queue, 0) == body_of(0)
    host.ask(queue, lambda q: q.client.delete())
    host.runtime.stop_actor(host.store)
    assert "clean.dot" not in disk.listdir(FOLDER)


def test_a_damaged_message_is_read_as_none_and_logged(host, logs) -> None:
    queue = host.queue("q")
    host.write(queue, *range(20))
    host.confirmed(queue, *range(20))
    _, file, offset, _ = Watched.newest._state.tables.index.lookup(msg_id(1))
    host.disk.open(f"{FOLDER}/{file}.rdq").pwrite(b"rot", offset + 10)
    assert host.read(queue, 1) is None
    assert host.ask(queue, lambda q: set(q.client.read_many([msg_id(1), msg_id(0)]))) == {msg_id(0)}
    assert any(line["event"] == "damage was found" for line in logs)


def test_damaged_bytes_are_in_the_quarantine_after_a_start(runtime, logs) -> None:
    disk = new_disk()
    disk.replace(f"{FOLDER}/0.rdq", record(1) + b"rubbish" + record(2))
    host = StoreHost(runtime, disk)
    host.claims["q"] = [1, 2, 3]
    host.start()
    queue = host.queue("q", [1, 2, 3])
    assert host.ask(queue, lambda q: q.present) == {msg_id(1), msg_id(2)}
    assert host.read(queue, 2) == b"\x83ody"
    assert [disk.read(f"{QUARANTINE}/{name}") for name in disk.listdir(QUARANTINE)] == [b"rubbish"]
    assert any("copied to the quarantine" in line.get("reason", "") for line in logs)


def test_calls_to_a_dead_store_fail_and_ending_is_still_possible(host) -> None:
    queue = host.queue("q")
    host.runtime.kill(host.store)
    with pytest.raises((CallFailed, ActorDeadError)):
        host.read(queue, 1)
    second = None
    with pytest.raises((CallFailed, ActorDeadError)):
        second = host.queue("q")
    assert second is None
