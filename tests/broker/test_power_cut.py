"""The power fails at every single disk operation of a short life of the broker, and again while it recovers.

The life has everything in it: declarations, small and large messages, a fan-out, gets and acks, journal flushes,
segment files that come and go, message files that roll over, are deleted, and are combined or compacted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

import warrenmq
from tests.broker.ledger import Ledger
from tests.support.own_directories import VHOST, folder_of
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.commit_log import disk as logged_disk
from warrenmq.commit_log.disk import replay as replay_log
from warrenmq.errors import CorruptFile
from warrenmq.message_store.rdq import body_of
from warrenmq.message_store.scan import whole_records
from warrenmq.queue_index.versions import walk
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.testing import PowerCut
from warrenmq.testing.machine import DATA

QUEUES = ("a", "b")
SIZES = (10, 40, 300, 900, 1500)
SEEDS = range(1, 100)
EVERYTHING = {
    "classic": ("QI_FLUSH", "SEGMENT_DELETE", "ROLL", "FILE_DELETE", "GC_DONE"),
    "modern": ("SEGMENT_DELETE", "ROLL", "FILE_DELETE", "COMPACT_DONE", "TRUNCATE"),
}
"""Events without which a life is not worth a power cut at each operation, under each profile."""
LOGGED = {f"{name}, logged": replace(kind, commit_log=True) for name, kind in BOTH_PROFILES.items()}
"""With a commit log, which is full again and again."""
KINDS = BOTH_PROFILES | LOGGED
PROFILES = pytest.mark.parametrize("profile", BOTH_PROFILES)
PROFILES_LOGGED = pytest.mark.parametrize("profile", LOGGED)
LARGE = BOTH_PROFILES["modern"].queue_index_embed_msgs_below


class FailingHost(SimulatedHost):
    """Its power fails at the n-th disk operation from now."""

    operations_left = 0
    operations = 0

    def before_op(self, op: str, path: str) -> None:
        self.operations += 1
        if self.operations_left:
            self.operations_left -= 1
            if not self.operations_left:
                raise PowerCut
        super().before_op(op, path)


class Life:
    """A broker on one host, one application, and what it was promised."""

    def __init__(self, seed: int, profile: str) -> None:
        self.host = FailingHost(seed, KINDS[profile])
        self.random = random.Random(f"life {seed}")
        self.ledger = Ledger()
        self.declared: list[str] = []
        self.bound: list[str] = []
        self.number = 0
        self.bodies: dict[int, bytes] = {}
        self.confirmed: set[int] = set()
        """Every message that ever was, acked ones too."""
        self.waiting: list[tuple[int, warrenmq.Confirm]] = []

    def run(self) -> None:
        """From opening to a clean close."""
        broker = self.host.open()
        for name in QUEUES:
            broker.declare_queue(name)
            self.declared.append(name)
        broker.declare_exchange("both", "fanout")
        for name in QUEUES:
            broker.bind(name, "both")
            self.bound.append(name)
        for _ in range(6):
            for _ in range(6):
                self.publish(broker)
            self.settle()
            self.consume(broker, self.random.choice(QUEUES))
            self.host.sleep(self.random.choice((0.0, 0.03, 0.3)))
        broker.close()
        self.host.crash(power_cut=False)

    def publish(self, broker: warrenmq.Broker) -> None:
        self.number += 1
        to = self.random.choice((*QUEUES, "both"))
        body = b"%d " % self.number + b"." * self.random.choice(SIZES)
        self.bodies[self.number] = body
        self.ledger.published(self.number, QUEUES if to == "both" else (to,))
        confirm = broker.publish("both", "", body) if to == "both" else broker.publish("", to, body)
        self.waiting.append((self.number, confirm))

    def settle(self) -> None:
        """Wait for the confirms that are due."""
        for _, confirm in self.waiting:
            confirm.result()
        self.note_confirms()

    def note_confirms(self) -> None:
        for number, confirm in self.waiting:
            if confirm.done() and confirm.exception() is None:
                self.ledger.confirmed(number)
                self.confirmed.add(number)
        self.waiting.clear()

    def consume(self, broker: warrenmq.Broker, name: str) -> None:
        """Take most of a queue, ack most of that, put the rest back."""
        queue = broker.queue(name)
        for _ in range(12):
            delivery = queue.get()
            if delivery is None:
                return
            if self.random.random() < 0.8:
                self.ledger.settled(name, int(delivery.body.split()[0]))
                delivery.ack()
            else:
                delivery.nack()

    def after_the_cut(self) -> None:
        """Open again: everything promised is there, as it was published, and the trace has no violation."""
        self.note_confirms()
        overwritten = self.without_bodies() & self.confirmed
        assert not overwritten, (
            f"an ack was lost, and the message that comes back is not in the store: {overwritten}"
        )
        broker = self.host.open()
        references, messages = 0, set()
        for name in QUEUES:
            try:
                queue = broker.queue(name)
            except warrenmq.NotFound:
                assert name not in self.declared, f"the declare of {name} had returned"
                continue
            bodies = [delivery.body for delivery in iter(queue.get, None)]
            numbers = [int(body.split()[0]) for body in bodies]
            self.ledger.check(name, numbers)
            assert bodies == [self.bodies[number] for number in numbers]
            large = [number for number, body in zip(numbers, bodies, strict=True) if len(body) >= LARGE]
            references += len(large)
            messages.update(large)
        store = next(each for each in broker.stats().stores if each.name == "msg_store_persistent")
        assert (store.references, store.messages) == (references, len(messages))
        self.ask_for_bindings(broker)
        broker.close()
        assert self.host.sink is not None
        verdict = replay_memory(self.host.sink.files())
        assert verdict.verdict == "ok", "\n".join(map(str, [*verdict.violations, *verdict.indeterminate]))

    def without_bodies(self) -> set[int]:
        """Messages that some queue's index names, and of which the store has no whole record."""
        disk, named = self.host.disk, set[bytes]()
        replay_log(disk, DATA)
        for name in QUEUES:
            folder = folder_of(name)
            named.update(walk(disk, folder, disk.listdir(folder), self.host.settings).store_message_ids)
        store = f"{VHOST}/msg_store_persistent"
        for name in disk.listdir(store):
            file = disk.open_read(f"{store}/{name}")
            for msg_id, offset, total in whole_records(file, named):
                with suppress(CorruptFile):
                    body_of(file.pread(total, offset), msg_id, name, offset)
                    named.discard(msg_id)
        # the only thread that publishes numbers its messages from 0 in each boot, of which this is the first
        return {1 + int.from_bytes(msg_id[8:], "big") % (1 << 40) for msg_id in named}

    def ask_for_bindings(self, broker: warrenmq.Broker) -> None:
        """A fan-out reaches every queue whose bind had returned."""
        if self.bound:
            before = {name: broker.queue(name).info().ready for name in self.bound}
            broker.publish("both", "", b"0 anybody there?").result()
            assert [name for name in self.bound if broker.queue(name).info().ready == before[name]] == []


