"""The process of the virtual host (rabbit_vhost_process): what is declared, and bringing it up.

It starts last in the tree.  Its init is the recovery of the vhost: durable exchanges, queues and bindings are
read from the definitions, one queue process is started for each queue, and folders that belong to no queue are
removed.  Afterwards it answers declarations one at a time, so two declares of one name cannot cross.

A declaration of something durable is on disk before it is answered (a real RabbitMQ lost queues that were killed
within two seconds of their declare).  Transient things live in the tables alone, which outlive this process, but not the
broker.  Its messages stand in actors/vhost/messages.py, the rules in queue_declarations.py and exchange_declarations.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warrenmq.actors.sending.message_sender import NO_QUEUE
from warrenmq.actors.vhost.exchange_declarations import ExchangeDeclarations
from warrenmq.actors.vhost.messages import (
    Bind,
    ClearParameter,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    EnsureDelayQueue,
    SetParameter,
    Sync,
    Unbind,
    Wake,
)
from warrenmq.actors.vhost.parameters import Parameters
from warrenmq.actors.vhost.queue_declarations import QueueDeclarations, refusal_of
from warrenmq.actors.vhost.routing_trace import RoutingTrace
from warrenmq.actors.vhost.vhost import Vhost, queue_name
from warrenmq.errors import ResourceError
from warrenmq.log import Log
from warrenmq.queue.messages import Forward, MakeRoom
from warrenmq.routing.delayed import LATER
from warrenmq.runtime import Down, From, Name, Server
from warrenmq.seams.fenced_disk import FencedDisk

log = Log("warrenmq.vhost")

_TELL_EVERY_NS = 10_000_000_000
"""Nanoseconds between two lines on queues that cannot be opened."""


class VhostProcess(Server):
    """rabbit_vhost_process: no state of its own but where the tables are.

    vhost        the tables and the directory
    queue_sup    name of the supervisor of the queue processes
    stores       names of the persistent and the transient store
    """

    helpable = True
    requests = frozenset({
        DeclareQueue, DeleteQueue, DeclareExchange, DeleteExchange, Bind, Unbind, Wake, EnsureDelayQueue,
        SetParameter, ClearParameter, Sync,
    })  # fmt: skip

    @staticmethod
    def undelivered(message: Any) -> None:
        """A publish that will never be forwarded is nacked."""
        if isinstance(message, Forward):
            message.promise.nack(NO_QUEUE)

    def init(self, vhost: Vhost, queue_sup: Name, persistent_store: str, transient_store: str) -> None:
        """Recover the vhost (rabbit_vhost:recover)."""
        disk = FencedDisk(vhost.disk, self.fence)
        stores = persistent_store, transient_store
        exchanges = ExchangeDeclarations(vhost)
        self._queues = queues = QueueDeclarations(self, vhost, exchanges, disk, queue_sup, stores)
        exchanges.stores = queues
        parameters = Parameters(vhost, queues)
        parameters.tell_refused()
        self._handlers: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
            Wake: (lambda wake: wake, lambda wake: queues.wake(wake.name)),
            DeleteQueue: (queues.check_delete, queues.delete),
            DeclareExchange: (exchanges.check_declare, exchanges.declare),
            DeleteExchange: (exchanges.check_delete, exchanges.delete),
            Bind: (exchanges.check_bind, exchanges.bind),
            Unbind: (exchanges.check_unbind, exchanges.unbind),
            EnsureDelayQueue: (lambda have: have, lambda _: queues.have_store(LATER, durable=True)),
            SetParameter: (parameters.check_set, parameters.set),
            ClearParameter: (parameters.check_clear, parameters.clear),
            Sync: (lambda sync: sync, lambda _: None),
        }
        self._tell_from = 0
        vhost.is_up = False
        queues.recover()
        exchanges.recover()
        if self.trace is not None and self.runtime.recorder is not None:
            vhost.router.listen(RoutingTrace(self.runtime.recorder, self.trace))
        vhost.is_up = True
        queues.go_ahead()

    def check_call(self, request: Any) -> Any:
        """Refuse a declaration that breaks a rule; nothing has been changed then."""
        self._queues.before(request)
        if type(request) is DeclareQueue:
            return self._queues.check_declare(request)
        check, _ = self._handlers[type(super().check_call(request))]
        return check(request)

    def handle_call(self, request: Any, sender: From) -> Any:
        """Do what one declaration says, which has been checked."""
        try:
            if type(request) is DeclareQueue:
                return self._queues.declare(request, sender)
            _, change = self._handlers[type(request)]
            return change(request)
        except OSError as error:
            what = str(queue_name(request.name)) if type(request) is Wake else type(request).__name__
            if (refusal := refusal_of(error, what)) is None:
                raise
            if type(request) is Wake:
                self._tell(refusal)
            raise refusal from error
        except ResourceError as refusal:
            if type(request) is Wake:
                self._tell(refusal)
            raise

    def _tell(self, refusal: Exception) -> None:
        """Log, now and then, that queues cannot be opened: a client whose publish is refused hears no reason."""
        now = self.runtime.monotonic_ns()
        if now >= self._tell_from:
            self._tell_from = now + _TELL_EVERY_NS
            log.warning(
                "queues that sleep cannot be opened, and messages for them are refused", reason=str(refusal)
            )

    def handle_cast(self, message: Any) -> None:
        """A queue may go; one that sleeps is sent something; or one needs descriptors."""
        if type(message) is Forward:
            self._queues.forward(message)
        elif type(message) is MakeRoom:
            self._queues.make_room()
        else:
            self._queues.may_go(message)

    def handle_info(self, message: Any) -> None:
        """A connection that has exclusive queues died, or a queue could not go before."""
        if isinstance(message, Down):
            self._queues.monitored_died(message.monitor)
        else:
            self._queues.may_go(message)

    def mailbox_empty(self) -> None:
        """Make all queues that were declared meanwhile durable together."""
        self._queues.settle()
