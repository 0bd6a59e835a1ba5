"""The limits of a queue, as functions: max-length, max-length-bytes and time to live.

Pure decisions of rabbit_amqqueue_process (over_max_length, will_overflow, drop_expired_msgs, ensure_ttl_timer);
docs/reference/classic-queue.md#publish-path and #arguments-and-limits.  Only ready messages count, and of these the
bytes of their bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from warrenmq.message.queue_message import Message, body_size, expiry_of

SOONER = 1_000
"""Microseconds by which a head has to expire sooner for the timer to be set anew."""


class Limits(NamedTuple):
    """The most that may be ready; None = no limit."""

    length: int | None
    size: int | None


def surplus(limits: Limits, ready: int, ready_bytes: int, front: Iterable[int]) -> int:
    """The number of messages at the front above the limit; `front` has the sizes of those that leave first.

    ========  =====  ==============  ====================================
    limits    ready  sizes           too many
    ========  =====  ==============  ====================================
    none      9      any             0
    length 2  3      any             1
    length 0  3      any             3
    size 5    3      1, 2, 3         1
    size 5    3      1, 2, 9         3: the last one alone is too large
    size 0    2      0, 0            0
    length 2  3      1, 2, 3         the larger of both
    size 3
    ========  =====  ==============  ====================================

    It may be more than `front` has: the caller asks again when those are dropped.
    """
    too_many = 0 if limits.length is None else max(0, ready - limits.length)
    if limits.size is not None and ready_bytes > limits.size:
        excess, count = ready_bytes - limits.size, 0
        for size in front:
            if excess <= 0:
                break
            excess -= size
            count += 1
        too_many = max(too_many, count)
    return too_many


def fitting(limits: Limits, ready: int, ready_bytes: int, sizes: Iterable[int]) -> int:
    """The number of new messages, of these sizes, that fit before the first that does not (reject-publish).

    ========  ==================  =========  ====
    limits    ready (bytes)       sizes      fit
    ========  ==================  =========  ====
    none      9 (90)              1, 1       2
    length 2  1 (1)               1, 1       1
    length 1  1 (1)               1          0
    size 5    1 (3)               2, 1       1
    size 5    1 (3)               3, 1       0
    ========  ==================  =========  ====
    """
    count = 0
    for size in sizes:
        ready_bytes += size
        if limits.length is not None and ready + count + 1 > limits.length:
            break
        if limits.size is not None and ready_bytes > limits.size:
            break
        count += 1
    return count


def expired(front: Iterable[Message], now: int) -> int:
    """The number of messages at the front that have expired; a message behind one that has not waits
    (microseconds since 1970).
    """
    return sum(1 for _ in takewhile(lambda message: _is_over(message, now), front))


def fresh(front: Iterable[Message], now: int) -> int:
    """The number of messages at the front that have not expired."""
    return sum(1 for _ in takewhile(lambda message: not _is_over(message, now), front))


def _is_over(message: Message, now: int) -> bool:
    return 0 < expiry_of(message) <= now


def sizes_of(front: Iterable[Message]) -> Iterable[int]:
    """The bytes of the messages' bodies."""
    return map(body_size, front)


def expiries(ttl: int | None, expirations: Sequence[int | None], now: int) -> list[int]:
    """The expiries of messages that arrive now: by the smaller of the queue's and their own time
    (milliseconds); 0 = never.
    """
    found = []
    for own in expirations:
        time = ttl if own is None else own if ttl is None else min(ttl, own)
        found.append(0 if time is None else now + time * 1_000)
    return found


def timer_delay(expiry: int, now: int, running: int | None) -> int | None:
    """The delay of a timer for the head, in milliseconds, rounded up; None if the running timer will do.

    =========  =======  ====================
    expires    timer    then
    =========  =======  ====================
    never      any      None
    in 1.5 ms  none     2
    long ago   none     0
    in 5 ms    in 9 ms  5
    in 8 ms    in 9 ms  None: 1 ms is no gain
    in 9 ms    in 5 ms  None
    =========  =======  ====================
    """
    if not expiry or (running is not None and expiry + SOONER >= running):
        return None
    return max(0, expiry - now + 999) // 1_000
