"""RabbitMQ's defects in writing, removing and confirming, expressed against our store (docs/defects.md)."""

import pytest

from tests.message_store.actors_kit import LIMIT, StoreHost, Watched
from tests.message_store.kit import FOLDER, SMALL_IN_PLACE, body_of, msg_id, new_disk, record
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.message_index import MessageIndex
from warrenmq.settings import Settings


def cache():
    return Watched.newest._state.tables.cache


def busy_store(host, queue):
    """Have the store in the middle of a sync: what is sent now waits in its mailbox until `go.set()`."""
    arrived, go = host.gate("datasync", ".rdq")
    host.write(queue, 900)
    assert arrived.wait(LIMIT)
    return go


@pytest.mark.parametrize(
    "change",
    [
        lambda index, files: index.count(msg_id(1), 1),
        lambda index, files: index.move(msg_id(1), 0, 0),
        lambda index, files: index.delete(msg_id(1)),
        lambda index, files: files.add_valid(7, 10),
        lambda index, files: files.resize(7, valid=0, size=0),
        lambda index, files: files.remove(7),
        lambda index, files: files.lock_file(7),
    ],
)
def test_a_change_of_a_row_that_is_gone_is_an_error_and_not_lost(change):
    with pytest.raises(KeyError):
        change(MessageIndex({}), FileSummary())


def test_a_body_that_is_in_an_older_file_already_does_not_stay_in_the_cache(host):
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(20))
    host.confirmed(queue, *range(20))
    assert Watched.newest._state.tables.index.lookup(msg_id(0))[1] == 0
    host.write(other, 0)
    host.confirmed(other, 0)
    assert cache().get(msg_id(0)) is None
    host.at_rest(queue, other)


def test_bodies_whose_writes_are_all_ignored_do_not_stay_in_the_cache(host):
    queue = host.queue("q")
    go = busy_store(host, queue)
    host.write(queue, *range(10))
    host.remove(queue, *range(10))
    go.set()
    host.until(lambda: len(host.confirms(queue, "ignored")) == 10)
    host.statistics()
    assert [n for n in range(10) if cache().get(msg_id(n)) is not None] == []
    host.at_rest(queue)


def test_a_cancelled_write_does_not_evict_a_body_that_is_only_buffered(host):
    """Queue p's write and remove cancel out while q's record is in the write buffer: readers still need the cache."""
    queue, other = host.queue("q"), host.queue("p")
    go = busy_store(host, other)
    host.write(queue, 1)
    host.write(other, 1)
    host.remove(other, 1)
    arrived, go_on = host.gate("datasync", ".rdq")
    go.set()
    assert arrived.wait(LIMIT)  # all of it was handled
    assert cache().get(msg_id(1)) == body_of(1)
    go_on.set()
    assert host.read(queue, 1) == body_of(1)
    host.at_rest(queue, other)


def test_a_message_that_is_written_removed_and_written_again_is_confirmed_for_its_second_life(host):
    queue = host.queue("q")
    host.write(queue, 1)
    host.confirmed(queue, 1)
    host.remove(queue, 1)
    host.statistics()
    arrived, go = host.gate("append", ".rdq")
    host.write(queue, 2, 1)
    assert arrived.wait(LIMIT)
    assert host.confirms(queue) == [1]  # revived in the current file, and not safe before its sync
    go.set()
    host.until(lambda: host.confirms(queue) == [1, 1, 2])
    assert host.confirms(queue, "ignored") == []
    host.at_rest(queue)


def test_a_remove_whose_write_was_confirmed_long_ago_confirms_nothing(host):
    queue = host.queue("q")
    host.write(queue, *range(10))
    host.confirmed(queue, *range(10))
    host.remove(queue, *range(10))
    host.at_rest(queue)
    assert host.confirms(queue) == list(range(10))
    assert host.confirms(queue, "ignored") == []


def test_a_remove_of_what_a_predecessor_wrote_confirms_nothing(host):
    queue = host.queue("q")
    host.write(queue, 1)
    host.confirmed(queue, 1)
    host.runtime.kill(queue)
    second = host.queue("q", [1])
    host.remove(second, 1)
    host.at_rest(second)
    assert (host.confirms(second), host.confirms(second, "ignored")) == ([], [])


def test_a_message_twice_in_a_queue_with_all_in_flight_does_no_harm(host):
    queue, other = host.queue("q"), host.queue("p")
    store = host.store
    go = busy_store(host, other)
    host.write(queue, 1, 1)
    host.write(queue, 1)
    host.remove(queue, 1)
    go.set()
    host.until(lambda: host.confirms(queue) + host.confirms(queue, "ignored"))
    assert host.read(queue, 1) == body_of(1)
    host.remove(queue, 1)
    host.remove(queue, 1)
    host.at_rest(queue, other)
    assert store.is_alive()
    assert host.statistics().messages == 1  # of p


