"""RankedMailbox: a mailbox whose owner ranks its mail (gen_server2's drained priority queue).

All that has arrived is sorted before each message is taken: the highest rank first, FIFO inside a rank.

Assumption.  Only the owner adds to the lanes; after the end any drain may take from them.
"""

from __future__ import annotations

from collections import deque
from queue import Empty
from typing import TYPE_CHECKING, Any

from warrenmq.runtime.closable import ALIVE
from warrenmq.runtime.inbox import CLOSED, NO_MAIL, WAKE, Letter, Wake
from warrenmq.runtime.mailbox import DRY, PARK, Mailbox
from warrenmq.runtime.messages import Call, Info, ProxyRequest, Traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.runtime.fence import Fence
    from warrenmq.runtime.system import System


_WRAPPERS = frozenset({Traced, Info, Call, Letter, ProxyRequest, Wake})
_NOTHING = object()


def _told(message: Any) -> Any:
    """The part of a message that a server's `priority` gets; _NOTHING if it is for Pykka or for the runtime."""
    if type(message) is Traced:
        message = message.message
    if type(message) is Info:
        return message.message
    if type(message) is Call:
        return message.request
    return _NOTHING if type(message) in _WRAPPERS else message


class RankedMailbox(Mailbox):
    """`priority` is the server's; it runs in the owner, once a message."""

    def __init__(
        self,
        runtime: System,
        fence: Fence,
        undelivered: Callable[[Any], None] | None,
        priority: Callable[[Any], int],
        *,
        flushes: bool,
    ) -> None:
        super().__init__(runtime, fence, undelivered, flushes=flushes)
        self._priority = priority
        self._ordinary: deque[Any] = deque()
        self._ranked = {0: self._ordinary}
        self._lanes: tuple[deque[Any], ...] = (self._ordinary,)
        self._unsorted: deque[Any] = deque()

    def length(self) -> int:
        return super().length() + sum(map(len, self._lanes))

    def has_mail(self) -> bool:
        return super().has_mail() or bool(self._unsorted) or any(self._lanes)

    def take(self) -> Any:
        if self.reason is not ALIVE:
            return CLOSED
        if (timers := self._timers) and (timers[0][0] <= self._now() or timers[0][2].info is None):
            self._ring()
        if self._unsorted or not self.incoming.empty():
            self._sort()
        try:
            if self._exits:
                return self._exits.popleft()
            for lane in self._lanes:
                if lane:
                    return lane.popleft()
        except IndexError:  # drained under our hands
            return CLOSED
        if self._said_dry:
            return PARK
        self._said_dry = True
        return DRY

    def _park(self) -> Any:
        """Wait, but sort nothing: `priority` may raise, and then has to in our own loop."""
        if self.reason is ALIVE and self.incoming.empty() and not self._exits:
            try:
                self._unsorted.append(self.incoming.get(timeout=self._until_timer()))
            except Empty:
                pass  # time for a timer
        return WAKE

    def _sort(self) -> None:
        unsorted = self._unsorted
        try:
            for _ in range(self.incoming.qsize()):
                unsorted.append(self.incoming.get_nowait())
        except NO_MAIL:  # drained under our hands
            pass
        while unsorted:
            try:
                message = unsorted.popleft()
            except IndexError:  # again
                return
            self._file(message)

    def _file(self, message: Any) -> None:
        self._said_dry = False
        told = message
        if type(message) in _WRAPPERS:
            told = _told(message)
        if told is not _NOTHING and (rank := self._priority(told)):
            self._lane(rank).append(message)
        else:
            self._ordinary.append(message)

    def _lane(self, rank: int) -> deque[Any]:
        lane = self._ranked.get(rank)
        if lane is None:
            lane = self._ranked[rank] = deque()
            self._lanes = tuple(self._ranked[rank] for rank in sorted(self._ranked, reverse=True))
        return lane

    def _leftovers(self) -> list[Any]:
        found: list[Any] = []
        for lane in (*self._lanes, self._unsorted):
            try:
                while True:
                    found.append(lane.popleft())
            except IndexError:
                pass
        return found + super()._leftovers()
