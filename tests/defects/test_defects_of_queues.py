"""RabbitMQ's defects of queue processes, channels and declarations, expressed against our broker (docs/defects.md)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.simulated import BOTH_PROFILES, SMALL, SimulatedHost, take_all
from warrenmq.actors.queue.process import QueueProcess
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.queue.messages import Ack, Publish, Reject
from warrenmq.routing.exchange_types import Topic
from warrenmq.settings import Settings

LARGE = b"L" * 900


@pytest.fixture(params=BOTH_PROFILES.values(), ids=BOTH_PROFILES)
def host(request: pytest.FixtureRequest) -> Iterator[SimulatedHost]:
    made = SimulatedHost(7, request.param)
    yield made
    made.check_trace()
    made.close()


def kill(host: SimulatedHost, queue: str) -> None:
    host.sim.kill(host.sim.whereis(queue_name(queue)))


# confirms and credit


def test_a_purge_confirms_what_is_still_to_be_confirmed(host: SimulatedHost) -> None:
    """RabbitMQ threw its index away, and the confirms with it."""
    broker = host.open()
    queue = broker.declare_queue("q")
    confirms = [queue.publish(body) for body in (b"small", LARGE, b"small too", LARGE)]
    assert queue.purge() == 4
    for confirm in confirms:
        confirm.result()
    assert take_all(broker.queue("q")) == []


def test_messages_published_after_a_purge_are_on_disk(host: SimulatedHost) -> None:
    """RabbitMQ removed the folder under its own open journal."""
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", LARGE]).result()
    queue.purge()
    queue.publish_many([b"2", LARGE]).result()
    host.crash(power_cut=True)
    assert take_all(host.open().queue("q")) == [b"2", LARGE]


def test_a_publisher_waits_for_credit_no_longer_than_its_queue_lives() -> None:
    host = SimulatedHost(7, replace(SMALL, credit_flow_default_credit=(4, 2)), traced=False)
    broker = host.open()
    queue = broker.declare_queue("q")
    stuck = host.sim.event()

    def hang_and_die(op: str, path: str) -> None:
        if op == "datasync" and path.endswith(".qi"):
            stuck.set()
            host.sleep(5)
            host.disk.before_op = None
            kill(host, "q")

    host.disk.before_op = hang_and_die
    confirms = [queue.publish(b"first")]
    assert stuck.wait(LIMIT)
    confirms += [queue.publish(b"x") for _ in range(3)]
    assert broker.would_block("", "q")
    # the first of these waits for credit that never comes
    confirms += [queue.publish(b"y") for _ in range(20)]
    for confirm in confirms[:5]:
        with pytest.raises(warrenmq.Nacked):
            confirm.result()
    confirms[-1].result()
    assert all(confirm.done() for confirm in confirms)
    host.close()


def test_a_queue_that_dies_breaks_the_promise_and_other_queues_change_nothing(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_exchange("both", "fanout")
    for name in ("a", "b"):
        broker.declare_queue(name).get()  # its process starts
        broker.bind(name, "both")
    confirm = broker.publish("both", "", LARGE)
    kill(host, "a")
    settled: list[bool] = []
    confirm.add_done_callback(lambda each: settled.append(each.exception() is None))
    with pytest.raises(warrenmq.Nacked):
        confirm.result()
    host.sleep(1)
    assert settled == [False]
    assert isinstance(confirm.exception(), warrenmq.Nacked)
    assert take_all(broker.queue("b")) == [LARGE]


def test_each_publish_has_the_answer_to_itself(host: SimulatedHost) -> None:
    """RabbitMQ counts publishes and once counted one too many: answers then went to their neighbours."""
    broker = host.open()
    queue = broker.declare_queue("q")
    answers = [broker.publish("", name, b"x", mandatory=True) for name in ("nowhere", "q", "nowhere", "q")]
    for confirm, returned in zip(answers, (True, False, True, False), strict=True):
        if returned:
            with pytest.raises(warrenmq.Returned):
                confirm.result()
        else:
            confirm.result()
    assert len(take_all(broker.queue("q"))) == 2
    assert queue.name == "q"


# acks and order


def test_an_ack_that_names_nothing_changes_nothing(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", LARGE, b"3"]).result()
    deliveries = [queue.get() for _ in range(3)]
    assert None not in deliveries
    process = host.sim.whereis(queue_name("q"))
    for consumer in (0, 1, 99):
        for tag in (0, 17):
            host.sim.cast(process, Ack(consumer, tag))
            host.sim.cast(process, Reject(consumer, tag, multiple=False, requeue=True))
    for delivery in deliveries[:2]:
        assert delivery is not None
        delivery.ack()
    host.sleep(1)
    assert host.sim.whereis(queue_name("q")) == process
    kill(host, "q")
    assert take_all(broker.queue("q")) == [b"3"]


def test_a_reject_overtakes_no_publish_and_no_reject() -> None:
    publish, ack, reject = (QueueProcess.ranks.get(kind, 0) for kind in (Publish, Ack, Reject))
    assert publish == reject == 0 < ack


def test_an_ack_of_several_does_not_overtake_a_reject(host: SimulatedHost) -> None:
    """It acked what had been given back just before."""
    broker = host.open()
    queue = broker.declare_queue("q")
    for number in range(20):  # in which the queue sees both at the same time
        queue.publish_many([b"%d" % number, b"second"]).result()
        first, second = queue.get(), queue.get()
        assert first is not None
        assert second is not None
        first.nack()
        second.ack(multiple=True)
        assert take_all(queue) == [b"%d" % number]


def test_messages_settled_together_are_settled_in_the_order_of_delivery(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"%d" % n for n in range(10)]).result()
    with queue.consume(prefetch=10) as consumer:
        deliveries = [next(consumer) for _ in range(10)]
        deliveries[3].ack()
        deliveries[7].nack(multiple=True)
        host.sleep(0.1)
        again = [next(consumer).body for _ in range(7)]
    assert again == [b"%d" % n for n in (0, 1, 2, 4, 5, 6, 7)]


def test_acks_alone_wait_for_the_slow_sync(host: SimulatedHost) -> None:
    """Acks that no confirm waits for are synced after 200 ms, and not one by one."""
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish_many([b"%d" % n for n in range(4)]).result()
    host.sleep(1)
    syncs: list[str] = []

    def note(op: str, path: str) -> None:
        if op == "datasync":
            syncs.append(path)
        host.before_op(op, path)

    host.disk.before_op = note
    for _ in range(4):
        queue.get().ack()
        host.sleep(0.03)
    assert syncs == []
    host.sleep(0.3)
    assert syncs != []


# redelivered


def test_messages_that_may_have_been_delivered_before_a_crash_are_redelivered_after_any_number_of_starts(
    host: SimulatedHost,
) -> None:
    """Dirty, dirty, clean: RabbitMQ kept the marks of the first recovery in memory only."""
    broker = host.open()
    broker.declare_queue("q").publish_many([b"1", LARGE, b"3"]).result()
    for clean in (False, False, True):
        if clean:
            broker.close()
        host.crash(power_cut=not clean)
        broker = host.open()
    queue = broker.queue("q")
    deliveries = [queue.get() for _ in range(3)]
    assert [delivery is not None and delivery.redelivered for delivery in deliveries] == [True] * 3


def test_a_gap_in_the_sequence_ids_hides_no_redelivery(host: SimulatedHost) -> None:
    """RabbitMQ counts deliveries one by one, and stops counting at an id that a transient message had."""
    broker = host.open()
    queue = broker.declare_queue("q")
    queue.publish(b"1").result()
    queue.publish(b"transient", persistent=False).result()
    queue.publish(b"2").result()
    broker.close()
    host.crash(power_cut=False)
    broker = host.open()
    queue = broker.queue("q")
    got = [queue.get(), queue.get()]
    assert [each is not None and (each.body, each.redelivered) for each in got] == [
        (b"1", False),
        (b"2", False),
    ]
    broker.close()
    host.crash(power_cut=False)
    queue = host.open().queue("q")
    got = [queue.get(), queue.get()]
    assert [each is not None and (each.body, each.redelivered) for each in got] == [
        (b"1", True),
        (b"2", True),
    ]


# segments, sizes, starts


@pytest.mark.parametrize("settings", BOTH_PROFILES.values(), ids=BOTH_PROFILES)
@pytest.mark.parametrize("later", [4, 8, 16])
def test_another_segment_size_in_the_settings_changes_no_vhost_that_is_there(
    later: int, settings: Settings
) -> None:
    """Not for the queues, and not for who counts the store's references in their indexes."""
    host = SimulatedHost(7, settings)
    broker = host.open()
    queue = broker.declare_queue("q")
    wanted = [b"%d" % n if n % 3 else b"%d" % n + LARGE for n in range(30)]
    for body in wanted:
        queue.publish(body).result()
    host.crash(power_cut=True)
    sizes = {"queue_index_segment_entry_count": later, "classic_queue_index_v2_segment_entry_count": later}
    host.settings = replace(settings, **sizes)
    broker = host.open()
    assert broker.stats().stores[0].messages == 10
    assert take_all(broker.queue("q")) == wanted
    host.close()


