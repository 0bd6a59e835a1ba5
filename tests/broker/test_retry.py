"""Retries by a policy, and x-delivery-limit: how often a message is tried, when, and where it goes after that."""

import random

import pytest

from tests.broker.odd_arguments import HostileInt, HostileList, HostileStr
from tests.support.simulated import SimulatedHost
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.broker.retry import attempts, exponential
from warrenmq.errors import ArgumentTypeError, ArgumentValueError, NotFound, PreconditionFailed
from warrenmq.message.properties import Properties
from warrenmq.queue import return_counts
from warrenmq.settings import Settings


@pytest.fixture
def host():
    with SimulatedHost(seed=11) as machine:
        yield machine
        machine.check_trace()


def seconds(host):
    return host.sim.monotonic_ns() / 1e9


def test_a_message_comes_again_at_the_times_of_the_policy_and_goes_to_the_dead_letters_at_last(host):
    broker = host.open()
    jobs, failed = broker.declare_queue("jobs"), broker.declare_queue("failed")
    broker.declare_exchange("events", "topic")
    broker.bind("jobs", "events", "order.*")
    jobs.retry_policy(max_attempts=4, backoff=exponential(1, longest=3), dead_letter=failed)
    sent = Properties(headers={"a": 1}, message_id="m", content_type="text/plain")
    broker.publish("events", "order.7", b"body", properties=sent).result()
    begin, seen = seconds(host), []
    with jobs.consume() as consumer:
        for delivery in consumer:
            seen.append(
                (round(seconds(host) - begin), delivery.attempt, delivery.exchange, delivery.routing_key)
            )
            assert delivery.body == b"body"
            again = delivery.retry()
            assert again is (len(seen) < 4)
            if not again:
                break
    where = ("events", "order.7")
    assert seen == [(0, 1, *where), (1, 2, *where), (3, 3, *where), (6, 4, *where)]
    dead = failed.get(timeout=1)
    headers = dead.properties.headers
    assert (dead.exchange, dead.routing_key, dead.properties.message_id) == (*where, "m")
    assert [(each["queue"], each["reason"], each["count"]) for each in headers["x-death"]] == [
        ("jobs", "rejected", 4)
    ]
    assert headers["a"] == 1
    assert not [name for name in headers if name.startswith("x-delay")]
    host.sleep(1)
    assert (jobs.info().ready, jobs.info().unacked) == (0, 0)
    broker.close()


@pytest.mark.parametrize("settle", ["ack", "nack"])
def test_what_settles_several_waits_for_the_copies_of_those_that_were_given_back(host, settle):
    """An ack of several settled the original of a copy that was refused then: both were gone."""
    broker = host.open()
    jobs = broker.declare_queue("jobs")
    failed = broker.declare_queue("failed", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    failed.publish(b"full").result()
    jobs.retry_policy(max_attempts=1, dead_letter=failed)
    jobs.publish_many([b"1", b"2", b"3"]).result()
    with jobs.consume() as consumer:
        first, second, third = (consumer.get(timeout=1) for _ in range(3))
        assert not first.retry()
        if settle == "ack":
            second.ack(multiple=True)
        else:
            second.nack(multiple=True, requeue=False)
        with pytest.raises(PreconditionFailed, match="settled already"):
            second.ack()
        third.ack(multiple=True)
        again = consumer.get(timeout=1)
        assert (again.body, again.redelivered) == (b"1", True)
        again.ack()
    host.sleep(1)
    assert (jobs.info().ready, jobs.info().unacked) == (0, 0)
    broker.close()


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (2, [2, 2, 2]),
        ([1, 5], [1, 5, 5]),
        (lambda attempt: attempt * 10, [10, 20, 30]),
        (exponential(0.5, factor=3, longest=4), [0.5, 1.5, 4]),
    ],
)
def test_a_backoff_is_a_number_a_list_or_a_function(host, backoff, expected):
    broker = host.open()
    policy = broker.declare_queue("q").retry_policy(4, backoff)
    assert [policy.seconds_after(attempt) for attempt in (1, 2, 3)] == expected
    broker.close()


def test_without_a_place_for_dead_letters_the_queues_own_exchange_gets_them(host):
    broker = host.open()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    jobs, dead = broker.declare_queue("jobs", arguments=arguments), broker.declare_queue("dead")
    jobs.retry_policy(2, 0)
    jobs.publish(b"1").result()
    assert jobs.get().retry()
    assert not jobs.get(timeout=1).retry()
    delivery = dead.get(timeout=1)
    assert attempts(delivery.properties.headers, "jobs") == 3
    broker.close()


