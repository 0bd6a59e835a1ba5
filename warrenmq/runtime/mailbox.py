"""Mailbox: the inbox of a Server, with priorities and timers (gen_server2's drained priority queue).

Purpose.  Pykka asks three things of an inbox, `put`, `get` and `empty`, and calls `get` from the actor's own
thread when it has nothing to do.  That is enough to build Erlang's receive loop on Pykka's: `get` parks the
actor, knows the timers, and says DRY once before it parks, which is `receive ... after 0`.

Senders only append to a channel (a C queue under threads: 24 ns, where queue.Queue takes 466); sorting by
priority is the owner's work as it drains: FIFO inside a priority, exit signals before everything.

Assumption.  Only the owner adds to the lanes; after the end any drain may take from them.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from queue import Empty
from typing import TYPE_CHECKING, Any

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from warrenmq.runtime.calls import FutureFrom
from warrenmq.runtime.inbox import CLOSED, Inbox, Letter
from warrenmq.runtime.messages import Call, Down, Exit, Info, ProxyRequest, Traced
from warrenmq.runtime.mortal import ALIVE, log
from warrenmq.trace.events import Ev

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.runtime.base import Runtime
    from warrenmq.runtime.fence import Fence
    from warrenmq.trace.recorder import ActorTrace


class Dry:
    """The mailbox has run dry: said once before the owner is parked."""


DRY = Dry()
PARK = Letter(None)
"""Nothing to do, and DRY has been said: back to Pykka's loop, which will `get`."""

_SIGNALS = frozenset({Dry, Info, Down, Exit, Call, ProxyRequest})
_PROXIES = (ProxyCall, ProxyGetAttr, ProxySetAttr)
_COMPACT_FROM = 64


class Timer:
    """A message to oneself, due later."""

    __slots__ = ("_mailbox", "info")

    def __init__(self, message: Any, mailbox: Mailbox) -> None:
        self.info: Info | None = Info(message)
        """None once it has come or was cancelled."""
        self._mailbox = mailbox

    def cancel(self) -> None:
        """No message will come; by the owner only.  Nothing happens if it has come already."""
        if self.info is not None:
            self.info = None
            self._mailbox.timer_cancelled()


class Mailbox(Inbox):
    """One server's mail and its timers."""

    def __init__(
        self,
        runtime: Runtime,
        fence: Fence,
        priority: Callable[[Any], int] | None,
        undelivered: Callable[[Any], None] | None,
    ) -> None:
        super().__init__(runtime, fence)
        self._now = runtime.monotonic_ns
        self._undelivered = undelivered
        self._priority = priority
        self._exits: deque[Any] = deque()
        self._ready: deque[Any] = deque()
        self._ranked = {0: self._ready}
        self._lanes: tuple[deque[Any], ...] = (self._exits, self._ready)
        self._timers: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._held: Letter | None = None
        self._said_dry = False

    def length(self) -> int:
        return self._incoming.qsize() + sum(map(len, self._lanes))

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
        if self._said_dry:
            return PARK
        self._said_dry = True
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
        if self._cancelled > max(_COMPACT_FROM, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if entry[2].info is not None]
            heapify(self._timers)
            self._cancelled = 0

    def _ring(self) -> None:
        now = self._now()
        while self._timers and (self._timers[0][0] <= now or self._timers[0][2].info is None):
            timer = heappop(self._timers)[2]
            if timer.info is None:
                self._cancelled -= 1
            else:
                self._file(timer.info)
                timer.info = None

    def _sort(self) -> None:
        file, get = self._file, self._incoming.get_nowait
        try:
            for _ in range(self._incoming.qsize()):
                file(get())
        except Empty:  # drained under our hands
            pass

    def _file(self, message: Any) -> None:
        self._said_dry = False
        if type(message) is Exit:
            self._exits.append(message)
        elif self._priority is None:
            self._ready.append(message)
        else:
            self._lane(self._priority, message).append(message)

    def _lane(self, priority: Callable[[Any], int], message: Any) -> deque[Any]:
        if type(message) is Traced:
            message = message.message
        if type(message) is Info:
            message = message.message
        elif type(message) is Call:
            message = message.request
        elif type(message) in (Letter, ProxyRequest):  # Pykka's, of which a server's priority knows nothing
            return self._ready
        rank = priority(message)
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

    # -- after the end

    def _leftovers(self) -> list[Any]:
        found: list[Any] = []
        for lane in self._lanes:
            try:
                while True:
                    found.append(lane.popleft())
            except IndexError:
                pass
        return found + super()._leftovers()

    def _lose(self, message: Any, trace: ActorTrace | None) -> None:
        if type(message) is Traced:
            if trace is not None:
                trace.emit(Ev.UNDELIVERED, self.runtime.kind(message.message), 0, message.peer, message.pseq)
            message = message.message
        if type(message) is Letter:
            if message.reply_to is not None:
                message.reply_to.set(None)  # of a stop: it has what it wants
        elif type(message) not in _SIGNALS and self._undelivered is not None:
            try:
                self._undelivered(message)
            except Exception:
                log.exception("undelivered failed", message_class=type(message).__name__)

    # -- for Pykka

    def put(self, envelope: Any, /) -> None:
        """Make mail of ours of all that Pykka sends but a stop.

        So an exception in any of it ends the actor, and whoever waits for an answer is told at once.
        """
        message, future = envelope.message, envelope.reply_to
        if isinstance(message, _PROXIES):
            self.send(ProxyRequest(message, None if future is None else FutureFrom(future, self)))
        elif type(message).__module__ == ProxyCall.__module__:  # the stop message, which has a private name
            self.send(Letter(message, future))
        else:
            self.send(message if future is None else Call(message, FutureFrom(future, self)))

    def get(self) -> Any:
        if (held := self._held) is not None:
            self._held = None
            return held
        message = self._park()
        return message if type(message) is Letter else Letter(message)

    def empty(self) -> bool:
        if self._held is not None:
            self._lose(self._held, None)
        return super().empty()
