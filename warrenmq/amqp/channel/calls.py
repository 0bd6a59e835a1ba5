"""Calls of a channel to queues and the vhost process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.broker.calls import ActorCalls

if TYPE_CHECKING:
    from warrenmq.broker.broker import Broker
    from warrenmq.runtime import Server
    from warrenmq.trace.recorder import ActorTrace


class ChannelCalls(ActorCalls):
    """The calls of one channel; it belongs to the channel process, which waits for each answer."""

    def __init__(self, server: Server, broker: Broker) -> None:
        self.runtime = server.runtime
        self.vhost = broker.vhost
        self._server = server
        self._broker = broker

    def check_open(self) -> None:
        """Raise BrokerClosed unless the broker is open."""
        self._broker.check_open()

    def trace(self) -> ActorTrace | None:
        """The channel's."""
        return self._server.trace
