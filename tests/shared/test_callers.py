"""Calls of an attached broker: odd calls, interrupted ones, an alarm, and the end of the link meanwhile."""

from __future__ import annotations

import errno
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest
from pamqp.commands import Basic

import warrenmq
from tests.support.limits import LIMIT
from tests.support.shared_directory import opened, wait_until
from warrenmq.actors.sending.confirms import Confirm
from warrenmq.amqp.channel.message import REPLY_TO
from warrenmq.amqp.channel.rpc import RPC
from warrenmq.amqp.wire.batch import KEY, Batch, joined, method_of
from warrenmq.amqp.wire.codec import encode_method, make
from warrenmq.errors import ArgumentValueError, NotFound
from warrenmq.message.properties import Properties
from warrenmq.queue.messages import Cancel
from warrenmq.runtime.thread_event import ThreadEvent
from warrenmq.shared.attachment import Attachment
from warrenmq.shared.broker import SharedBroker
from warrenmq.shared.calling import CallChannel
from warrenmq.shared.channel import Answer
from warrenmq.shared.consuming import UNREAD
from warrenmq.shared.errors import LinkLost
from warrenmq.shared.publishing import Unconfirmed


@pytest.fixture(name="owner")
def _owner(tmp_path: Path) -> Iterator[SharedBroker]:
    with opened(tmp_path) as broker:
        yield broker


@pytest.fixture(name="attached")
def _attached(owner: SharedBroker, tmp_path: Path) -> Iterator[SharedBroker]:
    with opened(tmp_path) as broker:
        assert not broker.is_owner
        yield broker


def attachment_of(broker: SharedBroker) -> Attachment:
    link = broker.inside.client.links.current
    assert isinstance(link, Attachment)
    return link


def in_time(call: Callable[[], Any]) -> Any:
    """The result of a call; fails if it does not end."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "it waits for ever"
    return results[0]


def test_what_does_not_fit_into_amqp_is_refused_in_a_sentence_and_the_link_stays(
    attached: SharedBroker,
) -> None:
    queue = attached.declare_queue("q")
    queue.publish(b"held").result(LIMIT)
    held = queue.get()
    assert held is not None
    link = attachment_of(attached)
    long = {"x": "v" * 200_000}
    for call in (
        lambda: attached.publish("", "k" * (1 << 20), b""),
        lambda: queue.publish(b"", properties=Properties(headers=long)),
    ):
        with pytest.raises(ArgumentValueError) as refused:
            call()
        assert len(str(refused.value)) < 300
    with pytest.raises(ArgumentValueError, match="routing_key is 'kkk"), attached.tx():
        queue.publish(b"with the others or not at all")
        attached.publish("", "k" * 256, b"")
    assert attachment_of(attached) is link
    assert (queue.info().ready, queue.info().unacked) == (0, 1)
    held.ack()
    assert queue.info().unacked == 0


def test_an_errors_text_is_one_line(attached: SharedBroker) -> None:
    attached.declare_queue("ab")  # a declare drops line ends
    for call in (attached.purge, attached.queue, attached.delete_exchange):
        with pytest.raises(NotFound, match=r"'a(\\n)?b'") as refused:
            call("a\nb")
        assert "\n" not in str(refused.value)


def test_a_delete_of_what_is_not_there_says_so(attached: SharedBroker) -> None:
    """As in the owner; AMQP's delete takes it for done."""
    for call in (attached.delete_queue, attached.delete_exchange):
        with pytest.raises(NotFound, match="'none'"):
            call("none")


def test_a_publish_to_an_exchange_that_this_process_deleted_is_refused_at_once(
    attached: SharedBroker,
) -> None:
    """It closed the channel, which took the confirms of other threads' publishes with it."""
    attached.declare_exchange("x").publish("key", b"").result(LIMIT)
    attached.delete_exchange("x")
    with pytest.raises(NotFound):
        attached.publish("x", "key", b"")


def test_a_message_is_no_call_batch_or_reply_whatever_its_key_and_its_body(attached: SharedBroker) -> None:
    """A message from outside with the key of calls could have the owner do anything."""
    queue = attached.declare_queue("q")
    batch_of_one = Batch(method_of(encode_method(1, make(Basic.Publish, routing_key="q"))), b"\0\0", [b"x"])
    for key, body in (
        (RPC, msgpack.packb({"call": "delete_queue", "queue": "q", "if_unused": False, "if_empty": False})),
        (KEY, joined(batch_of_one)),
        (REPLY_TO, b"x"),
    ):
        confirm = attached.publish("", key, body, reply_to=REPLY_TO, mandatory=True)
        with pytest.raises(warrenmq.Returned):
            confirm.result(LIMIT)
    assert len(queue) == 0


