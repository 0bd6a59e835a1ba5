"""Delayed messages: each comes once its time has come, not before, and none that was confirmed is lost, whatever happens."""

import errno
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest

from tests.support.simulated import EVERY_KIND, SMALL, SimulatedHost, take_all
from warrenmq.errors import AccessRefused, ArgumentTypeError, ArgumentValueError, NotFound, PreconditionFailed
from warrenmq.message.properties import Properties
from warrenmq.routing.delayed import LATER, store_of
from warrenmq.supervisors.broker_sup import VHOST_PROCESS

SEEDS = range(20)
IN_TIME = 0.05
"""Seconds within which a message comes that is due."""
SIZES = (5, 60, 1_500)


def delayed_exchange(broker, name="x", kind="direct", **options):
    return broker.declare_exchange(name, "x-delayed-message", arguments={"x-delayed-type": kind}, **options)


def after(milliseconds, **headers):
    return Properties(headers={"x-delay": milliseconds, **headers})


@pytest.fixture
def host():
    with SimulatedHost(seed=3) as machine:
        yield machine
        machine.check_trace()


class Life:
    """Brokers on one machine, with what was published, confirmed and received, and when."""

    def __init__(self, seed):
        self.random = random.Random(f"delayed {seed}")
        settings = replace(self.random.choice(EVERY_KIND), commit_log=self.random.random() < 0.3)
        self.host = SimulatedHost(seed, settings)
        self.due = {}
        self.waiting = []
        self.confirmed = set()
        self.received = Counter()
        self.crashes = 0

    def now(self):
        return self.host.sim.wall_ns() / 1e9

    def open(self):
        self.broker = self.host.open()
        self.queue = self.broker.declare_queue("q")
        delayed_exchange(self.broker, kind="topic")
        self.broker.bind("q", "x", "k.*")

    def publish(self):
        number = len(self.due)
        delay = self.random.choice((1, 20, 150, 900, 4_000))
        body = b"%d " % number + b"." * self.random.choice(SIZES)
        self.due[number] = self.now() + delay / 1_000
        if self.random.random() < 0.5:
            confirm = self.broker.publish("x", "k.1", body, properties=after(delay))
        else:
            confirm = self.queue.publish(body, delay=delay / 1_000)
        self.waiting.append((number, confirm))

    def note_confirms(self):
        self.confirmed |= {n for n, confirm in self.waiting if confirm.done() and confirm.exception() is None}

    def receive(self):
        for body in take_all(self.queue):
            number = int(body.split()[0])
            assert self.now() >= self.due[number], "it came before its time"
            self.received[number] += 1

    def crash(self):
        self.note_confirms()
        self.waiting.clear()
        self.crashes += 1
        self.host.crash(power_cut=self.random.random() < 0.5)

    def run(self):
        self.open()
        for _ in range(self.random.randrange(4, 9)):
            for _ in range(self.random.randrange(12)):
                self.publish()
            if self.random.random() < 0.4:
                with self.host.crash_at(
                    self.random.randrange(1, 40), power_cut=self.random.random() < 0.5
                ) as outage:
                    self.host.sleep(self.random.choice((0.01, 0.2, 2.0)))
                    self.receive()
                    self.note_confirms()
                if outage.came:
                    self.waiting.clear()
                    self.crashes += 1
                    self.open()
            elif self.random.random() < 0.2:
                self.broker.close()
                self.note_confirms()
                self.host.crash(power_cut=False)
                self.open()
            self.host.sleep(self.random.choice((0.0, 0.03, 0.5)))
            self.receive()
        self.note_confirms()
        self.host.sleep(10)
        self.receive()
        self.broker.close()


@cache
def crashes_in(seed):
    """Run the seeded life of a broker; returns its number of crashes, after checking that each confirmed message came."""
    life = Life(seed)
    with life.host:
        life.run()
        assert life.confirmed <= life.received.keys(), "a confirmed message never came"
        if not life.crashes:
            assert set(life.received.values()) <= {1}, "a message came twice"
        life.host.check_trace()
    return life.crashes


@pytest.mark.parametrize("seed", SEEDS)
def test_delayed_messages_come_in_time_and_none_is_lost_in_crashes(seed):
    crashes_in(seed)


