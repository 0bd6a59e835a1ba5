"""Declaring and deleting queues (rabbit_amqqueue, rabbit_channel's queue methods, rabbit_queue_collector).

    what is asked for    refused when
    declare              the name begins with "amq." (403); the queue is there and another connection's, or exclusive where it was
                         not, or the other way round (405); it is there and different, or an argument is wrong (406)
    delete               it is another connection's (405); if_unused and it has consumers, if_empty and it has messages (406); it
                         is not there (404, which RabbitMQ passes over)

A declared queue has no process and no folder before it is used (`wake`), unless x-expires or delayed messages
need one.  Durable queues that are declared at the same time are made durable by one sync (`settle`); none of
them is there before.

A queue declared without a name gets one of the broker's.  An exclusive queue is not durable, and goes when the
connection does that declared it, which is monitored for that.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from pykka import ActorDeadError, ActorRef

from warrenmq.actors.queue.process import ASLEEP
from warrenmq.actors.queue.recovery import QueueSpec
from warrenmq.actors.sending.guid import OF_QUEUE, token
from warrenmq.actors.sending.message_sender import FALLS_ASLEEP, Flow, MessageSender
from warrenmq.actors.store.messages import OwnerDelete
from warrenmq.actors.vhost import equivalence
from warrenmq.actors.vhost.exchange_declarations import ExchangeDeclarations, check_name
from warrenmq.actors.vhost.messages import DeclareQueue, DeleteQueue, LastConsumerGone, OwnerGone, QueueUnused
from warrenmq.actors.vhost.vhost import Vhost, queue_name
from warrenmq.directory.definition_frames import check_storable
from warrenmq.directory.definitions import QueueRecord
from warrenmq.directory.recovery_terms import restore_terms, stored_terms
from warrenmq.errors import ArgumentValueError, Blocked, CorruptFile, PreconditionFailed, ResourceError
from warrenmq.log import Log
from warrenmq.queue.arguments import QueueArguments, as_classic
from warrenmq.queue.asleep import NEVER_USED
from warrenmq.queue.messages import Delete, Forward, Forwarded, MakeRoom, NewArguments, Stat, VhostRecovered
from warrenmq.routing.delayed import is_store
from warrenmq.runtime import NO_REPLY, CallFailed, From, Name, Server
from warrenmq.runtime.reasons import KILLED
from warrenmq.runtime.shortage import may_pass, shortage
from warrenmq.seams.disk import Disk
from warrenmq.seams.disk_errors import is_full, lack_of
from warrenmq.supervisors import start_child, stop_child
from warrenmq.trace.events import QueueDeleted
from warrenmq.trace.writers import writer
from warrenmq.vhost.queue_folders import keep_definition
from warrenmq.vhost.unknown_folders import FOLDER_GONE

log = Log("warrenmq.vhost")

_write_deleted = writer(QueueDeleted)

FILES_OF_A_QUEUE = 2
"""Descriptors that a queue has at most once it has messages."""
MAKE_ROOM = 16
"""Queues that are asked to sleep before another one wakes where descriptors are short."""
MANY_DELETED = 1_024
"""Deleted queues whose names are remembered before anybody looks whether they still have folders."""
DELETE_AGAIN = 1.0
"""Seconds until another try where the disk was full."""


def refusal_of(error: Exception, what: str) -> Blocked | ResourceError | None:
    """The refusal of a request that met a full disk or a limit of the system; None for another error."""
    if isinstance(error, OSError) and is_full(error):
        return Blocked(f"{lack_of(error)}, so nothing was changed; make room and try again")
    return shortage(error, what)


def _check_folder(name: str) -> None:
    """Refuse a new name whose folder would be that of another queue's priority, which is kept as NAME NUL PRIORITY
    (rabbit_priority_queue:mutate_name_bin): each would have the other's messages.
    """
    if name.encode()[-2:-1] == b"\0":
        raise PreconditionFailed(
            f"queue name {name!r} has a NUL before its last byte, as folders of priorities have; choose another one"
        )


class QueueDeclarations:
    """The queues of a vhost; belongs to the vhost process."""

    def __init__(self, process: Server, vhost: Vhost, exchanges: ExchangeDeclarations, disk: Disk, queue_sup: Name,
                 stores: tuple[str, str]) -> None:  # fmt: skip
        """`stores` are the names of the persistent and the transient one."""
        self._process = process
        self._vhost = vhost
        self._exchanges = exchanges
        self._disk = disk
        self._queue_sup = queue_sup
        self._stores = stores
        self._declared: dict[str, tuple[QueueRecord, From]] = {}
        """New durable queues, which are not on disk yet, and who waits for that."""
        runtime, credit = process.runtime, vhost.settings.credit_flow_default_credit[0]
        self._sender = MessageSender(
            runtime, vhost.ids, Flow, credit, process.trace, lambda name: runtime.whereis(queue_name(name))
        )
        self._others = disk.descriptors.lowest_free() or 0
        """Descriptors in use before the first queue."""
        self._monitors: dict[int, ActorRef[Any]] = {}
        """Monitor -> a connection that has exclusive queues."""
        self._most_gone = MANY_DELETED
        """Deleted queues that the definitions may name until the next look for their folders."""

    def recover(self) -> None:
        """Start a process for each queue that does not sleep, when it is clear what folders are for that belong to none."""
        vhost = self._vhost
        vhost.sort_out_folders(self._disk)
        for record in self._records():
            if record.name in vhost.asleep:
                vhost.note_overflow(record.name, vhost.policies.queue_arguments(record, vhost.name))
            else:
                self._start(record)
            if not is_store(record.name):
                vhost.router.add_queue(record.name)
        for owner in dict.fromkeys(vhost.owners.values()):
            self._watch(owner)

    def go_ahead(self) -> None:
        """Bindings are recovered, too: what has expired may go."""
        for record in self._records():
            if record.name not in self._vhost.asleep:
                self._process.cast(queue_name(record.name), VhostRecovered())

    def before(self, request: Any) -> None:
        """Called before a request is looked at: it has to see all queues that were declared, but for another new one."""
        if self._declared and (type(request) is not DeclareQueue or request.record.name in self._declared):
            self.settle()

    def settle(self) -> None:
        """Make the waiting queues durable, and answer the clients that declared them."""
        if not self._declared:
            return
        declared, self._declared = self._declared, {}
        vhost = self._vhost
        try:
            if any(name in vhost.definitions.gone for name in declared):
                # or a power cut gives a new queue the old one's folder
                self._disk.sync_dir(vhost.directory.queues)
            vhost.definitions.put_queues([record for record, _ in declared.values()])
        except OSError as error:
            if (refusal := refusal_of(error, DeclareQueue.__name__)) is None:
                raise
            for _, sender in declared.values():
                sender.refuse(refusal)
            return
        for record, sender in declared.values():
            self._have_asleep(record)
            sender.reply(record.name)

    def check_declare(self, request: DeclareQueue) -> DeclareQueue:
        """The queue as it will be declared, with its name; refuses what breaks a rule."""
        vhost, record = self._vhost, request.record
        if vhost.settings.quorum_as_classic and (classic := as_classic(record.arguments)) is not None:
            record = replace(record, arguments=classic)
            if vhost.queue(record.name) is None:
                log.info("a quorum queue is declared as a classic one", queue=record.name, vhost=vhost.name)
        if record.exclusive:
            record = replace(record, durable=False)
        if record.name:
            # a channel makes such a name itself: permissions depend on it
            if not record.name.startswith(OF_QUEUE):
                check_name("queue", record.name)
        else:
            record = replace(record, name=OF_QUEUE + token(self._process.runtime))
        words = vhost.words("queue", record.name)
        known = vhost.queue(record.name)
        if known is not None:
            if known.exclusive is not record.exclusive:
                raise vhost.locked(record.name)
            vhost.check_exclusive_access(known, request.owner)
            equivalence.check_queue(words, known, record)
        else:
            check_storable(f"queue {record.name!r}", record.arguments)
            _check_folder(record.name)
            QueueArguments.of(record.arguments, record.name, vhost.name)
            self._check_limit(record)
        return DeclareQueue(record, request.owner)

    def _check_limit(self, record: QueueRecord) -> None:
        """PreconditionFailed above the max-queues of the virtual host (rabbit_vhost_limit:is_over_queue_limit)."""
        vhost = self._vhost
        most = vhost.limit("max-queues")
        if most is not None and len(vhost.records()) + len(self._declared) >= most:
            text = f"cannot declare queue '{record.name}': queue limit in vhost '{vhost.name}' ({most}) is reached"
            raise PreconditionFailed(text, reply_text=text)

    def declare(self, request: DeclareQueue, sender: From) -> Any:
        """Declare a queue; answers its name."""
        vhost, record = self._vhost, request.record
        vhost.queue_events["queue_declared"] += 1
        if vhost.queue(record.name) is not None:
            self._process.cast(queue_name(record.name), Stat())
            return record.name
        if not vhost.may_sleep(record):
            self._have(record)
            self._is_there(record.name)
        elif record.durable:
            self._declared[record.name] = record, sender
            return NO_REPLY
        else:
            vhost.transient_queues[record.name] = record
            self._have_asleep(record)
        if record.exclusive and request.owner is not None:
            vhost.owners[record.name] = request.owner
            self._watch(request.owner)
        return record.name

    def _have_asleep(self, record: QueueRecord) -> None:
        vhost = self._vhost
        vhost.note_overflow(record.name, vhost.policies.queue_arguments(record, vhost.name))
        vhost.sleeps(record.name, NEVER_USED)
        self._is_there(record.name)

    def _is_there(self, name: str) -> None:
        self._vhost.queue_events["queue_created"] += 1
        self._vhost.router.add_queue(name)

    def wake(self, name: str) -> None:
        """Start the process of a queue that sleeps."""
        vhost, runtime = self._vhost, self._process.runtime
        record, asleep = vhost.record(name), vhost.asleep.get(name)
        if record is not None and asleep is not None:
            with suppress(ActorDeadError):
                runtime.stop_actor(runtime.whereis(queue_name(name)))  # it may still be closing its files
            runtime.retire(queue_name(name))  # no restart
            self.make_room()
            terms: dict[str, bytes] = {}
            is_gone = False
            try:
                if record.durable:
                    folders = vhost.folders(record)
                    terms = stored_terms(self._disk, folders)
                    is_gone = asleep.counts.ready > 0 and not all(map(self._disk.is_dir, folders))
                self._start(record)
            except (OSError, ResourceError) as error:
                restore_terms(self._disk, terms)  # it sleeps on, and did not crash
                if refusal_of(error, name) is not None:
                    raise
                msg = f"queue {name!r} cannot be opened ({error}); see to the disk, and try again"
                raise ResourceError(msg) from error
            if is_gone:
                vhost.damage.add([CorruptFile(vhost.directory.definitions, 0, FOLDER_GONE.format(name))])
            if vhost.asleep[name] is asleep:  # else it sleeps again
                del vhost.asleep[name]  # last: who does not find it here finds its process

    def make_room(self) -> None:
        """Put queues to sleep while descriptors are short, the one first that has been awake for longest; one
        that stays awake goes behind the others.
        """
        for name in list(islice(self._vhost.awake, MAKE_ROOM)):
            if not self._disk.descriptors.are_short(self._others + FILES_OF_A_QUEUE * len(self._vhost.awake)):
                return
            self._vhost.wakes(name)
            with suppress(ActorDeadError, CallFailed):  # it sleeps now, or is being restarted
                self._process.call(queue_name(name), MakeRoom(), timeout=None)

    def forward(self, message: Forward) -> None:
        """Publish for a queue to another one, which slept."""
        try:
            self.wake(message.queue)
        except (OSError, ResourceError) as error:
            if (refusal := refusal_of(error, message.queue)) is None:
                raise
            message.promise.fail(refusal)
        else:
            self._sender.send((message.queue,), message.publication, message.promise)
        self._process.cast(message.publisher, Forwarded(message.queue))

    def apply(self, record: QueueRecord, arguments: QueueArguments) -> None:
        """Apply a changed policy to a queue: one that sleeps will when it is used, if it may go on sleeping."""
        vhost = self._vhost
        vhost.note_overflow(record.name, arguments)
        asleep = vhost.asleep.get(record.name)
        if asleep is not None and vhost.may_sleep(record):
            may_be_too_many = arguments.max_length is not None or arguments.max_length_bytes is not None
            if not (asleep.counts.ready and may_be_too_many):
                return
        self.wake(record.name)
        if not self._process.cast(queue_name(record.name), NewArguments(arguments)) and not vhost.may_sleep(
            record
        ):
            self.wake(record.name)  # it fell asleep this moment

    def have_store(self, name: str, *, durable: bool) -> None:
        """Declare a queue in which delayed messages wait."""
        if self._vhost.record(name) is None:
            self._have(QueueRecord(name, durable=durable))

    def trace_deletion(self, name: str) -> None:
        """Write the row of a queue's deletion, which is about to be written, for a process that cannot: as an actor of the queue's name."""
        if (trace := self._process.trace) is not None and (
            recorder := self._process.runtime.recorder
        ) is not None:
            its = recorder.actor(str(queue_name(name)), "QueueDeletion", trace.id)
            _write_deleted(its)
            its.close()

    def remove_store(self, name: str, *, durable: bool) -> None:
        """Remove a queue in which delayed messages waited; of a durable one the log says already that it is gone."""
        self._vhost.transient_queues.pop(name, None)
        self._undo_start(QueueRecord(name, durable=durable))

    def check_delete(self, request: DeleteQueue) -> DeleteQueue:
        """Refuse to delete a queue that is not there, or another connection's."""
        self._vhost.check_exclusive_access(self._vhost.existing_queue(request.name), request.owner)
        return request

    def delete(self, request: DeleteQueue) -> int:
        """Delete a queue; returns how many ready messages went along."""
        record = self._vhost.existing_queue(request.name)
        return self._delete(record, if_unused=request.if_unused, if_empty=request.if_empty)

    def may_go(self, message: LastConsumerGone | QueueUnused | OwnerGone) -> None:
        """Delete a queue without a request of a client; not while it has consumers, unless its owner is gone."""
        record = self._vhost.queue(message.name)
        if record is None or (isinstance(message, LastConsumerGone) and not record.auto_delete):
            return
        try:
            self._delete(record, if_unused=not isinstance(message, OwnerGone), if_empty=False)
        except PreconditionFailed:
            pass
        except (Blocked, ResourceError, OSError) as why:
            if isinstance(why, OSError) and not is_full(why):
                raise
            # an auto-delete exchange goes with it, which is written
            self._process.send_after(DELETE_AGAIN, message)

    def monitored_died(self, monitor: int) -> None:
        """A connection ended: its exclusive queues go (rabbit_queue_collector)."""
        owner = self._monitors.pop(monitor, None)
        for name in [name for name, each in self._vhost.owners.items() if each is owner]:
            self.may_go(OwnerGone(name))

    def _have(self, record: QueueRecord) -> None:
        vhost = self._vhost
        if record.durable:
            record = vhost.definitions.with_generation(record)  # its folder has it, too
        try:
            self._start(record)
            if record.durable:  # last: what this process cannot finish is not declared
                vhost.definitions.put_queue(record)
        except (OSError, ResourceError):
            self._undo_start(record)
            raise
        if not record.durable:
            vhost.transient_queues[record.name] = record

    def _records(self) -> list[QueueRecord]:
        return [*self._vhost.definitions.queues.values(), *self._vhost.transient_queues.values()]

    def _watch(self, owner: ActorRef[Any]) -> None:
        if owner not in self._monitors.values():
            self._monitors[self._process.monitor(owner)] = owner

    def _start(self, record: QueueRecord) -> None:
        vhost, mine, runtime = self._vhost, self._process.name, self._process.runtime

        def arguments_now() -> QueueArguments:
            if is_store(record.name):
                return QueueArguments()
            return vhost.policies.queue_arguments(record, vhost.name)

        arguments = arguments_now()
        vhost.note_overflow(record.name, arguments)
        settings = vhost.settings
        if arguments.queue_version is not None:
            settings = replace(settings, queue_version=arguments.queue_version)
        if is_store(record.name):
            settings = replace(settings, queue_version=2)  # single messages are read, wherever they lie
        if record.durable:
            vhost.directory.make_queue(
                self._disk, record.name, arguments.max_priority, settings.queue_version
            )
            keep_definition(self._disk, vhost.folders(record)[0], record)
        auto_delete = (
            (lambda: runtime.cast(mine, LastConsumerGone(record.name))) if record.auto_delete else None
        )
        spec = QueueSpec(
            record.name, vhost.name, vhost.folders(record),
            vhost.directory.quarantine, vhost.damage, vhost.last_stops.take, record.durable, *self._stores, settings=settings, disk=vhost.disk,
            arguments=arguments, arguments_now=arguments_now, router=vhost.router, ids=vhost.ids,
            address=lambda name: runtime.whereis(queue_name(name)), sleeps=vhost.asleep.__contains__, vhost_process=mine, is_up=lambda: vhost.is_up, unwritten=vhost.unwritten.append,
            falls_asleep=lambda asleep: vhost.falls_asleep(record.name, asleep),
            before=vhost.asleep.get(record.name, NEVER_USED).counts,
            unused_too_long=lambda: runtime.cast(mine, QueueUnused(record.name)), last_consumer_gone=auto_delete,
            tell_figures=lambda figures: vhost.figures.__setitem__(record.name, figures),
        )  # fmt: skip
        vhost.wakes(record.name)
        while True:
            try:
                start_child(runtime, self._queue_sup, spec, name=queue_name(record.name))
            except CallFailed as failure:
                if failure.reason != KILLED:
                    raise
                # Killed before it had started, when its supervisor does not restart it.
            else:
                return

    def _undo_start(self, record: QueueRecord) -> None:
        """Delete a queue to which nothing refers: a declaration for which there was no room or no thread, or
        a store of messages.
        """
        delete = Delete(if_unused=False, if_empty=False, commit=lambda: None)
        self._remove(record, died=self._ask_to_delete(record.name, delete) is None)

    def _delete(self, record: QueueRecord, *, if_unused: bool, if_empty: bool) -> int:
        vhost, name = self._vhost, record.name
        gone = self._exchanges.left_without(name)
        committed = False

        def commit() -> None:
            # Run by the queue process when its conditions hold, before the files go: a crash in between leaves a
            # folder without a queue, which the next start removes, and never a queue without its messages.
            nonlocal committed
            self._exchanges.write_deletion(queues=[name], exchanges=gone)
            vhost.transient_queues.pop(name, None)
            committed = True

        reply = self._ask_to_delete(name, Delete(if_unused, if_empty, commit))
        if not committed:
            if if_empty and name not in vhost.asleep:
                raise self._may_not_be_empty(name)
            if reply is None:
                self.trace_deletion(name)
            commit()
        vhost.asleep.pop(name, None)
        vhost.fallen_asleep.discard(name)
        vhost.figures.pop(name, None)
        vhost.note_overflow(name, None)
        vhost.queue_events["queue_deleted"] += 1
        vhost.owners.pop(name, None)
        vhost.router.remove_queue(name)
        self._exchanges.forget(gone)
        self._remove(record, died=reply is None)
        return reply or 0

    def _ask_to_delete(self, name: str, request: Delete) -> int | None:
        """Have a queue's process delete the queue, if it has one: the ready messages that went along, 0 if it
        sleeps and has none, None if it died.
        """
        while True:
            if (asleep := self._vhost.asleep.get(name)) is not None:
                if not asleep.counts.ready:
                    return 0
                self.wake(name)
            try:
                ready: int = self._process.call(queue_name(name), request, timeout=None)
            except CallFailed as failure:
                if failure.reason != ASLEEP and name not in self._vhost.asleep:
                    return None
                self._process.runtime.event().wait(FALLS_ASLEEP)
            else:
                return ready

    def _may_not_be_empty(self, name: str) -> PreconditionFailed:
        """The refusal of RabbitMQ, too (rabbit_classic_queue:delete)."""
        words = self._vhost.words("queue", name)
        return PreconditionFailed(
            f"queue {name!r} is being restarted and may not be empty; try again later",
            reply_text=f"{words} not empty",
        )

    def _remove(self, record: QueueRecord, *, died: bool) -> None:
        """Remove what is left of a deleted queue; `died`: its process told the stores nothing."""
        self._vhost.awake.pop(record.name, None)
        runtime, name = self._process.runtime, queue_name(record.name)
        # Its supervisor may not know yet that it ended, or start it again after a crash: then the name would be taken.
        with suppress(ArgumentValueError, ActorDeadError):
            stop_child(runtime, self._queue_sup, name)
        runtime.retire(name)
        if died:
            by = 0 if self._process.trace is None else self._process.trace.id
            for store in self._stores:
                self._process.cast(store, OwnerDelete(record.name, by))
        for folder in self._vhost.folders(record):
            self._disk.rmtree(folder)
        try:
            self._forget_gone()
        except OSError as error:
            if not may_pass(error):
                raise

    def _forget_gone(self) -> None:
        """Have the definitions forget the queues that were deleted, once they are many and have no folder."""
        vhost, definitions = self._vhost, self._vhost.definitions
        if len(definitions.gone) < max(self._most_gone, len(definitions.queues)):
            return
        self._most_gone = 2 * len(definitions.gone)
        self._disk.sync_dir(vhost.directory.queues)
        known = {folder for record in self._records() for folder in vhost.folders(record)}
        if not vhost.directory.queue_folders(self._disk, known.union(vhost.kept_folders)):
            definitions.forget_gone()
            self._most_gone = MANY_DELETED
