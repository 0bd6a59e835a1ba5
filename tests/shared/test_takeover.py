"""The owner of a shared directory ends, in order or by SIGKILL: another process takes over, and all go on."""

from __future__ import annotations

import gc
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pykka import ActorDeadError

import warrenmq
from tests.broker.test_fork import in_child
from tests.support.limits import LIMIT
from tests.support.shared_directory import opened, owner_process, wait_until
from warrenmq.amqp.net.local_socket import SOCKET
from warrenmq.shared import links
from warrenmq.shared.attachment import Attachment
from warrenmq.shared.calling import CallChannel
from warrenmq.shared.channel import Answer
from warrenmq.shared.connection import ClientConnection
from warrenmq.shared.errors import LinkLost


@pytest.mark.parametrize("unconfirmed", ["fail", "repeat"])
def test_nothing_confirmed_is_lost_when_the_owner_is_killed_under_load(
    tmp_path: Path, unconfirmed: str
) -> None:
    confirmed: set[bytes] = set()
    refused: set[bytes] = set()
    seen: list[bytes] = []
    published, stop = threading.Event(), threading.Event()
    with (
        owner_process(tmp_path) as kill,
        opened(tmp_path, unconfirmed=unconfirmed) as one,
        opened(tmp_path) as other,
    ):
        queue, back = one.declare_queue("q"), one.declare_queue("back")

        def publish() -> None:
            number = 0
            while not stop.is_set():
                bodies = [b"%d-%d" % (number, each) for each in range(20)]
                confirms = [queue.publish(body) for body in bodies[:10]] + [queue.publish_many(bodies[10:])]
                for which, confirm in zip(
                    [[each] for each in bodies[:10]] + [bodies[10:]], confirms, strict=True
                ):
                    try:
                        confirm.result(LIMIT)
                        confirmed.update(which)
                    except warrenmq.Nacked:
                        refused.update(which)
                number += 1
                if number == 20:
                    published.set()

        publisher = threading.Thread(target=publish)
        publisher.start()
        consumer = other.queue("q").consume(prefetch=50)

        def consume() -> None:
            for delivery in consumer:
                seen.append(delivery.body)
                delivery.ack()

        taker = threading.Thread(target=consume)
        taker.start()
        assert published.wait(LIMIT)
        kill()
        count = len(confirmed)
        wait_until(lambda: len(confirmed) > count + 400)  # by whoever owns it now
        stop.set()
        publisher.join(LIMIT)
        assert one.is_owner is not other.is_owner
        wait_until(lambda: confirmed <= set(seen))
        assert back.publish(b"still").result(LIMIT) is None
        if unconfirmed == "repeat":
            assert not refused
        wait_until(lambda: len(queue) == 0)
        consumer.cancel()
        taker.join(LIMIT)
        assert set(seen) - confirmed <= refused


def test_whoever_only_waits_takes_over_too_and_goes_on_waiting(tmp_path: Path) -> None:
    first, second, third = (opened(tmp_path) for _ in range(3))
    with second, third:
        queue = second.declare_queue("q")
        queue.publish_many([b"1", b"2", b"3"]).result(LIMIT)
        consumer = queue.consume(prefetch=2)
        held = [next(consumer), next(consumer)]
        first.close()
        wait_until(lambda: second.is_owner or third.is_owner)
        again = [next(consumer) for _ in range(2)]
        assert [(each.body, each.redelivered) for each in again] == [(b"1", True), (b"2", True)]
        for each in held:
            each.ack()  # of a delivery that the last owner made: nothing happens
        for each in again:
            each.ack()
        assert next(consumer).body == b"3"
        (second if second.is_owner else third).close()
        remaining = third if not third.inside.client.engine.is_closed else second
        wait_until(lambda: remaining.is_owner)
        assert len(remaining.queue("q")) == 1


def test_a_call_on_another_connection_than_the_first_that_ends_is_told_that_the_owner_is_gone(
    tmp_path: Path,
) -> None:
    """It raised BrokerClosed instead of going on at the next owner."""
    with opened(tmp_path), opened(tmp_path) as attached:
        attached.declare_queue("q").publish(b"x").result(LIMIT)
        link = attached.inside.client.links.current
        work, publishing = link._connections
        channel = CallChannel(work).open()
        never = Answer()
        channel._due.append(never)
        publishing._socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(LinkLost):
            channel.wait_for(never)
        assert len(attached.queue("q")) == 1


