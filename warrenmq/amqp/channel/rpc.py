"""Calls that AMQP has no method for: state of the broker, answered by the channel itself.

A client publishes to the default exchange with the routing key `amq.warrenmq.rpc`, as body a msgpack map
{"call": name, ...arguments}, and as reply_to amq.rabbitmq.reply-to.  The answer is a direct reply with the same
correlation_id, a msgpack map: {"value": ...}, or {"error": class, "text": sentence} where the call was refused.

    call                           arguments       value
    stats                                          Stats.as_dict()
    queues                                         names, sorted
    queue                          queue           None: the connection may use the queue
    minds_consumers                queue           as ActorCalls.minds_consumers
    declare_queue                  queue, durable, exclusive, auto_delete, arguments: the queue's name
    declare_exchange               exchange, type, durable, auto_delete, internal, arguments
    bind, unbind                   destination, source, routing_key, arguments, destination_type
    delete_queue                   queue, if_unused, if_empty: the ready messages
    delete_exchange                exchange, if_unused
    purge                          queue           the ready messages
    check_publish                  exchange        None: it takes publishes
    info                           queue           the fields of QueueInfo
    peek                           queue, most     a list of [exchange, routing key, properties as AMQP has them, body, redelivered]
    publish_later                  exchange, routing_key, bodies, properties, persistent, due: as Publishing.publish_later
    publish_copy                   queues, exchange, routing_keys, body, before, properties, persistent, due: as publish_copy
    route                          exchange, routing_key, properties: the queues that a message would go to
    set_vm_memory_high_watermark   limit           bytes
    set_disk_free_limit            limit           bytes
    set_policy                     policy          None; a list of Policy's fields
    clear_policy                   policy, its name; operator  None
    policies                                       a list of such lists

Arguments are tables as AMQP has them.  Exclusive queues are the connection's.
Requests that the same channel got before have been carried out when the answer is made.  It is for clients on
the directory's own socket, and for users with the tag `administrator`; others get 403.  An ordinary queue
cannot have this name: it begins with "amq.".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import msgpack  # type: ignore[import-untyped]

from warrenmq.actors.vhost.messages import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Unbind,
)
from warrenmq.amqp.access.permissions import ADMINISTRATOR
from warrenmq.amqp.channel.context import ConnectionContext
from warrenmq.amqp.channel.message import Envelope, Template, opened
from warrenmq.amqp.channel.reply_to import ReplyTo
from warrenmq.amqp.wire.codec import PUBLISH, decode_properties, decode_table, raw_properties
from warrenmq.amqp.wire.errors import ACCESS_REFUSED, AmqpError
from warrenmq.broker.calls import ActorCalls
from warrenmq.directory.definitions import QueueRecord
from warrenmq.erlang.amqp_table import BadTable
from warrenmq.errors import Error, PreconditionFailed
from warrenmq.message.properties import Properties
from warrenmq.message.stored import StoredMessage
from warrenmq.queue.messages import Info, Peek, Purge
from warrenmq.routing import Binding, ExchangeSpec
from warrenmq.supervisors.broker_sup import VHOST_PROCESS
from warrenmq.vhost.policies import Policy

RPC = "amq.warrenmq.rpc"
_CONFIRM_TIMEOUT = 30.0
"""Seconds that a publish has until it is safe."""
_CALLS: dict[str, Callable[[ChannelRpc, dict[str, Any]], Any]]


class ChannelRpc:
    """The calls of one channel; it belongs to the channel process."""

    def __init__(self, context: ConnectionContext, calls: ActorCalls, reply_to: ReplyTo) -> None:
        self._broker = context.broker
        self._connection = context.connection
        self._user = context.user
        self._calls = calls
        self._reply_to = reply_to

    def answer(self, template: Template, bodies: list[bytes]) -> None:
        """Carry out what a run of publishes asks for.  AmqpError 403 for a user who may not."""
        if ADMINISTRATOR not in self._user.tags:
            why = f"user '{self._user.name}' needs the tag {ADMINISTRATOR} to call {RPC}"
            raise AmqpError(ACCESS_REFUSED, why, *PUBLISH)
        properties = decode_properties(template.raw_properties)
        if not properties.reply_to:
            return
        answer = raw_properties(Properties(correlation_id=properties.correlation_id))
        envelope = Envelope("", properties.reply_to, answer)
        self._reply_to.answer(properties.reply_to, envelope, [self._answer(body) for body in bodies])

    def _answer(self, body: bytes) -> bytes:
        try:
            return _packed({"value": self._value(body)})
        except TimeoutError as error:
            return _packed({"error": "Nacked", "text": str(error)})
        except Error as error:
            return _packed({"error": type(error).__name__, "text": str(error)})

    def _value(self, body: bytes) -> Any:
        try:
            request = msgpack.unpackb(body)
            call = _CALLS[request["call"]]
        except Exception as why:  # whatever a client makes up
            names = ", ".join(_CALLS)
            msg = f"the body is no call; send a msgpack map with one of these as `call`: {names}"
            raise PreconditionFailed(msg) from why
        return call(self, request)

    def stats(self, _request: dict[str, Any]) -> Any:
        """Statistics of the whole broker."""
        return self._broker.inside.local_client.stats(self._calls).as_dict()

    def queues(self, _request: dict[str, Any]) -> Any:
        """The names of all queues."""
        return [queue.name for queue in self._broker.queues()]

    def queue(self, request: dict[str, Any]) -> Any:
        """Refuse a queue that is not there, or another connection's."""
        self._usable(_argument(request, "queue", str))

    def _usable(self, name: str) -> str:
        vhost = self._broker.inside.vhost
        vhost.check_exclusive_access(vhost.existing_queue(name), self._connection)
        return name

    def minds_consumers(self, request: dict[str, Any]) -> Any:
        """True for a queue that would notice a consumer that comes and goes."""
        return self._calls.minds_consumers(_argument(request, "queue", str), 0)

    def declare_queue(self, request: dict[str, Any]) -> Any:
        """Declare a queue."""
        record = QueueRecord(
            _argument(request, "queue", str), _argument(request, "durable", bool), _argument(request, "exclusive", bool),
            _argument(request, "auto_delete", bool), _table(request),
        )  # fmt: skip
        return self._ask_vhost(DeclareQueue(record, self._connection))

    def declare_exchange(self, request: dict[str, Any]) -> Any:
        """Declare an exchange."""
        return self._ask_vhost(DeclareExchange(ExchangeSpec(
            _argument(request, "exchange", str), _argument(request, "type", str), _argument(request, "durable", bool),
            _argument(request, "auto_delete", bool), _argument(request, "internal", bool), _table(request),
        )))  # fmt: skip

    def bind(self, request: dict[str, Any]) -> Any:
        """Add a binding."""
        return self._ask_vhost(Bind(_binding(request), self._connection))

    def unbind(self, request: dict[str, Any]) -> Any:
        """Undo a binding."""
        return self._ask_vhost(Unbind(_binding(request), self._connection))

    def delete_queue(self, request: dict[str, Any]) -> Any:
        """Delete a queue."""
        return self._ask_vhost(DeleteQueue(
            _argument(request, "queue", str), _argument(request, "if_unused", bool), _argument(request, "if_empty", bool),
            self._connection,
        ))  # fmt: skip

    def delete_exchange(self, request: dict[str, Any]) -> Any:
        """Delete an exchange."""
        return self._ask_vhost(
            DeleteExchange(_argument(request, "exchange", str), _argument(request, "if_unused", bool))
        )

    def _ask_vhost(self, request: Any) -> Any:
        return self._calls.call_named(VHOST_PROCESS, request)

    def purge(self, request: dict[str, Any]) -> Any:
        """Drop a queue's ready messages."""
        return self._calls.call_queue(self._usable(_argument(request, "queue", str)), Purge())[0]

    def check_publish(self, request: dict[str, Any]) -> Any:
        """Refuse an exchange that is not there, or is internal."""
        self._broker.inside.vhost.router.check_publish(_argument(request, "exchange", str))

    def info(self, request: dict[str, Any]) -> Any:
        """One queue's figures."""
        return asdict(self._calls.call_queue(_argument(request, "queue", str), Info())[0])

    def peek(self, request: dict[str, Any]) -> Any:
        """One queue's first messages."""
        found, _ = self._calls.call_queue(
            _argument(request, "queue", str), Peek(_argument(request, "most", int))
        )
        return [[*envelope, body, each.redelivered] for each in found for envelope, body in [opened(each)]]

    def publish_later(self, request: dict[str, Any]) -> Any:
        """Publish delayed messages; answered when they are safe."""
        client = self._broker.inside.client
        client.have_later()
        client.publishing.own.publish_later(
            _argument(request, "exchange", str), _argument(request, "routing_key", str), _argument(request, "bodies", list),
            _properties(request, "properties"), _argument(request, "persistent", bool), _argument(request, "due", int),
        ).result(_CONFIRM_TIMEOUT)  # fmt: skip

    def publish_copy(self, request: dict[str, Any]) -> Any:
        """Publish a message once more; answered when it is safe."""
        client, due = self._broker.inside.client, _argument(request, "due", int)
        if due:
            client.have_later()
        message = StoredMessage(_argument(request, "exchange", str), _argument(request, "routing_keys", list),
                                _argument(request, "before", bytes), _argument(request, "body", bytes))  # fmt: skip
        queues = tuple(_argument(request, "queues", list))
        properties = _argument(request, "properties", bytes)
        client.publishing.own.publish_copy(
            queues, message, properties, persistent=_argument(request, "persistent", bool), due=due
        ).result(_CONFIRM_TIMEOUT)

    def route(self, request: dict[str, Any]) -> Any:
        """The queues that a message would be routed to."""
        exchange, key = _argument(request, "exchange", str), _argument(request, "routing_key", str)
        headers = _properties(request, "properties").headers
        return list(self._broker.inside.client.publishing.own.queues_of(exchange, key, headers))

    def set_memory(self, request: dict[str, Any]) -> Any:
        """Change the memory watermark."""
        return self._broker.set_vm_memory_high_watermark(_limit(request))

    def set_disk(self, request: dict[str, Any]) -> Any:
        """Set another limit of free disk space."""
        return self._broker.set_disk_free_limit(_limit(request))

    def set_policy(self, request: dict[str, Any]) -> Any:
        """Set a policy."""
        try:
            policy = Policy(*_argument(request, "policy", list))
        except TypeError as why:
            msg = f"set_policy needs policy, a list of {', '.join(Policy._fields)}"
            raise PreconditionFailed(msg) from why
        self._broker.set_policy(
            policy.name, policy.pattern, policy.definition, apply_to=policy.apply_to, priority=policy.priority,
            operator=policy.operator,
        )  # fmt: skip

    def clear_policy(self, request: dict[str, Any]) -> Any:
        """Do not have it."""
        name = _argument(request, "policy", str)
        self._broker.clear_policy(name, operator=_argument(request, "operator", bool))

    def policies(self, _request: dict[str, Any]) -> Any:
        """All policies."""
        return [list(policy) for policy in self._broker.policies()]


