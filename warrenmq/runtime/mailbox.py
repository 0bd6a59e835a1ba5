"""The mailbox: everything that others may touch of an actor.

Purpose.  Pykka asks three things of an inbox, `put`, `get` and `empty`, and calls `get` from the actor's own
thread when it has nothing to do.  That is enough to build Erlang's receive loop on Pykka's: `get` parks the
actor, knows the timers, and says DRY once before it parks, which is `receive ... after 0`.

Senders only append to a channel (a C queue under threads: 24 ns, where queue.Queue takes 466); sorting by
priority is the owner's work as it drains, as in RabbitMQ's gen_server2: FIFO inside a priority, exit signals
before everything.

Guarantees.  A message that is sent is taken by the owner exactly once, or handed to `undelivered` exactly
once: senders look at `reason` again after they have put, and whoever finds the mailbox shut drains it.  Each
drain takes messages out by single atomic pops, so two drains share the leftovers and never both get one.

Assumptions.  `put`, `get_nowait` and `popleft` are atomic (C calls of SimpleQueue and deque; in simulation
nothing runs in between).  Only the owner adds to the lanes.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from queue import Empty
from typing import TYPE_CHECKING, Any

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from warrenmq.runtime.calls import FutureFrom
from warrenmq.runtime.messages import Call, Down, Exit, Info, ProxyRequest, Traced
from warrenmq.runtime.mortal import ALIVE, Mortal, log
from warrenmq.trace.events import Ev

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from warrenmq.runtime.base import Runtime
    from warrenmq.runtime.fence import Fence
    from warrenmq.trace.recorder import ActorTrace


class Letter:
    """What Pykka's loop reads: something for Pykka itself, or a sign to our own loop to return to it."""

    __slots__ = ("message", "reply_to")

    def __init__(self, message: Any, reply_to: Any = None) -> None:
        self.message = message
        self.reply_to = reply_to


class Dry:
    """The mailbox has run dry: said once before the owner is parked."""


DRY = Dry()

PARK = Letter(None)
"""Nothing to do, and DRY has been said: back to Pykka's loop, which will `get`."""

CLOSED = Letter(None)
"""The owner was given up: it must stop.  A letter to itself, since Pykka's loop may be the one to read it."""
CLOSED.message = CLOSED

_WAKE = Letter(None)
_NOBODYS = object()
_SIGNALS = frozenset({Letter, Dry, Info, Down, Exit, Call, ProxyRequest})
_PROXIES = (ProxyCall, ProxyGetAttr, ProxySetAttr)
_PYKKA = ProxyCall.__module__


class Timer:
    """A message to oneself, due later."""

    __slots__ = ("_mailbox", "message")

    def __init__(self, message: Any, mailbox: Mailbox) -> None:
        self.message: Info | None = Info(message)
        self._mailbox = mailbox

    def cancel(self) -> None:
        """No message will come; by the owner only.  Nothing happens if it has come already."""
        if self.message is not None:
            self.message = None
            self._mailbox.timer_cancelled()


