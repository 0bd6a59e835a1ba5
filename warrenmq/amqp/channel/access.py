"""Permission checks and queue lookup of a channel (rabbit_channel's check_ functions).

permission            403    access to queue 'jobs' in vhost '/' refused for user 'guest'
topic permission      403    access to topic 'a.b' in exchange 'amq.topic' in vhost '/' refused for user 'guest'
exclusive queue       405    cannot obtain exclusive access to locked queue ...
no such queue         404    no queue 'jobs' in vhost '/'
queue "" before any   404    no previously declared queue
default exchange      403    operation not permitted on the default exchange
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warrenmq.actors.vhost.vhost import Vhost
from warrenmq.amqp.channel.context import ConnectionContext
from warrenmq.amqp.wire.errors import ACCESS_REFUSED, NOT_FOUND, AmqpError
from warrenmq.directory.definitions import QueueRecord

DEFAULT_EXCHANGE = "amq.default"
"""The name of the default exchange in permissions."""


class ChannelAccess:
    """The permission checks of one channel."""

    def __init__(self, context: ConnectionContext) -> None:
        self._user = context.user
        self._vhost = context.broker.inside.vhost
        self._connection = context.connection
        self.last_declared = ""
        """The queue that an empty name stands for."""

    def name(self, kind: str, name: str) -> str:
        """The description of a resource in errors (rabbit_misc:rs)."""
        return f"{kind} '{name}' in vhost '{self._vhost.name}'"

    def configure(self, kind: str, name: str) -> None:
        """Raise unless the user may declare and delete this."""
        if not self._user.may_configure(_permission_name(kind, name)):
            raise self._refused(kind, name)

    def write(self, kind: str, name: str) -> None:
        """Raise unless the user may publish to this exchange, or bind this."""
        if not self._user.may_write(_permission_name(kind, name)):
            raise self._refused(kind, name)

    def read(self, kind: str, name: str) -> None:
        """Raise unless the user may consume from this queue, or bind to this exchange."""
        if not self._user.may_read(_permission_name(kind, name)):
            raise self._refused(kind, name)

    def write_topics(self, exchange: str, keys: Iterable[str]) -> None:
        """Raise unless the user may publish with these routing keys to this exchange, if it is a topic exchange."""
        self._topics(exchange, keys, self._user.may_write_topic)

    def read_topic(self, exchange: str, key: str) -> None:
        """Raise unless the user may bind to this exchange with this routing key, if it is a topic exchange."""
        self._topics(exchange, (key,), self._user.may_read_topic)

    def _topics(self, exchange: str, keys: Iterable[str], may: Callable[[str, str], bool]) -> None:
        if not is_topic(self._vhost, exchange):
            return
        for key in keys:
            if not may(exchange, key):
                where = self.name("exchange", exchange)
                text = f"access to topic '{key}' in {where} refused for user '{self._user.name}'"
                raise AmqpError(ACCESS_REFUSED, text)

    def _refused(self, kind: str, name: str) -> AmqpError:
        resource = self.name(kind, _permission_name(kind, name))
        return AmqpError(ACCESS_REFUSED, f"access to {resource} refused for user '{self._user.name}'")

    def queue(self, name: str) -> QueueRecord:
        """Look up a queue.  NotFound if there is none, ResourceLocked if it is exclusive to another connection."""
        record = self._vhost.existing_queue(name)
        self._vhost.check_exclusive_access(record, self._connection)
        return record

    def check_exclusive(self, name: str) -> None:
        """ResourceLocked when the queue belongs to another connection."""
        if (record := self._vhost.queue(name)) is not None:
            self._vhost.check_exclusive_access(record, self._connection)

    def not_found(self, kind: str, name: str) -> AmqpError:
        """Make the error 404 of a name that does not exist."""
        return AmqpError(NOT_FOUND, f"no {self.name(kind, name)}")

    def not_default(self, exchange: str) -> None:
        """Raise 403 for the default exchange."""
        if not exchange:
            raise AmqpError(ACCESS_REFUSED, "operation not permitted on the default exchange")

    def queue_or_last(self, name: str) -> str:
        """The queue that a method names; an empty name is the queue that was declared last on this channel."""
        if name:
            return name
        if not self.last_declared:
            raise AmqpError(NOT_FOUND, "no previously declared queue")
        return self.last_declared


def is_topic(vhost: Vhost, exchange: str) -> bool:
    """True if this is a topic exchange, for which there may be permissions of routing keys."""
    spec = vhost.router.exchanges.get(exchange)
    return spec is not None and spec.type == "topic"


def _permission_name(kind: str, name: str) -> str:
    return DEFAULT_EXCHANGE if kind == "exchange" and not name else name
