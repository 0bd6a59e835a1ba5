"""Release of delayed messages: each is published when due, and acked once its target queues have confirmed it.

    publish         the time is now + x-delay, or what the publisher says; stored with the message, so it goes on while the
                    broker is down
    DropExpired     the timer of the earliest time: messages whose time has come are released, WINDOW of them at most
                    until the queues that they go to have answered
    Answered        every queue that a message went to has it safe: it is acked here; or a queue refused it, or died: it
                    is released again after RETRY seconds, to that queue

So a confirmed message is in one place or in two, never in none: a crash between the release and its ack makes
it arrive twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from warrenmq.backing_queue.delayed import DelayedQueue
from warrenmq.message.queue_message import Publication
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.drops import QueueDrops
from warrenmq.queue.effects import Effect, Release, StartTimer
from warrenmq.queue.expiry_and_limits import ExpiryAndLimits
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.limits import timer_delay
from warrenmq.queue.messages import DropExpired
from warrenmq.queue.setting import QueueSetting

WINDOW = 1_024
"""Messages that are released and not answered yet."""
MOST_RELEASED_AT_ONCE = 64
"""Messages that are read together."""
RETRY = 1.0
"""Seconds until a message is released again that a queue did not take."""
LOOK_AGAIN = 30.0
"""The most seconds of a timer: the wall clock may be set, or go on while the machine sleeps."""


class Delays(ExpiryAndLimits):
    """Releases due messages.

    released     sequence id of a message on its way -> the time at which it was first found due
    is_stopping  the broker is being closed: nothing more is released
    """

    def __init__(self, queue: QueueSetting, vq: DelayedQueue, drops: QueueDrops, index_sync: IndexSync,
                 effects: list[Effect]) -> None:  # fmt: skip
        without_limits = replace(queue, arguments=QueueArguments(), found_expiring=True)
        super().__init__(without_limits, vq, drops, index_sync, effects)
        self._delayed = vq
        self._delay_of = queue.delay_of
        self.ttl = 0  # every message has a time
        self.released: dict[int, int] = {}
        self._due_before: dict[int, int] = {}
        """The same of messages that wait to be sent once more: the clock may be set back meanwhile, and they
        are due all the same.
        """
        self.is_stopping = False

    def expiries(self, publications: Sequence[Publication]) -> list[int]:
        """The due times of messages that arrive now."""
        now = self._now()
        return [each.due or now + self._delay_of(each) * 1_000 for each in publications]

    def trim(self) -> None:
        """Release due messages, and start the timer of the next."""
        if not self.is_stopping:
            super().trim()

    def _trim(self, now: int) -> None:
        released = self.released
        while (room := WINDOW - len(released)) > 0 and (
            due := self._delayed.fetch_due(now, min(room, MOST_RELEASED_AT_ONCE))
        ):
            released.update((each.seq_id, self._due_before.pop(each.seq_id, now)) for each in due)
            self._effects.append(Release(due))
        if self._delayed.lost:
            self._drops.note_lost()
        if len(released) < WINDOW and (next_due := self._delayed.next_due) is not None:
            self._wait_for(next_due, now)

    def answered(self, done: Collection[int], failed: Collection[int]) -> None:
        """Handle confirms: ack the `done` messages; `failed` ones were not confirmed by some queue, and are retried later."""
        found_due: dict[int, list[int]] = {}
        for seq in done:
            if (time := self.released.pop(seq, None)) is not None:
                found_due.setdefault(time, []).append(seq)
        for time, seqs in found_due.items():
            self._drops.release(seqs, time)
        for seq in failed:
            if (time := self.released.pop(seq, None)) is not None:
                self._due_before[seq] = time
        if failed:
            self._delayed.postpone(failed, self._now() + round(RETRY * 1_000_000))
        self.trim()

    def _wait_for(self, due: int, now: int) -> None:
        delay = timer_delay(due, now, self._timer)
        if delay is not None:
            seconds = min(delay / 1_000, LOOK_AGAIN)
            self._effects.append(StartTimer(seconds, DropExpired()))
            self._timer = min(due, now + round(LOOK_AGAIN * 1_000_000))