class Mailbox(Mortal):
    """One actor's mail, its timers, and its end."""

    def __init__(
        self,
        runtime: Runtime,
        fence: Fence,
        priority: Callable[[Any], int] | None,
        undelivered: Callable[[Any], None] | None,
    ) -> None:
        super().__init__(runtime.tick)
        self._runtime = runtime
        self.fence = fence
        self.trace_id = 0
        """The owner's number in the trace; 0 when untraced."""
        self._incoming = runtime.channel()
        self._now = runtime.monotonic_ns
        self._undelivered = undelivered
        # From here on, the owner's alone; only a drain after the end may take from the lanes, too.
        self._priority = priority
        self._exits: deque[Any] = deque()
        self._ready: deque[Any] = deque()
        self._ranked: dict[int, deque[Any]] = {0: self._ready}
        self._lanes = (self._exits, self._ready)
        self._timers: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._held: Letter | None = None
        self._said_empty = False

    # -- for everyone

    def send(self, message: Any) -> bool:
        """Append a message; False if it is known that the owner will not take it."""
        if self.reason is not ALIVE:
            self._lose(message, None)
            return False
        self._incoming.put(message)
        return self.reason is ALIVE or self.drain(message)

    def kill(self) -> bool:
        """Give the owner up: it takes no more mail, and stops when it next looks for some."""
        if not self.shut("killed"):
            return False
        self.drain()
        self._incoming.put(_WAKE)
        return True

    def drain(self, mine: Any = _NOBODYS, trace: ActorTrace | None = None) -> bool:
        """After the end: hand out what nobody will read.  False if `mine` was among it."""
        delivered = True
        woken = False
        for message in self._leftovers():
            if message is _WAKE:
                woken = True
            elif message is mine:
                delivered = False
                self._lose(message, None)  # its sender says so in its own trace
            else:
                self._lose(message, trace)
        if woken:
            self._incoming.put(_WAKE)  # it is the owner's, who may still be parked
        return delivered

    def _leftovers(self) -> list[Any]:
        found: list[Any] = []
        for lane in self._lanes:
            try:
                while True:
                    found.append(lane.popleft())
            except IndexError:
                pass
        try:
            while True:
                found.append(self._incoming.get_nowait())
        except Empty:
            return found

    def _lose(self, message: Any, trace: ActorTrace | None) -> None:
        if type(message) is Traced:
            if trace is not None:
                kind = self._runtime.kind(message.message)
                trace.emit(Ev.UNDELIVERED, kind, 0, message.peer, message.pseq)
            message = message.message
        if type(message) is Letter:
            if message.reply_to is not None:
                message.reply_to.set(None)  # a stop: it has what it wants
        elif type(message) not in _SIGNALS and self._undelivered is not None:
            try:
                self._undelivered(message)
            except Exception:
                log.exception("undelivered failed", message_type=type(message).__name__)

    # -- for the owner

    def take(self) -> Any:
        """The next message by priority and age; DRY, once, when there is none; then PARK."""
        if self.reason is not ALIVE:
            return CLOSED
        if self._timers:
            self._ring()
        if not self._incoming.empty():
            self._sort()
        try:
            for lane in self._lanes:
                if lane:
                    return lane.popleft()
        except IndexError:  # drained under our hands
            return CLOSED
        if self._said_empty:
            return PARK
        self._said_empty = True
        return DRY

    def hold(self, letter: Letter) -> None:
        """Keep a letter for Pykka's next `get`."""
        self._held = None if letter is PARK else letter

    def send_after(self, seconds: float, message: Any) -> Timer:
        """Have an Info arrive after `seconds`; equal times keep their order."""
        timer = Timer(message, self)
        heappush(self._timers, (self._now() + round(seconds * 1e9), self._tick(), timer))
        return timer

    def timer_cancelled(self) -> None:
        """Forget cancelled timers once they are most: resetting a far timer often must not pile up."""
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].message is not None]
            heapify(self._timers)
            self._cancelled = 0

    def _ring(self) -> None:
        now = self._now()
        while self._timers and (self._timers[0][0] <= now or self._timers[0][2].message is None):
            timer = heappop(self._timers)[2]
            if timer.message is None:
                self._cancelled -= 1
            else:
                self._file(timer.message)
                timer.message = None

    def _sort(self) -> None:
        file, get = self._file, self._incoming.get_nowait
        try:
            for _ in range(self._incoming.qsize()):
                file(get())
        except Empty:  # drained under our hands
            pass

    def _file(self, message: Any) -> None:
        self._said_empty = False
        if type(message) is Exit:
            self._exits.append(message)
        elif self._priority is None:
            self._ready.append(message)
        else:
            self._rank(message).append(message)

    def _rank(self, message: Any) -> deque[Any]:
        if type(message) is Traced:
            message = message.message
        if type(message) is Info:
            message = message.message
        elif type(message) is Call:
            message = message.request
        elif type(message) in (Letter, ProxyRequest):
            return self._ready
        rank = self._priority(message)  # type: ignore[misc]  # not None: _file asked
        lane = self._ranked.get(rank)
        if lane is None:
            lane = self._ranked[rank] = deque()
            self._lanes = (self._exits, *(self._ranked[rank] for rank in sorted(self._ranked, reverse=True)))
        return lane

    def _park(self) -> Any:
        while (message := self.take()) is PARK:
            wait = max(0, self._timers[0][0] - self._now()) / 1e9 if self._timers else None
            try:
                self._file(self._incoming.get(timeout=wait))
            except Empty:
                pass
        return message

    # -- for Pykka

    def put(self, envelope: Any, /) -> None:
        """Take mail of Pykka's tell, ask, stop and proxies; all but a stop becomes mail of ours.

        So an exception in any of it ends the actor, and whoever waits for an answer is told at once.
        """
        message, future = envelope.message, envelope.reply_to
        if type(message).__module__ == _PYKKA and not isinstance(message, _PROXIES):  # its private stop message
            self.send(Letter(message, future))
            return
        sender = None if future is None else FutureFrom(future, self)
        if isinstance(message, _PROXIES):
            self.send(ProxyRequest(message, sender))
        else:
            self.send(message if sender is None else Call(message, sender))

    def get(self) -> Letter:
        """Wait for the next message."""
        if (held := self._held) is not None:
            self._held = None
            return held
        message = self._park()
        return message if type(message) is Letter else Letter(message)

    def empty(self) -> bool:
        """Pykka asks after the owner's end."""
        if self._held is not None:
            self._lose(self._held, None)
        self.drain()
        return True