def test_a_consumer_that_subscribed_at_the_second_try_is_cancelled_when_it_is_dropped(tmp_path: Path) -> None:
    """The error of the first try, which its connection keeps, kept the consumer, and that its messages."""
    with opened(tmp_path), opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        ours = attached.inside.client.links
        before = ours.current
        before._work._socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: ours.current not in (before, None))
        after, ours.current = ours.current, before

        def call(*arguments: Any) -> Any:
            ours.current = after
            return Attachment.call(before, *arguments)

        before.call = call
        consumer = queue.consume(prefetch=1)
        assert queue.info().consumers == 1
        gc.disable()
        try:
            del consumer
            wait_until(lambda: queue.info().consumers == 0)  # the cancel goes over another channel
        finally:
            gc.enable()


def test_an_owner_whose_virtual_host_is_down_as_it_ends_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for the next owner ended there, and every call raised BrokerClosed."""
    refusals = [warrenmq.ProcessDied("access to vhost '/' refused for user 'process 1': vhost '/' is down")]

    class AttachedLater(Attachment):
        def __init__(self, *arguments: Any) -> None:
            if refusals:
                raise refusals.pop()
            super().__init__(*arguments)

    monkeypatch.setattr(links, "Attachment", AttachedLater)
    with opened(tmp_path), opened(tmp_path) as attached:
        assert not attached.is_owner
        assert not refusals


def test_a_call_that_an_owner_refuses_as_it_ends_is_made_at_the_next(tmp_path: Path) -> None:
    """It raised BrokerClosed, as if this broker were closed."""
    with opened(tmp_path) as owner, opened(tmp_path) as attached:
        attached.declare_queue("q")
        owner.inside.local().close()
        threading.Timer(0.05, owner.close).start()
        assert [each.name for each in attached.stats().queues] == ["q"]
        assert attached.is_owner


def test_an_alarm_that_is_told_behind_the_end_of_its_owner_blocks_nobody(tmp_path: Path) -> None:
    """Publishers waited for ever, as nothing cleared it."""
    with opened(tmp_path), opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        queue.publish(b"x").result(LIMIT)
        before = attached.inside.client.links.current
        work, publishing = before._connections
        work._socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: attached.inside.client.links.current not in (before, None))
        publishing._on_blocked("low on disk")
        queue.publish(b"y", timeout=0).result(LIMIT)


def test_a_broker_that_is_closed_while_it_takes_over_has_let_go_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close` returned before, and who opened the directory next found it in use."""
    first, second = opened(tmp_path), opened(tmp_path)
    takes, closes = threading.Event(), threading.Event()

    class SlowlyOwned(links.Owned):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            takes.set()
            closes.wait(LIMIT)

    monkeypatch.setattr(links, "Owned", SlowlyOwned)
    first.close()
    assert takes.wait(LIMIT)
    closing = threading.Thread(target=second.close)
    closing.start()
    wait_until(lambda: second.inside.client.engine.is_closed)
    closes.set()
    closing.join(LIMIT)
    with warrenmq.open(tmp_path) as alone:
        assert alone.queues() == []


def test_an_owner_that_two_threads_close_leaves_the_next_ones_socket_alone(tmp_path: Path) -> None:
    """The second one gave the directory back while the first still waited for a client, and then removed the next owner's socket."""
    owner = opened(tmp_path)
    server = owner.inside.client.links.current.server
    silent = ClientConnection(str(tmp_path), "/", lambda _ended: None, lambda _blocked: None)
    silent.open()
    silent.pause_reading()
    with silent._lock:
        silent._wake()
    first = threading.Thread(target=owner.close, args=(0.3,))
    first.start()
    wait_until(lambda: server._closing)
    owner.close()
    with opened(tmp_path) as after:
        first.join(LIMIT)
        assert after.is_owner
        assert (tmp_path / SOCKET).exists()
    silent.close()


