"""Consuming from the owner: one channel for each consumer, and channels for basic.get.

A RemoteConsumer stands where the queue's process stands in the owner: the face's Consumer and Delivery
(broker/consumer.py, broker/delivery.py) send it their acks and cancels, and watch it.  It ends with its
channel; the Consumer then subscribes again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from pamqp.commands import Basic

from warrenmq.errors import ArgumentValueError, Error, PreconditionFailed
from warrenmq.queue.messages import Ack, Cancel, Consume, Deliveries, Get, Got, Reject, Taken
from warrenmq.shared.channel import CANCEL, DELIVER, Answer, ClientChannel, Content, delivered
from warrenmq.shared.connection import ClientConnection

MOST_PREFETCH = 65_535
"""AMQP's prefetch count is a 16-bit number."""
UNREAD = 4096
"""Deliveries to a consumer without a prefetch count that wait in this process; then its connection is not read."""
FIRST_WAIT, LONGEST_WAIT = 0.001, 0.025
"""Seconds between two looks of a `get` that waits."""


class _SettlingChannel(ClientChannel):
    def _send_settled(self, message: Ack | Reject) -> None:
        self.mark()
        tag, multiple = message.tag, message.multiple
        if isinstance(message, Ack):
            self.send(Basic.Ack, delivery_tag=tag, multiple=multiple)
        else:
            self.send(Basic.Nack, delivery_tag=tag, multiple=multiple, requeue=message.requeue)


