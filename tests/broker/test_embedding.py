"""The promises of the embedded face, on real files and threads."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.schedulers import until
from tests.support.simulated import take_all
from tests.support.source_tree import ROOT
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.queue_index.v2.index import QueueIndexV2
from warrenmq.runtime import Pool


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[warrenmq.Broker]:
    with warrenmq.open(tmp_path / "data") as made:
        yield made


def test_the_first_example_of_the_readme(broker: warrenmq.Broker) -> None:
    jobs = broker.declare_queue("jobs")
    confirm = jobs.publish(b"payload")
    confirm.result()
    for delivery in jobs.consume(prefetch=100):
        assert delivery.body == b"payload"
        assert (delivery.exchange, delivery.routing_key, delivery.redelivered) == ("", "jobs", False)
        delivery.ack()
        break
    assert jobs.get() is None


def test_messages_of_all_sizes_come_back_in_order_after_a_clean_restart(tmp_path: Path) -> None:
    bodies = [
        bytes([i]) * size for i, size in enumerate([0, 1, 255, 256, 4000, 4096, 5000, 70_000, 3_000_000, 9])
    ]
    with warrenmq.open(tmp_path) as broker:
        queue = broker.declare_queue("q")
        for body in bodies[:5]:
            queue.publish(body)
        queue.publish_many(bodies[5:]).result()
    with warrenmq.open(tmp_path) as broker:
        assert take_all(broker.queue("q")) == bodies
    with warrenmq.open(tmp_path) as broker:
        assert take_all(broker.queue("q")) == []


def test_a_clean_stop_closes_the_files_of_its_queues(tmp_path: Path) -> None:
    """It opened them again for the terms, and they stayed open until the garbage collector came."""
    gc.disable()
    try:
        for body in (b"1", b"2"):
            with warrenmq.open(tmp_path) as broker:
                broker.declare_queue("q").publish(body).result(5)
            links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
            assert not [each for each in links if os.path.realpath(each).startswith(str(tmp_path))]
    finally:
        gc.enable()


def test_transient_messages_and_queues_do_not_survive_a_restart(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path) as broker:
        durable = broker.declare_queue("durable")
        durable.publish(b"transient", persistent=False).result()
        durable.publish(b"persistent").result()
        durable.publish(b"T" * 5000, persistent=False).result()
        broker.declare_queue("transient", durable=False).publish(b"x").result()
    with warrenmq.open(tmp_path) as broker:
        assert take_all(broker.queue("durable")) == [b"persistent"]
        with pytest.raises(warrenmq.NotFound, match="'transient'"):
            broker.queue("transient")


def test_a_delivery_mode_of_1_makes_a_message_transient_and_properties_come_back(tmp_path: Path) -> None:
    properties = warrenmq.Properties(content_type="text/plain", headers={"a": [1, "x"]}, delivery_mode=1)
    with warrenmq.open(tmp_path) as broker:
        queue = broker.declare_queue("q")
        queue.publish(b"gone", properties=properties).result()
        got = queue.get()
        assert got.properties == properties
        got.nack()
    with warrenmq.open(tmp_path) as broker:
        assert take_all(broker.queue("q")) == []


def test_direct_and_fanout_exchanges_route_and_bindings_survive(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path) as broker:
        for name in ("a", "b"):
            broker.declare_queue(name)
        events = broker.declare_exchange("events", "direct")
        everyone = broker.declare_exchange("everyone", "fanout")
        broker.bind("a", events, "red")
        broker.bind("b", events, "blue")
        broker.bind("b", events, "red")
        broker.unbind("b", events, "blue")
        for name in ("a", "b"):
            broker.bind(name, everyone)
    with warrenmq.open(tmp_path) as broker:
        broker.publish("events", "red", b"1").result()
        broker.publish("events", "blue", b"nobody").result()
        broker.publish("everyone", "whatever", b"L" * 6000).result()
        persistent = next(store for store in broker.stats().stores if store.name == "msg_store_persistent")
        assert (persistent.messages, persistent.references) == (1, 2), (
            "a large message is stored once for both queues"
        )
        with pytest.raises(warrenmq.Returned, match="'blue'"):
            broker.publish("events", "blue", b"nobody", mandatory=True).result()
        assert take_all(broker.queue("a")) == [b"1", b"L" * 6000]
        assert take_all(broker.queue("b")) == [b"1", b"L" * 6000]


def test_requeue_puts_messages_back_to_their_places_and_marks_them(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    queue.publish_many([b"0", b"1", b"2", b"3"]).result()
    with queue.consume() as consumer:
        first, second, third = (next(consumer) for _ in range(3))
        second.nack()
        third.reject(requeue=False)
        first.nack(requeue=True)
    assert [(each.body, each.redelivered) for each in iter(queue.get, None)] == [
        (b"0", True),
        (b"1", True),
        (b"3", True),
    ]


def test_a_consumer_gets_no_more_than_its_prefetch(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    queue.publish_many([b"%d" % i for i in range(10)]).result()
    with queue.consume(prefetch=3) as consumer:
        held = consumer.take(10, timeout=LIMIT)
        while len(held) < 3:
            held += consumer.take(10, timeout=LIMIT)
        assert [each.body for each in held] == [b"0", b"1", b"2"]
        assert consumer.get(timeout=0.05) is None
        held[2].ack(multiple=True)
        assert next(consumer).body == b"3"


def test_two_consumers_share_evenly(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    with queue.consume(prefetch=50) as one, queue.consume(prefetch=50) as two:
        queue.publish_many([b"%d" % i for i in range(100)]).result()
        counts = []
        for consumer in (one, two):
            taken: list[warrenmq.Delivery] = []
            while len(taken) < 50:
                taken += consumer.take(50, timeout=LIMIT)
            counts.append(len(taken))
    assert counts == [50, 50]


def test_acks_from_other_threads_are_accepted(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    queue.publish_many([b"x"] * 20).result()
    with queue.consume(prefetch=20) as consumer:
        deliveries = [next(consumer) for _ in range(20)]
        threads = [threading.Thread(target=delivery.ack) for delivery in deliveries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    info = queue.info()
    assert (info.ready, info.unacked) == (0, 0)


def test_get_waits_for_its_timeout(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    assert queue.get(timeout=0.01) is None
    publisher = threading.Timer(0.05, lambda: queue.publish(b"late"))
    publisher.start()
    got = queue.get(timeout=LIMIT)
    publisher.join()
    assert got is not None
    assert got.body == b"late"


def test_a_redeclare_must_ask_for_what_is_there(broker: warrenmq.Broker) -> None:
    broker.declare_queue("q")
    broker.declare_queue("q")
    with pytest.raises(
        warrenmq.PreconditionFailed, match=r"'q'.*cannot be declared again with another durable"
    ):
        broker.declare_queue("q", durable=False)
    with pytest.raises(warrenmq.AccessRefused, match="amq"):
        broker.declare_queue("amq.mine")
    with pytest.raises(warrenmq.NotFound, match="'nowhere'"):
        broker.publish("nowhere", "", b"")


def test_deleting_a_queue_ends_its_consumers_and_frees_its_name(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    queue.publish_many([b"x" * 5000] * 3).result()
    with queue.consume(prefetch=1) as consumer:
        assert next(consumer).body
        with pytest.raises(warrenmq.PreconditionFailed, match="consumers"):
            broker.delete_queue("q", if_unused=True)
        with pytest.raises(warrenmq.PreconditionFailed, match="not empty"):
            broker.delete_queue("q", if_empty=True)
        assert broker.delete_queue("q") == 2
        assert list(consumer) == []
    assert broker.declare_queue("q").get() is None
    persistent = next(store for store in broker.stats().stores if store.name == "msg_store_persistent")
    assert (persistent.messages, persistent.references) == (0, 0)


def test_auto_delete_and_exclusive_queues_go_when_they_should(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path) as broker:
        with broker.declare_queue("auto", auto_delete=True).consume():
            broker.queue("auto")
        until(broker.runtime, lambda: "auto" not in [each.name for each in broker.stats().queues])
        with pytest.raises(warrenmq.NotFound):
            broker.queue("auto")
        broker.declare_queue("mine", exclusive=True)
    with warrenmq.open(tmp_path) as broker, pytest.raises(warrenmq.NotFound):
        broker.queue("mine")


def test_a_purge_drops_ready_messages_and_leaves_unacked_ones(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    queue.publish_many([b"a", b"b" * 5000, b"c"]).result()
    held = queue.get()
    assert held is not None
    assert queue.purge() == 2
    held.nack()
    assert take_all(queue) == [b"a"]


def test_a_transaction_takes_effect_as_a_whole_or_not_at_all(broker: warrenmq.Broker) -> None:
    queue = broker.declare_queue("q")
    queue.publish(b"first").result()
    with pytest.raises(RuntimeError, match="changed my mind"), broker.tx():
        lost = queue.publish(b"never")
        raise RuntimeError("changed my mind")
    with pytest.raises(warrenmq.Nacked, match="rolled back"):
        lost.result(0)
    got = queue.get()
    assert got is not None
    with broker.tx():
        kept = queue.publish(b"second")
        got.ack()
        assert queue.info().unacked == 1
    assert kept.done()
    assert take_all(queue) == [b"second"]


SETTLES = (
    warrenmq.Delivery.ack,
    warrenmq.Delivery.nack,
    warrenmq.Delivery.reject,
    partial(warrenmq.Delivery.ack, multiple=True),
    partial(warrenmq.Delivery.nack, multiple=True),
)


@pytest.fixture(name="transacted", params=["embedded", "owner", "attached"])
def _transacted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[warrenmq.Broker]:
    """A broker, of each kind."""
    shared = request.param != "embedded"
    with warrenmq.open(tmp_path, shared=shared) as broker:
        if request.param != "attached":
            yield broker
            return
        with warrenmq.open(tmp_path, shared=True) as attached:
            yield attached


def test_what_a_rolled_back_transaction_settled_can_be_settled_again(transacted: warrenmq.Broker) -> None:
    """It counted as settled, and the message stayed unacked until the broker was closed."""
    queue = transacted.declare_queue("q")
    for settle in SETTLES:
        for again in SETTLES:
            queue.publish_many([b"1", b"2"]).result(LIMIT)
            with queue.consume(prefetch=2) as consumer:
                first, second = next(consumer), next(consumer)
                with pytest.raises(ZeroDivisionError), transacted.tx():
                    settle(second)
                    with pytest.raises(warrenmq.PreconditionFailed, match="settled already"):
                        second.ack()
                    raise ZeroDivisionError
                assert queue.info().unacked == 2
                first.ack()
                again(second)
            assert queue.info().unacked == 0
            queue.purge()


def test_a_commit_that_cannot_be_sent_is_rolled_back(transacted: warrenmq.Broker) -> None:
    """A part of it took effect, the other confirms never came, and the message could not be settled any more."""
    queue, exchange = transacted.declare_queue("q"), transacted.declare_exchange("gone")
    queue.publish(b"job").result(LIMIT)
    got = queue.get()
    assert got is not None
    with pytest.raises(warrenmq.NotFound), transacted.tx():
        promises = [queue.publish(b"1"), exchange.publish("", b"2"), queue.publish(b"3")]
        got.ack()
        transacted.delete_exchange(exchange)
    for promise in promises:
        with pytest.raises(warrenmq.Nacked, match="rolled back"):
            promise.result(0)
    got.nack()
    assert take_all(queue) == [b"job"]


def test_what_a_commit_did_not_send_is_rolled_back(broker: warrenmq.Broker) -> None:
    queue, exchange = broker.declare_queue("q"), broker.declare_exchange("gone")
    queue.publish_many([b"first", b"second"]).result(LIMIT)
    first, second = queue.get(), queue.get()
    assert first is not None
    assert second is not None
    with pytest.raises(warrenmq.NotFound), broker.tx():
        first.ack()
        broker.publish("", "nowhere", b"").add_done_callback(lambda _: broker.delete_exchange(exchange))
        lost = exchange.publish("", b"lost")
        second.ack()
    with pytest.raises(warrenmq.Nacked, match="rolled back"):
        lost.result(0)
    with pytest.raises(warrenmq.PreconditionFailed, match="settled already"):
        first.ack()
    second.nack()
    assert take_all(queue) == [b"second"]


def test_an_exclusive_queue_is_consumed_in_every_way(transacted: warrenmq.Broker) -> None:
    """A consumer with a connection of its own was refused as another's."""
    queue = transacted.declare_queue(exclusive=True)
    for prefetch, no_ack in ((1, False), (0, False), (1, True)):
        queue.publish(b"1").result(LIMIT)
        with queue.consume(prefetch, no_ack) as consumer:
            assert next(consumer).body == b"1"


