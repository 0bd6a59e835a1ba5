"""Data directories on disk: what is in them, what the verbs say about them, what a broker gives back from them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import warrenmq
from warrenmq.cli import main
from warrenmq.inspect.inspection import Inspection
from warrenmq.message.plain_properties import properties_as_plain


def contents(where: Path) -> dict[str, bytes]:
    """Every file of a directory, by its path in there."""
    return {
        str(path.relative_to(where)): path.read_bytes() for path in sorted(where.rglob("*")) if path.is_file()
    }


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


def listed(found: Any, queue: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a manifest's queue, over all its priorities."""
    return [
        {"expiry_us": 0, **message}
        for each in found["queues"]
        if (each["vhost"], each["name"]) == (queue["vhost"], queue["name"])
        for message in each["messages"]
    ]


def drained(broker: warrenmq.Broker, queue: str) -> list[dict[str, Any]]:
    """All messages of a queue, taken off it."""
    return [
        {"sha256": hashlib.sha256(each.body).hexdigest(), "exchange": each.exchange, "routing_key": each.routing_key,
         "properties": properties_as_plain(each.properties)}
        for each in iter(lambda: broker.queue(queue).get(no_ack=True), None)
    ]  # fmt: skip


def bodies(data: Path, queue: str, vhost: str = "/") -> list[bytes]:
    """The bodies of a queue, taken off it."""
    with warrenmq.open(data, vhost=vhost) as broker:
        return [each.body for each in iter(lambda: broker.queue(queue).get(no_ack=True), None)]


def given_back(where: Path) -> list[tuple[str | None, int, str]]:
    """(queue, sequence id, body) of every message that can be had from a directory."""
    return [
        (queue.name, row.entry.seq_id, hashlib.sha256(row.message.body).hexdigest())
        for part, queue in Inspection(str(where), 0).queues()
        for row in part.rows(queue)
        if row.message is not None and row.reason is None
    ]


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Have a directory with these files, on disk."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def glance(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file's size and time, and every folder's."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            status = os.stat(f"{parent}/{name}")
            found[f"{parent}/{name}"] = status.st_size, status.st_mtime_ns
    return found
