"""How a queue process begins: from what its folder holds to a variable queue (rabbit_variable_queue:init).

    1  the terms of a clean stop are taken: from here on every stop is a crash until the next clean one
    2  the index is walked for messages whose bodies are in the store
    3  the store is told what the queue believes to hold; it drops what a dead incarnation held besides, and
       says which of these it has
    4  the index is opened, which converts it from the other version if need be; messages without a body are acked
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warrenmq.storage import index_versions
from warrenmq.storage.queue_arguments import QueueArguments
from warrenmq.storage.queue_index_protocol import Opening
from warrenmq.storage.recovery_terms import take_terms
from warrenmq.storage.variable_queue_memory_target import MemoryTargetQueue
from warrenmq.storage.variable_queue_read_ahead import ReadAheadQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.actors.msg_store_client import MsgStoreClient
    from warrenmq.settings import Settings
    from warrenmq.storage.disk import Disk
    from warrenmq.storage.index_recovery import Found
    from warrenmq.storage.variable_queue import VariableQueue
    from warrenmq.trace.recorder import ActorTrace


_BEHAVIOURS: dict[str, type[VariableQueue]] = {"memory_target": MemoryTargetQueue, "read_ahead": ReadAheadQueue}


@dataclass(slots=True, frozen=True)
class QueueSpec:
    """What a queue process is started with."""

    name: str
    directory: str
    quarantine: str
    durable: bool
    persistent_store: str
    """Names of the stores."""
    transient_store: str
    settings: Settings
    disk: Disk
    vhost: str = "/"
    arguments: QueueArguments = field(default_factory=QueueArguments)
    last_consumer_gone: Callable[[], object] | None = None
    """For an auto-delete queue: called when the last of its consumers has gone."""


def recover(
    spec: QueueSpec,
    disk: Disk,
    persistent: MsgStoreClient,
    transient: MsgStoreClient,
    clock: Callable[[], int],
    trace: ActorTrace | None,
) -> tuple[VariableQueue, Found, bool]:
    """Returns the queue, what was found, and whether the last stop was a clean one."""
    terms = None
    holds: list[bytes] = []
    if spec.durable:
        terms = take_terms(disk, spec.directory)
        holds = index_versions.store_message_ids(disk, spec.directory, spec.settings)
    else:
        disk.rmtree(spec.directory)
    present = persistent.register(holds)
    transient.register([])
    index, found = index_versions.recover(
        Opening(disk, spec.directory, spec.settings, present.__contains__, spec.quarantine, terms, trace)
    )
    behaviour = _BEHAVIOURS[spec.settings.queue_paging]
    vq = behaviour(index, persistent, transient, spec.settings, clock, trace)
    next_deliver = found.next_seq_id if terms is None else terms.next_deliver_seq_id
    vq.recovered(found.low, found.count, found.next_seq_id, next_deliver)
    return vq, found, terms is not None
