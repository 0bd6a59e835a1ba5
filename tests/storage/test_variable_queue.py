"""The backing queue against a plain model: order, requeue, backlog on disk, restarts."""

import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from warrenmq.settings import Settings
from warrenmq.storage import variable_queue
from warrenmq.storage.index_recovery import store_message_ids
from warrenmq.storage.queue_index import QueueIndex
from warrenmq.storage.sim_disk import SimulatedDisk
from warrenmq.storage.stored_message import body_of, encode_head
from warrenmq.storage.variable_queue import Publication, VariableQueue, bin_header, embeds
from warrenmq.trace.events import Trigger

SETTINGS = Settings(queue_index_segment_entry_count=8, queue_index_embed_msgs_below=100)
HEAD = encode_head("", ["q"], None)


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
    assert embeds(body, properties, limit) is embedded


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
def test_a_head_a_header_and_a_body_are_the_stored_message(size: int) -> None:
    import msgpack  # type: ignore[import-untyped]

    stored = HEAD + bin_header(size) + bytes(size)
    assert msgpack.unpackb(stored) == [1, "", ["q"], None, bytes(size)]
    assert body_of(stored, size) == bytes(size)


class DictStore:
    """A store client without a store: what is written is there until it is removed."""

    def __init__(self) -> None:
        self.bodies: dict[bytes, bytes] = {}

    def write(self, msg_id: bytes, stored: bytes) -> None:
        assert msg_id not in self.bodies
        self.bodies[msg_id] = stored

    def remove(self, msg_ids: Iterable[bytes]) -> None:
        for msg_id in msg_ids:
            del self.bodies[msg_id]

    def read_many(self, msg_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        return {msg_id: self.bodies[msg_id] for msg_id in msg_ids}


class QueueMachine(RuleBasedStateMachine):
    """ready and unacked as lists of (seq, body, persistent)."""

    @initialize()
    def begin(self) -> None:
        self.saved = variable_queue.HEAD_MESSAGES, variable_queue.READ_AHEAD
        variable_queue.HEAD_MESSAGES, variable_queue.READ_AHEAD = 6, 5
        self.disk = SimulatedDisk(random.Random(0))
        self.stores = DictStore(), DictStore()
        self.next_id = 0
        self.ready: list[tuple[int, bytes, bool]] = []
        self.unacked: dict[int, tuple[int, bytes, bool]] = {}
        self.delivered: set[int] = set()
        self.all_redelivered_below = 0
        self._open(clean=None)

    def teardown(self) -> None:
        if hasattr(self, "saved"):
            variable_queue.HEAD_MESSAGES, variable_queue.READ_AHEAD = self.saved

    def _open(self, clean: object) -> None:
        contains = set(store_message_ids(self.disk, "/q", 8)) & set(self.stores[0].bodies)
        index, found = QueueIndex.recover(
            self.disk, "/q", SETTINGS, terms=clean, contains=contains.__contains__, quarantine="/quarantine"  # type: ignore[arg-type]
        )
        self.queue = VariableQueue(index, *self.stores, SETTINGS.queue_index_embed_msgs_below)
        next_deliver = found.next_seq_id if clean is None else clean.next_deliver_seq_id  # type: ignore[attr-defined]
        self.queue.recovered(found.low, found.count, found.next_seq_id, next_deliver)

    @rule(sizes=st.lists(st.sampled_from([0, 3, 99, 100, 300]), min_size=1, max_size=9), persistent=st.booleans())
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
        assert [(each.seq_id, body_of(each.payload, each.size)) for each in fetched] == [m[:2] for m in expected]
        for each in fetched:
            assert each.redelivered is (each.seq_id in self.delivered or each.seq_id < self.all_redelivered_below)
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
        assert self.queue.purge() == [message[0] for message in self.ready]
        self.ready = []

    @rule()
    def flush_a_segment(self) -> None:
        self.queue.index.flush_step()

    @rule()
    def flush(self) -> None:
        self.queue.index.flush()

    def _survivors(self) -> None:
        kept = sorted(message for message in (*self.ready, *self.unacked.values()) if message[2])
        self.ready, self.unacked = kept, {}
        self.delivered.clear()

    @rule()
    def restart_cleanly(self) -> None:
        self.queue.drop_transient_pending()
        terms = self.queue.index.terminate(
            next_seq_id=self.queue.next_seq_id, next_deliver_seq_id=self.queue.next_deliver_seq_id
        )
        self._survivors()
        self.stores[1].bodies.clear()
        below = self.queue.next_deliver_seq_id
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


TestVariableQueue = QueueMachine.TestCase
TestVariableQueue.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_gap_of_any_size_in_the_sequence_ids_is_stepped_over() -> None:
    """A damaged sequence id can be far off; reading the tail run by run would never get there."""
    index, _ = QueueIndex.recover(
        SimulatedDisk(random.Random(0)), "/q", SETTINGS, terms=None, contains=bool, quarantine="/quarantine"
    )
    queue = VariableQueue(index, DictStore(), DictStore(), SETTINGS.queue_index_embed_msgs_below)
    far = 1 << 40
    for seq in (0, far):
        queue.next_seq_id = seq
        queue.publish([Publication(b"prefix--", seq, HEAD, 0, [b"%d" % seq], True)], persistent=True)
    queue = VariableQueue(index, DictStore(), DictStore(), SETTINGS.queue_index_embed_msgs_below)
    queue.recovered(0, 2, far + 1, 0)
    assert [each.seq_id for each in queue.fetch(5, ack_required=True)] == [0, far]
