"""Decisions on memory used against the limit (vm_memory_monitor).

Source: docs/reference/classic-queue.md#memory-alarm.

Any thread may read what vm_memory_monitor measured last (`Resources.memory_use`).  rabbit_memory_monitor, which has
queues page by the ratio, asks `memory_ratio`; publishers ask nothing: the alarm notifies them.
"""

from __future__ import annotations

import math

from warrenmq.seams.memory import Memory
from warrenmq.settings import Settings

DEFAULT_MEMORY_CHECK_INTERVAL = 1000
"""Milliseconds between two looks at the memory (RabbitMQ's constant)."""


def total_memory(settings: Settings, memory: Memory) -> int:
    """total_memory_available_override_value, or what the system says (vm_memory_monitor:get_total_memory)."""
    return settings.total_memory_available_override_value or memory.total()


def memory_limit(watermark: float, total: int) -> int:
    """vm_memory_high_watermark in bytes (vm_memory_monitor:interpret_limit).

    | watermark          | total  | limit                                     |
    | ------------------ | ------ | ----------------------------------------- |
    | 0.4 (a share)      | 1,000  | 400, cut off to whole bytes               |
    | 0.0                | any    | 0: the alarm is always set                |
    | 300 (bytes)        | 1,000  | 300                                       |
    | 3,000 (bytes)      | 1,000  | 1,000: never more than there is           |
    """
    return math.trunc(watermark * total) if isinstance(watermark, float) else min(watermark, total)


def memory_ratio(used: int | None, limit: int | None) -> float:
    """Used of limit (vm_memory_monitor:get_memory_use(ratio)).

    | used    | limit   | ratio                                        |
    | ------- | ------- | -------------------------------------------- |
    | 100     | 400     | 0.25                                         |
    | any     | 0       | infinite                                     |
    | unknown | any     | 0: nothing is done about what is not known   |
    | any     | unknown | 0: not measured yet                          |
    """
    if used is None or limit is None:
        return 0.0
    return used / limit if limit else math.inf


def is_memory_short(used: int | None, limit: int) -> bool:
    """True if the alarm is due.  No hysteresis: RabbitMQ's has none.

    | used    | limit | due |
    | ------- | ----- | --- |
    | 401     | 400   | yes |
    | 400     | 400   | no  |
    | 1       | 0     | yes |
    | unknown | any   | no  |
    """
    return used is not None and used > limit
