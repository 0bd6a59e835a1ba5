"""The publishing steps of a script, and the confirms that they wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.errors import Blocked, Error, Nacked
from warrenmq.message.properties import Properties
from warrenmq.simulate.amqp_client import AmqpConfirm, ConnectionLost
from warrenmq.simulate.messages import MAIN, Message, PromiseBroken
from warrenmq.simulate.script import Step
from warrenmq.simulate.session import Later, Session
from warrenmq.simulate.topology import EXPIRING, Route, reach

PATIENCE = 60.0
"""Seconds of virtual time in which every answer must have come; a slow disk holds one for less than a second."""
AnyConfirm = Confirm | AmqpConfirm


class _Due(NamedTuple):
    """A confirm that is due, its messages, and per queue what was settled before they were sent."""

    confirm: AnyConfirm
    messages: list[Message]
    before: dict[str, set[int]]


class Publishing:
    """Publishes what steps say, each message told to the models before it is sent."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._due: list[_Due] = []
        self._raised: list[BaseException] = []
        """By other threads of the application."""
        self._others: set[int] = set()
        """Publishers in threads of their own that have not come to their end."""

    @property
    def is_alone(self) -> bool:
        """True if the script's own thread alone publishes, and nothing is on its way."""
        return not self._others and not self._session.underway

    def raise_from_threads(self) -> None:
        """Raise what another thread of the application raised."""
        if self._raised:
            raise self._raised[0]

    # -- steps

    def publish(self, step: Step) -> None:
        faults, size = self._session.faults, step.number("size")
        is_known_full = faults.is_known_full(size)
        confirm = self._of_one_call(step, 1, persistent=bool(step.number("persistent")), priority=step.number("priority"))  # fmt: skip
        if confirm is None or not step.number("wait"):
            return
        if not faults.may_refuse:
            self.wait_for(confirm)
        elif is_known_full and isinstance(confirm, Confirm):
            # else it may wait for room, which a later step makes
            try:
                self.wait_for(confirm)
            except PromiseBroken:
                if faults.is_known_full(size):
                    raise

    def publish_many(self, step: Step) -> None:
        self._of_one_call(step, step.number("count"))

    def publish_one(self, queue: str) -> None:
        """Publish a small message to a queue."""
        broker, messages = self._session.broker, self._session.messages(1, 10)
        self.publish_messages(
            queue, messages, lambda exchange, key: broker.publish(exchange, key, messages[0].body)
        )

    def _of_one_call(
        self, step: Step, count: int, *, persistent: bool = True, priority: int = 0
    ) -> AnyConfirm | None:
        """Publish so many messages; None if that has to wait for a later step."""
        session, client = self._session, None
        if step.word("via") == "amqp" and (client := session.client()) is None:
            return None
        publisher = client.publisher if client else MAIN
        messages = session.messages(
            count, step.number("size"), publisher, persistent=persistent, priority=priority
        )
        bodies = [each.body for each in messages]
        properties = Properties(priority=priority) if priority else None

        def publish(exchange: str, key: str) -> AnyConfirm:
            if client is not None:
                return client.publish(exchange, key, bodies, persistent=persistent, properties=properties)
            if step.verb == "publish_many":
                return session.broker.publish_many(exchange, key, bodies, timeout=session.faults.timeout)
            return session.broker.publish(
                exchange, key, bodies[0], persistent=persistent, timeout=session.faults.timeout, properties=properties
            )  # fmt: skip

        return self.publish_messages(step.word("to"), messages, publish)

    def later(self, step: Step) -> None:
        session = self._session
        # delayed messages come in the order of their times
        (message,) = session.messages(1, step.number("size"), session.next_publisher())
        way, queues = session.destination(step.word("to"))
        message.way = way.exchange, way.key
        seconds = step.number("ms") / 1000
        due_at = session.now() + seconds
        session.later.append(Later(message, reach(way), due_at))
        for name in reach(way):
            # its bindings may be others when it is due
            may_be_gone = (
                name not in queues or (bool(way.queues) and name not in way.queues) or name == EXPIRING
            )
            session.models[name].sent_later(message, due_at, may_be_gone=may_be_gone)
        confirm = session.broker.publish(
            way.exchange, way.key, message.body, delay=seconds, timeout=session.faults.timeout
        )
        self.sent([message], confirm, {})

    def burst(self, step: Step) -> None:
        session = self._session
        session.destination(step.word("to"))
        publisher = session.next_publisher()
        broker = session.broker
        persistent = bool(step.number("persistent"))

        def publish() -> None:
            for _ in range(step.number("count")):
                messages = session.messages(1, step.number("size"), publisher, persistent=persistent)
                self.publish_messages(step.word("to"), messages, lambda exchange, key, body=messages[0].body: broker.publish(  # type: ignore[misc]
                    exchange, key, body, persistent=persistent, timeout=session.faults.timeout
                ))  # fmt: skip

        self.beside(publisher, publish)

    def beside(self, publisher: int, publish: Callable[[], None]) -> None:
        """Have another publisher of the application publish in a thread of its own."""

        def run() -> None:
            try:
                publish()
            except Error:
                pass  # the broker was closed, or killed, under this thread
            except Exception as error:  # noqa: BLE001 - raised by the script's own thread
                self._raised.append(error)
            self._others.discard(publisher)

        self._others.add(publisher)
        self._session.machine.sim.spawn(run, f"publisher {publisher}")

    def tx(self, step: Step) -> None:
        session = self._session
        if session.faults.may_block:
            return  # the end of a transaction waits for its confirms, which wait for a later step
        (exchange, key, _), queues = session.destination(step.word("to"))
        messages = session.messages(step.number("count"), step.number("size"))
        for message in messages:
            message.way = exchange, key
        confirms: list[Confirm] = []

        class RolledBack(Exception):
            """Raised inside a transaction's block to roll it back."""

        try:
            with session.broker.tx():
                before: dict[str, set[int]] = {}
                for message in messages:
                    message.confirm = session.broker.publish(
                        exchange, key, message.body, timeout=session.faults.timeout
                    )
                    confirms.append(message.confirm)
                if not step.number("commit"):
                    raise RolledBack
                before = self.before(messages, queues)
        except RolledBack:
            return
        except Nacked:
            if not any(session.models[name].rejects for name in queues):
                raise
            before = self.before(messages, queues)
        self._due += [
            _Due(confirm, [message], before) for confirm, message in zip(confirms, messages, strict=True)
        ]

    def settle(self, _step: Step | None = None) -> None:
        """Wait for every outstanding confirm."""
        is_settled = not self._session.faults.may_refuse
        if is_settled:
            for due in list(self._due):
                self.wait_for(due.confirm)
        self.look()
        # what another thread was sending meanwhile may have gone to a process that was killed
        if is_settled and not self._due and not self._session.underway:
            self._session.may_nack = False

    # -- a publish

    def publish_messages(
        self,
        to: str,
        messages: list[Message],
        call: Callable[[str, str], AnyConfirm],
        way: Route | None = None,
    ) -> AnyConfirm:
        """Publish messages by `call(exchange, key)`; `way` if they do not go where all go that are sent to this target."""
        session = self._session
        if way is None:
            way, queues = session.destination(to)
        else:
            queues = way.queues
        for message in messages:
            message.way = way.exchange, way.key
        before = self.before(messages, queues)
        session.set_out(messages, way, queues)
        confirm: AnyConfirm | None = None
        try:
            confirm = call(way.exchange, way.key)
        except Blocked:
            for name in queues:
                if name in session.models:
                    session.models[name].not_sent(messages)
            raise
        except Error:  # the broker was closed, or is down
            for model in session.models.values():
                model.nacked(messages)
            raise
        finally:
            if not isinstance(confirm, AmqpConfirm):
                session.arrived(messages)
        if session.faults.must_block:
            raise PromiseBroken(
                "alarm", f"a publish to {to} was taken, though the memory alarm has been set for long"
            )
        self.sent(messages, confirm, before)
        return confirm

    def before(self, messages: list[Message], queues: tuple[str, ...]) -> dict[str, set[int]]:
        """Record a message in the model before it is published, as it may arrive even if the call never returns."""
        session, before = self._session, {}
        refused = session.faults.may_refuse or any(
            session.models[each].rejects for each in queues if each in session.models
        )
        session.may_nack |= refused
        for name in queues:
            model = session.models.get(name)
            if model is None:  # deleted since
                continue
            if all(message.persistent for message in messages):
                before[name] = model.settled_so_far()
            for message in messages:
                model.sent(message, session.now(), may_be_refused=refused)
        return before

    def sent(self, messages: list[Message], confirm: AnyConfirm, before: dict[str, set[int]]) -> None:
        """Messages were sent; `before` is what `before` returned."""
        if isinstance(confirm, Confirm):  # over AMQP a message may be on its way until its confirm has come
            for message in messages:
                message.confirm = confirm
        self._due.append(_Due(confirm, messages, before))

    # -- confirms

    def wait_for(self, confirm: AnyConfirm) -> None:
        """Wait for a confirm; raises Returned, and Nacked or Blocked where nothing gives a reason for that."""
        try:
            confirm.result(timeout=PATIENCE)
        except ConnectionLost:
            pass
        except (Nacked, Blocked):
            if not self._session.may_nack:
                raise
        except TimeoutError:
            raise PromiseBroken("no confirm", f"a publish had no answer within {PATIENCE:g} s") from None

    def look(self) -> None:
        """Tell the models of the confirms and nacks that have come; raises Nacked where nothing gives a reason for that."""
        models, still = self._session.models, []
        for due in self._due:
            confirm, messages, before = due
            if not confirm.done():
                still.append(due)
                continue
            self._session.arrived(messages)
            error = confirm.exception()
            if error is None:
                for message in messages:
                    message.confirm = confirm
                for model in models.values():
                    model.confirmed(messages, self._session.now())
                for name, numbers in before.items():
                    if name in models:
                        models[name].known_gone(numbers)
                continue
            for model in models.values():
                model.nacked(messages)
            if isinstance(error, Nacked) and not self._session.may_nack:
                raise error
        self._due = still

    def killed(self, queues: tuple[str, ...]) -> None:
        """The processes of these queues were killed: a successor's confirm says nothing of acks that its predecessor had."""
        self._session.disturbed()
        for due in self._due:
            for name in queues:
                due.before.pop(name, None)

    def closed(self) -> None:
        """The broker was closed in the middle of what goes on: what it was sent is answered, and what has no
        confirm may be there or not.
        """
        self._session.was_closed = True
        self.look()
        if any(isinstance(due.confirm, Confirm) for due in self._due):
            raise PromiseBroken("no confirm", "a publish had no answer when the broker was closed")
        for model in self._session.models.values():
            model.unconfirmed_may_be_gone()

    def ended(self) -> None:
        """The broker's process has ended: no confirm comes any more."""
        self.look()
        self._due.clear()
        self._others.clear()
        self._session.disturbed()
        self._session.underway.clear()
        self._session.bindings_were_cut_off()
