"""Client: the application's side of a broker, below its public face: calls, each thread's publishing, acks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from pykka import ActorRef

from warrenmq.actors.store.messages import Statistics
from warrenmq.actors.vhost.messages import EnsureDelayQueue
from warrenmq.broker.calls import FaceCalls
from warrenmq.broker.engine import Engine
from warrenmq.broker.parts import Calls, Transacted
from warrenmq.broker.publisher import Publishing
from warrenmq.broker.retry import RetryPolicy
from warrenmq.broker.stats import (
    ActorStats,
    DelayStats,
    QueueStats,
    Stats,
    StoreStats,
    alarm_stats,
    damage_stats,
)
from warrenmq.errors import NotFound, ProcessDied
from warrenmq.queue.collected import OpenAcks
from warrenmq.queue.messages import Ack, Cancel, Drain, Info, Reject, Taken
from warrenmq.routing.delayed import LATER, exchange_of, store_of
from warrenmq.runtime.life import inbox_of
from warrenmq.seams.syncs import SYNCS
from warrenmq.supervisors.broker_sup import PERSISTENT_STORE, TRANSIENT_STORE, VHOST_PROCESS
from warrenmq.trace.recorder import ActorTrace


class Client:
    """The client's side of the broker, for any thread; consumers, transactions and migrations are made with it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runtime = engine.runtime
        self.settings = engine.settings
        self.calls = FaceCalls(engine.runtime, engine.vhost, engine.check_open, self.trace)
        self.next_consumer_id = count(1).__next__
        """Draws a number for a consumer, unique in this broker."""
        self.retry_policies: dict[str, RetryPolicy] = {}
        """Retry policies by queue."""
        self.publishing = engine.runtime.per_thread(self._new_publishing)

    def trace(self) -> ActorTrace | None:
        """The calling thread's trace: an application thread is a client in the trace."""
        trace = self.engine.trace
        return None if trace is None else trace.client()

    def _new_publishing(self) -> Publishing:
        engine = self.engine
        return Publishing(
            engine.runtime, engine.vhost.router, engine.vhost.ids, self.settings.credit_flow_default_credit[0],
            self.trace(), self.calls.address, self.calls.wake, engine.resources.alarms, engine.check_open,
        )  # fmt: skip

    def have_later(self) -> None:
        """Declare the queue in which delayed messages wait; it is on disk when this returns."""
        while not self.has_later:
            # the virtual host is being restarted; to be declared twice is to be declared
            with suppress(ProcessDied):
                self.calls.call_named(VHOST_PROCESS, EnsureDelayQueue())

    def waiting_later(self) -> int:
        """Messages in that queue, and on their way out of it."""
        if not self.has_later:
            return 0
        info, _ = self.calls.call_queue(LATER, Info())
        return int(info.ready + info.unacked)

    @property
    def has_later(self) -> bool:
        """True if that queue is there; the first message that is delayed makes it."""
        return self.engine.vhost.record(LATER) is not None

    def have_delayed(self, exchange: str | None) -> bool:
        """Declare, for a migration, the queue in which messages for a delayed exchange wait; None = those of `delay`.

        False if there is no such exchange.
        """
        if exchange is None:
            self.have_later()
            self.hold_delayed()
        return self.engine.vhost.record(LATER if exchange is None else store_of(exchange)) is not None

    def hold_delayed(self) -> None:
        """Release no delayed message any more until the broker is opened again; for migrations."""
        for name in self.engine.vhost.stores():
            self.calls.call_queue(name, Drain())

    def stats(self, calls: Calls) -> Stats:
        """Statistics of the whole broker by the calls of any caller, so that they include everything it did before."""
        engine = self.engine
        engine.check_open()
        queues = []
        for name in sorted(engine.vhost.router.queues):
            with suppress(NotFound):
                record = engine.vhost.queue(name)
                info, _ = calls.call_queue(name, Info())
                queues.append(QueueStats.of(name, info, durable=record is not None and record.durable))
        stores = [
            StoreStats.of(name, calls.call_named(name, Statistics()))
            for name in (PERSISTENT_STORE, TRANSIENT_STORE)
        ]
        delayed = []
        for name in sorted(engine.vhost.stores()):
            with suppress(NotFound):
                info, _ = self.calls.call_queue(name, Info())
                delayed.append(DelayStats(exchange_of(name), info.ready, info.unacked))
        actors = tuple(ActorStats(*each) for each in self.runtime.living())
        return Stats(
            tuple(queues), tuple(stores), actors, alarm_stats(engine.resources), engine.resources.alarms.waiting(),
            damage_stats(engine.vhost.damage, engine.path), self.runtime.stuck(), tuple(delayed),
            SYNCS.total,
        )  # fmt: skip

    def ack_one(self, ref: ActorRef[Any], acks: OpenAcks, tag: int) -> Transacted | None:
        """Cast the ack of one delivery to its queue, together with others that it receives at the same time;
        returns as `settle`.
        """
        if (pending := self.publishing.own.pending) is not None:
            pending.settle(ref, Ack(acks.consumer, tag))
            return pending
        acks.add(tag)
        if acks.on_its_way:
            return None
        try:
            acks.on_its_way = True
            self.runtime.cast(ref, acks, self.trace())
        except BaseException:  # a signal handler's: the next one sends it, perhaps again
            acks.on_its_way = False
            raise
        return None

    def settle(self, ref: ActorRef[Any], message: Ack | Reject | Taken | Cancel) -> Transacted | None:
        """Cast a consumer's message to its queue; a dead queue process needs no acks (its messages come again).

        Returns the transaction that keeps it; acks and rejects alone are kept.
        """
        pending = self.publishing.own.pending
        if pending is not None and isinstance(message, Ack | Reject):
            pending.settle(ref, message)
            return pending
        self.runtime.cast(ref, message, self.trace())
        return None

    def cast(self, ref: ActorRef[Any], message: Ack | Reject) -> None:
        """Send an ack or reject outside any transaction; thread-safe."""
        self.runtime.cast(ref, message)

    def on_end(self, ref: ActorRef[Any], notice: Callable[[Any], None]) -> Any:
        """Register `notice(reason)` to be called when a queue's process ends; returns a key for `forget`."""
        return inbox_of(ref).on_close(notice)

    def forget(self, ref: ActorRef[Any], key: Any) -> None:
        """Remove a callback of `on_end`."""
        inbox_of(ref).forget(key)
