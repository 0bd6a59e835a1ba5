"""exchange.* and queue.*: what a channel declares, binds, purges and deletes (rabbit_channel:handle_method/6).

The checks that stand here are the channel's: names, permissions, exclusive queues; everything else the vhost process
and the queue refuse, in RabbitMQ's words.  Needed permissions:

| method                      | configure    | write                  | read                |
| --------------------------- | ------------ | ---------------------- | ------------------- |
| exchange.declare            | the exchange | its alternate exchange | the exchange *      |
| exchange.delete             | the exchange |                        |                     |
| exchange.bind, unbind       |              | the destination        | the source          |
| queue.declare               | the queue    | its dead-letter exchange | the queue *       |
| queue.bind, unbind          |              | the queue              | the exchange        |
| queue.purge                 |              |                        | the queue           |
| queue.delete                | the queue    |                        |                     |
| passive declares            |              |                        |                     |

*) only with that other exchange, and only when it is new.
Binding to a topic exchange needs the topic permission read for the routing key, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pamqp import commands

from warrenmq.actors.sending.guid import OF_QUEUE, token
from warrenmq.actors.vhost.messages import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Sync,
    Unbind,
)
from warrenmq.amqp.channel.access import ChannelAccess
from warrenmq.amqp.channel.context import ConnectionContext
from warrenmq.amqp.channel.message import REPLY_TO
from warrenmq.amqp.channel.reply_to import ReplyTo
from warrenmq.amqp.channel.writer import ChannelWriter
from warrenmq.amqp.wire.errors import ACCESS_REFUSED, COMMAND_INVALID, PRECONDITION_FAILED, AmqpError
from warrenmq.broker.calls import ActorCalls
from warrenmq.directory.definitions import QueueRecord
from warrenmq.errors import NotFound
from warrenmq.queue.arguments import type_of
from warrenmq.queue.messages import Declared, Purge, Stat
from warrenmq.routing import TYPES, Binding, ExchangeSpec
from warrenmq.runtime import Runtime
from warrenmq.supervisors.broker_sup import VHOST_PROCESS

ALTERNATE, DEAD_LETTER = "alternate-exchange", "x-dead-letter-exchange"


class ChannelDeclarations:
    """The declarations of one channel; it belongs to the channel process."""

    def __init__(self, runtime: Runtime, context: ConnectionContext, calls: ActorCalls, access: ChannelAccess,
                 writer: ChannelWriter, reply_to: ReplyTo) -> None:  # fmt: skip
        self._runtime = runtime
        self._vhost = context.broker.inside.vhost
        self._connection = context.connection
        self._calls = calls
        self._access = access
        self._writer = writer
        self._reply_to = reply_to

    def _ask(self, request: Any) -> Any:
        return self._calls.call_named(VHOST_PROCESS, request)

    # -- exchanges

    def exchange_declare(self, method: commands.Exchange.Declare) -> None:
        """exchange.declare."""
        name = strip_cr_lf(method.exchange)
        access = self._access
        if not method.passive and method.exchange_type not in TYPES:
            raise AmqpError(COMMAND_INVALID, f"unknown exchange type '{method.exchange_type}'")
        access.not_default(name)
        if method.passive:
            if name not in self._vhost.router.exchanges:
                raise access.not_found("exchange", name)
        else:
            access.configure("exchange", name)
            if name not in self._vhost.router.exchanges:
                check_name("exchange", name)
                self._check_other(method.arguments, ALTERNATE, "exchange", name)
            self._ask(DeclareExchange(ExchangeSpec(name, method.exchange_type, method.durable, method.auto_delete,
                                                   method.internal, method.arguments)))  # fmt: skip
        if not method.nowait:
            self._writer.send(commands.Exchange.DeclareOk)

    def exchange_delete(self, method: commands.Exchange.Delete) -> None:
        """exchange.delete; no error if the exchange does not exist."""
        name = strip_cr_lf(method.exchange)
        self._access.not_default(name)
        if name.startswith("amq."):
            why = f"deletion of system {self._access.name('exchange', name)} not allowed"
            raise AmqpError(ACCESS_REFUSED, why)
        self._access.configure("exchange", name)
        try:
            self._ask(DeleteExchange(name, method.if_unused))
        except NotFound:
            pass
        if not method.nowait:
            self._writer.send(commands.Exchange.DeleteOk)

    def exchange_bind(self, method: commands.Exchange.Bind) -> None:
        """exchange.bind."""
        self._ask(Bind(self._exchange_binding(method), self._connection))
        if not method.nowait:
            self._writer.send(commands.Exchange.BindOk)

    def exchange_unbind(self, method: commands.Exchange.Unbind) -> None:
        """exchange.unbind."""
        self._ask(Unbind(self._exchange_binding(method), self._connection))
        if not method.nowait:
            self._writer.send(commands.Exchange.UnbindOk)

    # -- queues

    def queue_declare(self, method: commands.Queue.Declare) -> None:
        """queue.declare."""
        name = strip_cr_lf(method.queue)
        access = self._access
        messages, consumers = 0, 0
        if name.startswith(REPLY_TO):
            if not self._reply_to.exists(name):
                raise access.not_found("queue", name)
            consumers = 1
        elif method.passive:
            if self._vhost.queue(name) is None:
                raise access.not_found("queue", name)
            if not method.nowait:
                messages, consumers = self._counts(name)
            access.check_exclusive(name)
        else:
            if name:
                check_name("queue", name)
            else:
                name = OF_QUEUE + token(self._runtime)
            access.configure("queue", name)
            if self._vhost.queue(name) is None:
                self._check_other(method.arguments, DEAD_LETTER, "queue", name)
            record = QueueRecord(name, method.durable and not method.exclusive, method.exclusive, method.auto_delete,
                                 method.arguments)  # fmt: skip
            if method.nowait:
                self._ask(DeclareQueue(record, self._connection))
            else:
                messages, consumers = self._declared(record)
        access.last_declared = name
        if not method.nowait:
            self._writer.send(
                commands.Queue.DeclareOk, queue=name, message_count=messages, consumer_count=consumers
            )

    def _declared(self, record: QueueRecord) -> tuple[int, int]:
        """Declare a queue: ready messages and consumers.

        One that is there may be about to go: it is declared again, where rabbit_amqqueue:with looks it up again.
        """
        while True:
            self._ask(DeclareQueue(record, self._connection))
            with suppress(NotFound):
                counts = self._counts(record.name)
                if record.auto_delete and not counts.consumers:
                    self._ask(Sync())  # its last consumer may have gone before it was counted
                    self._vhost.existing_queue(record.name)
                return counts

    def _counts(self, queue: str) -> Declared:
        """Ready messages and consumers."""
        declared: Declared = self._calls.call_queue(queue, Stat())[0]
        return declared

    def queue_bind(self, method: commands.Queue.Bind) -> None:
        """queue.bind; an empty queue name is the last declared one, and so is an empty key with it."""
        self._ask(Bind(self._queue_binding(method), self._connection))
        if not method.nowait:
            self._writer.send(commands.Queue.BindOk)

    def queue_unbind(self, method: commands.Queue.Unbind) -> None:
        """queue.unbind."""
        self._ask(Unbind(self._queue_binding(method), self._connection))
        self._writer.send(commands.Queue.UnbindOk)

    def queue_purge(self, method: commands.Queue.Purge) -> None:
        """queue.purge."""
        name = self._access.queue_or_last(method.queue)
        self._access.read("queue", name)
        self._access.queue(name)
        count, _ = self._calls.call_queue(name, Purge())
        if not method.nowait:
            self._writer.send(commands.Queue.PurgeOk, message_count=count)

    def queue_delete(self, method: commands.Queue.Delete) -> None:
        """queue.delete; no error if the queue does not exist."""
        name = strip_cr_lf(self._access.queue_or_last(method.queue))
        self._access.configure("queue", name)
        self._access.check_exclusive(name)
        try:
            count = self._ask(DeleteQueue(name, method.if_unused, method.if_empty, self._connection))
        except NotFound:
            count = 0
        if not method.nowait:
            self._writer.send(commands.Queue.DeleteOk, message_count=count)

    # -- bindings

    def _exchange_binding(self, method: commands.Exchange.Bind | commands.Exchange.Unbind) -> Binding:
        return self._binding(
            "exchange", method.destination, method.source, method.routing_key, method.arguments
        )

    def _queue_binding(self, method: commands.Queue.Bind | commands.Queue.Unbind) -> Binding:
        queue = self._access.queue_or_last(method.queue)
        key = method.routing_key
        if not method.queue and not key:
            key = queue
        return self._binding("queue", queue, method.exchange, key, method.arguments)

    def _binding(
        self, kind: str, destination: str, source: str, key: str, arguments: dict[str, Any]
    ) -> Binding:
        destination, source = strip_cr_lf(destination), strip_cr_lf(source)
        access = self._access
        access.write(kind, destination)
        if kind == "exchange":
            access.not_default(destination)
        access.not_default(source)
        access.read("exchange", source)
        access.read_topic(source, key)
        return Binding(destination, source, key, arguments, kind)

    def _check_other(self, arguments: dict[str, Any], argument: str, kind: str, name: str) -> None:
        """Check the permissions for the alternate or dead-letter exchange that a declaration names."""
        other = arguments.get(argument)
        if not isinstance(other, str | None):
            text = f"invalid type '{type_of(arguments, argument)}' for arg '{argument}' in {self._access.name(kind, name)}"
            raise AmqpError(PRECONDITION_FAILED, text)
        if other is not None:
            self._access.read(kind, name)
            self._access.write("exchange", other)


def strip_cr_lf(name: str) -> str:
    """Remove CR and LF from a name, as RabbitMQ does."""
    return name.replace("\n", "").replace("\r", "")


def check_name(kind: str, name: str) -> None:
    """Raise AmqpError 403 for names that begin with amq."""
    if name.startswith("amq."):
        raise AmqpError(ACCESS_REFUSED, f"{kind} name '{name}' contains reserved prefix 'amq.*'")
