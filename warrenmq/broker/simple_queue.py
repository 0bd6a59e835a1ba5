"""warrenmq.Queue: the standard library's `queue.Queue`, on disk.

    q = warrenmq.Queue("jobs/")
    q.put(b"payload")            # on disk when it returns
    body = q.get()               # comes again after a crash, until ...
    q.task_done()                # ... this

`get` hands out items in the order of `put`; `task_done` is for the oldest item that the calling thread has got and
not yet settled.  An item whose task_done never came is there again when the queue is opened the next time.

Interrupted calls.  The handler of a signal may raise in the middle of a call of the main thread (KeyboardInterrupt, a time
limit).  Each item is in one place then, the other threads go on, and the call can be made again:

    put               Counting, sending and noting the confirm is one step, behind which handlers are called (`undisturbed`); the wait
                      for the confirm may be interrupted.  Items that the confirm refuses count no more.
    task_done, nack   Settling an item and crossing it out is one such step.
    get               The wait may be interrupted.  An item that has come is written down, before a handler can run, as one that the thread
                      holds, and goes back if the call does not return it.

Locks are taken by C code alone, by `with` or `hold`, so that none stays taken.
"""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from os import PathLike
from time import monotonic
from typing import Any, Literal, Self, Unpack

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.backing_queue.rates import MOST_AHEAD
from warrenmq.broker.arguments import check_bodies
from warrenmq.broker.broker import Broker
from warrenmq.broker.codecs import codec_of
from warrenmq.broker.consumer import Consumer
from warrenmq.broker.delivery import Delivery, Message
from warrenmq.broker.embedded import open  # noqa: A004
from warrenmq.broker.handles import MOST_PEEKED, QueueHandle
from warrenmq.broker.message_options import MessageOptions
from warrenmq.checks import flag, number_of_seconds, of_this_process, seconds, whole, wrong_value
from warrenmq.errors import ArgumentValueError, Blocked, PreconditionFailed
from warrenmq.runtime.thread_event import News, hold
from warrenmq.settings import Settings
from warrenmq.signals import undisturbed

NAME = "queue"
ON_ITS_WAY = 1.0
"""Seconds that a get without blocking waits for an item that is known to be there."""

LOOK_AGAIN = 0.1
"""Seconds that a get asks the queue itself, before it looks whether the consumer has an item again; and for
which a put that has to wait puts off the handlers of signals.
"""


def _patience(block: object, timeout: object) -> float | None:
    """Seconds that a put or get may wait, None = any; as in the standard library a timeout below 0 is an error, and one that
    does not block has no timeout.
    """
    if not flag("block", block):
        return 0.0
    number = number_of_seconds("timeout", timeout)
    if number is not None and number < 0:
        raise wrong_value("timeout", number, "seconds from 0, or None")
    return seconds("timeout", number)


class _Mine(threading.local):
    """The items that a thread holds: got, and not yet settled, the oldest first."""

    def __init__(self) -> None:
        self.items: deque[Delivery] = deque()

    def oldest(self, call: str) -> Delivery:
        """The item that task_done or nack settles; ValueError if there is none."""
        if not self.items:
            raise ValueError(f"{call}() called more often than get() in this thread")
        return self.items[0]


