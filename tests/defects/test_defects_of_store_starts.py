"""RabbitMQ's defects in starting and stopping a store, expressed against ours (docs/defects.md)."""

import errno
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.message_store.actors_kit import LIMIT, StoreHost, Watched
from tests.message_store.kit import (
    FOLDER,
    QUARANTINE,
    SMALL,
    body_of,
    check_tables,
    held_by,
    msg_id,
    new_disk,
    reads,
    record,
)
from warrenmq.actors.store.messages import ClientDelete
from warrenmq.message_store import dump as store_dump
from warrenmq.message_store import rdq
from warrenmq.message_store.recovery import recover
from warrenmq.message_store.state import MsgStoreState
from warrenmq.settings import Settings
from warrenmq.supervisors.broker_sup import PERSISTENT_STORE, TRANSIENT_STORE, QueueSup, VhostSup


def put(disk, number, *parts):
    disk.replace(f"{FOLDER}/{number}.rdq", b"".join(parts))


def start_on(disk, *claims):
    """A dirty start of a store whose queues (owner, numbers) believe to hold these; its state, checked."""
    references = held_by(**{owner: [msg_id(n) for n in numbers] for owner, numbers in claims})
    recovered = recover(disk, FOLDER, references, QUARANTINE, "store")
    state = MsgStoreState(disk, FOLDER, SMALL, recovered, None, reads(disk))
    check_tables(state, disk)
    return state


def test_a_start_that_cannot_read_a_file_fails_and_does_not_hang(host):
    """RabbitMQ read the files in a pool of workers, and waited for ever for one that had died."""
    queue = host.queue("q")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    host.runtime.kill(queue)
    host.runtime.kill(host.store)
    host.claims["q"] = range(60)
    host.disk.fail_next("pread", "/3.rdq", errno.EIO)
    with pytest.raises(OSError, match="3"):
        host.start()
    host.start()
    queue = host.queue("q", range(60))
    assert len(host.ask(queue, lambda q: q.present)) == 60
    host.at_rest(queue)


def test_dumps_that_cannot_be_written_keep_no_store_from_ending(host, logs):
    queue = host.queue("q")
    host.write(queue, *range(20))
    host.claims["q"] = range(20)
    host.runtime.stop_actor(queue)
    host.disk.fail_next("rename", store_dump.INDEX, errno.EIO)
    host.runtime.stop_actor(host.store)
    assert host.store.actor_inbox.reason == "shutdown"
    assert store_dump.CLEAN not in host.disk.listdir(FOLDER)
    host.start()
    queue = host.queue("q", range(20))
    assert len(host.ask(queue, lambda q: q.present)) == 20
    host.at_rest(queue)


def test_a_dump_of_another_version_is_not_believed_and_nothing_is_lost(host, monkeypatch):
    queue = host.queue("q")
    host.write(queue, *range(20))
    host.claims["q"] = range(20)
    host.runtime.stop_actor(queue)
    monkeypatch.setattr(store_dump, "VERSION", store_dump.VERSION + 1)
    host.runtime.stop_actor(host.store)
    monkeypatch.undo()
    host.asked = 0
    host.start()
    assert host.asked == 1
    queue = host.queue("q", range(20))
    assert len(host.ask(queue, lambda q: q.present)) == 20
    host.at_rest(queue)


def test_after_a_dirty_start_the_last_remove_is_the_last(host):
    """RabbitMQ 4.0 to 4.3 counts one reference more than there are, and never gives such a message up."""
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(40))
    host.write(other, *range(0, 40, 2))
    host.confirmed(queue, *range(40))
    host.confirmed(other, *range(0, 40, 2))
    for each in (queue, other, host.store):
        host.runtime.kill(each)
    host.claims = {"q": range(40), "p": range(0, 40, 2)}
    host.start()
    queue, other = host.queue("q", range(40)), host.queue("p", range(0, 40, 2))
    assert (host.statistics().messages, host.statistics().references) == (40, 60)
    host.remove(queue, *range(40))
    host.remove(other, *range(0, 40, 2))
    host.at_rest(queue, other)
    assert host.statistics().messages == 0
    assert len(host.disk.listdir(FOLDER)) == 1


@pytest.mark.parametrize("copies", [2, 5])
def test_a_message_that_is_in_several_files_counts_in_one_of_them(copies):
    """RabbitMQ's workers can both claim it: one of the files then never becomes empty, and its collector crashes."""
    disk = new_disk()
    for number in range(copies):
        put(disk, number, *(record(n, body_of(n)) for n in (10, 11, 12)), record(number, body_of(number)))
    claims = "q", [10, 11, 12, *range(copies)]
    state = start_on(disk, claims)
    files = state.tables.files
    assert files.sum_valid_data == sum(len(record(n, body_of(n))) for n in claims[1])
    assert Counter(entry[1] for _, entry in state.tables.index.items()) == {0: 4} | dict.fromkeys(
        range(1, copies), 1
    )


def test_a_message_twice_in_a_file_counts_once():
    disk = new_disk()
    put(disk, 0, record(1), record(2), record(1))
    put(disk, 1, record(3))
    state = start_on(disk, ("q", [1, 2, 3]))
    assert state.tables.index.lookup(msg_id(1))[1:3] == (0, 0)
    assert state.tables.files.rows[0].valid_total_size == 2 * len(record(1))


