"""RankedMailbox: a mailbox whose owner ranks its mail (gen_server2's drained priority queue).

All that has arrived is sorted before each message is taken: the highest rank first, FIFO inside a rank.

Assumption.  Only the owner adds to the lanes; after the end any drain may take from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty
from typing import Any

from warrenmq.runtime.closable import ALIVE
from warrenmq.runtime.fence import Fence
from warrenmq.runtime.inbox import CLOSED, NO_MAIL, WAKE, Letter
from warrenmq.runtime.mailbox import DRY, PARK, Mailbox
from warrenmq.runtime.messages import Call, Info, ProxyRequest, Traced, unwrapped
from warrenmq.runtime.system import System

_WRAPPERS = frozenset({Traced, Info, Call})


class RankedMailbox(Mailbox):
    """The mailbox of a server with `ranks`."""

    def __init__(
        self,
        runtime: System,
        fence: Fence,
        undelivered: Callable[[Any], None] | None,
        ranks: Mapping[type, int],
        *,
        flushes: bool,
    ) -> None:
        super().__init__(runtime, fence, undelivered, flushes=flushes)
        self._ranks = ranks
        self._by_rank: dict[int, deque[Any]] = {}
        self._lanes: tuple[deque[Any], ...] = ()
        self._lane_of: dict[type, deque[Any]] = {}
        """The lanes of the classes of which mail has come."""
        self._first: deque[Any] = deque()
        """The mail that woke the owner, until `take` sorts it in with what came after it."""

    def length(self) -> int:
        return super().length() + len(self._first) + sum(map(len, self._lanes))

    def has_mail(self) -> bool:
        return super().has_mail() or bool(self._first) or any(self._lanes)

    def take(self) -> Any:
        if self.reason is not ALIVE:
            return CLOSED
        if (timers := self._timers) and (timers[0][0] <= self._now() or timers[0][2].info is None):
            self._ring()
        incoming, first = self.incoming, self._first
        try:
            if first or not incoming.empty():
                lane_of = self._lane_of.get
                for _ in range(len(first) + incoming.qsize()):
                    message = first.popleft() if first else incoming.get_nowait()
                    if (lane := lane_of(type(message))) is None:
                        self._file(message)
                    else:
                        self._said_dry = False
                        lane.append(message)
            if self._exits:
                return self._exits.popleft()
            for lane in self._lanes:
                if lane:
                    return lane.popleft()
        except NO_MAIL:  # drained under our hands
            return CLOSED
        if self._said_dry:
            return PARK
        self._said_dry = True
        return DRY

    def _file(self, message: Any) -> None:
        self._said_dry = False
        kind = type(message)
        if kind in _WRAPPERS:
            kind = type(unwrapped(message))
        if (lane := self._lane_of.get(kind)) is None:
            lane = self._lane_of[kind] = self._lane(self._ranks.get(kind, 0))
        lane.append(message)

    def _lane(self, rank: int) -> deque[Any]:
        if (lane := self._by_rank.get(rank)) is None:
            lane = self._by_rank[rank] = deque()
            self._lanes = tuple(self._by_rank[each] for each in sorted(self._by_rank, reverse=True))
        return lane

    def get(self) -> Any:
        """Wait for mail, and leave it to be taken by our own loop, in its order."""
        if self.held is None and self.reason is ALIVE and self.incoming.empty() and not self._exits:
            timers = self._timers
            try:
                self._first.append(
                    self.incoming.get(timeout=max(0, timers[0][0] - self._now()) / 1e9 if timers else None)
                )
            except Empty:
                pass  # time for a timer
        held, self.held = self.held, None
        return WAKE if held is None else held

    def _leftovers(self) -> list[Any]:
        found: list[Any] = []
        for lane in (*self._lanes, self._first):
            try:
                while True:
                    found.append(lane.popleft())
            except IndexError:
                pass
        return found + super()._leftovers()


class PriorityMailbox(RankedMailbox):
    """The mailbox of a server with a `priority` of its own, which may look at more than a message's class."""

    def __init__(
        self,
        runtime: System,
        fence: Fence,
        undelivered: Callable[[Any], None] | None,
        priority: Callable[[Any], int],
        *,
        flushes: bool,
    ) -> None:
        super().__init__(runtime, fence, undelivered, {}, flushes=flushes)
        self._priority = priority
        self._raised: Exception | None = None
        """The exception of `priority`, perhaps raised while the owner was parked: `take` raises it in the
        owner's loop, as a handler would.
        """

    def take(self) -> Any:
        taken = super().take()
        if self._raised is None:
            return taken
        if not isinstance(taken, Letter):
            self._lane(0).appendleft(taken)  # undelivered, as all the rest
        raise self._raised

    def _file(self, message: Any) -> None:
        self._said_dry = False
        told = unwrapped(message)
        rank = 0
        if not isinstance(told, (Letter, ProxyRequest)):
            try:
                rank = self._priority(told)
            except Exception as error:  # noqa: BLE001  # any is the server's end
                self._raised = error
        self._lane(rank).append(message)
