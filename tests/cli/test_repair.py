"""`warrenmq repair`, as a user types it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

import warrenmq
from tests.support import golden
from tests.support.directories import contents
from tests.support.golden import files
from warrenmq.cli import main
from warrenmq.directory.owner_lock import FolderLock

CASE = "c09-torn-v1-a"


def damaged(where: Path) -> Path:
    path = next(path for path in files(CASE) if path.endswith("/0.idx"))
    return golden.lay_out(CASE, where, {path: files(CASE)[path] + bytes(100)})


def test_a_dry_run_says_what_the_real_one_does_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = damaged(tmp_path / "node")
    before = contents(node)
    assert main(["repair", str(node), "--dry-run"]) == 1
    would = capsys.readouterr()
    assert contents(node) == before
    assert "make sure that its broker is stopped" in would.err
    assert main(["repair", str(node)]) == 0
    did = capsys.readouterr().out
    assert did == would.out + f"what was changed is as it was in {node}/repair-backup-1\n"
    assert "zero bytes up to the end of the file are no records" in did
    assert main(["repair", str(node)]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = damaged(tmp_path / "node")
    assert main(["repair", str(node), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["backup"] == f"{node}/repair-backup-1"
    assert said["left"] == []
    assert {"file", "done"} == said["changes"][0].keys()


def test_a_folder_that_is_no_data_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repair", str(tmp_path / "nowhere")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_a_folder_that_may_not_be_looked_into_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For it may well be a data directory, of another user."""

    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path == str(tmp_path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert main(["check", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"warrenmq check: {tmp_path} cannot be used: Permission denied.\n"


def test_a_file_that_may_not_be_read_is_not_taken_for_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verbs that change something refuse at once; check tells that file and nothing that may follow from it."""
    data = tmp_path / "data"
    with warrenmq.open(data) as broker:
        broker.declare_queue("jobs").publish_many([b"small", b"large" * 2_000]).result()
    before = contents(data / "msg_stores")
    system = os.open
    for name in ("definitions.log", "0.qs", "0.qi", "0.rdq"):

        def refused(path: str, *arguments: int, name: str = name) -> int:
            if os.path.basename(path) == name and "transient" not in path:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return system(path, *arguments)

        monkeypatch.setattr(os, "open", refused)
        for verb in (["repair", "--dry-run"], ["repair"], ["compact"]):
            assert main([*verb, str(data)]) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert err.endswith(f"{name} cannot be used: Permission denied.\n")
        assert main(["check", str(data)]) == 1
        [told] = [line for line in capsys.readouterr().out.splitlines() if ", byte " in line]
        assert told.endswith(f"{name}, byte 0: it cannot be read (Permission denied)")
        monkeypatch.undo()
        assert contents(data / "msg_stores") == before


def test_a_folder_in_it_that_may_not_be_listed_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory without virtual hosts has nothing to do."""
    data = tmp_path / "data"
    with warrenmq.open(data):
        pass
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if os.path.normpath(path) == f"{data}/msg_stores/vhosts":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    for verb in (["repair", "--dry-run"], ["repair"], ["compact"]):
        assert main([*verb, str(data)]) == 2
        assert "vhosts cannot be used: Permission denied." in capsys.readouterr().err


def test_commands_do_not_change_a_directory_of_rabbitmqs_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two commands wrote each file anew at the same time, under the same name, as no owner kept them apart."""
    node = damaged(tmp_path / "node")
    before = contents(node)
    for changes, verbs in (
        (False, [["repair"], ["compact"]]),
        (True, [["repair"], ["repair", "--dry-run"], ["recover", "--to", str(tmp_path / "data")]]),
    ):
        other = FolderLock(str(node), changes=changes)
        for verb in verbs:
            assert main([*verb, str(node)]) == 2
            assert f"{node} is being read or changed by another command" in capsys.readouterr().err
        other.release()
    assert contents(node) == before
    reader = FolderLock(str(node), changes=False)
    assert main(["repair", str(node), "--dry-run"]) == 1
    reader.release()


@pytest.mark.parametrize("folder", [".", "msg_stores", "msg_stores/vhosts", "msg_stores/vhosts/V"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_every_folder_of_a_directory_in_use_is_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, elsewhere: bool
) -> None:
    """Those between were taken for a directory without an owner: message files of a running broker were compacted."""
    data = tmp_path / "data"
    if elsewhere:
        data.mkdir()
        (tmp_path / "volume").mkdir()
        (data / "msg_stores").symlink_to(tmp_path / "volume")
    with warrenmq.open(data) as broker:
        broker.declare_queue("jobs").publish_many([b"large" * 2_000] * 4).result()
        [vhost] = os.listdir(data / "msg_stores" / "vhosts")
        path = str(data / folder.replace("V", vhost))
        for verb in (
            ["repair"],
            ["repair", "--dry-run"],
            ["compact"],
            ["recover", "--to", str(tmp_path / "new")],
        ):
            assert main([*verb, path]) == 2
            assert f"{data} is in use by process {os.getpid()}" in capsys.readouterr().err
        assert main(["check", path]) == 0
        assert f"{data} is in use by process {os.getpid()}" in capsys.readouterr().err
