"""Time to live, length limits, dead letters, x-expires and priorities, in every kind of simulated broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import warrenmq
from tests.support.simulated import EVERY_KIND, SimulatedHost, take_all
from warrenmq import Properties
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.broker.broker import Broker
from warrenmq.broker.handles import QueueHandle

LARGE = b"L" * 900


@pytest.fixture(
    params=EVERY_KIND, ids=lambda each: f"{each.queue_version}-{each.msg_store_gc}-{each.queue_paging}"
)
def host(request: pytest.FixtureRequest) -> Iterator[SimulatedHost]:
    made = SimulatedHost(11, request.param)
    yield made
    made.check_trace()
    made.close()


def declare(broker: Broker, name: str = "q", **arguments: Any) -> QueueHandle:
    return broker.declare_queue(
        name, arguments={"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    )


def graveyard(broker: Broker) -> QueueHandle:
    """An exchange for dead letters, and a queue that has all of them."""
    broker.declare_exchange("dlx", "fanout")
    queue = broker.declare_queue("dead")
    broker.bind("dead", "dlx")
    return queue


def living(ms: int) -> Properties:
    return Properties(expiration=str(ms))


def deaths(delivery: warrenmq.Delivery | None) -> list[tuple[str, str, int]]:
    assert delivery is not None
    headers = delivery.properties.headers
    return [(each["queue"], each["reason"], each["count"]) for each in headers["x-death"]]


# time to live


@pytest.mark.parametrize("body", [b"small", LARGE])
def test_a_message_expires_by_the_queues_time_and_by_its_own(host: SimulatedHost, body: bytes) -> None:
    queue = declare(host.open(), message_ttl=100)
    queue.publish(body + b"1", properties=living(50)).result()
    queue.publish(body + b"2", properties=living(5_000)).result()
    host.sleep(0.06)
    assert queue.info().ready == 1
    host.sleep(0.06)
    assert queue.info().ready == 0


def test_a_message_with_a_time_of_its_own_expires_in_any_queue(host: SimulatedHost) -> None:
    queue = declare(host.open())
    queue.publish_many([b"1", LARGE], properties=living(20)).result()
    queue.publish(b"3").result()
    host.sleep(0.03)
    assert take_all(queue) == [b"3"]


def test_a_message_expires_only_at_the_head(host: SimulatedHost) -> None:
    """T14, second order."""
    queue = declare(host.open())
    queue.publish(b"b").result()
    queue.publish(b"a", properties=living(100)).result()
    host.sleep(1)
    assert queue.info().ready == 2
    delivery = queue.get()
    assert delivery.body == b"b"
    host.sleep(0.001)
    assert queue.info().ready == 0
    assert queue.get() is None


def test_a_get_does_not_count_what_has_expired_behind_its_message(host: SimulatedHost) -> None:
    queue = declare(host.open())
    queue.publish(b"long", properties=living(60_000)).result()
    queue.publish(b"short", properties=living(100)).result()
    queue.publish(b"for ever").result()
    host.sleep(1)
    assert queue.info().ready == 3
    assert queue.get() is not None
    assert queue.info().ready == 1


def test_an_unacked_message_expires_when_it_comes_back(host: SimulatedHost) -> None:
    """T14, first order."""
    broker = host.open()
    dead, queue = graveyard(broker), declare(broker, dead_letter_exchange="dlx")
    queue.publish(b"a", properties=living(100)).result()
    queue.publish(b"b").result()
    held = queue.get()
    assert held is not None
    host.sleep(0.2)
    assert dead.info().ready == 0
    held.reject()
    host.sleep(0.001)
    assert [take_all(queue), take_all(dead)] == [[b"b"], [b"a"]]


def test_with_a_time_to_live_of_zero_messages_without_a_waiting_consumer_expire(host: SimulatedHost) -> None:
    queue = declare(host.open(), message_ttl=0)
    confirm = queue.publish(b"nobody")
    confirm.result()
    assert take_all(queue) == []
    with queue.consume(prefetch=1) as consumer:
        queue.publish_many([b"taken", b"not taken"]).result()
        assert next(consumer).body == b"taken"
        host.sleep(0.01)
        assert queue.info().ready == 0


def test_expired_messages_are_not_delivered_together_with_others(host: SimulatedHost) -> None:
    broker = host.open()
    queue = declare(broker)
    for number in range(12):
        queue.publish(b"%d" % number, properties=living(50) if number % 3 else None).result()
    host.sleep(1)
    with queue.consume(prefetch=0) as consumer:
        assert [next(consumer).body for _ in range(4)] == [b"0", b"3", b"6", b"9"]
    assert queue.info().ready == 0


@pytest.mark.parametrize("how", ["close", "crash", "power cut"])
def test_the_time_goes_on_while_the_broker_is_down(host: SimulatedHost, how: str) -> None:
    broker = host.open()
    dead, queue = graveyard(broker), declare(broker, message_ttl=1_000, dead_letter_exchange="dlx")
    queue.publish_many([b"1", LARGE]).result()
    host.sleep(0.5)
    if how == "close":
        broker.close()
    else:
        host.crash(power_cut=how == "power cut")
    broker = host.open()
    queue, dead = broker.queue("q"), broker.queue("dead")
    host.sleep(0.3)
    assert queue.info().ready == 2
    host.sleep(0.3)
    assert [queue.info().ready, dead.info().ready] == [0, 2]


def test_messages_that_expired_while_the_broker_was_down_are_dead_lettered_by_the_bindings(
    host: SimulatedHost,
) -> None:
    broker = host.open()
    graveyard(broker)
    declare(broker, message_ttl=100, dead_letter_exchange="dlx").publish_many([b"1", b"2", LARGE]).result()
    broker.close()
    host.sim.event().wait(1)
    broker = host.open()
    host.sleep(0.01)
    assert take_all(broker.queue("dead")) == [b"1", b"2", LARGE]


def test_an_expired_message_does_not_come_back(host: SimulatedHost) -> None:
    broker = host.open()
    queue = declare(broker)
    queue.publish(b"1", properties=living(100)).result()
    queue.publish(b"2").result()
    host.sleep(1)
    host.crash(power_cut=True)
    assert take_all(host.open().queue("q")) == [b"2"]


# length limits


def test_the_oldest_go_when_a_queue_is_too_long(host: SimulatedHost) -> None:
    broker = host.open()
    dead, queue = graveyard(broker), declare(broker, max_length=3, dead_letter_exchange="dlx")
    queue.publish_many([b"%d" % number for number in range(10)]).result()
    queue.publish(LARGE).result()
    host.sleep(0.001)
    assert take_all(queue) == [b"8", b"9", LARGE]
    assert take_all(dead) == [b"%d" % number for number in range(8)]


def test_bytes_of_bodies_count(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_length_bytes=1_000)
    queue.publish_many([b"a" * 400, b"b" * 400, b"c" * 400]).result()
    assert [body[:1] for body in take_all(queue)] == [b"b", b"c"]
    queue.publish_many([b"a" * 10, b"b" * 1_001, b"c"]).result()
    assert take_all(queue) == [b"c"]


def test_bytes_are_counted_after_a_restart(host: SimulatedHost) -> None:
    declare(host.open(), max_length_bytes=1_000).publish_many([b"a" * 400, b"b" * 400]).result()
    host.crash(power_cut=True)
    queue = host.open().queue("q")
    queue.publish(b"c" * 400).result()
    assert [body[:1] for body in take_all(queue)] == [b"b", b"c"]


def test_only_ready_messages_count(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_length=2)
    with queue.consume(prefetch=2) as consumer:
        queue.publish_many([b"%d" % number for number in range(6)]).result()
        taken = [next(consumer) for _ in range(2)]
        assert [each.body for each in taken] == [b"0", b"1"]
        assert queue.info().ready == 2
        for each in taken:
            each.reject()
        # 0 came back as the oldest, and was too much; 4 was delivered for it, so that there was room for 1
        assert [next(consumer).body for _ in range(2)] == [b"4", b"1"]


def test_a_queue_of_length_0_serves_only_waiting_consumers(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_length=0)
    queue.publish(b"nobody").result()
    with queue.consume() as consumer:
        queue.publish(b"somebody").result()
        assert next(consumer).body == b"somebody"


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses(host: SimulatedHost, overflow: str) -> None:
    """T13."""
    broker = host.open()
    dead = graveyard(broker)
    queue = declare(broker, max_length=1, overflow=overflow, dead_letter_exchange="dlx")
    with queue.consume(prefetch=1) as consumer:
        queue.publish(b"0").result()
        assert next(consumer).body == b"0"
        queue.publish(b"1").result()
        with pytest.raises(warrenmq.Nacked, match="length limit"):
            queue.publish(b"2").result()
    assert take_all(queue) == [b"1"]
    host.sleep(0.001)
    assert take_all(dead) == ([b"2"] if overflow == "reject-publish-dlx" else [])


def test_drop_head_takes_the_new_message_instead(host: SimulatedHost) -> None:
    """T13."""
    broker = host.open()
    dead, queue = graveyard(broker), declare(broker, max_length=1, dead_letter_exchange="dlx")
    with queue.consume(prefetch=1) as consumer:
        queue.publish_many([b"0", b"1"]).result()
        assert next(consumer).body == b"0"
        queue.publish(b"2").result()
        host.sleep(0.001)
        assert deaths(dead.get()) == [("q", "maxlen", 1)]
        assert queue.info().ready == 1


def test_a_batch_is_taken_as_far_as_it_fits(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_length_bytes=5, overflow="reject-publish")
    with pytest.raises(warrenmq.Nacked):
        queue.publish_many([b"12", b"3456", b"7", b"89"]).result()
    assert take_all(queue) == [b"12", b"7", b"89"]
    queue.publish_many([b"1", b"2", b"3"]).result()


def test_a_refused_message_may_be_in_other_queues(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_exchange("both", "fanout")
    full, roomy = declare(broker, "full", max_length=1, overflow="reject-publish"), declare(broker, "roomy")
    for name in ("full", "roomy"):
        broker.bind(name, "both")
    with pytest.raises(warrenmq.Nacked):
        broker.publish_many("both", "", [b"1", b"2"]).result()
    host.sleep(0.1)
    assert [take_all(full), take_all(roomy)] == [[b"1"], [b"1", b"2"]]


# dead letters


@pytest.mark.parametrize("body", [b"small", LARGE])
def test_a_rejected_message_says_of_its_death(host: SimulatedHost, body: bytes) -> None:
    broker = host.open()
    dead = graveyard(broker)
    queue = declare(broker, dead_letter_exchange="dlx", dead_letter_routing_key="other")
    properties = Properties(
        content_type="text/plain", priority=3, headers={"CC": ["q2"], "n": 1}, expiration="60000"
    )
    broker.publish("", "q", body, properties=properties).result()
    queue.get().reject(requeue=False)
    letter = dead.get(1)
    headers = letter.properties.headers
    (death,) = headers.pop("x-death")
    died = death.pop("time").timestamp()
    assert died == host.sim.wall_ns() // 10**9
    assert death == {"count": 1, "reason": "rejected", "queue": "q", "exchange": "", "routing-keys": ["q", "q2"],
                     "original-expiration": "60000"}  # fmt: skip
    first = {"x-first-death-reason": "rejected", "x-first-death-queue": "q", "x-first-death-exchange": ""}
    assert dict(headers) == {"n": 1, **first}
    assert (letter.body, letter.exchange, letter.routing_key, letter.redelivered) == (
        body,
        "dlx",
        "other",
        False,
    )
    assert (letter.properties.content_type, letter.properties.priority) == ("text/plain", 3)
    assert letter.properties.expiration is None
    assert queue.info().unacked == 0


def test_several_messages_are_rejected_in_their_order(host: SimulatedHost) -> None:
    broker = host.open()
    dead, queue = graveyard(broker), declare(broker, dead_letter_exchange="dlx")
    queue.publish_many([b"1", LARGE, b"3", b"4"]).result()
    held = [queue.get() for _ in range(3)]
    assert held[2] is not None
    held[2].nack(requeue=False, multiple=True)
    host.sleep(0.001)
    assert take_all(dead) == [b"1", LARGE, b"3"]


def test_without_an_exchange_dead_letters_are_dropped(host: SimulatedHost) -> None:
    broker = host.open()
    queue = declare(broker, dead_letter_exchange="later", max_length=1)
    queue.publish_many([b"1", b"2"]).result()
    broker.declare_exchange("later", "fanout")
    dead = broker.declare_queue("dead")
    broker.bind("dead", "later")
    queue.publish(b"3").result()
    host.sleep(0.001)
    assert take_all(dead) == [b"2"]


def test_a_dead_letter_cycle_ends_unless_a_consumer_rejects(host: SimulatedHost) -> None:
    broker = host.open()
    queue = declare(broker, message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="q")
    queue.publish(b"round").result()
    host.sleep(0.1)
    assert queue.info().ready == 0
    waiting = declare(
        broker, "waiting", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="work"
    )
    work = declare(broker, "work", dead_letter_exchange="", dead_letter_routing_key="waiting")
    work.publish(b"again").result()
    for count in range(1, 4):
        delivery = work.get(5)
        assert delivery is not None
        if count > 1:
            assert deaths(delivery) == [("waiting", "expired", count - 1), ("work", "rejected", count - 1)]
        delivery.reject(requeue=False)
    host.sleep(0.001)
    assert waiting.info().ready == 1


def test_purged_and_deleted_messages_are_no_dead_letters(host: SimulatedHost) -> None:
    broker = host.open()
    dead, queue = graveyard(broker), declare(broker, dead_letter_exchange="dlx")
    queue.publish(b"1").result()
    queue.purge()
    queue.publish(b"2").result()
    broker.delete_queue("q")
    host.sleep(0.1)
    assert take_all(dead) == []


# x-expires


def test_an_unused_queue_expires(host: SimulatedHost) -> None:
    broker = host.open()
    queue = declare(broker, expires=1_000)
    for use in (queue.get, lambda: declare(broker, expires=1_000), queue.get):
        host.sleep(0.8)
        use()
    queue.publish(b"no use").result()
    host.sleep(0.9)
    broker.queue("q")
    host.sleep(0.2)
    with pytest.raises(warrenmq.NotFound):
        broker.queue("q")
    host.crash(power_cut=True)
    with pytest.raises(warrenmq.NotFound):
        host.open().queue("q")


def test_a_queue_lives_as_long_as_it_has_consumers_and_its_time_from_then_on(host: SimulatedHost) -> None:
    broker = host.open()
    queue = declare(broker, expires=1_000)
    with queue.consume():
        host.sleep(3)
    host.sleep(0.9)
    broker.queue("q")
    host.sleep(0.2)
    with pytest.raises(warrenmq.NotFound):
        broker.queue("q")


# priorities


def test_messages_of_all_priorities_are_counted(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q", arguments={"x-max-priority": 2})
    for priority in (0, 1, 1, 2, 9):
        queue.publish(b"x", priority=priority).result()
    assert broker.inside.vhost.figures["q"]().published == 5
    assert [*queue.info().next_seq_ids] == [1, 2, 2]
    broker.close()


def test_the_highest_priority_is_first_and_within_it_the_oldest(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_priority=3)
    for number, priority in enumerate([None, 3, 1, 9, 0, 2, 3, 1]):
        body = b"%d" % number + (LARGE if number % 2 else b"")
        queue.publish(body, properties=Properties(priority=priority), persistent=number != 6).result()
    assert [body[:1] for body in take_all(queue)] == [b"1", b"3", b"6", b"5", b"2", b"7", b"0", b"4"]


@pytest.mark.parametrize("how", ["close", "crash", "power cut"])
def test_priorities_survive(host: SimulatedHost, how: str) -> None:
    broker = host.open()
    queue = declare(broker, max_priority=2)
    for number in range(6):
        queue.publish(
            b"%d" % number + b"." * 150 * number, properties=Properties(priority=number % 3)
        ).result()
    queue.get().ack()
    if how == "close":
        broker.close()
    else:
        host.sleep(1)
        host.crash(power_cut=how == "power cut")
    broker = host.open()
    queue = broker.queue("q")
    assert [body[:1] for body in take_all(queue)] == [b"5", b"1", b"4", b"0", b"3"]
    assert broker.delete_queue("q") == 0
    assert host.disk.listdir(f"{broker.inside.vhost.directory.path}/queues") == []


def test_a_rejected_message_returns_to_its_place_in_its_priority(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_priority=2)
    for number in range(6):
        queue.publish(b"%d" % number, properties=Properties(priority=number % 3)).result()
    held = [queue.get() for _ in range(4)]
    assert [each.body for each in held if each] == [b"2", b"5", b"1", b"4"]
    for each in held[1:3]:
        assert each is not None
        each.reject()
    assert take_all(queue) == [b"5", b"1", b"0", b"3"]


def test_limits_and_times_are_those_of_the_head_of_the_highest_priority(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_priority=1, max_length=3, message_ttl=1_000)
    for number in range(5):
        queue.publish(b"%d" % number, properties=Properties(priority=number % 2)).result()
    assert queue.info().ready == 3
    assert take_all(queue) == [b"0", b"2", b"4"]  # the messages of priority 1 were the head
    queue.publish(b"low", properties=Properties(expiration="10")).result()
    queue.publish(b"high", properties=Properties(priority=1)).result()
    host.sleep(0.5)
    assert queue.info().ready == 2  # behind the high one the low one waits
    host.sleep(0.6)
    assert queue.info().ready == 0


def test_a_dead_queue_process_comes_back_with_its_arguments(host: SimulatedHost) -> None:
    queue = declare(host.open(), max_length=2, max_priority=1)
    queue.publish_many([b"1", b"2"]).result()
    host.sim.kill(host.sim.whereis(queue_name("q")))
    host.sleep(1)
    queue.publish(b"3", properties=Properties(priority=1)).result()
    queue.publish(b"4").result()
    assert take_all(queue) == [b"2", b"4"]


def test_a_queues_version_may_be_its_own(host: SimulatedHost) -> None:
    broker = host.open()
    declare(broker, "one", queue_version=1).publish(b"1").result()
    declare(broker, "two", queue_version=2).publish(b"2").result()
    broker.close()
    host.settings = replace(host.settings, queue_version=3 - host.settings.queue_version)
    broker = host.open()
    folders = [broker.inside.vhost.directory.folders(name, None)[0] for name in ("one", "two")]
    assert [take_all(broker.queue(name)) for name in ("one", "two")] == [[b"1"], [b"2"]]
    assert any(name.endswith((".jif", ".idx")) for name in host.disk.listdir(folders[0]))
    assert not any(name.endswith((".jif", ".idx")) for name in host.disk.listdir(folders[1]))


def test_a_lazy_queue_has_its_messages_on_disk(host: SimulatedHost) -> None:
    host.settings = replace(host.settings, queue_ram_bytes=1 << 30)
    queue = declare(host.open(), queue_mode="lazy")
    for number in range(20):
        queue.publish(b"%d" % number + LARGE).result()
    assert queue.info().memory.ram_msg_count <= 2
    assert [body[:2] for body in take_all(queue)] == [(b"%d" % number + LARGE)[:2] for number in range(20)]


# refusals


def test_conditions_of_a_delete_are_refused_in_rabbitmqs_words(host: SimulatedHost) -> None:
    broker = host.open()
    queue = declare(broker)
    queue.publish(b"1").result()
    with queue.consume(prefetch=1):
        queue.publish(b"2").result()
        host.sleep(0.01)
        with pytest.raises(warrenmq.PreconditionFailed) as refused:
            broker.delete_queue("q", if_unused=True, if_empty=True)
        assert refused.value.reply_text == "queue 'q' in vhost '/' not empty"
        with pytest.raises(warrenmq.PreconditionFailed) as refused:
            broker.delete_queue("q", if_unused=True)
        assert refused.value.reply_text == "queue 'q' in vhost '/' in use"