@pytest.mark.parametrize("shared", [False, True])
def test_a_queue_with_the_name_of_an_exclusive_one_outlives_the_broker(tmp_path: Path, shared: bool) -> None:
    """It was deleted with its confirmed messages, as the name had been an exclusive queue's."""
    with warrenmq.open(tmp_path, shared=shared) as broker:
        broker.declare_queue("q", exclusive=True).delete()
        broker.declare_queue("q").publish(b"1").result(LIMIT)
        broker.declare_queue("mine", exclusive=True)
    with warrenmq.open(tmp_path) as broker:
        assert [each.name for each in broker.queues()] == ["q"]
        assert take_all(broker.queue("q")) == [b"1"]


@pytest.mark.parametrize("last", [False, True])
def test_what_an_attached_process_gives_back_stays_persistent(tmp_path: Path, last: bool) -> None:
    """The copy was transient, as nothing told that the owner's message was not, and was lost with the owner."""
    with warrenmq.open(tmp_path, shared=True) as owner, warrenmq.open(tmp_path, shared=True) as attached:
        queue, failed = attached.declare_queue("q"), attached.declare_queue("failed")
        owner.publish("", "q", b"owner's").result(LIMIT)
        owner.publish("", "q", b"transient", persistent=False).result(LIMIT)
        queue.publish(b"delayed", delay=0.001).result(LIMIT)
        queue.retry_policy(max_attempts=1 if last else 2, backoff=3600, dead_letter=failed)
        for _ in range(3):
            delivery = queue.get(timeout=LIMIT)
            assert delivery is not None
            assert delivery.properties.delivery_mode == (1 if delivery.body == b"transient" else 2)
            delivery.retry()
    with warrenmq.open(tmp_path) as broker:
        assert broker.inside.local_client.waiting_later() == (0 if last else 2)
        assert take_all(broker.queue("failed")) == ([b"owner's", b"delayed"] if last else [])


