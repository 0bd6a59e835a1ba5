"""How long a queue may be unused: x-expires (rabbit_amqqueue_process:ensure_expiry_timer, maybe_expire).

Used is who has consumers.  Without any, the time begins anew with basic.get, a declare (a passive one, too),
basic.cancel, and the end of a channel that had consumers or held messages; a publish changes nothing.  A timer that
finds consumers is not set again before the last of them has gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.queue.messages import MaybeExpire

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.runtime import Server, Timer


class QueueLease:
    """The timer of one queue; it belongs to the queue process."""

    def __init__(self, process: Server, milliseconds: int | None, consumers: Callable[[], int],
                 expired: Callable[[], object]) -> None:  # fmt: skip
        """`milliseconds`: None = as long as it likes; `expired` has the queue deleted."""
        self._process = process
        self._milliseconds = milliseconds
        self._consumers = consumers
        self._expired = expired
        self._timer: Timer | None = None
        self.renew()

    def renew(self) -> None:
        """Somebody used the queue."""
        if self._milliseconds is None or self._consumers():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._process.send_after(self._milliseconds / 1_000, MaybeExpire())

    def timer_came(self) -> None:
        """MaybeExpire came."""
        self._timer = None
        if not self._consumers():
            self._expired()
