"""The fence: once cut off, no guarded write is in progress, and none begins."""

import threading

import pytest

from tests.support.schedulers import LIMIT
from warrenmq.errors import Fenced
from warrenmq.runtime import Fence


def test_writes_are_allowed_until_the_fence_is_cut():
    fence, written = Fence(), []
    with fence.guard():
        written.append(1)
    fence.cut_off()
    with pytest.raises(Fenced), fence.guard():
        written.append(2)
    assert written == [1]
    assert fence.cut
    fence.cut_off()


def test_a_write_that_fails_leaves_the_fence_usable():
    fence = Fence()
    with pytest.raises(OSError, match="full"), fence.guard():
        raise OSError("full")
    with fence.guard():
        pass


def test_cutting_off_waits_for_the_write_in_flight_and_refuses_the_next():
    fence = Fence()
    writing, finish, log = threading.Event(), threading.Event(), []

    def write():
        with fence.guard():
            writing.set()
            finish.wait(LIMIT)
            log.append("written")
        try:
            with fence.guard():
                log.append("written again")
        except Fenced:
            log.append("fenced")

    def cut():
        fence.cut_off()
        log.append("cut off")

    writer, cutter = threading.Thread(target=write), threading.Thread(target=cut)
    writer.start()
    assert writing.wait(LIMIT)
    cutter.start()
    while not fence.cut:
        threading.Event().wait(0.001)
    assert log == []
    finish.set()
    writer.join(LIMIT)
    cutter.join(LIMIT)
    assert sorted(log) == ["cut off", "fenced", "written"]
    assert log[0] == "written"


def test_under_simulation_cutting_off_waits_too_but_not_for_the_killed(runtime):
    """A task that is killed at a checkpoint inside a write holds the lock no more; its write never happens."""
    fence, gate, log = Fence(runtime.lock()), runtime.event(), runtime.channel()
    inside = runtime.event()

    from tests.support.schedulers import Worker

    def write(_server):
        with fence.guard():
            inside.set()
            gate.wait(LIMIT)
            log.put("written")

    writer, cutter = runtime.start(Worker), runtime.start(Worker)
    runtime.cast(writer, write)
    assert inside.wait(LIMIT)

    def cut(_server):
        fence.cut_off()
        log.put("cut off")

    runtime.cast(cutter, cut)
    runtime.event().wait(0.01)
    assert log.empty()
    gate.set()
    assert [log.get(timeout=LIMIT), log.get(timeout=LIMIT)] == ["written", "cut off"]
