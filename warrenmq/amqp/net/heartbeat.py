"""Heartbeats: deciding when to send one and when the peer is dead (rabbit_heartbeat).

Both sides look at a count of bytes at a fixed interval, and nothing is done for each frame:

| side     | interval    | the count is             | then                                        |
| -------- | ----------- | ------------------------ | ------------------------------------------- |
| sender   | timeout / 2 | another than at the last | nothing: other frames were heartbeat enough |
|          |             | the same                 | send a heartbeat                            |
| receiver | timeout     | another                  | nothing                                     |
|          |             | the same, once           | wait                                        |
|          |             | the same, twice          | the peer is gone                            |

So a silent peer is given up after two to three intervals.  While a connection is blocked it is not read, so its receiver
does not look: `restart` when it is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warrenmq.amqp.net.transport import Transport
from warrenmq.amqp.wire.frames import HEARTBEAT_FRAME

SENDER_LOOKS = 2
"""Looks of the sender in one timeout."""
_TIMES_SAME = 1


class SenderMonitor:
    """The sender's side: `look` at each interval."""

    def __init__(self) -> None:
        self._seen = 0

    def look(self, written: int) -> bool:
        """True if a heartbeat is due: nothing was written since the last look (`written`: bytes so far)."""
        due = written == self._seen
        self._seen = written
        return due

    def sent(self, written: int) -> None:
        """The heartbeat was sent; `written` counts it."""
        self._seen = written


class ReceiverMonitor:
    """The receiver's side: `look` at each interval."""

    def __init__(self) -> None:
        self._seen = 0
        self._same = 0

    def look(self, received: int) -> bool:
        """True if the peer is dead: nothing was received at two looks in a row (`received`: bytes so far)."""
        if received != self._seen:
            self._seen, self._same = received, 0
            return False
        self._same += 1
        return self._same > _TIMES_SAME

    def restart(self) -> None:
        """Start counting anew after the socket was not read for a while."""
        self._same = 0
        self._seen = -1


class Heartbeater:
    """Both sides of one connection, looking at their intervals.

    `after(seconds, what)` is a timer of the connection; `silent` is called when the peer is dead.
    """

    def __init__(
        self,
        timeout: int,
        transport: Transport,
        after: Callable[[float, Callable[[], None]], Any],
        silent: Callable[[], None],
    ) -> None:
        self._timeout = timeout
        self._transport = transport
        self._after = after
        self._silent = silent
        self._sender = SenderMonitor()
        self._receiver = ReceiverMonitor()
        self.received = 0
        """Bytes of the peer; the connection counts them here."""
        self.paused = False
        """While the connection is not read."""
        after(timeout / SENDER_LOOKS, self._look_at_sender)
        after(timeout, self._look_at_receiver)

    def pause(self) -> None:
        """The connection is not read: the peer's silence means nothing."""
        self.paused = True

    def resume(self) -> None:
        """The connection is read again."""
        if self.paused:
            self.paused = False
            self._receiver.restart()

    def _look_at_sender(self) -> None:
        if self._sender.look(self._transport.written):
            self._transport.write(HEARTBEAT_FRAME)
            self._sender.sent(self._transport.written)
        self._after(self._timeout / SENDER_LOOKS, self._look_at_sender)

    def _look_at_receiver(self) -> None:
        if not self.paused and self._receiver.look(self.received):
            self._silent()
        else:
            self._after(self._timeout, self._look_at_receiver)
