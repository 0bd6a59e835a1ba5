from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support import golden
from tests.support.source_tree import ROOT
from warrenmq.directory import owner_lock
from warrenmq.directory.layout import (
    DataDirectory,
    VhostDirectory,
    queue_folder,
    queue_folder_of_3_6,
    read_segment_entry_count,
    vhost_folder,
)
from warrenmq.errors import DirectoryInUse
from warrenmq.seams.real_disk import RealDisk
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedDisk

SETTINGS = Settings()
VHOST = "/data/msg_stores/vhosts/628WB79CIFDYO9LJI6DKMI09L"


def folder(vhost: VhostDirectory, queue: str) -> str:
    return vhost.folders(queue, None)[0]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(0))


def test_folders_are_named_as_rabbitmq_names_them() -> None:
    assert vhost_folder("/") == "628WB79CIFDYO9LJI6DKMI09L"
    assert queue_folder("/", "test") == "2SVZ97PJQCBIFINCC1KIO7L5D"
    assert queue_folder("/", "iuv1gk-torn") == "55E8NZ31FK237IV2Y4OM9GL5D"
    assert queue_folder("/", "yplj4c-kill-journal") == "5HORPMYWIUVQM2LD0KCTW9FP"  # a leading zero is dropped


def test_folders_of_priorities_and_of_3_6_have_their_own_hashes() -> None:
    assert queue_folder_of_3_6("/", "test") == "EQPHTZTF4T591MHYF1FQ77D2L"
    queues = [queue for case in golden.CASES for queue in golden.manifest(case)["queues"]]
    folders = [(queue, each) for queue in queues for each in queue["dirs"]]
    assert [each["priority"] for _, each in folders if each["priority"] is not None]
    for queue, each in folders:
        vhost, hashed = each["dir"].split("/")[2], each["dir"].split("/")[4]
        assert vhost == vhost_folder(queue["vhost"])
        assert hashed == queue_folder(queue["vhost"], queue["name"], each["priority"])


def test_a_queue_folder_says_whose_it_is_and_which_version_its_index_has(disk: SimulatedDisk) -> None:
    for version, index in ((1, b""), (2, b"INDEX: v2\n"), (1, b"")):
        directory = DataDirectory.open(disk, "/data", Settings(queue_version=version))
        directory.next_boot()
        vhost = directory.vhost("/")
        vhost.make_queue(disk, "test", None, vhost.settings.queue_version)
        assert disk.read(f"{folder(vhost, 'test')}/.queue_name") == b"VHOST: /\nQUEUE: test\n" + index


def test_a_vhost_folder_says_whose_it_is_and_how_long_its_segments_are(disk: SimulatedDisk) -> None:
    vhost = DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
    assert vhost.path == VHOST
    assert vhost.definitions == f"{VHOST}/definitions.log"
    assert vhost.store("msg_store_persistent") == f"{VHOST}/msg_store_persistent"
    assert folder(vhost, "test") == f"{VHOST}/queues/2SVZ97PJQCBIFINCC1KIO7L5D"
    assert vhost.quarantine == "/data/quarantine/628WB79CIFDYO9LJI6DKMI09L"
    disk.power_cut()
    assert disk.listdir(VHOST) == [".config", ".vhost", "queues"]
    assert disk.read(f"{VHOST}/.vhost") == b"/"
    assert disk.read(f"{VHOST}/.config") == (
        b"%% This file is auto-generated! Edit at your own risk!\n{segment_entry_count, 2048}.\n"
    )


def test_the_length_of_segments_stays_what_it_was_when_the_vhost_was_made(disk: SimulatedDisk) -> None:
    directory = DataDirectory.open(disk, "/data", Settings(queue_index_segment_entry_count=100))
    assert directory.vhost("/").settings.queue_index_segment_entry_count == 100
    again = DataDirectory.open(disk, "/data", Settings(durability="os"))
    assert again.vhost("/").settings == Settings(durability="os", queue_index_segment_entry_count=100)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (b"%% comment\n{segment_entry_count, 256}.", 256),
        (b"{ segment_entry_count ,16384 } .\n", 16_384),
        (b"%% {segment_entry_count, 256}.", None),
        (b"{segment_entry_count, 16385}.", None),
        (b"{segment_entry_count, 0}.", None),
        (b"\x00\xff", None),
        (b"", None),
    ],
)
def test_the_config_of_a_vhost_is_read(config: bytes, count: int | None) -> None:
    assert read_segment_entry_count(config) == count


def test_a_damaged_config_is_set_aside(disk: SimulatedDisk) -> None:
    vhost = DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
    disk.replace(f"{VHOST}/.config", b"\x00\x00")
    again = DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
    assert again.settings == SETTINGS
    assert disk.read(f"{vhost.quarantine}/.config-0") == b"\x00\x00"
    assert [each.path for each in again.damage] == [f"{VHOST}/.config"]
    disk.replace(f"{VHOST}/.vhost", b"/x")
    again = DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
    assert disk.read(f"{vhost.quarantine}/.vhost-0") == b"/x"
    assert disk.read(f"{VHOST}/.vhost") == b"/"
    assert [each.path for each in again.damage] == [f"{VHOST}/.vhost"]
    assert not DataDirectory.open(disk, "/data", SETTINGS).vhost("/").damage
    assert read_segment_entry_count(disk.read(f"{VHOST}/.config")) == 2_048


