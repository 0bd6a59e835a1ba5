"""`recover` of every golden directory: what comes out of our broker is what came out of RabbitMQ."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from tests.support.golden import CASES, files, manifest
from warrenmq.inspect.convert import properties_as_plain
from warrenmq.mend.recover import recover


def lay_out(case: str, where: Path) -> Path:
    for path, data in files(case).items():
        file = where / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return where


def expected(case: str, queue: dict[str, Any]) -> list[dict[str, Any]]:
    common = queue.get("message_defaults", manifest(case).get("message_defaults", {}))
    rows = [{**common, **message} for message in queue["messages"]]
    return [
        {"sha256": row["body_sha256"], "exchange": row["exchange"], "routing_key": row["routing_key"],
         "properties": row.get("properties", {})}
        for row in rows
    ]  # fmt: skip


def drained(broker: warrenmq.Broker, queue: str) -> list[dict[str, Any]]:
    return [
        {"sha256": hashlib.sha256(each.body).hexdigest(), "exchange": each.exchange, "routing_key": each.routing_key,
         "properties": properties_as_plain(each.properties)}
        for each in iter(lambda: broker.queue(queue).get(no_ack=True), None)
    ]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_message_comes_out_as_rabbitmq_would_give_it(case: str, tmp_path: Path) -> None:
    node = lay_out(case, tmp_path / "node")
    report = recover(str(node), str(tmp_path / "data"), manifest(case)["ended_us"] + 60_000_000)
    queues = [queue for queue in manifest(case)["queues"] if queue["durable"]]
    assert report.damaged == []
    assert report.fine
    for vhost in {queue["vhost"] for queue in queues}:
        with warrenmq.open(tmp_path / "data", vhost=vhost) as broker:
            for queue in queues:
                if queue["vhost"] == vhost:
                    assert drained(broker, queue["name"]) == expected(case, queue), queue["name"]
