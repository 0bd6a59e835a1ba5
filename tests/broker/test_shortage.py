"""No threads, memory or file descriptors left: the one request is refused, everything that runs goes on."""

from __future__ import annotations

import errno
import itertools
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika.exceptions
import pytest
from pykka import ActorRegistry

import warrenmq
from tests.amqp.raw_client import RawClient
from tests.support.limits import LIMIT
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from tests.support.source_tree import ROOT
from warrenmq.amqp import serve
from warrenmq.runtime import Server, Simulation, Threads
from warrenmq.runtime.shortage import no_thread
from warrenmq.supervisors import ChildSpec, Supervisor

START = threading.Thread.start


@pytest.fixture
def exhausted(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While this event is set the system has no more threads."""
    none_left = threading.Event()

    def start(thread: threading.Thread) -> None:
        if none_left.is_set():
            msg = "can't start new thread"
            raise RuntimeError(msg)
        START(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return none_left


def labels(broker: warrenmq.Broker) -> dict[str, int]:
    return {actor.name: actor.restarts for actor in broker.stats().actors}


def test_the_first_use_of_a_queue_without_a_thread_is_refused_and_nothing_else_notices(
    tmp_path: Path, exhausted: threading.Event
) -> None:
    with warrenmq.open(tmp_path, runtime=Threads()) as broker:
        queue = broker.declare_queue("there")
        queue.get()  # its process starts
        before, registered = labels(broker), len(ActorRegistry.get_all())
        exhausted.set()
        for name in ("new", "new", "other"):
            with pytest.raises(
                warrenmq.ResourceError, match=f"no thread could be started for 'queue:{name}'"
            ):
                broker.declare_queue(name).publish(b"y").result(10)
        queue.publish(b"x" * 5000).result(10)
        queue.get().ack()
        assert labels(broker) == before, "nothing was restarted"
        assert len(ActorRegistry.get_all()) == registered
        exhausted.clear()
        broker.declare_queue("new").publish(b"y").result(10)
    with warrenmq.open(tmp_path) as broker:
        assert [(each.name, each.ready) for each in broker.stats().queues] == [
            ("new", 1),
            ("other", 0),
            ("there", 0),
        ]


def test_on_a_pool_everything_goes_on_without_a_new_thread(
    tmp_path: Path, exhausted: threading.Event
) -> None:
    with warrenmq.open(tmp_path, settings={"scheduler": "pool"}) as broker, serve(broker, port=0) as server:
        broker.declare_queue("there").publish(b"x").result(LIMIT)
        client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port))
        exhausted.set()
        before = labels(broker)
        for number in range(20):
            queue = broker.declare_queue(f"new{number}")
            queue.publish(b"x" * 5000).result(LIMIT)
            queue.get().ack()
        channel = client.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "there", b"y")
        assert channel.basic_get("there", auto_ack=True)[2] == b"x"
        assert before.items() <= labels(broker).items(), "nothing was restarted"
        client.close()
    exhausted.clear()
    with warrenmq.open(tmp_path) as broker:
        assert len(broker.stats().queues) == 21


def test_a_broker_that_cannot_start_says_so_and_leaves_the_directory_free(
    tmp_path: Path, exhausted: threading.Event
) -> None:
    exhausted.set()
    with pytest.raises(warrenmq.ResourceError, match="no thread could be started"):
        warrenmq.open(tmp_path)
    exhausted.clear()
    with warrenmq.open(tmp_path) as broker:
        broker.declare_queue("q")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scheduler", ["pool", "threads"])
def test_no_start_waits_for_a_thread_that_dies_in_its_first_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str, shared: bool
) -> None:
    """It waited for ever, and kept the directory locked."""
    numbers, dies, ended = itertools.count(1), 0, threading.Event()
    begin = threading.Thread._bootstrap_inner

    def first_steps(thread: threading.Thread) -> None:
        if thread.name != "starter" and next(numbers) == dies:
            ended.set()
            raise MemoryError
        begin(thread)

    def use() -> None:
        with (
            suppress(warrenmq.Error),
            warrenmq.open(tmp_path, shared=shared, settings={"scheduler": scheduler}) as broker,
        ):
            broker.declare_queue("q").publish(b"x").result(LIMIT)

    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", first_steps)
    for number in range(1, 100):
        numbers, dies = itertools.count(1), number
        ended.clear()
        starter = threading.Thread(target=use, name="starter", daemon=True)
        START(starter)
        starter.join(LIMIT)
        assert not starter.is_alive(), number
        dies = 0
        warrenmq.open(tmp_path).close()
        if not ended.is_set():
            break
    assert number > 2


def test_the_first_use_of_a_queue_without_file_descriptors_is_refused(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path) as broker:
        queue = broker.declare_queue("there")
        queue.publish(b"x").result(10)
        before = labels(broker)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            new = broker.declare_queue("new")
            for use in (new.get, lambda: new.publish(b"x").result(10)):
                with pytest.raises(warrenmq.ResourceError, match=r"Too many open files"):
                    use()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert labels(broker) == before
        assert new.get() is None


LIMITED = """
import resource, sys, warrenmq
from warrenmq.amqp import serve

data, scheduler = sys.argv[1:]
with warrenmq.open(data, settings={"scheduler": scheduler}) as broker, serve(broker, port=0) as server:
    there, other = broker.declare_queue("there"), broker.declare_queue("other")
    for queue in (there, other):
        queue.publish(b"x" * 5000).result(30)
    large = bytes(40 << 20)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (60 << 20), -1))
    for number in range(12):  # more than any supervisor would restart
        for publish in (lambda: there.publish(large), lambda: there.publish_many([large[: 8 << 20]] * 5)):
            try:
                publish()
            except warrenmq.ResourceError as error:
                assert str(error).startswith("there is no memory for messages of 41943040 bytes; free some"), error
            else:
                sys.exit("it was taken")
        other.publish(b"y").result(30)
    print(server.port, flush=True)
    sys.stdin.read()
    assert [each.name for each in broker.stats().actors if each.restarts] == []
    print(len(there), len(other))
