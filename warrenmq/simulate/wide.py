"""The steps that wide scripts alone draw: more ways to look at messages, to take, settle and publish them,
and to declare a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

from warrenmq.broker.delivery import Delivery
from warrenmq.errors import PreconditionFailed
from warrenmq.message.properties import Properties
from warrenmq.simulate.amqp_client import AmqpConfirm, AmqpDelivery
from warrenmq.simulate.messages import PromiseBroken, State
from warrenmq.simulate.publishing import Publishing
from warrenmq.simulate.receiving import AT_LAST, SOON, Receiving
from warrenmq.simulate.script import Step
from warrenmq.simulate.session import Held, Later, Session
from warrenmq.simulate.topology import ARGUMENTS, DEAD_LETTERING, OTHER, TRANSIENT, TTL_MS, Route


class Wide:
    """Carries out these steps, each with its models."""

    def __init__(self, session: Session, publishing: Publishing, receiving: Receiving) -> None:
        self._session = session
        self._publishing = publishing
        self._receiving = receiving

    # -- looking and taking

    def peek(self, step: Step) -> None:
        session, name, n = self._session, step.word("queue"), step.number("n")
        queue = session.queue(name)
        model = session.models[name]
        model.asked()
        bodies = [each.body for each in queue.peek(n)]
        self._publishing.look()
        model.peeked(bodies, is_all=len(bodies) < n)

    def take(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        queue = session.queue(name)
        model = session.models[name]
        client = session.client() if step.word("via") == "amqp" else None
        if client is None and step.word("via") == "amqp":
            return
        model.asked()
        due = model.waiting()
        undo = model.giving_away()
        if step.word("how") == "get":
            delivery = queue.get(no_ack=True) if client is None else client.get(name, no_ack=True)
            undo()
            self._publishing.look()
            if delivery is None:
                model.nothing_came()
            else:
                self._taken(name, delivery)
        elif client is None:
            with queue.consume(no_ack=True) as consumer:
                self._take_all(name, due, lambda seconds: consumer.get(timeout=seconds))
        else:
            consumer_tag = client.subscribe(name, 0, no_ack=True)
            self._take_all(name, due, client.next)
            client.cancel(consumer_tag)
            while (delivery := client.next()) is not None:
                self._taken(name, delivery)

    def _take_all(
        self, name: str, due: list[int], receive: Callable[[float], Delivery | AmqpDelivery | None]
    ) -> None:
        """Take what a consumer gets until nothing comes; all messages that are due have to.  `receive(seconds)` waits so long for one."""
        session, model = self._session, self._session.models[name]

        def still_due() -> list[int]:
            copies = [model.copies[number] for number in due if number in model.copies]
            ready = [each for each in copies if each.state is State.READY and not model.length.may_drop(each)]
            return [each.message.number for each in ready]

        while True:
            delivery = receive(SOON)
            if delivery is None and still_due() and not session.faults.ever_refused:
                delivery = receive(AT_LAST)
                if delivery is None and (missing := still_due()):
                    raise PromiseBroken(
                        "starved",
                        f"a consumer of queue {name} got nothing, though messages {missing} wait there",
                    )
            if delivery is None:
                return
            self._taken(name, delivery)

    def _taken(self, name: str, delivery: Delivery | AmqpDelivery) -> None:
        session = self._session
        self._receiving.take_delivery(name, delivery)
        session.models[name].settled(session.held.pop().copy, session.now())

    # -- settling

    def settle_many(self, step: Step) -> None:
        session, how = self._session, step.word("how")
        if (last := self._receiving.picked(step)) is None:
            return
        settled = [each for each in session.held if _is_older(each, last)]
        session.held = [each for each in session.held if each not in settled]
        for each in (*settled, last):
            if how == "ack":
                self._receiving.settled(each)
            elif how == "nack":
                session.requeued(each)
            else:
                session.rejected_for_good(each)
        if how == "ack":
            last.delivery.ack(multiple=True)
        else:
            last.delivery.nack(requeue=how == "nack", multiple=True)

    def recover(self, _step: Step) -> None:
        session = self._session
        if session.amqp is None or session.faults.may_block:
            return
        back = [each for each in session.held if isinstance(each.delivery, AmqpDelivery)]
        session.held = [each for each in session.held if isinstance(each.delivery, Delivery)]
        for each in back:
            session.requeued(each)
        session.amqp.recover()

    def retry(self, step: Step) -> None:
        session = self._session
        if session.faults.may_block or (held := self._receiving.picked(step)) is None:
            return
        if not isinstance(held.delivery, Delivery):
            session.held.append(held)
            return
        seconds = step.number("ms") / 1000
        session.later.append(Later(held.copy.message, (held.queue,), session.now() + seconds))
        model = session.models[held.queue]
        model.retried(held.copy, session.now())
        session.came_back(held.queue, [model.copies[held.copy.message.number]])
        held.delivery.retry(timedelta(seconds=seconds))

    # -- publishing

    def expiring(self, step: Step) -> None:
        session = self._session
        messages = session.messages(1, step.number("size"))
        _, queues = session.destination(step.word("to"))
        if any(name in DEAD_LETTERING or session.models[name].dead_letters for name in queues):
            return  # what expires later would be dead-lettered
        with ExitStack() as stack:
            for name in queues:
                stack.enter_context(session.models[name].taking_what_expires())
            self._publishing.publish_messages(
                step.word("to"), messages,
                lambda exchange, key: session.broker.publish(
                    exchange, key, messages[0].body, timeout=session.faults.timeout, expiration=timedelta(milliseconds=TTL_MS)
                ),
            )  # fmt: skip
        for name in queues:
            if (copy := session.models[name].copies.get(messages[0].number)) is not None:
                copy.has_ttl = True

    def copied(self, step: Step) -> None:
        session, to, cc = self._session, step.word("to"), step.word("cc")
        for name in (to, cc):
            session.queue(name)
        messages = session.messages(1, step.number("size"))
        messages[0].headers = {"CC": [cc]}
        properties = Properties(headers=messages[0].headers)
        self._publishing.publish_messages(
            to, messages,
            lambda exchange, key: session.broker.publish(
                exchange, key, messages[0].body, timeout=session.faults.timeout, properties=properties
            ),
            Route("", to, tuple(dict.fromkeys((to, cc)))),
        )  # fmt: skip

    def channel_tx(self, step: Step) -> None:
        session, name, faults = self._session, step.word("queue"), self._session.faults
        (exchange, key, _), queues = session.destination(step.word("to"))
        session.queue(name)
        # a channel whose commit is refused in part is closed
        is_refused = session.may_nack or any(session.models[each].rejects for each in queues)
        if is_refused or faults.ever_refused or (client := session.client()) is None:
            return
        messages = session.messages(step.number("count"), step.number("size"), session.next_publisher())
        for message in messages:
            message.way = exchange, key
        client.begin_transaction()
        client.publish_in_transaction(exchange, key, [each.body for each in messages])
        delivery = client.get_in_transaction(name)
        self._publishing.look()
        if delivery is not None:
            self._receiving.take_delivery(name, delivery)
        held = session.held.pop() if delivery is not None else None
        commit = bool(step.number("commit"))
        if commit:
            before = self._publishing.before(messages, queues)
            if held is not None:
                session.models[name].settled(held.copy, session.now(), over_amqp=True)
        elif held is not None:
            session.requeued(held)
        client.end_transaction(commit=commit)
        session.broker.queue(name).info()  # behind what the channel sent when it ended
        if commit:
            self._publishing.sent(messages, AmqpConfirm(client, ()), before)

    # -- declaring

    def declare(self, step: Step) -> None:
        session, name = self._session, step.word("queue")
        session.queue(name)
        if step.word("how") == "same":
            durable, arguments = name not in TRANSIENT, ARGUMENTS.get(name)
            if step.word("via") == "app":
                session.broker.declare_queue(name, durable=durable, arguments=arguments)
            elif (client := session.client()) is not None:
                client.declare(name, durable=durable, arguments=arguments or {})
            return
        try:
            session.broker.declare_queue(name, arguments=OTHER)
        except PreconditionFailed:
            return
        raise PromiseBroken("declared", f"queue {name} is there, and was declared again as something else")


def _is_older(each: Held, last: Held) -> bool:
    if isinstance(last.delivery, AmqpDelivery):
        return isinstance(each.delivery, AmqpDelivery) and each.delivery.tag < last.delivery.tag
    return each.by is not None and each.by is last.by and each.delivery.tag < last.delivery.tag