def test_a_copied_record_is_known_by_its_place_and_not_by_its_id_alone(runtime, monkeypatch):
    """A message was written anew while its file was locked, and that combine failed: the old copy is garbage."""
    monkeypatch.setattr("warrenmq.actors.store.process.JOB_RETRY", 0.01)
    host = StoreHost(runtime, new_disk())
    host.start()
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    arrived, go = host.gate("append", ".rdq.tmp")
    host.remove(queue, *(n for n in range(60) if n % 4))
    assert arrived.wait(LIMIT)
    state = Watched.newest._state
    again = [
        int.from_bytes(m[8:], "big")
        for m, entry in state.tables.index.items()
        if not entry[0] and state.tables.files.rows[entry[1]].locked
    ][:1]  # what the write buffer takes: it cannot be written while the collector is in a write
    assert again
    host.write(other, *again)
    host.until(lambda: all(state.tables.index.lookup(msg_id(n))[0] for n in again))
    host.disk.fail_next("append", ".rdq.tmp", errno.ENOSPC)
    go.set()
    host.confirmed(other, *again)
    host.until(lambda: host.bytes()[0] < 2 * host.bytes()[1] + 8192)
    host.at_rest(queue, other)
    for number in range(0, 60, 4):
        assert host.read(queue, number) == body_of(number)
    for number in again:
        assert host.read(other, number) == body_of(number)


def test_the_crash_of_a_queue_leaves_the_next_orderly_start_a_clean_one(host):
    """In RabbitMQ the dead process's name stays among the clients, and the next start has to read every file."""
    queue = host.queue("q")
    host.write(queue, *range(20))
    host.confirmed(queue, *range(20))
    host.runtime.kill(queue)
    queue = host.queue("q", range(20))
    host.claims["q"] = range(20)
    host.runtime.stop_actor(queue)
    host.runtime.stop_actor(host.store)
    host.asked = 0
    host.start()
    assert host.asked == 0
    queue = host.queue("q", range(20))
    assert len(host.ask(queue, lambda q: q.present)) == host.statistics().references == 20
    for number in range(20):
        assert host.read(queue, number) == body_of(number)
    host.at_rest(queue)


def test_transient_references_of_a_crashed_queue_are_given_up(runtime):
    host = StoreHost(runtime, new_disk())
    host.start(keeps=False)
    queue = host.queue("q", on_disk=False)
    host.write(queue, *range(20))
    assert host.statistics().references == 20
    runtime.kill(queue)
    second = host.queue("q", on_disk=False)
    host.until(lambda: host.statistics().references == 0)
    assert host.ask(second, lambda q: q.client.read(msg_id(1))) is None
    host.at_rest(second)


def test_an_end_that_the_store_does_not_live_to_see_is_an_end_in_order(host):
    queue = host.queue("q")
    host.write(queue, 1)
    host.confirmed(queue, 1)
    host.runtime.kill(host.store)
    assert host.ask(queue, lambda q: q.client.terminate()) is None
    assert host.ask(queue, lambda q: "alive") == "alive"


def test_temporary_files_of_rabbitmqs_combines_are_read_whatever_version_wrote_the_rest():
    """RabbitMQ 3.13 and later leave a .rdt of a crashed 3.12 lying, with the only copy of what is in it."""
    disk = new_disk()
    put(disk, 0, record(1))
    put(disk, 4, record(2))
    disk.replace(f"{FOLDER}/0.rdt", record(5) + record(6))
    state = start_on(disk, ("q", [1, 2, 5, 6]))
    assert {int.from_bytes(m[8:], "big") for m, _ in state.tables.index.items()} == {1, 2, 5, 6}
    assert rdq.file_numbers(disk.listdir(FOLDER)) == [0, 4, 5]


def test_stores_and_queues_have_as_long_to_stop_as_the_settings_say():
    """30 seconds killed stores in the middle of their dumps."""
    folder = SimpleNamespace(store=lambda name: name, quarantine="")
    vhost = SimpleNamespace(settings=Settings(), directory=folder, disk=None, definitions=None, damage=None,
                            look_at_folders=lambda: None)  # fmt: skip
    stores = {spec.id: spec for spec in VhostSup.children(None, vhost)}
    assert {stores[name].shutdown for name in (TRANSIENT_STORE, PERSISTENT_STORE)} == {600.0}
    assert [spec.shutdown for spec in QueueSup.children(None, vhost)] == [600.0]
    assert stores["queue_sup"].shutdown is None


def test_the_death_of_a_client_twice_over_is_one_death(host):
    """Its Down and its successor's registration both clean up after it; a deleted queue's client may die as well."""
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, 1, 2)
    host.write(other, 2)
    cref = host.ask(queue, lambda q: q.client._cref)
    host.confirmed(queue, 1, 2)
    host.ask(queue, lambda q: q.client.delete())
    host.runtime.kill(queue)
    host.runtime.cast(host.store, ClientDelete(cref))
    host.until(lambda: host.statistics().messages == 1)
    assert host.read(other, 2) == body_of(2)
    host.at_rest(other)
