"""Directories for the reading verbs, and what a check says about them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from tests.support import golden
from warrenmq.cli import main


def unpack_golden(case: str, to: Path) -> Path:
    """A golden directory on disk."""
    for path, data in golden.files(case).items():
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        (to / path).write_bytes(data)
    return to


def unpack_variant(case: str, archive: str, to: Path) -> Path:
    with tarfile.open(golden.ROOT / case / archive) as tar:
        tar.extractall(to, filter="data")
    return to


def check(
    directory: Path, *, now_us: int | None = None, verb: str = "check", more: tuple[str, ...] = ()
) -> tuple[int, Any]:
    """(exit status, the object) of `VERB DIR --json`."""
    out = io.StringIO()
    time = () if now_us is None else ("--now", f"{now_us / 1_000_000:.6f}")
    with contextlib.redirect_stdout(out):
        status = main([verb, str(directory), *more, "--json", *time])
    return status, json.loads(out.getvalue())


def say(*arguments: str) -> tuple[int, str]:
    """(exit status, standard output) of a verb for people."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(list(arguments))
    return status, out.getvalue()


def fingerprint(directory: Path) -> dict[str, Any]:
    """Every file's bytes, times and mode, and every folder's entries."""
    return {
        str(path.relative_to(directory)): (
            (status := path.stat()).st_mtime_ns,
            status.st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(directory.rglob("*"))
    }


def expected(queue: dict[str, Any]) -> list[dict[str, Any]]:
    """A manifest's messages, as `check --json` has them."""
    rows = []
    for row in queue["messages"]:
        full = {**queue["message_defaults"], **row}
        rows.append(
            {
                "position": full["position"],
                "seq_id": full["seq_id"],
                "msg_id": full["msg_id"],
                "size": full["body_size"],
                "sha256": full["body_sha256"],
                "persistent": full["persistent"],
                "exchange": full["exchange"],
                "routing_key": full["routing_key"],
                "routing_keys": full["routing_keys"],
                "properties": full["properties"],
                "redelivered": full["redelivered"],
                "expiry_us": full["expiry_us"],
            }
        )
    return rows


def listed(found: Any, queue: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a manifest's queue, over all its priorities."""
    return [
        {"expiry_us": 0, **message}
        for each in found["queues"]
        if (each["vhost"], each["name"]) == (queue["vhost"], queue["name"])
        for message in each["messages"]
    ]
