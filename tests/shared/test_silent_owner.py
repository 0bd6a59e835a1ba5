"""An owner that is stopped, or cannot be found: calls keep their timeouts, nothing is lost, and the search goes on."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warrenmq
from tests.shared.test_callers import in_time
from tests.support.interrupted_calls import interrupt
from tests.support.limits import LIMIT
from tests.support.shared_directory import SPAWN, opened, owner_process
from warrenmq.amqp.server import AmqpServer
from warrenmq.errors import Blocked, BrokerClosed, ResourceError
from warrenmq.runtime import thread_event
from warrenmq.shared import links, patience
from warrenmq.shared.attachment import Attachment
from warrenmq.shared.broker import SharedBroker
from warrenmq.shared.errors import OwnerSilent

SHORT = 0.05
"""Seconds of a timeout that passes."""


def refused(call: Callable[[], Any]) -> bool:
    """True if a publish is Blocked, False if it was sent."""
    try:
        call()
    except Blocked:
        return True
    return False


def asynchronous(path: Path, began: threading.Event, stopped: threading.Event) -> list[Any]:
    """A get and a publish of warrenmq.aio, the first ones of their broker, while the owner is stopped."""

    async def main() -> list[Any]:
        async with warrenmq.aio.open(path, shared=True) as broker:
            queue = await broker.queue("q")
            began.set()
            await asyncio.to_thread(stopped.wait, LIMIT)
            results = [await queue.get(SHORT), await queue.get(SHORT, no_ack=True)]
            with pytest.raises(Blocked):
                await queue.publish(b"x", timeout=SHORT)
            return results

    return asyncio.run(main())


@pytest.mark.parametrize("no_ack", [False, True])
def test_calls_keep_their_timeouts_while_the_owner_is_stopped(
    tmp_path: Path, no_ack: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited for ever.  What the owner delivers for them when it goes on is given back, and nothing is counted twice."""
    monkeypatch.setattr(patience, "GRACE", SHORT)
    began, stopped = threading.Event(), threading.Event()
    answers: list[Any] = []
    loop = threading.Thread(
        target=lambda: answers.extend(asynchronous(tmp_path, began, stopped)), daemon=True
    )
    with owner_process(tmp_path) as send, opened(tmp_path) as fresh, opened(tmp_path) as used:
        queue = used.declare_queue("q")
        queue.publish_many([b"%d" % each for each in range(9)]).result(LIMIT)
        consumer = queue.consume(prefetch=1)
        next(consumer).ack()
        taken = next(consumer)
        assert used.declare_queue("other").get(no_ack=no_ack) is None
        queue.info()
        loop.start()
        assert began.wait(LIMIT)
        send(signal.SIGSTOP)
        try:
            stopped.set()
            for broker in (used, fresh):
                handle = warrenmq.QueueHandle(broker, "q")
                for _ in range(3):
                    assert in_time(lambda: handle.get(SHORT, no_ack=no_ack)) is None  # noqa: B023
            assert in_time(lambda: consumer.get(SHORT)) is None
            new = warrenmq.QueueHandle(fresh, "q")
            assert in_time(lambda: refused(lambda: new.publish(b"x", timeout=SHORT)))
            assert in_time(lambda: refused(lambda: new.publish_many([b"x"], timeout=0)))
            assert in_time(lambda: refused(lambda: new.publish(b"x", timeout=SHORT, delay=0.01)))
            assert in_time(lambda: refused(lambda: used.publish("amq.topic", "q", b"x", timeout=SHORT)))
            loop.join(LIMIT)
            assert answers == [None, None]
            assert in_time(lambda: opened_and_closed(fresh)) == ()
        finally:
            send(signal.SIGCONT)
        taken.ack()
        consumer.cancel()
        wait_until(lambda: (queue.info().ready, queue.info().unacked, queue.info().consumers) == (7, 0, 0))
        assert [queue.get(LIMIT).body for _ in range(7)] == [b"%d" % each for each in range(2, 9)]