def test_calls_wait_for_the_next_owner(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    with second:
        queue = second.declare_queue("q")
        threading.Thread(target=first.close).start()
        for number in range(100):
            queue.publish(b"%d" % number)
            second.declare_queue(f"q{number % 7}")
            assert second.queue("q").name == "q"
            second.stats()
        assert second.is_owner
        assert len(second.queues()) == 8


def test_a_forked_child_attaches_anew_and_keeps_nothing_of_its_parent(tmp_path: Path) -> None:
    with opened(tmp_path) as owner, opened(tmp_path) as attached:
        queues = [broker.declare_queue("q") for broker in (owner, attached)]
        queues[0].publish_many([b"1", b"2"]).result(LIMIT)
        consumers = [queue.consume(prefetch=1) for queue in queues]
        deliveries = [next(consumer) for consumer in consumers]

        def child() -> str:
            said = []
            for broker, queue in zip((owner, attached), queues, strict=True):
                queue.publish(b"from the child").result(LIMIT)
                said += [len(queue), broker.is_owner, [each.ready for each in broker.stats().queues]]
            for call in (
                *[each.ack for each in deliveries],
                *[lambda each=each: next(each) for each in consumers],
            ):
                try:
                    call()
                    said.append("not refused")
                except warrenmq.ForkedProcess:
                    pass
            return str(said)

        assert in_child(child) == str([1, False, [1], 2, False, [2]])
        for each in deliveries:
            each.ack()
        assert {next(consumer).body for consumer in consumers} == {b"from the child"}


def test_a_childs_death_leaves_the_lock_with_its_parent_and_the_parents_death_frees_it(
    tmp_path: Path,
) -> None:
    owner = opened(tmp_path)
    held, release = os.pipe()
    pid = os.fork()
    if pid == 0:  # a child that outlives its parent's ownership
        os.close(release)
        os.read(held, 1)
        os._exit(0)
    try:
        owner.declare_queue("q").publish(b"x").result(LIMIT)
        owner.close()
        with warrenmq.open(tmp_path) as next_owner:
            assert len(next_owner.queue("q")) == 1
    finally:
        os.close(release)
        os.waitpid(pid, 0)
        os.close(held)


def test_what_is_wrong_on_the_socket_hurts_nobody_else(tmp_path: Path) -> None:
    with opened(tmp_path, settings={"handshake_timeout": 200}) as owner, opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        mean = []
        for data in (b"", b"AM", b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\0\x09\x01" + b"\x01\0\0\xff\xff\xff\xff" * 5,
                     b"AMQP\0\0\x09\x01" + bytes(5000), os.urandom(3000)):  # fmt: skip
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(LIMIT)
            line.connect(str(tmp_path / SOCKET))
            line.sendall(data)
            mean.append(line)
        for line in mean:  # each is dropped, the silent and the half ones by the handshake's timeout
            with line:
                try:
                    while line.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        queue.publish(b"fine").result(LIMIT)
        assert len(owner.queue("q")) == 1


def give_up(broker: warrenmq.Broker) -> None:
    """Kill a process of the supervision tree until that gives up."""
    while broker.is_open:
        with suppress(ActorDeadError):
            broker.runtime.kill(broker.runtime.whereis("vhost_process"))
        threading.Event().wait(0.001)


def test_an_owner_whose_supervisor_gives_up_hands_over_and_attaches_itself(tmp_path: Path) -> None:
    settings = {"vhost_restart_intensity": (1, 300)}
    with opened(tmp_path, settings=settings) as first, opened(tmp_path, settings=settings) as second:
        queues = [broker.declare_queue("q") for broker in (first, second)]
        for number, queue in enumerate(queues):
            queue.publish(b"confirmed %d" % number).result(LIMIT)
        consumer = first.declare_queue("other").consume(prefetch=1)
        give_up(first.inside.local())
        confirms = [queue.publish(b"later") for queue in queues]
        for confirm in confirms:
            confirm.result(LIMIT)
        assert (first.is_owner, second.is_owner) == (False, True)
        assert [len(queue) for queue in queues] == [4, 4]
        queues[1].publish(b"x", delay=0.01).result(LIMIT)
        second.queue("other").publish(b"to the consumer").result(LIMIT)
        assert next(consumer).body == b"to the consumer"
        assert [each.name for each in first.stats().queues] == ["other", "q"]


def test_an_owner_that_is_alone_when_its_supervisor_gives_up_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HAND_OVER", 0.2)
    with opened(tmp_path, settings={"vhost_restart_intensity": (1, 300)}) as broker:
        queue = broker.declare_queue("q")
        queue.publish(b"confirmed").result(LIMIT)
        before = broker.inside.local()
        give_up(before)
        with pytest.raises(warrenmq.Blocked, match="no owner for now"):
            queue.publish(b"x", timeout=0)
        assert len(queue) == 1
        assert broker.inside.local() is not before
        with pytest.raises(warrenmq.DirectoryInUse):
            warrenmq.open(tmp_path)
