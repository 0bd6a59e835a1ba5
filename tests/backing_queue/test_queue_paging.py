"""Single steps of both behaviours that a random walk seldom takes."""

import random
from collections.abc import Sequence

import pytest

from tests.backing_queue.invariants import check_invariants
from warrenmq.backing_queue import paging, rates
from warrenmq.backing_queue.memory_target import MemoryTargetQueue
from warrenmq.backing_queue.read_ahead import ReadAheadQueue
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.message.queue_message import Fetched, Publication
from warrenmq.message.stored import body_of, encode_head
from warrenmq.queue_index import versions as index_versions
from warrenmq.queue_index.protocol import Opening
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedDisk

HEAD = encode_head("", ["q"], None)
SMALL, LARGE = 10, 200


class CountingStore:
    """A store client over a dict; it counts how bodies are asked for."""

    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}
        self.blocked = False
        self.singly: list[int] = []
        self.together: list[int] = []

    def write(self, msg_id: bytes, stored: bytes) -> None:
        self.bodies[msg_id] = stored

    def remove(self, msg_ids: list[bytes]) -> None:
        for msg_id in msg_ids:
            self.bodies.pop(msg_id, None)

    def read(self, msg_id: bytes) -> bytes | None:
        self.singly.append(int.from_bytes(msg_id[8:], "big"))
        return self.bodies.get(msg_id)

    def read_many(self, msg_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        self.together.append(len(msg_ids))
        return {msg_id: self.bodies[msg_id] for msg_id in msg_ids if msg_id in self.bodies}


class World:
    """A queue, its stores and its disk."""

    def __init__(
        self, behaviour: type[VariableQueue], version: int = 1, bound: int = 1 << 40, credit: int = 100
    ) -> None:
        settings = Settings(
            queue_version=version,
            queue_index_segment_entry_count=4,
            classic_queue_index_v2_segment_entry_count=4,
            queue_index_embed_msgs_below=100,
            queue_ram_bytes=bound,
            msg_store_io_batch_size=1,
            msg_store_credit_disc_bound=(credit, credit),
        )
        self.disk = SimulatedDisk(random.Random(0))
        self.index, _ = index_versions.recover(
            Opening(self.disk, "/q", settings, lambda _id: True, "/quarantine")
        )
        self.persistent, self.transient = CountingStore(), CountingStore()
        self.now = 0
        self.queue = behaviour(self.index, self.persistent, self.transient, settings, lambda: self.now)
        self.queue.recovered(0, 0, 0, 0)

    def publish(self, count: int, size: int = SMALL, *, persistent: bool = True) -> None:
        first = self.queue.next_seq_id
        bodies = [b"%0*d" % (size, seq) for seq in range(first, first + count)]
        self.queue.publish(
            [Publication(b"prefix--", first, HEAD, 0, bodies, persistent)], persistent=persistent
        )
        check_invariants(self.queue)

    def fetch(self, most: int) -> list[int]:
        fetched = self.queue.fetch(most, ack_required=True)
        check_invariants(self.queue)
        assert [int(body_of(each.payload, each.size)[-9:]) for each in fetched] == seqs_of(fetched)
        return seqs_of(fetched)

    def page(self, target: int) -> None:
        """Have the queue come down to so many messages in memory."""
        assert isinstance(self.queue, MemoryTargetQueue)
        self.queue.rates.ingress = 1.0
        self.queue.rates.egress = self.queue.rates.ack_ingress = self.queue.rates.ack_egress = 0.0
        self.queue.set_ram_duration_target(float(target))
        check_invariants(self.queue)


def seqs_of(fetched: list[Fetched]) -> list[int]:
    return [each.seq_id for each in fetched]


def where(queue: VariableQueue) -> dict[str, list[int]]:
    assert isinstance(queue, MemoryTargetQueue)
    places = {name: [message[0] for message in getattr(queue, name)] for name in ("q1", "q2", "q3", "q4")}
    return places | {"delta": [queue.delta_start, queue.delta_end, queue.delta_count]}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("persistent", [True, False])
def test_requeued_messages_go_back_to_q4_to_q3_and_to_delta(version: int, persistent: bool) -> None:
    world = World(MemoryTargetQueue, version)
    queue = world.queue
    world.publish(20, persistent=persistent)
    assert world.fetch(12) == list(range(12))
    queue.requeue([1, 2])
    world.page(0)  # q3 keeps as many as a segment has, the rest is in delta
    assert where(queue) == {"q1": [], "q2": [], "q3": [1, 2, 12, 13], "q4": [], "delta": [14, 20, 6]}
    queue.requeue([0, 3, 9, 11])
    check_invariants(queue)
    assert where(queue) == {
        "q1": [],
        "q2": [],
        "q3": [1, 2, 3, 9, 11, 12, 13],
        "q4": [0],
        "delta": [14, 20, 6],
    }
    queue.reduce_memory_use()
    assert where(queue) == {"q1": [], "q2": [], "q3": [0, 1, 2, 3], "q4": [], "delta": [9, 20, 10]}
    queue.requeue([10])
    check_invariants(queue)
    assert where(queue)["delta"] == [9, 20, 11]
    assert queue.unacked == 5
    assert world.fetch(100) == [0, 1, 2, 3, 9, 10, 11, *range(12, 20)], "4 to 8 are still pending"


@pytest.mark.parametrize("version", [1, 2])
def test_a_delta_that_holds_pending_messages_gives_only_the_ready_ones(version: int) -> None:
    world = World(MemoryTargetQueue, version)
    world.publish(16)
    world.fetch(12)
    world.queue.requeue([0, 1, 2, 3, 8, 11])
    world.page(0)
    assert where(world.queue)["delta"] == [8, 16, 6]
    assert world.fetch(100) == [0, 1, 2, 3, 8, 11, 12, 13, 14, 15]
    assert world.queue.ack(range(16)) == list(range(16))
    assert world.index.unacked == 0


def test_alphas_become_betas_from_q4s_rear_and_new_ones_queue_up_behind_delta() -> None:
    world = World(MemoryTargetQueue)
    world.publish(20, LARGE)
    assert where(world.queue)["q4"] == list(range(20))
    world.page(5)
    assert where(world.queue)["q4"] == [0, 1, 2, 3, 4]
    memory = world.queue.memory()
    assert (memory.alpha, memory.beta, memory.ram_msg_count) == (5, 0, 5)
    assert memory.gamma + memory.delta == 15
    world.publish(2, LARGE)
    assert where(world.queue)["q1"] == [20, 21]
    assert world.fetch(100) == list(range(22))


def test_transient_bodies_go_to_their_store_when_they_are_paged_and_leave_it_when_acked() -> None:
    world = World(MemoryTargetQueue)
    world.publish(10, LARGE, persistent=False)
    assert not world.transient.bodies
    world.page(0)
    assert len(world.transient.bodies) == 10
    assert world.queue.memory().beta + world.queue.memory().delta == 10
    assert world.fetch(100) == list(range(10))
    world.queue.ack(range(10))
    assert not world.transient.bodies
    assert world.index.unacked == 0


def test_paging_stops_while_the_store_is_behind_and_goes_on_when_it_has_caught_up() -> None:
    world = World(MemoryTargetQueue)
    world.publish(20, LARGE, persistent=False)
    world.transient.blocked = True
    world.page(0)
    assert world.queue.memory().alpha == 20
    world.transient.blocked = False
    world.queue.reduce_memory_use()
    check_invariants(world.queue)
    assert world.queue.memory().alpha == 0


def test_no_more_than_twice_the_credit_is_paged_at_once() -> None:
    world = World(MemoryTargetQueue, credit=3)
    world.publish(20, LARGE)
    world.page(0)
    assert world.queue.memory().alpha == 14
    steps = 0
    while world.queue.must_reduce_again:
        world.queue.reduce_memory_use()
        check_invariants(world.queue)
        steps += 1
    assert world.queue.memory().alpha == 0
    assert steps >= 3


def test_bodies_of_unacked_messages_are_paged_the_latest_first() -> None:
    world = World(MemoryTargetQueue)
    world.publish(6, LARGE)
    world.fetch(6)
    in_memory = world.queue.ram_bytes
    world.page(4)
    assert world.queue.ram_bytes < in_memory
    assert [seq for seq, message in world.queue._pending.items() if message[3] is None] == [4, 5]
    world.queue.requeue([5])
    check_invariants(world.queue)
    assert world.fetch(1) == [5], "its body was read again"


@pytest.mark.parametrize("behaviour", [MemoryTargetQueue, ReadAheadQueue])
def test_a_body_that_the_store_lost_is_skipped_and_logged(behaviour: type[VariableQueue]) -> None:
    world = World(behaviour)
    world.publish(3, LARGE)
    if isinstance(world.queue, MemoryTargetQueue):
        world.page(0)
    else:
        assert world.fetch(1) == [0]
        world.queue.requeue([0])
    world.persistent.bodies.clear()
    assert world.fetch(5) == []
    assert world.queue.take_lost() == [0, 1, 2]
    assert world.queue.unacked == world.index.unacked == 0


@pytest.mark.parametrize("behaviour", [MemoryTargetQueue, ReadAheadQueue])
def test_transient_messages_of_an_earlier_process_are_dropped_when_they_are_met(
    behaviour: type[VariableQueue],
) -> None:
    world = World(behaviour)
    record = bytes(16) + bytes(8) + (1).to_bytes(4, "big") * 2
    world.index.publish_many(0, [record + b"0"], False)
    world.index.publish_many(1, [record + b"1"], True)
    world.queue.recovered(0, 1, 2, 2)
    assert seqs_of(world.queue.fetch(5, ack_required=True)) == [1]
    assert world.index.unacked == 1


def test_the_head_has_what_two_seconds_take_and_the_rest_is_on_disk_at_once() -> None:
    world = World(ReadAheadQueue)
    queue = world.queue
    assert isinstance(queue, ReadAheadQueue)
    world.publish(10, persistent=False)
    assert ([message[0] for message in queue.q_head], queue.tail_count) == ([0], 9)
    assert world.index.unacked == 9, "transient messages beyond the head, too"
    assert world.fetch(10) == list(range(10))
    queue.rates.most_ahead = rates.memory_limit(2.0)
    world.publish(10)
    assert (len(queue.q_head), queue.tail_count) == (5, 5)
    queue.requeue([3, 8])
    check_invariants(queue)
    assert world.fetch(100) == [3, 8, *range(10, 20)]


def test_ten_small_bodies_are_read_along_with_their_entries_and_fewer_when_they_are_sent() -> None:
    world = World(ReadAheadQueue)
    world.publish(1)
    world.publish(30, LARGE)
    world.queue.rates.most_ahead = rates.memory_limit(1_000.0)
    assert world.fetch(1) == [0]
    assert world.fetch(1) == [1]
    assert not world.persistent.together, "a segment of four is never ten bodies"
    assert world.persistent.singly == [1]


@pytest.mark.parametrize(("size", "together"), [(paging.TOGETHER_SIZE, [11]), (paging.TOGETHER_SIZE + 1, [])])
def test_bodies_of_up_to_12_000_bytes_are_read_together(
    size: int, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(ReadAheadQueue)
    world.publish(1)
    world.publish(11, size)
    monkeypatch.setattr(type(world.index), "tune_read", lambda _index, _start, end: end)
    world.queue.rates.most_ahead = rates.memory_limit(1_000.0)
    assert world.fetch(1) == [0]
    assert world.fetch(2) == [1, 2]
    assert world.persistent.together == together


def test_beyond_its_own_bound_a_queue_is_lazy_until_delta_is_empty() -> None:
    world = World(MemoryTargetQueue, bound=2_000)
    for _ in range(30):
        world.publish(5)
    queue = world.queue
    assert queue.memory().delta > 100
    size = queue.ram_bytes
    world.publish(50)
    assert queue.ram_bytes == size
    assert world.fetch(180) == list(range(180))
    world.queue.ack(range(180))
    world.fetch(100)
    world.queue.ack(range(200))
    world.publish(3)
    assert queue.memory().alpha == 3