def waits_for_a_signal(path: str, pipe: Any) -> None:
    """An attached process, until it is killed."""
    with opened(path) as broker:
        pipe.send(broker.is_owner)
        signal.pause()


def test_an_owners_close_keeps_its_timeout_while_an_attached_process_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited as long as a server does for its clients' goodbye."""
    monkeypatch.setattr(AmqpServer.close, "__defaults__", (10 * LIMIT,))
    monkeypatch.setattr(links, "CLOSE_OK_TIMEOUT", 10 * LIMIT)
    owner = opened(tmp_path)
    here, there = SPAWN.Pipe()
    attached = SPAWN.Process(target=waits_for_a_signal, args=(str(tmp_path), there), daemon=True)
    attached.start()
    try:
        assert here.recv() is False
        os.kill(attached.pid or 0, signal.SIGSTOP)
        assert in_time(lambda: opened_and_closed(owner)) == ()
    finally:
        attached.kill()
        attached.join(LIMIT)


def opened_and_closed(broker: SharedBroker) -> tuple[str, ...]:
    return broker.close(timeout=SHORT)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(int(LIMIT * 100)):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come true")


def test_a_consumer_keeps_its_timeout_while_there_is_no_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as owner, opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        queue.publish(b"1").result(LIMIT)
        consumer, empty = queue.consume(), attached.declare_queue("empty").consume()
        assert consumer.get(LIMIT) is not None
        monkeypatch.setattr(links.Owned, "__init__", refusing(OSError(errno.EMFILE, "Too many open files")))
        owner.close()
        for _ in range(2):
            assert in_time(lambda: consumer.get(SHORT)) is None
            assert in_time(lambda: empty.get(SHORT)) is None
        monkeypatch.undo()
        again = consumer.get(LIMIT)
        assert again is not None
        assert again.redelivered
        assert not empty.ended


