"""Retries: a message that could not be dealt with comes to its queue again later, so often and at such times
as a policy says.

    jobs.retry_policy(max_attempts=5, backoff=exponential(1, longest=60), dead_letter="failed")
    for delivery in jobs.consume():
        try:
            work(delivery.body)
        except Exception:
            delivery.retry()        # again after 1, 2, 4, 8 s; then it goes to the queue "failed"
        else:
            delivery.ack()

The copy that comes again waits as every delayed message does (routing/delayed.py), and keeps exchange,
routing key and properties.  How often it failed is counted where RabbitMQ counts deaths, in the header
x-death, under this queue and the reason rejected.  The original is acked when the copy is safe: a crash in
between makes the message come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, cast

from warrenmq.broker.arguments import name as name_of
from warrenmq.broker.message_options import seconds_of
from warrenmq.checks import is_a, number_of_seconds, whole, wrong_type, wrong_value
from warrenmq.errors import ArgumentValueError
from warrenmq.queue.x_death import REJECTED, X_DEATH

Backoff: TypeAlias = float | timedelta | Sequence[float | timedelta] | Callable[[int], float | timedelta]
"""Seconds until the next attempt: always the same, one after the other (the last one for all others), or what a function
says of the number of attempts so far."""
MOST_ATTEMPTS = 1_000_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of a queue: the number of attempts, the delays between them, and the dead-letter exchange."""

    max_attempts: int
    """Deliveries, the first one included."""
    backoff: Backoff
    dead_letter_exchange: str | None
    """None = it is rejected: the queue's x-dead-letter-exchange gets it, if it has one."""
    dead_letter_routing_key: str | None
    """None = its own."""

    @classmethod
    def of(cls, max_attempts: object, backoff: object, dead_letter: object, *, exchange: bool) -> RetryPolicy:
        """Check a policy's arguments; `exchange`: `dead_letter` is an exchange, not a queue."""
        most = whole("max_attempts", max_attempts, 1, MOST_ATTEMPTS)
        to = None if dead_letter is None else name_of("dead_letter", dead_letter)
        if to is None:
            target: tuple[str | None, str | None] = None, None
        else:
            target = (to, None) if exchange else ("", to)
        return cls(most, _checked(backoff), *target)

    def seconds_after(self, attempt: int) -> float:
        """Seconds until the next attempt, after this many."""
        chosen: Any = self.backoff
        if is_a(chosen, (list, tuple)):
            chosen = chosen[min(attempt, len(chosen)) - 1]
        elif callable(chosen):
            chosen = chosen(attempt)
        return seconds_of("backoff", chosen)


def exponential(
    first: float = 1.0, *, factor: float = 2.0, longest: float = 3_600.0
) -> Callable[[int], float]:
    """A backoff of `first` seconds, then `factor` times as long each time, `longest` at the most."""
    begin, top = seconds_of("first", first), seconds_of("longest", longest)
    grows = number_of_seconds("factor", factor)
    if grows is None or not 1 <= grows <= 1_000:
        raise wrong_value("factor", factor, "a number from 1 to 1000")

    def seconds(attempt: int) -> float:
        delay = begin
        for _ in range(attempt - 1):
            if delay >= top or not delay:
                break
            delay *= grows
        return min(delay, top)

    return seconds


def _checked(backoff: Any) -> Backoff:
    """A backoff of Python's own types, or the application's function."""
    if is_a(backoff, (list, tuple)):
        kind: Any = list if is_a(backoff, list) else tuple
        chosen = kind.__getitem__(backoff, slice(None))
        if not chosen:
            raise ArgumentValueError("backoff is an empty list; give at least one delay")
        return [seconds_of("backoff", each) for each in chosen]
    if callable(backoff) and not is_a(backoff, (int, float, str, bytes, timedelta)):
        return cast("Backoff", backoff)
    if backoff is None or is_a(backoff, (str, bytes)):
        raise wrong_type(
            "backoff",
            backoff,
            "seconds, a timedelta, a list of them, or a function of the number of attempts",
        )
    return seconds_of("backoff", backoff)


def attempts(headers: Any, queue: str) -> int:
    """Count this queue's deliveries of a message from its x-death header: one more than its rejections."""
    deaths = (headers or {}).get(X_DEATH)
    for death in deaths if isinstance(deaths, list) else ():
        if isinstance(death, dict) and (death.get("queue"), death.get("reason")) == (queue, REJECTED):
            count = death.get("count")
            return 1 + (count if type(count) is int and count > 0 else 0)
    return 1
