"""Mailbox: the inbox of a Server, with timers and exit signals; with priorities, RankedMailbox.

Purpose.  Pykka asks three things of an inbox, `put`, `get` and `empty`, and calls `get` from the actor's own
thread when it has nothing to do.  That is enough to build Erlang's receive loop on Pykka's: `get` parks the
actor, knows the timers, and says DRY once before it parks, which is `receive ... after 0`.

Senders only append to a channel (a C queue under threads: 24 ns, where queue.Queue takes 466).  Exit signals
go beside it, so that they are first in line; a timer's message joins the end of the line when it is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from queue import Empty
from typing import Any

from warrenmq.checks import LONGEST_WAIT
from warrenmq.runtime.calls import FutureFrom
from warrenmq.runtime.closable import ALIVE, log
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.inbox import CLOSED, NO_MAIL, PROXIES, WAKE, Inbox, Letter, is_stop, sign
from warrenmq.runtime.messages import Call, Down, Exit, Info, ProxyRequest, Traced
from warrenmq.runtime.reasons import Killed
from warrenmq.runtime.system import System
from warrenmq.trace.events import Undelivered
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_undelivered = writer(Undelivered)


DRY = sign()
"""Returned once by `take` when there is no mail, before the owner is parked."""
PARK = sign()
"""Returned by `take` after DRY, while there is no mail: back to Pykka's loop, which will `get`."""

_SIGNALS = frozenset({Info, Down, Exit, Call, ProxyRequest})
_COMPACT_FROM = 64


class Timer:
    """A message to oneself, due later."""

    __slots__ = ("_mailbox", "info")

    def __init__(self, message: Any, mailbox: Mailbox) -> None:
        self.info: Info | None = Info(message)
        """None once it has come or was cancelled."""
        self._mailbox = mailbox

    def cancel(self) -> None:
        """Cancel the timer; only its owner may.  Does nothing if its message has come already."""
        if self.info is not None:
            self.info = None
            self._mailbox.timer_cancelled()


class Mailbox(Inbox):
    """One server's mail and its timers."""

    def __init__(
        self, runtime: System, fence: Fence, undelivered: Callable[[Any], None] | None, *, flushes: bool
    ) -> None:
        """`flushes`: its owner has something to do when it is empty."""
        super().__init__(runtime, fence, runtime.mail())
        self._flushes = flushes
        self._now = runtime.monotonic_ns
        self._undelivered = undelivered
        self._exits: deque[Exit] = deque()
        # From here on, the owner's alone.
        self._timers: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self.held: Letter | None = None
        """A letter for Pykka's next `get`."""
        self._said_dry = False

    # -- for everyone

    def signal(self, signal: Exit) -> None:
        """Send an exit signal; it is taken before all mail."""
        if self.reason is ALIVE or not self._is_over():
            self._exits.append(signal)
            self.incoming.put(WAKE)

    # -- for the owner

    def take(self) -> Any:
        """The next message; DRY, once, when there is none; then PARK."""
        if self.reason is not ALIVE:
            return CLOSED
        if (timers := self._timers) and (timers[0][0] <= self._now() or timers[0][2].info is None):
            self._ring()
        if self._exits:
            return self._exits.popleft()
        if not self.incoming.empty():
            self._said_dry = False
            try:
                return self.incoming.get_nowait()
            except NO_MAIL:  # drained under our hands
                return CLOSED
        if self._said_dry:
            return PARK
        self._said_dry = True
        return DRY

    def send_after(self, seconds: float, message: Any) -> Timer:
        """Schedule an Info to arrive after `seconds`; equal times keep their order."""
        timer = Timer(message, self)
        if seconds > LONGEST_WAIT:  # the wait for mail ends with it, and has a limit of its own
            seconds = LONGEST_WAIT
        elif seconds < 0:
            seconds = 0.0
        heappush(self._timers, (self._now() + round(seconds * 1e9), self._tick(), timer))
        return timer

    def has_mail(self) -> bool:
        """True if `take` would return something else than PARK, timers aside."""
        return bool(self._exits or (self._flushes and not self._said_dry) or not self.incoming.empty())

    @property
    def has_signals(self) -> bool:
        """True if an exit signal waits."""
        return bool(self._exits)

    def next_timer(self) -> int | None:
        """The time at which `take` has to be called for the next timer (monotonic, ns)."""
        return self._timers[0][0] if self._timers else None

    def timer_cancelled(self) -> None:
        """Drop cancelled timers once they are the majority, so that a timer that is often reset does not pile up."""
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
                self.incoming.put(timer.info)
                timer.info = None

    # -- after the end

    def _lose(self, message: Any, trace: ActorTrace | None) -> None:
        if type(message) is Traced:
            if trace is not None:
                _write_undelivered(trace, self.runtime.kind(message.message), message.pseq, message.peer)
            message = message.message
        if type(message) is Letter:
            if message.reply_to is not None:
                message.reply_to.set(None)  # of a stop: it has what it wants
        elif type(message) not in _SIGNALS and self._undelivered is not None:
            try:
                try:
                    self._undelivered(message)
                except MemoryError:  # what was published waits for its answer
                    self._undelivered(message)
            except (Exception, Killed):  # noqa: BLE001 - the hook's trouble must not keep others from their mail
                log.exception("undelivered failed", message_class=type(message).__name__)

    # -- for Pykka

    def put(self, envelope: Any, /) -> None:
        """Make mail of ours of all that Pykka sends but a stop.

        So an exception in any of it ends the actor, and the caller that waits for an answer gets it at once.
        """
        message, future = envelope.message, envelope.reply_to
        if isinstance(message, PROXIES):
            self.send(ProxyRequest(message, None if future is None else FutureFrom(future, self)))
        elif is_stop(message):
            self.send(Letter(message, future))
        else:
            self.send(message if future is None else Call(message, FutureFrom(future, self)))

    def get(self) -> Any:
        if (held := self.held) is not None:
            self.held = None
            return held
        while (message := self.take()) is PARK:
            try:
                timers = self._timers
                message = self.incoming.get(
                    timeout=max(0, timers[0][0] - self._now()) / 1e9 if timers else None
                )
            except Empty:
                continue  # time for a timer
            self._said_dry = False
            break
        return message if type(message) is Letter else Letter(message)

    def empty(self) -> bool:
        if self.held is not None:
            self._lose(self.held, None)
        return super().empty()
