"""Refusing publishes to a full queue: x-overflow reject-publish and reject-publish-dlx.

The queue's length counts when a message comes, and ready messages only: a full queue refuses a message even if a consumer
could take it.  A publish of many messages is cut where the next does not fit; the messages let in until then are
delivered first.  Each message then gets its own confirm or nack.

Source: rabbit_amqqueue_process (will_overflow, send_reject_publish); docs/reference/classic-queue.md#publish-path
and #t13.
"""

from __future__ import annotations

from collections.abc import Iterator

from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.errors import Nacked
from warrenmq.message.stored import encode
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.effects import DeadLetter, Effect, GrantCredit, Refuse
from warrenmq.queue.limits import Limits, fitting
from warrenmq.queue.messages import Publish
from warrenmq.queue.trace import QueueTrace
from warrenmq.queue.unconfirmed import Promise
from warrenmq.queue.x_death import MAXLEN

FULL = "the queue has reached its length limit"


class QueueOverflow:
    """Admits publishes to a queue as far as they fit.

    _unanswered   promises of the publish that is being let in, latest message first
    """

    def __init__(self, arguments: QueueArguments, vq: BackingQueue, rows: QueueTrace | None,
                 effects: list[Effect]) -> None:  # fmt: skip
        self._limits = Limits(arguments.max_length, arguments.max_length_bytes)
        self._vq = vq
        self._dead_letters = arguments.overflow == "reject-publish-dlx"
        self._rows = rows
        self._effects = effects
        self._unanswered: list[Promise] = []

    @classmethod
    def of(cls, arguments: QueueArguments, vq: BackingQueue, rows: QueueTrace | None,
           effects: list[Effect]) -> QueueOverflow | None:  # fmt: skip
        """The overflow of a queue with these arguments; None if the queue refuses nothing."""
        limited = (arguments.max_length, arguments.max_length_bytes) != (None, None)
        return cls(arguments, vq, rows, effects) if limited and arguments.overflow != "drop-head" else None

    def admit(self, message: Publish) -> Iterator[Publish]:
        """Yield the parts of a publish that are admitted; the rest is nacked.

        The caller takes a part in, and delivers, before it asks for the next.
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
                    self._unanswered.pop()  # the part carries it from here on
                    yield Publish(
                        message.publication.one(place), answers[place], message.publisher, sender, sent_seq, message.sent_t
                    )  # fmt: skip
                    sender = sent_seq = 0  # the first row is the receive of the SEND
                at += count
            else:
                if self._dead_letters:
                    self._effects.append(DeadLetter([encode(message.publication.head, bodies[at])], MAXLEN))
                self._effects.append(Refuse(self._unanswered.pop(), Nacked(FULL)))
                self._effects.append(GrantCredit(message.publisher, 1))
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
