"""RabbitMQ's defects between readers and the garbage collector, expressed against our store (docs/defects.md)."""

import pytest

from tests.message_store.actors_kit import LIMIT, STORE, StoreHost, Watched
from tests.message_store.kit import FOLDER, body_of, msg_id, new_disk
from warrenmq.actors.store.messages import NoReaders
from warrenmq.runtime import Simulation, Threads


@pytest.mark.parametrize("collector", ["combine"])
def test_a_file_is_rewritten_only_after_the_last_read_that_began_before(host):
    """The collector looks for readers, and claims the file, under one lock."""
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    host.write(other, 0)
    host.confirmed(other, 0)
    answers, go = host.hold_read(other, 0)
    before = host.disk.read(f"{FOLDER}/0.rdq")
    host.remove(queue, *(n for n in range(60) if n % 4))
    host.until(lambda: any(row[3] for row in host.statistics().files))
    for _ in range(20):
        host.runtime.event().wait(0.001)
    assert host.disk.read(f"{FOLDER}/0.rdq") == before
    go.set()
    assert answers.get(timeout=LIMIT) == body_of(0)
    host.at_rest(queue, other)
    assert host.disk.read(f"{FOLDER}/0.rdq") != before


@pytest.mark.parametrize("collector", ["compact"])
def test_a_file_is_truncated_only_after_the_last_read_that_began_before(host):
    """Its records move while it is read; what a reader may have looked up stays where it was."""
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    index = Watched.newest._state.tables.index
    last = host.in_file(0)[-1]
    place = index.lookup(msg_id(last))[1:3]
    host.write(other, last)
    host.confirmed(other, last)
    answers, go = host.hold_read(other, last)
    size = host.disk.size(f"{FOLDER}/0.rdq")
    host.remove(queue, *range(60))
    host.until(lambda: index.lookup(msg_id(last))[1:3] != place)  # it has moved
    for _ in range(20):
        host.runtime.event().wait(0.001)
    assert host.disk.size(f"{FOLDER}/0.rdq") == size
    go.set()
    assert answers.get(timeout=LIMIT) == body_of(last)
    host.until(lambda: host.disk.size(f"{FOLDER}/0.rdq") < size)
    host.at_rest(queue, other)
    assert host.read(other, last) == body_of(last)


def test_claims_are_answered_after_the_removes_that_were_sent_before(host):
    """RabbitMQ's `contains` overtook removes once; a new client's claims are our `contains`."""
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, 1, 2)
    host.confirmed(queue, 1, 2)
    arrived, go = host.gate("datasync", ".rdq")
    host.write(other, 9)
    assert arrived.wait(LIMIT)
    host.remove(queue, 1)
    registered = host.runtime.channel()
    # the same queue registers anew while its removes are still in the store's mailbox
    host.runtime.cast(queue, lambda q: registered.put(q.client.register([msg_id(1), msg_id(2)])))
    go.set()
    assert registered.get(timeout=LIMIT) == {msg_id(2)}


def test_many_are_read_together_wherever_each_of_them_is(host):
    """In an older file, in the current one since before the last start, only buffered, and not even sent."""
    queue = host.queue("q")
    host.write(queue, *range(20))
    host.confirmed(queue, *range(20))
    host.claims["q"] = range(20)
    host.runtime.stop_actor(queue)
    host.runtime.stop_actor(host.store)
    host.start()
    queue = host.queue("q", range(20))
    old_current = host.in_file(Watched.newest._state.tables.files.current, range(20))
    assert old_current
    arrived, go = host.gate("append", ".rdq")
    host.write(queue, 30)
    assert arrived.wait(LIMIT)  # the store has 30 in its buffer and cannot write it

    def read(q):
        q.client.write(msg_id(31), body_of(31))
        return q.client.read_many([msg_id(n) for n in wanted])

    wanted = [0, 30, 31, 1]
    assert host.ask(queue, read) == {msg_id(n): body_of(n) for n in wanted}
    go.set()
    wanted = [31, *range(20), 30]
    assert host.ask(queue, read) == {msg_id(n): body_of(n) for n in wanted}


