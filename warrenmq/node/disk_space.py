"""Decisions on free disk space (rabbit_disk_monitor).

Source: docs/reference/classic-queue.md#disk-alarm.
"""

from __future__ import annotations

DEFAULT_MIN_DISK_CHECK_INTERVAL = 100
DEFAULT_MAX_DISK_CHECK_INTERVAL = 10_000
FAST_RATE = 250_000
"""Bytes a millisecond that the disk is thought to fill at: 250 MB/s."""
FAILURE_RETRIES = 10
"""Looks at a disk that does not say how much room it has, before it is not looked at any more ..."""
FAILURE_RETRY_INTERVAL = 120_000
"""... and the milliseconds between them (disk_monitor_failure_retries and _interval)."""


def disk_limit(limit: float, total_memory: int) -> int:
    """disk_free_limit in bytes (rabbit_disk_monitor:interpret_limit).

    | limit             | total memory | in bytes             |
    | ----------------- | ------------ | -------------------- |
    | 50,000,000        | any          | 50,000,000           |
    | 1.5 (a multiple)  | 1,000        | 1,500, to the nearest byte |
    | 0                 | any          | 0: the alarm is never set  |
    """
    return round(limit * total_memory) if isinstance(limit, float) else limit


def is_disk_short(free: int, limit: int) -> bool:
    """True if the alarm is due: there is less room than the limit; exactly the limit is enough."""
    return free < limit


def check_interval(free: int, limit: int, *, alarmed: bool) -> int:
    """Milliseconds until the next look: twice as often as a fast writer needs to fill the disk up to the limit.

    | alarmed | free - limit | ms                                        |
    | ------- | ------------ | ----------------------------------------- |
    | yes     | any          | 10,000                                    |
    | no      | 0            | 100: never more often                     |
    | no      | 12.5 MB      | 100                                       |
    | no      | 100 MB       | 800 (2 * 100 MB / 250 kB, cut off)        |
    | no      | 1.25 GB      | 10,000                                    |
    | no      | 1 TB         | 10,000: never less often                  |
    """
    if alarmed:
        return DEFAULT_MAX_DISK_CHECK_INTERVAL
    ideal = 2 * (free - limit) // FAST_RATE
    return max(DEFAULT_MIN_DISK_CHECK_INTERVAL, min(DEFAULT_MAX_DISK_CHECK_INTERVAL, ideal))
