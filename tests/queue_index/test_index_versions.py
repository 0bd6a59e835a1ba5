"""A directory of one version is opened with the other: nothing changes but the files, whenever the power fails."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.queue_index import index_kit as kit
from warrenmq.directory.recovery_terms import Terms
from warrenmq.queue_index import versions as index_versions
from warrenmq.testing import SimulatedDisk
from warrenmq.trace.events import Trigger

SETTINGS = {
    version: kit.settings(4, 20, version, classic_queue_store_v2_max_cache_size=500) for version in (1, 2)
}
RECORDS = {seq: kit.stored_record(seq) if seq % 4 == 2 else kit.embedded_record(seq) for seq in range(30)}
PERSISTENT = {seq for seq in RECORDS if seq % 7}
ACKED = {1, 4, 5, 6, 7, 13, 28}
LIVE = kit.messages({seq: RECORDS[seq] for seq in sorted(PERSISTENT - ACKED)})
BOTH = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture(autouse=True)
def _moves_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_versions, "MOVED_TOGETHER", 5)


def written(seed: int, version: int, *, clean: bool) -> tuple[SimulatedDisk, Terms | None]:
    """A queue with a history, closed or killed; in version 1 some of it is in the journal alone."""
    disk = kit.disk(seed)
    index, _ = kit.recover(disk, SETTINGS[version])
    for first in range(0, 30, 3):
        for seq in range(first, first + 3):
            index.publish_many(seq, [RECORDS[seq]], seq in PERSISTENT)
        if first == 15:
            index.begin_flush()
            while index.flush_step():
                pass
        index.ack(sorted(ACKED & {*range(first, first + 3)}))
        index.sync(Trigger.TIMER)
    return disk, index.terminate(next_seq_id=33, next_deliver_seq_id=3) if clean else None


def opened(disk: SimulatedDisk, version: int, terms: Terms | None) -> tuple[Any, Any]:
    index, found = kit.recover(disk, SETTINGS[version], terms)
    assert index_versions.files_of(disk.listdir(kit.DIRECTORY), 3 - version) == []
    return index, found


@BOTH
@pytest.mark.parametrize("clean", [True, False])
def test_order_ids_and_flags_are_kept(version: int, clean: bool) -> None:
    disk, terms = written(0, version, clean=clean)
    ids = kit.store_message_ids(disk, SETTINGS[version])
    assert ids == [RECORDS[seq][:16] for seq in LIVE if seq % 4 == 2]
    index, found = opened(disk, 3 - version, terms)
    assert found.damage == []
    assert kit.messages(kit.everything(index)) == LIVE
    assert all(persistent for _, _, persistent in index.read(0, 40))
    assert (found.count, found.low) == (len(LIVE), min(LIVE))
    assert found.next_seq_id == index.next_seq_id == (33 if clean else 32)
    assert kit.store_message_ids(disk, SETTINGS[version]) == ids
    disk.power_cut()
    index, _ = opened(disk, 3 - version, None)
    assert kit.messages(kit.everything(index)) == LIVE


@BOTH
def test_there_and_back_again_is_what_it_was(version: int) -> None:
    disk, terms = written(0, version, clean=True)
    for to in (3 - version, version):
        index, _ = opened(disk, to, terms)
        terms = index.terminate(next_seq_id=33, next_deliver_seq_id=3)
    index, found = opened(disk, version, terms)
    assert kit.messages(kit.everything(index)) == LIVE
    assert found.next_seq_id == 33


@BOTH
def test_a_converted_queue_goes_on(version: int) -> None:
    disk, terms = written(0, version, clean=True)
    index, found = opened(disk, 3 - version, terms)
    index.publish_many(33, [kit.embedded_record(33)], persistent=True)
    index.ack(sorted(LIVE)[::2])
    index.sync(Trigger.TIMER)
    disk.power_cut()
    index, found = opened(disk, version, None)
    expected = kit.messages({33: kit.embedded_record(33)}) | {seq: LIVE[seq] for seq in sorted(LIVE)[1::2]}
    assert kit.messages(kit.everything(index)) == expected
    assert found.next_seq_id == 36


@BOTH
@pytest.mark.parametrize("count", range(1, 40))
def test_the_last_message_of_a_converted_queue_survives_a_crash(version: int, count: int) -> None:
    """The journal of version 1 was begun anew between two moves with an ack of the last sequence id, whose publish came later."""
    disk = kit.disk()
    index, _ = kit.recover(disk, SETTINGS[version])
    index.publish_many(0, kit.records(count), persistent=True)
    terms = index.terminate(next_seq_id=count, next_deliver_seq_id=0)
    opened(disk, 3 - version, terms)
    disk.power_cut()
    index, found = opened(disk, 3 - version, None)
    assert [*kit.everything(index)] == [*range(count)]
    assert found.next_seq_id >= count


def test_a_message_found_damaged_when_it_is_moved_is_reported() -> None:
    """After a clean stop bodies are not read before."""
    disk, terms = written(0, 2, clean=True)
    whole = opened(written(0, 2, clean=True)[0], 1, terms)[1]
    bodies = bytearray(kit.read_file(disk, "5.qs") or b"")
    bodies[-1] ^= 1
    kit.put_file(disk, "5.qs", bytes(bodies))
    index, found = opened(disk, 1, terms)
    assert (found.count, found.dropped) == (len(LIVE) - 1, whole.dropped + 1)
    assert kit.messages(kit.everything(index)) == {seq: LIVE[seq] for seq in LIVE if seq != 23}
    assert index.take_lost() == []


def test_a_queue_that_is_in_its_journal_alone_is_seen() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, SETTINGS[1])
    index.publish_many(0, [RECORDS[0]], persistent=True)
    terms = index.terminate(next_seq_id=1, next_deliver_seq_id=0)
    assert disk.listdir(kit.DIRECTORY) == ["journal.jif"]
    index, found = opened(disk, 2, terms)
    assert (found.count, disk.listdir(kit.DIRECTORY)) == (1, ["0.qi", "0.qs"])


def operations_of(version: int, *, clean: bool) -> int:
    disk, terms = written(0, version, clean=clean)
    operations = 0

    def before(op: str, _path: str) -> None:
        nonlocal operations
        operations += op != "pread"

    disk.before_op = before
    opened(disk, 3 - version, terms)
    return operations


@BOTH
@pytest.mark.parametrize("power_cut", [True, False])
def test_the_power_may_fail_at_each_operation_of_a_conversion_and_again_when_it_goes_on_either_way(
    version: int, power_cut: bool
) -> None:
    for operation in range(1, operations_of(version, clean=True) + 1):
        rng = Random(operation)
        disk, terms = written(operation, version, clean=True)
        to = 3 - version
        for left in (operation, rng.randint(1, 60), rng.randint(1, 60)):
            with disk.power_fails_at(left, reads=False) as outage:
                kit.recover(disk, SETTINGS[to], terms)
            if power_cut and outage.came:
                disk.power_cut()
            terms = None
            to = rng.choice((1, 2))
        ids = kit.store_message_ids(disk, SETTINGS[to])
        assert ids == [RECORDS[seq][:16] for seq in LIVE if seq % 4 == 2]
        index, found = opened(disk, to, None)
        assert kit.messages(kit.read_all(index, found)) == LIVE
        assert (found.count, found.lost, index.take_lost()) == (len(LIVE), [], [])
        assert found.next_seq_id > max(LIVE)
        assert power_cut or found.damage == []
