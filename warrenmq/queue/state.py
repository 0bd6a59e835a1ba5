"""The state of one queue: a value that takes messages and leaves effects (rabbit_amqqueue_process without the process).

    Publish ──► PublishBuffer ──► backing queue ──► queue index (small bodies) and message stores (large ones)
                                     │                    │ sync: mailbox empty, or 25 ms, or 1 MiB
    Deliver ◄── QueueOutput ◄────────┘                    └──► Settle: confirms, many for one sync
    Ack, Reject ──► QueueOutput ──► backing queue ──► index acks, store removes
                     │
                     └──► what expired, is too much or was rejected ──► DeadLetter

A call changes the state and leaves `effects`, what is to be sent and started; the process around it
(actors/queue/process.py) carries these out.  No threads and no process here; the files, the stores' ends and
the clocks are given from outside, so a test may put plain objects in their place.  queue/messages.py has all
messages that can arrive.

Deliveries wait while only publishes and acks arrive, because many at a time are cheaper; before any other message is handled
each consumer is sent what it has room for (assert_invariant).  A confirm waits for the sync.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from pykka import ActorRef

from warrenmq.backing_queue.delayed import DelayedQueue
from warrenmq.backing_queue.protocol import BackingQueue
from warrenmq.errors import AccessRefused, Nacked
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.asleep import Asleep
from warrenmq.queue.consumers import QueueConsumers
from warrenmq.queue.drain import QueueDrain
from warrenmq.queue.drops import QueueDrops
from warrenmq.queue.due import Delays
from warrenmq.queue.effects import CastStore, Effect, Refuse, Settle, StartTimer
from warrenmq.queue.expiry_and_limits import ExpiryAndLimits
from warrenmq.queue.group_commit import GroupCommit
from warrenmq.queue.index_sync import IndexSync
from warrenmq.queue.messages import (
    Ack,
    Acks,
    BumpReduceMemoryUse,
    Cancel,
    ChannelClosed,
    CheckAcks,
    CheckDrain,
    Consume,
    ContinueFlush,
    CountBytes,
    Declared,
    Drain,
    DropExpired,
    Get,
    GetTimeout,
    GiveUp,
    Idle,
    Info,
    ListConsumers,
    MaybeExpire,
    MsgsOnDisk,
    NewArguments,
    Peek,
    Publish,
    Purge,
    QueueFigures,
    QueueInfo,
    Reject,
    Resume,
    SetRamDurationTarget,
    Stat,
    SyncTimeout,
    Taken,
    UpdateRamDuration,
    VhostRecovered,
)
from warrenmq.queue.output import QueueOutput
from warrenmq.queue.overflow import QueueOverflow
from warrenmq.queue.publish_buffer import BATCH, DiskRoom, PublishBuffer
from warrenmq.queue.queue_expiry import QueueExpiry
from warrenmq.queue.ram_duration import RamDuration
from warrenmq.queue.returns import Returns
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue.unconfirmed import Publication, Unconfirmed, are_several
from warrenmq.seams.disk import Waiter
from warrenmq.seams.disk_errors import is_longest
from warrenmq.trace.events import DROP_DELETED, DROP_PURGED, Trigger

T = TypeVar("T")

FLUSH_STEP_EVERY = 2_048
"""Messages published between two steps of a journal flush while the mailbox does not run dry: the flush keeps pace
without stopping the queue."""

WORTH_FLUSHING = 1 << 20
"""Bytes of an empty queue's files that do not stay until it sleeps."""
MOST_ASLEEP = 16_384
"""Messages with which a queue may sleep: it is opened in a few milliseconds, in which no other queue can be."""

WAITS = object()
"""The answer of `call` to a request that is answered later, by a Reply."""
_CAST_STORE = CastStore()
_collected = attrgetter("collected")


