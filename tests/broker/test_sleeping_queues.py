"""Queues without a process: before their first use, and when nobody has used them for long."""

import errno
import os
import random
import sys
import threading
import time
from dataclasses import replace
from itertools import count, product
from types import SimpleNamespace

import pytest

import warrenmq
from tests.support.simulated import BOTH_PROFILES, SMALL, SimulatedHost
from warrenmq.actors.queue.process import QueueProcess
from warrenmq.queue.messages import Info, ListConsumers
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.runtime.messages import Call
from warrenmq.settings import Settings
from warrenmq.trace.reader import open_trace

SLEEPY = {name: replace(settings, queue_sleep_after=1_000) for name, settings in BOTH_PROFILES.items()}


def awake(broker):
    """The queues that have a process, with the restarts that are told of it."""
    actors = broker.stats().actors
    return {each.name.removeprefix("queue:"): each.restarts for each in actors if each.kind == "QueueProcess"}


def folders(host, broker):
    return host.disk.listdir(broker.inside.vhost.directory.queues)


@pytest.fixture(params=SLEEPY)
def host(request):
    with SimulatedHost(5, SLEEPY[request.param]) as host:
        yield host
        host.check_trace()


def test_a_queue_has_no_process_and_no_folder_before_it_is_used(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    assert (len(queue), queue.purge(), [each.ready for each in broker.stats().queues]) == (0, 0, [0])
    assert (awake(broker), folders(host, broker)) == ({}, [])
    host.crash(power_cut=True)
    broker = host.open()
    assert broker.stats().damage == (), "a folder that never was is not missed"
    broker.queue("q").publish(b"x").result()
    assert awake(broker) == {"q": 0}
    broker.queue("q").get().ack()
    broker.close()
    host.disk.rmtree(
        f"{broker.inside.vhost.directory.queues}/{host.disk.listdir(broker.inside.vhost.directory.queues)[0]}"
    )
    broker = host.open()
    (told,) = broker.stats().damage
    assert "its folder is gone" in told.reason, "one that was there is"
    broker.close()


def test_a_queue_that_nobody_uses_sleeps_and_is_the_same_when_it_wakes(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    for number in range(3):
        queue.publish(b"%d" % number).result()
        delivery = queue.get()
        host.sleep(5)
        assert awake(broker) == {"q": 0}, "somebody holds a message"
        delivery.ack()
        host.sleep(5)
        assert awake(broker) == {}
        assert broker.inside.vhost.figures["q"]().published == number + 1
    broker.close()
    broker = host.open()
    assert awake(broker) == {}
    assert broker.queue("q").get() is None
    broker.close()


def test_a_queue_that_is_only_asked_for_its_figures_sleeps(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"x").result()
    for _ in range(50):
        queue.info()
        broker.inside.client.calls.call_queue("q", ListConsumers())
        broker.stats()
        host.sleep(0.1)
    assert awake(broker) == {}
    queue.get().ack()
    assert awake(broker) == {"q": 0}
    broker.close()


def test_a_question_that_comes_as_a_queue_looks_whether_it_may_sleep_keeps_it_awake_once(host, monkeypatch):
    broker = host.open()
    broker.declare_queue("q").publish(b"x").result()
    look, looks = QueueProcess._look_idle, []

    def with_a_question(process):
        looks.append(process)
        if len(looks) == 1:
            process.actor_inbox.send(Call(Info(), SimpleNamespace(begin=lambda: None, reply=lambda _: None)))
        look(process)

    monkeypatch.setattr(QueueProcess, "_look_idle", with_a_question)
    host.sleep(10)
    assert len(looks) == 2
    assert awake(broker) == {}
    broker.close()


LARGE = bytes(5_000)  # it goes to the store
HELD = [b"0", LARGE, b"2", LARGE + b"3"]


def delivered(queue):
    found = []
    while (delivery := queue.get()) is not None:
        found.append((delivery.body, delivery.redelivered))
        delivery.ack()
    return found


def with_messages(broker, name="q", **options):
    queue = broker.declare_queue(name, **options)
    queue.publish_many(HELD).result()
    queue.get().nack()
    return queue


@pytest.mark.parametrize(
    ("end", "arguments"),
    [
        *product(("none", "clean", "crash", "power cut", "store killed", "published"), ({},)),
        *product(("none", "clean"), ({"x-max-priority": 2}, {"x-max-length-bytes": 100_000})),
    ],
)
def test_a_queue_sleeps_with_its_messages(host, end, arguments):
    broker = host.open()
    queue = with_messages(broker, arguments=arguments)
    broker.declare_queue("small", arguments=arguments).publish_many([b"1", b"2"]).result()
    host.sleep(5)
    assert awake(broker) == {}
    if end == "clean":
        broker.close()
        broker = host.open()
    elif end in ("crash", "power cut"):
        host.crash(power_cut=end == "power cut")
        broker = host.open()
    elif end == "store killed":
        host.sim.kill(broker.inside.local().runtime.whereis("msg_store_persistent"))
        host.sleep(0.5)
    assert len(broker.queue("small")) == 2
    if end != "power cut":
        assert "small" not in awake(broker), "a start opens those with messages in a store alone"
    queue = broker.queue("q")
    figures = broker.inside.vhost.figures["q"]()
    assert (len(queue), figures.ready, queue.info().ready) == (4, 4, 4)
    if "x-max-length-bytes" in arguments:
        assert figures.ready_bytes == sum(map(len, HELD))
    if end == "published":
        queue.publish(b"4").result()
        assert awake(broker) == {"q": 0}
    expected = [(body, number == 0) for number, body in enumerate(HELD)]
    found = delivered(queue)
    assert found[:4] == expected or (end == "power cut" and [body for body, _ in found] == HELD)
    host.sleep(5)
    assert (awake(broker), len(queue)) == ({}, 0)
    broker.close()
    broker = host.open()
    assert broker.stats().damage == ()
    assert [body for body, _ in delivered(broker.queue("small"))] == [b"1", b"2"]
    broker.close()


OPENED = {
    "large": (LARGE, {}, {}),
    "expiring": (b"x", {"expiration": "600000"}, {}),
    "limited": (b"x", {}, {"x-max-length": 10}),
}
"""Queues that a start opens after a kill: a body, options of its publish, arguments."""


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_queue_that_was_killed_awake_sleeps_if_its_files_say_all(host, power_cut):
    broker = host.open()
    small = broker.declare_queue("small")
    small.publish_many([b"1", b"2", b"3"]).result()
    small.get()
    broker.declare_queue("priorities", arguments={"x-max-priority": 2}).publish(b"x", priority=2).result()
    for name, (body, options, arguments) in OPENED.items():
        broker.declare_queue(name, arguments=arguments).publish(body, **options).result()
        broker.queue(name).publish(b"y").result()
    version_2 = broker.inside.vhost.settings.queue_version == 2
    for life in range(2):
        host.sleep(0.1)
        host.crash(power_cut=power_cut)
        broker = host.open()
        assert awake(broker).keys() == OPENED.keys() | (set() if version_2 else {"small", "priorities"})
        assert [len(broker.queue(name)) for name in ("small", "priorities", "large")] == [3, 1, 2], life
    assert delivered(broker.queue("small")) == [(b"1", True), (b"2", True), (b"3", True)]
    assert delivered(broker.queue("priorities")) == [(b"x", True)]
    broker.queue("small").publish(b"4").result()
    broker.close()
    broker = host.open()
    assert broker.stats().damage == ()
    assert delivered(broker.queue("small")) == [(b"4", False)]
    broker.close()


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_a_get_that_finds_nothing_keeps_no_queue_awake(host, timeout):
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"x", persistent=False).result()
    queue.purge()
    assert queue.get(timeout) is None
    host.sleep(5)
    assert awake(broker) == {}
    broker.close()


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_a_get_without_ack_keeps_no_queue_awake(host, timeout):
    broker = host.open()
    queue = broker.declare_queue("q")
    if timeout is None:
        queue.publish(b"x").result()
    else:
        host.sim.spawn(lambda: queue.publish(b"x"))
    assert queue.get(timeout, no_ack=True).body == b"x"
    host.sleep(5)
    assert awake(broker) == {}
    broker.close()


def test_a_queue_stays_awake_with_messages_that_no_stop_keeps_or_that_expire(host):
    broker = host.open()
    broker.declare_queue("transient").publish(b"x", persistent=False).result()
    broker.declare_queue("not durable", durable=False).publish(b"x").result()
    broker.declare_queue("expires").publish(b"x", expiration="30000").result()
    host.sleep(5)
    assert awake(broker).keys() == {"transient", "not durable", "expires"}
    for name in awake(broker):
        broker.queue(name).get().ack()
        broker.queue(name).publish(b"y").result()
    host.sleep(5)
    assert awake(broker).keys() == {"not durable"}
    broker.close()


def test_a_queue_that_sleeps_with_messages_is_deleted_with_them(host):
    broker = host.open()
    queue, kept = with_messages(broker), with_messages(broker, "kept")
    host.sleep(5)
    with pytest.raises(warrenmq.PreconditionFailed, match="4 ready messages"):
        queue.delete(if_empty=True)
    assert queue.delete() == 4
    host.sleep(5)
    assert [store.messages for store in broker.stats().stores if store.name == "msg_store_persistent"] == [2]
    assert kept.purge() == 4
    broker.close()


def test_a_policy_shortens_a_queue_that_sleeps(host):
    broker = host.open()
    with_messages(broker)
    host.sleep(5)
    broker.set_policy("p", "q", {"message-ttl": 100_000})
    assert awake(broker) == {}, "that is for messages to come"
    broker.set_policy("p", "q", {"max-length": 1})
    assert [body for body, _ in delivered(broker.queue("q"))] == HELD[-1:]
    broker.close()


def test_counts_of_returns_are_kept_while_a_queue_sleeps(host):
    broker = host.open()
    queue = with_messages(broker, arguments={"x-delivery-limit": 1})
    host.sleep(5)
    assert awake(broker) == {}
    queue.get().nack()
    assert [body for body, _ in delivered(queue)] == HELD[1:]
    broker.close()


def test_a_change_to_the_files_of_a_queue_that_sleeps_is_found_by_a_start():
    with SimulatedHost(5, SLEEPY["modern"]) as host:
        broker = host.open()
        with_messages(broker)
        host.sleep(5)
        (folder,) = folders(host, broker)
        path = f"{broker.inside.vhost.directory.queues}/{folder}/0.qi"
        broker.close()
        data = bytearray(host.disk.read(path))
        data[70] ^= 1
        host.disk.replace(path, bytes(data))
        broker = host.open()
        assert path.endswith(broker.stats().damage[0].file)
        assert awake(broker) == {"q": 0}


def test_a_queue_with_a_consumer_stays_awake_and_one_of_a_time_goes_in_its_time(host):
    broker = host.open()
    with broker.declare_queue("consumed").consume() as consumer:
        broker.declare_queue("expires", arguments={"x-expires": 4_000})
        broker.declare_queue("policy")
        host.sleep(3)
        assert awake(broker) == {"consumed": 0, "expires": 0}
        broker.set_policy("p", "policy", {"expires": 4_000})
        host.sleep(3)
        assert [str(each) for each in broker.queues()] == ["consumed", "policy"]
        broker.queue("consumed").publish(b"x").result()
        assert next(consumer).body == b"x"
        host.sleep(3)
        assert [str(each) for each in broker.queues()] == ["consumed"]
    broker.close()


def test_dead_and_delayed_messages_wake_their_queue_and_keep_their_order(host):
    broker = host.open()
    dead = broker.declare_queue("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    jobs = broker.declare_queue("jobs", arguments=arguments)
    for number in range(2):
        for body in (b"1", b"2", b"3"):
            jobs.publish(body).result()
            jobs.get().reject(requeue=False)
        host.sleep(0 if number else 0.1)
        for body in (b"1", b"2", b"3"):
            delivery = dead.get()
            assert delivery.body == body
            delivery.ack()
        host.sleep(5)
        assert awake(broker) == {}
    dead.publish(b"later", delay=10).result()
    host.sleep(9)
    assert "dead" not in awake(broker)
    host.sleep(2)
    assert dead.get().body == b"later"
    broker.close()


def test_a_queue_that_sleeps_is_deleted_declared_again_and_bound(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"x").result()
    queue.get().ack()
    host.sleep(5)
    assert (awake(broker), queue.delete(if_empty=True, if_unused=True)) == ({}, 0)
    assert folders(host, broker) == []
    broker.declare_exchange("all", "fanout")
    broker.declare_queue("q")
    broker.bind("q", "all")
    host.crash(power_cut=True)
    broker = host.open()
    broker.publish("all", "", b"y").result()
    assert broker.queue("q").get().body == b"y"
    broker.close()


@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_an_empty_queue_gives_large_files_back_soon_and_small_ones_when_nobody_uses_it(profile):
    with SimulatedHost(5, Settings(profile=profile, queue_sleep_after=2_000)) as host:
        broker = host.open()
        sleeps, consumed = broker.declare_queue("sleeps"), broker.declare_queue("consumed")

        def files(queue):
            (folder,) = broker.inside.vhost.directory.folders(queue.name, None)
            return {f"{folder}/{name}" for name in host.disk.listdir(folder) if name[0] in "0123456789j"}

        def use(queue, bodies):
            """Returns the bytes of its files half a second after it was emptied."""
            queue.publish_many(bodies).result()
            host.sleep(0.3)
            for _ in bodies:
                queue.get().ack()
            host.sleep(0.5)
            return sum(map(host.disk.size, files(queue)))

        few = use(sleeps, [bytes(100)])
        assert 0 < few < use(sleeps, [bytes(100)] * 10)
        assert use(sleeps, [bytes(3_000)] * 1_000) < few
        used_in_turn = use(sleeps, [bytes(100)]), use(consumed, [bytes(100)])
        with consumed.consume():
            host.sleep(5)
            assert awake(broker) == {"consumed": 0}
            assert sum(map(host.disk.size, files(sleeps))) < used_in_turn[0]
            assert sum(map(host.disk.size, files(consumed))) < used_in_turn[1]
        broker.close()
        host.check_trace()


def test_an_empty_queue_keeps_no_file_open_and_goes_on_in_the_same(tmp_path):
    def is_open(path):
        links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
        return any(os.path.lexists(link) and os.readlink(link) == str(path) for link in links)

    with warrenmq.open(tmp_path / "data") as broker:
        queue = broker.declare_queue("q")
        for number in range(3):
            queue.publish(b"%d" % number).result()
            (path,) = tmp_path.rglob("0.qi")
            assert is_open(path)
            delivery = queue.get()
            assert delivery.body == b"%d" % number
            delivery.ack()
            while is_open(path):
                time.sleep(0.05)
            assert path.exists()


def test_queues_that_are_declared_at_once_share_a_sync():
    with SimulatedHost(5, SMALL, traced=False) as host:
        broker = host.open()
        syncs, answered = [], []

        def before_op(op, path):
            if path.endswith("definitions.log"):
                syncs.append(op)
                host.sleep(0.01)

        host.disk.before_op = before_op
        for number in range(10):
            host.sim.spawn(
                lambda n=number: answered.append(broker.declare_queue(f"q{n}").name), f"thread {number}"
            )
        host.wait_until(lambda: len(answered) == 10)
        assert len([op for op in syncs if "sync" in op]) <= 3
        host.crash(power_cut=True)
        assert len(host.open().queues()) == 10


def test_a_full_disk_refuses_each_of_them():
    with SimulatedHost(5, SMALL, traced=False) as host:
        broker = host.open()
        broker.declare_queue("there")
        host.disk.free_bytes = 0
        for refused in (lambda: broker.declare_queue("new"), lambda: broker.queue("there").get()):
            with pytest.raises(warrenmq.Blocked, match="the disk is full"):
                refused()
        host.disk.free_bytes = None
        assert broker.declare_queue("new").get() is None


def test_a_queue_that_cannot_save_how_it_stops_stays_awake(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"x").result()
    host.disk.free_bytes = 0
    host.sleep(5)
    host.disk.free_bytes = None
    host.sleep(5)
    assert queue.get().redelivered is False, "it did not end as if it had crashed"
    broker.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("profile", SLEEPY)
def test_a_queue_whose_wake_is_refused_did_not_crash(profile, error):
    """Each operation of the wake fails in turn; a start takes the terms of the stop before it opens the files."""
    for failing in count():
        with SimulatedHost(5, SLEEPY[profile], traced=False) as host:
            broker = host.open()
            queue = broker.declare_queue("q")
            queue.publish(b"x").result()
            host.sleep(5)
            operations = []

            def fail(op, _path, operations=operations, failing=failing):
                operations.append(op)
                if len(operations) == failing + 1:
                    raise OSError(error, os.strerror(error))

            host.disk.before_op = fail
            try:
                queue.get()
            except (warrenmq.Blocked, warrenmq.ResourceError):
                host.disk.before_op = None
                assert queue.get().redelivered is False, f"{operations[-1]} failed"
                continue
            except warrenmq.ProcessDied:
                pass  # it was awake
            break
    assert "unlink" in operations[:failing]


@pytest.mark.parametrize("scheduler", ["threads", "pool"])
def test_threads_that_publish_while_it_falls_asleep_lose_nothing(tmp_path, scheduler):
    """Real threads between any two lines: publishes meet a mailbox that is about to close."""
    settings = Settings(scheduler=scheduler, queue_sleep_after=1)
    taken, interval = [], sys.getswitchinterval()
    with warrenmq.open(tmp_path / "data", settings=settings, trace=tmp_path / "trace") as broker:
        queue = broker.declare_queue("q")

        together = threading.Barrier(2, timeout=60)

        def work(seed):
            draw = random.Random(seed)
            for number in range(25):
                together.wait()
                confirms = [
                    queue.publish(b"%d %d %d" % (seed, number, part)) for part in range(draw.randrange(1, 4))
                ]
                for confirm in confirms:
                    confirm.result(30)
                    while (delivery := queue.get()) is None:
                        time.sleep(0.001)
                    taken.append(delivery.body)
                    delivery.ack()
                time.sleep(0.002 + draw.random() * 0.006)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        woke = broker.runtime._incarnations["queue:q"]
    assert woke > 1
    assert len(taken) == len(set(taken))
    result = replay_trace(open_trace(tmp_path / "trace"))
    assert (result.violations, result.indeterminate) == ([], [])


@pytest.mark.parametrize("profile", BOTH_PROFILES)
def test_a_kill_while_a_queue_is_first_used_is_no_damage(profile):
    """A kill at each operation; the first bodies once lay in a file whose index was not there yet."""
    came, operation = True, 0
    while came:
        operation += 1
        with SimulatedHost(operation, BOTH_PROFILES[profile]) as host:
            queue = host.open().declare_queue("q")
            with host.crash_at(operation, power_cut=False) as outage:
                queue.publish(b"x").result()
            came = outage.came
            if came:
                assert host.open().stats().damage == (), f"operation {operation}"
    assert operation > 5


def test_a_queue_that_is_killed_while_it_wakes_is_started_again(host, monkeypatch):
    broker = host.open()
    broker.declare_queue("q")
    init, begun = QueueProcess.init, []

    def killed_at_first(self, spec):
        begun.append(spec.name)
        if len(begun) < 4:
            self.runtime.kill(self.actor_ref)
        init(self, spec)

    monkeypatch.setattr(QueueProcess, "init", killed_at_first)
    broker.queue("q").publish(b"x").result()
    assert begun == ["q"] * 4
    restarts = {each.name: each.restarts for each in broker.stats().actors}
    assert restarts["vhost_process"] == 0, "the queue's end is not the virtual host's"
    broker.close()


@pytest.mark.parametrize("arguments", [{}, {"x-expires": 1_000_000}], ids=["asleep", "awake"])
def test_messages_of_a_queue_that_was_declared_again_survive_a_log_that_ends_with_its_deletion(arguments):
    with SimulatedHost(5, SMALL) as host:
        broker = host.open()
        path = broker.inside.vhost.directory.definitions
        broker.declare_queue("q").publish(b"old").result()
        broker.queue("q").delete()
        end = host.disk.size(path)
        broker.declare_queue("q", arguments=arguments).publish(b"new").result()
        host.crash(power_cut=True)
        host.disk.replace(path, host.disk.read(path)[:end])
        broker = host.open()
        assert [body for body, _ in delivered(broker.queue("q"))] == [b"new"]
