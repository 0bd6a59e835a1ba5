"""Queues of which more are used than there are file descriptors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

MANY_QUEUES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]),) * 2)
import warrenmq

with warrenmq.open(sys.argv[1], settings={"scheduler": sys.argv[2]}) as broker:
    queues = [broker.declare_queue(f"q{i}") for i in range(100)]
    for _ in range(2):
        for confirm in [queue.publish(b"x") for queue in queues]:
            confirm.result(20)
    with queues[0].consume(prefetch=1) as consumer:
        consumer.get(20).ack()
        for confirm in [queue.publish(b"x") for queue in queues[1:]]:
            confirm.result(20)
    assert [queue.info().ready for queue in queues] == [1] + [3] * 99
"""


@pytest.mark.parametrize(("scheduler", "limit"), [("threads", 60), ("pool", 100)])
def test_more_queues_are_used_than_have_room_for_their_files(
    tmp_path: Path, scheduler: str, limit: int
) -> None:
    command = [sys.executable, "-c", MANY_QUEUES, str(tmp_path), scheduler, str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
