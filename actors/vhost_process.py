"""The process of the virtual host (rabbit_vhost_process): what is declared, and bringing it up.

It starts last in the tree.  Its init is the recovery of the vhost: durable exchanges, queues and bindings are
read from the definitions, one queue process is started for each queue, and folders that belong to no queue are
removed.  Afterwards it answers declarations one at a time, so two declares of one name cannot cross.

A declaration of something durable is on disk before it is answered (a real RabbitMQ lost queues that were killed
within two seconds of their declare).  Transient things live in the tables alone, which outlive this process, but not the
broker.  What is asked of it stands in vhost_messages.py, the rules in queue_declarations.py and exchange_declarations.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warrenmq.actors.exchange_declarations import ExchangeDeclarations
from warrenmq.actors.queue_declarations import QueueDeclarations
from warrenmq.actors.queue_messages import Refused
from warrenmq.actors.vhost_messages import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Sync,
    Unbind,
)
from warrenmq.errors import Blocked, Error
from warrenmq.runtime import Down, Server
from warrenmq.runtime.shortage import shortage
from warrenmq.storage.disk import is_full

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.actors.vhost import Vhost
    from warrenmq.runtime import From, Name


class VhostProcess(Server):
    """rabbit_vhost_process: no state of its own but where the tables are.

    vhost        the tables and the directory
    queue_sup    name of the supervisor of the queue processes
    stores       names of the persistent and the transient store
    """

    def init(self, vhost: Vhost, queue_sup: Name, persistent_store: str, transient_store: str) -> None:
        """Recover the vhost (rabbit_vhost:recover)."""
        disk = vhost.disk.fenced(self.fence)
        stores = persistent_store, transient_store
        exchanges = ExchangeDeclarations(vhost)
        self._queues = queues = QueueDeclarations(self, vhost, exchanges, disk, queue_sup, stores)
        self._handlers: dict[type, Callable[[Any], Any]] = {
            DeclareQueue: queues.declare,
            DeleteQueue: queues.delete,
            DeclareExchange: exchanges.declare,
            DeleteExchange: exchanges.delete,
            Bind: exchanges.bind,
            Unbind: exchanges.unbind,
            Sync: lambda _: None,
        }
        vhost.is_up = False
        queues.recover()
        exchanges.recover()
        vhost.is_up = True
        queues.go_ahead()

    def handle_call(self, request: Any, sender: From) -> Any:  # noqa: ARG002  # OTP's signature
        """Answer one declaration; what it refuses comes back as Refused."""
        try:
            return self._handlers[type(request)](request)
        except Error as error:
            return Refused(error)
        except OSError as error:
            if is_full(error):
                return Refused(Blocked("the disk is full, so nothing was changed; make room and try again"))
            if (refusal := shortage(error, type(request).__name__)) is not None:
                return Refused(refusal)
            raise

    def handle_cast(self, message: Any) -> None:
        """A queue may go."""
        self._queues.may_go(message)

    def handle_info(self, message: Any) -> None:
        """A connection that has exclusive queues died, or a queue could not go before."""
        if isinstance(message, Down):
            self._queues.monitored_died(message.monitor)
        else:
            self._queues.may_go(message)