def refusing(*errors: BaseException, times: int | None = None) -> Callable[..., None]:
    """Stands for Owned's __init__, and raises these errors in turn: `times` times, or for ever."""
    real, count = links.Owned.__init__, 0

    def owned(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if times is None or count <= times:
            raise errors[count % len(errors)]
        real(*arguments)

    return owned


def test_the_search_goes_on_while_the_system_is_out_of_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these was kept as a failure for good, or ended the thread that looked: every later call failed, or hung."""
    errors = (
        OSError(errno.ENFILE, "Too many open files in system"), OSError(errno.ENOSPC, "No space left on device"), MemoryError(),
        ResourceError("no thread could be started"), OwnerSilent("the owner has not answered"),
    )  # fmt: skip
    with opened(tmp_path) as owner, opened(tmp_path, unconfirmed="repeat") as attached:
        queue = attached.declare_queue("q")
        monkeypatch.setattr(links.Owned, "__init__", refusing(*errors, times=2 * len(errors)))
        owner.close()
        in_time(queue.publish(b"1").result)
        assert attached.is_owner


def test_the_search_goes_on_while_there_is_no_memory_for_its_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that looked ended with "can't allocate lock", and counted as looking for ever."""
    lock, refusals = threading.Lock, itertools.count()

    def none_to_look() -> Any:
        pauses = sys._getframe(2).f_code.co_name == "wait" and threading.current_thread().name == "search"
        if pauses and next(refusals) < 3:
            raise RuntimeError("can't allocate lock")
        return lock()

    with opened(tmp_path) as owner, opened(tmp_path, unconfirmed="repeat") as attached:
        queue = attached.declare_queue("q")
        begin = links.Links._look_again

        def look_again(*arguments: Any) -> None:
            threading.current_thread().name = "search"
            begin(*arguments)

        monkeypatch.setattr(links.Links, "_look_again", look_again)
        monkeypatch.setattr(links.Owned, "__init__", refusing(MemoryError(), times=5))
        monkeypatch.setattr(thread_event.threading, "Lock", none_to_look)
        owner.close()
        in_time(queue.publish(b"1").result)
        assert next(refusals) > 3
        assert attached.is_owner


def test_a_search_that_failed_is_begun_again_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as owner, opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        monkeypatch.setattr(
            links.Owned, "__init__", refusing(PermissionError(errno.EACCES, "Permission denied"))
        )
        owner.close()
        for _ in range(2):
            with pytest.raises(BrokerClosed, match="Permission denied"):
                in_time(queue.publish(b"1").result)
        monkeypatch.undo()
        in_time(queue.publish(b"1").result)
        assert attached.is_owner


def test_no_thread_for_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the connection that was lost looks itself; `open` says what is missing, and locks nothing."""
    start = threading.Thread.start

    def none_to_look(thread: threading.Thread) -> None:
        if thread.name == "warrenmq-shared":
            raise RuntimeError("can't start new thread")
        start(thread)

    with opened(tmp_path) as owner, opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        queue.publish(b"1").result(LIMIT)
        consumer = queue.consume()
        assert consumer.get(LIMIT) is not None
        monkeypatch.setattr(threading.Thread, "start", none_to_look)
        owner.close()
        assert in_time(lambda: next(consumer)).redelivered
        assert attached.is_owner
        with pytest.raises(ResourceError, match="can't start new thread"):
            opened(tmp_path / "another")
        monkeypatch.undo()
    warrenmq.open(tmp_path / "another").close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_open_leaves_the_directory_to_others(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        broker.declare_queue("q")
    for number in range(1, 10_000, 23):
        brokers: list[SharedBroker] = []
        at = interrupt(number, lambda: brokers.append(opened(tmp_path)))  # noqa: B023
        for broker in brokers:
            broker.close()
        wait_until(lambda: free(tmp_path))
        if not at:
            break
    assert number > 100


def free(path: Path) -> bool:
    try:
        warrenmq.open(path).close()
    except warrenmq.DirectoryInUse:
        return False
    return True


def test_no_descriptor_for_a_connection_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with opened(tmp_path), opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        monkeypatch.setattr(socket, "socketpair", none)
        for call in (lambda: queue.publish(b"1"), lambda: queue.consume(prefetch=0)):
            with pytest.raises(ResourceError, match="Too many open files"):
                call()
        monkeypatch.undo()
        queue.publish(b"1").result(LIMIT)
        assert next(queue.consume(prefetch=0)).body == b"1"


def test_a_socket_that_may_not_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with opened(tmp_path):
        monkeypatch.setattr(socket.socket, "connect", refuse)
        with pytest.raises(PermissionError, match=r"Permission denied: '.*warrenmq\.sock'"):
            opened(tmp_path)
        monkeypatch.undo()


class Reluctant:
    """A socket that has no memory for every other read."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self._reads = 0

    def recv(self, size: int) -> bytes:
        self._reads += 1
        if self._reads % 2:
            raise MemoryError
        return self._real.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_read_without_memory_is_made_again(tmp_path: Path) -> None:
    """It ended the connection, and with it whatever was on its way."""
    with opened(tmp_path), opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        queue.publish(b"1").result(LIMIT)
        link = attached.inside.client.links.current
        assert isinstance(link, Attachment)
        for each in link._connections:
            each._socket = Reluctant(each._socket)  # type: ignore[assignment]
        for number in range(20):
            in_time(queue.publish(b"%d" % number).result)
            assert in_time(queue.get) is not None
        assert attached.inside.client.links.current is link


def test_the_channels_of_calls_that_were_given_up_are_closed(tmp_path: Path) -> None:
    with owner_process(tmp_path) as send, opened(tmp_path) as attached:
        queue = attached.declare_queue("q")
        send(signal.SIGSTOP)
        try:
            for _ in range(4):
                assert queue.get(0.001) is None
                assert refused(lambda: attached.publish("amq.topic", "q", b"x", timeout=0))
        finally:
            send(signal.SIGCONT)
        queue.publish(b"1").result(LIMIT)
        assert queue.get(LIMIT) is not None
        link = attached.inside.client.links.current
        assert isinstance(link, Attachment)
        wait_until(lambda: sum(len(each.channels) for each in link._connections if each.ended is None) <= 4)
