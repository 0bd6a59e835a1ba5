"""The publishing side of the face: from a body to casts in the queues' mailboxes.

Each application thread that publishes has a Publishing of its own.  Before a message is on its way the thread waits: as
long as a memory or disk alarm is set (RabbitMQ blocks the connection; here it is the thread, in `wait_for_turn`;
docs/alarms.md says what an application sees of it), and while a queue grants no credit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty
from typing import Any

from pykka import ActorRef

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.actors.sending.message_sender import Flow, MessageIds, MessageSender
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.broker.parts import Publishes, Transacted
from warrenmq.errors import Blocked, Error, Nacked, Returned
from warrenmq.message.properties import Properties
from warrenmq.message.stored import StoredMessage
from warrenmq.node.alarms import Alarms, BlockedPublisher, in_words
from warrenmq.routing import Router
from warrenmq.routing.delayed import LATER
from warrenmq.routing.message_options import header_routes, parse_expiration
from warrenmq.runtime import Event, Runtime
from warrenmq.trace.events import (
    CREDIT_GAVE_UP,
    CREDIT_GRANTED,
    CREDIT_PEER_DOWN,
    AlarmBlocked,
    AlarmUnblocked,
    CreditBlocked,
    CreditUnblocked,
)
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_alarm_blocked, _write_alarm_unblocked = writer(AlarmBlocked), writer(AlarmUnblocked)
_write_credit_blocked, _write_credit_unblocked = writer(CreditBlocked), writer(CreditUnblocked)

BATCHES_AHEAD = 2
"""Times the initial credit that may be sent in batches when there is none: with the credit alone, which one
batch uses up, the queue would sync for each batch.
"""
BYTES_AHEAD = 1 << 21
"""The same in bytes, for bodies of the size of the batch at hand."""
LOOK_FOR_LIFE = 0.1
"""Seconds between looks whether the queue process that owes credit still lives."""
LOOK_FOR_PROCESS = 0.002
"""Seconds between looks for a queue process that is being restarted."""


def _seconds_until(deadline: int, runtime: Runtime) -> float:
    return (deadline - runtime.monotonic_ns()) / 1e9


def wait_for_alarms(alarms: Alarms, runtime: Runtime, exchange: str, routing_key: str,
                    left: Callable[[], float | None], check_open: Callable[[], None]) -> None:  # fmt: skip
    """Wait until no resource alarm is set; meanwhile the thread counts as a blocked publisher.

    `left` returns the seconds that it may still wait, None = without a limit; Blocked once they are over.
    `check_open` raises BrokerClosed.
    """
    who = BlockedPublisher(threading.current_thread().name, exchange, routing_key, runtime.wall_ns())
    news = runtime.channel()
    ticket = alarms.add_waiting(who, lambda: news.put(None))
    try:
        while active := alarms.active:
            check_open()
            seconds = left()
            if seconds is not None and seconds <= 0:
                raise Blocked(in_words(active))
            with suppress(Empty):
                news.get(timeout=seconds)
    finally:
        alarms.remove_waiting(ticket)


class WaitingFlow(Flow):
    """A thread's credit towards a queue process: the thread waits where it has none."""

    __slots__ = ("_ahead", "_trace", "_waiting")

    def __init__(self, runtime: Runtime, ref: ActorRef[Any], initial: int, trace: ActorTrace | None) -> None:
        """`trace` is the thread's own."""
        super().__init__(runtime, ref, initial)
        self._ahead = BATCHES_AHEAD * initial
        self._trace = trace
        self._waiting: Event | None = None

    def bump(self, credit: int) -> None:
        """The queue handled messages; called in its thread."""
        self.limit += credit
        if (waiting := self._waiting) is not None:
            waiting.set()

    def wait_for_credit(self, deadline: int | None = None, ahead: int = 0) -> None:
        """Wait until there is credit, or fewer than `ahead` messages lack it, the queue's process is dead, or
        `deadline` (monotonic, ns) has passed; trace both ends of the wait.
        """
        if (trace := self._trace) is None:
            self._wait(deadline, ahead)
            return
        queue = self.inbox.trace_id
        before = trace.seq
        try:
            _write_credit_blocked(trace, queue)
            self._wait(deadline, ahead)
            _write_credit_unblocked(trace, self._why_unblocked(ahead), queue)
        except (Exception, KeyboardInterrupt):  # a signal handler's: the thread lives on and has not sent
            if trace.seq == before + 1:
                _write_credit_unblocked(trace, CREDIT_GAVE_UP, queue)
            raise

    def _wait(self, deadline: int | None, ahead: int) -> None:
        while self.credit + ahead <= 0 and self.ref.is_alive():
            patience = (
                LOOK_FOR_LIFE
                if deadline is None
                else min(_seconds_until(deadline, self.runtime), LOOK_FOR_LIFE)
            )
            if patience <= 0:
                return
            # Register first, look second; the queue grants first and looks for waiters second.
            self._waiting = self.runtime.event()
            if self.credit + ahead <= 0:
                self._waiting.wait(patience)
            self._waiting = None

    def _why_unblocked(self, ahead: int) -> int:
        if self.credit + ahead > 0:
            return CREDIT_GRANTED
        return CREDIT_GAVE_UP if self.ref.is_alive() else CREDIT_PEER_DOWN

    def spend(self, count: int, size: int) -> None:
        """Wait until there is credit, then use up `count` (it may go negative: a batch is never split)."""
        if self.limit <= self.sent and self.ref.is_alive():
            ahead = self._batches_ahead(count, size)
            if self.limit + ahead <= self.sent:
                self.wait_for_credit(ahead=ahead)
        self.sent += count

    def _batches_ahead(self, count: int, size: int) -> int:
        """The messages without credit behind which a batch is sent all the same; of large bodies there are few."""
        return 0 if count == 1 else min(self._ahead, BYTES_AHEAD * count // max(size, 1))


class Publishing:
    """One thread's publishing: routes messages, waits for its turn, and sends through a MessageSender of its own."""

    def __init__(self, runtime: Runtime, router: Router, ids: MessageIds, initial_credit: int,
                 trace: ActorTrace | None, address: Callable[[str], ActorRef[Any]], wake: Callable[[str], bool],
                 alarms: Alarms, check_open: Callable[[], None]) -> None:  # fmt: skip
        """`wake` starts the process of a queue that sleeps; False if it does not sleep."""
        self._runtime = runtime
        self._wake = wake
        self._sender = MessageSender(
            runtime, ids, partial(WaitingFlow, trace=trace), initial_credit, trace, address
        )
        self._alarms = alarms
        self._check_open = check_open
        self._router = router
        self._trace = trace
        self.pending: Transacted | None = None
        """The transaction that this thread is in: publishes and acks are kept there until its end."""

    def wait_for_turn(self, exchange: str, routing_key: str, timeout: float | None,
                      properties: Properties | None = None) -> None:  # fmt: skip
        """Wait until no alarm is set and, with a timeout, until `publish` will not wait either.

        After `timeout` seconds it raises Blocked, saying what it waited for; nothing has been sent then.  Without one it
        leaves waiting for a queue's credit to `publish`.  In a transaction only alarms count: it sends nothing yet.
        BrokerClosed when the broker is closed meanwhile.
        """
        deadline = None if timeout is None else self._runtime.monotonic_ns() + round(timeout * 1e9)
        started: set[str] = set()
        while True:
            if self._alarms.active:
                self._wait_and_tell(exchange, routing_key, deadline)
            if deadline is None or self.pending is not None:
                return
            if (queue := self._lacking(exchange, routing_key, properties, started)) is None:
                return
            if self._wake(queue):
                started.add(queue)
                continue
            if (left := _seconds_until(deadline, self._runtime)) <= 0:
                msg = f"queue {queue!r} is behind and takes no more for now, nothing was published; try again later"
                raise Blocked(msg)
            flow = self._sender.flows.get(queue)
            if flow is not None and flow.ref.is_alive():
                flow.wait_for_credit(deadline)
            else:
                self._runtime.event().wait(min(left, LOOK_FOR_PROCESS))

    def _wait_and_tell(self, exchange: str, routing_key: str, deadline: int | None) -> None:
        if (trace := self._trace) is None:
            self._wait_for_alarms(exchange, routing_key, deadline)
            return
        before, refusal = trace.seq, None
        try:
            _write_alarm_blocked(trace)
            try:
                self._wait_for_alarms(exchange, routing_key, deadline)
            except Error as gave_up:
                refusal = gave_up
            _write_alarm_unblocked(trace)
        except (Exception, KeyboardInterrupt):  # a signal handler's: the thread lives on
            if trace.seq == before + 1:
                _write_alarm_unblocked(trace)
            raise
        if refusal is not None:
            raise refusal

    def _wait_for_alarms(self, exchange: str, routing_key: str, deadline: int | None) -> None:
        def left() -> float | None:
            return None if deadline is None else _seconds_until(deadline, self._runtime)

        wait_for_alarms(self._alarms, self._runtime, exchange, routing_key, left, self._check_open)

    def publish(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                persistent: bool, mandatory: bool) -> Confirm:  # fmt: skip
        """Route messages and cast them to their queues; NotFound when there is no such exchange."""
        if properties is not None:
            return self._publish_with_properties(
                exchange, routing_key, bodies, properties, persistent, mandatory
            )
        if exchange in self._router.internal:
            self._router.check_publish(exchange)
        queues = self._router.route(exchange, routing_key)
        if not queues or not bodies:
            return self._unroutable(exchange, routing_key, len(bodies), mandatory=mandatory)
        sender, confirm = self._sender, Confirm(self._runtime, len(queues))
        sender.send(
            queues,
            sender.publication(
                exchange, (routing_key,), bodies, None, persistent=persistent, queues=len(queues)
            ),
            confirm,
        )
        return confirm

    def publish_one(self, exchange: str, routing_key: str, body: bytes, properties: Properties | None,
                    persistent: bool, mandatory: bool) -> Confirm:  # fmt: skip
        """`publish` of one message."""
        router = self._router
        if properties is None and exchange not in router.internal:
            direct = router.direct.get(exchange)
            queues = router.route(exchange, routing_key) if direct is None else direct.get(routing_key, ())
            if len(queues) == 1:
                confirm = Confirm(self._runtime)
                self._sender.send_one(queues[0], exchange, routing_key, body, confirm, persistent=persistent)
                return confirm
        return self.publish(exchange, routing_key, [body], properties, persistent, mandatory)

    def _publish_with_properties(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties,
                                 persistent: bool, mandatory: bool) -> Confirm:  # fmt: skip
        self._router.check_publish(exchange)
        headers = properties.headers
        expiration = parse_expiration(properties.expiration)
        cc, bcc = header_routes(headers)
        queues = self._router.route(exchange, routing_key, headers, cc + bcc)
        if not queues or not bodies:
            return self._unroutable(exchange, routing_key, len(bodies), mandatory=mandatory)
        properties = _without_bcc(properties)
        sender = self._sender
        publication = sender.publication(
            exchange, (routing_key, *cc, *bcc), bodies, properties, persistent=persistent and properties.delivery_mode != 1,
            expiration=expiration, priority=properties.priority or 0, queues=0 if cc or bcc else len(queues),
        )  # fmt: skip
        confirm = Confirm(self._runtime, len(queues))
        sender.send(queues, publication, confirm)
        return confirm

    def publish_later(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                      persistent: bool, due: int) -> Confirm:  # fmt: skip
        """Publish messages that are routed to `exchange` at a time, `due` (microseconds since 1970); until
        then they wait in the queue LATER, which must be there.

        Raises what `publish` would if it were published now.
        """
        self.check(exchange, routing_key, properties)
        keys: tuple[str, ...] = (routing_key,)
        if properties is not None:
            cc, bcc = header_routes(properties.headers)
            keys = (routing_key, *cc, *bcc)
            persistent = persistent and properties.delivery_mode != 1
            properties = _without_bcc(properties)
        confirm = Confirm(self._runtime)
        if not bodies:
            confirm.confirm()
            return confirm
        publication = self._sender.publication(
            exchange, keys, bodies, properties, persistent=persistent, due=due
        )
        self._sender.send((LATER,), publication, confirm)
        return confirm

    def publish_copy(self, queues: tuple[str, ...], message: StoredMessage, properties: Properties | bytes, *,
                     persistent: bool, due: int = 0) -> Confirm:  # fmt: skip
        """Publish a message as it was, with other properties, to queues that have been chosen; with `due` it
        is LATER alone, without it these are dead letters, which do not expire.
        """
        confirm = Confirm(self._runtime, len(queues))
        if not queues:
            confirm.confirm()
            return confirm
        known = message.properties
        publication = self._sender.publication(
            message.exchange, tuple(message.routing_keys), [message.body], properties, persistent=persistent,
            expiration=parse_expiration(known.expiration) if due else None, priority=known.priority or 0, due=due,
        )  # fmt: skip
        self._sender.send(queues, publication, confirm)
        return confirm

    def queues_of(
        self, exchange: str, routing_key: str, headers: Mapping[str, Any] | None
    ) -> tuple[str, ...]:
        """The queues that a message would go to now; NotFound."""
        return self._router.route(exchange, routing_key, headers)

    def _unroutable(self, exchange: str, routing_key: str, messages: int, *, mandatory: bool) -> Confirm:
        """The answer to a publish that no queue gets; of no message none comes back."""
        if messages:
            self._sender.unrouted(messages, exchange, routing_key)
        confirm = Confirm(self._runtime)
        if messages and mandatory:
            confirm.fail(Returned(exchange, routing_key))
        else:
            confirm.confirm()
        return confirm

    def cast(self, ref: ActorRef[Any], message: Any) -> None:
        """Send a message in this thread's name."""
        self._runtime.cast(ref, message, self._trace)

    def promise(self) -> Confirm:
        """A Confirm for a publish that comes later."""
        return Confirm(self._runtime)

    def check(self, exchange: str, routing_key: str, properties: Properties | None) -> None:  # noqa: ARG002  # the length matters on a wire
        """Raise what `publish` would: NotFound, AccessRefused, PreconditionFailed."""
        self._router.check_publish(exchange)
        if properties is not None:
            parse_expiration(properties.expiration)
            header_routes(properties.headers)

    def would_block(self, exchange: str, routing_key: str, properties: Properties | None) -> bool:
        """True if `publish` would wait: for credit, or because a queue's process is not there."""
        return self._lacking(exchange, routing_key, properties) is not None

    def _lacking(self, exchange: str, routing_key: str, properties: Properties | None,
                 started: Collection[str] = ()) -> str | None:  # fmt: skip
        """The first queue that a publish would wait for.

        It does not wait for the processes of those that were `started` for it: where descriptors are short,
        starting one puts another to sleep, and `publish` starts each when it comes to it.
        """
        headers = None if properties is None else properties.headers
        cc, bcc = header_routes(headers)
        for queue in self._router.route(exchange, routing_key, headers, cc + bcc):
            flow = self._sender.flows.get(queue)
            if flow is None or not flow.ref.is_alive():
                if queue not in started and not self._runtime.is_registered(queue_name(queue)):
                    return queue
            elif flow.credit <= 0:
                return queue
        return None


class Pending:
    """The publishes and acks of one thread inside a transaction (transaction.py), kept until its end.

    _steps     what the commit sends, in order
    _exchanges what it publishes to
    _promises  what the publishers hold, by the number of steps up to theirs, and the publish; each is settled as that is, after the commit
    _undo      what a rollback takes back of the deliveries, likewise, the last one first
    """

    def __init__(self, publishing: Publishes) -> None:
        self.publishing = publishing
        self._steps: list[Callable[[], object]] = []
        self._exchanges: dict[str, None] = {}
        self._promises: list[tuple[int, Confirm, Callable[[], Confirm]]] = []
        self._undo: list[tuple[int, Callable[[], object]]] = []

    def publish(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                persistent: bool, mandatory: bool) -> Confirm:  # fmt: skip
        """Publish at the commit, as Publishing.publish does; an invalid message raises now."""
        publishing = self.publishing
        return self._keep(
            exchange,
            routing_key,
            properties,
            partial(publishing.publish, exchange, routing_key, bodies, properties, persistent, mandatory),
        )

    def publish_later(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                      persistent: bool, due: int) -> Confirm:  # fmt: skip
        """Publish a delayed message at the commit, as Publishing.publish_later does."""
        publishing = self.publishing
        return self._keep(
            exchange,
            "",  # an argument of a call, of any length
            properties,
            partial(publishing.publish_later, exchange, routing_key, bodies, properties, persistent, due),
        )

    @property
    def is_empty(self) -> bool:
        """True if the commit will send nothing."""
        return not self._steps

    def _keep(
        self, exchange: str, routing_key: str, properties: Properties | None, publish: Callable[[], Confirm]
    ) -> Confirm:
        self.publishing.check(exchange, routing_key, properties)
        promise = self.publishing.promise()
        self._exchanges[exchange] = None
        self._steps.append(lambda: promise.follow(publish()))
        self._promises.append((len(self._steps), promise, publish))
        return promise

    def settle(self, ref: ActorRef[Any], message: Any) -> None:
        """Cast an ack or reject, at the commit."""
        self._steps.append(partial(self.publishing.cast, ref, message))

    def on_roll_back(self, undo: Callable[[], object]) -> None:
        """Have something called if what was added last is not sent."""
        self._undo.append((len(self._steps), undo))

    def commit(self, repeats: Callable[[Exception], bool] | None = None) -> None:
        """Send everything, and wait for the confirms; raises what the first one that failed failed with.

        Where `repeats(error)` says so, a message that was not taken over is sent once more instead.  What
        cannot be sent, as its exchange is gone or the broker was closed, is rolled back with all behind it.
        """
        sent = 0
        try:
            for exchange in self._exchanges:
                self.publishing.check(exchange, "", None)
            for step in self._steps:
                step()
                sent += 1
        except BaseException:
            self.roll_back(sent)
            raise
        for _, promise, publish in self._promises:
            answer = promise
            while True:
                try:
                    answer.result()
                    break
                except (Nacked, Blocked) as error:
                    if repeats is None or not repeats(error):
                        raise
                    answer = publish()

    def roll_back(self, sent: int = 0) -> None:
        """Send nothing behind the first `sent` steps; what was published there is nacked, and deliveries may
        be settled again.
        """
        for step, undo in reversed(self._undo):
            if step > sent:
                undo()
        for step, promise, _ in self._promises:
            if step > sent:
                promise.nack("the transaction was rolled back")


def _without_bcc(properties: Properties) -> Properties:
    """Receivers of a message may not see its BCC."""
    headers = properties.headers
    if not headers or "BCC" not in headers:
        return properties
    return replace(properties, headers={name: each for name, each in headers.items() if name != "BCC"})
