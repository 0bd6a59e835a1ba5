"""The tables of a virtual host: what is declared, shared by its processes and the face.

They outlive the processes of the vhost as ETS tables and Mnesia do.  One process changes them
(actors/vhost/process.py), others look names up.  An exclusive queue belongs to a connection of an AMQP
client, or to the embedded face, whose connections have no process: its owner is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykka import ActorRef

from warrenmq.actors.sending.message_sender import MessageIds
from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.definitions import Definitions, QueueRecord
from warrenmq.directory.layout import VhostDirectory
from warrenmq.directory.recovery_terms import paths_to_sync
from warrenmq.errors import NotFound, ResourceLocked
from warrenmq.node.resources import Resources
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.asleep import FIGURES_OF_NEVER_USED, NEVER_USED, Asleep
from warrenmq.queue.messages import QueueFigures
from warrenmq.queue.state import MOST_ASLEEP
from warrenmq.routing import Router
from warrenmq.routing.delayed import is_store
from warrenmq.runtime import Name
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings
from warrenmq.vhost.last_stops import LastStops, asleep_since
from warrenmq.vhost.policies import LIMITS, LIMITS_NAME, Policies
from warrenmq.vhost.unknown_folders import sort_out


def queue_name(name: str) -> Name:
    """The registered name of a queue's process."""
    return f"queue:{name}"


