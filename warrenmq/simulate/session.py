"""The session of a simulated run's client application: its broker, what it has declared there, and what it
knows of each queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from random import Random
from typing import NamedTuple

from warrenmq.broker.delivery import Delivery
from warrenmq.broker.handles import QueueHandle
from warrenmq.errors import NotFound
from warrenmq.simulate.amqp_client import AmqpClient, AmqpDelivery
from warrenmq.simulate.faults import Faults
from warrenmq.simulate.lease import Lease
from warrenmq.simulate.messages import MAIN, Copy, Message, State, body_of
from warrenmq.simulate.model import QueueModel
from warrenmq.simulate.topology import (
    ARGUMENTS,
    DEAD_LETTERING,
    EXCHANGES,
    EXPIRES_S,
    EXPIRING,
    GRAVES,
    LIMITED,
    RETURNS,
    TRANSIENT,
    Route,
    reach,
    reached,
    route,
)
from warrenmq.simulate.wires import WIRED_EXCHANGES, WIRED_QUEUES, Wiring
from warrenmq.testing import SimulatedMachine


class Held(NamedTuple):
    """A delivery that is not settled."""

    queue: str
    copy: Copy
    delivery: Delivery | AmqpDelivery
    by: object = None
    """The consumer in the broker's process that it came to, if any."""


class Later(NamedTuple):
    """A delayed message, the queues that it may come to, and when it is due."""

    message: Message
    queues: tuple[str, ...]
    due_at: float


class Underway(NamedTuple):
    """Messages that may not be routed yet, the queues that they were sent to, and those that they may come to."""

    messages: list[Message]
    queues: tuple[str, ...]
    reach: tuple[str, ...]
    exchange: str


