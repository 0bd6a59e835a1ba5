"""Bytes that the disk does not give: what is around them is read, and they make no sense to anybody; a disk that is gone is an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.message.stored import problem_of
from warrenmq.seams.disk import SECTOR
from warrenmq.seams.disk_errors import ReadFailed
from warrenmq.seams.real_disk import RealDisk
from warrenmq.seams.salvage import UNREADABLE, Salvage
from warrenmq.testing import SimulatedDisk

SECTORS = 20


def disk_with(data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    disk.salvage = Salvage(disk, "/data/quarantine", lambda *_: None)
    disk.mkdir("/data")
    disk.replace("/data/f", data)
    return disk


@given(
    st.sets(st.integers(0, SECTORS - 1)),
    st.integers(0, SECTORS * SECTOR),
    st.integers(0, SECTORS * SECTOR + 100),
)
def test_only_the_sectors_that_are_bad_are_filled_in(bad: set[int], offset: int, size: int) -> None:
    data = Random(len(bad)).randbytes(SECTORS * SECTOR - 7)
    disk = disk_with(data)
    for sector in bad:
        disk.break_sector("/data/f", sector * SECTOR)
    want = bytearray(data)
    for sector in bad:
        want[sector * SECTOR : (sector + 1) * SECTOR] = (UNREADABLE * SECTOR)[:SECTOR]
    assert disk.open("/data/f").pread(size, offset) == want[: len(data)][offset : offset + size]


def test_a_disk_that_takes_no_writes_either_is_gone_and_nothing_is_given_up() -> None:
    disk = disk_with(b"x" * 1000)
    disk.break_sector("/data/f", 0)
    disk.fail_next("datasync", "unreadable.tmp", errno.EIO)
    with pytest.raises(ReadFailed, match="Input/output error: '/data/f'"):
        disk.read("/data/f")
    disk.reads_fail = True
    with pytest.raises(ReadFailed, match="Input/output error: '/data/f'"):
        disk.read("/data/f")


def test_a_place_that_can_be_read_again_was_never_damaged() -> None:
    disk = disk_with(b"x" * 1000)
    disk.fail_next("pread", "/f", errno.EIO)
    disk.fail_next("pread", "/f", errno.EIO)
    assert disk.read("/data/f") == b"x" * 1000
    assert not disk.exists("/data/quarantine")


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE])
def test_other_errors_are_no_fault_of_a_place(code: int) -> None:
    disk = disk_with(b"x" * 1000)
    disk.fail_next("pread", "/f", code)
    with pytest.raises(ReadFailed, match="'/data/f'"):
        disk.read("/data/f")


def test_a_message_without_a_checksum_is_damaged_if_a_part_of_it_was_filled_in() -> None:
    term = bytes([131, 104]) + b"a" * 100
    assert problem_of(term, 0) is None
    assert problem_of(term + UNREADABLE + b"b", 0) == "a part of it could not be read"


def test_a_real_file_gives_what_is_around_a_bad_sector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux does: a read ends in front of the bad place, and one that begins there fails."""
    data = Random(2).randbytes(10 * SECTOR)
    (tmp_path / "f").write_bytes(data)
    pread, bad = os.pread, range(3 * SECTOR, 4 * SECTOR)

    def failing(fd: int, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") != str(tmp_path / "f") or offset >= bad.stop:
            return pread(fd, size, offset)
        if offset in bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, min(size, bad.start - offset), offset)

    disk = RealDisk()
    slept: list[float] = []
    monkeypatch.setattr(disk, "pause", slept.append)
    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(ReadFailed, match=r"Input/output error: '.*/f'"):
        disk.read(str(tmp_path / "f"))
    told: list[tuple[str, int, int]] = []
    disk.salvage = Salvage(disk, str(tmp_path / "quarantine"), lambda *what: told.append(what[:3]))
    want = data[: bad.start] + UNREADABLE * (SECTOR // len(UNREADABLE)) + data[bad.stop :]
    for _ in range(2):
        assert disk.read(str(tmp_path / "f")) == want
    assert told == [(str(tmp_path / "f"), bad.start, SECTOR)]
    assert slept == [0.0, 0.1, 1.0], "it is not waited for again"
