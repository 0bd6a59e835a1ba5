"""Checks that queues delivered in the order of publishing, as far as a log of the tracing plugin shows.

AMQP 0-9-1 promises (section 4.7 of its specification): what is published in one channel, and passes one exchange, one queue
and one consuming channel, arrives in that order.  So the first deliveries of two messages are compared when all that
is equal, and their priority.  A younger one that comes first is

    violated        if that channel is the only one that this queue delivered to, and both are known for sure: by their
                    message_id, or by their content in a queue that had nothing in it when the log began
    indeterminate   otherwise: the elder one may have been sent to a channel that ended before it told the log, and was
                    requeued, which the log does not say

and so is a queue of which the log cannot say enough, for one of UNDECIDED's reasons.  A queue is `ok` when every delivery
was compared and none came too early.  Damage in a log makes violations indeterminate, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from warrenmq.rabbit_logs.lifecycles import BY_CONTENT, BY_ORDER, Lifecycle, Step

VIOLATED, INDETERMINATE, OK = "violated", "indeterminate", "ok"
EXAMPLES = 5
CHANNELS = 100_000
"""Pairs of channels that are remembered."""
UNDECIDED = {
    "unpublished": "their publish is not in the log",
    "dead-lettered": "they were dead-lettered on their way",
    "alike": "other messages have the same content, so which is which cannot be told",
    "redelivered": "they were delivered again, and the log has no acks, requeues or redelivered flags",
    "overtaken": "younger ones of another channel, exchange or priority, or to another channel, were delivered before them",
    "never delivered": "they were not delivered though younger ones were: expired, dropped, purged, or lost",
    "stream": "consumers of a stream begin where they like",
    "forgotten channels": "too many channels at a time to remember them all",
}

Pair = tuple[str, str, int, int, str, int]
"""Exchange, publishing connection and channel, priority, consuming connection and channel."""


@dataclass(frozen=True, slots=True)
class Inversion:
    """A younger message was delivered before an elder one."""

    elder: Lifecycle
    younger: Lifecycle

    @property
    def text(self) -> str:
        return (
            f"{_named(self.younger)} was delivered at {self.younger.delivered_t} before {_named(self.elder)} at "
            f"{self.elder.delivered_t}, published after it in channel {self.elder.published_channel} of "
            f"{self.elder.published_connection} (microseconds since 1970)"
        )


@dataclass(slots=True)
class QueueOrder:
    """The verdict on the deliveries of one queue."""

    compared: int = 0
    undecided: Counter[str] = field(default_factory=Counter)
    inversions: Counter[str] = field(default_factory=Counter)
    """Inversions in one pair of channels, by how the elder message was matched."""
    examples: list[Inversion] = field(default_factory=list)
    newest: int = 0
    """Number of the youngest publish that was delivered."""
    newest_of: dict[Pair, Lifecycle] = field(default_factory=dict)
    """The youngest that was delivered, by channels; the order is that of their last deliveries."""
    consumer: tuple[str, int] | None = None
    consumers: int = 0
    """1 = `consumer` was the only one, 2 = there were more."""

    def verdict(self, *, damaged: bool) -> str:
        if self.inversions and not damaged and self.consumers == 1:
            certain = self.inversions.total()
            if self.undecided["unpublished"] or self.undecided["stream"]:
                certain -= self.inversions[BY_CONTENT]
            if certain:
                return VIOLATED
        if self.inversions or self.undecided.total() or not self.compared:
            return INDETERMINATE
        return OK

    def went_to(self, consumer: tuple[str, int]) -> None:
        """A delivery, to this connection and channel."""
        if self.consumer != consumer:
            self.consumer = consumer
            self.consumers = min(self.consumers + 1, 2)

    def delivered(self, life: Lifecycle) -> None:
        """The first delivery of a message whose publish is in the log."""
        if (reason := _incomparable(life)) is not None:
            self.undecided[reason] += 1
            return
        self.compared += 1
        pair = (
            life.exchange, life.published_connection, life.published_channel, life.priority,
            life.delivered_connection, life.delivered_channel,
        )  # fmt: skip
        before = self.newest_of.pop(pair, None)
        if before is not None and before.number > life.number:
            self.inversions[life.matched] += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(Inversion(life, before))
            self.newest_of[pair] = before
        else:
            if life.number < self.newest:
                self.undecided["overtaken"] += 1
            self.newest_of[pair] = life
        if len(self.newest_of) > CHANNELS:
            del self.newest_of[next(iter(self.newest_of))]
            self.undecided["forgotten channels"] += 1
        self.newest = max(self.newest, life.number)


def _incomparable(life: Lifecycle) -> str | None:
    if life.from_stream:
        return "stream"
    if life.dead_lettered:
        return "dead-lettered"
    return "alike" if life.matched == BY_ORDER else None


def _named(life: Lifecycle) -> str:
    told = f"message {life.message_id!r}" if life.message_id is not None else "a message"
    return f"{told} of {life.size} bytes"


class OrderCheck:
    """Checks the order of messages for all queues of a log."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, str], QueueOrder] = {}

    def take(self, step: Step, life: Lifecycle, channel: tuple[str, int]) -> None:
        """One step of a life, in a connection and channel."""
        if life.queue is None:
            return
        queue = self._queue(life)
        if step in {Step.DELIVERED, Step.REDELIVERED, Step.SURFACED}:
            queue.went_to(channel)
        match step:
            case Step.DELIVERED | Step.EXPLAINED:
                if step is Step.EXPLAINED:
                    queue.undecided["unpublished"] -= 1
                queue.delivered(life)
            case Step.REDELIVERED:
                queue.undecided["stream" if life.from_stream else "redelivered"] += 1
            case Step.SURFACED:
                queue.undecided["dead-lettered" if life.dead_lettered else "unpublished"] += 1

    def over(self, life: Lifecycle) -> None:
        """A life has ended."""
        if life.queue is not None and life.delivered_t is None:
            queue = self._queue(life)
            if life.number < queue.newest:
                queue.undecided["never delivered"] += 1

    def _queue(self, life: Lifecycle) -> QueueOrder:
        assert life.queue is not None
        return self.queues.setdefault((life.vhost, life.queue), QueueOrder())
