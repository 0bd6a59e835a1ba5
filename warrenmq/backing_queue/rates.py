"""The rates at which messages enter and leave a queue: moving averages (the record `rates` of rabbit_variable_queue).

Four flows are counted: messages in (published or requeued), out (fetched), delivered with an ack to come (ack in), and
acked (ack out).  Their rates are exponential moving averages with a half-life of 5 s, computed anew before they are used when
more than 100 messages came in or went out, or 5 s have passed (docs/reference/classic-queue.md#paging).

No clock here: callers pass the time.
"""

from __future__ import annotations

import math

HALF_LIFE = 5.0
"""Seconds (RATE_AVG_HALF_LIFE)."""
MESSAGES_PER_CALCULATION = 100
"""MSGS_PER_RATE_CALC."""
MOST_AHEAD = 2_048
"""Messages that are read from the tail at most, and kept at the head of an unread queue."""
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


def memory_limit(egress: float) -> int:
    """The largest number of messages in the head of a queue that reads ahead (M): as many as its consumers
    take in two seconds.

    | messages out a second | M     |
    | --------------------- | ----- |
    | 0                     | 1     |
    | 0.4                   | 1     |
    | 10                    | 21    |
    | 1,024 and more        | 2,048 |
    """
    return int(min(1 + 2 * egress, MOST_AHEAD))


class Rates:
    """Messages a second of one queue, and what its owner has counted since they were computed last.

    arrived      published, or requeued                ingress
    left         fetched                               egress
    delivered    those of them that wait for an ack    ack_ingress
    acked        no longer waited for                  ack_egress

    most_ahead   how many messages a head may have that is as long as consumers are fast (M, `memory_limit`)
    """

    __slots__ = (
        "_since", "ack_egress", "ack_ingress", "acked", "arrived", "delivered", "egress", "ingress", "left",
        "most_ahead",
    )  # fmt: skip

    def __init__(self, now: int) -> None:
        """`now` is in nanoseconds, as everywhere here."""
        self.ingress = self.egress = self.ack_ingress = self.ack_egress = 0.0
        self.arrived = self.left = self.delivered = self.acked = 0
        self.most_ahead = memory_limit(0.0)
        self._since = now

    @property
    def total(self) -> float:
        """The sum of all four: the messages that pass in a second."""
        return self.ingress + self.egress + self.ack_ingress + self.ack_egress

    @property
    def acks_grow_faster(self) -> bool:
        """True if unacked messages pile up faster than ready ones."""
        return self.ack_ingress - self.ack_egress > self.ingress - self.egress

    @property
    def anything_counted(self) -> bool:
        """True if messages moved since the rates were computed last."""
        return self.arrived + self.left + self.acked > 0

    def maybe_update(self, now: int) -> None:
        """Compute the rates when it is time to."""
        if self.arrived + self.left > MESSAGES_PER_CALCULATION or now - self._since >= LONGEST:
            self.update(now)

    def update(self, now: int) -> None:
        """Compute the rates; nothing happens while no time has passed."""
        seconds = (now - self._since) / 1e9
        if seconds <= 0:
            return
        self.ingress = moving_average(seconds, self.arrived / seconds, self.ingress)
        self.egress = moving_average(seconds, self.left / seconds, self.egress)
        self.ack_ingress = moving_average(seconds, self.delivered / seconds, self.ack_ingress)
        self.ack_egress = moving_average(seconds, self.acked / seconds, self.ack_egress)
        self.most_ahead = memory_limit(self.egress)
        self.arrived = self.left = self.delivered = self.acked = 0
        self._since = now
