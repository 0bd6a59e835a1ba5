"""The power goes, or the process is killed, at each operation on the disk: what was synced is there afterwards."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest

from tests.queue_index import index_kit as kit
from tests.support.logged import LoggedSimulation
from warrenmq.commit_log import disk as logged_disk
from warrenmq.testing import PowerCut
from warrenmq.trace.events import Trigger

SETTINGS = {
    1: kit.settings(entry_count=4, max_journal_entries=14),
    2: kit.settings(entry_count=4, version=2, classic_queue_store_v2_max_cache_size=700),
}


pytestmark = pytest.mark.usefixtures("_flushes_come_in_small_pieces")
_flushes_come_in_small_pieces = pytest.fixture(scope="module")(kit.flushes_come_in_small_pieces)


class Story:
    """A queue's life, and what may be expected of its files at any moment."""

    def __init__(self, disk: Any, rng: Random, version: int, *, tight: bool = False) -> None:
        self.disk = disk
        self.version = version
        self.tight = tight
        """Now and then the disk has little room or none."""
        self.rng = rng
        self.published: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self.must: set[int] = set()
        """Confirmed; acks that were asked for may have arrived, so those are not in here."""
        self.gone: set[int] = set()
        """Acked, and the ack synced."""
        self.highest_synced = -1

    def tell(self) -> None:
        """Publish, ack, flush and sync until something happens."""
        index, found = kit.recover(self.disk, SETTINGS[self.version])
        next_seq_id = found.next_seq_id
        for _ in range(25):
            count = self.rng.randint(1, 5)
            records = [
                kit.embedded_record(seq, self.rng.choice([5, 300]))
                if self.rng.random() < 0.6
                else kit.stored_record(seq)
                for seq in range(next_seq_id, next_seq_id + count)
            ]
            self.published.update(enumerate(records, next_seq_id))
            index.publish_many(next_seq_id, records, persistent=True)
            next_seq_id += count
            if self.tight:
                self.disk.free_bytes = self.rng.choice([None, 0, self.rng.randint(0, 700)])
            self.ack_some(index)
            with full_disk_allowed(self.tight):
                if self.rng.random() < 0.5:
                    index.flush_step()
            with full_disk_allowed(self.tight):
                if self.rng.random() < 0.5:
                    self.sync(index)

    def ack_some(self, index: Any) -> None:
        waiting = sorted(self.published.keys() - self.acked)
        if self.rng.random() < 0.4:
            run = waiting[: self.rng.randint(0, 6)]
            if run and run[-1] - run[0] == len(run) - 1:
                self.note_acks(run)
                index.ack_range(run[0], len(run))
        else:
            some = sorted(self.rng.sample(waiting, min(len(waiting), self.rng.randint(0, 5))))
            self.note_acks(some)
            index.ack(some)

    def note_acks(self, seq_ids: list[int]) -> None:
        self.acked.update(seq_ids)
        self.must.difference_update(seq_ids)

    def sync(self, index: Any) -> None:
        synced = index.sync(Trigger.TIMER)
        self.must = self.published.keys() - self.acked
        self.gone = set(self.acked)
        if synced is not None and synced[0]:  # else all was acked before it was written
            self.highest_synced = max(self.published, default=-1)

    def check(self, index: Any) -> None:
        live = kit.messages(kit.everything(index), self.version)
        assert self.must <= live.keys()
        assert not self.gone & live.keys()
        assert live.items() <= kit.messages(self.published, self.version).items()
        assert index.next_seq_id > max(live, default=-1)
        assert index.unacked == len(live)


@contextmanager
def full_disk_allowed(allowed: bool) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not (allowed and error.errno == errno.ENOSPC):
            raise


def stop_at(disk: Any, operation: int) -> list[str]:
    """Cut the power at the n-th change of a file or folder; returns those that came, as they come."""
    seen: list[str] = []

    def before(op: str, path: str) -> None:
        if op == "pread":
            return
        if len(seen) + 1 == operation:
            raise PowerCut
        seen.append(f"{op} {path}")

    disk.before_op = before
    return seen


def operations_of(seed: int, version: int, *, tight: bool = False) -> int:
    disk = kit.disk(seed)
    seen = stop_at(disk, -1)
    Story(disk, Random(seed), version, tight=tight).tell()
    return len(seen)


