"""How fast messages enter and leave a queue: moving averages (the record `rates` of rabbit_variable_queue).

Four flows are counted: messages in (published or requeued), out (fetched), delivered with an ack to come (ack in), and
acked (ack out).  Their rates are exponential moving averages with a half-life of 5 s, computed anew whenever more than
100 messages came in or went out, or 5 s have passed (docs/reference/classic-queue.md#paging).

Nothing here knows the time: whoever asks says what it is.
"""

from __future__ import annotations

import math

HALF_LIFE = 5.0
"""Seconds (RATE_AVG_HALF_LIFE)."""
MESSAGES_PER_CALCULATION = 100
"""MSGS_PER_RATE_CALC."""
LONGEST = 5_000_000_000
"""Nanoseconds between two calculations, as long as anything is counted."""


def moving_average(seconds: float, latest: float, current: float) -> float:
    """`current`, after `seconds` in which the rate was `latest` (rabbit_misc:moving_average).

    | seconds | latest | current | average |
    | ------- | ------ | ------- | ------- |
    | 0       | any    | 8       | 8       |
    | 5       | 0      | 8       | 4       |
    | 5       | 8      | 0       | 4       |
    | 10      | 0      | 8       | 2       |
    | forever | 8      | any     | 8       |
    """
    weight = math.exp(-seconds * math.log(2) / HALF_LIFE)
    return latest * (1 - weight) + current * weight


class Rates:
    """Messages a second of one queue, and what was counted since they were computed last."""

    __slots__ = (
        "_ack_in",
        "_ack_out",
        "_in",
        "_out",
        "_since",
        "ack_egress",
        "ack_ingress",
        "egress",
        "ingress",
    )

    def __init__(self, now: int) -> None:
        """`now` is in nanoseconds, as everywhere here."""
        self.ingress = self.egress = self.ack_ingress = self.ack_egress = 0.0
        self._in = self._out = self._ack_in = self._ack_out = 0
        self._since = now

    @property
    def total(self) -> float:
        """All four together: what memory for a second of this queue's life is measured by."""
        return self.ingress + self.egress + self.ack_ingress + self.ack_egress

    @property
    def acks_grow_faster(self) -> bool:
        """Whether unacked messages pile up faster than ready ones."""
        return self.ack_ingress - self.ack_egress > self.ingress - self.egress

    @property
    def anything_counted(self) -> bool:
        """Whether messages moved since the rates were computed last."""
        return self._in + self._out + self._ack_out > 0

    def arrived(self, count: int) -> None:
        """Messages were published, or came back."""
        self._in += count

    def left(self, count: int, *, ack_required: bool) -> None:
        """Messages were fetched."""
        self._out += count
        if ack_required:
            self._ack_in += count

    def acked(self, count: int) -> None:
        """Messages are no longer waited for."""
        self._ack_out += count

    def maybe_update(self, now: int) -> None:
        """Compute the rates when it is time to."""
        if self._in + self._out > MESSAGES_PER_CALCULATION or now - self._since >= LONGEST:
            self.update(now)

    def update(self, now: int) -> None:
        """Compute the rates; nothing happens while no time has passed."""
        seconds = (now - self._since) / 1e9
        if seconds <= 0:
            return
        self.ingress = moving_average(seconds, self._in / seconds, self.ingress)
        self.egress = moving_average(seconds, self._out / seconds, self.egress)
        self.ack_ingress = moving_average(seconds, self._ack_in / seconds, self.ack_ingress)
        self.ack_egress = moving_average(seconds, self._ack_out / seconds, self.ack_egress)
        self._in = self._out = self._ack_in = self._ack_out = 0
        self._since = now
