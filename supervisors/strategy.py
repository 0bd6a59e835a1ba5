"""Strategies: which children share a fate, and how many restarts are too many (OTP's supervisor)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal, TypeVar, get_args

from warrenmq.checks import LONGEST_WAIT, exact, number_of_seconds, shown
from warrenmq.errors import ArgumentTypeError, ArgumentValueError

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one", "simple_one_for_one"]
STRATEGIES = get_args(Strategy)
AutoShutdown = Literal["never", "any_significant", "all_significant"]
AUTO_SHUTDOWNS = get_args(AutoShutdown)

LARGEST_INTENSITY = (1 << 31) - 1

C = TypeVar("C")


def check_strategy(strategy: str, intensity: int, period: float, auto_shutdown: str = "never") -> None:
    """Refuse what cannot work, before any child is started."""
    for name, value, known in (
        ("strategy", strategy, STRATEGIES), ("auto_shutdown", auto_shutdown, AUTO_SHUTDOWNS)
    ):  # fmt: skip
        if exact(value) not in known:
            raise ArgumentValueError(f"{name} is {shown(value)}, but must be one of {', '.join(known)}")
    limit, length = exact(intensity), number_of_seconds("period", period)
    if not isinstance(limit, int) or isinstance(limit, bool) or length is None:
        msg = f"intensity is {shown(intensity)} in period {shown(period)} s; give a whole number, and seconds"
        raise ArgumentTypeError(msg)
    if not 0 <= limit <= LARGEST_INTENSITY or not 0 < length <= LONGEST_WAIT:
        msg = f"intensity is {shown(intensity)} in period {shown(period)} s, but must be 0 or more, in more than 0 s, and neither huge"
        raise ArgumentValueError(msg)


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
    """The restart intensity of OTP: at most `limit` restarts in any `period_ns`."""

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
