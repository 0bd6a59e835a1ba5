"""The note beside the commit log: older copies of the log, logs that are gone, rotten last records, and directories without a note."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from warrenmq.commit_log import note
from warrenmq.commit_log.contents import FILE_NAMES, contents_of, read
from warrenmq.commit_log.disk import open_logged, remove_log, replay
from warrenmq.testing import SimulatedDisk

ROOT = "/data"
FILE = f"{ROOT}/Q/0.qs"
LOGS = [f"{ROOT}/{name}" for name in FILE_NAMES]
NOTE = f"{ROOT}/{note.NAME}"


class Directory:
    """One file that is written to through the log, and the log as it was after each sync."""

    def __init__(self, draw: Random, log_id: int = 42) -> None:
        self.draw = draw
        self.log_id = log_id
        self.raw = SimulatedDisk(draw)
        self.raw.mkdir(f"{ROOT}/Q")
        self.moments: list[dict[str, bytes]] = []

    def live(self) -> None:
        """Open it and write; a kill follows, or the caller closes `disk`."""
        self.disk = open_logged(self.raw, ROOT, self.log_id)[0]
        file = self.disk.open(FILE, create=True)
        self.raw.sync_dir(f"{ROOT}/Q")
        for _ in range(self.draw.randrange(2, 30)):
            end = file.size()
            file.pwrite(self.draw.randbytes(self.draw.choice([9, 400, 90_000])), self.draw.randint(0, end))
            file.datasync()
            self.moments.append({path: self.raw.read(path) for path in LOGS})

    def put(self, files: Mapping[str, bytes | None]) -> None:
        for path, data in files.items():
            if data is None:
                self.raw.unlink(path)
            else:
                self.raw.replace(path, data)


def lived(seed: int) -> Directory:
    directory = Directory(Random(seed))
    for _ in range(directory.draw.randrange(1, 4)):
        directory.live()
        if directory.draw.random() < 0.3:
            directory.disk.close_log()
    directory.live()
    return directory


@pytest.mark.parametrize("seed", range(24))
def test_an_older_copy_of_the_log_is_told_and_writes_nothing_over_newer_bytes(seed):
    directory = lived(seed)
    directory.put(directory.draw.choice(directory.moments[:-2]))
    there = directory.raw.read(FILE)
    found = replay(directory.raw, ROOT)
    assert "an older copy" in found.damage[0]
    assert directory.raw.read(FILE) == there
    kept = [path for path in directory.raw.paths() if path.startswith(f"{ROOT}/quarantine/")]
    assert len(kept) == 2
    # the next start goes on behind the newest record that was ever written
    directory.live()
    assert not read(directory.raw, ROOT).damage


@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_is_gone_is_told_and_so_is_that_of_another_directory(seed):
    directory = lived(seed)
    directory.put(dict.fromkeys(LOGS))
    assert "is gone" in read(directory.raw, ROOT).damage[0]
    other = Directory(Random(seed), log_id=43)
    other.live()
    directory.put(other.moments[-1])
    there = directory.raw.read(FILE)
    assert "of another directory" in replay(directory.raw, ROOT).damage[0]
    assert directory.raw.read(FILE) == there


@pytest.mark.parametrize("seed", range(8))
def test_after_a_clean_stop_an_older_log_and_one_that_is_gone_change_nothing(seed):
    directory = lived(seed)
    directory.disk.close_log()
    for logs in (directory.draw.choice(directory.moments[:-2]), dict.fromkeys(LOGS)):
        directory.put(logs)
        there = directory.raw.read(FILE)
        assert not replay(directory.raw, ROOT).damage
        assert directory.raw.read(FILE) == there


@pytest.mark.parametrize("seed", range(8))
def test_a_flip_in_the_last_record_is_told_and_the_others_are_replayed(seed):
    directory = lived(seed)
    found = read(directory.raw, ROOT)
    directory.raw.flip_bit(LOGS[found.file], found.end - 512 + directory.draw.randrange(40), 3)
    again = read(directory.raw, ROOT)
    assert f"record {found.newest} of the commit log, its last one" in again.damage[-1]
    assert again.newest == found.newest
    assert again.writes or len(found.writes.get("Q/0.qs", ())) < 2


def test_a_note_that_rotted_says_nothing():
    raw = lived(3).raw
    logs, noted = [raw.read(path) for path in LOGS], raw.read(NOTE)
    for bit in range(8 * len(noted)):
        rotten = bytearray(noted)
        rotten[bit // 8] ^= 1 << bit % 8
        assert contents_of(logs, bytes(rotten)) == contents_of(logs)


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_beside_a_record_and_its_note_is_no_damage(seed):
    raw = SimulatedDisk(Random(seed))
    raw.mkdir(f"{ROOT}/Q")
    disk = open_logged(raw, ROOT, 42)[0]
    with raw.power_fails_at(20 + seed % 8, reads=False):
        file = disk.open(FILE, create=True)
        raw.sync_dir(f"{ROOT}/Q")
        while True:
            file.append(b"x")
            file.datasync()
    raw.power_cut()
    assert not read(raw, ROOT).damage


@pytest.mark.parametrize("noted", [None, b"", b"WQln", bytes(28), b"no note at all, but of some length"])
def test_without_a_note_as_in_earlier_versions_any_log_is_replayed(noted):
    directory = lived(1)
    directory.put({**directory.moments[-3], NOTE: noted})
    assert not read(directory.raw, ROOT).damage
    assert read(directory.raw, ROOT).newest > 1


@pytest.mark.parametrize("seed", range(4))
def test_the_power_is_cut_while_a_log_is_removed_and_nothing_is_missed(seed):
    operation = 1
    while True:
        directory = lived(seed)
        with directory.raw.power_fails_at(operation) as outage:
            remove_log(directory.raw, ROOT)
        if not outage.came:
            break
        directory.raw.power_cut()
        assert not read(directory.raw, ROOT).damage
        found = remove_log(directory.raw, ROOT)
        assert found is None or not found.damage
        operation += 1
    assert directory.raw.listdir(ROOT) == ["Q"]


def test_a_note_that_cannot_be_written_stops_nothing():
    directory = lived(2)
    directory.raw.fail_next("pwrite", note.NAME, 28)
    directory.live()
    assert not read(directory.raw, ROOT).damage


def test_a_log_file_is_used_again_only_when_the_newest_record_says_that_it_is_not_needed():
    """Even if no record of it names a file any more: the first record that is written over it may be torn."""
    directory = Directory(Random(0))
    disk = open_logged(directory.raw, ROOT, 42)[0]
    disk.log._size = 4096
    directory.raw.mkdir(f"{ROOT}/Q")
    files = [disk.open(f"{ROOT}/Q/{number}.qi", create=True) for number in range(3)]
    directory.raw.sync_dir(f"{ROOT}/Q")
    for _ in range(400):
        file = directory.draw.choice(files)
        if directory.draw.random() < 0.4:
            file.truncate(0)
        file.append(b"x")
        file.datasync()
        logs = [directory.raw.read(path) for path in LOGS]
        found = contents_of(logs)
        last = logs[found.file]
        logs[found.file] = last[: found.end - 512] + b"t" * 512 + last[found.end :]
        assert not contents_of(logs).damage


@pytest.mark.parametrize("seed", range(8))
def test_what_a_writer_that_is_gone_wrote_after_a_sync_of_many_files_is_synced_by_its_successor(seed):
    raw = Directory(Random(seed)).raw
    disk = open_logged(raw, ROOT, 42)[0]
    first = disk.open(FILE, create=True)
    raw.sync_dir(f"{ROOT}/Q")
    first.append(b"synced")
    disk.sync_many([FILE])
    first.append(b" by nobody")
    second = disk.open(FILE)
    second.append(b" yet")
    second.datasync()
    raw.power_cut()
    replay(raw, ROOT)
    assert raw.read(FILE) == b"synced by nobody yet"