def test_damage_is_kept_whenever_a_start_is_killed_and_the_next_one_loses_power() -> None:
    """The first start may have written the copy, and not synced its folder."""
    for operation, seed in product(range(1, 40), range(4)):
        disk = SimulatedDisk(Random(seed))
        quarantine = DataDirectory.open(disk, "/data", SETTINGS).vhost("/").quarantine
        disk.replace(f"{VHOST}/.config", b"\x00\x00")
        with disk.power_fails_at(operation) as outage:
            DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
        DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
        disk.power_cut()
        if not outage.came:
            return
        if read_segment_entry_count(disk.read(f"{VHOST}/.config")) is not None:
            assert disk.read(f"{quarantine}/.config-0") == b"\x00\x00"


def test_the_name_of_a_directory_is_safe_before_anything_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker, or what renamed it to this, may have been killed before its own sync."""
    synced: list[str] = []
    monkeypatch.setattr(RealDisk, "sync_dir", lambda _disk, path: synced.append(path))
    folder = tmp_path / "made" / "before"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    for _ in range(2):
        synced.clear()
        directory = DataDirectory.open(RealDisk(), str(tmp_path / "link"), SETTINGS)
        assert synced[0] == str(folder.parent)
        opened_before = str(tmp_path) not in synced
        directory.next_boot()
        directory.close()
    assert opened_before


def test_a_queue_folder_says_whose_it_is(disk: SimulatedDisk) -> None:
    vhost = DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
    for _ in range(2):
        vhost.make_queue(disk, "test", None, vhost.settings.queue_version)
    disk.power_cut()
    assert disk.read(f"{folder(vhost, 'test')}/.queue_name") == b"VHOST: /\nQUEUE: test\nINDEX: v2\n"


def test_boots_are_counted_durably(disk: SimulatedDisk) -> None:
    directory = DataDirectory.open(disk, "/data", SETTINGS)
    for boot in (1, 2, 3):
        assert directory.next_boot() == boot
        disk.power_cut()
    assert disk.read("/data/rabbit_serial") == b"3.\n"


def test_no_boot_number_comes_twice_whenever_the_power_goes() -> None:
    for operation in range(1, 30):
        disk = SimulatedDisk(Random(operation))
        directory = DataDirectory.open(disk, "/data", SETTINGS)
        boots = []
        with disk.power_fails_at(operation) as outage:
            boots += [directory.next_boot() for _ in range(2)]
            boots += [directory.next_boot() for _ in range(2)]
        if outage.came:
            disk.power_cut()
        boots.append(directory.next_boot())
        assert boots == sorted(set(boots))


def test_counting_goes_on_far_away_when_the_serial_is_damaged(disk: SimulatedDisk) -> None:
    directory = DataDirectory.open(disk, "/data", SETTINGS)
    directory.next_boot()
    disk.replace("/data/rabbit_serial", b"\x00")
    assert directory.next_boot() == 1 << 20
    assert directory.next_boot() == (1 << 20) + 1


# one owner


def test_a_second_owner_is_refused_and_the_error_names_the_first(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    directory = DataDirectory.open(RealDisk(), path, SETTINGS)
    with pytest.raises(DirectoryInUse) as refused:
        DataDirectory.open(RealDisk(), path, SETTINGS)
    assert (refused.value.path, refused.value.pid) == (path, os.getpid())
    assert refused.value.host
    assert refused.value.started[:2] == "20"
    directory.close()
    directory.close()
    DataDirectory.open(RealDisk(), path, SETTINGS).close()


OWN = """
import sys, time
from warrenmq.settings import Settings
from warrenmq.directory.layout import DataDirectory
from warrenmq.seams.real_disk import RealDisk
directory = DataDirectory.open(RealDisk(), sys.argv[1], Settings())
print("mine", flush=True)
sys.stdin.read()
"""


def test_an_owner_that_was_killed_leaves_the_directory_free(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWN, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"mine\n"
        with pytest.raises(DirectoryInUse) as refused:
            DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS)
        assert refused.value.pid == owner.pid
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS).close()


def test_the_record_names_an_owner_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was empty for a moment, in which other processes took its owner for one that does not share."""
    DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS, shares=True).close()
    seen: list[bytes] = []

    def watched(act: Callable[..., Any]) -> Callable[..., Any]:
        def acts(descriptor: int, *arguments: Any) -> Any:
            result = act(descriptor, *arguments)
            seen.append((tmp_path / "warrenmq.owner").read_bytes())
            return result

        return acts

    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(owner_lock.os, name, watched(getattr(os, name)))
    owner = DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS, shares=True)
    monkeypatch.undo()
    owner.close()
    assert len(seen) >= 2
    for each in seen[:2]:
        assert each.startswith(b"%d\n" % os.getpid())
        assert b"\nshared\n" in each


def test_an_owner_that_has_no_room_for_its_record_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock was held until the process ended."""

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(owner_lock.os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS)
    monkeypatch.undo()
    DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS).close()


def test_an_owner_that_has_not_written_its_name_yet_is_unknown(tmp_path: Path) -> None:
    directory = DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS)
    (tmp_path / "warrenmq.owner").write_bytes(b"")
    with pytest.raises(DirectoryInUse, match="process 0 on an unknown host"):
        DataDirectory.open(RealDisk(), str(tmp_path), SETTINGS)
    directory.close()


def test_a_queue_with_priorities_has_a_folder_for_each(disk: SimulatedDisk) -> None:
    vhost = DataDirectory.open(disk, "/data", SETTINGS).vhost("/")
    folders = vhost.folders("test", 200)
    assert folders[1] == f"{VHOST}/queues/{queue_folder('/', 'test', 1)}"
    assert len(set(folders)) == 201
    vhost.make_queue(disk, "test", 200, 1)
    disk.power_cut()
    assert disk.read(f"{folders[200]}/.queue_name") == b"VHOST: /\nQUEUE: test\0\xc8\n"
    assert vhost.queue_folders(disk, folders[1:200]) == sorted([folders[0], folders[200]])
