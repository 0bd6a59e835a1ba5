"""Directories that a real RabbitMQ 3.10.8 wrote (tests/golden/rabbitmq-3.10), read into memory."""

from __future__ import annotations

import functools
import json
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / "golden" / "rabbitmq-3.10"
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
    """What the real broker gives back."""
    found: dict[str, Any] = json.loads((ROOT / case / "manifest.json").read_text())
    return found


def folder(case: str, queue_dir: str) -> dict[str, bytes]:
    """Name -> bytes of the files of one queue."""
    return {
        path.rpartition("/")[2]: data for path, data in files(case).items() if f"/queues/{queue_dir}/" in path
    }
