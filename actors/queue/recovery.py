"""Recovery of a queue process: from the files of its folder to a variable queue (rabbit_variable_queue:init).

    1  the terms of the last stop are taken, and the index is walked (vhost/last_stops.py)
    2  the queue registers the messages it found with the store, which drops what a dead incarnation held besides, and
       answers which of them it has
    3  the index is opened, which converts it from the other version if need be; messages without a body are acked

A queue with priorities has all this for each of its folders, but one client of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pykka import ActorRef

from warrenmq.actors.sending.message_sender import MessageIds
from warrenmq.actors.store.client import MsgStoreClient
from warrenmq.backing_queue.delayed import DelayedQueue
from warrenmq.backing_queue.memory_target import MemoryTargetQueue
from warrenmq.backing_queue.priority_queue import PriorityQueue
from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.backing_queue.read_ahead import ReadAheadQueue
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.layout import check_parent
from warrenmq.log import Log
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.asleep import Asleep
from warrenmq.queue.messages import QueueFigures
from warrenmq.queue_index import versions as index_versions
from warrenmq.queue_index.protocol import Opening
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.routing import Router
from warrenmq.routing.delayed import is_store
from warrenmq.runtime import Name
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings
from warrenmq.trace.recorder import ActorTrace
from warrenmq.vhost.last_stops import LastStop
from warrenmq.vhost.unknown_folders import clear

_BEHAVIOURS: dict[str, type[VariableQueue]] = {
    "memory_target": MemoryTargetQueue,
    "read_ahead": ReadAheadQueue,
}


@dataclass(slots=True, frozen=True)
class QueueSpec:
    """The arguments of a queue process."""

    name: str
    vhost: str
    directories: tuple[str, ...]
    """One, or one for each priority from 0."""
    quarantine: str
    damage: DamageLog
    """Collects the damage that is found in the queue's files."""
    last_stop: Callable[[str], LastStop]
    """Gives what is known of a durable queue's directory before it is opened."""
    durable: bool
    persistent_store: str
    """Names of the stores."""
    transient_store: str
    settings: Settings
    disk: Disk
    arguments: QueueArguments
    """The arguments with which the queue's process was started."""
    arguments_now: Callable[[], QueueArguments]
    """Reads them when its process is restarted: a policy may have changed them since."""
    router: Router
    """Routes dead letters."""
    ids: MessageIds
    address: Callable[[str], ActorRef[Any]]
    """Finds another queue's process."""
    sleeps: Callable[[str], bool]
    """True if another queue has no process because it sleeps; `vhost_process` can start it."""
    vhost_process: Name
    """Name of the process that is asked to."""
    unwritten: Callable[[str], object]
    """Called at the end with a sentence on messages that a full disk kept from being written."""
    is_up: Callable[[], bool]
    """True if the vhost is recovered; if not, a VhostRecovered follows."""
    falls_asleep: Callable[[Asleep], object]
    """Called when the process ends because the queue sleeps from here on."""
    before: QueueFigures
    """The figures with which it fell asleep."""
    unused_too_long: Callable[[], object]
    """Deletes the queue, which was unused for longer than x-expires."""
    last_consumer_gone: Callable[[], object] | None = None
    """Called when the last consumer of an auto-delete queue has gone."""
    tell_figures: Callable[[Callable[[], QueueFigures]], object] | None = None
    """Called with what reads the queue's figures, from any thread."""


def recover(
    spec: QueueSpec,
    disk: Disk,
    persistent: MsgStoreClient,
    transient: MsgStoreClient,
    clock: Callable[[], int],
    trace: ActorTrace | None,
) -> tuple[BackingQueue, Found, bool]:
    """Recover a queue; returns it, the figures of the recovery, and True if the last stop was a clean one."""
    stops: list[LastStop | None] = []
    holds: list[bytes] = []
    for directory in spec.directories:
        check_parent(disk, directory)
        if spec.durable:
            stop = spec.last_stop(directory)
            stops.append(stop)
            holds += stop.walked.store_message_ids
        else:
            stops.append(None)
            spec.damage.add(clear(disk, directory, spec.quarantine, spec.settings))
    settings = spec.settings
    if spec.arguments.queue_mode == "lazy":  # no message stays in memory that need not
        settings = replace(settings, queue_ram_bytes=0)
    clean_stop = all(stop is not None and stop.terms is not None for stop in stops)
    present = persistent.register(holds)
    transient.register([])

    def opened(directory: str, stop: LastStop | None) -> tuple[VariableQueue, Found]:
        walked, clean = (None, None) if stop is None else (stop.walked, stop.terms)
        index, found = index_versions.recover(
            Opening(disk, directory, settings, present.__contains__, spec.quarantine, walked, clean, trace,
                    spec.damage)
        )  # fmt: skip
        behaviour = DelayedQueue if is_store(spec.name) else _BEHAVIOURS[settings.queue_paging]
        vq = behaviour(index, persistent, transient, settings, clock, trace)
        # a priority queue that was cut off while it stopped has terms for some priorities: to its clients it crashed
        next_deliver = clean.next_deliver_seq_id if clean is not None and clean_stop else found.next_seq_id
        store_end = 1 + max(walked.store_messages, default=-1) if walked is not None else 0
        vq.recovered(found.low, found.count, found.next_seq_id, next_deliver, found.lost, store_end)
        return vq, found

    if spec.arguments.max_priority is None:
        return *opened(spec.directories[0], stops[0]), clean_stop
    each = [opened(*one) for one in zip(spec.directories, stops, strict=True)]
    return (PriorityQueue([vq for vq, _ in each], trace), _sum_of([found for _, found in each]), clean_stop)


def tell_found(spec: QueueSpec, log: Log, found: Found, *, clean: bool) -> None:
    """Report and log the figures of a recovery."""
    spec.damage.add(found.damage)
    if found.count or found.dropped or found.quarantined:
        what = {"messages": found.count, "dropped": found.dropped, "quarantined": found.quarantined}
        log.info("queue recovered", clean=clean, **what)


def _sum_of(each: list[Found]) -> Found:
    """The figures of all priorities together; the next sequence id is that of priority 0."""
    return Found(
        count=sum(found.count for found in each),
        next_seq_id=each[0].next_seq_id,
        expires=any(found.expires for found in each),
        dropped=sum(found.dropped for found in each),
        damage=[damage for found in each for damage in found.damage],
    )
