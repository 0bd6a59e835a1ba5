"""The steps of a script that take deliveries and settle them."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.broker.delivery import Delivery
from warrenmq.simulate.amqp_client import AmqpClient, AmqpDelivery
from warrenmq.simulate.messages import PromiseBroken
from warrenmq.simulate.script import Step
from warrenmq.simulate.session import Held, Session
from warrenmq.simulate.topology import TTL_MS

SOON, AT_LAST = 0.1, 10.0
"""Seconds that a consumer waits for one more message: when there may be none, and when there must be one."""
_TTL_MARGIN = 2.0
"""Seconds after their time within which such messages may still come: a slow disk holds up the queue, or the answer."""


class Receiving:
    """Takes deliveries, compares each with its queue's model, and settles them."""

    def __init__(self, session: Session, look: Callable[[], None]) -> None:
        """`look` tells the models of the confirms that have come."""
        self._session = session
        self._look = look
        self._acked: list[tuple[Held, AmqpClient, int]] = []
        """Deliveries that were acked over AMQP, the client, and how many of its methods had been answered then."""

    # -- steps

    def get(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        queue = session.queue(name)
        model = session.models[name]
        model.asked()
        delivery: Delivery | AmqpDelivery | None
        if step.word("via") == "amqp":
            if (client := session.client()) is None:
                return
            delivery = client.get(name)
        else:
            delivery = queue.get()
        self._look()
        if delivery is not None:
            self.take_delivery(name, delivery)
            return
        model.nothing_came()
        if model.has_ttl and not session.faults.clock_jumped and not session.faults.ever_refused:
            model.expired_too_soon(session.now() - TTL_MS / 1000)

    def consume(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        queue, model = session.queue(name), session.models[name]
        prefetch = step.number("prefetch")
        if step.word("via") == "amqp":
            if (client := session.client()) is not None:
                queue.info()
                model.asked()
                self._consume_over_amqp(client, name, step)
            return
        queue.info()  # consumers are served before an earlier nack is handled: the order of mail in RabbitMQ
        model.asked()
        with queue.consume(prefetch=prefetch) as consumer:
            self._consume(name, step, lambda seconds: consumer.get(timeout=seconds), consumer)
        session.was_consumed(name)

    def _consume_over_amqp(self, client: AmqpClient, name: str, step: Step) -> None:
        """`consume` over AMQP; what the channel has got when the consumer is cancelled stays on the channel, held."""
        consumer = client.subscribe(name, step.number("prefetch"))
        unacked = self._consume(name, step, client.next)
        client.cancel(consumer)
        while (delivery := client.next()) is not None:
            self.take_delivery(name, delivery)
            unacked += 1
            self._check_prefetch(name, step, unacked)

    def _consume(
        self,
        name: str,
        step: Step,
        receive: Callable[[float], Delivery | AmqpDelivery | None],
        by: object = None,
    ) -> int:
        """Take deliveries and ack some; returns how many are left unacked.  `receive(seconds)` waits so long for one."""
        unacked, model, faults = 0, self._session.models[name], self._session.faults
        for number in range(1, step.number("count") + 1):
            delivery = receive(SOON)
            has_room = unacked < step.number("prefetch") and not faults.ever_refused
            if delivery is None and has_room and model.waiting():
                delivery = receive(AT_LAST)
                if delivery is None and (waiting := model.waiting()):
                    raise PromiseBroken(
                        "starved",
                        f"a consumer of queue {name} got nothing, though messages {waiting} wait there",
                    )
            self._look()
            if delivery is None:
                break
            self.take_delivery(name, delivery, by)
            unacked += 1
            self._check_prefetch(name, step, unacked)
            if number % step.number("ack") == 0:
                unacked -= 1
                self.settled(self._session.held.pop())
                delivery.ack()
        return unacked

    @staticmethod
    def _check_prefetch(name: str, step: Step, unacked: int) -> None:
        if 0 < (prefetch := step.number("prefetch")) < unacked:
            raise PromiseBroken(
                "prefetch",
                f"a consumer of queue {name} with prefetch {prefetch} was given {unacked} messages that it had not acked",
            )

    def ack(self, step: Step) -> None:
        if (held := self.picked(step)) is None:
            return
        if isinstance(held.delivery, Delivery):
            self.settled(held)
            held.delivery.ack()
            return
        multiple, tag = bool(step.number("multiple")), held.delivery.tag
        older = [
            each
            for each in self._session.held
            if multiple and isinstance(each.delivery, AmqpDelivery) and each.delivery.tag < tag
        ]
        self._session.held = [each for each in self._session.held if each not in older]
        for each in (held, *older):
            self.settled(each)
        held.delivery.ack(multiple=multiple)

    def nack(self, step: Step) -> None:
        if (held := self.picked(step)) is not None:
            self._session.requeued(held)
            held.delivery.nack()

    def reject(self, step: Step) -> None:
        if (held := self.picked(step)) is not None:
            self._session.rejected_for_good(held)
            held.delivery.reject(requeue=False)

    def hang_up(self, step: Step) -> None:
        """End the client's channel or connection: what it holds goes back to the queues."""
        session = self._session
        if session.amqp is None or session.faults.may_block:
            return
        how = step.word("how")
        if how == "socket":
            self._forget_unheard(session.amqp)
        self._acked.clear()
        session.amqp.hang_up(how)
        if how == "channel":
            session.amqp.publisher = session.next_publisher()
        else:
            session.amqp = None
        self._look()
        back = [each for each in session.held if isinstance(each.delivery, AmqpDelivery)]
        session.held = [each for each in session.held if isinstance(each.delivery, Delivery)]
        for each in back:
            session.requeued(each)
        for name in dict.fromkeys(each.queue for each in back):
            session.queue(name).info()  # behind what the channel sent when it ended

    def _forget_unheard(self, client: AmqpClient) -> None:
        """The channel ends with the socket, and what it has not handled by then is lost: acks that no answer came after."""
        for held, by, answered in self._acked:
            if by is client and answered == client.answered and held.queue in self._session.models:
                self._session.models[held.queue].may_return(held.copy)

    # -- a delivery

    def picked(self, step: Step) -> Held | None:
        """Take the held delivery that a step names out of those that are held; None if there is none."""
        held = self._session.held
        return held.pop(step.number("pick") % len(held)) if held else None

    def settled(self, held: Held) -> None:
        """A delivery is about to be acked."""
        if over_amqp := isinstance(held.delivery, AmqpDelivery):
            client = held.delivery.client
            self._acked.append((held, client, client.answered))
        self._session.models[held.queue].settled(held.copy, self._session.now(), over_amqp=over_amqp)

    def take_delivery(self, name: str, delivery: Delivery | AmqpDelivery, by: object = None) -> None:
        """Compare a delivery, which may be `by` a consumer, with the model, and hold it."""
        session = self._session
        copy = session.models[name].delivered(
            delivery.body, redelivered=delivery.redelivered, way=(delivery.exchange, delivery.routing_key)
        )
        session.models[name].check_properties(copy, delivery.properties)
        now = session.now()
        session.held.append(Held(name, copy, delivery, by))
        if session.faults.clock_jumped:
            return
        if now < copy.due_at:
            raise PromiseBroken(
                "too soon",
                f"queue {name} delivered message {copy.message.number} {copy.due_at - now:.3f} s before its delay was over",
            )
        if copy.has_ttl and copy.came_at is not None:
            age = now - copy.came_at
            if age > TTL_MS / 1000 + _TTL_MARGIN:
                raise PromiseBroken(
                    "expired",
                    f"queue {name} delivered message {copy.message.number} {age:.1f} s after it had come; messages live {TTL_MS} ms",
                )
