"""The index against a dict: any order of actions, flushes, syncs, clean stops, kills and power cuts.

For version 1, for version 2, and for a queue that is opened with either after each stop.
"""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import settings as run_with
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.queue_index import index_kit as kit
from warrenmq.directory.recovery_terms import Terms, paths_to_sync, save_terms
from warrenmq.queue_index.record import HEADER_BYTES, ID_BYTES
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.trace.events import Trigger

pytestmark = pytest.mark.usefixtures("_flushes_come_in_small_pieces")
_flushes_come_in_small_pieces = pytest.fixture(scope="module")(kit.flushes_come_in_small_pieces)

ENTRIES = 4
MAX_JOURNAL = 16
SETTINGS = {
    1: kit.settings(ENTRIES, MAX_JOURNAL),
    2: kit.settings(ENTRIES, version=2, classic_queue_store_v2_max_cache_size=300),
}


class IndexModel(RuleBasedStateMachine):
    """`live` is what must be read; `synced` what it was at the last sync, `since` what happened to it after that.

    The numbers in the comments are those of docs/reference/classic-queue.md#properties.
    """

    versions: ClassVar = (1,)
    """With which of them the queue may be opened."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = kit.disk()
        self.live: dict[int, tuple[bytes, bool]] = {}
        self.synced: dict[int, tuple[bytes, bool]] = {}
        self.published_since: dict[int, tuple[bytes, bool]] = {}
        self.acked_since: set[int] = set()
        self.in_store: set[bytes] = set()
        self.next_seq_id = 0
        self.index: Any

    @initialize(seed=st.integers(0, 1_000))
    def begin(self, seed: int) -> None:
        self.disk = kit.disk(seed)
        self.random = Random(seed)
        self.version = self.versions[0]
        self.index, _ = self.recover()

    def recover(self, terms: Terms | None = None) -> tuple[Any, Found]:
        """Open the queue beside a store that has the bodies which are not in records: one whose body became zeros has none there."""
        return kit.recover(self.disk, SETTINGS[self.version], terms, self.in_store.__contains__)

    def message(self, record: bytes) -> bytes:
        """The record as version 2 returns it."""
        return kit.message(record, max(self.versions))

    @rule(
        gap=st.integers(0, 3),
        count=st.integers(1, 9),
        persistent=st.booleans(),
        size=st.sampled_from([None, 5, 90]),
    )
    def publish(self, gap: int, count: int, persistent: bool, size: int | None) -> None:
        first = self.next_seq_id + gap
        numbers = range(first, first + count)
        records = [
            kit.stored_record(each) if size is None else kit.embedded_record(each, size) for each in numbers
        ]
        if size is None:
            self.in_store.update(record[:ID_BYTES] for record in records)
        if count == 1:
            self.index.publish_many(first, [records[0]], persistent=persistent)
        else:
            self.index.publish_many(first, records, persistent=persistent)
        new = {seq: (self.message(record), persistent) for seq, record in zip(numbers, records, strict=True)}
        self.live |= new
        self.published_since |= new
        self.next_seq_id = first + count

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        seq_ids = data.draw(st.lists(st.sampled_from(sorted(self.live)), unique=True, max_size=6))
        self.index.ack(seq_ids)
        self.forget(seq_ids)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def ack_range(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(sorted(self.live)))
        longest = next(each for each in range(1, len(self.live) + 1) if first + each not in self.live)
        count = data.draw(st.integers(1, longest))
        self.index.ack_range(first, count)
        self.forget(list(range(first, first + count)))

    def forget(self, seq_ids: list[int]) -> None:
        for seq_id in seq_ids:
            del self.live[seq_id]
        self.acked_since.update(seq_ids)

    @rule()
    def flush_step(self) -> None:
        more = self.index.flush_step()
        assert more == self.index.flushing

    @rule()
    def flush(self) -> None:
        self.index.flush_buffer(Trigger.TIMER)
        self.index.begin_flush()
        while self.index.flush_step():
            pass
        self.index.flush_buffer(Trigger.TIMER)
        if self.version == 1:
            self.index.flush()
        assert self.index.unacked or not self.index.dirty_bytes
        # 14, 21: a file for exactly the segments with live messages
        extension = ".idx" if self.version == 1 else ".qi"
        files = {name for name in self.disk.listdir(kit.DIRECTORY) if name.endswith(extension)}
        assert files == {f"{seq // ENTRIES}{extension}" for seq in self.live}

    @rule()
    def write(self) -> None:
        self.index.flush_buffer(Trigger.TIMER)

    @rule()
    def sync(self) -> None:
        self.index.sync(Trigger.TIMER)
        self.note_sync()

    def note_sync(self) -> None:
        self.synced = dict(self.live)
        self.published_since, self.acked_since = {}, set()

    @rule(start=st.integers(0, 60), length=st.integers(0, 30))
    def read(self, start: int, length: int) -> None:
        # 19: strictly increasing, within the bounds, whatever was flushed
        found = self.index.read(start, start + length)
        assert [(seq, self.message(record), persistent) for seq, record, persistent in found] == [
            (seq, record, persistent)
            for seq, (record, persistent) in sorted(self.live.items())
            if start <= seq < start + length
        ]
        assert [
            (seq, record[ID_BYTES:HEADER_BYTES], persistent)
            for seq, record, persistent in self.index.read_headers(start, start + length)
        ] == [(seq, record[ID_BYTES:HEADER_BYTES], persistent) for seq, record, persistent in found]

    @rule()
    def stop_cleanly(self) -> None:
        terms = self.index.terminate(next_seq_id=self.next_seq_id, next_deliver_seq_id=0)
        save_terms(self.disk, kit.DIRECTORY, terms)
        self.disk.sync_many(paths_to_sync(self.disk, [kit.DIRECTORY]))
        self.note_sync()
        self.disk.power_cut()
        self.reopen(clean=True)

    @rule()
    def kill(self) -> None:
        self.reopen(clean=False)

    @rule()
    def cut_power(self) -> None:
        self.disk.power_cut()
        self.reopen(clean=False)

    def reopen(self, *, clean: bool) -> None:
        terms = kit.take_terms(self.disk)
        assert (terms is not None) == clean
        self.version = self.random.choice(self.versions)
        self.index, found = self.recover(terms)
        lost_at_once = set(found.lost)  # by a move to the other version, which reads bodies
        found_live = self.everything(found)
        assert not clean or not found.damage
        must = {seq for seq, (_, persistent) in self.synced.items() if persistent} - self.acked_since
        may = self.synced | self.published_since
        # 8, 10, 11: what was synced is there, what was acked and synced is not, transient messages are gone
        assert must <= found_live.keys()
        assert found_live.items() <= may.items()
        if clean:
            assert found_live.keys() == must
            assert found.next_seq_id == self.next_seq_id
        # 20, 22
        assert found.next_seq_id > max(found_live, default=-1)
        in_the_index = found_live.keys() | (set(found.lost) - lost_at_once)
        assert found.low == min(in_the_index, default=found.next_seq_id)
        # 13: recovering again gives the same
        self.index, again = self.recover(terms)
        assert self.everything(again) == found_live
        forgets = 2 in self.versions  # ids of segments that are gone
        assert again.next_seq_id == found.next_seq_id or (
            forgets and again.next_seq_id > max(found_live, default=-1)
        )
        self.live = found_live
        self.next_seq_id = max(self.next_seq_id, found.next_seq_id)
        self.index.sync(Trigger.TIMER)
        self.note_sync()

    def everything(self, found: Found) -> dict[int, tuple[bytes, bool]]:
        return {seq: (self.message(record), True) for seq, record in kit.read_all(self.index, found).items()}

    @invariant()
    def unacked_is_counted_by_segment(self) -> None:
        if not hasattr(self, "index"):
            return
        # 14
        counts = {
            number: segment.unacked for number, segment in self.index._segments.items() if segment.unacked
        }
        expected: dict[int, int] = {}
        for seq_id in self.live:
            expected[seq_id // ENTRIES] = expected.get(seq_id // ENTRIES, 0) + 1
        assert counts == expected
        assert self.index.unacked == len(self.live)

    @invariant()
    def bounds_enclose_what_is_live(self) -> None:
        if not hasattr(self, "index"):
            return
        low, high = self.index.bounds()
        assert (low % ENTRIES, high % ENTRIES) == (0, 0)
        assert all(low <= seq_id < high for seq_id in self.live)
        if self.live:
            assert low <= self.index.next_live(0) <= min(self.live)
        else:
            assert self.index.next_live(0) == self.index.next_seq_id


class Version2(IndexModel):
    versions = (2,)


class EitherVersion(IndexModel):
    versions = (1, 2)


MACHINES = (IndexModel, Version2, EitherVersion)
for machine in MACHINES:
    machine.TestCase.settings = run_with(max_examples=40, stateful_step_count=40, deadline=None)
TestIndexModel, TestVersion2, TestEitherVersion = (machine.TestCase for machine in MACHINES)


def test_the_lowest_message_is_one_that_was_moved_to_the_other_version():
    """Message 3 has lost its body and is not moved; RabbitMQ, too, takes the bounds of the index after the conversion."""
    model = EitherVersion()
    model.begin(seed=198)
    for _ in range(5):
        model.cut_power()
    for _ in range(2):
        model.stop_cleanly()
    model.publish(count=6, gap=3, persistent=True, size=5)
    model.cut_power()
    assert (model.version, min(model.live)) == (1, 4)


def test_a_torn_record_whose_body_became_zeros_is_dropped():
    """It reads as one whose body is in the store, and the store has none of that id."""
    model = IndexModel()
    model.begin(seed=39)
    model.kill()
    model.publish(gap=2, count=5, persistent=True, size=90)
    model.publish(gap=0, count=5, persistent=True, size=None)
    model.sync()
    model.publish(gap=0, count=7, persistent=True, size=None)
    model.flush_step()
    model.flush_step()
    model.publish(gap=1, count=7, persistent=True, size=5)
    model.publish(gap=2, count=1, persistent=True, size=90)
    model.flush_step()
    model.cut_power()
    assert set(range(2, 12)) <= model.live.keys()
    assert 23 not in model.live


@pytest.mark.parametrize("machine", MACHINES)
def test_the_model_meets_long_lives_too(machine: type[IndexModel]) -> None:
    """Many steps of one life, by a seeded die: what Hypothesis's short ones do not reach."""
    for seed in range(3):
        rng = Random(seed)
        model = machine()
        model.begin(seed)
        for _ in range(300):
            match rng.randrange(8):
                case 0 | 1 | 2:
                    model.publish(
                        rng.randrange(3), rng.randrange(1, 9), rng.random() < 0.8, rng.choice([None, 5, 90])
                    )
                case 3 | 4:
                    seq_ids = rng.sample(sorted(model.live), min(len(model.live), rng.randrange(12)))
                    model.index.ack(seq_ids)
                    model.forget(seq_ids)
                case 5:
                    model.flush_step()
                case 6:
                    model.sync()
                case 7 if rng.random() < 0.1:
                    rng.choice([model.stop_cleanly, model.kill])()
            model.unacked_is_counted_by_segment()
        model.read(0, 10_000)
        model.flush()