def lives(
    seed: int,
    version: int,
    *,
    kill: bool,
    logged: bool = False,
    tight: bool = False,
    first: int = 1,
    step: int = 1,
) -> None:
    """The same story, ended at each operation, or at each `step`th from `first`; then its recovery is ended too, somewhere, twice."""
    for operation in range(first, operations_of(seed, version, tight=tight) + 1, step):
        rng = Random(seed * 1_000 + operation)
        disk: Any = kit.disk(seed * 1_000 + operation)
        if logged:
            disk = LoggedSimulation(disk, "/data")
        story = Story(disk, Random(seed), version, tight=tight)
        seen = stop_at(disk, operation)
        tells = True
        for attempt in range(3):
            try:
                if attempt == 0:
                    story.tell()
                else:
                    seen = stop_at(disk, rng.randint(1, 12))
                    with full_disk_allowed(tight):
                        kit.recover(disk, SETTINGS[version])
            except PowerCut:
                # a kill between these two operations: no file tells how far the queue had come
                tells = tells and not (seen and seen[-1] == f"truncate {kit.DIRECTORY}/journal.jif")
                if not kill:
                    disk.power_cut()
        disk.before_op = disk.free_bytes = None
        index, found = kit.recover(disk, SETTINGS[version])
        story.check(index)
        if kill and tells and version == 1 and not tight:
            assert found.next_seq_id > story.highest_synced
        first = kit.everything(index)
        disk.power_cut()  # what a recovery has found is safe when it has returned, whoever had written it
        again, same = kit.recover(disk, SETTINGS[version])
        assert kit.everything(again) == first
        # version 2 forgets ids of segments that are gone, as RabbitMQ does; it never comes to one that is in use
        assert same.next_seq_id == found.next_seq_id or (
            version == 2 and same.next_seq_id > max(first, default=-1)
        )
        again.ack(sorted(first))
        again.begin_flush()
        while again.flush_step():
            pass
        assert [name for name in disk.listdir(kit.DIRECTORY) if name.endswith((".idx", ".qi", ".qs"))] == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_confirmed_is_lost_and_nothing_acked_comes_back_after_a_power_cut(
    seed: int, version: int
) -> None:
    lives(seed, version, kill=False)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_confirmed_is_lost_and_nothing_acked_comes_back_after_a_kill(seed: int, version: int) -> None:
    lives(seed, version, kill=True)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("seed", range(20, 24))
def test_nothing_confirmed_is_lost_and_nothing_acked_comes_back_where_the_disk_is_full_at_times(
    seed: int, kill: bool, version: int
) -> None:
    lives(seed, version, kill=kill, tight=True)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kill", [False, True])
def test_nothing_confirmed_is_lost_and_nothing_acked_comes_back_with_a_commit_log(
    version: int, kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_disk, "FILE_SIZE", 6144)
    for seed in (10, 11):  # every second operation, the odd ones of one story and the even ones of the other
        lives(seed, version, kill=kill, logged=True, first=1 + seed % 2, step=2)


def check_after_a_failed_sync(disk: Any, seed: int, version: int, fails: Callable[[str], bool]) -> None:
    """Fail one sync of a matching file; what is recovered then must survive a power cut."""
    story = Story(disk, Random(seed), version)
    left = Random(seed).randint(1, 8)

    def before(op: str, path: str) -> None:
        nonlocal left
        if op == "datasync" and fails(path):
            left -= 1
            if left == 0:
                raise OSError(errno.EIO, "Input/output error", path)

    disk.before_op = before
    with suppress(OSError):
        story.tell()
    disk.before_op = None
    index, _ = kit.recover(disk, SETTINGS[version])
    story.check(index)
    first = kit.everything(index)
    disk.power_cut()
    assert kit.everything(kit.recover(disk, SETTINGS[version])[0]) == first


@pytest.mark.parametrize("version", [1, 2])
def test_after_a_sync_of_the_log_that_failed_nothing_that_is_found_is_lost(version: int) -> None:
    for seed in range(40):
        disk: Any = LoggedSimulation(kit.disk(seed), "/data")
        check_after_a_failed_sync(disk, seed, version, lambda path: "warrenmq.log" in path)


@pytest.mark.parametrize(("version", "file"), [(1, ".idx"), (1, "journal.jif"), (2, ".qi"), (2, ".qs")])
def test_a_sync_that_failed_is_not_made_good_by_reading_what_was_to_be_synced(
    version: int, file: str
) -> None:
    """After the error the bytes are still in the system's cache, but no later sync of that file writes them."""
    for seed in range(40):
        check_after_a_failed_sync(kit.disk(seed), seed, version, lambda path: path.endswith(file))


@pytest.mark.parametrize("version", [1, 2])
def test_recovering_twice_without_a_crash_between_gives_the_same(version: int) -> None:
    for seed in range(20):
        disk = kit.disk(seed)
        story = Story(disk, Random(seed), version)
        story.tell()
        disk.power_cut()
        index, _ = kit.recover(disk, SETTINGS[version])
        story.check(index)
        assert kit.everything(kit.recover(disk, SETTINGS[version])[0]) == kit.everything(index)


def test_an_ack_that_is_synced_during_a_flush_does_not_come_back() -> None:
    """The journal still has the publish, the segment file already; replaying publish and ack must not cancel out."""
    disk = kit.disk()
    index, _ = kit.recover(disk, SETTINGS[1])
    index.publish_many(0, [kit.stored_record(seq) for seq in range(8)], persistent=True)
    assert index.flush_step()  # segment 0 is written, the journal is whole
    index.ack([2])
    index.sync(Trigger.TIMER)
    index, _ = kit.recover(disk, SETTINGS[1])
    assert list(kit.everything(index)) == [0, 1, 3, 4, 5, 6, 7]
