"""Both behaviours of the backing queue against a plain model: order, requeue, paging, restarts."""

import math
import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.backing_queue.invariants import check_invariants
from warrenmq.backing_queue import memory_target as variable_queue_memory_target
from warrenmq.backing_queue import rates, variable_queue
from warrenmq.backing_queue.memory_target import MemoryTargetQueue
from warrenmq.backing_queue.read_ahead import ReadAheadQueue
from warrenmq.message.queue_message import Publication, records_of
from warrenmq.message.stored import body_of, encode_head, seal
from warrenmq.queue_index import versions as index_versions
from warrenmq.queue_index.protocol import Opening
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedDisk
from warrenmq.trace.events import Trigger

SETTINGS = Settings(
    queue_index_segment_entry_count=8,
    queue_index_embed_msgs_below=100,
    msg_store_credit_disc_bound=(5, 5),
    msg_store_io_batch_size=2,
    queue_ram_bytes=5_000,
)
HEAD = encode_head("", ["q"], None)
BEHAVIOURS = {"memory_target": MemoryTargetQueue, "read_ahead": ReadAheadQueue}


@pytest.mark.parametrize(
    ("body", "properties", "limit", "embedded"),
    [
        (4096, 0, 4096, False),
        (5000, 100, 4096, False),
        (4090, 10, 4096, False),
        (4090, 5, 4096, True),
        (0, 0, 4096, True),
        (0, 0, 0, False),
        (1, 0, 0, False),
    ],
)
def test_the_embed_rule(body: int, properties: int, limit: int, embedded: bool) -> None:
    publication = Publication(bytes(8), 1, HEAD, properties, [bytes(body)], persistent=True)
    _, stored = records_of([publication], 0, limit)
    assert (not stored) is embedded


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
def test_a_head_a_header_and_a_body_are_the_stored_message(size: int) -> None:
    import msgpack  # type: ignore[import-untyped]

    stored = seal(HEAD, bytes(size), 7)
    assert msgpack.unpackb(stored)[1:] == ["", ["q"], None, bytes(size)]
    assert body_of(stored, size) == bytes(size)