def test_a_dead_letter_does_not_expire_among_the_dead_letters(host):
    broker = host.open()
    jobs, failed = broker.declare_queue("jobs"), broker.declare_queue("failed")
    jobs.retry_policy(2, 5, dead_letter=failed)
    jobs.publish(b"1", expiration="1000").result()
    assert jobs.get().retry()
    assert not jobs.get(timeout=6).retry(), "it did not expire before its time had come"
    host.sleep(10)
    dead = failed.get().properties
    assert (dead.expiration, dead.headers["x-death"][0]["original-expiration"]) == (None, "1000")
    broker.close()


def test_a_delay_of_ones_own_needs_no_policy(host):
    broker = host.open()
    jobs = broker.declare_queue("jobs")
    jobs.publish(b"1").result()
    begin = seconds(host)
    jobs.get().retry(delay=30)
    host.sleep(29)
    assert jobs.get() is None
    delivery = jobs.get(timeout=5)
    assert (delivery.attempt, round(seconds(host) - begin)) == (2, 30)
    delivery.ack()
    broker.close()


def test_a_retry_is_a_settlement_and_refuses_what_an_ack_refuses(host):
    broker = host.open()
    jobs = broker.declare_queue("jobs")
    jobs.publish_many([b"1", b"2", b"3"]).result()
    first, second, third = jobs.get(), jobs.get(), jobs.get(no_ack=True)
    first.retry(1)
    with pytest.raises(PreconditionFailed, match="already"):
        first.ack()
    with pytest.raises(PreconditionFailed, match="no_ack"):
        third.retry()
    with broker.tx(), pytest.raises(PreconditionFailed, match="transaction"):
        second.retry()
    for wrong, error in ((-1, ArgumentValueError), ("soon", ArgumentTypeError), (1e12, ArgumentValueError)):
        with pytest.raises(error, match="delay"):
            second.retry(wrong)
    second.ack()
    broker.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0, 1), ArgumentValueError),
        (("three", 1), ArgumentTypeError),
        ((3, -1), ArgumentValueError),
        ((3, None), ArgumentTypeError),
        ((3, []), ArgumentValueError),
        ((3, "1"), ArgumentTypeError),
        ((3, [1, HostileInt(1)]), ArgumentValueError),
        ((3, HostileList()), ArgumentValueError),
        ((3, HostileStr("1")), ArgumentTypeError),
        ((3, 1, "nowhere"), NotFound),
        ((3, 1, 5), ArgumentTypeError),
    ],
)
def test_a_wrong_policy_is_refused(host, arguments, error):
    broker = host.open()
    with pytest.raises(error):
        broker.declare_queue("q").retry_policy(*arguments)
    broker.close()


def test_a_message_whose_dead_letter_queue_is_gone_stays(host):
    broker = host.open()
    jobs = broker.declare_queue("jobs")
    broker.declare_queue("failed")
    jobs.retry_policy(1, 0, "failed")
    broker.delete_queue("failed")
    jobs.publish(b"1").result()
    delivery = jobs.get()
    with pytest.raises(NotFound, match="declare or bind"):
        delivery.retry()
    delivery.nack()
    assert jobs.get().body == b"1"
    broker.close()


@pytest.mark.parametrize("seed", range(12))
def test_no_message_is_lost_and_each_is_tried_often_enough_whatever_crashes(seed):
    chance = random.Random(f"retry {seed}")
    with SimulatedHost(seed) as host:
        broker = host.open()
        jobs = broker.declare_queue("jobs")
        broker.declare_queue("failed")
        jobs.publish_many([b"%d" % number for number in range(12)]).result()
        for _ in range(4):
            with host.crash_at(chance.randrange(1, 60), power_cut=chance.random() < 0.5) as outage:
                jobs = broker.queue("jobs")
                jobs.retry_policy(3, 0.2, "failed")
                while (delivery := jobs.get(timeout=1)) is not None:
                    assert delivery.attempt <= 3
                    delivery.retry()
                host.sleep(1)
            if outage.came:
                broker = host.open()
        jobs = broker.queue("jobs")
        jobs.retry_policy(3, 0.2, "failed")
        while (delivery := jobs.get(timeout=2)) is not None:
            delivery.retry()
        failed, bodies = broker.queue("failed"), []
        while (delivery := failed.get()) is not None:
            bodies.append(int(delivery.body))
            assert attempts(delivery.properties.headers, "jobs") == 4
            delivery.ack()
        assert set(bodies) == set(range(12))
        broker.close()
        host.check_trace()


# -- x-delivery-limit


