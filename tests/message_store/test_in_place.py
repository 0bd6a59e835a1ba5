"""A message store that compacts its files in place: readers go on, truncation waits for some of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.message_store.actors_kit import LIMIT, StoreHost, Watched
from tests.message_store.kit import FOLDER, SMALL, SMALL_IN_PLACE, body_of, msg_id, new_disk
from warrenmq.message_store import rdq

pytestmark = pytest.mark.usefixtures("logs")


@pytest.fixture
def host(runtime, monkeypatch):
    monkeypatch.setattr("warrenmq.actors.store.process.CHECK_INTERVAL", 0.01)
    host = StoreHost(runtime, new_disk(), SMALL_IN_PLACE)
    host.start()
    return host


KEPT = range(3, 60, 4)


def garbage(host):
    """Files of which three quarters of the records are garbage, about to be compacted."""
    queue = host.queue("q")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    host.remove(queue, *(n for n in range(60) if n % 4 != 3))
    return queue


def test_files_get_smaller_and_every_message_is_read_from_its_new_place(host) -> None:
    queue = garbage(host)
    host.until(host.little_garbage)
    host.at_rest(queue)
    for number in KEPT:
        assert host.read(queue, number) == body_of(number)
    assert host.ask(queue, lambda q: len(q.client.read_many([msg_id(n) for n in KEPT]))) == len(KEPT)


def test_clients_read_while_the_collector_is_at_work_and_never_ask_the_store(host) -> None:
    arrived, go = host.gate("pwrite", "/0.rdq")
    queue = garbage(host)
    assert arrived.wait(LIMIT)
    state = Watched.newest._state
    assert state.tables.files.rows[0].locked
    state.read = None  # it would raise
    for number in KEPT:
        assert host.read(queue, number) == body_of(number)
    host.remove(queue, host.in_file(0, KEPT)[0])
    host.statistics()
    assert not any(state.gc.pending.values()), "no remove waits either"
    go.set()
    host.until(host.little_garbage)
    host.at_rest(queue)


def test_a_message_removed_and_written_again_during_a_compaction_stays_where_it_was_written_last(
    host,
) -> None:
    """Its first record is copied with the others; entering that place would be defect S32 (docs/defects.md)."""
    arrived, go = host.gate("pwrite", "/0.rdq")
    queue = garbage(host)
    assert arrived.wait(LIMIT)
    again = host.in_file(0, KEPT)[-1]
    host.remove(queue, again)
    host.statistics()  # handled: else the two would cancel out
    host.write(queue, again)
    host.until(lambda: Watched.newest._state.tables.index.lookup(msg_id(again))[1] > 0)
    place = Watched.newest._state.tables.index.lookup(msg_id(again))
    go.set()
    host.until(host.little_garbage)
    host.at_rest(queue)
    assert Watched.newest._state.tables.index.lookup(msg_id(again)) == place
    assert host.read(queue, again) == body_of(again)


def shared(host):
    """Two queues, and a message of both: the last one of the first file that stays."""
    queue, other = host.queue("q"), host.queue("other")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    last = host.in_file(0, KEPT)[-1]
    host.write(other, last)
    host.confirmed(other, last)
    return queue, other, last


def test_a_file_is_truncated_only_when_no_reader_may_know_the_old_places(host) -> None:
    queue, other, last = shared(host)
    answers, go = host.hold_read(other, last)
    size = host.disk.size(f"{FOLDER}/0.rdq")
    host.remove(queue, *(n for n in range(60) if n % 4 != 3))
    files = Watched.newest._state.tables.files
    host.until(lambda: files.rows[0].awaited is not None)
    entry = Watched.newest._state.tables.index.lookup(msg_id(last))
    assert entry[2] + entry[3] < size
    assert host.read(queue, last) == body_of(last), "a new reader finds the new place"
    assert host.disk.size(f"{FOLDER}/0.rdq") == size
    go.set()
    assert answers.get(timeout=LIMIT) == body_of(last)
    host.until(host.little_garbage)
    host.at_rest(queue, other)


def test_a_dead_reader_holds_no_truncation_up(host) -> None:
    queue, other, last = shared(host)
    _, go = host.hold_read(other, last)
    host.remove(queue, *(n for n in range(60) if n % 4 != 3))
    host.until(lambda: Watched.newest._state.tables.files.rows[0].awaited is not None)
    host.runtime.kill(other)
    host.until(host.little_garbage)
    go.set()
    host.at_rest(queue)


def test_messages_of_the_current_file_are_read_by_clients_after_a_start(host) -> None:
    queue = host.queue("q")
    host.write(queue, 1, 2)
    host.confirmed(queue, 1, 2)
    host.runtime.stop_actor(queue)
    host.runtime.stop_actor(host.store)
    host.start()
    queue = host.queue("q", [1, 2])
    host.write(queue, 3)
    Watched.newest._state.read = None
    for number in (1, 2, 3):
        assert host.read(queue, number) == body_of(number)


def test_a_directory_goes_from_one_collector_to_the_other_and_back(host) -> None:
    queue = garbage(host)
    host.until(host.little_garbage)
    held = list(KEPT)
    for settings in (SMALL, SMALL_IN_PLACE, SMALL):
        host.runtime.stop_actor(queue)
        host.runtime.stop_actor(host.store)
        host.settings = settings
        host.start()
        assert host.asked == 0, "every stop was clean"
        queue = host.queue("q", held)
        for number in held:
            assert host.read(queue, number) == body_of(number)
        gone, held = held[::3], [n for n in held if n not in held[::3]]
        host.remove(queue, *gone)
        host.until(host.little_garbage)
    host.at_rest(queue)


# large messages


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr("warrenmq.message_store.writer.LARGE_MESSAGE", 3000)
    return b"\x83" * 3000


def write_large(host, queue, number, body):
    host.ask(queue, lambda q: [q.client.write(msg_id(number), body), q.client.send()])
    host.confirmed(queue, number)


def files(host):
    return [(row[1], row[2]) for row in host.statistics().files]


def test_a_large_message_has_a_file_of_its_own_which_goes_with_it(host, large) -> None:
    queue = host.queue("q")
    write_large(host, queue, 100, large)
    host.write(queue, 1)
    write_large(host, queue, 101, large)
    write_large(host, queue, 102, large)
    host.write(queue, 2)
    host.confirmed(queue, 1, 2)
    size = len(large) + rdq.OVERHEAD
    one, two = (len(body_of(n)) + rdq.OVERHEAD for n in (1, 2))
    assert files(host) == [(size, size), (one, one), (size, size), (size, size), (two, two)]
    host.remove(queue, 101)
    host.until(lambda: len(files(host)) == 4)
    for number in (100, 102):
        assert host.ask(queue, lambda q, n=number: q.client.read(msg_id(n))) == large
    host.at_rest(queue)


def test_the_empty_file_before_a_large_message_is_deleted(host, large) -> None:
    """Defect S26 (docs/defects.md)."""
    queue = host.queue("q")
    host.write(queue, 1)
    host.confirmed(queue, 1)
    host.remove(queue, 1)
    write_large(host, queue, 100, large)
    host.until(lambda: [size for size, _ in files(host)] == [len(large) + rdq.OVERHEAD, 0])


def test_combine_knows_no_large_messages(runtime, large) -> None:
    host = StoreHost(runtime, new_disk(), replace(SMALL, msg_store_file_size_limit=8192))
    host.start()
    queue = host.queue("q")
    host.write(queue, 1)
    write_large(host, queue, 100, large)
    assert len(files(host)) == 1
