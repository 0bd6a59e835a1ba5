"""Queues without a process: before their first use, and when nobody has used them for long."""

import random
import sys
import threading
import time
from dataclasses import replace

import pytest

import warrenmq
from tests.support.simulated import BOTH_PROFILES, SMALL, SimulatedHost
from warrenmq.actors.queue.process import QueueProcess
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.settings import Settings
from warrenmq.trace.reader import open_trace

SLEEPY = {name: replace(settings, queue_sleep_after=1_000) for name, settings in BOTH_PROFILES.items()}


def awake(broker):
    """The queues that have a process, with the restarts that are told of it."""
    actors = broker.stats().actors
    return {each.name.removeprefix("queue:"): each.restarts for each in actors if each.kind == "QueueProcess"}


def folders(host, broker):
    return host.disk.listdir(broker.local().vhost.directory.queues)


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
        f"{broker.local().vhost.directory.queues}/{host.disk.listdir(broker.local().vhost.directory.queues)[0]}"
    )
    broker = host.open()
    assert "its folder is gone" in broker.stats().damage[0].reason, "one that was there is"
    broker.close()


def test_a_queue_that_nobody_uses_sleeps_and_is_the_same_when_it_wakes(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    for number in range(3):
        queue.publish(b"%d" % number).result()
        delivery = queue.get()
        host.sleep(5)
        assert awake(broker) == {"q": 0}, "it holds a message, or somebody does"
        delivery.ack()
        host.sleep(5)
        assert awake(broker) == {}
        assert broker.local().vhost.figures["q"]().published == number + 1
    broker.close()
    broker = host.open()
    assert awake(broker) == ({} if host.settings.queue_version == 2 else {"q": 0}), "its journal is not empty"
    host.sleep(5)
    assert awake(broker) == {}
    assert broker.queue("q").get() is None
    broker.close()


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