def limited(broker, limit, **arguments):
    return broker.declare_queue("q", arguments={"x-delivery-limit": limit, **arguments})


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_message_that_comes_back_too_often_is_dead_lettered(host, limit):
    broker = host.open()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    queue, dead = limited(broker, limit, **arguments), broker.declare_queue("dead")
    queue.publish_many([b"1", b"large" * 500]).result()
    counts = []
    while (delivery := queue.get()) is not None:
        counts.append((delivery.properties.headers or {}).get("x-delivery-count", 0))
        delivery.nack()
    assert sorted(counts) == sorted([*range(limit + 1)] * 2)
    bodies = []
    while (delivery := dead.get()) is not None:
        bodies.append(delivery.body)
        assert delivery.properties.headers["x-death"][0]["reason"] == "delivery_limit"
        delivery.ack()
    assert sorted(bodies) == [b"1", b"large" * 500]
    assert (queue.info().ready, queue.info().unacked) == (0, 0)
    broker.close()


@pytest.mark.parametrize("how", ["stop", "kill", "restart", "torn", "nonsense"])
def test_the_counts_outlive_the_run_and_are_of_no_other_message(host, how):
    broker = host.open()
    queue = limited(broker, 2)
    queue.publish_many([b"1", b"2", b"3"]).result()
    (directory,) = broker.inside.vhost.directory.queue_folders(host.disk, ())
    counts = f"{directory}/{return_counts.NAME}"
    for _ in range(2):
        queue.get().nack()
    queue.info()
    if how == "restart":
        broker.runtime.kill(broker.runtime.whereis(queue_name("q")))
    elif how == "kill":
        host.crash(power_cut=False)
        broker = host.open()
    else:
        broker.close()
        if how == "torn":
            file = host.disk.open(counts)
            file.append(host.disk.read(counts)[:7])
            file.close()
        elif how == "nonsense":
            host.disk.replace(counts, bytes(1000))
        broker = host.open()
    queue, known = broker.queue("q"), 0 if how == "nonsense" else 2
    first = queue.get()
    assert (first.body, (first.properties.headers or {}).get("x-delivery-count", 0)) == (b"1", known)
    first.nack()
    bodies = []
    while (delivery := queue.get()) is not None:
        bodies.append(delivery.body)
        delivery.ack()
    assert bodies == [b"2", b"3"] if known else [b"1", b"2", b"3"]
    broker.close()
    broker = host.open()  # the sequence ids of an empty queue begin anew
    queue = broker.queue("q")
    queue.publish_many([b"4", b"5"]).result()
    assert [queue.get().properties.headers for _ in range(2)] == [None, None]
    broker.close()


@pytest.mark.parametrize("meanwhile", ["a limit", "no limit"])
def test_the_count_of_a_message_that_is_gone_is_not_that_of_one_with_its_sequence_id(host, meanwhile):
    """It was found two starts later, and the message was dead-lettered before it had come back too often."""
    broker = host.open()
    broker.set_policy("limit", "q", {"delivery-limit": 2})
    queue = broker.declare_queue("q")
    queue.publish(b"gone", persistent=False).result()
    queue.get().nack()
    queue.info()
    host.crash(power_cut=False)  # and the ids begin anew
    if meanwhile == "no limit":
        broker = host.open()
        broker.clear_policy("limit")
        broker.close()
    broker = host.open()
    broker.set_policy("limit", "q", {"delivery-limit": 2})
    broker.queue("q").publish(b"2").result()
    host.crash(power_cut=False)
    broker = host.open()
    assert broker.queue("q").get().properties.headers is None
    broker.close()


def test_what_a_consumer_never_took_does_not_count_and_what_it_did_not_ack_in_time_does():
    with SimulatedHost(3, Settings(consumer_timeout=10_000)) as host:
        broker = host.open()
        queue = limited(broker, 1)
        queue.publish(b"1").result()
        for _ in range(5):
            with queue.consume() as consumer:
                host.sleep(1)
                assert consumer.ended is False
        for _ in range(2):
            assert queue.get() is not None
            host.sleep(200)
        assert queue.get() is None
        assert queue.info().unacked == 0
        broker.close()
        host.check_trace()


def test_a_limit_is_an_argument_that_is_checked_and_compared(host):
    broker = host.open()
    for wrong in (-1, "three", True):
        with pytest.raises(PreconditionFailed, match="x-delivery-limit"):
            limited(broker, wrong)
    limited(broker, 2)
    limited(broker, 2)
    with pytest.raises(PreconditionFailed, match="x-delivery-limit"):
        limited(broker, 3)
    broker.close()


def test_an_acked_message_is_forgotten(host):
    broker = host.open()
    queue = limited(broker, 1)
    for number in range(5):
        queue.publish(b"%d" % number).result()
        queue.get().nack()
        delivery = queue.get()
        assert delivery.body == b"%d" % number
        assert delivery.properties.headers == {"x-delivery-count": 1}
        delivery.ack()
    broker.close()
