"""Both disks keep the promises of seams/disk.py."""

from __future__ import annotations

import errno
import os
import posixpath
import random
import stat
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warrenmq
from warrenmq.errors import CallerError, Fenced
from warrenmq.runtime import Fence
from warrenmq.seams import real_disk
from warrenmq.seams.disk import Disk
from warrenmq.seams.disk_errors import FileDeleted, SyncFailed, is_full, lack_of
from warrenmq.seams.fenced_disk import FencedDisk
from warrenmq.seams.real_disk import RealDisk
from warrenmq.testing import PowerCut, SimulatedDisk, SimulatedMachine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["real", "os", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    if request.param == "simulated":
        return SimulatedDisk(random.Random(1))
    return RealDisk("os" if request.param == "os" else "fsync")


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> str:
    path = f"{tmp_path}/a/b"
    disk.mkdir(path)
    return path


def test_appended_and_overwritten_bytes_are_read_back(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/f", create=True)
    file.append(b"hello ")
    file.append(b"world")
    file.pwrite(b"J", 0)
    assert file.size() == 11
    assert file.pread(100, 0) == b"Jello world"
    assert file.pread(3, 8) == b"rld"
    assert file.pread(3, 11) == b""
    file.truncate(4)
    file.append(b"y")
    file.datasync()
    file.close()
    assert disk.read(f"{folder}/f") == b"Jelly"
    assert disk.size(f"{folder}/f") == 5


def test_an_opened_file_is_appended_to_at_its_end(disk: Disk, folder: str) -> None:
    disk.replace(f"{folder}/f", b"one")
    file = disk.open(f"{folder}/f")
    file.append(b"two")
    file.close()
    assert disk.read(f"{folder}/f") == b"onetwo"


def test_truncate_extends_with_zeros(disk: Disk, folder: str) -> None:
    disk.replace(f"{folder}/f", b"x")
    file = disk.open(f"{folder}/f")
    file.truncate(3)
    file.append(b"y")
    file.close()
    assert disk.read(f"{folder}/f") == b"x\0\0y"


def test_names(disk: Disk, folder: str) -> None:
    assert disk.listdir(f"{folder}/none") == []
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/f")
    with pytest.raises(FileNotFoundError):
        disk.open_read(f"{folder}/f")
    disk.replace(f"{folder}/f", b"f")
    disk.replace(f"{folder}/g", b"g")
    disk.mkdir(f"{folder}/d/e")
    assert disk.listdir(folder) == ["d", "f", "g"]
    assert disk.is_dir(f"{folder}/d")
    assert disk.exists(f"{folder}/g")
    disk.rename(f"{folder}/g", f"{folder}/f")
    disk.sync_dir(folder)
    assert disk.read(f"{folder}/f") == b"g"
    assert not disk.exists(f"{folder}/g")
    disk.unlink(f"{folder}/f")
    disk.unlink(f"{folder}/f")
    disk.rmtree(f"{folder}/d")
    disk.rmtree(f"{folder}/d")
    assert disk.listdir(folder) == []
    assert disk.free_space(folder) > 0


def test_an_open_file_is_read_after_its_name_is_gone(disk: Disk, folder: str) -> None:
    disk.replace(f"{folder}/f", b"old")
    reader = disk.open_read(f"{folder}/f")
    disk.replace(f"{folder}/f", b"new")
    assert reader.pread(3, 0) == b"old"
    reader.close()


def test_a_file_that_has_lost_its_name_cannot_be_synced(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/f", create=True)
    file.append(b"one")
    disk.rename(f"{folder}/f", f"{folder}/g")
    file.datasync()
    file.check_name()
    disk.unlink(f"{folder}/g")
    file.append(b"two")
    for sync in (file.datasync, file.check_name, lambda: disk.sync_files([file])):
        with pytest.raises(FileDeleted, match=r"deleted while the broker had it open.*/f'") as refused:
            sync()
        assert not is_full(refused.value)
        assert lack_of(refused.value) is None
    disk.replace(f"{folder}/g", b"another")
    with pytest.raises(FileDeleted):
        file.datasync()
    other = disk.open(f"{folder}/g")
    disk.replace(f"{folder}/g", b"renamed over it")
    with pytest.raises(FileDeleted):
        other.datasync()
    for each in (file, other):
        each.close()


@pytest.mark.parametrize("statx", [True, False])
def test_the_names_of_an_open_file_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statx: bool
) -> None:
    if not statx:
        monkeypatch.setattr(real_disk, "_statx", lambda *_: -1)
    path = f"{tmp_path}/f"
    file = RealDisk("fsync").open(path, create=True)
    file.check_name()
    os.link(path, f"{path}2")
    file.check_name()
    os.unlink(path)
    file.check_name()
    os.unlink(f"{path}2")
    with pytest.raises(FileDeleted):
        file.check_name()
    file.close()


def test_a_file_system_that_counts_no_links_has_files_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk("fsync")
    file = disk.open(f"{tmp_path}/f", create=True)
    monkeypatch.setattr(real_disk, "_statx", lambda *_: 0)  # 0 names, as it leaves the zeros that are there
    file.append(b"one")
    file.datasync()
    os.unlink(f"{tmp_path}/f")
    with pytest.raises(FileDeleted):
        file.datasync()
    file.close()


def test_a_cut_fence_refuses_every_change_and_allows_reading(disk: Disk, folder: str) -> None:
    fence = Fence()
    fenced = FencedDisk(disk, fence)
    file = fenced.open(f"{folder}/f", create=True)
    file.append(b"x")
    fence.cut_off()
    for change in (
        lambda: file.append(b"y"),
        lambda: file.pwrite(b"y", 0),
        lambda: file.truncate(0),
        file.datasync,
        lambda: fenced.open(f"{folder}/g", create=True),
        lambda: fenced.mkdir(f"{folder}/d"),
        lambda: fenced.replace(f"{folder}/f", b""),
        lambda: fenced.unlink(f"{folder}/f"),
        lambda: fenced.rename(f"{folder}/f", f"{folder}/g"),
        lambda: fenced.rmtree(folder),
        lambda: FencedDisk(fenced, fence).unlink(f"{folder}/f"),
    ):
        with pytest.raises(Fenced):
            change()
    assert file.pread(10, 0) == b"x"
    file.close()
    assert disk.listdir(folder) == ["f"]


# the real disk


def test_a_failed_append_leaves_the_file_at_its_old_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes one byte a call, then the disk is full."""
    file = RealDisk().open(f"{tmp_path}/f", create=True)
    file.append(b"good")
    import os

    pwrite, left = os.pwrite, [3]

    def short(fd: int, data: bytes, offset: int) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "full")
        left[0] -= 1
        return pwrite(fd, data[:1], offset)

    monkeypatch.setattr("os.pwrite", short)
    file.append(b"abc")
    left[0] = 2
    with pytest.raises(OSError, match=f"full: '{file.path}'"):
        file.append(b"xyz")
    assert file.pread(100, 0) == b"goodabc"
    assert file.size() == 7
    file.close()


# the simulated disk


def outcomes(build: object, path: str, seeds: int = 200) -> set[bytes | None]:
    """The contents that `path` may have after a power cut, over many seeds; None = no such file."""
    found: set[bytes | None] = set()
    for seed in range(seeds):
        disk = SimulatedDisk(random.Random(seed))
        disk.mkdir("/d")
        build(disk)  # type: ignore[operator]
        disk.power_cut()
        assert disk.listdir(posixpath.dirname(path)).count(posixpath.basename(path)) == disk.exists(path)
        found.add(disk.read(path) if disk.exists(path) else None)
    return found


def test_a_power_cut_keeps_a_prefix_of_unsynced_writes_tears_the_next_or_leaves_zeros() -> None:
    def build(disk: SimulatedDisk) -> None:
        file = disk.open("/d/f", create=True)
        file.append(b"S")
        file.datasync()
        disk.sync_dir("/d")
        file.append(b"ab")
        file.append(b"c")

    assert outcomes(build, "/d/f") == {b"S", b"Sa", b"Sab", b"Sabc", b"S\0\0", b"Sab\0"}


def test_the_zeros_that_a_power_cut_leaves_begin_where_a_write_or_a_sector_does() -> None:
    def build(disk: SimulatedDisk) -> None:
        file = disk.open("/d/f", create=True)
        file.append(b"S" * 500)
        file.datasync()
        disk.sync_dir("/d")
        file.append(b"x" * 40)

    zeros_from = {
        len(found.rstrip(b"\0")) for found in outcomes(build, "/d/f") if found and found.endswith(b"\0")
    }
    assert zeros_from == {500, 512}


def test_folder_entries_survive_a_power_cut_only_when_synced() -> None:
    def create(disk: SimulatedDisk) -> None:
        file = disk.open("/d/f", create=True)
        file.append(b"S")
        file.datasync()

    def replace(disk: SimulatedDisk) -> None:
        create(disk)
        disk.sync_dir("/d")
        new = disk.open("/d/g", create=True)
        new.append(b"T")
        new.datasync()
        disk.rename("/d/g", "/d/f")

    def unlink(disk: SimulatedDisk) -> None:
        create(disk)
        disk.sync_dir("/d")
        disk.unlink("/d/f")

    assert outcomes(create, "/d/f") == {b"S", None}
    assert outcomes(replace, "/d/f") == {b"S", b"T"}
    assert outcomes(replace, "/d/g") == {b"T", None}
    assert outcomes(unlink, "/d/f") == {b"S", None}
    assert outcomes(lambda disk: (replace(disk), disk.sync_dir("/d")), "/d/f") == {b"T"}
    assert outcomes(lambda disk: (unlink(disk), disk.sync_dir("/d")), "/d/f") == {None}
    assert outcomes(lambda disk: (create(disk), disk.replace("/d/f", b"U")), "/d/f") == {b"U"}


def test_a_removed_tree_comes_back_in_part_until_its_parent_is_synced() -> None:
    def build(disk: SimulatedDisk) -> None:
        disk.mkdir("/d/e")
        disk.replace("/d/e/f", b"f")
        disk.rmtree("/d/e")

    assert outcomes(build, "/d/e/f") == {b"f", None}
    assert outcomes(lambda disk: (build(disk), disk.sync_dir("/d")), "/d/e/f") == {None}
    assert outcomes(lambda disk: (build(disk), disk.mkdir("/d/e")), "/d/e/f") == {None}


@pytest.mark.parametrize(("synced", "found"), [("/d", {b"x", None}), ("/d/a", {None})])
def test_a_removed_tree_is_gone_for_good_with_its_name_alone(synced: str, found: set[bytes | None]) -> None:
    def build(disk: SimulatedDisk) -> None:
        disk.mkdir("/d/a/b")
        disk.replace("/d/a/b/f", b"x")
        disk.rmtree("/d/a/b")
        disk.sync_dir(synced)

    assert outcomes(build, "/d/a/b/f") == found


def test_bytes_of_a_failed_datasync_are_not_saved_by_a_later_one() -> None:
    seen: set[bytes] = set()

    def build(disk: SimulatedDisk) -> None:
        disk.replace("/d/f", b"S")
        file = disk.open("/d/f")
        file.append(b"ab")
        disk.fail_next("datasync", "/f", errno.EIO)
        with pytest.raises(OSError, match="/d/f"):
            file.datasync()
        seen.add(file.pread(9, 0))
        file.append(b"c")
        file.datasync()

    assert outcomes(build, "/d/f") == {b"S\0\0c", b"Sabc"}
    assert seen == {b"S\0\0", b"Sab"}, "for a while, readers see what is lost"


def test_a_full_disk_refuses_what_does_not_fit_and_gets_space_back() -> None:
    disk = SimulatedDisk(random.Random(0))
    disk.mkdir("/d")
    disk.free_bytes = 5
    file = disk.open("/d/f", create=True)
    file.append(b"1234")
    with pytest.raises(OSError, match="No space left"):
        file.append(b"56")
    assert file.size() == 4
    file.truncate(1)
    file.append(b"5678")
    assert disk.free_space("/d") == 0
    disk.unlink("/d/f")
    assert disk.free_space("/d") == 5


def test_the_power_can_be_cut_before_any_operation() -> None:
    disk = SimulatedDisk(random.Random(0))
    disk.mkdir("/d")
    seen = []

    def before_op(op: str, path: str) -> None:
        seen.append((op, path))
        if op == "datasync":
            raise PowerCut

    disk.before_op = before_op
    file = disk.open("/d/f", create=True)
    file.append(b"x")
    with pytest.raises(PowerCut):
        file.datasync()
    assert seen == [("create", "/d/f"), ("append", "/d/f"), ("datasync", "/d/f")]


NAMES = ("f", "g", "d/h")
STEPS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(NAMES)),
    st.tuples(st.just("open"), st.sampled_from(NAMES)),
    st.tuples(st.just("append"), st.binary(max_size=600)),
    st.tuples(st.just("pwrite"), st.binary(max_size=40), st.integers(0, 900)),
    st.tuples(st.just("pread"), st.integers(0, 900), st.integers(0, 900)),
    st.tuples(st.just("truncate"), st.integers(0, 900)),
    st.tuples(st.just("size")),
    st.tuples(st.just("datasync")),
    st.tuples(st.just("replace"), st.sampled_from(NAMES), st.binary(max_size=30)),
    st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.just("unlink"), st.sampled_from(NAMES)),
    st.tuples(st.just("mkdir"), st.just("d")),
    st.tuples(st.just("rmtree"), st.just("d")),
    st.tuples(st.just("sync_dir"), st.sampled_from(("", "d"))),
    st.tuples(st.sampled_from(("exists", "is_dir", "listdir", "read")), st.sampled_from((*NAMES, "d"))),
    st.tuples(st.just("size_of"), st.sampled_from(NAMES)),
)  # fmt: skip
"""Operations on a folder, and on the file that was opened last."""


class Driven:
    """A disk that is given the same steps as another one."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk, self.root = disk, root
        disk.mkdir(root)
        self.file = disk.open(f"{root}/f", create=True)

    def answer(self, what: str, *arguments: object) -> object:
        """The result of the step, or the error that it raised."""
        try:
            return self._take(what, *arguments)
        except OSError as error:
            return error.errno

    def _take(self, what: str, *arguments: object) -> object:
        if what in {"append", "pwrite", "pread", "truncate", "size", "datasync"}:
            return getattr(self.file, what)(*arguments)
        path, *rest = arguments
        path = f"{self.root}/{path}"
        if what in {"create", "open"}:
            file = self.disk.open(path, create=what == "create")
            self.file.close()
            self.file = file
            return file.size()
        if what == "rename":
            return self.disk.rename(path, f"{self.root}/{rest[0]}")
        return getattr(self.disk, {"size_of": "size"}.get(what, what))(path, *rest)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_the_simulated_disk_answers_as_the_operating_system_does(steps: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        real = Driven(RealDisk(), f"{folder}/data")
        simulated = Driven(SimulatedDisk(random.Random(1)), f"{folder}/data")
        for step in steps:
            assert simulated.answer(*step) == real.answer(*step), step
        real.file.close()


def test_a_folder_whose_entry_could_not_be_synced_is_made_anew(tmp_path, monkeypatch):
    disk = RealDisk()
    synced = []

    def sync_dir(path):
        if not synced:
            synced.append(path)
            raise OSError(errno.EMFILE, "Too many open files")
        synced.append(path)

    monkeypatch.setattr(disk, "sync_dir", sync_dir)
    with pytest.raises(OSError, match="Too many open files"):
        disk.mkdir(f"{tmp_path}/d/e")
    disk.mkdir(f"{tmp_path}/d/e")
    assert synced[1:] == [f"{tmp_path}", f"{tmp_path}/d"]


def test_a_sync_that_fails_names_its_file_and_is_no_full_disk(tmp_path, monkeypatch):
    def fail(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    disk = RealDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    monkeypatch.setattr(real_disk, "_datasync", fail)
    monkeypatch.setattr(real_disk.os, "fsync", fail)
    for sync in (file.datasync, lambda: disk.sync_files([file]), lambda: disk.sync_many([file.path])):
        with pytest.raises(SyncFailed, match=r"No space left on device: '.*/f'") as failed:
            sync()
        assert not is_full(failed.value)


def test_a_folder_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    def refuse(name, *, dir_fd=None):
        raise PermissionError(errno.EACCES, "Permission denied", name)

    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").touch()
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path}/d'"):
        RealDisk().rmtree(f"{tmp_path}/d")


def test_a_file_system_without_a_sync_of_folders_is_used_all_the_same(tmp_path, monkeypatch):
    fsync = os.fsync

    def without_folders(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", without_folders)
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("q").publish(b"1").result()
    with warrenmq.open(tmp_path / "data") as broker:
        assert broker.queue("q").get().body == b"1"


def test_an_operation_that_no_disk_has_cannot_fail():
    disk = SimulatedDisk(random.Random(1))
    with pytest.raises(CallerError, match="'fsync' is no operation of a disk; there are create, append,"):
        disk.fail_next("fsync", "/f", errno.EIO)


def test_what_is_true_at_last_was_waited_for():
    machine = SimulatedMachine()
    machine.wait_until(lambda: True, 0)
    with pytest.raises(AssertionError, match="did not become true in 1 s"):
        machine.wait_until(lambda: False, 1)