@cache
def operations_of(seed: int, profile: str) -> int | None:
    """Number of operations of the disk in a whole life; None when not everything happens in it."""
    life = Life(seed, profile)
    try:
        life.run()
        assert life.host.sink is not None
        seen = replay_memory(life.host.sink.files()).figures["events_of"]
        return (
            life.host.operations
            if all(seen.get(name) for name in EVERYTHING[profile.partition(",")[0]])
            else None
        )
    finally:
        life.host.close()


def cut_at(seed: int, profile: str, operation: int, again_at: int = 0) -> None:
    """One life and one cut; `again_at`: another one that many operations into the recovery."""
    life = Life(seed, profile)
    host = life.host
    try:
        host.operations_left = operation
        with pytest.raises(PowerCut):
            life.run()
        host.crash(power_cut=True)
        if again_at:
            host.operations_left = again_at
            with suppress(PowerCut):
                host.open()
            host.operations_left = 0
            host.crash(power_cut=True)
        life.after_the_cut()
    finally:
        host.close()


@PROFILES
def test_nothing_promised_is_lost_whatever_operation_the_power_fails_at(profile: str) -> None:
    """Every operation of one life in which everything happens."""
    full = ((seed, operations) for seed in SEEDS if (operations := operations_of(seed, profile)) is not None)
    seed, operations = next(full)
    for operation in range(1, operations + 1):
        cut_at(seed, profile, operation)


@PROFILES
def test_nothing_promised_is_lost_by_a_second_power_cut_during_recovery(profile: str) -> None:
    chance = random.Random(profile)
    for seed in range(1000, 1100):
        cut_at(seed, profile, chance.randint(1, 170), chance.randint(1, 60))


@pytest.fixture
def _small_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 8192)
    operations_of.cache_clear()
    yield
    operations_of.cache_clear()


@PROFILES_LOGGED
@pytest.mark.usefixtures("_small_log")
def test_nothing_promised_is_lost_with_a_commit_log(profile: str) -> None:
    """One operation in nine of a life in which everything happens, which ones depends on the profile; some again in the recovery."""
    chance = random.Random(profile)
    full = ((seed, operations) for seed in SEEDS if (operations := operations_of(seed, profile)) is not None)
    seed, operations = next(full)
    for operation in range(chance.randint(1, 9), operations + 1, 9):
        cut_at(seed, profile, operation, chance.choice([0, 0, chance.randint(1, 60)]))