"""


@pytest.mark.parametrize("scheduler", ["threads", "pool"])
def test_a_message_for_which_there_is_no_memory_is_refused_under_a_limit_of_the_system(
    tmp_path: Path, scheduler: str
) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path), scheduler]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", int(process.stdout.readline()))
        ) as client:
            there = client.channel()
            there.confirm_delivery()
            refused = client.channel()
            refused.confirm_delivery()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="there is no memory"):
                refused.basic_publish("", "there", bytes(40 << 20))
            there.basic_publish("", "there", b"z")
        process.stdin.close()
        assert process.stdout.read() == "2 13\n"
    assert process.returncode == 0


TOO_LARGE_TO_READ = """
import os, resource, sys, warrenmq

def opened():
    return warrenmq.open(sys.argv[1], settings={"scheduler": "pool", "profile": sys.argv[2]})

if not os.fork():
    with opened() as broker:
        broker.declare_queue("large").publish_many([b"small", bytes(40 << 20)]).result(30)
    os._exit(0)
os.wait()
with opened() as broker:
    large, other = broker.queue("large"), broker.declare_queue("other")
    held = large.get(timeout=30)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (20 << 20), -1))
    for number in range(12):  # more than all supervisors would restart
        for read, what in ((large.get, "the next message"), (lambda: large.peek(2), "2 messages")):
            try:
                read()
            except warrenmq.ResourceError as error:
                assert str(error).startswith(f"there is no memory for {what}; free some"), error
            else:
                sys.exit("it was read")
        other.publish(b"y").result(30)
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert [each.name for each in broker.stats().actors if each.restarts] == []
    held.nack()
    found = [large.get() for _ in range(2)]
    print([(len(each.body), each.redelivered) for each in found], len(large), len(other))
