"""`repair` of golden directories and of their damaged variants."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

import warrenmq
from tests.inspect.mortal_disk import Cut, Mortal
from tests.support import golden
from tests.support.directories import contents, given_back
from tests.support.golden import CASES, ROOT, files
from warrenmq.inspect.inspection import Inspection
from warrenmq.inspect.reading import Findings
from warrenmq.mend.changes import BACKUP
from warrenmq.mend.compact import compact
from warrenmq.mend.repair import repair
from warrenmq.message_store.scan import Records, Trust, scan
from warrenmq.queue_index.v1.reader import read_journal, read_segment

C09 = "c09-torn-v1-a"
VARIANTS = [each["name"] for each in json.loads((ROOT / C09 / "variants.json").read_text())["variants"]]
HARMLESS = {
    "rdq-cut-at-boundary",
    "rdq-cut-in-size",
    "rdq-missing",
    "journal-missing",
    "rdq-flip-body",
    "journal-flip-body",
}
"""Nothing is damaged that could be mended."""


def variant(name: str, where: Path) -> Path:
    with tarfile.open(
        fileobj=io.BytesIO((ROOT / C09 / "variants" / f"{name}.tar.gz").read_bytes())
    ) as archive:
        archive.extractall(where, filter="data")
    return where


def salvaged(where: Path) -> list[str]:
    return [
        row.salvaged
        for part, queue in Inspection(str(where), 0).queues()
        for row in part.rows(queue)
        if row.salvaged is not None
    ]


def without_backups(found: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in found.items() if not path.startswith(BACKUP)}


def assert_brokers_can_read(where: Path, entry_count: int = 2048) -> None:
    """Every file as strict readers want it."""
    findings = Findings(str(where))
    for path in where.rglob("*"):
        if BACKUP in str(path):
            continue
        if path.suffix == ".idx":
            facts, damage = read_segment(path.read_bytes(), entry_count)
            assert (damage, facts.published.keys() >= facts.acked) == ([], True)
        elif path.name == "journal.jif":
            replay = read_journal(path.read_bytes(), entry_count)
            assert (replay.damage, replay.end) == ([], path.stat().st_size)
        elif path.suffix == ".rdq" and "persistent" in str(path):
            file = findings.open(str(path))
            assert file is not None
            with file:
                found = list(scan(file, ()))
            assert all(
                each.trust == Trust.SOUND if isinstance(each, Records) else not each.damage for each in found
            )
        assert path.suffix != ".rdt"


@pytest.mark.parametrize("case", CASES)
def test_a_sound_directory_is_left_alone(case: str, tmp_path: Path) -> None:
    node = golden.lay_out(case, tmp_path / "node")
    before = contents(node)
    done = repair(str(node), dry_run=False)
    assert (done.changes, done.backup, done.rabbitmqs) == ([], None, True)
    assert contents(node) == before


@pytest.mark.parametrize("name", VARIANTS)
def test_a_damaged_one_is_mended_once_loses_nothing_and_can_be_put_back(name: str, tmp_path: Path) -> None:
    node = variant(name, tmp_path / "node")
    before, had = contents(node), given_back(node)
    would = repair(str(node), dry_run=True)
    assert contents(node) == before
    done = repair(str(node), dry_run=False)
    assert done.changes == would.changes
    assert bool(done.changes) is (name not in HARMLESS)
    assert given_back(node) == had
    assert salvaged(node) == []
    assert_brokers_can_read(node)
    again = repair(str(node), dry_run=False)
    assert again.changes == []
    if done.backup is not None:
        backup = Path(done.backup)
        manifest = json.loads((backup / "manifest.json").read_text())
        assert [each["file"] for each in manifest["files"]] == [each.file for each in done.changes]
        (backup / "manifest.json").unlink()
        shutil.copytree(backup, node, dirs_exist_ok=True)
        found = without_backups(contents(node))
        assert {path: found[path] for path in before} == before


def ours(where: Path, version: int = 1) -> Path:
    with warrenmq.open(where, settings={"queue_version": version}) as broker:
        for name in ("jobs", "audit"):
            queue = broker.declare_queue(name)
            queue.publish_many([b"%d" % number + b"." * (number % 3 * 3000) for number in range(20)]).result()
    return where


@pytest.mark.parametrize("version", [1, 2])
def test_lost_definitions_are_declared_anew_from_the_folders(version: int, tmp_path: Path) -> None:
    data = ours(tmp_path / "data", version)
    (definitions,) = data.rglob("definitions.log")
    definitions.write_bytes(b"\xff" * 50)
    done = repair(str(data), dry_run=False)
    assert (done.rabbitmqs, done.left) == (False, [])
    assert repair(str(data), dry_run=False).changes == []
    with warrenmq.open(data, settings={"queue_version": version}) as broker:
        for name in ("jobs", "audit"):
            found = [each.body for each in iter(broker.queue(name).get, None)]
            assert [int(body.rstrip(b".")) for body in found] == [*range(20)]


@pytest.mark.parametrize("extension", [".qi", ".qs"])
@pytest.mark.parametrize("damage", ["header", "tail", "middle"])
def test_version_2_files_are_mended(extension: str, damage: str, tmp_path: Path) -> None:
    data = ours(tmp_path / "data", 2)
    for path in data.rglob(f"*{extension}"):
        content = bytearray(path.read_bytes())
        match damage:
            case "header":
                content[0:4] = b"oops"
            case "tail":
                del content[-5:]
            case "middle":
                content[200] ^= 0xFF
        path.write_bytes(bytes(content))
    had = given_back(data)
    done = repair(str(data), dry_run=False)
    assert done.changes
    assert given_back(data) == had
    assert repair(str(data), dry_run=False).changes == []
    with warrenmq.open(data, settings={"queue_version": 2}) as broker:
        names = ("audit", "jobs")
        assert sum(len([*iter(broker.queue(name).get, None)]) for name in names) == len(had)


@pytest.mark.parametrize("version", [1, 2])
def test_a_message_of_a_store_that_is_set_aside_leaves_no_entry(version: int, tmp_path: Path) -> None:
    """Nothing is found amiss any more then, and the directory can be compacted; one whose file is gone is a start's business."""
    data = tmp_path / "data"
    with warrenmq.open(data, settings={"queue_version": version}) as broker:
        broker.declare_queue("jobs").publish_many([b"%d" % number * 9_000 for number in range(4)]).result()
    (store,) = data.rglob("msg_store_persistent/0.rdq")
    records = bytearray(store.read_bytes())
    records[2_000] ^= 1
    store.write_bytes(records)
    had = given_back(data)
    assert len(had) == 3
    assert repair(str(data), dry_run=False).left == []
    assert given_back(data) == had
    assert repair(str(data), dry_run=False).changes == []
    compact(str(data))
    assert given_back(data) == had
    store.unlink()
    with pytest.raises(warrenmq.PreconditionFailed, match=r"messages that are gone .* a start of its broker"):
        compact(str(data))