_CALLS = {
    "stats": ChannelRpc.stats,
    "queues": ChannelRpc.queues,
    "queue": ChannelRpc.queue,
    "minds_consumers": ChannelRpc.minds_consumers,
    "declare_queue": ChannelRpc.declare_queue,
    "declare_exchange": ChannelRpc.declare_exchange,
    "bind": ChannelRpc.bind,
    "unbind": ChannelRpc.unbind,
    "delete_queue": ChannelRpc.delete_queue,
    "delete_exchange": ChannelRpc.delete_exchange,
    "purge": ChannelRpc.purge,
    "check_publish": ChannelRpc.check_publish,
    "info": ChannelRpc.info,
    "peek": ChannelRpc.peek,
    "publish_later": ChannelRpc.publish_later,
    "publish_copy": ChannelRpc.publish_copy,
    "route": ChannelRpc.route,
    "set_vm_memory_high_watermark": ChannelRpc.set_memory,
    "set_disk_free_limit": ChannelRpc.set_disk,
    "set_policy": ChannelRpc.set_policy,
    "clear_policy": ChannelRpc.clear_policy,
    "policies": ChannelRpc.policies,
}


def _argument(request: dict[str, Any], name: str, kind: type) -> Any:
    value = request.get(name)
    if type(value) is not kind:
        raise PreconditionFailed(f"{request['call']} needs {name}, of type {kind.__name__}")
    return value


def _table(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return decode_table(_argument(request, "arguments", bytes))
    except (BadTable, ValueError) as why:
        raise PreconditionFailed(f"{request['call']} has a table that cannot be read") from why


def _binding(request: dict[str, Any]) -> Binding:
    return Binding(
        _argument(request, "destination", str), _argument(request, "source", str), _argument(request, "routing_key", str),
        _table(request), _argument(request, "destination_type", str),
    )  # fmt: skip


def _properties(request: dict[str, Any], name: str) -> Properties:
    return decode_properties(_argument(request, name, bytes))


def _limit(request: dict[str, Any]) -> Any:
    """A watermark in the form of Settings, which refuses an invalid one."""
    value = request.get("limit")
    return tuple(value) if isinstance(value, list) else value


def _packed(answer: dict[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(answer)
    return packed
