"""A full disk is a state that passes: publishes are refused, the rest goes on, and nothing that was taken is lost."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.simulated import BOTH_PROFILES, EVERY_KIND, SimulatedHost, take_all
from warrenmq.queue.messages import Drain
from warrenmq.settings import Settings

LARGE = b"L" * 900


@pytest.fixture(params=BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def host(request: pytest.FixtureRequest) -> Iterator[SimulatedHost]:
    made = SimulatedHost(5, request.param)
    yield made
    made.close()


def test_a_drain_says_whether_confirms_are_owed_all_the_same(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"safe").result()
    drain = broker.inside.client.calls.call_queue
    assert drain("q", Drain())[0] is True
    host.disk.free_bytes = 0
    queue.publish(LARGE)
    assert drain("q", Drain())[0] is False
    host.disk.free_bytes = None
    host.sleep(3)
    assert drain("q", Drain())[0] is True


def test_publishes_are_refused_and_what_was_taken_is_confirmed_when_there_is_room(
    host: SimulatedHost,
) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"before").result()
    host.disk.free_bytes = 0
    taken = queue.publish(b"taken")
    host.sleep(0.1)
    assert not taken.done()
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        queue.publish(b"refused").result()
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        queue.publish_many([b"refused", b"too"]).result()
    host.sleep(10)
    assert not taken.done()
    host.disk.free_bytes = None
    taken.result()
    queue.publish(b"after").result()
    host.crash(power_cut=True)
    assert take_all(host.open().queue("q")) == [b"before", b"taken", b"after"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_without_an_inode_left_whatever_needs_another_file_is_refused_or_waits(
    host: SimulatedHost, code: int
) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"before").result()
    other = broker.declare_queue("other")

    def before_op(op: str, path: str) -> None:
        if op in {"create", "mkdir"} and not host.disk.exists(path):
            raise OSError(code, os.strerror(code), path)
        host.before_op(op, path)

    host.disk.before_op = before_op
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        other.publish(b"refused").result()
    taken = []
    for number in range(100):  # small ones and large ones, until the next file is needed
        taken.append((number, queue.publish(b"%d" % number + LARGE[: number % 2 * 900])))
        host.sleep(0.1)
    host.disk.before_op = host.before_op
    host.sleep(10)
    confirmed = [number for number, confirm in taken if confirm.exception() is None]
    other.publish(b"after").result()
    host.crash(power_cut=True)
    broker = host.open()
    bodies = [body.rstrip(b"L") for body in take_all(broker.queue("q"))]
    assert bodies == [b"before", *(b"%d" % number for number in confirmed)]
    assert 0 < len(confirmed) < len(taken)
    assert not broker.stats().damage


@pytest.mark.parametrize("profile", BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def test_a_broker_with_a_log_starts_on_a_disk_that_is_full_and_what_is_consumed_makes_room(
    profile: Settings,
) -> None:
    host = SimulatedHost(5, replace(profile, commit_log=True, disk_free_limit=0))
    queue = host.open().declare_queue("q")
    bodies = [b"%d" % number + LARGE for number in range(60)]
    for body in bodies:
        queue.publish(body).result()  # each in the log
    host.disk.free_bytes = 0
    host.crash(power_cut=False)
    queue = host.open().queue("q")
    assert take_all(queue) == bodies
    host.sleep(30)
    queue.publish(b"after").result()
    host.crash(power_cut=True)
    assert take_all(host.open().queue("q")) == [b"after"]
    host.close()


def test_consumers_and_acks_go_on_and_acks_reach_the_disk_when_there_is_room(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", b"2" * 500, b"3", b"4"]).result()
    host.disk.free_bytes = 0
    with queue.consume(prefetch=1) as consumer:
        for _ in range(3):
            next(consumer).ack()
        assert next(consumer).body == b"4"
    host.sleep(5)
    host.disk.free_bytes = None
    host.sleep(5)
    host.crash(power_cut=True)
    assert take_all(host.open().queue("q")) == [b"4"]


def test_a_store_without_room_keeps_what_it_was_given_and_frees_what_is_acked(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    for _ in range(10):
        queue.publish(LARGE).result()
    host.disk.free_bytes = 300
    taken = queue.publish(LARGE)
    host.sleep(10)
    assert not taken.done()
    for _ in range(6):
        queue.get().ack()
    taken.result()
    assert host.disk.free_bytes is not None, "files of acked messages were deleted, nothing else made room"
    host.disk.free_bytes = None
    host.crash(power_cut=True)
    assert take_all(host.open().queue("q")) == [LARGE] * 5


@pytest.mark.parametrize("seed", range(64))
def test_a_crash_on_a_full_disk_loses_nothing_and_tells_no_loss(seed: int) -> None:
    """Bodies go there before their acks are safe; the second half are power cuts."""
    power_cut = seed >= 32
    draw = Random(f"full {seed}")
    settings = replace(EVERY_KIND[seed % len(EVERY_KIND)], disk_free_limit=0)
    with SimulatedHost(seed, settings, traced=False) as host:
        queue = host.open().declare_queue("q")
        bodies = [b"%d " % number + bytes(draw.choice([5, 900, 900])) for number in range(30)]
        for body in bodies:
            queue.publish(body).result()
        host.sleep(1)
        host.disk.free_bytes = draw.choice([0, 0, 100])
        for _ in range(8):  # neither these nor the acks can be written
            queue.publish(bytes(50))
        acked = draw.randrange(1, 25)
        for _ in range(acked):
            delivery = queue.get()
            assert delivery is not None
            delivery.ack()
            host.sleep(draw.choice([0, 0, 0.1, 3]))
        host.crash(power_cut=power_cut)
        host.disk.free_bytes = None
        broker = host.open()
        # a write that found no room may have left its beginning at the end of a file
        assert not [each for each in broker.stats().damage if not power_cut or "in no file" in each.reason]
        assert {*take_all(broker.queue("q"))} >= {*bodies[acked:]}
        host.sleep(1)
        assert not [path for path in host.disk.paths() if path.endswith(".unsafe-acks")]


@pytest.mark.parametrize("room", range(0, 2000, 97))
@pytest.mark.parametrize("settings", BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def test_however_little_room_there_is_nothing_confirmed_is_lost(room: int, settings: Settings) -> None:
    with SimulatedHost(room, settings) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        host.disk.free_bytes = room
        confirms = {}
        for number in range(30):
            body = b"%d " % number + b"." * (600 if number % 3 == 0 else 20)
            confirms[body] = queue.publish(body)
            host.sleep(0.01)
        if room % 2:
            host.disk.free_bytes = None
            host.sleep(5)
        answers = {body: confirm.exception() for body, confirm in confirms.items() if confirm.done()}
        confirmed = [body for body, error in answers.items() if error is None]
        assert {type(error) for error in answers.values()} <= {type(None), warrenmq.Blocked}
        if room % 2:
            assert len(answers) == len(confirms), "everybody has an answer once there is room"
        host.crash(power_cut=True)
        host.disk.free_bytes = None
        found = take_all(host.open().queue("q"))
        unexpected = [body for body in found if answers.get(body) is not None]
        assert not unexpected, "what was refused does not come back"
        assert [body for body in found if body in confirmed] == confirmed
        host.check_trace()


def test_a_queue_with_a_journal_to_flush_waits_for_room(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"%d" % i for i in range(5)]).result()
    host.disk.free_bytes = 150
    taken = queue.publish_many([b"%d" % i for i in range(5, 7)])
    taken.result()
    host.disk.free_bytes = 0
    queue.get().ack()
    host.sleep(60)
    host.disk.free_bytes = None
    host.sleep(5)
    queue.publish(b"7").result()
    host.crash(power_cut=True)
    assert take_all(host.open().queue("q")) == [b"%d" % i for i in range(1, 8)]


def test_a_broker_that_is_closed_while_the_disk_is_full_loses_nothing_confirmed(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"confirmed").result()
    host.disk.free_bytes = 0
    taken = queue.publish(b"taken")
    broker.close()
    with pytest.raises(warrenmq.Nacked):
        taken.result(0)
    host.crash(power_cut=False)
    host.disk.free_bytes = None
    assert take_all(host.open().queue("q")) == [b"confirmed"]


@pytest.mark.parametrize("room", [0, 10, 20])
def test_a_queue_that_cannot_be_declared_is_not_there_by_half(host: SimulatedHost, room: int) -> None:
    broker = host.open()
    broker.declare_queue("old").publish(b"x").result()
    vhost_process = host.sim.whereis("vhost_process")
    host.disk.free_bytes = room
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        broker.declare_queue("new")
    assert host.sim.whereis("vhost_process") is vhost_process, "nothing crashed"
    with pytest.raises(warrenmq.NotFound):
        broker.queue("new")
    with pytest.raises(warrenmq.NotFound):
        broker.queue("new").publish(b"lost")
    assert not host.sim.is_registered("queue:new")
    host.disk.free_bytes = None
    broker.declare_queue("new").publish(b"y").result()
    host.crash(power_cut=True)
    broker = host.open()
    assert (take_all(broker.queue("old")), take_all(broker.queue("new"))) == ([b"x"], [b"y"])


def test_a_queue_that_was_refused_is_not_there_after_a_crash_either(host: SimulatedHost) -> None:
    broker = host.open()
    host.disk.free_bytes = 10
    with pytest.raises(warrenmq.Blocked):
        broker.declare_queue("new")
    host.crash(power_cut=False)
    host.disk.free_bytes = None
    with pytest.raises(warrenmq.NotFound):
        host.open().queue("new")


def test_exchanges_and_bindings_that_cannot_be_written_are_not_in_effect(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_queue("q")
    broker.declare_exchange("x", "fanout")
    host.disk.free_bytes = 0
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        broker.declare_exchange("y")
    with pytest.raises(warrenmq.NotFound):
        broker.publish("y", "", b"")
    with pytest.raises(warrenmq.Blocked, match="disk is full"):
        broker.bind("q", "x")
    with pytest.raises(warrenmq.Returned):
        broker.publish("x", "", b"", mandatory=True).result()
    host.disk.free_bytes = None
    broker.bind("q", "x")
    host.disk.free_bytes = 0
    for refused in (
        lambda: broker.unbind("q", "x"), lambda: broker.delete_exchange("x"), lambda: broker.delete_queue("q")
    ):  # fmt: skip
        with pytest.raises(warrenmq.Blocked, match="disk is full"):
            refused()
    host.disk.free_bytes = None
    broker.publish("x", "", b"still bound", mandatory=True).result()
    assert take_all(broker.queue("q")) == [b"still bound"]


@pytest.mark.parametrize("size", [20, 900])
def test_whatever_the_size_of_a_body_it_is_refused_at_once_and_a_close_tells_what_is_not_written(
    host: SimulatedHost, size: int
) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"confirmed").result(10)
    host.disk.free_bytes = 0
    taken = queue.publish_many([b"t" * size] * 3)
    host.sleep(0.1)
    for _ in range(3):
        with pytest.raises(warrenmq.Blocked, match="disk is full"):
            queue.publish(b"r" * size).result(1)
        with pytest.raises(warrenmq.Blocked, match="disk is full"), broker.tx():
            queue.publish(b"r" * size)
    began = host.sim.monotonic_ns()
    (told,) = broker.close()
    assert host.sim.monotonic_ns() - began < 10e9
    assert "3 messages of queue 'q'" in told
    with pytest.raises(warrenmq.Nacked):
        taken.result(0)
    host.crash(power_cut=False)
    host.disk.free_bytes = None
    assert take_all(host.open().queue("q")) == [b"confirmed"]


@pytest.mark.parametrize("profile", ["classic", "modern"])
@pytest.mark.parametrize("size", [20, 5_000])
def test_a_real_full_disk_refuses_takes_again_when_there_is_room_and_loses_nothing(
    tmp_path: Path, profile: str, size: int
) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path], check=False, capture_output=True
    ).returncode:
        pytest.skip("this needs the right to mount a file system")
    try:
        filler = tmp_path / "filler"
        with warrenmq.open(tmp_path / "data", settings={"profile": profile, "disk_free_limit": 0}) as broker:
            queue = broker.declare_queue("q")
            queue.publish(b"first").result(LIMIT)
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            for _ in range(5):
                with pytest.raises(warrenmq.Blocked, match="disk is full"):
                    queue.publish(bytes(size)).result(LIMIT)
                with pytest.raises(warrenmq.Blocked, match="disk is full"), broker.tx():
                    queue.publish(bytes(size))
            filler.unlink()
            # until it is full again
            confirms = [queue.publish(b"%d " % number + bytes(size)) for number in range(1_000)]
            taken = [number for number, confirm in enumerate(confirms) if _answer(confirm) is None]
        subprocess.run(["mount", "-o", "remount,size=64m", tmp_path], check=True)
        with warrenmq.open(tmp_path / "data", settings={"profile": profile}) as broker:
            found = take_all(broker.queue("q"))
        assert found[0] == b"first"
        assert [int(body.split()[0]) for body in found[1:]] == taken
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def _answer(confirm: warrenmq.Confirm) -> Exception | None:
    """Wait for a publisher's answer; None for a confirm, else Blocked."""
    try:
        confirm.result(LIMIT)
    except warrenmq.Blocked as blocked:
        return blocked
    return None
