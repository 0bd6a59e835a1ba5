"""The steps of wide scripts with several consumers at once, and with one that outlives its queue's process."""

from __future__ import annotations

from warrenmq.broker.consumer import Consumer
from warrenmq.broker.delivery import Delivery
from warrenmq.errors import AccessRefused
from warrenmq.simulate.ends import Ends
from warrenmq.simulate.messages import PromiseBroken, State, number_of
from warrenmq.simulate.publishing import Publishing
from warrenmq.simulate.receiving import AT_LAST, SOON, Receiving
from warrenmq.simulate.script import Step
from warrenmq.simulate.script import step as a_step
from warrenmq.simulate.session import Session
from warrenmq.simulate.topology import SINGLE


class Competing:
    """Has consumers compete for the messages of a queue."""

    def __init__(self, session: Session, publishing: Publishing, receiving: Receiving, ends: Ends) -> None:
        self._session = session
        self._publishing = publishing
        self._receiving = receiving
        self._ends = ends

    # -- steps

    def rivals(self, step: Step) -> None:
        """Consume with two consumers, of which the second has the higher priority; of a queue with a single
        active one the first gets all.
        """
        session, name, prefetch = self._session, step.word("queue"), step.number("prefetch")
        queue = session.queue(name)
        is_new = (
            self._publishing.is_alone and not session.later and name != "dead" and queue.info().ready == 0
        )
        with (
            queue.consume(prefetch=prefetch) as first,
            queue.consume(prefetch=prefetch, priority=1) as second,
        ):
            self._check_not_exclusive(name)
            if not session.faults.may_block:
                self._publish(step)
            session.models[name].asked()
            if name == SINGLE:
                self._take(step, (first,))
                if second.get(timeout=SOON) is not None:
                    raise PromiseBroken(
                        "single active", f"queue {name} has given a message to a consumer that is not active"
                    )
                first.cancel()
                session.was_consumed(name)
                self._take(step, (second,))
            else:
                for_first, for_second = self._take(step, (first, second))
                if is_new and for_first and for_second < prefetch:
                    raise PromiseBroken(
                        "priority",
                        f"queue {name} gave a consumer a message, though one of a higher priority had room",
                    )
        session.was_consumed(name)

    def linger(self, step: Step) -> None:
        """Kill a process while a consumer is there, which its queue's next process must serve."""
        session, name, victim = self._session, step.word("queue"), step.word("victim")
        if session.faults.may_block:
            return
        queue = session.queue(name)
        self._publish(step)
        self._publishing.look()
        model = session.models[name]
        sent = model.surely_sent()
        came: list[Delivery] = []
        # no `with`, whose end would ask a process that a power cut in the middle of its kill has left half dead
        consumer = queue.consume(prefetch=0)
        taken = _drain(consumer)
        session.was_consumed(name)
        self._ends.kill(
            a_step("kill", victim=name if victim == "queue" else victim),
            lambda: self._give_back(consumer, came),
        )
        consumer.cancel()
        for delivery in taken:
            delivery.nack()  # where nothing was killed
        if not came or name == "dead" or session.models.get(name) is not model:
            return
        there = {
            number
            for number, copy in model.copies.items()
            if number in sent - model.repeated
            and copy.was_found
            and model.must_have(copy)
            and copy.state is State.READY
        }
        if starved := there - {number_of(each.body) for each in came}:
            raise PromiseBroken(
                "starved",
                f"a consumer of queue {name} was not given messages {sorted(starved)} by the queue's next process",
            )

    # -- parts of them

    def _check_not_exclusive(self, name: str) -> None:
        try:
            consumer = self._session.broker.queue(name).consume(exclusive=True)
        except AccessRefused:
            return
        consumer.cancel()
        raise PromiseBroken("exclusive consumer", f"queue {name} took an exclusive consumer beside others")

    def _publish(self, step: Step) -> None:
        session = self._session
        messages = session.messages(step.number("count"), step.number("size"))
        bodies = [each.body for each in messages]
        confirm = self._publishing.publish_messages(
            step.word("queue"),
            messages,
            lambda exchange, key: session.broker.publish_many(exchange, key, bodies),
        )
        self._publishing.wait_for(confirm)

    def _take(self, step: Step, consumers: tuple[Consumer, ...]) -> list[int]:
        """Hold what comes to these consumers, and ack some of it; returns how many came to each."""
        session, name, prefetch = self._session, step.word("queue"), step.number("prefetch")
        model = session.models[name]
        came = [_drain(consumer) for consumer in consumers]
        if self._starved(came, name, prefetch):
            session.machine.sleep(AT_LAST)
            for deliveries, consumer in zip(came, consumers, strict=True):
                deliveries.extend(_drain(consumer))
            if starved := self._starved(came, name, prefetch):
                raise PromiseBroken(
                    "starved", f"consumers of queue {name} got nothing, though messages {starved} wait there"
                )
        self._publishing.look()
        for deliveries in came:
            if len(deliveries) > prefetch:
                raise PromiseBroken(
                    "prefetch",
                    f"a consumer of queue {name} with prefetch {prefetch} was given {len(deliveries)} messages",
                )
        # which of them came first is not known, but that all did before what still waits
        together = [
            (delivery, by) for deliveries, by in zip(came, consumers, strict=True) for delivery in deliveries
        ]
        for number, (delivery, by) in enumerate(
            sorted(together, key=lambda each: model.rank(each[0].body)), 1
        ):
            self._receiving.take_delivery(name, delivery, by)
            if number % step.number("ack") == 0:
                self._receiving.settled(session.held.pop())
                delivery.ack()
        return [*map(len, came)]

    def _starved(self, came: list[list[Delivery]], name: str, prefetch: int) -> list[int]:
        """The messages that have to come to one of these consumers, which has room."""
        if self._session.faults.ever_refused or all(len(each) >= prefetch for each in came):
            return []
        there = {number_of(each.body) for deliveries in came for each in deliveries}
        return [number for number in self._session.models[name].waiting() if number not in there]

    def _give_back(self, consumer: Consumer, came: list[Delivery]) -> None:
        """Take what the next process of the queue delivers, and put it back."""
        came += _drain(consumer)
        consumer.cancel()
        for delivery in reversed(came):
            delivery.nack()


def _drain(consumer: Consumer) -> list[Delivery]:
    """Take from a consumer until nothing comes for a while."""
    came: list[Delivery] = []
    while (delivery := consumer.get(timeout=SOON)) is not None:
        came.append(delivery)
    return came
