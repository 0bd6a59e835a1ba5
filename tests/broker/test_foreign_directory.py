"""A directory that a real RabbitMQ wrote is refused, and not touched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import warrenmq
from tests.support.golden import CASES, files


def lay_out(case: str, where: Path) -> Path:
    for path, data in files(case).items():
        file = where / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return where


def contents(where: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(where.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("case", CASES)
def test_opening_it_is_refused_and_leaves_it_as_it_was(case: str, tmp_path: Path) -> None:
    node = lay_out(case, tmp_path / "node")
    before = contents(node)
    with pytest.raises(
        warrenmq.PreconditionFailed, match=f"written by RabbitMQ.*warrenmq recover {node} --to DIR"
    ):
        warrenmq.open(node)
    assert contents(node) == before


def test_so_is_one_of_3_6_and_a_vhosts_folder(tmp_path: Path) -> None:
    node = lay_out("c03-v1-sigkill-a", tmp_path / "node")
    (vhost,) = (node / "msg_stores" / "vhosts").iterdir()
    with pytest.raises(warrenmq.PreconditionFailed, match="written by RabbitMQ"):
        warrenmq.open(vhost)
    for name in (".vhost", ".config"):  # what 3.6 had not
        (vhost / name).unlink(missing_ok=True)
    with pytest.raises(warrenmq.PreconditionFailed, match="written by RabbitMQ"):
        warrenmq.open(vhost)


def test_a_directory_of_ours_is_opened_even_without_its_definitions(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("jobs").publish(b"payload").result()
    (definitions,) = (tmp_path / "data").rglob("definitions.log")
    definitions.unlink()
    with warrenmq.open(tmp_path / "data"):
        pass


def test_a_vhost_that_rabbitmq_wrote_within_a_directory_of_ours_is_seen(tmp_path: Path) -> None:
    node = lay_out("c01-v1-embedded-a", tmp_path / "node")
    with warrenmq.open(tmp_path / "data"):
        pass
    shutil.rmtree(tmp_path / "data" / "msg_stores")
    shutil.move(node / "msg_stores", tmp_path / "data" / "msg_stores")
    with pytest.raises(warrenmq.PreconditionFailed, match="written by RabbitMQ"):
        warrenmq.open(tmp_path / "data")
