"""A disk that fails for good: the broker ends, and says which error of which file ended it; what it had confirmed is there when the disk is well."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from tests.support.simulated import SMALL, SimulatedHost, take_all
from warrenmq.errors import BrokerClosed, Refusal

BODIES = [b"%d" % number + b"." * 300 for number in range(20)]


@pytest.mark.parametrize(
    ("code", "words"), [(errno.EROFS, "Read-only file system"), (errno.EIO, "Input/output error")]
)
def test_the_broker_says_what_its_supervisor_gave_up_after(code: int, words: str) -> None:
    settings = replace(SMALL, vhost_restart_intensity=(2, 300), commit_log=True)
    with SimulatedHost(1, settings) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        for body in BODIES:
            queue.publish(body).result()

        def fail(op: str, path: str) -> None:
            if op != "pread":
                raise OSError(code, os.strerror(code), path)

        host.disk.before_op = fail
        with pytest.raises(Refusal):
            queue.publish(b"refused").result(60)
        host.sleep(60)
        with pytest.raises(
            BrokerClosed, match=rf"gave up after OSError: .*{words}: '/data/.*close it and open"
        ):
            queue.publish(b"refused")
        host.disk.before_op = host.before_op
        host.crash(power_cut=True)
        assert take_all(host.open().queue("q"))[: len(BODIES)] == BODIES
