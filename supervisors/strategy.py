"""Strategies: which children share a fate, and how many restarts are too many (OTP's supervisor)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one", "simple_one_for_one"]
STRATEGIES = get_args(Strategy)

C = TypeVar("C")


def check_strategy(strategy: str, intensity: int, period: float) -> None:
    """Refuse what cannot work, before any child is started."""
    if strategy not in STRATEGIES:
        msg = f"strategy is {strategy!r}, but must be one of {', '.join(STRATEGIES)}"
        raise ValueError(msg)
    if intensity < 0 or period <= 0:
        msg = f"intensity is {intensity!r} in period {period!r} s, but must be 0 or more, in more than 0 s"
        raise ValueError(msg)


def affected(strategy: Strategy, children: Sequence[C], fallen: C) -> Sequence[C]:
    """The children, in order of start, that are stopped and started again when one has fallen.

    | strategy           | of a, b, c, when b has fallen |
    | ------------------ | ----------------------------- |
    | one_for_one        | b                             |
    | one_for_all        | a, b, c                       |
    | rest_for_one       | b, c                          |
    | simple_one_for_one | b                             |
    """
    if strategy == "one_for_all":
        return children
    if strategy == "rest_for_one":
        return children[children.index(fallen) :]
    return [fallen]


class Intensity:
    """At most `limit` restarts in any `period_ns`: RabbitMQ's and OTP's rule."""

    def __init__(self, limit: int, period_ns: int) -> None:
        self.limit = limit
        self.period_ns = period_ns
        self._times: deque[int] = deque()

    def restart(self, now: int) -> int:
        """Count a restart; how many there are within the period, this one included."""
        self._times.append(now)
        while self._times[0] < now - self.period_ns:
            self._times.popleft()
        return len(self._times)
