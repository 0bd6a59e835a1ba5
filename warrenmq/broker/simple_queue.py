"""warrenmq.Queue: the standard library's `queue.Queue`, on disk.

    q = warrenmq.Queue("jobs/")
    q.put(b"payload")            # on disk when it returns
    body = q.get()               # comes again after a crash, until ...
    q.task_done()                # ... this

`get` hands out items in the order of `put`; `task_done` is for the oldest item that the calling thread has got and
not yet settled.  An item whose task_done never came is there again when the queue is opened the next time.
"""

from __future__ import annotations

import json
import math
import queue
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import msgpack  # type: ignore[import-untyped]

from warrenmq.backing_queue.rates import MOST_AHEAD
from warrenmq.broker.arguments import check_bodies
from warrenmq.broker.broker import MOST_PEEKED, Broker, QueueHandle
from warrenmq.broker.consumer import Consumer
from warrenmq.broker.embedded import open  # noqa: A004
from warrenmq.checks import flag, is_a, number_of_seconds, seconds, shown, text, whole, wrong_value
from warrenmq.errors import ArgumentTypeError, ArgumentValueError, Blocked, PreconditionFailed
from warrenmq.runtime.signals import undisturbed
from warrenmq.runtime.thread_event import News, hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike
    from types import TracebackType

    from warrenmq.actors.sending.confirms import Confirm
    from warrenmq.broker.delivery import Delivery
    from warrenmq.broker.message_options import MessageOptions
    from warrenmq.settings import Settings

NAME = "queue"
ON_ITS_WAY = 1.0
"""Seconds that a get without blocking waits for an item that is known to be there."""

LOOK_AGAIN = 0.1
"""Seconds that a get asks the queue itself, before it looks whether the consumer has an item again; and for which a put that has to wait
puts off the handlers of signals."""


def _bytes(item: object) -> object:
    """The item itself, whose bytes are checked and copied where it is published."""
    if not is_a(item, (bytes, bytearray, memoryview)):
        msg = (
            f'this queue holds bytes, not {type(item).__name__}; open it with codec="json" or codec="msgpack"'
        )
        raise ArgumentTypeError(msg)
    return item


def _json(item: object) -> bytes:
    return json.dumps(item, separators=(",", ":")).encode()


CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[bytes], Any]]] = {
    "bytes": (_bytes, lambda body: body),
    "json": (_json, json.loads),
    "msgpack": (msgpack.packb, msgpack.unpackb),
}


def _patience(block: object, timeout: object) -> float | None:
    """Seconds that a put or get may wait, None = any; as in the standard library a timeout below 0 is an error."""
    number = number_of_seconds("timeout", timeout)
    if number is not None and number < 0:
        raise wrong_value("timeout", number, "seconds from 0, or None")
    return seconds("timeout", number) if flag("block", block) else 0.0


