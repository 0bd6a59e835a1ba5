"""Translate requests of the Broker API (actors/vhost/messages.py, queue/messages.py) into calls of amqp/channel/rpc.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]
from pamqp.commands import Basic

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
from warrenmq.amqp.wire.codec import encode_content, encode_method, encode_table, make, raw_properties
from warrenmq.broker.stats import queue_memory_of
from warrenmq.errors import ArgumentValueError, BrokerClosed, NotFound
from warrenmq.message.properties import Properties
from warrenmq.queue.messages import Get, Info, Peek, Purge, QueueInfo
from warrenmq.routing import Binding
from warrenmq.shared.channel import Answer, ClientChannel, Content, Received
from warrenmq.shared.errors import LinkLost, error_in
from warrenmq.shared.patience import at_most

_TAG = "answers"
_ENDING = 5.0
"""Seconds in which an owner whose broker is closed ends its connections."""


class CallChannel(ClientChannel):
    """A channel for synchronous calls, one at a time."""

    _listens = False

    def ask(self, name: str, **arguments: Any) -> Any:
        """Make a call of amqp/channel/rpc.py; raises the error that the owner answers with, LinkLost where it
        was about to end.
        """
        if not self._listens:
            self.call(Basic.Consume, queue=REPLY_TO, consumer_tag=_TAG, no_ack=True)
            self._listens = True
        publish = encode_method(self.number, make(Basic.Publish, exchange="", routing_key=RPC))
        body = msgpack.packb({"call": name, **arguments})
        frames = encode_content(self.number, publish, _PROPERTIES, body, self.connection.frame_max)
        answer = self.wait_for(self.ask_with(b"".join(frames), Answer(rpc=True)))
        said: dict[str, Any] = msgpack.unpackb(answer.body)
        if "error" in said:
            error = error_in(said)
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
                return self.ask(
                    "declare_queue", queue=record.name, durable=record.durable, exclusive=record.exclusive,
                    auto_delete=record.auto_delete, arguments=_table(record.arguments),
                )  # fmt: skip
            case DeclareExchange(spec):
                return self.ask(
                    "declare_exchange", exchange=spec.name, type=spec.type, durable=spec.durable,
                    auto_delete=spec.auto_delete, internal=spec.internal, arguments=_table(spec.arguments),
                )  # fmt: skip
            case Bind(binding):
                return self._bind("bind", binding)
            case Unbind(binding):
                return self._bind("unbind", binding)
            case DeleteQueue(name, if_unused, if_empty):
                return self.ask("delete_queue", queue=name, if_unused=if_unused, if_empty=if_empty)
            case DeleteExchange(name, if_unused):
                return self.ask("delete_exchange", exchange=name, if_unused=if_unused)
            case Purge():
                return self.ask("purge", queue=queue)
            case Info():
                found = self.ask("info", queue=queue)
                return QueueInfo(**{**found, "memory": queue_memory_of(found["memory"])})
            case Peek(most):
                return [
                    Received(body, len(body), redelivered, exchange, key, raw)
                    for exchange, key, raw, body, redelivered in self.ask("peek", queue=queue, most=most)
                ]
        raise TypeError(request)

    def _bind(self, call: str, binding: Binding) -> None:
        self.ask(
            call, destination=binding.destination, source=binding.source, routing_key=binding.routing_key,
            arguments=_table(binding.arguments), destination_type=binding.destination_type,
        )  # fmt: skip


def _table(arguments: Mapping[str, Any]) -> bytes:
    """A table as AMQP has it; ArgumentValueError for one that AMQP has no room for."""
    try:
        return encode_table(dict(arguments))
    except (ValueError, TypeError, OverflowError) as why:
        raise ArgumentValueError(f"arguments cannot be sent to the owner of the directory: {why}") from why


def check_named(queue: str) -> None:
    """NotFound for the empty name, which to AMQP is the queue that the channel declared last."""
    if not queue:
        raise NotFound(f"there is no queue {queue!r}; declare it first")


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
