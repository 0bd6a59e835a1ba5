"""`warrenmq repair`, as a user types it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tests.support import golden
from tests.support.directories import contents
from tests.support.golden import files
from warrenmq.cli import main

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