class Queue:
    """One durable queue in a folder of its own; also a context manager.  For any number of threads.

    `codec` is "bytes", "json" or "msgpack"; what it cannot encode raises TypeError at `put`.  Opening raises as
    `warrenmq.open` does.
    """

    def __init__(self, path: str | PathLike[str], *, codec: Literal["bytes", "json", "msgpack"] = "bytes",
                 settings: Settings | Mapping[str, Any] | None = None) -> None:  # fmt: skip
        if (known := CODECS.get(text("codec", codec))) is None:
            msg = f"there is no codec {shown(codec)}; use {', '.join(CODECS)}"
            raise ArgumentValueError(msg)
        self._encoder, self._decode = known
        self._broker: Broker = open(path, settings=settings)
        self._broker.declare_queue(NAME)
        self._queue = QueueHandle(self._broker, NAME, ack_in_time=False)
        # queue.Queue lets a task take its time
        self._consumer = Consumer(
            self._broker.inside.client,
            NAME,
            MOST_AHEAD,
            no_ack=False,
            exclusive=False,
            priority=0,
            ack_in_time=False,
        )
        self._taking = threading.Lock()
        """Held by the one thread that waits in the consumer: the others wait for the lock."""
        self._mine = threading.local()
        self._counts = threading.Lock()
        """Held while the two numbers below change."""
        self._done = News()
        info = self._queue.info()
        self._unfinished = info.ready + info.unacked + self._delayed()
        """Items put and not yet task_done, this run and the ones before."""
        self._in_hands = 0
        """Items got and not yet task_done."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None,
            **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Add an item; it is on disk when this returns.  Raises Nacked if it could not be stored.

        With `delay` (seconds) or `at` (a datetime with a time zone) it can be got from then on; the other keywords are those of
        `warrenmq.Broker.publish`.

        The queue has no size limit, but nothing is put while a memory or disk alarm is set (docs/alarms.md): this waits,
        or raises queue.Full, at once without `block`, else after `timeout` seconds.
        """
        self._broker.runtime.check_process()
        body = self._encode(item)
        self._publish([body], _patience(block, timeout), options)

    def put_nowait(self, item: Any) -> None:
        """Put an item without blocking."""
        self.put(item, block=False)

    def put_many(self, items: Iterable[Any], **options: Unpack[MessageOptions]) -> None:
        """Add many items with one sync; all are on disk when this returns."""
        self._broker.runtime.check_process()
        check_bodies(items)
        self._publish([self._encode(item) for item in items], None, options)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The oldest item; waits for one, or raises queue.Empty: at once without `block`, else after `timeout` s."""
        self._broker.check_open()
        patience, got = _patience(block, timeout), self._got()
        before = len(got)
        try:
            body = hold(self._taking, patience, queue.Empty, partial(self._take, got, block, patience))
            return self._decode(body)
        except Exception:
            raise
        except BaseException:  # of a signal's handler
            if len(got) > before:
                got.rotate()
                self._give_back(got)
            raise

    def _take(self, got: deque[Delivery], block: bool, timeout: float | None) -> bytes:
        """The body of the next item, which is the last of `got` then."""
        if not block:  # an item that is there may still be on its way to us
            timeout = ON_ITS_WAY if self.qsize() else 0.0
        delivery = self._next(timeout)
        if delivery is None:
            self._broker.check_open()
            raise queue.Empty
        with self._counts:
            self._in_hands += 1
            got.append(delivery)
        return delivery.body

    def _next(self, timeout: float | None) -> Delivery | None:
        """The next delivery.  While so many items are in hands that the consumer gets no more, they are asked for one by one."""
        while self._in_hands >= MOST_AHEAD:
            wait = LOOK_AGAIN if timeout is None else min(timeout, LOOK_AGAIN)
            if (delivery := self._consumer.get(0.0) or self._queue.get(wait)) is not None:
                return delivery
            if timeout is not None:
                timeout -= wait
                if timeout <= 0:
                    return None
        return self._consumer.get(timeout)

    def get_nowait(self) -> Any:
        """An item if there is one, else queue.Empty."""
        return self.get(block=False)

    def task_done(self) -> None:
        """The oldest item that this thread got is done with: it will not come again.  ValueError if there is none."""
        self._broker.runtime.check_process()
        got = self._got()
        if not got:
            msg = "task_done() called more often than get() in this thread"
            raise ValueError(msg)
        with suppress(PreconditionFailed):  # a signal's handler interrupted the last call behind this
            got[0].ack()
        self._settled(got, done=1)

    def nack(self) -> None:
        """Put the oldest item that this thread got, and is not done with, back in its place; it will be got again.

        ValueError if there is none.
        """
        self._broker.runtime.check_process()
        got = self._got()
        if not got:
            msg = "nack() called more often than get() in this thread"
            raise ValueError(msg)
        self._give_back(got)

    def _give_back(self, got: deque[Delivery]) -> None:
        with suppress(PreconditionFailed):  # as in `task_done`
            got[0].nack()
        self._settled(got, done=0)

    def _settled(self, got: deque[Delivery], done: int) -> None:
        with self._counts:
            self._in_hands -= 1
            self._unfinished -= done
            got.popleft()
        self._tell_if_done()

    def peek(self, n: int = 1) -> list[Any]:
        """The next `n` items that could be got now; they stay where they are."""
        self._broker.check_open()
        n = whole("n", n, 0, MOST_PEEKED)
        if not self._taking.acquire(blocking=False):  # another thread waits for an item, so none is here
            return [self._decode(each.body) for each in self._queue.peek(n)]
        try:
            while True:  # until none came here from the queue meanwhile
                here = self._consumer.ahead(n)
                found = here + self._queue.peek(n - len(here))
                if len(self._consumer.ahead(n)) == len(here):
                    return [self._decode(each.body) for each in found]
        finally:
            self._taking.release()

    def join(self) -> None:
        """Wait until every item that was put is task_done."""
        self._broker.runtime.check_process()
        self._done.wait_for(lambda: self._unfinished <= 0)

    def qsize(self) -> int:
        """Items that were not yet got and could be got now."""
        self._broker.runtime.check_process()
        later = self._delayed()
        with self._counts:
            return max(0, self._unfinished - self._in_hands - later)

    def empty(self) -> bool:
        """True if there is nothing to get now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """True if a put would wait because an alarm is set; there is no size limit."""
        self._broker.runtime.check_process()
        return bool(self._broker.inside.resources.alarms.active)

    def close(self) -> None:
        """Stop cleanly; items without task_done stay for the next time."""
        self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:  # fmt: skip
        self.close()

    def _delayed(self) -> int:
        """Items whose time has not come."""
        return self._broker.inside.local_client.waiting_later()

    def _encode(self, item: object) -> Any:
        try:
            return self._encoder(item)
        except ArgumentTypeError:
            raise
        except Exception as why:  # of the encoder, or of the item's own methods
            msg = f"the item of type {type(item).__name__} cannot be encoded: {why}"
            raise (ArgumentTypeError(msg) if isinstance(why, TypeError) else ArgumentValueError(msg)) from why

    def _publish(self, bodies: list[bytes], timeout: float | None, options: MessageOptions) -> None:
        number, counted = len(bodies), 0
        sent: list[Confirm] = []
        try:
            with self._counts:
                self._unfinished += number
                counted = number
            self._send(sent, bodies, timeout, options)
            sent[0].result()
        except BaseException as why:
            if not sent:
                self._not_stored(counted)
            else:  # a signal's handler may have interrupted the wait
                sent[0].on_settled(partial(self._not_stored, counted, sent[0]))
            if isinstance(why, Blocked) and not sent:
                raise queue.Full(str(why)) from why
            raise

    def _send(self, sent: list[Confirm], bodies: list[bytes], timeout: float | None, options: MessageOptions) -> None:  # fmt: skip
        """Publish, and append the Confirm to `sent`: both or neither, whatever a signal's handler raises."""
        end = math.inf if timeout is None else monotonic() + timeout
        while not sent:
            left = max(0.0, end - monotonic())
            wait = min(left, LOOK_AGAIN)

            def send() -> None:
                sent.append(self._queue.publish_many(bodies, timeout=wait, **options))  # noqa: B023

            try:
                undisturbed(send)
            except Blocked:
                if sent or left <= LOOK_AGAIN:
                    raise

    def _got(self) -> deque[Delivery]:
        try:
            return self._mine.got  # type: ignore[no-any-return]
        except AttributeError:
            self._mine.got = deque()
            return self._mine.got  # type: ignore[no-any-return]

    def _not_stored(self, count: int, confirm: Confirm | None = None) -> None:
        """Count no more what was not published, or refused."""
        if confirm is None or confirm.exception() is not None:
            with self._counts:
                self._unfinished -= count
            self._tell_if_done()

    def _tell_if_done(self) -> None:
        if self._unfinished <= 0:
            self._done.tell()
