"""tx: what a channel publishes and settles between two commits takes effect at the commit, or not at all.

A commit delivers the messages, then applies the acks, and is answered when no queue owes a confirm any more; until then
the channel takes no other method.  It is atomic for this channel only (docs/reference/classic-queue.md#transactions).

    none ──select──► open ──commit──► committing ──all confirmed──► open, tx.commit-ok
                       ▲└─rollback─┘        └──────one refused──► 406, partial tx completion
"""

from __future__ import annotations

from typing import NamedTuple

from warrenmq.amqp.channel.publishing import ChannelPublishing, Routed
from warrenmq.amqp.channel.settling import Settling
from warrenmq.amqp.channel.unacked import Pending
from warrenmq.amqp.wire.errors import CHANNEL_ERROR, PRECONDITION_FAILED, AmqpError

_COMMIT = (90, 20)


class Group(NamedTuple):
    """Deliveries that are settled alike, in order."""

    requeue: bool | None
    """None: ack; True or False: reject with this requeue flag."""
    settled: list[Pending]


class Transaction:
    """The tx mode of one channel; it belongs to the channel process."""

    def __init__(self, publishing: ChannelPublishing, settling: Settling) -> None:
        self.selected = False
        self.committing = False
        self._publishing = publishing
        self._settling = settling
        self._messages: list[Routed] = []
        self._groups: list[Group] = []

    @property
    def uncommitted(self) -> int:
        """Messages that wait for tx.commit."""
        return sum(len(routed.bodies) for routed in self._messages)

    def select(self) -> None:
        """tx.select; AmqpError 406 in confirm mode."""
        if self._publishing.confirms.enabled:
            raise AmqpError(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        self.selected = True

    def check_idle(self) -> None:
        """Raise while a commit is under way."""
        if self.committing:
            raise AmqpError(CHANNEL_ERROR, "unexpected command while processing 'tx.commit'")

    def publish(self, routed: Routed) -> None:
        """Defer a publish to the commit."""
        self._messages.append(routed)

    def settle(self, settled: list[Pending], requeue: bool | None) -> None:
        """Defer acks and rejects to the commit."""
        if self._groups and self._groups[-1].requeue is requeue:
            self._groups[-1].settled.extend(settled)
        else:
            self._groups.append(Group(requeue, settled))

    def commit(self) -> None:
        """tx.commit; answered when `complete` says so.  AmqpError 406 without a transaction."""
        self._check_selected()
        messages, self._messages = self._messages, []
        groups, self._groups = self._groups, []
        for routed in messages:
            self._publishing.deliver_late(routed)
        for requeue, settled in groups:
            settled.sort(key=lambda pending: pending.delivery_tag)
            if requeue is None:
                self._settling.ack(settled)
            else:
                self._settling.reject(settled, requeue=requeue, prefix=False)
        self._settling.flush()
        self.committing = True

    def rollback(self) -> None:
        """tx.rollback: messages are forgotten, and what was settled is outstanding again."""
        self._check_selected()
        self._messages.clear()
        self._settling.unacked.put_back([pending for group in self._groups for pending in group.settled])
        self._groups.clear()

    def complete(self) -> bool:
        """True if a commit has come to its end; AmqpError 406 when a queue refused a part of it."""
        confirms = self._publishing.confirms
        if not self.committing or confirms.waiting:
            return False
        self.committing = False
        confirms.forget_answers()
        if confirms.take_failed():
            raise AmqpError(PRECONDITION_FAILED, "partial tx completion", *_COMMIT)
        return True

    def _check_selected(self) -> None:
        if not self.selected:
            raise AmqpError(PRECONDITION_FAILED, "channel is not transactional")
