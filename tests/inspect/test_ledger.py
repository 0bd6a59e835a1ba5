from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.mend.ledger import Doubt, Ledger, hold, key
from warrenmq.seams.real_disk import RealDisk
from warrenmq.testing import SimulatedDisk

PRINT = b"f" * 16


def keys(*seqs: int) -> list[bytes]:
    return [key(seq, bytes(16)) for seq in seqs]


def opened(disk: SimulatedDisk) -> Ledger:
    disk.mkdir("/recovered")
    return Ledger(disk, "/recovered/Q.log")


def moving(ledger: Ledger, first: int, *seqs: int) -> None:
    ledger.moving(first, keys(*seqs), [PRINT] * len(seqs))


def test_confirmed_messages_are_moved_and_others_are_in_doubt() -> None:
    disk = SimulatedDisk(random.Random(0))
    ledger = opened(disk)
    moving(ledger, 100, 1, 2)
    moving(ledger, 102, 3)
    ledger.done(100)
    found = opened(disk)
    assert found.moved == set(keys(1, 2))
    assert found.doubtful == {key(3, bytes(16)): Doubt(102, PRINT)}


def test_doubts_that_were_settled_are_none() -> None:
    disk = SimulatedDisk(random.Random(0))
    moving(opened(disk), 100, 1, 2)
    ledger = opened(disk)
    ledger.resolve(keys(1))
    for found in (ledger, opened(disk)):
        assert found.moved == set(keys(1))
        assert found.doubtful == {}


def test_a_sequence_id_that_is_used_again_confirms_only_the_last_batch() -> None:
    disk = SimulatedDisk(random.Random(0))
    ledger = opened(disk)
    moving(ledger, 100, 1, 2)
    ledger.resolve([])
    moving(ledger, 100, 1)
    ledger.done(100)
    found = opened(disk)
    assert found.moved == set(keys(1))
    assert found.doubtful == {}


@given(st.integers(0, 600), st.integers(0, 255))
def test_a_torn_end_is_forgotten_and_written_over(cut: int, mask: int) -> None:
    disk = SimulatedDisk(random.Random(0))
    ledger = opened(disk)
    moving(ledger, 0, 1, 2)
    ledger.done(0)
    moving(ledger, 2, 3, 4)
    torn = bytearray(disk.read("/recovered/Q.log")[:cut])
    if torn:
        torn[-1] ^= mask
    disk.replace("/recovered/Q.log", bytes(torn))
    found = opened(disk)
    assert found.moved <= set(keys(1, 2))
    assert found.doubtful.keys() <= set(keys(1, 2, 3, 4))
    moving(found, 9, 9)
    assert opened(disk).doubtful[key(9, bytes(16))] == Doubt(9, PRINT)


def test_the_names_that_a_killed_run_left_are_safe_before_a_batch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed between making a folder and the sync: a power cut would take all ledgers, and the next run move all again."""
    folder = tmp_path / "made" / "recovered" / "V"
    folder.mkdir(parents=True)
    synced: list[str] = []
    monkeypatch.setattr(RealDisk, "sync_dir", lambda _, path: synced.append(path))
    hold(str(folder.parent)).release()
    Ledger(RealDisk("os"), str(folder / "Q.log"))
    assert {*synced} >= {str(each) for each in (folder, *folder.parents)}


@given(st.integers(0, 50))
def test_a_power_cut_loses_no_batch_that_may_have_been_published(seed: int) -> None:
    disk = SimulatedDisk(random.Random(seed))
    ledger = opened(disk)
    for batch in range(5):
        moving(ledger, batch, batch)
        if batch < 3:
            ledger.done(batch)
    disk.power_cut()
    found = opened(disk)
    assert found.moved | found.doubtful.keys() == set(keys(0, 1, 2, 3, 4))
