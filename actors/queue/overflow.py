"""Who gets into a queue that refuses what is too much: x-overflow reject-publish and reject-publish-dlx.

The queue's length counts when a message comes, and ready messages only: a full queue refuses a message even if a consumer
could take it.  A publish of many messages is cut where the next does not fit; what was let in until then may go
to consumers first.  Every message gets its own answer then.

Source: rabbit_amqqueue_process (will_overflow, send_reject_publish); docs/reference/classic-queue.md#publish-path
and #t13.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from warrenmq.actors.queue.dead_letter import MAXLEN
from warrenmq.message.stored import encode
from warrenmq.queue.limits import Limits, fitting
from warrenmq.queue.messages import Publish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warrenmq.actors.queue.dead_letter import DeadLetters
    from warrenmq.actors.queue.trace import QueueTrace
    from warrenmq.backing_queue.protocol import BackingQueue
    from warrenmq.queue.arguments import QueueArguments
    from warrenmq.queue.unconfirmed import Promise

FULL = "the queue has reached its length limit"


class QueueOverflow:
    """The doorkeeper of one queue; it belongs to the queue process."""

    def __init__(
        self, arguments: QueueArguments, vq: BackingQueue, letters: DeadLetters, rows: QueueTrace | None
    ) -> None:
        self._limits = Limits(arguments.max_length, arguments.max_length_bytes)
        self._vq = vq
        self._letters = letters if arguments.overflow == "reject-publish-dlx" else None
        self._rows = rows
        self._unanswered: list[Promise] = []
        """Of the publish that is being let in, latest message first."""

    @classmethod
    def of(cls, arguments: QueueArguments, vq: BackingQueue, letters: DeadLetters,
           rows: QueueTrace | None) -> QueueOverflow | None:  # fmt: skip
        """None for a queue that takes everything."""
        limited = (arguments.max_length, arguments.max_length_bytes) != (None, None)
        return cls(arguments, vq, letters, rows) if limited and arguments.overflow != "drop-head" else None

    def admit(self, message: Publish) -> Iterator[Publish]:
        """The parts of a publish that get in, one after the other; the rest is nacked.

        Whoever walks this lets a part in, and delivers, before asking for the next.
        """
        bodies = message.publication.bodies
        if self._fitting(message, 0) == len(bodies):
            yield message
            return
        answers = message.confirm.parts(len(bodies))
        self._unanswered = [*reversed(answers)]
        sender, sent_seq = message.sender, message.sent_seq
        at = 0
        while at < len(bodies):
            if count := self._fitting(message, at):
                for place in range(at, at + count):
                    publication = replace(
                        message.publication,
                        first_id=message.publication.first_id + place,
                        bodies=bodies[place : place + 1],
                    )
                    self._unanswered.pop()  # whoever has the part owes it
                    yield Publish(
                        publication, answers[place], message.publisher, sender, sent_seq, message.sent_t
                    )
                    sender = sent_seq = 0  # the first row is the receive of the SEND
                at += count
            else:
                if self._letters is not None:
                    self._letters.copy(encode(message.publication.head, bodies[at]), MAXLEN)
                self._unanswered.pop().nack(FULL)
                message.publisher.bump(1)
                at += 1
        if sent_seq and self._rows is not None:
            self._rows.received(sender, sent_seq)

    def nack_all(self, why: str) -> None:
        """The queue process is dead."""
        for promise in self._unanswered:
            promise.nack(why)

    def _fitting(self, message: Publish, at: int) -> int:
        vq = self._vq
        return fitting(self._limits, vq.ready, vq.ready_bytes or 0, map(len, message.publication.bodies[at:]))
