"""A blocked connection: its socket is not read, received bytes are kept, its client is notified, and
heartbeats are not expected (rabbit_reader:control_throttle, maybe_block, maybe_unblock).  throttle.py decides
when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warrenmq.amqp.connection.throttle import Notice, Throttle
from warrenmq.amqp.net.heartbeat import Heartbeater
from warrenmq.amqp.net.transport import Transport
from warrenmq.trace.events import AlarmBlocked, AlarmUnblocked
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

CALLS_ONLY = "warrenmq.calls_only"
"""The capability of a client, on the directory's own socket, whose content is calls alone (channel/rpc.py):
no alarm stops it, as what clears an alarm may be such a call, or an ack of the same connection.
"""
_write_blocked, _write_unblocked = writer(AlarmBlocked), writer(AlarmUnblocked)


class Blocking:
    """The blocking of one connection.

    `tell(notice, reason)` sends connection.blocked or unblocked; `take(data)` handles bytes, and whatever it
    held back when it was blocked.
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
        """The trace has a row that an alarm blocks the connection (channels write rows of their own for credit)."""
        self._throttle = Throttle()
        self._kept: list[bytes] = []
        self.heartbeater: Heartbeater | None = None
        """Set once heartbeats are agreed on."""
        self.calls_only = False
        """The client said so."""

    @property
    def blocked(self) -> bool:
        """True while the socket is not read."""
        return self._throttle.blocked

    @property
    def waits_for_credit(self) -> bool:
        """True while the socket is not read, and no alarm is among the reasons."""
        return self._throttle.blocked and not self._throttle.alarms

    def received(self, data: bytes) -> None:
        """Handle received bytes, or keep them while blocked."""
        if self._throttle.blocked:
            self._kept.append(data)
        else:
            self._take(data)

    def content_received(self) -> None:
        """A content header or body has come."""
        if self.calls_only or not self._throttle.reasons:
            return
        self._after(self._throttle.content_received())

    def set(self, reason: str, stands: bool) -> None:
        """Add or remove one reason."""
        was = self._throttle.blocked
        self._after(self._throttle.set(reason, stands))
        if was and not self._throttle.blocked:
            self._go_on()

    def set_all(self, reasons: Iterable[str], in_force: Iterable[str]) -> None:
        """Set several reasons at once: those in `in_force` hold, the others do not."""
        in_force = list(in_force)
        for reason in reasons:
            self.set(reason, reason in in_force)

    def give_up(self) -> None:
        """The connection is closing: read from now on, and ignore what comes."""
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
                (_write_blocked if waits else _write_unblocked)(self._trace)

    def _go_on(self) -> None:
        if self.heartbeater is not None:
            self.heartbeater.resume()
        self._transport.resume_reading()
        kept, self._kept = self._kept, []
        for data in [b"", *kept]:  # the first one for what was held up in the middle of a read
            self.received(data)
