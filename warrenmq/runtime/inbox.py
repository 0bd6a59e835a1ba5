"""Inbox: the way in to an actor, and its end, for servers and for supervised plain Pykka actors alike.

Guarantees.  A message that is sent is taken by the owner exactly once, or lost exactly once (`_lose`):
senders look at `reason` again after they have put, and drain the inbox if it is closed.  Each drain takes
messages out by single atomic pops, so two drains share the leftovers and never both get the same one.

An owner that ends only because nobody needs it closes while no mail waits (`close_empty`), and loses nothing:
a sender whose message comes too late has it back (`gives_back`), and sends it to the successor.  If there is
mail after all, the inbox is open again before anyone has seen it closed: who finds it closed looks once more
under the lock (`_is_over`).

Order.  A sender may add to a message that is still the newest (`send_open`): whatever is sent by anyone else since then is
handled behind it, as if each part had been sent alone.

Assumptions.  `put`, `get_nowait` and `deque.popleft` are atomic (C calls; in simulation nothing runs between).
"""

from __future__ import annotations

from abc import abstractmethod
from queue import Empty
from typing import Any

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from warrenmq.runtime.closable import ALIVE, Closable
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.messages import Exit
from warrenmq.runtime.reasons import KILLED
from warrenmq.runtime.seams import Channel
from warrenmq.runtime.system import System
from warrenmq.trace.recorder import ActorTrace


class Letter:
    """An item for Pykka's loop: a message for Pykka itself, or one of the signs that the mailbox gives our own loop."""

    __slots__ = ("message", "reply_to")

    def __init__(self, message: Any, reply_to: Any = None) -> None:
        self.message = message
        self.reply_to = reply_to


PROXIES = (ProxyCall, ProxyGetAttr, ProxySetAttr)
"""The messages of Pykka's proxies."""


def is_stop(message: Any) -> bool:
    """True for Pykka's stop message, which has a private name."""
    return type(message).__module__ == ProxyCall.__module__ and not isinstance(message, PROXIES)


def sign() -> Letter:
    """A letter to itself, since Pykka's loop may be the one to read it."""
    letter = Letter(None)
    letter.message = letter
    return letter


CLOSED = sign()
"""The owner was given up: it must stop."""
WAKE = sign()
"""Wakes a parked owner: an exit signal has come, it was given up, or there is mail to take."""
NO_MAIL = (Empty, IndexError)
"""Raised by `incoming.get_nowait`: a pooled actor's is a bare deque's."""
_NOBODYS = object()


class Inbox(Closable):
    """The part of an actor that other threads may use."""

    def __init__(self, runtime: System, fence: Fence, incoming: Channel) -> None:
        super().__init__(runtime.tick)
        self.runtime = runtime
        self.fence = fence
        self.trace_id = 0
        """The owner's number in the trace; 0 when untraced."""
        self.incoming = incoming
        """Mail that waits."""
        self.newest: object = None
        """The message that was sent last, if it was sent by `send_open`."""
        self.gives_back = False
        """True once it was closed by `close_empty`: messages that are sent are neither taken nor lost."""
        self._given_back: list[Any] = []
        """Messages that came too late; their senders are about to look for them."""

    def send(self, message: Any) -> bool:
        """Append a message; False if it is known that the owner will not take it."""
        if self.reason is not ALIVE and self._is_over():
            return self._too_late(message)
        self.incoming.put(message)
        self.newest = None  # only now: what is the newest has nothing behind it whose sending is over
        return self.reason is ALIVE or not self._is_over() or self.drain(message)

    def send_open(self, message: Any) -> bool:
        """`send` of a message to which its sender may add as long as it is `newest`."""
        if self.reason is not ALIVE and self._is_over():
            return self._too_late(message)
        # Not yet `message` itself: a signal's handler that sends before it is in would add to it, and perhaps wait.
        self.newest = sending = (message,)
        self.incoming.put(message)
        # else another one was sent meanwhile, and may stand before this one
        self.newest = message if self.newest is sending else None
        return self.reason is ALIVE or not self._is_over() or self.drain(message)

    def length(self) -> int:
        """The number of messages that wait; approximate by the time it is read."""
        return self.incoming.qsize()

    def _too_late(self, message: Any) -> bool:
        if not self.gives_back:
            self._lose(message, None)
        return False

    def close_empty(self, reason: Any) -> bool:
        """Close for `reason` if no mail waits, for the owner alone, who ends then; False if there is mail, or
        a killer was faster.

        Closed first, looked for mail second; senders put first, look whether it is closed second.
        """
        with self._lock:
            if self.reason is not ALIVE:
                return False
            self.gives_back = True
            self.reason = reason
            if not self.length():
                return True
            self.reason = ALIVE
            self.gives_back = False
            return False

    def _is_over(self) -> bool:
        """True if it is closed for good."""
        with self._lock:
            return self.reason is not ALIVE

    def _take_back(self, mine: Any) -> bool:
        """Take back a message from an inbox that gives back; True if the owner has taken it."""
        with self._lock:
            self._given_back += self._leftovers()
            for place, message in enumerate(self._given_back):
                if message is mine:
                    del self._given_back[place]
                    return False
        return True

    def kill(self) -> bool:
        """Close on behalf of a killer: the owner takes no more mail, and stops when it next looks for some."""
        if not self.begin_close(KILLED):
            return False
        self.drain()
        self.incoming.put(WAKE)
        return True

    def vanish(self) -> None:
        """Close without running any callback or `undelivered`: the simulated process is gone."""
        super().vanish()
        self._leftovers()
        self._lose = lambda message, trace: None  # type: ignore[method-assign]  # noqa: ARG005

    def drain(self, mine: Any = _NOBODYS, trace: ActorTrace | None = None) -> bool:
        """Lose, after the end, the messages that will not be read.  False if `mine` was among it.

        `trace` is the owner's, when the owner drains; the sender of `mine` has a trace of its own.
        """
        if self.gives_back:
            return mine is _NOBODYS or self._take_back(mine)
        delivered = True
        woken = False
        for message in self._leftovers():
            if message is WAKE:
                woken = True
            elif message is mine:
                delivered = False
                self._lose(message, None)
            else:
                self._lose(message, trace)
        if woken:
            self.incoming.put(WAKE)  # it is for the owner, who may still be parked
        return delivered

    def _leftovers(self) -> list[Any]:
        found: list[Any] = []
        try:
            while True:
                found.append(self.incoming.get_nowait())
        except NO_MAIL:
            return found

    @abstractmethod
    def signal(self, signal: Exit) -> None:
        """Send an exit signal; signals to the dead are dropped, as in Erlang."""

    @abstractmethod
    def _lose(self, message: Any, trace: ActorTrace | None) -> None:
        """Dispose of a message that will not be handled."""

    # -- for Pykka

    @abstractmethod
    def put(self, envelope: Any, /) -> None:
        """Take mail of Pykka's tell, ask, stop and proxies."""

    @abstractmethod
    def get(self) -> Any:
        """Wait for the next Letter; by the owner only."""

    def empty(self) -> bool:
        """Pykka asks after the owner's end: nothing is left for it to answer."""
        self.drain()
        return True