def test_a_client_that_dies_leaves_no_bytes(host):
    queue, other = host.queue("q"), host.queue("p")
    go = busy_store(host, other)
    host.write(queue, *range(5))
    host.remove(queue, 3)
    host.ask(queue, lambda q: q.client.delete())
    go.set()
    host.write(other, 901)
    host.confirmed(other, 900, 901)
    host.at_rest(other)
    assert host.disk.read(f"{FOLDER}/0.rdq") == record(900, body_of(900)) + record(901, body_of(901))


def test_a_message_whose_file_is_being_deleted_is_written_anew(host):
    """Its entry has no references, its file is locked, and a moment later neither is there any more."""
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(20))
    host.confirmed(queue, *range(20))
    index = Watched.newest._state.tables.index
    first = [n for n in range(20) if index.lookup(msg_id(n))[1] == 0]
    arrived, go = host.gate("unlink", "/0.rdq")
    host.remove(queue, *first)
    assert arrived.wait(LIMIT)
    assert index.lookup(msg_id(first[0]))[:2] == (0, 0)
    host.write(other, first[0])
    host.until(lambda: index.lookup(msg_id(first[0]))[1] > 0)
    go.set()
    host.until(lambda: "0.rdq" not in host.disk.listdir(FOLDER))
    host.write(other, first[1])
    host.confirmed(other, *first[:2])
    for number in first[:2]:
        assert host.read(other, number) == body_of(number)
    host.at_rest(queue, other)


def test_a_file_that_was_emptied_while_it_was_current_goes_with_its_end(host):
    """A large message ends the file that it is in itself, so what is left is a file that could not be ended in time."""
    queue = host.queue("q")
    host.write(queue, 1, 2)
    host.confirmed(queue, 1, 2)
    host.disk.free_bytes = 100
    host.ask(queue, lambda q: [q.client.write(msg_id(3), b"\x83" * 10_000), q.client.send()])
    host.until(lambda: host.statistics().disk_full)
    host.remove(queue, 1, 2, 3)
    host.statistics()
    host.disk.free_bytes = None
    host.until(lambda: host.disk.listdir(FOLDER) == ["1.rdq"])
    host.at_rest(queue)


def test_a_large_message_is_not_confirmed_by_the_sync_of_the_file_before_it(runtime, monkeypatch):
    """It has a file of its own, for which there is no room: it may not be confirmed."""
    monkeypatch.setattr("warrenmq.message_store.writer.LARGE_MESSAGE", 2_000)
    host = StoreHost(runtime, new_disk(), SMALL_IN_PLACE)
    host.start()
    queue = host.queue("q")
    host.write(queue, 1)
    host.confirmed(queue, 1)
    host.disk.free_bytes = 100
    host.ask(queue, lambda q: [q.client.write(msg_id(3), b"\x83" * 3_000), q.client.send()])
    host.until(lambda: host.statistics().disk_full)
    assert host.confirms(queue) == [1]
    host.disk.free_bytes = None
    host.confirmed(queue, 3)
    host.at_rest(queue)


def test_a_file_that_was_emptied_while_it_was_current_goes_when_a_large_message_ends_it(runtime, monkeypatch):
    monkeypatch.setattr("warrenmq.message_store.writer.LARGE_MESSAGE", 2_000)
    host = StoreHost(runtime, new_disk(), SMALL_IN_PLACE)
    host.start()
    queue = host.queue("q")
    host.write(queue, 1, 2)
    host.confirmed(queue, 1, 2)
    host.remove(queue, 1, 2)
    host.ask(queue, lambda q: [q.client.write(msg_id(3), b"\x83" * 3_000), q.client.send()])
    host.confirmed(queue, 3)
    host.until(lambda: host.disk.listdir(FOLDER) == ["1.rdq", "2.rdq"])
    host.at_rest(queue)


def test_a_client_that_dies_owes_its_successor_nothing_and_gets_no_credit(runtime):
    """The successor's credit is whole, whatever the dead one had used up."""
    settings = Settings(msg_store_credit_disc_bound=(100, 20), msg_store_file_size_limit=1 << 20)
    host = StoreHost(runtime, new_disk(), settings)
    host.start()
    queue, other = host.queue("q"), host.queue("p")
    go = busy_store(host, other)
    host.write(queue, *range(110))
    assert host.ask(queue, lambda q: q.client.blocked)
    runtime.kill(queue)
    go.set()
    second = host.queue("q", range(110))
    for first in range(0, 400, 50):
        host.write(second, *range(1000 + first, 1050 + first))
        host.confirmed(second, *range(1000 + first, 1050 + first))
    host.until(lambda: not host.ask(second, lambda q: q.client.blocked))
    crefs = {host.ask(each, lambda q: q.client._cref) for each in (second, other)}
    assert set(Watched.newest._credit._to) <= crefs
