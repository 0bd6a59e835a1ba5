"""`recover` of every golden directory: what comes out of our broker is what came out of RabbitMQ."""

from __future__ import annotations

from pathlib import Path

import pytest

import warrenmq
from tests.support import golden
from tests.support.directories import contents, drained
from tests.support.golden import CASES, manifest
from warrenmq.mend.recover import recover


@pytest.mark.parametrize("case", CASES)
def test_every_message_comes_out_as_rabbitmq_would_give_it(case: str, tmp_path: Path) -> None:
    node = golden.lay_out(case, tmp_path / "node")
    before = contents(node)
    report = recover(str(node), str(tmp_path / "data"), manifest(case)["ended_us"] + 60_000_000)
    assert contents(node) == before
    queues = [queue for queue in manifest(case)["queues"] if queue["durable"]]
    assert report.damaged == []
    assert report.fine
    for vhost in sorted({queue["vhost"] for queue in queues}):
        with warrenmq.open(tmp_path / "data", vhost=vhost) as broker:
            for queue in queues:
                if queue["vhost"] == vhost:
                    assert drained(broker, queue["name"]) == golden.as_drained(queue), queue["name"]
