from __future__ import annotations

from random import Random
from zlib import crc32

import msgpack
import pytest

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.recovery_terms import FILE_NAME, Terms, discard_terms, paths_to_sync, save_terms
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedDisk
from warrenmq.vhost.last_stops import LastStops

PATH = f"/q/{FILE_NAME}"


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk(Random(0))
    made.mkdir("/q")
    return made


def taken(disk: SimulatedDisk) -> Terms | None:
    """The terms that a start takes."""
    return LastStops(disk, Settings(), "/quarantine", DamageLog()).take("/q").terms


def test_terms_that_were_saved_can_be_taken_once(disk: SimulatedDisk) -> None:
    save_terms(disk, "/q", Terms(10, 7))
    disk.sync_many(paths_to_sync(disk, ["/q"]))
    disk.power_cut()
    assert taken(disk) == Terms(10, 7)
    disk.power_cut()
    assert taken(disk) is None


def test_a_queue_that_was_never_stopped_cleanly_has_no_terms(disk: SimulatedDisk) -> None:
    assert taken(disk) is None
    discard_terms(disk, "/q")


def test_discarded_terms_are_gone(disk: SimulatedDisk) -> None:
    save_terms(disk, "/q", Terms(10, 7))
    discard_terms(disk, "/q")
    assert taken(disk) is None


@pytest.mark.parametrize("position", range(11))
def test_damaged_terms_are_none(disk: SimulatedDisk, position: int) -> None:
    save_terms(disk, "/q", Terms(1_000, 7))
    data = bytearray(disk.read(PATH))
    assert len(data) == 10
    if position < len(data):
        data[position] ^= 1
    else:
        data.append(0)
    disk.replace(PATH, bytes(data))
    assert taken(disk) is None
    assert not disk.exists(PATH)


@pytest.mark.parametrize("size", range(10))
def test_terms_that_were_cut_short_or_zeroed_are_none(disk: SimulatedDisk, size: int) -> None:
    save_terms(disk, "/q", Terms(1_000, 7))
    for left in (disk.read(PATH)[:size], bytes(size)):
        disk.replace(PATH, left)
        assert taken(disk) is None


@pytest.mark.parametrize("value", [[2, 1, 1], [1, 1], {"a": 1}, None])
def test_terms_of_another_version_are_none(disk: SimulatedDisk, value: object) -> None:
    save_terms(disk, "/q", Terms(1, 1))
    data = msgpack.packb(value)
    disk.replace(PATH, crc32(data).to_bytes(4, "big") + data)
    assert taken(disk) is None
