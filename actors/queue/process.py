"""The process of one queue (rabbit_amqqueue_process): receive, decide, call storage.

    Publish ──► variable queue ──► queue index (small bodies) and store client (large ones)
                     │                    │ sync: mailbox empty, or 25 ms, or 1 MiB
    Deliveries ◄─────┘                    └──► confirms, many for one sync
    Ack, Reject ──► variable queue ──► index acks, store removes
                     │
                     └──► what expired, is too much or was rejected ──► dead-letter exchange

Everything that can arrive here stands in queue/messages.py.  Deliveries wait while only publishes and acks arrive, because
many at a time are cheaper; before anything else is handled each consumer has what it has room for (assert_invariant).
A confirm waits for the sync.  Promises outlive the process: publishers without an answer get a nack however it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from warrenmq.actors.queue.ack_timeout import CheckAcks
from warrenmq.actors.queue.departures import QueueDepartures
from warrenmq.actors.queue.drain import LookAtDrain, QueueDrain, unwritten
from warrenmq.actors.queue.intake import BATCH, QueueIntake
from warrenmq.actors.queue.overflow import QueueOverflow
from warrenmq.actors.queue.paging import QueuePaging
from warrenmq.actors.queue.priorities import PRIORITIES
from warrenmq.actors.queue.recovery import QueueSpec, recover, tell_found
from warrenmq.actors.queue.sync import QueueSync
from warrenmq.actors.queue.trace import QueueTrace
from warrenmq.actors.sending.message_sender import Flow
from warrenmq.actors.store.client import BumpCredit, MsgStoreClient
from warrenmq.directory.recovery_terms import save_terms
from warrenmq.errors import Blocked
from warrenmq.log import Log
from warrenmq.queue.messages import (
    DELETED,
    ENDED,
    Ack,
    Acks,
    BumpReduceMemoryUse,
    Cancel,
    ChannelClosed,
    Consume,
    Declared,
    Delete,
    Drain,
    DropExpired,
    Get,
    GetTimeout,
    GoAhead,
    GoOn,
    Idle,
    Info,
    ListConsumers,
    MaybeExpire,
    MsgsOnDisk,
    Publish,
    Purge,
    Reject,
    Resume,
    SetRamDurationTarget,
    Stat,
    SyncTimeout,
    Taken,
    UpdateRamDuration,
)
from warrenmq.queue.unconfirmed import Unconfirmed
from warrenmq.runtime import CreditSpec, Down, From, Server, Stop
from warrenmq.runtime.reasons import NORMAL
from warrenmq.seams.disk import is_full
from warrenmq.seams.fenced_disk import FencedDisk
from warrenmq.trace.events import DROP_DELETED, DROP_PURGED, Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warrenmq.queue.unconfirmed import Publication as Owed

FLUSH_STEP_EVERY = 512
"""Messages published between two steps of a journal flush while the mailbox does not run dry: the flush keeps pace
without stopping the queue."""


def why_ended(reason: object) -> str:
    """The nack text for publishers of a queue process that ended for this reason."""
    return DELETED if reason == NORMAL else ENDED


class QueueProcess(Server):
    """One queue (the state record of rabbit_amqqueue_process).

    spec           name, directory, stores, settings
    vq             the messages (rabbit_variable_queue)
    unconfirmed    publishers without an answer
    intake         publishes on their way in
    departures     who gets the next message, and who holds which (rabbit_queue_consumers); messages on their way out
    safety         when the index is synced, and whether the disk is full
    paging         what the memory monitor wants
    """

    receives: ClassVar[frozenset[type]] = frozenset({Ack, Acks})
    requests = frozenset(
        {Get, Consume, Cancel, ChannelClosed, Purge, Delete, Drain, Stat, Info, ListConsumers}
    )

    @staticmethod
    def priority(message: Any) -> int:
        """As rabbit_amqqueue_process:prioritise_*; an ack may overtake a publish, a reject may not."""
        return PRIORITIES.get(type(message), 0)

    @staticmethod
    def undelivered(message: Any) -> None:
        """A publish that nobody will handle gets its nack."""
        if isinstance(message, Publish):
            flow = message.publisher
            message.confirm.nack(why_ended(flow.inbox.reason if isinstance(flow, Flow) else None))

    def init(self, spec: QueueSpec) -> None:
        """Recover what the directory holds (all of it, before the first message is handled)."""
        self.spec = spec
        self.log = Log("warrenmq.queue", queue=spec.name)
        self._unconfirmed = Unconfirmed()
        self._safety = QueueSync(self, spec.settings, self.log)
        self._drain = QueueDrain(self, self._unconfirmed, self._safety)
        self._since_flush_step = 0
        self._recover()
        self.actor_inbox.on_close(self._nack_all)

    def _recover(self) -> None:
        spec = self.spec
        disk = FencedDisk(spec.disk, self.fence)
        cref, send = (
            self.runtime.token_bytes,
            self.actor_inbox.send,
        )  # on_disk is called in the store's thread
        self._persistent = MsgStoreClient(
            self, spec.persistent_store, spec.name, cref(16), lambda ids, why: send(MsgsOnDisk(ids, why))
        )
        self._transient = MsgStoreClient(self, spec.transient_store, spec.name, cref(16), None)
        self._clients = {spec.persistent_store: self._persistent, spec.transient_store: self._transient}
        self._disk = disk
        self._vq, found, clean = recover(
            spec, disk, self._persistent, self._transient, self.runtime.monotonic_ns, self.trace
        )
        self._safety.watch(disk, spec.directories[0], (self._persistent, self._transient))
        self._paging = QueuePaging(self, self._vq)
        self._rows = None if self.trace is None else QueueTrace(self.trace)
        self._departures = QueueDepartures(self, spec, self._vq, self._rows, self._safety, self.log)
        self._consumers, self._head, self._lease = (
            self._departures.consumers, self._departures.head, self._departures.lease
        )  # fmt: skip
        self._overflow = QueueOverflow.of(spec.arguments, self._vq, self._departures.letters, self._rows)
        credit = CreditSpec(*spec.settings.credit_flow_default_credit)
        self._intake = QueueIntake(spec.name, durable=spec.durable, vq=self._vq, head=self._head,
                                   unconfirmed=self._unconfirmed, rows=self._rows, credit=credit)  # fmt: skip
        lost = self._departures.take_lost()
        if self._rows is not None:
            self._rows.recovered(found, self._vq.index.live_runs(), lost, spec.arguments, clean=clean)
        tell_found(spec, self.log, found, clean=clean)
        self._head.trim()

    # -- what arrives

    def handle_cast(self, message: Any) -> None:
        """One message (see queue/messages.py)."""
        if type(message) is Publish:
            self._publish(message)
            return
        self._take_in()
        match message:
            case Ack() | Acks():
                self._departures.ack(message, self.sender_id, self.sender_seq)
            case Taken():
                self._consumers.taken(message.consumer, message.count)
            case Resume():
                self._consumers.resume(message.channel)
            case MsgsOnDisk():
                if self._rows is not None:
                    self._rows.on_disk(message.msg_ids, message.reason)
                self._confirm(self._unconfirmed.on_disk(message.msg_ids))
            case Reject():
                self._departures.reject(message)
            case BumpCredit():
                self._bump(message)
            case Cancel():
                self._departures.cancel(message)
            case GoAhead():
                self._head.go_ahead()
            case Stat():
                self._lease.renew()
            case SetRamDurationTarget():
                self._vq.set_ram_duration_target(message.duration)
            case _:
                raise TypeError(message)

    def handle_call(self, request: Any, sender: From) -> Any:
        """Answer one call."""
        self._catch_up()
        match request:
            case Get():
                return self._departures.get(request, sender)
            case Consume():
                return self._consumers.consume(request)
            case Cancel():
                self._departures.cancel(request)
                return None
            case ChannelClosed():
                self._departures.channel_ended(request.channel)
                return None
            case Purge():
                return self._departures.purge(DROP_PURGED)
            case Delete():
                return self._delete(request, sender)
            case Drain():
                return self._drain.asked(sender)
            case Stat():
                self._lease.renew()
                return Declared(self._vq.ready, self._consumers.count)
            case Info():
                if self._vq.to_remove and not self._safety.disk_full:
                    self._sync(Trigger.READ)
                self._persistent.send()  # so that a store that is asked next has what led to this answer
                self._transient.send()
                return self._departures.info(unconfirmed=bool(self._unconfirmed))
            case ListConsumers():
                return self._consumers.infos()

    def handle_info(self, message: Any) -> None:
        """The process's own timers, and the deaths of channels."""
        self._catch_up()
        match message:
            case Down() if message.ref is not None:
                self._departures.channel_ended(message.ref)
            case SyncTimeout():
                self._safety.timed_out()
                if self._unconfirmed.wait_for_sync:
                    self._sync(Trigger.TIMER)
            case Idle():
                self._sync(Trigger.TIMER)
                empty = not (self._vq.ready or self._vq.unacked)
                if self._vq.index.dirty_count and empty and not self._safety.disk_full:
                    self._safety.guarded(self._vq.index.begin_flush)  # an empty queue needs no disk
            case GetTimeout():
                if self._consumers.stop_waiting(message.sender):
                    message.sender.reply(None)
            case LookAtDrain():
                self._drain.look()
            case CheckAcks():
                self._departures.lapse()
            case DropExpired():
                self._head.timer_came()
            case MaybeExpire():
                self._lease.timer_came()
            case UpdateRamDuration():
                self._paging.update()
            case BumpReduceMemoryUse():
                self._paging.bumped()

    def mailbox_empty(self) -> None:
        """Nothing more to do first: deliver, let the stores have their mail, and make it all safe."""
        self._catch_up()
        if self._head.active:
            self._head.trim()
        self._departures.rest()
        self._paging.worked()
        self._persistent.send()
        self._transient.send()
        safety = self._safety
        if self._unconfirmed.wait_for_sync and not safety.disk_full:
            self._sync(Trigger.MAILBOX_EMPTY)
        else:
            if safety.disk_full or not self._vq.index.needs_sync:
                self._vq.index_synced()  # on a full disk what is acked makes room, though its ack has to wait for it
                self._persistent.send()
            safety.idle()
        if self._vq.index.flushing and not safety.disk_full and safety.guarded(self._vq.index.flush_step):
            self.send_after(0, GoOn())  # back here when whatever came meanwhile has been handled

    def terminate(self, reason: Any) -> None:
        """A clean stop leaves everything on disk and says so; anything else leaves the files to recovery."""
        if reason != "shutdown":
            return
        try:
            if not self._safety.is_full:
                self._stop_cleanly()
                return
        except OSError as error:
            if not is_full(error):
                raise
        told = unwritten(self.spec.name, self._unconfirmed.messages())
        self.log.warning(told)
        self.spec.unwritten(told)

    def _stop_cleanly(self) -> None:
        self._take_in()
        vq = self._vq
        vq.drop_transient_pending()
        if not self.spec.durable:
            vq.index.delete()
            self._persistent.delete()
        else:
            vq.index.sync(Trigger.CLOSE)
            self._confirm(self._unconfirmed.index_synced())
            vq.index_synced()
            self._persistent.terminate()
            messages = vq.ready + vq.unacked
            for directory, terms in zip(self.spec.directories, vq.terminate(), strict=True):
                save_terms(self._disk, directory, terms)
            if self._rows is not None:
                self._rows.closed(messages, vq.next_seq_id)
        self._transient.delete()

    # -- publish and confirm

    def _nack_all(self, reason: object) -> None:
        """The process is dead: called in the thread that found it so."""
        why = why_ended(reason)
        self._unconfirmed.nack_all(why)
        self._intake.nack_all(why)
        if self._overflow is not None:
            self._overflow.nack_all(why)

    def _publish(self, message: Publish) -> None:
        intake = self._intake
        if self._overflow is not None:
            self._departures.deliver()
            for part in self._overflow.admit(message):
                intake.add(part)
                self._take_in()
                self._departures.deliver()
            return
        if not intake.add(message):
            self._take_in()
            intake.add(message)
        if intake.count >= BATCH:
            self._take_in()

    def _catch_up(self) -> None:
        """Have consumers hold what they have room for, as if nothing had been put off."""
        self._take_in()
        self._departures.deliver()

    def _take_in(self) -> None:
        """Let collected publishes in; before anything else is handled."""
        intake = self._intake
        if not intake.count:
            return
        self._since_flush_step += intake.count
        if self._head.active:
            self._departures.deliver()  # what consumers can take does not count as too much
        if not self._safety.takes(intake.size, owes_confirms=bool(self._unconfirmed)):
            intake.refuse()
        elif intake.take_in():
            if self._unconfirmed.wait_for_sync:
                self._safety.confirms_wait()
            else:
                self._safety.unsynced = True
        for store, client in self._clients.items():
            if client.blocked:
                intake.block(store, client.store_trace_id)
        if (
            self._since_flush_step >= FLUSH_STEP_EVERY
            and self._vq.index.flushing
            and not self._safety.disk_full
        ):
            self._since_flush_step = 0
            self._safety.guarded(self._vq.index.flush_step)
        self._paging.worked()
        if self._head.active:
            self._departures.deliver()
            self._head.trim()
        elif self._vq.ready >= BATCH:
            self._departures.deliver()

    def _sync(self, trigger: Trigger) -> None:
        if self._safety.run(lambda: self._vq.index.sync(trigger)):
            self._confirm(self._unconfirmed.index_synced())
            self._vq.index_synced()
            self._persistent.send()

    def _confirm(self, complete: Sequence[Owed]) -> None:
        if not complete:
            return
        if self._rows is not None:
            self._rows.confirmed(complete)
        for _, _, _, promise in complete:
            promise.confirm()
        self._drain.settled()

    def _bump(self, message: BumpCredit) -> None:
        client = self._clients[message.store]
        client.handle_bump(message.credit)
        if not client.blocked:
            self._intake.unblock(message.store)
            self._vq.reduce_memory_use()  # it stops where a store has more to do than it likes

    # -- control

    def _delete(self, request: Delete, sender: From) -> Any:
        name = self.spec.name
        request.check(name, self.spec.vhost, self._consumers.count, self._vq.ready)
        try:
            request.commit()
        except OSError as error:
            if not is_full(error):
                raise
            msg = f"the disk is full, so queue {name!r} was not deleted; make room and try again"
            raise Blocked(msg) from error
        ready = self._departures.purge(DROP_DELETED)
        self._vq.index.delete()
        for client in self._clients.values():
            client.delete()
        sender.reply(ready)
        raise Stop("normal")