class Queue:
    """One durable queue in a folder of its own; also a context manager.  For any number of threads.

    `codec` is "bytes", "json" or "msgpack"; what it cannot encode raises TypeError at `put`.  Opening raises as
    `warrenmq.open` does.
    """

    __reduce__ = of_this_process

    def __init__(self, path: str | PathLike[str], *, codec: Literal["bytes", "json", "msgpack"] = "bytes",
                 settings: Settings | Mapping[str, Any] | None = None) -> None:  # fmt: skip
        self._codec = codec_of(codec)
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
        self._mine = _Mine()
        self._counts = threading.RLock()
        """Held while the numbers below change, and while an item is settled."""
        self._changes = 0
        """Times that the next two have changed."""
        self._unanswered = 0
        """Items sent whose confirm has not come."""
        self._unfinished = 0
        """Items put and not yet task_done, this run and the ones before; `_recount` finds those that the queue dropped."""
        self._in_hands = 0
        """Items that threads hold."""
        self._finished = News()
        """Told when nothing is unfinished."""
        self._recount()

    # -- put

    def put(self, item: Any, block: bool = True, timeout: float | None = None,
            **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Add an item; it is on disk when this returns.  Raises Nacked if it could not be stored.

        With `delay` (seconds) or `at` (a datetime with a time zone) it can be got from then on; the other
        keywords are those of `warrenmq.Broker.publish`.

        The queue has no size limit, but nothing is put while a memory or disk alarm is set (docs/alarms.md): this waits,
        or raises queue.Full, at once without `block`, else after `timeout` seconds.
        """
        self._broker.runtime.check_process()
        body = self._codec.encode(item)
        self._publish([body], _patience(block, timeout), options)

    def put_nowait(self, item: Any) -> None:
        """Put an item without blocking."""
        self.put(item, block=False)

    def put_many(self, items: Iterable[Any], block: bool = True, timeout: float | None = None,
                 **options: Unpack[MessageOptions]) -> None:  # fmt: skip
        """Add many items with one sync; all are on disk when this returns.  An alarm holds it up as it does `put`."""
        self._broker.runtime.check_process()
        check_bodies(items)
        self._publish([self._codec.encode(item) for item in items], _patience(block, timeout), options)

    def _publish(self, bodies: list[bytes], timeout: float | None, options: MessageOptions) -> None:
        """Send items, and wait until they are on disk; queue.Full if an alarm keeps them back for longer than
        `timeout`, or anything else does.
        """
        end = math.inf if timeout is None else monotonic() + timeout
        sent: list[Confirm] = []
        while not sent:
            began = monotonic()
            left = max(0.0, end - began)
            try:
                undisturbed(partial(self._send, sent, bodies, min(left, LOOK_AGAIN), options))
            except Blocked as blocked:
                # at once: it waited for no alarm
                if left <= LOOK_AGAIN or monotonic() < began + LOOK_AGAIN:
                    raise queue.Full(str(blocked)) from blocked
        sent[0].result()

    def _send(
        self, sent: list[Confirm], bodies: list[bytes], timeout: float, options: MessageOptions
    ) -> None:
        """Count items and publish them; their Confirm is appended to `sent`.

        They count before they can be got, as another thread may be done with them at once.
        """
        number = len(bodies)
        self._count(number, unanswered=number)
        try:
            confirm = self._queue.publish_many(bodies, timeout=timeout, **options)
        except BaseException:
            self._count(-number, unanswered=-number)
            raise
        confirm.on_settled(partial(self._confirm_came, confirm, number))
        sent.append(confirm)

    def _confirm_came(self, confirm: Confirm, number: int) -> None:
        self._count(0 if confirm.exception() is None else -number, unanswered=-number)

    def _count(self, more: int, *, unanswered: int = 0) -> None:
        """Count so many unfinished items more, or fewer."""
        with self._counts:
            self._changes += 1
            self._unfinished += more
            self._unanswered += unanswered
        if self._unfinished <= 0:
            self._finished.tell()

    def _recount(self) -> None:
        """Count what the queue has, unless that changes meanwhile.

        Expired and damaged items count no more, and those of a queue whose process died may be there again.
        """
        with self._counts:
            changes = self._changes
        # first, as items go from there to the queue
        delayed = self._broker.inside.local_client.waiting_later()
        info = self._queue.info()
        with self._counts:
            if changes == self._changes and not self._unanswered:
                self._unfinished = delayed + info.ready + info.unacked

    # -- get

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The oldest item; waits for one, or raises queue.Empty: at once without `block`, else after `timeout` s.

        ArgumentValueError for an item that the codec cannot read, since another one wrote it: the thread
        holds it as if it had been returned, so `task_done` drops it and `nack` puts it back.
        """
        self._broker.check_open()
        patience, mine = _patience(block, timeout), self._mine.items
        before = len(mine)
        try:
            body = hold(self._taking, patience, queue.Empty, partial(self._take, mine, block, patience))
            return self._codec.decode(body)
        except ArgumentValueError as unreadable:
            raise ArgumentValueError(
                f"{unreadable}; task_done() drops it, nack() puts it back"
            ) from unreadable
        except Exception:
            raise
        except BaseException:  # of a signal's handler
            if len(mine) > before:
                mine.rotate()
                undisturbed(partial(self._cross_out, mine[0].nack, finished=0))
            raise

    def get_nowait(self) -> Any:
        """An item if there is one, else queue.Empty."""
        return self.get(block=False)

    def _take(self, mine: deque[Delivery], block: bool, timeout: float | None) -> bytes:
        """Take the next item, which is the last of `mine` then; returns its body."""
        delivery = self._next(timeout if block else 0.0)
        if delivery is None and not block and self.qsize():  # it may still be on its way to us
            delivery = self._next(ON_ITS_WAY)
        if delivery is None:
            self._broker.check_open()
            raise queue.Empty
        with self._counts:
            self._in_hands += 1
            # the first call since the item came: no handler has run
            mine.append(delivery)
        return delivery.body

    def _next(self, timeout: float | None) -> Delivery | None:
        """The next delivery.  While threads hold so many items that the consumer gets no more, they are asked
        for one by one.
        """
        while self._in_hands >= MOST_AHEAD:
            wait = LOOK_AGAIN if timeout is None else min(timeout, LOOK_AGAIN)
            if (delivery := self._consumer.get(0.0) or self._queue.get(wait)) is not None:
                return delivery
            if timeout is not None:
                timeout -= wait
                if timeout <= 0:
                    return None
        return self._consumer.get(timeout)

    # -- settle

    def task_done(self) -> None:
        """The oldest item that this thread got is done with: it will not come again.  ValueError if there is none."""
        self._broker.runtime.check_process()
        undisturbed(partial(self._cross_out, self._mine.oldest("task_done").ack, finished=1))

    def nack(self) -> None:
        """Put the oldest item that this thread got, and is not done with, back in its place; it will be got again.

        ValueError if there is none.
        """
        self._broker.runtime.check_process()
        undisturbed(partial(self._cross_out, self._mine.oldest("nack").nack, finished=0))

    def _cross_out(self, settle: Callable[[], None], finished: int) -> None:
        """Settle the first of the items that this thread holds, which is `finished` (1) or will be got again (0)."""
        # a second signal is not put off, and may have interrupted the last call behind this
        with self._counts:
            with suppress(PreconditionFailed):
                settle()
            self._in_hands -= 1
            self._mine.items.popleft()
            self._count(-finished)

    def join(self) -> None:
        """Wait until every item that was put is task_done, or gone: its `expiration` was over, or its bytes are damaged.

        Raises BrokerClosed when the queue is closed meanwhile.
        """
        self._broker.runtime.check_process()
        while not self._finished.wait_for(self._is_finished, LOOK_AGAIN):
            self._recount()

    def _is_finished(self) -> bool:
        if self._unfinished <= 0:
            self._recount()
        return self._unfinished <= 0

    # -- look

    def peek(self, n: int = 1) -> list[Any]:
        """The next `n` items that could be got now; they stay where they are."""
        self._broker.check_open()
        n = whole("n", n, 0, MOST_PEEKED)
        try:
            found = hold(self._taking, 0, queue.Empty, partial(self._ahead, n))
        except queue.Empty:  # another thread waits for an item, so the consumer has none
            found = self._queue.peek(n)
        return [self._codec.decode(each.body) for each in found]

    def _ahead(self, n: int) -> list[Message]:
        """The next items, of which the consumer has the first."""
        while True:  # until none came from the queue to the consumer meanwhile
            here = self._consumer.ahead(n)
            found = here + self._queue.peek(n - len(here))
            if len(self._consumer.ahead(n)) == len(here):
                return found

    def qsize(self) -> int:
        """Items that were not yet got and could be got now."""
        self._broker.runtime.check_process()
        info = self._queue.info()
        return max(0, info.ready + info.unacked - self._in_hands)

    def empty(self) -> bool:
        """True if there is nothing to get now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """True if a put would wait because an alarm is set; there is no size limit."""
        self._broker.runtime.check_process()
        return bool(self._broker.inside.resources.alarms.active)

    # -- the end

    def close(self) -> None:
        """Stop cleanly; items without task_done stay for the next time."""
        self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