@dataclass(slots=True)
class Vhost:
    """The tables of one virtual host."""

    name: str
    directory: VhostDirectory
    disk: Disk
    settings: Settings
    definitions: Definitions
    router: Router
    resources: Resources
    ids: MessageIds
    transient_queues: dict[str, QueueRecord] = field(default_factory=dict)
    owners: dict[str, ActorRef[Any]] = field(default_factory=dict)
    """Exclusive queue -> the connection that it belongs to; those of the face are not here."""
    asleep: dict[str, Asleep] = field(default_factory=dict)
    """Queues that have no process and need none: `Wake` starts it."""
    awake: dict[str, None] = field(default_factory=dict)
    """Queues with a process, by when they were started or last asked to sleep."""
    fallen_asleep: set[str] = field(default_factory=set)
    """Sleeping queues that had a process since the start: the terms of their stop are not synced yet."""
    figures: dict[str, Callable[[], QueueFigures]] = field(default_factory=dict)
    """Queue -> what reads its figures, from any thread."""
    kept_folders: list[str] = field(default_factory=list)
    """Folders with messages of which no file tells the queue: what they refer to in the stores stays."""
    damage: DamageLog = field(default_factory=DamageLog)
    last_stops: LastStops = field(init=False)
    unwritten: list[str] = field(default_factory=list)
    """A sentence for each queue that could not be written when the broker was closed on a full disk."""
    queue_events: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("queue_declared", "queue_created", "queue_deleted"), 0)
    )
    """Counts, since the broker was opened, of queues declared, created by that, and deleted."""
    policies: Policies = field(init=False)
    rejecting: set[str] = field(default_factory=set)
    """Queues that refuse publishes when they are full; other threads look single ones up."""
    is_up: bool = False
    """True once the virtual host is recovered: queues may drop and dead-letter expired messages."""

    def __post_init__(self) -> None:
        """Tell what was wrong with the files that make a virtual host."""
        self.damage.add([*self.directory.damage, *self.definitions.damage])
        self.policies = Policies(self.definitions.parameters)
        self.last_stops = LastStops(self.disk, self.settings, self.directory.quarantine, self.damage)

    def sort_out_folders(self, disk: Disk) -> None:
        """Find out what folders are for that belong to no queue, before anything of the vhost runs."""
        records = [*self.definitions.queues.values(), *self.transient_queues.values()]
        known = {folder: record for record in records for folder in self.folders(record)}
        found = sort_out(disk, self.directory, self.definitions, known)
        self.definitions.settle(found.declared_again)
        self.definitions.note_folders(found.with_folder)
        self.kept_folders = found.kept
        # the directory is opened, and then the vhost's process starts: both go through the folders, and find the same
        told = {str(each) for each in self.damage.places}
        self.damage.add(each for each in found.damage if str(each) not in told)

    def look_at_folders(self) -> None:
        """Find out how the queues were stopped and what they hold, before anything of the vhost runs."""
        records, with_folder = self.definitions.queues.values(), self.definitions.with_folder
        there = {f"{self.directory.queues}/{name}" for name in self.disk.listdir(self.directory.queues)}
        self.asleep.clear()
        self.fallen_asleep.clear()
        for record in [*records, *self.transient_queues.values()]:
            used = record.durable and (
                record.name in with_folder or not there.isdisjoint(self.folders(record))
            )
            if not self.may_sleep(record):
                continue
            if (asleep := self._asleep_since(record) if used else NEVER_USED) is not None:
                self.sleeps(record.name, asleep)
        stopped = {record: self.folders(record) for record in records if record.name not in self.asleep}
        self.last_stops.look(folder for folders in stopped.values() for folder in folders)
        for record, folders in stopped.items():
            if self.may_sleep(record) and (killed := self._killed_at_rest(record, folders)) is not None:
                self.sleeps(record.name, killed)
                self.last_stops.forget(folders)

    def _asleep_since(self, record: QueueRecord) -> Asleep | None:
        """The memory of a used queue that may go on sleeping; None for one that has to be opened."""
        version = self._index_version(self.policies.queue_arguments(record, self.name))
        terms = [asleep_since(self.disk, folder, version) for folder in self.folders(record)]
        first = terms[0]
        if first is None or first.asleep is None or None in terms:
            return None
        ready, size = first.asleep
        if not ready:
            return NEVER_USED
        return Asleep(NEVER_USED.counts._replace(ready=ready, ready_bytes=size), first.next_seq_id)

    def _killed_at_rest(self, record: QueueRecord, folders: tuple[str, ...]) -> Asleep | None:
        """The memory of a queue that was killed awake, if opening it would change nothing; it is opened when it is used."""
        arguments = self.policies.queue_arguments(record, self.name)
        if arguments.max_length is not None or arguments.max_length_bytes is not None:
            return None  # what was not acked is ready again, and perhaps too much
        rest = self.last_stops.at_rest(folders, self._index_version(arguments))
        if rest is None or rest[0] > MOST_ASLEEP:
            return None
        return Asleep(NEVER_USED.counts._replace(ready=rest[0]), rest[1]) if rest[0] else NEVER_USED

    def _index_version(self, arguments: QueueArguments) -> int:
        return arguments.queue_version or self.settings.queue_version

    def may_sleep(self, record: QueueRecord) -> bool:
        """True if a queue has nothing to do by itself: no x-expires to look after, nor delayed messages."""
        return not is_store(record.name) and self.policies.queue_arguments(record, self.name).expires is None

    def sleeps(self, name: str, asleep: Asleep) -> None:
        """Put a queue to sleep."""
        self.asleep[name] = asleep
        self.figures[name] = FIGURES_OF_NEVER_USED if asleep is NEVER_USED else asleep.figures

    def wakes(self, name: str) -> None:
        """Note that a queue is awake, as the last one of all."""
        self.awake.pop(name, None)
        self.awake[name] = None

    def falls_asleep(self, name: str, asleep: Asleep) -> None:
        """Put a queue that was used to sleep; called by its process, at its end."""
        self.awake.pop(name, None)
        self.fallen_asleep.add(name)
        self.sleeps(name, asleep)

    def make_stops_safe(self) -> None:
        """Sync the terms of all queues that were stopped in order, so that they survive a power cut."""
        stopped = [
            record for name, record in self.definitions.queues.items() if name not in self.asleep or name in self.fallen_asleep
        ]  # fmt: skip
        paths = paths_to_sync(self.disk, (folder for record in stopped for folder in self.folders(record)))
        if paths:
            self.disk.sync_many(paths)
        self.definitions.note_folders(
            name for name in self.definitions.queues if self.asleep.get(name) is not NEVER_USED
        )

    def folders(self, record: QueueRecord) -> tuple[str, ...]:
        """The paths of a queue's folders: one, or one for each priority from 0."""
        return self.directory.folders(record.name, record.arguments.get("x-max-priority"))

    def queue(self, name: str) -> QueueRecord | None:
        """The record of a queue that clients know, durable or not: not of one in which delayed messages wait."""
        return None if is_store(name) else self.record(name)

    def record(self, name: str) -> QueueRecord | None:
        """The record of any queue."""
        return self.definitions.queues.get(name) or self.transient_queues.get(name)

    def stores(self) -> list[str]:
        """The queues in which delayed messages wait."""
        return [name for name in (*self.definitions.queues, *self.transient_queues) if is_store(name)]

    def records(self) -> list[QueueRecord]:
        """The records of all queues that clients know."""
        every = [*list(self.definitions.queues.values()), *list(self.transient_queues.values())]
        return [record for record in every if not is_store(record.name)]

    def limit(self, name: str) -> int | None:
        """A limit of the virtual host, max-queues or max-connections; None = no limit."""
        value: int = self.definitions.parameters.get((LIMITS, LIMITS_NAME), {}).get(name, -1)
        return None if value < 0 else value

    def note_overflow(self, name: str, arguments: QueueArguments | None) -> None:
        """Remember whether a queue refuses publishes; None: it is gone."""
        if arguments is not None and arguments.overflow != "drop-head":
            self.rejecting.add(name)
        else:
            self.rejecting.discard(name)

    def owner(self, name: str) -> ActorRef[Any] | None:
        """The connection that an exclusive queue belongs to; None for the face's, and for queues of everybody."""
        return self.owners.get(name)

    def existing_queue(self, name: str) -> QueueRecord:
        """A queue's record; NotFound if no queue has the name."""
        record = self.queue(name)
        if record is None:
            raise self.no_queue(name)
        return record

    def no_queue(self, name: str) -> NotFound:
        """The error for a queue that is not there."""
        msg = f"there is no queue {name!r}; declare it first"
        return NotFound(msg, reply_text=f"no {self.words('queue', name)}")

    def check_exclusive_access(self, record: QueueRecord, owner: ActorRef[Any] | None) -> None:
        """ResourceLocked when a queue belongs to another connection (rabbit_amqqueue:check_exclusive_access, lax)."""
        if record.exclusive and self.owner(record.name) is not owner:
            raise self.locked(record.name)

    def locked(self, name: str) -> ResourceLocked:
        """The error for another connection that uses an exclusive queue, or redeclares a queue as exclusive."""
        return ResourceLocked(
            f"queue {name!r} is exclusive to another connection, or was declared without exclusive; use another name",
            reply_text=f"cannot obtain exclusive access to locked {self.words('queue', name)}. It could be originally "
            "declared on another connection or the exclusive property value does not match that of the original declaration.",
        )

    def words(self, kind: str, name: str) -> str:
        """The name of a queue or an exchange as RabbitMQ's errors have it (rabbit_misc:rs)."""
        return f"{kind} '{name}' in vhost '{self.name}'"