def test_a_backlog_comes_back_once_and_in_order_whatever_part_of_it_is_in_memory(host: SimulatedHost) -> None:
    """Read in runs across segments, requeued in between, restarted in the middle: no message twice, none left out."""
    broker = host.open()
    queue = broker.declare_queue("q")
    wanted = [b"%d" % n for n in range(4_000)]
    for first in range(0, 4_000, 200):
        queue.publish_many(wanted[first : first + 200]).result()
    seen = []
    for clean in (True, False):
        with queue.consume(prefetch=60) as consumer:
            for _ in range(10):
                some = [next(consumer) for _ in range(60)]
                some[-1].nack()
                queue.info()  # acks overtake rejects in the mailbox, as in RabbitMQ: wait until the nack was handled
                some[-2].ack(multiple=True)
                seen += [delivery.body for delivery in some[:-1]]
        host.sleep(1)
        if clean:
            broker.close()
        host.crash(power_cut=False)
        broker = host.open()
        queue = broker.queue("q")
    seen += take_all(broker.queue("q"))
    assert seen == wanted


def test_a_purge_takes_the_part_of_a_queue_that_is_on_disk_too(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    for _ in range(20):
        queue.publish_many([b"x"] * 200).result()
    queue.publish(LARGE).result()
    held = queue.get()
    assert held is not None
    assert queue.purge() == 4_000
    held.ack()
    host.sleep(1)
    assert take_all(broker.queue("q")) == []
    stats = broker.stats()
    assert stats.stores[0].messages == 0
    broker.close()
    host.crash(power_cut=False)
    assert take_all(host.open().queue("q")) == []


def test_a_tail_of_nothing_but_old_transient_messages_is_an_empty_queue(host: SimulatedHost) -> None:
    """RabbitMQ 4.0 to 4.2 looked for a message in it for ever."""
    broker = host.open()
    queue = broker.declare_queue("q")
    for _ in range(20):
        queue.publish_many([b"t"] * 1_000, persistent=False).result()
    for clean in (True, False):
        if clean:
            broker.close()
        host.crash(power_cut=False)
        broker = host.open()
        queue = broker.queue("q")
        assert queue.get() is None
        queue.publish(b"p").result()
        delivery = queue.get()
        assert (delivery.body, delivery.redelivered) == (b"p", False)
        delivery.ack()
        host.sleep(1)


def test_a_read_that_fails_once_costs_no_message(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q")
    for number in range(12):
        queue.publish(b"%d" % number + LARGE).result()
    broker.close()
    host.crash(power_cut=False)
    broker = host.open()
    host.disk.fail_next("pread", "/0.rdq", errno.EIO)
    assert take_all(broker.queue("q")) == [b"%d" % number + LARGE for number in range(12)]


# declarations


@pytest.mark.parametrize(
    "argument",
    [
        "x-dead-letter-exchange",
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-queue-mode",
        "x-max-priority",
    ],
)
def test_a_queue_with_a_wrong_argument_is_refused_and_not_half_done(
    host: SimulatedHost, argument: str
) -> None:
    broker = host.open()
    with pytest.raises(warrenmq.PreconditionFailed, match=argument):
        broker.declare_queue("q", arguments={argument: -1})
    with pytest.raises(warrenmq.NotFound):
        broker.queue("q")


def test_an_exclusive_queue_is_not_durable(host: SimulatedHost) -> None:
    broker = host.open()
    queue = broker.declare_queue("q", exclusive=True, durable=True)
    queue.publish(b"x").result()
    host.crash(power_cut=False)
    broker = host.open()
    with pytest.raises(warrenmq.NotFound):
        broker.queue("q")


@pytest.mark.parametrize("kind", ["direct", "fanout"])
def test_an_unbind_of_what_is_not_bound_is_nothing(host: SimulatedHost, kind: str) -> None:
    broker = host.open()
    broker.declare_exchange("e", kind)
    broker.declare_queue("q")
    broker.bind("q", "e", "key")
    broker.unbind("q", "e", "another key")
    broker.unbind("q", "e", "another key")
    broker.publish("e", "key", b"x", mandatory=True).result()
    broker.unbind("q", "e", "key")
    broker.unbind("q", "e", "key")
    assert take_all(broker.queue("q")) == [b"x"]


def test_an_exchange_whose_deletion_was_refused_is_as_before(host: SimulatedHost) -> None:
    broker = host.open()
    broker.declare_exchange("e", "direct")
    broker.declare_queue("q")
    broker.bind("q", "e", "key")
    with pytest.raises(warrenmq.PreconditionFailed, match="in use"):
        broker.delete_exchange("e", if_unused=True)
    broker.declare_exchange("e", "direct")
    broker.publish("e", "key", b"x", mandatory=True).result()
    broker.unbind("q", "e", "key")
    broker.delete_exchange("e", if_unused=True)
    with pytest.raises(warrenmq.NotFound):
        broker.publish("e", "key", b"x")


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_an_empty_binding_key_is_a_key_like_others_and_of_its_own_exchange(
    host: SimulatedHost, kind: str
) -> None:
    broker = host.open()
    for exchange, name in (("e", "a"), ("f", "b")):
        broker.declare_exchange(exchange, kind)
        broker.declare_queue(name)
        broker.bind(name, exchange)
    broker.publish("e", "", b"x", mandatory=True).result()
    for key in ("#", "*", "a"):
        with pytest.raises(warrenmq.Returned):
            broker.publish("e", key, b"y", mandatory=True).result()
    assert (take_all(broker.queue("a")), take_all(broker.queue("b"))) == ([b"x"], [])


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_nothing_of_a_binding_is_left_when_it_is_gone(host: SimulatedHost, kind: str) -> None:
    broker = host.open()
    broker.declare_exchange("e", kind)
    broker.declare_queue("q")
    router = broker.inside.vhost.router

    def tables() -> str:
        table = router._types["e"]
        inside = (
            vars(table)
            if not isinstance(table, Topic)
            else (table.trie.root.children, table.trie.root.destinations)
        )
        return repr(
            (
                router.bindings_of("e"),
                router._by_destination,
                inside,
                broker.inside.vhost.definitions.bindings,
            )
        )

    before = tables()
    for number in range(50):
        broker.bind("q", "e", f"key.{number}.#")
    assert tables() != before
    for number in range(50):
        broker.unbind("q", "e", f"key.{number}.#")
    assert tables() == before


def test_intervals_and_sizes_are_those_of_the_release_that_settled_on_them() -> None:
    settings = Settings()
    assert (settings.queue_sync_interval, settings.msg_store_sync_interval) == (200, 25)
    assert settings.queue_index_max_journal_entries == 32_768
    assert settings.msg_store_shutdown_timeout == settings.classic_queue_shutdown_timeout == 600_000
