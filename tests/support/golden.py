"""Directories that a real RabbitMQ 3.10.8 wrote (tests/golden/rabbitmq-3.10), read into memory."""

from __future__ import annotations

import functools
import json
import tarfile
from pathlib import Path
from typing import Any

from tests.support import source_tree

ROOT = Path(source_tree.ROOT, "tests", "golden", "rabbitmq-3.10")
CASES = sorted(path.parent.name for path in ROOT.glob("*/manifest.json"))


@functools.cache
def files(case: str) -> dict[str, bytes]:
    """Path -> bytes of each file of a case; paths begin with msg_stores."""
    found: dict[str, bytes] = {}
    with tarfile.open(ROOT / case / "data.tar.gz") as archive:
        for member in archive:
            if member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                found[member.name.removeprefix("./")] = file.read()
    return found


@functools.cache
def manifest(case: str) -> dict[str, Any]:
    """The messages and queues that the real broker gives back."""
    found: dict[str, Any] = json.loads((ROOT / case / "manifest.json").read_text())
    return found


def folder(case: str, queue_dir: str) -> dict[str, bytes]:
    """Name -> bytes of the files of one queue."""
    return {
        path.rpartition("/")[2]: data for path, data in files(case).items() if f"/queues/{queue_dir}/" in path
    }


def lay_out(case: str, where: Path, damaged: dict[str, bytes | None] | None = None) -> Path:
    """A case on disk; `damaged` has other contents for some files, None for a file that is missing."""
    for path, data in {**files(case), **(damaged or {})}.items():
        if data is not None:
            (where / path).parent.mkdir(parents=True, exist_ok=True)
            (where / path).write_bytes(data)
    return where


def lay_out_variant(case: str, archive: str, where: Path) -> Path:
    """Another archive of a case on disk."""
    with tarfile.open(ROOT / case / archive) as tar:
        tar.extractall(where, filter="data")
    return where


def messages(queue: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a manifest's queue, each with all its fields."""
    return [{**queue["message_defaults"], **message} for message in queue["messages"]]


LISTED = (
    "position",
    "seq_id",
    "msg_id",
    "persistent",
    "exchange",
    "routing_key",
    "routing_keys",
    "properties",
    "redelivered",
    "expiry_us",
)


def as_listed(queue: dict[str, Any]) -> list[dict[str, Any]]:
    """A manifest's messages, as `check --json` has them."""
    return [
        {name: each[name] for name in LISTED} | {"size": each["body_size"], "sha256": each["body_sha256"]}
        for each in messages(queue)
    ]


def as_drained(queue: dict[str, Any]) -> list[dict[str, Any]]:
    """A manifest's messages, as `directories.drained` has them."""
    return [
        {"sha256": each["body_sha256"], "exchange": each["exchange"], "routing_key": each["routing_key"],
         "properties": each.get("properties", {})}
        for each in messages(queue)
    ]  # fmt: skip
