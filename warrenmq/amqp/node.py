"""State that all connections of a server share: its users, its settings, and the virtual hosts that it serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pykka import ActorRef

from warrenmq.amqp.access.users import Users
from warrenmq.amqp.statistics import ServerStatistics
from warrenmq.broker.broker import Broker
from warrenmq.settings import Settings


@dataclass(frozen=True, slots=True)
class ServedVhost:
    """One virtual host."""

    broker: Broker
    channel_sup: ActorRef[Any]
    """The supervisor of its channels, which live in the broker's runtime."""


@dataclass(frozen=True, slots=True)
class Node:
    """rabbit's application environment, as far as a connection looks at it."""

    users: Users
    settings: Settings
    vhosts: dict[str, ServedVhost]
    properties: dict[str, Any] = field(default_factory=dict)
    """The server's properties in connection.start."""
    statistics: ServerStatistics = field(default_factory=ServerStatistics)
    trusted: bool = False
    """True if clients need no password: the permissions of the data directory let them connect to the socket in it."""
