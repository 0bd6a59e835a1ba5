from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.mend.ledger import Ledger, key
from warrenmq.storage.sim_disk import SimulatedDisk


def keys(*seqs: int) -> list[bytes]:
    return [key(seq, bytes(16)) for seq in seqs]


def opened(disk: SimulatedDisk) -> Ledger:
    disk.mkdir("/recovered")
    return Ledger(disk, "/recovered/Q.log")


def test_what_was_confirmed_is_moved_and_what_was_not_is_in_doubt() -> None:
    disk = SimulatedDisk(random.Random(0))
    ledger = opened(disk)
    ledger.moving(100, keys(1, 2))
    ledger.moving(102, keys(3))
    ledger.done(100)
    found = opened(disk)
    assert found.moved == set(keys(1, 2))
    assert found.doubtful == {key(3, bytes(16)): 102}


def test_a_doubt_that_was_settled_is_none() -> None:
    disk = SimulatedDisk(random.Random(0))
    ledger = opened(disk)
    ledger.moving(100, keys(1, 2))
    ledger = opened(disk)
    ledger.settle(keys(2))
    ledger.close()
    found = opened(disk)
    assert found.moved == set(keys(2))
    assert found.doubtful == {key(1, bytes(16)): 100}


def test_a_batch_that_is_published_again_takes_the_place_of_the_one_in_doubt() -> None:
    disk = SimulatedDisk(random.Random(0))
    ledger = opened(disk)
    ledger.moving(100, keys(1, 2))
    ledger = opened(disk)
    ledger.moving(100, keys(1))
    ledger.done(100)
    found = opened(disk)
    assert found.moved == set(keys(1))
    assert found.doubtful == {}


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_torn_end_is_forgotten_and_written_over(cut: int, mask: int) -> None:
    disk = SimulatedDisk(random.Random(0))
    ledger = opened(disk)
    ledger.moving(0, keys(1, 2))
    ledger.done(0)
    ledger.moving(2, keys(3, 4))
    whole = disk.read("/recovered/Q.log")
    torn = bytearray(whole[: min(cut, len(whole))])
    if torn:
        torn[-1] ^= mask
    disk.replace("/recovered/Q.log", bytes(torn))
    found = opened(disk)
    assert found.moved <= set(keys(1, 2))
    assert found.doubtful.keys() <= set(keys(1, 2, 3, 4))
    found.moving(9, keys(9))
    assert opened(disk).doubtful[key(9, bytes(16))] == 9


@given(st.integers(0, 50))
def test_a_power_cut_loses_no_batch_that_may_have_been_published(seed: int) -> None:
    disk = SimulatedDisk(random.Random(seed))
    ledger = opened(disk)
    for batch in range(5):
        ledger.moving(batch, keys(batch))
        if batch < 3:
            ledger.done(batch)
    disk.power_cut()
    found = opened(disk)
    assert found.moved | found.doubtful.keys() == set(keys(0, 1, 2, 3, 4))
