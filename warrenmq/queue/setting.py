"""The setting of a queue: its fixed properties, and the objects outside of it that its parts use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pykka import ActorRef

from warrenmq.backing_queue.parts import StoreClient
from warrenmq.log import Log
from warrenmq.message.queue_message import Publication
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.messages import QueueFigures
from warrenmq.queue.trace import QueueTrace
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings


class StoreRoom(Protocol):
    """A message store's state as far as the room on its disk is concerned (StoreTables)."""

    disk_full: bool
    lack: str
    """The want of a store whose `disk_full` is set, as words of a sentence."""


@dataclass(slots=True, frozen=True)
class QueueSetting:
    """The values and objects that a queue is made with; `arguments` are those at its start, as a policy may
    change them later.
    """

    name: str
    vhost: str
    ref: ActorRef[Any]
    """Identifies the queue to limiters."""
    durable: bool
    arguments: QueueArguments
    settings: Settings
    disk: Disk
    directory: str
    """The folder whose disk is asked for free space."""
    stores: Mapping[str, StoreClient]
    """The queue's ends of its message stores, by name."""
    rooms: Sequence[StoreRoom]
    has_dead_letter_exchange: Callable[[], bool]
    monotonic_ns: Callable[[], int]
    wall_ns: Callable[[], int]
    before: QueueFigures
    """The figures with which it fell asleep; it goes on counting from there."""
    found_expiring: bool
    """Messages that recovery found may have an expiry."""
    is_up: bool
    """True if the vhost is recovered; if not, a VhostRecovered follows."""
    log: Log
    delay_of: Callable[[Publication], int]
    """The milliseconds that the header x-delay of a publication says."""
    rows: QueueTrace | None = None