def test_a_declaration_that_a_full_disk_refuses_keeps_the_link(
    owner: SharedBroker, attached: SharedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closed the connection: unacked messages went back, and exclusive queues were gone."""
    attached.declare_queue("q").publish(b"x").result(LIMIT)
    delivery = attached.queue("q").get()
    with monkeypatch.context() as full:
        full.setattr(owner.inside.vhost.definitions, "put_queues", raises_full)
        with pytest.raises(warrenmq.Blocked, match="the disk is full"):
            attached.declare_queue("r")
    assert delivery is not None
    assert attached.queue("q").info().unacked == 1


def raises_full(_queues: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_alarm_stops_what_publishes_and_nothing_else(owner: SharedBroker, attached: SharedBroker) -> None:
    """Calls waited for the publishes before them, which waited for the alarm, which such a call would have cleared."""
    queue = attached.declare_queue("q")
    queue.publish_many([b"1", b"2"]).result(LIMIT)
    consumer = queue.consume(prefetch=1)
    attached.set_vm_memory_high_watermark(0)
    while not owner.inside.alarms.active:
        threading.Event().wait(0.001)
    blocked = queue.publish(b"3")
    assert [each.source for each in in_time(attached.stats).alarms if each.is_set] == ["memory"]
    in_time(lambda: next(consumer)).ack()
    assert in_time(lambda: next(consumer)).body == b"2"
    assert in_time(queue.info).ready == 0
    assert in_time(lambda: [each.name for each in attached.queues()]) == ["q"]
    assert not blocked.done()
    in_time(lambda: attached.set_vm_memory_high_watermark(0.9))
    blocked.result(LIMIT)
    assert queue.info().ready == 1


def test_a_broker_closes_while_an_alarm_stops_it(owner: SharedBroker, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    broker = opened(tmp_path)
    queue = broker.declare_queue("q")
    owner.set_vm_memory_high_watermark(0)
    while not owner.inside.alarms.active:
        threading.Event().wait(0.001)
    promise = queue.publish(b"1")
    in_time(broker.close)
    with pytest.raises(warrenmq.Nacked):
        promise.result(LIMIT)
    left = set(threading.enumerate()) - before
    assert not [each for each in left if each.name == "warrenmq-attached"]


@pytest.mark.parametrize("no_ack", [True, False])
def test_calls_are_answered_however_much_a_consumer_has_unread(attached: SharedBroker, no_ack: bool) -> None:
    """The connection was not read while too much was unread, and the answer was behind that."""
    queue = attached.declare_queue("q")
    queue.publish_many([b"x" * 100] * (UNREAD + 500)).result(LIMIT)
    consumer = queue.consume(0, no_ack)
    first = next(consumer)
    connection = consumer._subscription.ref._own
    end = time.monotonic() + LIMIT
    while not connection._paused:
        assert time.monotonic() < end
        time.sleep(0.001)
    if not no_ack:
        first.ack()
    in_time(queue.info)
    in_time(consumer.cancel)
    assert queue.info().unacked == 0
    if not no_ack:
        assert queue.info().ready == UNREAD + 499


class Interrupted(BaseException):
    """As KeyboardInterrupt, which a test runner takes for itself."""


def test_an_interrupted_call_does_not_give_its_answer_to_the_next(
    attached: SharedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = attached.declare_queue("q"), attached.declare_queue("other")
    queue.publish_many([b"1", b"2", b"3"]).result(LIMIT)
    queue.info()
    me, wait = threading.current_thread(), ThreadEvent.wait
    for early in (True, False):
        for call in (queue.get, queue.info, lambda: attached.purge("other"), attached.stats, queue.get):

            def interrupted(known: ThreadEvent, timeout: float | None = None, early: bool = early) -> bool:
                if threading.current_thread() is not me:
                    return wait(known, timeout)
                monkeypatch.undo()
                if not early:
                    wait(known, LIMIT)
                raise Interrupted

            monkeypatch.setattr(ThreadEvent, "wait", interrupted)
            with pytest.raises(Interrupted):
                call()
            monkeypatch.undo()
            assert attached.queue("q").name == "q"
            assert other.info().ready == 0
            assert attached.purge("other") == 0
            assert (queue.info().ready, queue.info().unacked) == (3, 0)
            assert [each.name for each in attached.stats().queues] == ["other", "q"]


def test_a_channel_that_somebody_gets_with_is_nobody_elses(attached: SharedBroker) -> None:
    """Another handle's ack of all older deliveries would settle what comes then."""
    queue = attached.declare_queue("q")
    queue.publish_many([b"1", b"2"]).result(LIMIT)
    first = queue.get()
    assert first is not None
    link = attachment_of(attached)
    (getter,) = link._getters
    channel = link._getter(getter)  # another thread's get begins
    first.ack()
    assert channel not in link._idle_getters
    assert link._getter(getter) is channel
    channel.users -= 2
    link._put_back(channel)
    assert channel in link._idle_getters


def test_a_link_that_is_over_makes_no_connection_to_the_next_owner(attached: SharedBroker) -> None:
    link = attachment_of(attached)
    link._over.set()
    with pytest.raises(LinkLost):
        link._connect(publishes=True)
    link._over = ThreadEvent()


@pytest.mark.parametrize("who", ["owner", "attached"])
def test_what_a_lost_link_leaves_is_published_even_if_the_next_one_is_there(tmp_path: Path, who: str) -> None:
    """The end of one connection was known, and the next owner found, before the end of the one that publishes was."""
    with opened(tmp_path, unconfirmed="repeat") as owner, opened(tmp_path, unconfirmed="repeat") as attached:
        broker = owner if who == "owner" else attached
        queue = broker.declare_queue("q")
        items = [
            Unconfirmed("", "q", [b"%d" % each], None, persistent=True, mandatory=False, confirm=Confirm(broker.runtime))
            for each in range(3)
        ]  # fmt: skip
        broker.inside.client.links._give_up(items, LinkLost("the owner ended"))
        for each in items:
            each.confirm.result(LIMIT)
        assert [each.body for each in queue.peek(5)] == [b"0", b"1", b"2"]


def test_a_publish_that_always_closes_its_channel_is_not_repeated_for_ever(tmp_path: Path) -> None:
    with (
        opened(tmp_path, settings={"max_message_size": 100}),
        opened(tmp_path, unconfirmed="repeat") as attached,
    ):
        queue = attached.declare_queue("q")
        confirms = [queue.publish(body) for body in (b"1", b"x" * 101, b"2")]
        with pytest.raises(warrenmq.Error):
            confirms[1].result(LIMIT)
        assert queue.publish(b"3").result(LIMIT) is None
        assert b"3" in [each.body for each in queue.peek(9)]


def test_a_callback_that_waits_for_the_owner_is_refused_not_stuck(attached: SharedBroker) -> None:
    """It runs in the thread that would read the answer."""
    queue = attached.declare_queue("q")
    said: list[BaseException] = []
    done = threading.Event()

    def callback(_confirm: Confirm) -> None:
        link = attachment_of(attached)
        channel = link._publish
        assert channel is not None
        try:
            channel.wait_for(Answer())
        except warrenmq.PreconditionFailed as error:
            said.append(error)
        link.sync()
        done.set()

    for each in [queue.publish(b"%d" % number) for number in range(3)]:
        each.add_done_callback(callback)
    assert done.wait(LIMIT)


def test_cancelled_consumers_give_back_each_delivery_once(attached: SharedBroker) -> None:
    """Two threads gave back what came in the midst of a cancel: the owner closed the channel, and took what was held, too."""
    queue = attached.declare_queue("q")
    queue.publish_many([b"%d" % each for each in range(3000)]).result(LIMIT)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for round_ in range(40):
            consumer = queue.consume(prefetch=1 + round_ * 70 % 1000)
            held = next(consumer)
            consumer.cancel()
            held.ack()
            assert (queue.info().ready, queue.info().unacked) == (2999 - round_, 0)
    finally:
        sys.setswitchinterval(before)


def test_a_consumer_that_two_threads_cancel_keeps_what_it_has_handed_out(attached: SharedBroker) -> None:
    """Both gave back the others: the owner closed the channel for the second time, and took what was held, too."""
    queue = attached.declare_queue("q")
    queue.publish_many([b"1", b"2", b"3"]).result(LIMIT)
    consumer = queue.consume(prefetch=3)
    held = next(consumer)
    channel = consumer._subscription.ref
    wait_until(lambda: channel._last == 3)
    consumer.cancel()
    channel.cancel(Cancel(consumer._subscription.consumer_id, held.tag))
    held.ack()
    assert (queue.info().ready, queue.info().unacked) == (2, 0)


def test_an_error_that_a_channel_keeps_holds_nothing_of_those_whom_it_was_raised_to(
    attached: SharedBroker,
) -> None:
    """Its frames kept a consumer that was dropped from being cancelled: nine messages stayed with it until the garbage collector came."""
    channel = CallChannel(attachment_of(attached)._work).open()
    channel.close()

    class Waiting(Answer):
        """An answer that can be referred to weakly."""

    def dropped() -> weakref.ref[object]:
        held = Waiting()
        with suppress(warrenmq.BrokerClosed):
            channel.ask_with(b"", held)
        return weakref.ref(held)

    gc.disable()
    try:
        assert dropped()() is None
    finally:
        gc.enable()
