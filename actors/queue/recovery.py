"""How a queue process begins: from what its folder holds to a variable queue (rabbit_variable_queue:init).

    1  the terms of a clean stop are taken: from here on every stop is a crash until the next clean one.  They are believed
       only if the files of the index have the sizes that they had then
    2  the index is walked for messages whose bodies are in the store, after a crash when its files have been synced
    3  the store hears what the queue believes to hold; it drops what a dead incarnation held besides, and
       answers which of these it has
    4  the index is opened, which converts it from the other version if need be; messages without a body are acked

A queue with priorities has all this for each of its folders, but one client of the store.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from warrenmq.backing_queue.memory_target import MemoryTargetQueue
from warrenmq.backing_queue.priority_queue import PriorityQueue
from warrenmq.backing_queue.read_ahead import ReadAheadQueue
from warrenmq.directory.quarantine import set_aside
from warrenmq.directory.recovery_terms import changes_since, take_terms, twins
from warrenmq.errors import CorruptFile
from warrenmq.queue_index import versions as index_versions
from warrenmq.queue_index.protocol import Opening
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.vhost.unknown_folders import clear

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from warrenmq.actors.sending.message_sender import MessageIds
    from warrenmq.actors.store.client import MsgStoreClient
    from warrenmq.backing_queue.protocol import BackingQueue
    from warrenmq.backing_queue.variable_queue import VariableQueue
    from warrenmq.directory.damage_log import DamageLog
    from warrenmq.directory.recovery_terms import Terms
    from warrenmq.log import Log
    from warrenmq.queue.arguments import QueueArguments
    from warrenmq.routing import Router
    from warrenmq.seams.disk import Disk
    from warrenmq.settings import Settings
    from warrenmq.trace.recorder import ActorTrace


_BEHAVIOURS: dict[str, type[VariableQueue]] = {
    "memory_target": MemoryTargetQueue,
    "read_ahead": ReadAheadQueue,
}


@dataclass(slots=True, frozen=True)
class QueueSpec:
    """What a queue process is started with."""

    name: str
    vhost: str
    directories: tuple[str, ...]
    """One, or one for each priority from 0."""
    quarantine: str
    damage: DamageLog
    """Collects what of the queue's files is found damaged."""
    durable: bool
    persistent_store: str
    """Names of the stores."""
    transient_store: str
    settings: Settings
    disk: Disk
    arguments: QueueArguments
    router: Router
    """Where dead letters go."""
    ids: MessageIds
    address: Callable[[str], ActorRef[Any]]
    """Finds another queue's process."""
    unwritten: Callable[[str], object]
    """Called at the end with a sentence on what a full disk kept from being written."""
    is_up: Callable[[], bool]
    """True if the vhost is recovered; if not, a GoAhead follows."""
    unused_too_long: Callable[[], object]
    """Has the queue deleted, whose x-expires is over."""
    last_consumer_gone: Callable[[], object] | None = None
    """For an auto-delete queue: called when the last of its consumers has gone."""


def recover(
    spec: QueueSpec,
    disk: Disk,
    persistent: MsgStoreClient,
    transient: MsgStoreClient,
    clock: Callable[[], int],
    trace: ActorTrace | None,
) -> tuple[BackingQueue, Found, bool]:
    """Returns the queue, what was found, and whether the last stop was a clean one."""
    terms: list[Terms | None] = []
    holds: list[bytes] = []
    for directory in spec.directories:
        if spec.durable:
            terms.append(_believable_terms(spec, disk, directory))
            if terms[-1] is None:
                index_versions.make_acks_safe(disk, directory)
            holds += index_versions.store_message_ids(disk, directory, spec.settings)
        else:
            terms.append(None)
            spec.damage.add(clear(disk, directory, spec.quarantine, spec.settings))
    settings = spec.settings
    if spec.arguments.queue_mode == "lazy":  # no message stays in memory that need not
        settings = replace(settings, queue_ram_bytes=0)
    present = persistent.register(holds)
    transient.register([])

    def opened(directory: str, clean: Terms | None) -> tuple[VariableQueue, Found]:
        index, found = index_versions.recover(
            Opening(
                disk, directory, settings, present.__contains__, spec.quarantine, clean, trace, spec.damage
            )
        )
        vq = _BEHAVIOURS[settings.queue_paging](index, persistent, transient, settings, clock, trace)
        next_deliver = found.next_seq_id if clean is None else clean.next_deliver_seq_id
        vq.recovered(found.low, found.count, found.next_seq_id, next_deliver, found.lost)
        return vq, found

    clean_stop = None not in terms
    if spec.arguments.max_priority is None:
        return *opened(spec.directories[0], terms[0]), clean_stop
    each = [opened(*one) for one in zip(spec.directories, terms, strict=True)]
    return (
        PriorityQueue([vq for vq, _ in each], trace),
        _sum_of([found for _, found in each]),
        clean_stop,
    )


def _believable_terms(spec: QueueSpec, disk: Disk, directory: str) -> Terms | None:
    """The terms of a clean stop, if the files of the index are as it left them.

    Those that are not are reported, and copied to the quarantine before anything that they do not name any more is dropped.
    """
    terms = take_terms(disk, directory)
    if terms is None:
        return None
    sizes = {name: disk.size(f"{directory}/{name}") for name in disk.listdir(directory)}
    changes = [*changes_since(terms, sizes, lambda name: disk.read(f"{directory}/{name}"))]
    spec.damage.add(CorruptFile(f"{directory}/{name}", offset, reason) for name, offset, reason in changes)
    concerned = {each for change in changes for each in (change.name, *twins(change.name)) if sizes.get(each)}
    for name in sorted(concerned):
        data = disk.read(f"{directory}/{name}")
        with suppress(
            OSError
        ):  # there is no room for a copy; what makes no sense in it is still set aside piece by piece
            set_aside(disk, spec.quarantine, f"{directory.rpartition('/')[2]}-{name}", data, [(0, len(data))])
    return None if changes else terms


def tell_found(spec: QueueSpec, log: Log, found: Found, *, clean: bool) -> None:
    """Tell people what a recovery found."""
    spec.damage.add(found.damage)
    if found.count or found.dropped or found.quarantined:
        what = {"messages": found.count, "dropped": found.dropped, "quarantined": found.quarantined}
        log.info("queue recovered", clean=clean, **what)


def _sum_of(each: list[Found]) -> Found:
    """What was found of all priorities; the next sequence id is that of priority 0."""
    return Found(
        count=sum(found.count for found in each),
        bytes=sum(found.bytes for found in each),
        next_seq_id=each[0].next_seq_id,
        dropped=sum(found.dropped for found in each),
        damage=[damage for found in each for damage in found.damage],
    )
