"""Translate requests of the Broker API (actors/vhost/messages.py, queue/messages.py) into AMQP methods or calls of amqp/channel/rpc.py."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
from pamqp.commands import Basic, Exchange, Queue

from warrenmq.actors.vhost.messages import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Unbind,
)
from warrenmq.amqp.channel.message import REPLY_TO
from warrenmq.amqp.channel.rpc import RPC
from warrenmq.amqp.wire.codec import encode_content, encode_method, make, raw_properties
from warrenmq.broker.stats import queue_memory_of
from warrenmq.checks import shown
from warrenmq.errors import BrokerClosed, CommandInvalid, NotFound
from warrenmq.message.properties import Properties
from warrenmq.queue.messages import Get, Info, Peek, Purge, QueueInfo
from warrenmq.routing import TYPES, Binding
from warrenmq.shared.channel import Answer, ClientChannel, Content, Received
from warrenmq.shared.errors import LinkLost, error_called
from warrenmq.shared.patience import at_most

_TAG = "answers"
_ENDING = 5.0
"""Seconds in which an owner whose broker is closed ends its connections."""


class CallChannel(ClientChannel):
    """A channel for synchronous calls, one at a time."""

    _listens = False

    def ask(self, name: str, **arguments: Any) -> Any:
        """Make a call of amqp/channel/rpc.py; raises the error that the owner answers with, LinkLost where it was about to end."""
        if not self._listens:
            self.call(Basic.Consume, queue=REPLY_TO, consumer_tag=_TAG, no_ack=True)
            self._listens = True
        publish = encode_method(self.number, make(Basic.Publish, exchange="", routing_key=RPC))
        body = msgpack.packb({"call": name, **arguments})
        frames = encode_content(self.number, publish, _PROPERTIES, body, self.connection.frame_max)
        answer = self.wait_for(self.ask_with(b"".join(frames), Answer(rpc=True)))
        said: dict[str, Any] = msgpack.unpackb(answer.body)
        if "error" in said:
            error = error_called(said["error"], said["text"])
            if isinstance(error, BrokerClosed) and self.connection.wait_for_end(at_most(_ENDING)):
                raise LinkLost(str(error))
            raise error
        return said["value"]

    def content(self, start: bytes, content: Content) -> None:  # noqa: ARG002
        """The answer to the oldest `ask`."""
        self._answer(content, rpc=True)

    def perform(self, request: Any, queue: str = "") -> Any:
        """Carry out a request of the Broker API; `queue` names the queue whose process it is for."""
        match request:
            case DeclareQueue(record):
                return self.call(
                    Queue.Declare, queue=record.name, durable=record.durable, exclusive=record.exclusive,
                    auto_delete=record.auto_delete, arguments=dict(record.arguments),
                ).queue  # fmt: skip
            case DeclareExchange(spec):
                if spec.type not in TYPES:  # the owner would close the connection
                    raise CommandInvalid(f"there is no exchange type {spec.type!r}; use {', '.join(TYPES)}")
                self.call(
                    Exchange.Declare, exchange=spec.name, exchange_type=spec.type, durable=spec.durable,
                    auto_delete=spec.auto_delete, internal=spec.internal, arguments=dict(spec.arguments),
                )  # fmt: skip
            case Bind(binding):
                self._bind(binding, Queue.Bind, Exchange.Bind)
            case Unbind(binding):
                if binding.destination_type == "queue" and not binding.destination:
                    return None  # a binding that is missing is no error
                self._bind(binding, Queue.Unbind, Exchange.Unbind)
            case DeleteQueue(name, if_unused, if_empty):
                self.check_queue(name)  # AMQP's delete of none is fine
                return self.call(
                    Queue.Delete, queue=name, if_unused=if_unused, if_empty=if_empty
                ).message_count
            case DeleteExchange(name, if_unused):
                self.check_exchange(name)
                self.call(Exchange.Delete, exchange=name, if_unused=if_unused)
            case Purge():
                return self.call(Queue.Purge, queue=queue).message_count
            case Info():
                found = self.ask("info", queue=queue)
                return QueueInfo(**{**found, "memory": queue_memory_of(found["memory"])})
            case Peek(most):
                return [
                    Received(body, len(body), redelivered, exchange, key, raw)
                    for exchange, key, raw, body, redelivered in self.ask("peek", queue=queue, most=most)
                ]
            case _:
                raise TypeError(request)
        return None

    def check_queue(self, name: str) -> None:
        """Raise NotFound or ResourceLocked unless this process may use the queue."""
        found = self.call(Queue.Declare, queue=name, passive=True).queue
        if found != name:  # the owner drops line ends in a declare (rabbit_channel:strip_cr_lf)
            raise _no_queue(name)

    def check_exchange(self, name: str) -> None:
        """Raise NotFound unless the exchange exists."""
        self.call(Exchange.Declare, exchange=name, exchange_type="direct", passive=True)

    def _bind(self, binding: Binding, of_queue: Any, of_exchange: Any) -> None:
        values = {"routing_key": binding.routing_key, "arguments": dict(binding.arguments)}
        if binding.destination_type == "queue":
            check_named(binding.destination)
            self.call(of_queue, queue=binding.destination, exchange=binding.source, **values)
        else:
            self.call(of_exchange, destination=binding.destination, source=binding.source, **values)


def check_named(queue: str) -> None:
    """NotFound for the empty name, which to AMQP is the queue that the channel declared last."""
    if not queue:
        raise _no_queue(queue)


def _no_queue(name: str) -> NotFound:
    return NotFound(f"there is no queue {shown(name)}; declare it first")


_PROPERTIES = raw_properties(Properties(reply_to=REPLY_TO))


def may_repeat(request: Any) -> bool:
    """True for an idempotent request, which may be sent again to the next owner.

    | request                                          | twice                                  |
    | ------------------------------------------------ | -------------------------------------- |
    | declare with a name, bind, unbind, look, consume | the same as once                       |
    | declare without a name                           | two queues                             |
    | get with acks                                    | the first one's message comes again    |
    | get without                                      | the first one's message is lost        |
    | delete, purge                                    | another answer                         |
    """
    match request:
        case DeclareQueue(record):
            return bool(record.name)
        case Get():
            return not request.no_ack
        case DeleteQueue() | DeleteExchange() | Purge():
            return False
    return True
