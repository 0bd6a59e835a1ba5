"""The steps of wide scripts with queues that end by themselves: an exclusive one with its connection, an
auto-delete one with its consumer.
"""

from __future__ import annotations

from warrenmq.errors import Nacked, NotFound, ResourceLocked, Returned
from warrenmq.simulate.messages import PromiseBroken
from warrenmq.simulate.publishing import PATIENCE, Publishing
from warrenmq.simulate.receiving import SOON, Receiving
from warrenmq.simulate.script import Step
from warrenmq.simulate.script import step as a_step
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import AUTO_DELETE, EXCLUSIVE

_GONE = 5.0
"""Seconds within which such a queue is deleted."""


class Lifetimes:
    """Declares these queues, uses them and sees them go."""

    def __init__(self, session: Session, publishing: Publishing, receiving: Receiving) -> None:
        self._session = session
        self._publishing = publishing
        self._receiving = receiving

    def own(self, step: Step) -> None:
        """Declare an exclusive queue over AMQP, use it there, and perhaps end the connection, with which it goes."""
        session = self._session
        if session.faults.may_refuse or (client := session.client()) is None:
            return
        client.declare(EXCLUSIVE, durable=False, arguments={}, exclusive=True)
        self._check_locked()
        sent = self._publish(EXCLUSIVE, step)
        came: list[bytes] = []
        while (delivery := client.get(EXCLUSIVE, no_ack=True)) is not None:
            came.append(delivery.body)
        if came != sent and not session.may_nack:
            raise PromiseBroken("exclusive", f"an exclusive queue was sent {sent}, and delivered {came}")
        if (how := step.word("how")) == "keep":
            return
        self._publish(EXCLUSIVE, step)
        self._receiving.hang_up(a_step("hang_up", how=how))
        self._check_gone(EXCLUSIVE)

    def _check_locked(self) -> None:
        broker = self._session.broker
        for use in (broker.queue, broker.declare_queue):
            try:
                use(EXCLUSIVE)
            except ResourceLocked:
                continue
            raise PromiseBroken(
                "exclusive", "a queue that is exclusive to a connection was open to the application"
            )

    def brief(self, step: Step) -> None:
        """Declare an auto-delete queue, and consume from it; it goes with the consumer."""
        session = self._session
        if session.faults.may_block:
            return
        queue = session.broker.declare_queue(AUTO_DELETE, auto_delete=True)
        queue.purge()
        sent = self._publish(AUTO_DELETE, step)
        acks, prefetch = step.number("ack"), step.number("prefetch")
        wanted = sent if acks else sent[:prefetch]
        came: list[bytes] = []
        with queue.consume(prefetch=prefetch) as consumer:

            def patience() -> float:  # the disk may be slow
                return PATIENCE if len(came) < len(wanted) and not session.may_nack else SOON

            while (delivery := consumer.get(timeout=patience())) is not None:
                came.append(delivery.body)
                if acks:
                    delivery.ack()
        if came != wanted and not session.may_nack:
            raise PromiseBroken(
                "auto-delete",
                f"an auto-delete queue was sent {len(sent)} messages, and delivered {len(came)} "
                f"where {len(wanted)} were wanted, or others",
            )
        self._check_gone(AUTO_DELETE)

    def _publish(self, queue: str, step: Step) -> list[bytes]:
        session = self._session
        bodies = [each.body for each in session.messages(step.number("count"), step.number("size"))]
        self._publishing.wait_for(session.broker.publish_many("", queue, bodies))
        return bodies

    def _check_gone(self, queue: str) -> None:
        session = self._session
        deadline = session.now() + _GONE
        while self._is_routed_to(queue):
            if session.now() > deadline:
                raise PromiseBroken(
                    "not deleted", f"queue {queue} is there, though nobody can use it any more"
                )
            session.machine.sleep(SOON)
        if self._is_there(queue):
            raise PromiseBroken(
                "not deleted", f"queue {queue} is there, though nothing is routed to it any more"
            )

    def _is_routed_to(self, queue: str) -> bool:
        confirm = self._session.broker.publish("", queue, b"to a queue that may be gone", mandatory=True)
        try:
            confirm.result(timeout=PATIENCE)
        except Returned:
            return False
        except Nacked:  # it was just being deleted
            return True
        return True

    def _is_there(self, queue: str) -> bool:
        try:
            self._session.broker.queue(queue)
        except NotFound:
            return False
        except ResourceLocked:
            return True
        return True
