"""A connection that is held up: its socket is not read, what has come is kept, its client is told, and the client's silence
means nothing (rabbit_reader:control_throttle, maybe_block, maybe_unblock).  When, is in throttle.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.amqp.connection.throttle import Throttle
from warrenmq.trace.events import Ev

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warrenmq.amqp.connection.throttle import Notice
    from warrenmq.amqp.net.heartbeat import Heartbeater
    from warrenmq.amqp.net.transport import Transport
    from warrenmq.trace.recorder import ActorTrace


class Blocking:
    """Of one connection.

    `tell(notice, reason)` sends connection.blocked or unblocked; `take(data)` handles bytes, and whatever it held back when it was blocked.
    """

    def __init__(
        self, transport: Transport, tell: Callable[[Notice, str], None], take: Callable[[bytes], None],
        trace: ActorTrace | None,
    ) -> None:  # fmt: skip
        self._transport = transport
        self._tell = tell
        self._take = take
        self._trace = trace
        self._waits = False
        """The trace was told that an alarm holds the connection up; that channels have no credit, they say themselves."""
        self._throttle = Throttle()
        self._kept: list[bytes] = []
        self.heartbeater: Heartbeater | None = None
        """Set once heartbeats are agreed on."""

    @property
    def blocked(self) -> bool:
        """Whether the socket is not read."""
        return self._throttle.blocked

    def received(self, data: bytes) -> None:
        """Take bytes, or keep them for later."""
        if self._throttle.blocked:
            self._kept.append(data)
        else:
            self._take(data)

    def content_received(self) -> None:
        """A content header or body has come."""
        self._after(self._throttle.content_received())

    def set(self, reason: str, stands: bool) -> None:
        """A reason came or went."""
        was = self._throttle.blocked
        self._after(self._throttle.set(reason, stands))
        if was and not self._throttle.blocked:
            self._go_on()

    def set_all(self, reasons: Iterable[str], standing: Iterable[str]) -> None:
        """Some reasons at once, those in `standing` stand."""
        standing = list(standing)
        for reason in reasons:
            self.set(reason, reason in standing)

    def give_up(self) -> None:
        """The connection is closing: everything is read from now on, to be ignored."""
        was, self._throttle = self._throttle.blocked, Throttle()
        self._tell_trace()
        if was:
            self._go_on()

    def _after(self, notice: Notice | None) -> None:
        if self._throttle.blocked:
            self._transport.pause_reading()
            if self.heartbeater is not None:
                self.heartbeater.pause()
        self._tell_trace()
        if notice is not None:
            self._tell(notice, self._throttle.reason_text)

    def _tell_trace(self) -> None:
        waits = self._throttle.blocked and bool(self._throttle.alarms)
        if waits is not self._waits:
            self._waits = waits
            if self._trace is not None:
                self._trace.emit(Ev.ALARM_BLOCKED if waits else Ev.ALARM_UNBLOCKED)

    def _go_on(self) -> None:
        if self.heartbeater is not None:
            self.heartbeater.resume()
        self._transport.resume_reading()
        kept, self._kept = self._kept, []
        for data in [b"", *kept]:  # the first one for what was held up in the middle of a read
            self.received(data)