def test_two_threads_may_close_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one closed the files once more, and raised an OSError."""
    broker = warrenmq.open(tmp_path)
    both, drain, ended = threading.Barrier(2), broker._local.drain, []

    def meet(timeout: float | None) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.1)
        drain(timeout)

    monkeypatch.setattr(broker._local, "drain", meet)
    closers = [threading.Thread(target=lambda: ended.append(broker.close())) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(LIMIT)
    assert ended == [(), ()]


def test_a_consumer_that_is_dropped_in_a_transaction_is_cancelled(transacted: warrenmq.Broker) -> None:
    """Its cancel was kept until the end of the transaction, and dropped with it."""
    queue = transacted.declare_queue("q")
    queue.publish(b"1").result(LIMIT)
    consumer = queue.consume()
    with pytest.raises(ZeroDivisionError), transacted.tx():
        assert next(consumer).body == b"1"
        del consumer
        raise ZeroDivisionError
    assert queue.info().consumers == 0


def test_misuse_is_answered_with_a_sentence_and_loses_nothing(tmp_path: Path) -> None:
    broker = warrenmq.open(tmp_path)
    queue = broker.declare_queue("q")
    queue.publish_many([b"1", b"2", b"3"]).result()
    with queue.consume() as consumer:
        first, second = next(consumer), next(consumer)
        second.ack(multiple=True)
        with pytest.raises(warrenmq.PreconditionFailed, match="settled already"):
            second.ack()
        with pytest.raises(warrenmq.PreconditionFailed, match="multiple=True"):
            first.ack()
    with queue.consume(no_ack=True) as consumer, pytest.raises(warrenmq.PreconditionFailed, match="no_ack"):
        next(consumer).ack()
    with pytest.raises(warrenmq.PreconditionFailed, match="prefetch is -1"):
        queue.consume(prefetch=-1)
    broker.close()
    broker.close()
    with pytest.raises(warrenmq.BrokerClosed, match="is closed"):
        queue.publish(b"late")
    with pytest.raises(warrenmq.BrokerClosed, match="is closed"):
        first.nack()


def test_a_directory_has_one_owner_who_is_named(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path), pytest.raises(warrenmq.DirectoryInUse, match="in use by process"):
        warrenmq.open(tmp_path)
    warrenmq.open(tmp_path).close()


def test_unknown_settings_are_refused_with_the_nearest_known(tmp_path: Path) -> None:
    with pytest.raises(warrenmq.SettingsError, match="msg_store_file_size_limit"):
        warrenmq.open(tmp_path, settings={"msg_store_file_sizelimit": 1})


def test_a_killed_queue_comes_back_and_its_consumer_goes_on(tmp_path: Path) -> None:
    with warrenmq.open(tmp_path) as broker:
        queue = broker.declare_queue("q")
        queue.publish_many([b"small", b"L" * 9000]).result()
        with queue.consume() as consumer:
            assert next(consumer).body == b"small"
            before = broker.runtime.whereis(queue_name("q"))
            broker.runtime.kill(before)
            got = []
            while len(got) < 3:  # what was on its way already, then everything again
                delivery = next(consumer)
                got.append(delivery.body)
                if delivery.redelivered:
                    delivery.ack()
                if got[-2:] == [b"small", b"L" * 9000]:
                    break
            assert got[-2:] == [b"small", b"L" * 9000]
        queue.publish(b"after").result()
        assert take_all(queue) == [b"after"]
        persistent = next(store for store in broker.stats().stores if store.name == "msg_store_persistent")
        assert (persistent.messages, persistent.references) == (0, 0)


@pytest.mark.parametrize(
    "victim", ["msg_store_persistent", "msg_store_transient", "vhost_process", "queue_sup", "vhost_sup"]
)
def test_after_the_kill_of_any_actor_everything_confirmed_is_there(tmp_path: Path, victim: str) -> None:
    bodies = [b"%d" % i * (1 if i % 2 else 3000) for i in range(20)]
    with warrenmq.open(tmp_path) as broker:
        queue = broker.declare_queue("q")
        queue.publish_many(bodies).result()
        runtime = broker.runtime
        before = runtime.whereis("vhost_process")
        runtime.kill(runtime.whereis(victim))
        until(
            runtime,
            lambda: runtime.is_registered("vhost_process") and runtime.whereis("vhost_process") is not before,
        )
        got: list[bytes] = []
        with queue.consume() as consumer:
            while len(got) < len(bodies):
                delivery = next(consumer)
                got.append(delivery.body)
                delivery.ack()
        assert got == bodies
        queue.publish(b"goes on").result()
        assert take_all(queue) == [b"goes on"]


def test_a_vhost_that_keeps_crashing_goes_down_and_says_so(tmp_path: Path) -> None:
    broker = warrenmq.open(tmp_path, settings={"vhost_restart_intensity": (1, 300)})
    queue = broker.declare_queue("q")
    runtime = broker.runtime
    queue.publish(b"x").result()
    before = runtime.whereis("vhost_process")
    runtime.kill(runtime.whereis("msg_store_persistent"))
    until(
        runtime,
        lambda: runtime.is_registered("vhost_process") and runtime.whereis("vhost_process") is not before,
    )
    queue.publish(b"x").result()
    runtime.kill(runtime.whereis("msg_store_persistent"))
    until(runtime, lambda: not broker.is_open)
    with pytest.raises(warrenmq.BrokerClosed, match="gave up"):
        broker.check_open()
    with pytest.raises(warrenmq.BrokerClosed, match="gave up"):
        queue.publish(b"x")
    broker.close()
    with warrenmq.open(tmp_path) as again:
        assert take_all(again.queue("q")) == [b"x", b"x"]


def test_a_publish_whose_handling_crashes_the_queue_is_nacked_and_the_next_one_is_taken(
    broker: warrenmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.declare_queue("q")

    def fail(*_args: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("a defect")

    monkeypatch.setattr(QueueIndexV2, "publish_many", fail)
    with pytest.raises(warrenmq.Nacked, match="publish it again"):
        queue.publish(b"unlucky").result()
    queue.publish(b"taken").result()
    assert take_all(queue) == [b"taken"]


def test_a_runtime_has_one_broker_at_a_time(tmp_path: Path) -> None:
    runtime = Pool()
    with warrenmq.open(tmp_path / "one", runtime=runtime) as first:
        queue = first.declare_queue("q")
        with pytest.raises(ValueError, match="give each broker a runtime of its own"):
            warrenmq.open(tmp_path / "two", runtime=runtime)
        assert not (tmp_path / "two").exists()
        queue.publish(b"the first one goes on").result(LIMIT)
        first.close()
        with warrenmq.open(tmp_path / "two", runtime=runtime) as second:
            second.declare_queue("q").publish(b"x").result(LIMIT)


def test_a_silent_program_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """structlog and asyncio take as long as a third of everything else, the others a tenth."""
    program = (
        "import sys, warrenmq\n"
        "with warrenmq.open(sys.argv[1]) as broker:\n"
        "    broker.declare_queue('q').publish(b'x').result(60)\n"
        "print({'asyncio', 'structlog', 'importlib.metadata', 'subprocess', 'shutil', 'difflib', 'random',"
        " 'warrenmq.runtime.simulation'} & sys.modules.keys())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program, str(tmp_path / "data")], check=False, capture_output=True, text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([ROOT, *sys.path])},
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("set()\n", "")


ENDING = """
import sys
import warrenmq

class Closes:
    def __del__(self):
        try:
            queue.publish(b"too late").result()
        except warrenmq.BrokerClosed as why:
            print(why)
        print(broker.close())

broker = warrenmq.open(sys.argv[1], shared=sys.argv[2] == "shared", settings={"scheduler": sys.argv[3]})
queue = broker.declare_queue("q")
queue.publish(b"in time").result()
sys.modules["kept until the end"] = Closes()
"""


@pytest.mark.parametrize("scheduler", ["pool", "threads"])
@pytest.mark.parametrize("how", ["alone", "shared"])
def test_a_broker_that_is_closed_while_the_interpreter_ends_does_not_hang(
    tmp_path: Path, how: str, scheduler: str
) -> None:
    """By then no other thread runs: the close waited for ever for actors that nobody runs."""
    ran = subprocess.run(
        [sys.executable, "-c", ENDING, str(tmp_path), how, scheduler],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert ran.stderr == ""
    *refused, closed = ran.stdout.splitlines()
    assert closed == "()"
    assert not refused or "the interpreter is ending" in refused[0]
    with warrenmq.open(tmp_path) as broker:  # on a pool the thread that waits does it itself
        assert take_all(broker.queue("q")) == [b"in time", *[b"too late"] * (not refused)]