class Session:
    """The state that all steps of a script share.

    models         what the client knows of each queue that it declared
    held           deliveries that are not settled, in the order in which they came
    underway       publishes of another thread that have not returned, and those over AMQP that were not answered
    policies       those that hold: queue -> name of the policy in scripts
    changing       queues whose policy was being changed when it was cut off or refused: the old one or the new one may hold
    deleted        queues whose deletion has returned, and that were not declared again
    being_deleted  the queue whose deletion has not returned: it may be there or not
    rejected       how often each message was rejected and dead-lettered
    calm_since     the last message before a policy changed, the queue of dead letters was purged or deleted, or a fault came
    may_nack       a queue was deleted or killed, which may nack what had been sent to it
    was_closed     a broker was closed while other threads might publish: the rows of their last sends may be missing
    may_fall       a sync failed under the commit log, which takes nothing more: a broker goes down unless it is ended before
    may_be_torn    the power was cut, or the disk gave an error: what a write left half done may be told as damage
    is_damaged     a bit was flipped: messages may be lost if the broker tells so
    is_silent      it was in a file whose entries have no checksum, in RabbitMQ's layout: what it cost nothing can tell
    """

    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine
        self.faults = Faults(machine)
        self.broker = machine.open()
        self.amqp: AmqpClient | None = None
        self._rng = Random(f"amqp {machine.seed}")
        self.wiring = Wiring()
        self.lease = Lease(EXPIRES_S)
        self._exchanges: set[str] = set()
        self._bound: set[tuple[str, str]] = set()
        """Queues and the exchanges that they were bound to; bindings last as long as their queue."""
        self.being_bound: list[str] = []
        """Queues that another thread is binding."""
        self._publishers = MAIN
        self._number = 0
        self.models: dict[str, QueueModel] = {}
        self.held: list[Held] = []
        self.later: list[Later] = []
        self.underway: list[Underway] = []
        self.policies: dict[str, str] = {}
        self.changing: set[str] = set()
        self.deleted: set[str] = set()
        self.being_deleted = ""
        self.rejected: Counter[int] = Counter()
        self.calm_since = 0
        self.may_nack = False
        self.was_closed = False
        self.may_fall = False
        self.may_be_torn = False
        self.is_damaged = False
        self.is_silent = False

    def now(self) -> float:
        """Virtual seconds; no jump of the wall clock changes them."""
        return self.machine.sim.monotonic_ns() / 1e9

    def client(self) -> AmqpClient | None:
        """The client over AMQP; None while an alarm may hold its connection up, as only a later step clears that."""
        if self.faults.may_block:
            return None
        if self.amqp is None:
            self.amqp = AmqpClient(self.broker, self.next_publisher(), self._rng)
        return self.amqp

    def next_publisher(self) -> int:
        """The number of one more publisher, whose messages come in their order."""
        self._publishers += 1
        return self._publishers

    def messages(
        self, count: int, size: int, publisher: int = MAIN, *, persistent: bool = True, priority: int = 0
    ) -> list[Message]:
        """New messages, each with a number and a body of its own."""
        first = self._number + 1
        self._number += count
        return [
            Message(n, body_of(n, size), persistent, priority, publisher) for n in range(first, first + count)
        ]

    def disturbed(self) -> None:
        """Something happened that may cost a dead letter, or leave it where it is."""
        self.calm_since = self._number

    # -- what is declared

    def queue(self, name: str) -> QueueHandle:
        """A handle to a queue, declaring it on first use."""
        if name == EXPIRING:
            self._use_expiring()
        if name in self.models:
            return self.broker.queue(name)
        if name in DEAD_LETTERING:
            self.queue("dead")
        self.deleted.discard(name)
        queue = self.broker.declare_queue(name, durable=name not in TRANSIENT, arguments=ARGUMENTS.get(name))
        if name in self.models:  # another thread has declared it meanwhile
            return queue
        has_ttl = name == "t"
        self.models[name] = model = QueueModel(
            name, may_drop=has_ttl, has_dropped=has_ttl, has_ttl=has_ttl, is_ordered=name != "dead", one_journal=name != "p",
            is_limited=name == LIMITED, counts_returns=name == LIMITED,
        )  # fmt: skip
        if name in self.policies:
            model.policy(self.policies[name])
            model.policy_holds()
        self.link_dead_letters()
        for message, queues, due_at in self.later:
            if name in queues:
                model.sent_later(message, due_at, may_be_gone=True)
        for each in self.underway:
            if name in each.reach:
                model.may_come(each.messages)
        return queue

    def _use_expiring(self) -> None:
        """Renew the lease of the queue that expires, which may have run out."""
        if EXPIRING not in self.models:
            self.lease.renewed(self.now())
            return
        is_there, now = self.has_expiring(), self.now()
        self.lease.check(now, is_there=is_there, may_be_late=self.faults.ever_refused)
        if is_there and self.lease.must_hold(now):
            self.broker.declare_queue(EXPIRING, arguments=ARGUMENTS[EXPIRING])
        elif is_there and EXPIRING in self.models:
            self.models[EXPIRING].all_may_be_gone()
            self.broker.declare_queue(EXPIRING, arguments=ARGUMENTS[EXPIRING])
        elif EXPIRING in self.models:
            self.gone(EXPIRING)
            self.held = [each for each in self.held if each.queue != EXPIRING]
        self.lease.renewed(now)

    def has_expiring(self) -> bool:
        """True if the queue that expires is there."""
        try:
            self.broker.queue(EXPIRING)
        except NotFound:
            return False
        return True

    def destination(self, to: str) -> tuple[Route, tuple[str, ...]]:
        """The route of a publish, on which everything is declared, and the queues that it reaches.

        A queue that was deleted, and declared again for itself, is bound to nothing.
        """
        way = route(to)
        absent = {name for name in reach(way) if name not in self.models}
        for name in reach(way):
            self.queue(name)
        if way.exchange:
            self._exchange(way.exchange, absent)
        return way, reached(way, self._bound)

    def _exchange(self, name: str, absent: Collection[str]) -> None:
        """Declare an exchange, and bind queues to it: all if it is new, else those that were absent."""
        exchange = EXCHANGES[name]
        if exchange.alternate:
            self._exchange(exchange.alternate, absent)
        is_new = name not in self._exchanges
        if is_new:
            self.broker.declare_exchange(name, exchange.type, arguments=exchange.arguments)
            self._exchanges.add(name)
        for queue, key in exchange.bindings:
            if (queue, name) not in self._bound and (is_new or queue in absent):
                self.queue(queue)
                self._bind(queue, name, key)

    def _bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind a queue: what another thread is publishing meanwhile may come to it or not."""
        model = self.models[queue]
        self.being_bound.append(queue)
        for each in self.underway:
            if queue in each.reach:
                model.may_come(each.messages)
        self.broker.bind(queue, exchange, key)
        self.being_bound.remove(queue)
        if self.models.get(queue) is model:  # else it was deleted meanwhile
            self._bound.add((queue, exchange))

    def bindings_were_cut_off(self) -> None:
        """The broker's process has ended: queues that were being bound may be bound or not, so all are bound again."""
        if self.being_bound:
            self.being_bound.clear()
            self._bound.clear()
            self._exchanges.clear()

    # -- exchanges and bindings that change (wires.py)

    @property
    def can_rewire(self) -> bool:
        """True if nothing can be on its way over AMQP while exchanges go, since that would close its channel."""
        return self.amqp is None or not self.faults.may_block

    def rewiring(self) -> None:
        """The wiring is about to change: what is on its way may come where it leads or not.  What a change
        left in doubt is removed.
        """
        if self.amqp is not None and not self.faults.may_block:
            self.amqp.synchronise()
        for each in self.underway:
            self._doubt_wires(each)
        was_changing, self.wiring.is_changing = self.wiring.is_changing, True
        if was_changing:
            for exchange in WIRED_EXCHANGES:
                with suppress(NotFound):
                    self.broker.delete_exchange(exchange)
                self.wiring.exchange_gone(exchange)

    def _doubt_wires(self, each: Underway) -> None:
        """Messages that are being published while the wiring changes: they may come to any queue, or to none."""
        if each.exchange not in WIRED_EXCHANGES:
            return
        for name in WIRED_QUEUES:
            if (model := self.models.get(name)) is not None:
                model.may_come(each.messages)
                for message in each.messages:
                    model.copies[message.number].doubt()

    # -- messages on their way

    def set_out(self, messages: list[Message], way: Route, queues: tuple[str, ...]) -> None:
        """Messages are about to be published on this way to these queues, which may be gone by now."""
        self.underway.append(each := Underway(messages, queues, reach(way), way.exchange))
        if self.wiring.is_changing:
            self._doubt_wires(each)
        changing = {self.being_deleted, *self.being_bound}
        if any(name not in self.models or name in changing for name in each.reach):
            self._may_come_elsewhere(each)

    def arrived(self, messages: list[Message]) -> None:
        """Messages that were underway are routed by now."""
        self.underway = [each for each in self.underway if each.messages is not messages]

    def deleting(self, name: str) -> None:
        """A queue is about to be deleted: what was sent to it and is not routed yet may come to others."""
        self.being_deleted = name
        if self.wiring.leads_to(name):
            self.rewiring()
        for each in self.underway:
            if name in each.queues:
                self._may_come_elsewhere(each)

    def _may_come_elsewhere(self, each: Underway) -> None:
        for name in each.reach:
            if name in self.models:
                self.models[name].may_come(each.messages)

    def deletion_returned(self, name: str) -> None:
        """The queue that was being deleted is gone."""
        was_wired = self.wiring.leads_to(name)
        self.being_deleted = ""
        self.disturbed()
        self.gone(name)
        if was_wired:
            self.wiring.is_changing = False
        self.deleted.add(name)
        self.may_nack = True
        self.held = [each for each in self.held if each.queue != name]

    def not_deleted(self) -> None:
        """A deletion was refused."""
        if self.wiring.leads_to(self.being_deleted):
            self.wiring.is_changing = False
        self.being_deleted = ""

    def gone(self, name: str) -> None:
        """A queue was deleted, and its bindings with it."""
        del self.models[name]
        self.wiring.queue_gone(name)
        self._bound = {each for each in self._bound if each[0] != name}

    def damaged(self, *, silently: bool) -> None:
        """A bit was flipped, so that any declaration may have to be made again."""
        self.is_damaged = True
        self.is_silent |= silently
        self._bound.clear()
        self._exchanges.clear()
        self.deleted.clear()
        self.wiring.is_changing = True
        if (dead := self.models.get("dead")) is not None:  # what seems to have expired is a dead letter, too
            for name in DEAD_LETTERING:
                if (model := self.models.get(name)) is not None:
                    dead.may_stray([copy.message for copy in model.copies.values()])

    # -- what comes back, and dead letters

    def requeued(self, held: Held) -> None:
        """A delivery goes back to its queue, and from one with a delivery limit perhaps to the queue `dead`."""
        self.models[held.queue].requeued(held.copy)
        self.came_back(held.queue, [held.copy])

    def came_back(self, name: str, copies: Iterable[Copy]) -> None:
        """Copies may have come back to a queue too often, and be dead letters."""
        dead = self.models.get("dead")
        model = self.models[name]
        if model.is_limited and dead is not None and (name in DEAD_LETTERING or model.dead_letters):
            all_copies = (*copies, *model.again())
            dead.may_stray([copy.message for copy in all_copies if copy.returns > RETURNS])

    def was_consumed(self, name: str) -> None:
        """A consumer of a queue was cancelled: what it was sent and did not take has come back."""
        model = self.models[name]
        model.may_have_come_back()
        self.came_back(name, model.copies.values())
        for copy in model.copies.values():
            if copy.state is State.READY and copy.is_redelivered is False:
                copy.is_redelivered = None  # the message may have been in delivery to the consumer

    def rejected_for_good(self, held: Held) -> None:
        """A delivery is about to be rejected."""
        model = self.models[held.queue]
        model.settled(held.copy, self.now())
        if held.queue in DEAD_LETTERING or model.dead_letters:
            exchange, key = model.graves
            message = held.copy.message
            if exchange == GRAVES and ("dead", GRAVES) not in self._bound:
                if (dead := self.models.get("dead")) is not None:
                    dead.may_stray([message])
                return
            self.dead_lettered(message, (exchange, message.way[1] if key is None else key))

    def dead_lettered(self, message: Message, way: tuple[str, str]) -> None:
        """A message was rejected by the client in a queue that dead-letters it on this way."""
        self.rejected[message.number] += 1
        dead = self.models.get("dead")
        if dead is None:  # deleted: the message goes nowhere
            return
        if self.rejected[message.number] > 1:
            dead.may_repeat(message)
        dead.dead_lettered(message, way)

    def rejects_were_cut_off(self, names: Collection[str]) -> None:
        """The processes of these queues were killed: a reject that one had not read makes no dead letter."""
        dead = self.models.get("dead")
        for copy in dead.copies.values() if dead is not None else ():
            is_cut_off = any(copy.message.number in self.models[name].copies for name in names)
            copy.may_be_gone |= copy.is_dead_letter and not copy.is_certain and is_cut_off

    def link_dead_letters(self) -> None:
        """A policy has changed, or the queue of dead letters was declared: what queues drop may come there."""
        dead = self.models.get("dead")
        for model in self.models.values():
            if model.spills or (model.spills_to is not None and model.spills_to is not dead):
                model.spill_to(dead)

    def bind_graves(self) -> None:
        """Declare the exchange of dead letters that keep their routing keys, and bind their queue to it."""
        self.broker.declare_exchange(GRAVES, "fanout")
        self._bind("dead", GRAVES, "")

    def dead_letters_arrived(self) -> None:
        """So much time has passed that a dead letter is where it goes, unless the disk was full."""
        if "dead" in self.models and not self.faults.ever_refused:
            self.models["dead"].dead_letters_arrived()
