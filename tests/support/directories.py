"""Data directories in tests: golden ones laid out, what is in them, and what a broker gives back from them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import warrenmq
from tests.support.golden import files, manifest
from warrenmq.inspect.inspection import Inspection
from warrenmq.message.plain_properties import properties_as_plain


def lay_out(case: str, where: Path, damaged: dict[str, bytes | None] | None = None) -> Path:
    """A golden directory in the file system; `damaged` has other contents for some files, None for none."""
    for path, data in {**files(case), **(damaged or {})}.items():
        if data is None:
            continue
        file = where / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return where


def contents(where: Path) -> dict[str, bytes]:
    """Every file of a directory, by its path in there."""
    return {
        str(path.relative_to(where)): path.read_bytes() for path in sorted(where.rglob("*")) if path.is_file()
    }


def expected(case: str, queue: dict[str, Any]) -> list[dict[str, Any]]:
    """What RabbitMQ gave back from a queue, as `drained` has it."""
    common = queue.get("message_defaults", manifest(case).get("message_defaults", {}))
    rows = [{**common, **message} for message in queue["messages"]]
    return [
        {"sha256": row["body_sha256"], "exchange": row["exchange"], "routing_key": row["routing_key"],
         "properties": row.get("properties", {})}
        for row in rows
    ]  # fmt: skip


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
        for row in part.rows(queue, bodies=True)
        if row.message is not None and row.reason is None
    ]
