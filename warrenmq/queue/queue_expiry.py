"""x-expires: deleting a queue that was unused for a time (rabbit_amqqueue_process:ensure_expiry_timer, maybe_expire).

A queue with consumers counts as used.  Without any, the time begins anew with basic.get, a declare (a passive one, too),
basic.cancel, and the end of a channel that had consumers or held messages; a publish changes nothing.  A timer that
finds consumers is not set again before the last of them has gone.
"""

from __future__ import annotations

from warrenmq.queue.consumers import QueueConsumers
from warrenmq.queue.effects import CancelTimer, DeleteUnused, Effect, StartTimer
from warrenmq.queue.messages import MaybeExpire


class QueueExpiry:
    """The timer of a queue with x-expires."""

    def __init__(self, milliseconds: int | None, consumers: QueueConsumers, effects: list[Effect]) -> None:
        """`milliseconds`: None = the queue does not expire."""
        self._milliseconds = milliseconds
        self._consumers = consumers
        self._effects = effects

    @property
    def runs(self) -> bool:
        """True if the queue expires."""
        return self._milliseconds is not None

    def renew(self) -> None:
        """The queue was used: start the timer anew."""
        if self._milliseconds is not None and not self._consumers.count:
            self._effects.append(StartTimer(self._milliseconds / 1_000, MaybeExpire()))

    def set(self, milliseconds: int | None) -> None:
        """Go by another time from now on; the time begins anew."""
        if milliseconds == self._milliseconds:
            return
        self._milliseconds = milliseconds
        if milliseconds is None:
            self._effects.append(CancelTimer(MaybeExpire))
        else:
            self.renew()

    def timer_came(self) -> None:
        """MaybeExpire came."""
        if not self._consumers.count:
            self._effects.append(DeleteUnused())