def test_messages_that_are_only_in_an_rdt_file_come_back(tmp_path: Path) -> None:
    case = "c02-v1-store-a"
    path = next(path for path in files(case) if path.endswith("persistent/1.rdq"))
    data = files(case)[path]
    cut = len(data) // 2
    starts, at = [0], 0
    while at < cut:
        at += int.from_bytes(data[at : at + 8], "big") + 9
        starts.append(at)
    middle = starts[-2]
    damaged: dict[str, bytes | None] = {
        path: data[:middle] + bytes(len(data) - middle),
        path.replace(".rdq", ".rdt"): data[middle:],
    }
    clean = ("clean.dot", "file_summary.ets", "msg_store_index.ets", "recovery.dets")
    damaged |= {each: None for each in files(case) if each.endswith(clean)}
    node = golden.lay_out(case, tmp_path / "node", damaged)
    had = given_back(node)
    assert salvaged(node)
    repair(str(node), dry_run=False)
    assert given_back(node) == had == given_back(golden.lay_out(case, tmp_path / "whole"))
    assert salvaged(node) == []
    assert not list(node.glob("msg_stores/**/*.rdt"))
    assert repair(str(node), dry_run=False).changes == []


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path / "data"), pytest.raises(warrenmq.DirectoryInUse):
        repair(str(tmp_path / "data"), dry_run=False)


@pytest.mark.parametrize("name", ["idx-cut-in-embedded", "journal-flip-length", "rdq-flip-size"])
def test_a_crash_at_any_operation_loses_nothing_and_the_next_run_does_the_rest(
    name: str, tmp_path: Path
) -> None:
    source = variant(name, tmp_path / "source")
    had = given_back(source)
    # an index is written record by record
    for operation in range(0, 10_000, 1 if name.startswith("rdq") else 7):
        node = tmp_path / "node"
        shutil.rmtree(node, ignore_errors=True)
        shutil.copytree(source, node)
        try:
            repair(str(node), dry_run=False, disk=Mortal(operation))
        except Cut:
            assert given_back(node) == had
        else:
            assert operation > 10
            return
        repair(str(node), dry_run=False)
        assert given_back(node) == had
        assert salvaged(node) == []
    pytest.fail("it never ends")