class DictStore:
    """A store client without a store: what is written is there until it is removed."""

    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}
        self.blocked = False
        self.singly = self.together = 0
        """Bodies that were read one at a time, and with others."""

    def write(self, msg_id: bytes, stored: bytes) -> None:
        assert msg_id not in self.bodies
        self.bodies[msg_id] = stored

    def remove(self, msg_ids: Iterable[bytes]) -> None:
        for msg_id in msg_ids:
            del self.bodies[msg_id]

    def read(self, msg_id: bytes) -> bytes | None:
        self.singly += 1
        return self.bodies.get(msg_id)

    def read_many(self, msg_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        self.together += len(msg_ids)
        return {msg_id: self.bodies[msg_id] for msg_id in msg_ids}


class Clock:
    """Nanoseconds, as a test says."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class QueueMachine(RuleBasedStateMachine):
    """ready and unacked as lists of (seq, body, persistent)."""

    @initialize(
        behaviour=st.sampled_from(sorted(BEHAVIOURS)),
        version=st.sampled_from([1, 2]),
        bound=st.sampled_from([0, 2_000, 10_000, 1 << 40]),
    )
    def begin(self, behaviour: str, version: int, bound: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(rates, "MOST_AHEAD", 5)
        self.patch.setattr(variable_queue, "PURGE_BATCH", 3)
        self.patch.setattr(variable_queue_memory_target, "OPERATIONS_BETWEEN", 7)
        self.patch.setattr(variable_queue_memory_target, "STEP", 3)
        self.behaviour = BEHAVIOURS[behaviour]
        self.settings = Settings(
            queue_version=version,
            queue_index_segment_entry_count=8,
            classic_queue_index_v2_segment_entry_count=8,
            queue_index_embed_msgs_below=100,
            msg_store_credit_disc_bound=(5, 5),
            msg_store_io_batch_size=2,
            queue_ram_bytes=bound,
        )
        self.disk = SimulatedDisk(random.Random(0))
        self.stores = DictStore(), DictStore()
        self.clock = Clock()
        self.next_id = 0
        self.ready: list[tuple[int, bytes, bool]] = []
        self.unacked: dict[int, tuple[int, bytes, bool]] = {}
        self.delivered: set[int] = set()
        self.all_redelivered_below = 0
        self._open(clean=None)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    def _open(self, clean: object) -> None:
        contains = set(
            index_versions.walk(self.disk, "/q", self.disk.listdir("/q"), self.settings).store_message_ids
        ) & set(self.stores[0].bodies)
        index, found = index_versions.recover(
            Opening(self.disk, "/q", self.settings, contains.__contains__, "/quarantine", None, clean)  # type: ignore[arg-type]
        )
        self.queue = self.behaviour(index, *self.stores, self.settings, self.clock)
        next_deliver = found.next_seq_id if clean is None else clean.next_deliver_seq_id  # type: ignore[attr-defined]
        self.queue.recovered(found.low, found.count, found.next_seq_id, next_deliver)

    @rule(
        sizes=st.lists(st.sampled_from([0, 3, 99, 100, 300]), min_size=1, max_size=9),
        persistent=st.booleans(),
    )
    def publish(self, sizes: list[int], persistent: bool) -> None:
        bodies = [bytes([self.next_id + i & 255]) * size for i, size in enumerate(sizes)]
        first, in_store = self.queue.publish(
            [Publication(b"prefix--", self.next_id, HEAD, 0, bodies, persistent)], persistent=persistent
        )
        self.next_id += len(bodies)
        assert len(in_store) == (sum(size >= 100 for size in sizes) if persistent else 0)
        self.ready += [(first + i, body, persistent) for i, body in enumerate(bodies)]

    @rule(most=st.integers(1, 12), ack=st.booleans())
    def fetch(self, most: int, ack: bool) -> None:
        expected, self.ready = self.ready[:most], self.ready[most:]
        fetched = self.queue.fetch(most, ack_required=ack)
        assert [(each.seq_id, body_of(each.payload, each.size)) for each in fetched] == [
            m[:2] for m in expected
        ]
        for each in fetched:
            assert each.redelivered is (
                each.seq_id in self.delivered or each.seq_id < self.all_redelivered_below
            )
        if ack:
            self.unacked |= {message[0]: message for message in expected}
            self.delivered |= {message[0] for message in expected}

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(st.sampled_from([*self.unacked, 10**6]), unique=True))
        assert self.queue.ack(seqs) == sorted(set(seqs) & set(self.unacked))
        for seq in seqs:
            self.unacked.pop(seq, None)

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(st.sampled_from([*self.unacked, 10**6]), unique=True))
        back = self.queue.requeue(seqs)
        assert back == sorted(set(seqs) & set(self.unacked))
        self.ready = sorted([*self.ready, *(self.unacked.pop(seq) for seq in back)])

    @rule()
    def purge(self) -> None:
        assert [seq for batch in self.queue.purge() for seq in batch] == [
            message[0] for message in self.ready
        ]
        self.ready = []

    @rule(seconds=st.sampled_from([0.0, 0.001, 1.0, 60.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += int(seconds * 1e9)

    @rule(duration=st.sampled_from([0.0, 0.01, 1.0, 50.0, math.inf]))
    def hear_of_a_ram_duration(self, duration: float) -> None:
        assert self.queue.ram_duration() >= 0
        self.queue.set_ram_duration_target(duration)

    @rule()
    def reduce_memory_use(self) -> None:
        self.queue.reduce_memory_use()

    @rule(which=st.booleans())
    def a_store_falls_behind_or_catches_up(self, which: bool) -> None:
        self.stores[which].blocked = not self.stores[which].blocked

    @rule()
    def flush_a_segment(self) -> None:
        self.queue.index.flush_step()

    @rule()
    def flush(self) -> None:
        self.queue.index.begin_flush()
        while self.queue.index.flush_step():
            pass

    def _survivors(self) -> None:
        kept = sorted(message for message in (*self.ready, *self.unacked.values()) if message[2])
        self.ready, self.unacked = kept, {}
        self.delivered.clear()

    @rule(behaviour=st.sampled_from(sorted(BEHAVIOURS)))
    def restart_cleanly(self, behaviour: str) -> None:
        self.queue.drop_transient_pending()
        terms = self.queue.index.terminate(
            next_seq_id=self.queue.next_seq_id, next_deliver_seq_id=self.queue.next_deliver_seq_id
        )
        self._survivors()
        self.stores[1].bodies.clear()
        below = self.queue.next_deliver_seq_id
        self.behaviour = BEHAVIOURS[behaviour]
        self._open(terms)
        self.all_redelivered_below = below

    @rule()
    def crash_after_a_sync(self) -> None:
        self.queue.index.sync(Trigger.TIMER)
        self._survivors()
        self.stores[1].bodies.clear()
        self._open(None)
        self.all_redelivered_below = self.queue.next_seq_id

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.ready == len(self.ready)
            assert self.queue.unacked == len(self.unacked)
            assert self.queue.take_lost() == []

    @invariant()
    def the_queue_is_in_order(self) -> None:
        if hasattr(self, "queue"):
            check_invariants(self.queue)


TestVariableQueue = QueueMachine.TestCase
TestVariableQueue.settings = hypothesis_settings(max_examples=200, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("behaviour", sorted(BEHAVIOURS))
def test_a_gap_of_any_size_in_the_sequence_ids_is_stepped_over(behaviour: str) -> None:
    """A damaged sequence id can be far off; reading the tail run by run would never get there."""
    settings = Settings(queue_version=1)
    index, _ = index_versions.recover(
        Opening(SimulatedDisk(random.Random(0)), "/q", settings, bool, "/quarantine")
    )
    far = 1 << 40
    for seq in (0, far):
        record = bytes(16) + bytes(8) + (1).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"%d" % (seq > 0)
        index.publish_many(seq, [record], True)
    queue = BEHAVIOURS[behaviour](index, DictStore(), DictStore(), SETTINGS, Clock())
    queue.recovered(0, 2, far + 1, 0)
    assert [each.seq_id for each in queue.fetch(5, ack_required=True)] == [0, far]


def test_messages_that_are_alike_are_read_together_in_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 400
    settings = Settings(queue_version=2, classic_queue_index_v2_segment_entry_count=128)
    opening = Opening(SimulatedDisk(random.Random(0)), "/q", settings, bool, "/quarantine")
    index, _ = index_versions.recover(opening)
    publication = Publication(bytes(8), 1, HEAD, 0, [bytes([i % 256]) for i in range(count)], persistent=True)
    index.publish_many(0, records_of([publication], 0, 4096)[0], True)
    index.terminate(next_seq_id=count, next_deliver_seq_id=0)
    index, _ = index_versions.recover(opening)
    queue = ReadAheadQueue(index, DictStore(), DictStore(), settings, Clock())
    queue.recovered(0, count, count, 0)
    monkeypatch.setattr(index, "read", None)
    fetched = queue.fetch(count, ack_required=True)
    assert [(each.seq_id, each.payload[-1]) for each in fetched] == [(i, i % 256) for i in range(count)]
