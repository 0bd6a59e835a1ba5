"""The messages of the vhost process: every call and cast.

`owner` is who asks: the connection of an AMQP client, None for the embedded face.  It may use the exclusive queues that
are its own, and no others (ResourceLocked).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pykka import ActorRef

from warrenmq.directory.definitions import QueueRecord
from warrenmq.routing import Binding, ExchangeSpec


@dataclass(slots=True)
class DeclareQueue:
    """Call: have this queue; the reply is its name, which is a new one when the record has none."""

    record: QueueRecord
    owner: ActorRef[Any] | None = None


@dataclass(slots=True)
class Wake:
    """Call: have this queue's process run; fine when it runs, or there is no such queue."""

    name: str


@dataclass(slots=True)
class DeclareExchange:
    """Call: have this exchange."""

    spec: ExchangeSpec


@dataclass(slots=True)
class Bind:
    """Call: have this binding."""

    binding: Binding
    owner: ActorRef[Any] | None = None


@dataclass(slots=True)
class Unbind:
    """Call: do not have this binding; fine when there is no such thing."""

    binding: Binding
    owner: ActorRef[Any] | None = None


@dataclass(slots=True)
class DeleteQueue:
    """Call: delete a queue and its messages; the reply is how many ready ones."""

    name: str
    if_unused: bool
    if_empty: bool
    owner: ActorRef[Any] | None = None


@dataclass(slots=True)
class DeleteExchange:
    """Call: delete an exchange."""

    name: str
    if_unused: bool


@dataclass(slots=True)
class EnsureDelayQueue:
    """Call: have the queue in which messages wait that are published with a delay of their own
    (routing/delayed.py, LATER).
    """


@dataclass(slots=True)
class SetParameter:
    """Call: set a runtime parameter: a policy, an operator policy or limits (vhost/policies.py)."""

    component: str
    name: str
    value: Any


@dataclass(slots=True)
class ClearParameter:
    """Call: remove a runtime parameter; NotFound when it is not there."""

    component: str
    name: str


@dataclass(slots=True)
class Sync:
    """Call: answered when what queues had sent to the vhost process before is done."""


@dataclass(slots=True)
class LastConsumerGone:
    """Cast, queue -> vhost: an auto-delete queue lost its last consumer."""

    name: str


@dataclass(slots=True)
class QueueUnused:
    """Cast, queue -> vhost: a queue was unused for as long as its x-expires allows."""

    name: str


@dataclass(slots=True)
class OwnerGone:
    """Info: the connection ended that an exclusive queue belongs to."""

    name: str