def test_the_lives_crash_and_close():
    crashes = [crashes_in(seed) for seed in SEEDS]
    assert 0 in crashes
    assert sum(crashes) > len(SEEDS) / 2


def test_a_message_comes_within_milliseconds_and_none_waits_behind_another(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    delayed_exchange(broker)
    broker.bind("q", "x", "k")
    begin = host.sim.monotonic_ns()
    for delay in (3_000, 500, 1_000, 2_000, 500):
        broker.publish("x", "k", b"%d" % delay, properties=after(delay)).result()
    arrived = []
    with queue.consume() as consumer:
        for delivery in consumer:
            took = (host.sim.monotonic_ns() - begin) / 1e6
            arrived.append(int(delivery.body))
            delivery.ack()
            assert int(delivery.body) <= took <= int(delivery.body) + IN_TIME * 1e3
            if len(arrived) == 5:
                break
    assert arrived == [500, 500, 1_000, 2_000, 3_000]
    broker.close()


def test_the_header_is_negative_when_the_message_comes_and_other_headers_keep_their_types(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    delayed_exchange(broker, kind="fanout")
    broker.bind("q", "x")
    sent = Properties(headers={"x-delay": 5, "a": [1, "b"]}, priority=3, message_id="m")
    broker.publish("x", "key", b"body", properties=sent).result()
    delivery = queue.get(timeout=1)
    assert delivery.properties == Properties(
        headers={"x-delay": -5, "a": [1, "b"]}, priority=3, message_id="m"
    )
    assert (delivery.exchange, delivery.routing_key) == ("x", "key")
    broker.close()


@pytest.mark.parametrize("headers", [None, {}, {"x-delay": 0}, {"x-delay": -7}, {"x-delay": "soon"}])
def test_without_a_delay_the_exchange_routes_as_its_type(host, headers):
    broker = host.open()
    queue = broker.declare_queue("q")
    delayed_exchange(broker)
    broker.bind("q", "x", "k")
    broker.publish("x", "k", b"1", properties=Properties(headers=headers)).result()
    broker.publish("x", "other", b"2", properties=Properties(headers=headers)).result()
    assert take_all(queue) == [b"1"]
    broker.close()


def test_the_bindings_count_that_are_there_when_the_time_has_come(host):
    broker = host.open()
    before, later = broker.declare_queue("before"), broker.declare_queue("later")
    delayed_exchange(broker)
    broker.bind("before", "x", "k")
    broker.publish("x", "k", b"1", properties=after(100)).result()
    broker.unbind("before", "x", "k")
    broker.bind("later", "x", "k")
    broker.publish("x", "nowhere", b"2", properties=after(100), mandatory=True).result()
    host.sleep(1)
    assert (take_all(before), take_all(later)) == ([], [b"1"])
    broker.close()


def test_an_exchange_behind_another_delays_and_routes_itself(host):
    broker = host.open()
    queue, direct = broker.declare_queue("q"), broker.declare_queue("direct")
    broker.declare_exchange("front", "fanout")
    delayed_exchange(broker)
    broker.bind("x", "front", destination_type="exchange")
    broker.bind("direct", "front")
    broker.bind("q", "x", "k")
    broker.publish("front", "k", b"1", properties=after(100)).result()
    assert (take_all(direct), take_all(queue)) == ([b"1"], [])
    host.sleep(1)
    assert (take_all(direct), take_all(queue)) == ([], [b"1"])
    broker.close()


def test_a_rejected_message_is_dead_lettered_to_a_delayed_exchange_and_comes_back(host):
    broker = host.open()
    arguments = {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "k"}
    queue = broker.declare_queue("q", arguments=arguments)
    delayed_exchange(broker)
    broker.bind("q", "x", "k")
    queue.publish(b"1", properties=after(1_000)).result()
    queue.get().reject(requeue=False)
    assert queue.get() is None
    delivery = queue.get(timeout=2)
    assert delivery.properties.headers["x-death"][0]["count"] == 1
    assert delivery.properties.headers["x-delay"] == -1_000
    broker.close()


def test_a_queue_that_refuses_gets_the_message_when_it_has_room(host):
    broker = host.open()
    full = broker.declare_queue("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    other = broker.declare_queue("other")
    broker.declare_exchange("both", "fanout")
    for queue in (full, other):
        broker.bind(queue, "both")
    full.publish(b"in the way").result()
    broker.publish("both", "", b"1", delay=0.1).result()
    host.sleep(3)
    assert take_all(other) == [b"1"]
    assert take_all(full) == [b"in the way"]
    host.sleep(3)
    assert (take_all(full), take_all(other)) == ([b"1"], [])
    broker.close()


def test_a_release_that_failed_is_repeated_though_the_clock_was_set_back(host):
    """It was due once, and the trace says when: a later time of the clock may be an earlier one."""
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"0").result()
    queue.publish(b"1", delay=1).result()

    def before_op(op, path):
        if op == "datasync":  # that of the queue which the message is released to
            host.disk.before_op = host.before_op
            host.sim.shift_wall_clock(-3_600)
            raise OSError(errno.EIO, "the disk fails", path)

    host.disk.before_op = before_op
    host.sleep(5)
    assert set(take_all(queue)) == {b"0", b"1"}
    broker.close()


def test_what_was_published_by_an_application_comes_to_the_exchange_that_it_names(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    broker.declare_exchange("events", "topic")
    broker.bind("q", "events", "order.*")
    when = datetime.fromtimestamp(host.sim.wall_ns() / 1e9 + 60, UTC)
    broker.publish("events", "order.1", b"at", at=when, headers={"a": 1}).result()
    broker.publish_many("events", "order.2", [b"two", b"three"], delay=timedelta(seconds=30)).result()
    with broker.tx():
        queue.publish(b"tx", delay=1)
    host.sleep(29)
    assert take_all(queue) == [b"tx"]
    host.sleep(2)
    assert take_all(queue) == [b"two", b"three"]
    host.sleep(31)
    delivery = queue.get()
    assert (delivery.body, delivery.routing_key, delivery.properties.headers) == (b"at", "order.1", {"a": 1})
    broker.close()


def test_more_than_the_window_come_in_order_of_their_times(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    count = 2_500
    order = list(range(count))
    random.Random(1).shuffle(order)
    now = host.sim.wall_ns() // 1_000_000
    for number in order:
        queue.publish(b"%d" % number, at=datetime.fromtimestamp(now / 1e3 + 10 + number / 1e3, UTC))
    broker.close()
    host.crash(power_cut=False)
    host.sleep(20)
    broker = host.open()
    host.sleep(5)
    assert take_all(broker.queue("q")) == [b"%d" % number for number in range(count)]
    broker.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay": -1}, ArgumentValueError),
        ({"delay": float("nan")}, ArgumentValueError),
        ({"delay": 1e12}, ArgumentValueError),
        ({"delay": "soon"}, ArgumentTypeError),
        ({"delay": 1, "at": datetime.now(UTC)}, ArgumentValueError),
        ({"at": datetime(2030, 1, 1)}, ArgumentValueError),  # noqa: DTZ001  # that is what is refused
        ({"at": datetime(2300, 1, 1, tzinfo=UTC)}, ArgumentValueError),
        ({"at": 5}, ArgumentTypeError),
        ({"delay": 1, "mandatory": True}, ArgumentValueError),
        ({"prioritiy": 1}, ArgumentTypeError),
        ({"priority": 256}, ArgumentValueError),
        ({"headers": 3}, ArgumentTypeError),
        ({"expiration": 5}, ArgumentTypeError),
        ({"expiration": "soon"}, PreconditionFailed),
        ({"expiration": "soon", "delay": 1}, PreconditionFailed),
        ({"message_id": b"m"}, ArgumentTypeError),
        ({"priority": 1, "properties": Properties(priority=1)}, ArgumentValueError),
    ],
)
def test_a_wrong_keyword_is_refused_and_nothing_is_published(host, options, error):
    broker = host.open()
    queue = broker.declare_queue("q")
    with pytest.raises(error):
        queue.publish(b"1", **options)
    host.sleep(2)
    assert take_all(queue) == []
    broker.close()


def test_keywords_are_fields_of_the_properties(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    given = {"priority": 1, "headers": {"a": 2}, "message_id": "m", "correlation_id": "c", "reply_to": "r"}
    queue.publish(b"1", **given, content_type="text/plain", expiration=timedelta(seconds=60)).result()
    queue.publish(b"2", properties=Properties(app_id="app"), priority=4).result()
    assert queue.get().properties == Properties(**given, content_type="text/plain", expiration="60000")
    assert queue.get().properties == Properties(app_id="app", priority=4)
    broker.close()


def test_the_queues_in_which_messages_wait_are_no_clients_business(host):
    broker = host.open()
    broker.declare_queue("q").publish(b"1", delay=100).result()
    delayed_exchange(broker)
    for name in (LATER, store_of("x")):
        for call in (broker.queue, broker.delete_queue, lambda name: broker.bind(name, "amq.fanout")):
            with pytest.raises(NotFound):
                call(name)
        with pytest.raises(AccessRefused):
            broker.declare_queue(name)
    assert [each.name for each in broker.stats().queues] == ["q"]
    broker.close()


def test_messages_go_with_their_exchange_and_a_new_one_of_its_name_has_none(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    delayed_exchange(broker)
    broker.bind("q", "x", "k")
    broker.publish("x", "k", b"1", properties=after(1_000)).result()
    broker.delete_exchange("x")
    delayed_exchange(broker)
    broker.bind("q", "x", "k")
    host.sleep(3)
    assert take_all(queue) == []
    broker.close()


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": 5}])
def test_a_delayed_exchange_must_say_how_it_routes(host, arguments):
    broker = host.open()
    with pytest.raises(PreconditionFailed, match="x-delayed-type"):
        broker.declare_exchange("x", "x-delayed-message", arguments=arguments)
    delayed_exchange(broker, "y", "topic")
    delayed_exchange(broker, "y", "topic")
    with pytest.raises(PreconditionFailed, match="x-delayed-type"):
        delayed_exchange(broker, "y", "fanout")
    broker.close()


def test_a_transient_exchange_keeps_its_messages_until_the_broker_ends():
    with SimulatedHost(seed=1, settings=SMALL) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        delayed_exchange(broker, durable=False)
        broker.bind("q", "x", "k")
        broker.publish("x", "k", b"1", properties=after(500)).result()
        broker.publish("x", "k", b"2", properties=after(50_000)).result()
        host.sleep(1)
        assert take_all(queue) == [b"1"]
        broker.close()
        host.crash(power_cut=False)
        broker = host.open()
        host.sleep(100)
        assert take_all(broker.queue("q")) == []
        broker.close()
        host.check_trace()


def test_a_queue_process_that_dies_releases_what_it_held():
    with SimulatedHost(seed=5) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        for number in range(20):
            queue.publish(b"%d" % number, delay=1).result()
        host.sim.kill(host.sim.whereis(f"queue:{LATER}"))
        host.sleep(3)
        assert sorted(map(int, take_all(queue))) == list(range(20))
        queue.publish(b"again", delay=1).result()
        host.sleep(2)
        assert take_all(queue) == [b"again"]
        broker.close()
        host.check_trace()


def test_stats_count_what_waits(host):
    broker = host.open()
    queue = broker.declare_queue("q")
    delayed_exchange(broker)
    broker.bind("q", "x", "k")
    for delay in (10, 20):
        queue.publish(b"1", delay=delay)
    broker.publish("x", "k", b"2", properties=after(60_000)).result()
    host.sleep(15)
    assert [(each.exchange, each.waiting) for each in broker.stats().delayed] == [(None, 1), ("x", 1)]
    assert queue.info().ready == 1
    broker.close()


def test_a_virtual_host_that_dies_while_it_declares_their_queue_is_asked_again():
    with SimulatedHost(seed=3) as host:
        broker = host.open()
        queue = broker.declare_queue("q")
        killed = []

        def before_op(op, path):
            host.before_op(op, path)
            if not killed and host.sim.running == VHOST_PROCESS:
                killed.append(op)
                host.sim.kill(host.sim.whereis(VHOST_PROCESS))

        host.disk.before_op = before_op
        queue.publish(b"later", delay=0.1).result()
        assert killed
        host.sleep(1)
        assert take_all(queue) == [b"later"]
