"""The resource alarms that are set, and the processes to notify when they clear (the #alarms{} record of rabbit_alarm).

The table is written by the rabbit_alarm process alone and read by everybody; it outlives that process as an ETS table
of another owner would, so that a crash of it neither frees the publishers nor blocks them for ever.

    clear --(the monitor finds too little)--> set --(the monitor finds enough)--> clear

Memory and disk have an alarm each.  Publishers wait while any is set, and go on when none is.  One who waits adds its
wake-up first and looks at `active` second; the clearing empties `active` first and wakes those who wait second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Literal, get_args

Source = Literal["memory", "disk"]
SOURCES: tuple[Source, ...] = get_args(Source)

_SENTENCES: dict[Source, str] = {
    "memory": "the memory alarm is set ({0.measured:,} bytes were in use, vm_memory_high_watermark allows "
              "{0.limit:,}): consume, or raise the watermark",
    "disk": "the disk alarm is set ({0.measured:,} bytes were free, disk_free_limit wants {0.limit:,}): "
            "make room, or lower the limit",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that is set, with what was measured when it was."""

    source: Source
    measured: int
    """Bytes of memory in use, or free on the disk."""
    limit: int
    since_ns: int
    """Wall clock."""

    def __str__(self) -> str:
        return _SENTENCES[self.source].format(self)


@dataclass(frozen=True, slots=True)
class BlockedPublisher:
    """A publisher that waits."""

    name: str
    """The name of the publisher's thread, or of its asyncio task."""
    exchange: str
    routing_key: str
    since_ns: int
    """Wall clock."""


def alarm_change(*, is_set: bool, due: bool) -> Literal["set", "clear"] | None:
    """The request of a monitor to rabbit_alarm after a look; by what is set, not by what it asked for the last time.

    RabbitMQ's monitors go by the latter: one that crashed while its alarm was set, and then found enough, never
    cleared it.

    | is set | due | change |
    | ------ | --- | ------ |
    | no     | no  | none   |
    | no     | yes | set    |
    | yes    | yes | none   |
    | yes    | no  | clear  |
    """
    if is_set == due:
        return None
    return "set" if due else "clear"


def in_words(active: tuple[Alarm, ...]) -> str:
    """The message of the Blocked error for a publisher that did not want to wait any longer."""
    return f"nothing was published, {'; '.join(map(str, active))}; then publish again"


class Alarms:
    """The table: see the top of this module."""

    def __init__(self) -> None:
        self.active: tuple[Alarm, ...] = ()
        """Alarms that are set; the set is replaced as a whole."""
        self._waiting: dict[int, tuple[BlockedPublisher, Callable[[], None]]] = {}
        self._tickets = count(1)
        self._lock = Lock()

    def find(self, source: Source) -> Alarm | None:
        """A source's alarm, if it is set."""
        return next((alarm for alarm in self.active if alarm.source == source), None)

    def is_set(self, source: Source) -> bool:
        """True if a source's alarm is set."""
        return self.find(source) is not None

    # -- for rabbit_alarm

    def set(self, alarm: Alarm) -> bool:
        """Set an alarm; False if that one is set already."""
        if self.is_set(alarm.source):
            return False
        self.active = (*self.active, alarm)
        return True

    def clear(self, source: Source) -> bool:
        """Clear an alarm, and let the publishers go on if it was the last; False if it was not set."""
        if not self.is_set(source):
            return False
        self.active = tuple(alarm for alarm in self.active if alarm.source != source)
        if not self.active:
            self.wake_all()
        return True

    # -- for those who wait

    def add_waiting(self, publisher: BlockedPublisher, wake: Callable[[], None]) -> int:
        """Count a publisher among the blocked ones, and have it woken; returns what to say to `remove_waiting`.

        `wake` is called in another thread, perhaps more than once, and must not wait.
        """
        with self._lock:
            ticket = next(self._tickets)
            self._waiting[ticket] = publisher, wake
        return ticket

    def remove_waiting(self, ticket: int) -> None:
        """Remove a publisher from the waiting ones."""
        with self._lock:
            del self._waiting[ticket]

    def waiting(self) -> tuple[BlockedPublisher, ...]:
        """The publishers that wait, the longest wait first."""
        with self._lock:
            return tuple(publisher for publisher, _wake in self._waiting.values())

    def wake_all(self) -> None:
        """Wake all waiting publishers: no alarm is left, or the broker is closed."""
        with self._lock:
            wakes = [wake for _publisher, wake in self._waiting.values()]
        for wake in wakes:
            wake()
