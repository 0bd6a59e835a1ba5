"""What an application declares: queues, exchanges and bindings, had, looked up, undone."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from warrenmq.actors.vhost.messages import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Unbind,
)
from warrenmq.broker.arguments import Named, table
from warrenmq.broker.arguments import name as name_of
from warrenmq.broker.calls import ActorCalls
from warrenmq.broker.handles import Exchange, Queue
from warrenmq.checks import flag, is_a, short_text, shown, text
from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import ArgumentValueError
from warrenmq.queue.messages import Purge
from warrenmq.routing import Binding, ExchangeSpec
from warrenmq.supervisors.broker_sup import VHOST_PROCESS

if TYPE_CHECKING:
    from collections.abc import Mapping


class Declarations(ActorCalls):
    """The part of a Broker that declares."""

    def __init__(self) -> None:
        self._exclusive_queues: list[str] = []
        """Those of this Broker, which go when it is closed."""

    @abstractmethod
    def queue_handle(self, name: str) -> Queue:
        """What is returned for a queue that is there."""

    @abstractmethod
    def exchange_handle(self, name: str) -> Exchange:
        """What is returned for an exchange that is there."""

    def declare_queue(self, name: str = "", *, durable: bool = True, exclusive: bool = False,
                      auto_delete: bool = False, arguments: Mapping[str, Any] | None = None) -> Queue:  # fmt: skip
        """Have a queue; a durable one is on disk when this returns.

        An empty name is replaced by one of the broker's ("amq.gen-...").  An exclusive queue lives as long as this
        Broker and is not durable.  Arguments that RabbitMQ's classic queues know (x-message-ttl, x-dead-letter-exchange
        and so on) are checked, others are kept.  Raises PreconditionFailed when a queue of this name exists with other
        properties or an argument is wrong, AccessRefused for names that begin with "amq.", ResourceLocked when the queue is
        exclusive to somebody else.
        """
        record = QueueRecord(short_text("name", name), flag("durable", durable), flag("exclusive", exclusive),
                             flag("auto_delete", auto_delete), table("arguments", arguments))  # fmt: skip
        name = self.call_named(VHOST_PROCESS, DeclareQueue(record))
        if exclusive:
            self._exclusive_queues.append(name)
        return self.queue_handle(name)

    def declare_exchange(self, name: str, type: str = "direct", *, durable: bool = True,
                         auto_delete: bool = False, internal: bool = False,
                         arguments: Mapping[str, Any] | None = None) -> Exchange:  # fmt: skip
        """Have an exchange of type "direct", "fanout", "topic" or "headers"; a durable one is on disk when this returns.

        An auto-delete exchange goes when the last binding goes that leads away from it.  Nobody can publish to an internal
        one; messages come through bindings of other exchanges to it.  Argument "alternate-exchange" names the
        exchange for messages that match nothing.  Raises PreconditionFailed when an exchange of this name exists with other
        properties, AccessRefused for names that begin with "amq." and are not there, CommandInvalid for another type.
        """
        spec = ExchangeSpec(short_text("name", name), short_text("type", type), flag("durable", durable),
                            flag("auto_delete", auto_delete), flag("internal", internal), table("arguments", arguments))  # fmt: skip
        self.call_named(VHOST_PROCESS, DeclareExchange(spec))
        return self.exchange_handle(spec.name)

    def bind(self, destination: str | Named, source: str | Named, routing_key: str = "",
             arguments: Mapping[str, Any] | None = None, *, destination_type: str | None = None) -> None:  # fmt: skip
        """Route messages of exchange `source` to a queue or another exchange; on disk when this returns, if both are durable.

        What `destination` is, its handle says; a name is a queue's, or with destination_type="exchange" an exchange's.
        Which messages: by type of the source those with this routing key, all, those whose key fits the
        pattern ("*" is one word, "#" any number), those whose headers fit the arguments ("x-match": "all", "any",
        "all-with-x" or "any-with-x").  NotFound, AccessRefused for the default exchange, PreconditionFailed for a
        wrong x-match.
        """
        self.call_named(
            VHOST_PROCESS, Bind(_binding(destination, source, routing_key, arguments, destination_type))
        )

    def unbind(self, destination: str | Named, source: str | Named, routing_key: str = "",
               arguments: Mapping[str, Any] | None = None, *, destination_type: str | None = None) -> None:  # fmt: skip
        """Undo a binding, all of whose particulars have to be given again; no error when there is none (AMQP)."""
        self.call_named(
            VHOST_PROCESS, Unbind(_binding(destination, source, routing_key, arguments, destination_type))
        )

    def delete_queue(self, name: str | Named, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue and its messages; returns how many were ready.  NotFound, PreconditionFailed."""
        deleted = self.call_named(
            VHOST_PROCESS,
            DeleteQueue(name_of("name", name), flag("if_unused", if_unused), flag("if_empty", if_empty)),
        )
        return int(deleted)

    def delete_exchange(self, name: str | Named, *, if_unused: bool = False) -> None:
        """Delete an exchange and its bindings; its queues stay, auto-delete exchanges that led to nothing else go.

        NotFound, PreconditionFailed when it is used and must not be, AccessRefused for names that begin with "amq.".
        """
        self.call_named(VHOST_PROCESS, DeleteExchange(name_of("name", name), flag("if_unused", if_unused)))

    def purge(self, name: str | Named) -> int:
        """Drop all ready messages of a queue; returns how many.  Unacked ones stay."""
        return int(self.call_queue(name_of("name", name), Purge())[0])

    def queue(self, name: str) -> Queue:
        """A queue that exists (AMQP's passive declare); NotFound when it does not."""
        self.check_open()
        plain = name_of("name", name)
        self.vhost.check_exclusive_access(self.vhost.existing_queue(plain), None)
        return self.queue_handle(plain)


def _binding(destination: str | Named, source: str | Named, routing_key: str,
             arguments: Mapping[str, Any] | None, destination_type: str | None) -> Binding:  # fmt: skip
    if destination_type is None:
        destination_type = "exchange" if is_a(destination, Exchange) else "queue"
    elif text("destination_type", destination_type) not in ("queue", "exchange"):
        msg = f"destination_type is {shown(destination_type)}; use 'queue' or 'exchange'"
        raise ArgumentValueError(msg)
    return Binding(name_of("destination", destination), name_of("source", source), short_text("routing_key", routing_key),
                   table("arguments", arguments), text("destination_type", destination_type))  # fmt: skip