def blocked_by(host, kill):
    """Have a file that a queue reads wait at the collector, kill the queue, and see the collector go on."""
    queue, other = host.queue("q"), host.queue("p")
    host.write(queue, *range(60))
    host.write(other, *range(60))
    host.confirmed(other, *range(60))
    kill(queue)
    second = host.queue("q", [])
    host.remove(other, *range(60))
    host.until(lambda: host.statistics().messages == 0)
    host.until(lambda: not any(row[3] for row in host.statistics().files))
    host.at_rest(second, other)


def test_a_queue_killed_in_the_middle_of_a_read_holds_no_file_for_ever(host):
    def kill(queue):
        _, go = host.hold_read(queue, 0)
        host.runtime.kill(queue)
        go.set()

    blocked_by(host, kill)


def test_a_queue_killed_between_its_last_read_and_saying_so_holds_no_file_for_ever():
    """It is a reader no more, and the collector, which waits for that, is never told by the dead."""
    with Simulation(1) as runtime:
        host = StoreHost(runtime, new_disk())
        host.start()
        queue, other = host.queue("q"), host.queue("p")
        host.write(queue, *range(60))
        host.confirmed(queue, *range(60))
        host.write(other, 0)
        host.confirmed(other, 0)
        _, go = host.hold_read(other, 0)
        host.remove(queue, *(n for n in range(60) if n % 4))
        host.until(lambda: any(row[3] for row in host.statistics().files))
        cast = runtime.cast

        def die_instead(dest, message, trace=None):
            if isinstance(message, NoReaders):
                runtime.kill(other)
            return cast(dest, message, trace)

        runtime.cast = die_instead
        go.set()
        host.until(lambda: not other.is_alive())
        runtime.cast = cast
        host.until(lambda: not any(row[3] for row in host.statistics().files))
        host.at_rest(queue)


def test_a_read_that_a_killed_queues_thread_begins_after_its_death_holds_no_file_for_ever():
    """A Python thread cannot be killed: the store has heard of the death while the thread goes from file to file."""
    runtime = Threads()
    try:
        host = StoreHost(runtime, new_disk())
        host.start()
        queue, other = host.queue("q"), host.queue("p")
        host.write(queue, *range(60))
        host.write(other, *range(60))
        host.confirmed(other, *range(60))
        first, second = host.in_file(0)[:2], host.in_file(1)[:2]
        reading, go = host.gate("pread", "/0.rdq")
        runtime.cast(queue, lambda q: q.client.read_many([msg_id(n) for n in first + second]))
        assert reading.wait(LIMIT)
        runtime.kill(queue)
        host.until(lambda: len(Watched.newest._state.clients) == 1)
        reading_again, go_again = host.gate("pread", "/1.rdq")
        go.set()
        reading_again.wait(0.05)  # or it is refused
        host.queue("q", [])
        host.remove(other, *range(60))
        host.until(lambda: host.statistics().messages == 0)
        go_again.set()
        host.until(lambda: not any(row[3] for row in host.statistics().files))
        host.at_rest(other)
        assert runtime.whereis(STORE) == host.store
    finally:
        runtime.shutdown(1.0)


@pytest.mark.parametrize("number", [0, 1])
def test_a_deleted_file_is_gone_at_once_although_it_had_readers(host, number):
    """RabbitMQ unlinks a file when the last handle of it is closed, and looks only when there is other work."""
    queue = host.queue("q")
    host.write(queue, *range(60))
    host.confirmed(queue, *range(60))
    for each in host.in_file(number):
        assert host.read(queue, each) == body_of(each)
    host.remove(queue, *host.in_file(number))
    host.until(lambda: f"{number}.rdq" not in host.disk.listdir(FOLDER))
    host.at_rest(queue)
