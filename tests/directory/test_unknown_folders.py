"""Folders of queues that no definition names: each row of the table in queue_folders.py."""

from __future__ import annotations

from random import Random

import pytest

from tests.queue_index.index_kit import stored_record
from warrenmq.directory.definitions import Definitions, QueueRecord, queue_frame
from warrenmq.directory.layout import DataDirectory, VhostDirectory, queue_folder
from warrenmq.queue_index.v1.journal import Journal
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedDisk
from warrenmq.vhost.queue_folders import (
    QueueName,
    keep_definition,
    name_of_folder,
    names_of_folders,
    records_of,
)
from warrenmq.vhost.unknown_folders import UnknownContents, clear, sort_out

SETTINGS = Settings(queue_version=1)
LIMITED = QueueRecord("q", arguments={"x-max-length": 3})


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(0))


@pytest.fixture
def vhost(disk: SimulatedDisk) -> VhostDirectory:
    return DataDirectory.open(disk, "/data", SETTINGS).vhost("/")


def sorted_out(
    disk: SimulatedDisk, vhost: VhostDirectory, *, gone: bool = False, damaged: bool = False, torn: int = 0
) -> UnknownContents:
    definitions = Definitions.open(disk, vhost.definitions, vhost.quarantine)
    if gone:
        definitions.put_queue(QueueRecord("q"))
        definitions.delete(queues=["q"])
    if damaged or torn:
        definitions.close()
        frame = queue_frame(QueueRecord("another"))
        disk.open(vhost.definitions).append(frame[:-1] + b"\x07" if damaged else frame[:torn])
        definitions = Definitions.open(disk, vhost.definitions, vhost.quarantine)
    return sort_out(disk, vhost, definitions, {})


def make(
    disk: SimulatedDisk,
    vhost: VhostDirectory,
    *,
    name: bool = True,
    messages: bool = False,
    transient: bool = False,
) -> str:
    (folder,) = vhost.folders("q", None)
    disk.mkdir(folder)
    if name:
        vhost.make_queue(disk, "q", None, 1)
    if messages or transient:
        journal = Journal(disk, folder)
        journal.publish_many(0, [stored_record(0)], persistent=not transient)
        journal.write()
        journal.close()
    return folder


@pytest.mark.parametrize(
    ("name", "messages", "transient", "gone", "damaged", "outcome"),
    [
        (True, True, False, False, False, "declared"),
        (True, True, False, False, True, "declared"),
        (True, True, False, True, False, "removed"),
        (True, True, False, True, True, "declared"),
        (True, False, False, False, False, "removed"),
        (True, False, False, False, True, "declared"),
        (False, True, False, False, False, "kept"),
        (False, True, False, False, True, "kept"),
        (False, True, False, True, False, "removed"),
        (False, True, False, True, True, "kept"),
        (False, False, True, False, False, "removed"),
        (False, False, False, False, True, "removed"),
    ],
)
def test_a_folder_goes_only_with_a_proof(
    disk, vhost, name, messages, transient, gone, damaged, outcome
) -> None:
    folder = make(disk, vhost, name=name, messages=messages, transient=transient)
    found = sorted_out(disk, vhost, gone=gone, damaged=damaged)
    assert [each.name for each in found.declared_again] == (["q"] if outcome == "declared" else [])
    assert found.kept == ([folder] if outcome == "kept" else [])
    assert disk.is_dir(folder) is (outcome != "removed")
    assert bool(found.damage) is (outcome != "removed"), "what is not removed is told"


@pytest.mark.parametrize("arrived", range(4, len(queue_frame(QueueRecord("another")))))
def test_a_deletion_is_trusted_before_a_frame_that_a_power_cut_tore(disk, vhost, arrived) -> None:
    folder = make(disk, vhost, messages=True)
    assert sorted_out(disk, vhost, gone=True, torn=arrived).declared_again == []
    assert not disk.is_dir(folder)


def test_a_queue_is_declared_again_with_its_arguments(disk, vhost) -> None:
    folder = make(disk, vhost)
    keep_definition(disk, folder, LIMITED)
    found = sorted_out(disk, vhost)
    assert found.declared_again == [LIMITED]
    assert found.damage == [], "a crash may have come before its declaration was answered"
    disk.unlink(f"{folder}/.queue_name")
    assert sorted_out(disk, vhost).declared_again == [LIMITED]
    disk.replace(f"{folder}/recovery.terms", b"it was stopped")
    assert "queue 'q' is not declared" in str(sorted_out(disk, vhost).damage[0])


def test_a_folder_of_no_queue_whose_bytes_make_no_sense_goes_to_the_quarantine(disk, vhost) -> None:
    for copy in ("", ".2"):
        folder = make(disk, vhost, name=False)
        disk.replace(f"{folder}/journal.jif", b"nonsense")
        assert len(sorted_out(disk, vhost).damage) == 1
        assert disk.read(f"{vhost.quarantine}/{queue_folder('/', 'q')}{copy}/journal.jif") == b"nonsense"
        assert not disk.is_dir(folder)


@pytest.mark.parametrize("transient", [True, False])
def test_a_transient_queue_begins_with_an_empty_folder_and_sets_aside_what_may_be_a_durable_one_s(
    disk, vhost, transient
) -> None:
    folder = make(disk, vhost, name=False, messages=not transient, transient=transient)
    assert bool(clear(disk, folder, vhost.quarantine, SETTINGS)) is not transient
    assert not disk.is_dir(folder)
    assert (disk.listdir(vhost.quarantine) == [queue_folder("/", "q")]) is not transient


def test_the_priorities_of_a_queue_are_as_many_as_its_folders() -> None:
    names = [QueueName("/", "p", each) for each in (0, 2, 1)] + [QueueName("/", "q")]
    assert records_of(names) == [QueueRecord("p", arguments={"x-max-priority": 2}), QueueRecord("q")]
    kept = QueueRecord("p", arguments={"x-max-priority": 5, "x-max-length": 1})
    assert records_of([*names[:3], names[0]._replace(record=kept)])[0] == kept
    assert records_of([names[0]._replace(record=kept), *names[1:3]])[0] == kept


def test_the_queue_of_a_priority_without_a_name_file_is_known_by_its_other_priorities() -> None:
    folders = {queue_folder("/", "p", each): (b"VHOST: /\nQUEUE: p\0%c\n" % each, None) for each in range(3)}
    expected = {folder: QueueName("/", "p", each) for each, folder in enumerate(folders)}
    stranger = {queue_folder("/", "p"): (None, None), queue_folder("/", "q", 1): (b"", None)}
    for folder in folders:
        assert names_of_folders("/", {**folders, folder: (b"\0", None), **stranger}) == expected
    assert names_of_folders("/", {**dict.fromkeys(folders, (None, None)), **stranger}) == {}


def test_a_folder_is_recognised_by_the_hash_of_its_own_name_only() -> None:
    folder, text = queue_folder("/", "q"), b"VHOST: /\nQUEUE: q\n"
    assert name_of_folder(folder, "/", text, None) == QueueName("/", "q")
    assert name_of_folder(folder, "/", None, queue_frame(LIMITED)) == QueueName("/", "q", record=LIMITED)
    for at in range(len(text)):
        damaged = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        assert name_of_folder(folder, "/", damaged, None) is None
        assert name_of_folder(folder, "/", damaged, queue_frame(LIMITED)) == QueueName(
            "/", "q", record=LIMITED
        )
