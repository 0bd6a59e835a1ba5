"""The store under real threads on a real disk: queues that share messages, all at once."""

import random
from collections import Counter

import pytest

from tests.message_store.actors_kit import StoreHost, Watched
from tests.message_store.kit import body_of, check_at_rest, msg_id
from tests.support.limits import LIMIT
from tests.support.schedulers import scheduler
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings

OWNERS = ("q1", "q2", "q3", "q4")
ROUNDS = 40


pytestmark = pytest.mark.usefixtures("logs")


def safe(queue, numbers):
    """Wait until these were confirmed: else their removes would overtake the store, and cancel them."""
    written = queue.confirms["written"]
    waiting = queue.runtime.event()
    for _ in range(10_000):
        if all(msg_id(n) in written for n in numbers):
            return
        waiting.wait(0.001)
    pytest.fail("no confirms came")


def work(queue, seed):
    """Writes, reads and removes; what is read is right, and what is left is returned."""
    rng, held = random.Random(seed), []
    for _ in range(ROUNDS):
        new = [n for n in rng.sample(range(2_000), 40) if n not in held]
        queue.write(*new)
        held += new
        safe(queue, new)
        for number in rng.sample(held, min(4, len(held))):
            assert queue.client.read(msg_id(number)) == body_of(number)
        some = rng.sample(held, min(12, len(held)))
        assert queue.client.read_many([msg_id(n) for n in some]) == {msg_id(n): body_of(n) for n in some}
        gone = [n for n in held if rng.random() < 0.5]
        queue.remove(*gone)
        held = [n for n in held if n not in gone]
    return held


def test_queues_read_and_write_while_files_are_combined_under_them(tmp_path):
    settings = Settings(msg_store_file_size_limit=8_192, msg_store_write_buffer=4_096)
    with scheduler("threads") as runtime:
        host = StoreHost(runtime, RealDisk("os"), settings, str(tmp_path / "store"))
        host.start()
        queues = {owner: host.queue(owner) for owner in OWNERS}
        answers = {owner: runtime.channel() for owner in OWNERS}
        for seed, (owner, queue) in enumerate(queues.items()):
            runtime.cast(queue, lambda q, seed=seed, owner=owner: answers[owner].put(work(q, seed)))
        held = {owner: answers[owner].get(timeout=LIMIT) for owner in OWNERS}
        for queue in queues.values():
            host.ask(queue, lambda q: None)
        state = host.rest()
        check_at_rest(state, host.disk, host.folder)
        for owner in OWNERS:
            assert Counter(state.owners.held(owner)) == Counter(msg_id(n) for n in held[owner])
        for owner, queue in queues.items():
            bodies = host.ask(
                queue, lambda q, owner=owner: q.client.read_many([msg_id(n) for n in held[owner]])
            )
            assert bodies == {msg_id(n): body_of(n) for n in held[owner]}
        size, valid = host.bytes()
        assert (
            size
            <= max(2 * valid, 2 * settings.msg_store_file_size_limit) + settings.msg_store_file_size_limit
        )
        assert Watched.newest._state.tables.files.current > 100
