"""A disk that fails for good: the broker ends, and says which error of which file ended it; what it had
confirmed is there when the disk is well.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from tests.support.simulated import SMALL, SimulatedHost, take_all
from warrenmq.errors import BrokerClosed, Nacked, Refusal

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
            BrokerClosed, match=rf"gave up after SyncFailed: .*{words}: '/data/.*close it and open"
        ):
            queue.publish(b"refused")
        host.disk.before_op = host.before_op
        host.crash(power_cut=True)
        assert take_all(host.open().queue("q"))[: len(BODIES)] == BODIES


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(("size", "extension"), [(10, ".qi"), (10, ".qs"), (300, ".rdq")])
def test_a_sync_that_finds_no_room_is_not_tried_again_as_if_nothing_had_been_dropped(
    size: int, extension: str, code: int
) -> None:
    """A file system that allocates late, or on a network, says so only then; a write that finds none is another matter."""
    with SimulatedHost(1, SMALL) as host:
        queue = host.open().declare_queue("q")
        queue.publish(b"first").result()
        host.disk.fail_next("datasync", extension, code)
        lost = queue.publish(b"x" * size)
        with pytest.raises(Nacked):
            lost.result(60)
        second = queue.publish(b"second")
        second.result(60)
        host.crash(power_cut=True)
        bodies = take_all(host.open().queue("q"))
        assert [body for body in bodies if len(body) < 10] == [b"first", b"second"]
