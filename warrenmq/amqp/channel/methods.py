"""Dispatches each method to the part of a channel that handles it (the clauses of rabbit_channel:handle_method).

Short handlers are here: the class channel, the modes tx and confirm, and settling, which a transaction defers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from pamqp import commands
from pamqp.base import Frame as Method

from warrenmq.amqp.channel.access_methods import TICKET, AccessRequest, AccessRequestOk
from warrenmq.amqp.channel.consuming import ChannelConsuming
from warrenmq.amqp.channel.declarations import ChannelDeclarations
from warrenmq.amqp.channel.publishing import ChannelPublishing
from warrenmq.amqp.channel.settling import Settling
from warrenmq.amqp.channel.transaction import Transaction
from warrenmq.amqp.channel.writer import ChannelWriter
from warrenmq.amqp.wire.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    AmqpError,
    of_caller_error,
)
from warrenmq.errors import BrokerClosed, CallerError, Error, ProcessDied, ResourceError

Handler: TypeAlias = "Callable[[Any], object]"


class ChannelMethods:
    """The methods of one channel; it belongs to the channel process, of which `close` is channel.close."""

    def __init__(self, writer: ChannelWriter, publishing: ChannelPublishing, consuming: ChannelConsuming,
                 settling: Settling, transaction: Transaction, declarations: ChannelDeclarations,
                 close: Callable[[], object]) -> None:  # fmt: skip
        self._open = False
        """True after channel.open."""
        self._writer = writer
        self._publishing = publishing
        self._settling = settling
        self._transaction = transaction
        channel, basic, exchange, queue, tx = (
            commands.Channel, commands.Basic, commands.Exchange, commands.Queue, commands.Tx,
        )  # fmt: skip
        self._handlers: dict[type[Method], Handler] = {
            channel.Open: self._channel_open,
            channel.Close: lambda _method: close(),
            channel.Flow: self._flow,
            AccessRequest: lambda _method: writer.send(AccessRequestOk, ticket=TICKET),
            basic.Ack: self._ack,
            basic.Nack: lambda method: self._reject(method, multiple=method.multiple),
            basic.Reject: lambda method: self._reject(method, multiple=False),
            basic.Recover: self._recover,
            basic.RecoverAsync: self._recover_async,
            basic.Consume: consuming.consume,
            basic.Cancel: consuming.cancel,
            basic.Get: consuming.get,
            basic.Qos: consuming.qos,
            exchange.Declare: declarations.exchange_declare,
            exchange.Delete: declarations.exchange_delete,
            exchange.Bind: declarations.exchange_bind,
            exchange.Unbind: declarations.exchange_unbind,
            queue.Declare: declarations.queue_declare,
            queue.Bind: declarations.queue_bind,
            queue.Unbind: declarations.queue_unbind,
            queue.Purge: declarations.queue_purge,
            queue.Delete: declarations.queue_delete,
            commands.Confirm.Select: self._confirm_select,
            tx.Select: self._tx_select,
            tx.Commit: self._tx_commit,
            tx.Rollback: self._tx_rollback,
        }

    def handle(self, method: Method) -> None:
        """Handle one method; AmqpError and Error for what is refused."""
        kind = type(method)
        if kind is not commands.Basic.Ack:
            self._settling.flush()  # later methods must find earlier acks done
        if not self._open and kind is not commands.Channel.Open:
            raise AmqpError(CHANNEL_ERROR, "expected 'channel.open'")
        if kind is not commands.Channel.Close:
            self._transaction.check_idle()
        handler = self._handlers.get(kind)
        if handler is None:
            raise AmqpError(COMMAND_INVALID, "unimplemented method")
        handler(method)

    def _channel_open(self, _method: commands.Channel.Open) -> None:
        if self._open:
            raise AmqpError(CHANNEL_ERROR, "second 'channel.open' seen")
        self._open = True
        self._writer.send(commands.Channel.OpenOk)

    def _flow(self, method: commands.Channel.Flow) -> None:
        if not method.active:
            raise AmqpError(NOT_IMPLEMENTED, "active=false")
        self._writer.send(commands.Channel.FlowOk, active=True)

    def _ack(self, method: commands.Basic.Ack) -> None:
        acked = self._settling.unacked.take(method.delivery_tag or 0, multiple=method.multiple)
        if self._transaction.selected:
            self._transaction.settle(acked, requeue=None)
        else:
            self._settling.ack(acked)

    def _reject(self, method: commands.Basic.Nack | commands.Basic.Reject, *, multiple: bool) -> None:
        rejected = self._settling.unacked.take(method.delivery_tag or 0, multiple=multiple)
        if self._transaction.selected:
            self._transaction.settle(rejected, requeue=method.requeue)
        else:
            self._settling.reject(rejected, requeue=method.requeue, prefix=multiple)

    def _recover_async(self, method: commands.Basic.Recover | commands.Basic.RecoverAsync) -> None:
        if not method.requeue:
            raise AmqpError(NOT_IMPLEMENTED, "requeue=false")
        self._settling.recover(prefix=not self._transaction.selected)

    def _recover(self, method: commands.Basic.Recover) -> None:
        self._recover_async(method)
        self._writer.send(commands.Basic.RecoverOk)

    def _confirm_select(self, method: commands.Confirm.Select) -> None:
        if self._transaction.selected:
            raise AmqpError(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self._publishing.confirms.enabled = True
        if not method.nowait:
            self._writer.send(commands.Confirm.SelectOk)

    def _tx_select(self, _method: commands.Tx.Select) -> None:
        self._transaction.select()
        self._writer.send(commands.Tx.SelectOk)

    def _tx_commit(self, _method: commands.Tx.Commit) -> None:
        self._transaction.commit()
        self.complete_commit()

    def complete_commit(self) -> None:
        """Answer tx.commit, if there is one and no queue owes a confirm any more."""
        if self._transaction.complete():
            self._writer.send(commands.Tx.CommitOk)

    def _tx_rollback(self, _method: commands.Tx.Rollback) -> None:
        self._transaction.rollback()
        self._writer.send(commands.Tx.RollbackOk)


def error_of(error: Error, method: tuple[int, int]) -> AmqpError:
    """The protocol error for a broker error that `method` met.

    | error                     | code | closes         |                                            |
    | ------------------------- | ---- | -------------- | ------------------------------------------ |
    | a CallerError             | its  | the channel    |                                            |
    | ResourceError             | 406  | the channel    | as for a vhost's limit of queues           |
    | ProcessDied               | 541  | the channel    | as for a channel that crashed              |
    | Blocked: the disk is full | 506  | the connection |                                            |
    | BrokerClosed              | 320  | the connection |                                            |
    """
    if isinstance(error, CallerError):
        return of_caller_error(error, method)
    if isinstance(error, ResourceError):
        return AmqpError(PRECONDITION_FAILED, str(error), *method, cause=error)
    if isinstance(error, ProcessDied):
        return AmqpError(INTERNAL_ERROR, str(error), *method, cause=error)
    return AmqpError(
        CONNECTION_FORCED if isinstance(error, BrokerClosed) else RESOURCE_ERROR, str(error), *method
    )