"""


@pytest.mark.parametrize("profile", ["modern", "classic"])
def test_a_body_for_which_there_is_no_memory_is_refused_and_stays_in_its_queue(
    tmp_path: Path, profile: str
) -> None:
    command = [sys.executable, "-c", TOO_LARGE_TO_READ, str(tmp_path), profile]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"[(5, True), ({40 << 20}, False)] 0 12\n")


class _Child(Server):
    def init(self, problem: Callable[[], BaseException | None]) -> None:
        if (error := problem()) is not None:
            raise error

    def handle_cast(self, message: Any) -> None:
        raise message if isinstance(message, Exception) else ValueError(message)


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.EMFILE, "Too many open files"), no_thread(MemoryError(), "x")]
)
def test_a_restart_that_lacks_something_is_tried_until_it_succeeds_and_does_not_count(
    error: BaseException,
) -> None:
    problem: list[BaseException] = []
    with Simulation(3) as sim:
        spec = ChildSpec("child", _Child, args=(lambda: problem[0] if problem else None,), name="child")
        root = Supervisor.start_link(
            runtime=sim, children=[spec], strategy="one_for_one", intensity=1, period=1000.0
        )
        problem.append(error)
        sim.cast("child", "crash")
        sim.event().wait(100)
        assert root.is_alive()
        assert not sim.is_registered("child")
        problem.clear()
        sim.event().wait(2)
        assert sim.is_registered("child")


def test_an_actor_that_ends_for_want_of_memory_is_started_again_however_often_that_is() -> None:
    with Simulation(3) as sim:
        spec = ChildSpec("child", _Child, args=(lambda: None,), name="child")
        root = Supervisor.start_link(
            runtime=sim, children=[spec], strategy="one_for_all", intensity=1, period=1000.0
        )
        for _ in range(5):
            sim.cast("child", MemoryError())
            sim.event().wait(2)
            assert sim.is_registered("child")
        for _ in range(2):
            sim.cast("child", ValueError("it is wrong"))
            sim.event().wait(2)
        assert not root.is_alive()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_cannot_start_for_a_while_the_rest_goes_on_and_all_comes_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    host = SimulatedHost(seed, BOTH_PROFILES[draw.choice(sorted(BOTH_PROFILES))])
    share = 0.0
    launch = host.sim.launch

    def sometimes(ref: Any, label: str, loop: Callable[[], None]) -> None:
        if draw.random() < share:
            ActorRegistry.unregister(ref)
            raise no_thread(RuntimeError("can't start new thread"), label)
        launch(ref, label, loop)

    monkeypatch.setattr(host.sim, "launch", sometimes)
    try:
        broker = host.open()
        broker.declare_queue("q0")
        share = draw.choice([0.3, 0.8, 1.0])
        confirmed: dict[str, list[bytes]] = {"q0": []}
        for number in range(30):
            match draw.randrange(6):
                case 0:
                    try:
                        confirmed[broker.declare_queue(f"q{number}").name] = []
                    except warrenmq.ResourceError:
                        with pytest.raises(warrenmq.NotFound):
                            broker.queue(f"q{number}")
                    except warrenmq.BrokerClosed:
                        # the vhost has waited for threads itself, and too long for a caller
                        pass
                    except warrenmq.ProcessDied:  # a store was killed, and the vhost was about to go with it
                        pass
                case 1:
                    victim = draw.choice(
                        ["queue:" + name for name in confirmed] + ["msg_store_persistent"] * (number % 5 == 0)
                    )
                    if host.sim.is_registered(victim):
                        host.sim.kill(host.sim.whereis(victim))
                case 2:
                    host.sleep(draw.random() * 2)
                case _:
                    name, body = draw.choice(sorted(confirmed)), b"%d" % number + b"." * draw.choice([1, 300])
                    if host.sim.is_registered("queue:" + name):
                        try:
                            broker.queue(name).publish(body, timeout=0).result(0.5)
                            confirmed[name].append(body)
                        except (warrenmq.Blocked, warrenmq.Nacked, warrenmq.BrokerClosed, TimeoutError):
                            pass
            assert broker.is_open
        share = 0.0
        host.sleep(5)
        for name, bodies in confirmed.items():
            found = [delivery.body for delivery in iter(broker.queue(name).get, None)]
            assert [body for body in found if body in bodies] == bodies
        broker.close()
        host.check_trace()
    finally:
        host.close()


def test_connections_and_channels_without_a_thread_are_refused_one_by_one(
    tmp_path: Path, exhausted: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"durability": "os"}
    with (
        warrenmq.open(tmp_path, settings=settings, runtime=Threads()) as broker,
        serve(broker, port=0) as server,
    ):
        there = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port))
        channel = there.channel()
        channel.queue_declare("q")
        channel.basic_get("q")  # its process starts
        exhausted.set()
        for _ in range(3):
            with RawClient(server.port) as refused:
                refused.send(b"AMQP\0\0\x09\x01")
                assert refused.at_end()
        with pytest.raises(
            pika.exceptions.ChannelClosedByBroker, match="no thread could be started"
        ) as closed:
            there.channel()
        assert closed.value.reply_code == 506
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no thread could be started"):
            channel.queue_declare("new")
            channel.basic_get("new")
        exhausted.clear()
        again = there.channel()
        again.confirm_delivery()
        again.basic_publish("", "q", b"x")
        assert again.basic_get("q", auto_ack=True)[2] == b"x"
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port)).close()
        there.close()
    said = caplog.text
    assert said.count("connection refused") == 3
    assert said.count("channel refused") == 1
    assert "Traceback" not in said


SMALL_FILES = """
import resource, sys, warrenmq

hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
with warrenmq.open(sys.argv[1], settings={"scheduler": sys.argv[2], "profile": sys.argv[3]}) as broker:
    queues = [broker.declare_queue(f"q{number}") for number in range(4)]
    for queue in queues:
        for size in (100, 10_000):
            queue.publish(bytes(size)).result(30)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), hard))
    left, confirms = [2, 2, 2, 2], []
    for number, queue in enumerate(queues):
        while not any(each == number and confirm.exception() for each, confirm in confirms):
            confirms.append((number, queue.publish(bytes(10_000 if len(confirms) % 2 else 100))))
            try:
                confirms[-1][1].result(0.01)
            except (TimeoutError, warrenmq.Blocked):
                pass
    queues[0].get().ack()
    left[0] -= 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    refused = []
    for number, confirm in confirms:
        try:
            confirm.result(30)
            left[number] += 1
        except warrenmq.Blocked as error:
            refused.append(str(error))
    for queue in queues:
        queue.publish(b"after").result(30)
    assert [each.name for each in broker.stats().actors if each.restarts] == []
    assert all("the system lets no file grow" in each or "the disk is full" in each for each in refused), refused[0]
    assert broker.close() == ()
with warrenmq.open(sys.argv[1]) as broker:
    assert broker.stats().damage == ()
    assert [len(broker.queue(f"q{number}")) for number in range(4)] == [count + 1 for count in left]
print(len(refused) > 3)
"""


@pytest.mark.parametrize("scheduler", ["threads", "pool"])
@pytest.mark.parametrize("profile", ["modern", "classic"])
@pytest.mark.parametrize("limit", [0, 40_000])
def test_files_that_may_not_grow_are_what_a_full_disk_is(
    tmp_path: Path, scheduler: str, profile: str, limit: int
) -> None:
    command = [sys.executable, "-c", SMALL_FILES, str(tmp_path), scheduler, profile, str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_clients_whose_queues_cannot_be_opened_get_nacks_and_the_log_one_line_that_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        warrenmq.open(tmp_path) as broker,
        serve(broker, port=0) as server,
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port)) as client,
    ):
        channel = client.channel()
        channel.confirm_delivery()
        for number in range(30):
            channel.queue_declare(f"q{number}", durable=True)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            for number in range(30):
                with pytest.raises(pika.exceptions.NackError):
                    channel.basic_publish("", f"q{number}", b"x")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in range(30):
            channel.basic_publish("", f"q{number}", b"x")
    (line,) = [each.getMessage() for each in caplog.records if "cannot be opened" in each.getMessage()]
    assert "Too many open files" in line
