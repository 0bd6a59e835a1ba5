"""Publisher confirms: one promise for one publish, kept by every queue it was routed to.

A queue process settles its share after the sync that made the message safe (rabbit_confirms: a sequence number
owes its queues; the last one that answers settles it).  A queue that dies before it answered nacks its share.

No lock on the way of a message: a share is taken by `list.pop`, one atomic step, and the taker of the last
share settles the promise.  A waiter registers itself first and looks at the result second; the settler writes
the result first and looks for waiters second; so one of the two always sees the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import RLock

from warrenmq import forks
from warrenmq.checks import of_this_process, seconds, wrong_type
from warrenmq.errors import Nacked
from warrenmq.runtime import Runtime


class _Registering:
    """Held while a waiter registers: rare, and short, so one lock serves all promises.

    The handler of a signal may wait for another promise in the middle of it.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        forks.register(self)

    def after_fork(self) -> None:
        """Make a new lock, as another thread of the parent may have held the old one (forks.py)."""
        self.lock = RLock()


_registering = _Registering()


class Confirm:
    """The broker's answer to a publish; settled once, from any thread.

    After `result` has returned None the message is as safe as the settings say (`durability`).
    """

    __slots__ = ("_callbacks", "_error", "_runtime", "_settled", "_shares")

    __reduce__ = of_this_process

    def __init__(self, runtime: Runtime, shares: int = 1) -> None:
        self._runtime = runtime
        self._settled = False
        self._error: Exception | None = None
        self._shares = [None] * shares if shares > 1 else None
        self._callbacks: list[Callable[[], object]] | None = None

    def done(self) -> bool:
        """True if the answer is known."""
        return self._settled

    def result(self, timeout: float | None = None) -> None:
        """Wait for the answer, `timeout` seconds at the most.

        Raises Nacked, Returned, Blocked or BrokerClosed when the message was not taken over, TimeoutError when the answer
        is not there in time (it may still come), ForkedProcess in a child, which will not hear it.
        """
        if timeout is not None:
            timeout = seconds("timeout", timeout)
        if not self._settled:
            known = self._runtime.event()
            self.on_settled(known.set)
            if not known.wait(timeout):
                raise TimeoutError(f"no confirm within {timeout} s; the message may still be confirmed later")
        if self._error is not None:
            raise self._error

    def exception(self) -> Exception | None:
        """The error for which the message was not taken over; None if it was, or while that is not known."""
        return self._error

    def add_done_callback(self, callback: Callable[[Confirm], object]) -> None:
        """Register `callback(confirm)` to be called when the answer is known: in the settling actor's thread, or here and
        now if it is known already.  It must not block, and what it raises is lost.
        """
        if not callable(callback):
            raise wrong_type("callback", callback, "a function of one argument, the Confirm")
        self.on_settled(partial(self._runtime.run_callback, callback, self))

    def on_settled(self, callback: Callable[[], object]) -> None:
        """Add a callback of the broker's own, which takes no lock of an application; else as `add_done_callback`."""
        if not self._settled and self._runtime.forked_from is not None:
            self._runtime.check_process()
        with _registering.lock:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)
        if self._settled:
            self._call_back()

    def follow(self, answer: Confirm) -> None:
        """Settle this promise as `answer` is settled."""
        answer.on_settled(partial(self._settle_as, answer))

    def _settle_as(self, answer: Confirm) -> None:
        if answer._error is None:
            self.confirm()
        else:
            self.fail(answer._error)

    # -- for queue processes

    def confirm(self) -> None:
        """Count the confirm of one queue."""
        if (shares := self._shares) is not None:
            shares.pop()
            if shares:
                return
        self._settled = True
        if self._callbacks is not None:
            self._call_back()

    def nack(self, why: str) -> None:
        """One queue will not answer: the whole promise is broken (RabbitMQ nacks when any queue does)."""
        self.fail(Nacked(why))

    def fail(self, error: Exception) -> None:
        """Break the promise; later answers of other queues change nothing."""
        if not self._settled:
            self._error = error
            self._settled = True
        if self._callbacks is not None:
            self._call_back()

    def parts(self, count: int) -> list[Confirm]:
        """The promises for a queue that answers each of `count` messages on its own; the publisher gets one answer."""
        if self._shares is None:  # then no other queue owes an answer
            self._shares = [None] * count
        else:
            self._shares.extend([None] * (count - 1))
        return [self] * count

    def _call_back(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.pop()
            except IndexError:  # another thread is calling back too
                return
            try:
                callback()
            except (Exception, SystemExit):  # noqa: BLE001, S110  # a publisher's mistake must not stop the queue
                pass