class ConsumerChannel(_SettlingChannel):
    """The channel of one consumer; it stands for the queue's process in the owner."""

    def __init__(
        self, connection: ClientConnection, request: Consume, queue: str, own: ClientConnection | None
    ) -> None:
        """`own` is the connection if it serves nothing else: it is not read while too much is unread, and is
        closed at the end.
        """
        if request.prefetch > MOST_PREFETCH:
            raise ArgumentValueError(
                f"prefetch is {request.prefetch}; a process that does not own the directory takes at most {MOST_PREFETCH}, or 0"
            )
        self._outlet = request.outlet
        """The channel from which the application's Consumer takes deliveries."""
        self._holder = None if request.ack_deadline is None else request.ack_deadline.holder
        self._no_ack = request.no_ack
        self._own = own
        self._batch: list[Any] = []
        """Deliveries of the frames that were read together, to be put into `_outlet` at once."""
        self._first = 0
        """The tag of the first of `_batch`."""
        self._unread = 0
        """Deliveries that the application has not taken out of `_outlet`."""
        self._callers = 0
        """Callers that wait for an answer."""
        self._last = 0
        """The tag of the last delivery that came."""
        self._outstanding: set[int] | None = None
        """Tags that the application holds once it is cancelled: with the last of them the channel is closed."""
        self._handed_out: int | None = None
        """Once it is cancelled, the last tag that the application saw."""
        self._settled: set[int] = set()
        """Settled tags above `_settled_up_to`."""
        self._settled_up_to = 0
        """All tags up to this one are settled."""
        self._watchers: dict[int, Callable[[Any], None]] = {}
        """Called when the channel is over, by key, as monitors of the queue's process would be."""
        self._keys = count(1)
        self._is_over = False
        self._tag = f"consumer-{request.consumer}"
        self._request, self._queue = request, queue
        super().__init__(connection)
        request.undo = self._undo

    def _prepare(self) -> None:
        request = self._request
        if request.prefetch:
            self.call(Basic.Qos, prefetch_count=request.prefetch)
        arguments = {"x-priority": request.priority} if request.priority else {}
        self.call(Basic.Consume, queue=self._queue, consumer_tag=self._tag, no_ack=request.no_ack,
                  exclusive=request.exclusive, arguments=arguments)  # fmt: skip

    def _undo(self) -> None:
        """Give all back, without waiting: a call of the consumer was interrupted."""
        self._watchers.clear()
        self.close_soon()
        if self._own is not None:
            self._own.close_soon()

    # -- what Consumer and QueueHandle send to a queue's process

    def settle(self, message: Ack | Reject | Taken | Cancel) -> None:
        """Send the consumer's ack, reject, cancel or count of taken deliveries; ignored once the channel is closed."""
        if isinstance(message, Cancel) and self._handed_out is not None:
            self._undo()  # `cancel` was interrupted
        if self.error is not None:
            return
        try:
            with self._lock:
                self._settle(message)
        except Error:
            return  # it has just been closed

    def _settle(self, message: Ack | Reject | Taken | Cancel) -> None:
        match message:
            case Taken():
                self._unread -= message.count
                if self._own is not None and self._unread <= UNREAD // 2:
                    self._own.resume_reading()
            case Cancel():
                self._cancel_soon(message)
            case _ if message.tag <= self._settled_up_to or message.tag in self._settled:
                pass  # once more, as the call was interrupted behind it
            case _:
                before = self.written
                try:
                    self._send_settled(message)
                finally:
                    if self.written != before:
                        self._count(message.tag, multiple=message.multiple)

    def cancel(self, message: Cancel) -> None:
        """Cancel the consumer: deliveries beyond `handed_out` are requeued, the others may still be settled.
        Waits for the owner.
        """
        with self._lock:
            if self._handed_out is None:  # else another thread gives back what was not taken
                self._hold_back(message)
        self.call(Basic.Cancel, consumer_tag=self._tag)
        if not self._outstanding:
            self._give_back()

    def wait_for(self, answer: Answer) -> Any:
        """Wait for an answer; meanwhile the consumer's own connection is read, however much is unread."""
        if self._own is None:
            return super().wait_for(answer)
        with self._lock:
            self._callers += 1
            self._own.resume_reading()
        try:
            return super().wait_for(answer)
        finally:
            with self._lock:
                self._callers -= 1
                self._pause_if_full()

    def _pause_if_full(self) -> None:
        if self._own is not None and self._unread > UNREAD and not self._callers and self._handed_out is None:
            self._own.pause_reading()

    def _cancel_soon(self, message: Cancel) -> None:
        """Cancel without waiting: called by a finalizer, perhaps in the connection's thread."""
        self._hold_back(message)
        self.send(Basic.Cancel, consumer_tag=self._tag, nowait=True)
        self._close_if_done()

    def _hold_back(self, message: Cancel) -> None:
        handed_out = self._last if message.handed_out is None else message.handed_out
        self._handed_out = handed_out
        if self._no_ack:
            self._outstanding = set()
            return
        self._return(handed_out + 1, self._last)
        self._outstanding = set(range(self._settled_up_to + 1, handed_out + 1)) - self._settled

    def _return(self, first: int, last: int) -> None:
        for tag in range(first, last + 1):
            self.mark()
            self.send(Basic.Nack, delivery_tag=tag, multiple=False, requeue=True)

    def _count(self, tag: int, *, multiple: bool) -> None:
        if multiple:
            self._settled_up_to = max(self._settled_up_to, tag)
            self._settled = {each for each in self._settled if each > tag}
        elif tag == self._settled_up_to + 1:
            self._settled_up_to = tag
            while self._settled_up_to + 1 in self._settled:
                self._settled_up_to += 1
                self._settled.discard(self._settled_up_to)
        else:
            self._settled.add(tag)
        if self._outstanding is not None:
            self._outstanding -= {
                each for each in self._outstanding if each == tag or (multiple and each < tag)
            }
            self._close_if_done()

    def _close_if_done(self) -> None:
        if not self._outstanding:
            self._undo()

    def _give_back(self) -> None:
        self._watchers.clear()
        self.close()
        if self._own is not None:
            self._own.close()

    def on_end(self, watcher: Callable[[Any], None]) -> int:
        """Call `watcher(reason)` when the channel ends, or at once if it has; returns a key for `forget`."""
        key = next(self._keys)
        self._watchers[key] = watcher
        if self._is_over:
            self._tell_watchers()
        return key

    def forget(self, key: int) -> None:
        """Remove a watcher."""
        self._watchers.pop(key, None)

    # -- in the connection's thread

    def content(self, start: bytes, content: Content) -> None:
        """Handle basic.deliver."""
        if start != DELIVER:
            super().content(start, content)
            return
        tag, message = delivered(content)
        if not self._batch:
            self._first = tag
        self._batch.append(message)

    def batch_ended(self) -> None:
        """Hand the deliveries of one read to the application as one batch."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        with self._lock:
            self._last = self._first + len(batch) - 1
            if self._handed_out is not None:  # cancelled: what was on its way goes back
                if not self._no_ack:
                    with suppress(Error):
                        self._return(self._first, self._last)
                return
            self._unread += len(batch)
            self._pause_if_full()
        self._outlet.put(Deliveries(self._first, batch))

    def event(self, start: bytes, payload: bytes) -> bool:  # noqa: ARG002
        """Handle basic.cancel: the queue was deleted, or its process refuses the consumer after a crash."""
        if start != CANCEL:
            return False
        self._over()
        self._undo()
        return True

    def ended(self, error: Error, *, lost: bool, timed_out: bool = False) -> None:
        """Tell the consumer that its channel was closed, by consumer_timeout or with the connection."""
        if timed_out and self._holder is not None:
            self._holder.lapsed(PreconditionFailed(str(error)))
        self._over()
        if not lost and self._own is not None:
            self._own.close_soon()

    def _over(self) -> None:
        self.batch_ended()  # a consumer that subscribes again counts its tags anew
        self._is_over = True
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        """Call each watcher once, even if the connection's thread and `on_end` race: a consumer told twice
        subscribes twice.
        """
        with suppress(KeyError):
            while True:
                _, watcher = self._watchers.popitem()
                watcher(self.error)


class GetChannel(_SettlingChannel):
    """A channel for basic.get; one handle has it alone while any of its messages is unacked."""

    def __init__(self, connection: ClientConnection, done: Callable[[GetChannel], None]) -> None:
        """`done` is called when all that was got is settled."""
        self._done = done
        self._held: set[int] = set()
        self.users = 0
        """Threads that get with it now; its attachment counts them."""
        super().__init__(connection)

    def get(self, queue: str, request: Get) -> Got | None:
        """Fetch one message with basic.get."""
        answer = Answer()
        acked_here = request.no_ack and request.timeout > 0  # what comes too late can go back
        if acked_here:
            answer.taker = self._ack_at_once
        if acked_here or not request.no_ack:
            request.undo = partial(self.hand_over, answer, self._give_back)
        content = self.call(Basic.Get, answer, queue=queue, no_ack=request.no_ack and not acked_here)
        if not isinstance(content, Content):
            return None
        tag, message = delivered(content)
        if not request.no_ack:
            with self._lock:
                self._held.add(tag)
        return Got(tag, message, 0)  # type: ignore[arg-type]  # Received is to a Delivery what Fetched is

    def _ack_at_once(self, answer: object) -> None:
        """Ack for a caller with no_ack, in the connection's thread."""
        if isinstance(answer, Content):
            with suppress(Error):
                self.mark()
                self.send(Basic.Ack, delivery_tag=delivered(answer)[0], multiple=False)

    def _give_back(self, answer: object) -> None:
        """Requeue what a caller that was interrupted does not know of."""
        if isinstance(answer, Content):
            tag, _ = delivered(answer)
            self._held.discard(tag)
            with suppress(Error):
                self.mark()
                self.send(Basic.Nack, delivery_tag=tag, multiple=False, requeue=True)

    @property
    def is_idle(self) -> bool:
        """True if no handle gets with it, and none of its messages is unacked."""
        return not self._held and not self.users

    def settle(self, message: Ack | Reject | Taken | Cancel) -> None:
        """Send an ack or reject, as ConsumerChannel.settle does."""
        if not isinstance(message, Ack | Reject):
            return
        with self._lock, suppress(Error):
            tags = {
                each
                for each in self._held
                if each == message.tag or (message.multiple and each < message.tag)
            }
            if not tags:
                return
            before = self.written
            try:
                self._send_settled(message)
            finally:
                if self.written != before:
                    self._held -= tags
        if not self._held:
            self._done(self)