class QueueState:
    """One queue (the state record of rabbit_amqqueue_process).

    effects            actions for the process, in order; the process clears the list
    vq                 the messages (rabbit_variable_queue)
    unconfirmed        publications that wait for a sync or for the store
    group_commit       whether there is a pause before a sync, for those who are about to send more
    buffer             publishes that are not taken in yet
    overflow           refuses publishes to a full queue; None if the queue refuses nothing
    consumers          the consumers, and the messages that each holds (rabbit_queue_consumers)
    front              drops expired and surplus messages at the front
    delays             the same, of a queue of delayed messages: releases those whose time has come; else None
    drops              drops messages, with dead-lettering
    expiry             the timer of x-expires
    output             delivers, acks, requeues
    index_sync         syncs the index, and keeps the state of the disk
    ram_duration       reports to the memory monitor
    drain              Drain calls that wait
    rows               the queue's rows in the trace; None without a trace
    _since_flush_step  messages published since the last step of a journal flush
    """

    def __init__(self, vq: BackingQueue, queue: QueueSetting) -> None:
        """`vq` has recovered the messages on the disk."""
        arguments, rows = queue.arguments, queue.rows
        self.effects = effects = list[Effect]()
        self.vq = vq
        self.unconfirmed = Unconfirmed()
        self.group_commit = GroupCommit(syncs=queue.settings.durability == "fsync")
        self.consumers = QueueConsumers(queue, effects)
        self.index_sync = IndexSync(queue, vq.index, effects)
        self._returns = returns = Returns(queue, vq.index)
        self.drops = QueueDrops(queue, vq, self.index_sync, returns, effects)
        self.delays: Delays | None = None
        if isinstance(vq, DelayedQueue):
            self.delays = Delays(queue, vq, self.drops, self.index_sync, effects)
        self.front = self.delays or ExpiryAndLimits(queue, vq, self.drops, self.index_sync, effects)
        room = DiskRoom(queue, vq.index, self.index_sync, self.unconfirmed)
        self.buffer = PublishBuffer(queue, vq, self.front, self.unconfirmed, room, effects)
        self.overflow = QueueOverflow.of(arguments, vq, rows, effects)
        self.expiry = QueueExpiry(arguments.expires, self.consumers, effects)
        self.output = QueueOutput(
            queue, vq, self.consumers, self.front, self.drops, self.expiry, self.index_sync, returns, effects
        )
        self.ram_duration = RamDuration(vq, effects)
        self.drain = QueueDrain(self.unconfirmed, self.delays, self.index_sync, effects)
        self._stores = queue.stores
        self._store_ends = tuple(queue.stores.values())
        self._monotonic_ns = queue.monotonic_ns
        self.rows = rows
        self._since_flush_step = 0
        self._numbered_before = vq.numbered - queue.before.published
        """Sequence ids of before, which `figures` does not count as published."""
        self._pages = vq.has_ram_duration
        """True if the memory monitor makes it page."""

    def figures(self) -> QueueFigures:
        """The counts, for any thread: they are single look-ups of what the queue keeps anyway."""
        vq = self.vq
        return QueueFigures(
            vq.ready, vq.unacked, self.consumers.count, vq.ready_bytes, vq.numbered - self._numbered_before,
            (*self.output.delivered,), self.output.acked, vq.unacked_bytes, vq.memory_bytes,
        )  # fmt: skip

    def asleep(self) -> Asleep | None:
        """The part of it that is remembered while it sleeps; None if it may not sleep.

        It may when nobody waits for it, all of its promises are kept, and its files say all else.
        """
        vq = self.vq
        if (
            vq.unacked or vq.to_remove or self.unconfirmed or self.buffer.count or self.effects
            or self.consumers.in_use or self.drain.waiting or self.index_sync.is_full or self.rest() is None
        ):  # fmt: skip
            return None
        return Asleep(self.figures(), vq.next_seq_id, self.drops.damaged)

    def rest(self) -> tuple[int, int | None] | None:
        """Messages that its files will hold after a stop, and the bytes of their bodies if they are counted;
        None if a process is needed.

        It is for what happens by itself, and for a queue that takes long to open.
        """
        vq = self.vq
        count = vq.ready + vq.unacked
        if (
            count > MOST_ASLEEP or self.expiry.runs or self.delays is not None or self.front.will_expire
            or not vq.all_stays
        ):  # fmt: skip
            return None
        return count, None if vq.ready_bytes is None else vq.ready_bytes + vq.unacked_bytes

    def begin(self) -> list[int]:
        """The first call, after recovery; returns the sequence ids of messages that recovery found damaged."""
        self.expiry.renew()
        return self.drops.take_lost()

    # -- messages that arrive

    def publish(self, message: Publish) -> None:
        """Handle a Publish."""
        if self.overflow is not None:
            for one in message.one_by_one():
                self.output.deliver()
                for part in self.overflow.admit(one):
                    self.buffer.add(part)
                    self.take_in()
                    self.output.deliver()
            return
        buffer = self.buffer
        if not buffer.add(message):
            self.take_in()
            buffer.add(message)
        if buffer.count >= BATCH:
            self.take_in()

    def cast(self, message: Any, sender: int, pseq: int) -> None:
        """Handle another cast; `sender` and `pseq` name its SEND row in the trace."""
        if self.buffer.count:
            self.take_in()
        match message:
            case Ack() | Acks():
                self.output.ack(message, sender, pseq)
            case Taken():
                self.consumers.taken(message.consumer, message.count)
            case Resume():
                self.consumers.resume(message.channel)
            case MsgsOnDisk():
                if message.reason == "too long":
                    self._nack_what_waits()
                    return
                if self.rows is not None:
                    self.rows.on_disk(message.msg_ids, message.reason)
                self._confirm(self.unconfirmed.on_disk(message.msg_ids))
            case Reject():
                self.output.reject(message)
            case Cancel():
                self.output.cancel(message)
            case GiveUp():
                self.output.give_up(message.request)
            case VhostRecovered():
                if self.rows is not None:
                    self.rows.go_ahead()
                self.front.go_ahead()
            case NewArguments():
                self._apply(message.arguments)
            case Stat():
                self.expiry.renew()
            case SetRamDurationTarget():
                self.vq.set_ram_duration_target(message.duration)
            case _:
                raise TypeError(message)

    def _apply(self, arguments: QueueArguments) -> None:
        """Go by other limits from now on; a time to live holds for messages that come, a length for those
        that are there, too.
        """
        self.output.deliver()  # messages that consumers can take do not count towards the limits
        if self.rows is not None:
            self.rows.limits(arguments, in_force=self.front.is_up)
        self.front.set_limits(arguments)
        self.buffer.limits_changed()
        self.overflow = QueueOverflow.of(arguments, self.vq, self.rows, self.effects)
        self.expiry.set(arguments.expires)
        self._returns.set_limit(arguments.delivery_limit)
        self.front.trim()

    def store_granted(self, store: str) -> None:
        """A message store granted credit."""
        if self.buffer.count:
            self.take_in()
        if not self._stores[store].blocked:
            self.buffer.unblock(store)
            self.vq.reduce_memory_use()  # it stopped while the store granted no credit

    def call(self, request: Any, sender: Any) -> Any:
        """Answer a call, after `catch_up`; WAITS if a Reply follows later."""
        if self.delays is not None and isinstance(request, Get | Consume):
            msg = "a queue of delayed messages cannot be consumed; they come to the queues of their exchange in time"
            raise AccessRefused(msg)
        match request:
            case Get():
                return WAITS if self.output.get(request, sender) else None
            case Consume():
                return self.consumers.consume(request)
            case Cancel():
                return self.output.cancel(request)
            case ChannelClosed():
                return self.output.channel_ended(request.channel)
            case Purge():
                return self._reading("the messages to purge", lambda: self.drops.purge(DROP_PURGED))
            case Drain():
                answer = self.drain.drain(sender)
                return WAITS if answer is None else answer
            case Stat():
                self.expiry.renew()
                return Declared(self.vq.ready, self.consumers.count)
            case Info():
                return self._info()
            case CountBytes():
                if self.vq.ready_bytes is None:
                    self._reading("its entries", self.vq.count_bytes)
                return None
            case Peek():
                return self._reading(f"{request.most} messages", lambda: self.front.peek(request.most))
            case ListConsumers():
                return self.consumers.infos()
            case _:
                raise TypeError(request)

    def _reading(self, what: str, read: Callable[[], T]) -> T:
        """Refuse a call whose messages cannot be read for now."""
        try:
            return read()
        except (MemoryError, OSError) as error:
            raise self.index_sync.cannot_read(what, error) from error

    def info(self, message: Any) -> None:
        """Handle a timer's message, after `catch_up`."""
        match message:
            case SyncTimeout():
                self.index_sync.sync_timeout()
                if self.unconfirmed.unsynced:
                    self.sync(Trigger.TIMER)
            case Idle():
                self.index_sync.idle_came()
                if self.index_sync.disk_full:
                    self.sync(Trigger.TIMER)
            case GetTimeout():
                self.output.get_timeout(message.sender)
            case CheckDrain():
                self.drain.look()
            case CheckAcks():
                self.output.lapse(self._monotonic_ns())
            case DropExpired():
                self.front.timer_came()
            case MaybeExpire():
                self.expiry.timer_came()
            case UpdateRamDuration():
                self.ram_duration.update()
            case BumpReduceMemoryUse():
                self.ram_duration.bump()

    def answered(self, done: Collection[int], failed: Collection[int]) -> None:
        """The queues that released messages went to have answered."""
        assert self.delays is not None, "only delayed messages are released"
        self.delays.answered(done, failed)
        if self.drain.waiting:
            self.drain.look()

    def channel_died(self, channel: ActorRef[Any]) -> None:
        """A monitored channel is dead; called after `catch_up`."""
        self.output.channel_ended(channel)

    def deleting(self) -> None:
        """The deletion is about to be written: what follows is cut off perhaps."""
        if self.rows is not None:
            self.rows.deleted()

    def delete(self) -> int:
        """Delete the queue's messages and files; returns how many messages were ready."""
        ready = self.drops.purge(DROP_DELETED)
        self.drops.note_deleted(self.consumers.unacked_messages())
        self.vq.index.delete()
        return ready

    def mailbox_empty(self) -> None:
        """The mailbox is empty: take in what was collected, deliver, and send to the stores; `make_safe` follows."""
        if self.buffer.count:
            self.take_in(sync_follows=True)
        self.output.deliver()
        if self.front.active:
            self.front.trim()
        if self.rows is not None:
            self.output.rest()
        ram_duration = self.ram_duration
        if self._pages and (self.vq.must_reduce_again or not ram_duration.updating):
            ram_duration.worked()
        if any(map(_collected, self._store_ends)):
            self.effects.append(_CAST_STORE)

    def nobody_waits(self) -> bool:
        """True if neither `mailbox_empty` nor an ack could answer or deliver anything."""
        return not (
            self.buffer.count
            or self.unconfirmed
            or self.drain.waiting
            or (self.vq.ready and self.consumers.count)
        )

    @property
    def sync_trigger(self) -> Trigger | None:
        """The reason for which `make_safe` syncs: confirms, or what nobody waits for has waited long enough;
        None if it does not.
        """
        if self.unconfirmed.unsynced:
            return Trigger.MAILBOX_EMPTY
        return Trigger.TIMER if self.index_sync.due else None

    def begin_sync(self, waiter: Waiter) -> bool:
        """Begin the sync of `make_safe`, which has to be called when the waiter is told; False, and nothing
        was begun, where there is none or that cannot be.
        """
        trigger = self.sync_trigger
        return trigger is not None and self.index_sync.begin(trigger, waiter)

    def make_safe(self) -> None:
        """The rest of an empty mailbox, once deliveries are on their way: sync the index."""
        index_sync, vq, index = self.index_sync, self.vq, self.vq.index
        if (trigger := self.sync_trigger) is not None and not index_sync.disk_full:
            is_idle = index_sync.due
            self.sync(trigger)
            if is_idle and not (vq.ready or vq.unacked or index_sync.disk_full):
                index.close_files()
                if index.dirty_bytes >= WORTH_FLUSHING:
                    self._flush_if_empty()
        else:
            if vq.to_remove and index_sync.lets_bodies_go():
                vq.index_synced()
                self.effects.append(_CAST_STORE)
            index_sync.rest()
        if index.flushing and not index_sync.disk_full and index_sync.guarded(index.flush_step):
            # again when the messages that came meanwhile have been handled
            self.effects.append(StartTimer(0, ContinueFlush()))

    def long_unused(self) -> None:
        """Have the files of the queue go if it is empty; nobody has used it for long.

        A queue that is used again and again, and emptied each time, would make them anew each time if they went at once.
        """
        self._flush_if_empty()
        index = self.vq.index
        while index.flushing and self.index_sync.guarded(index.flush_step):
            pass

    def _flush_if_empty(self) -> None:
        index_sync, vq, index = self.index_sync, self.vq, self.vq.index
        if not (vq.ready or vq.unacked or index.needs_sync or index_sync.disk_full) and index.dirty_bytes:
            index_sync.guarded(index.begin_flush)

    # -- publish and confirm

    def catch_up(self) -> None:
        """Deliver what was put off, so that each consumer has what it has room for."""
        if self.buffer.count:
            self.take_in()
        self.output.deliver()

    def take_in(self, *, sync_follows: bool = False) -> None:
        """Take in collected publishes; with `sync_follows` the caller delivers and syncs next."""
        buffer, index_sync = self.buffer, self.index_sync
        if not buffer.count:
            return
        self._since_flush_step += buffer.count
        if self.front.active:
            self.output.deliver()  # messages that consumers can take do not count towards the limits
        if buffer.take_in():
            if self.unconfirmed.unsynced:
                if not sync_follows:
                    index_sync.confirms_wait()
            else:
                index_sync.unsynced = True
        for store in self._store_ends:
            if store.blocked:
                buffer.block(store.name, store.store_trace_id)
        if self._since_flush_step >= FLUSH_STEP_EVERY:
            index = self.vq.index
            if index.flushing and not index_sync.disk_full:
                self._since_flush_step = 0
                index_sync.guarded(index.flush_step)
        if sync_follows:
            return
        if self._pages:
            self.ram_duration.worked()
        if self.front.active:
            self.output.deliver()
            self.front.trim()
        elif self.vq.ready >= BATCH:
            self.output.deliver()

    def sync(self, trigger: Trigger) -> None:
        """Sync the index, and confirm what waited for it; does nothing on a full disk."""
        try:
            took = self.index_sync.sync(trigger)
        except OSError as error:
            self.index_sync.failed(error)
            if is_longest(error):
                self._nack_what_waits()
            return
        complete = self.unconfirmed.index_synced()
        self.group_commit.synced(took, sum(self.output.delivered), several=are_several(complete))
        self._confirm(complete)
        if self.vq.to_remove:
            self.vq.index_synced()
            self.effects.append(_CAST_STORE)

    def _nack_what_waits(self) -> None:
        """A limit of the system keeps what was taken in from being written, perhaps for good: its publishers
        wait no longer.
        """
        if not (given_up := self.unconfirmed.give_up()):
            return
        if self.rows is not None:
            self.rows.nacked(given_up)
        why = f"{self.index_sync.lack_now}, so the message is kept in memory until that limit (ulimit -f) is raised"
        self.effects += [Refuse(promise, Nacked(why)) for _, _, _, promise in given_up]
        if self.drain.waiting:
            self.drain.look()

    def confirm_synced(self) -> None:
        """Confirm what waited for the sync of a clean stop."""
        self.index_sync.unsafe_acks.safe()
        self._confirm(self.unconfirmed.index_synced())

    def nack_all(self, why: str) -> list[tuple[int, int]]:
        """The process is dead: nack what was not confirmed; called once, from any thread.  Returns it as
        (first message, how many).

        Collected publishes come first: the process may be about to take them in.
        """
        nacked = self.buffer.nack_all(why) + self.unconfirmed.nack_all(why)
        if self.overflow is not None:
            self.overflow.nack_all(why)
        # decided, and perhaps not carried out: a second answer changes nothing
        for effect in [*self.effects]:
            if isinstance(effect, Settle):
                for _, _, _, promise in effect.complete:
                    promise.nack(why)
            elif isinstance(effect, Refuse):
                effect.promise.fail(effect.error)
        return nacked

    def _confirm(self, complete: Sequence[Publication]) -> None:
        if not complete:
            return
        if self.rows is not None:
            self.rows.confirmed(complete)
        self.effects.append(Settle(complete))
        if self.drain.waiting:
            self.drain.look()

    def _info(self) -> QueueInfo:
        vq = self.vq
        if vq.to_remove and not self.index_sync.disk_full:
            self.sync(Trigger.READ)
        # so that a store that is asked next has received what led to this answer
        self.effects.append(_CAST_STORE)
        return QueueInfo(
            vq.ready, vq.unacked, self.consumers.count, vq.memory(), bool(self.unconfirmed), vq.next_seq_id,
            self.drops.damaged, vq.next_seq_ids,
        )  # fmt: skip
