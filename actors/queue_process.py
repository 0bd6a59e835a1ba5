"""The process of one queue (rabbit_amqqueue_process): receive, decide, call storage.

    Publish ──► variable queue ──► queue index (small bodies) and store client (large ones)
                     │                    │ sync: mailbox empty, or 25 ms, or 1 MiB
    Deliveries ◄─────┘                    └──► confirms, many for one sync
    Ack, Reject ──► variable queue ──► index acks, store removes

Everything that can arrive here stands at the top of this module.  A message is delivered as soon as somebody has
room for it; its confirm waits for the sync.  Promises outlive the process: whatever way it ends, publishers
without an answer get a nack.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from warrenmq.actors.msg_store_client import BumpCredit, MsgStoreClient
from warrenmq.actors.queue_consumers import Consumer, share_out
from warrenmq.errors import AccessRefused, Blocked, PreconditionFailed
from warrenmq.runtime import NO_REPLY, CreditFlow, CreditSpec, From, Server, Stop
from warrenmq.storage.index_recovery import store_message_ids
from warrenmq.storage.queue_index import QueueIndex
from warrenmq.storage.recovery_terms import discard_terms, save_terms, take_terms
from warrenmq.storage.unconfirmed import Publication as Owed
from warrenmq.storage.unconfirmed import Unconfirmed
from warrenmq.storage.variable_queue import VariableQueue
from warrenmq.trace.events import (
    CLEAN,
    CONFIRM_DURABLE,
    CONFIRM_TRANSIENT,
    DIRTY,
    DROP_DELETED,
    DROP_PURGED,
    DROP_REJECTED,
    GET,
    IGNORED,
    IN_STORE,
    NO_ACK,
    PERSISTENT,
    REDELIVERED,
    WANTS_CONFIRM,
    WRITTEN,
    Ev,
    Trigger,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from warrenmq.actors.confirms import Confirm
    from warrenmq.actors.queue_consumers import Outlet
    from warrenmq.runtime import Timer
    from warrenmq.settings import Settings
    from warrenmq.storage.disk import Disk
    from warrenmq.storage.variable_queue import Fetched, Publication

# Plain numbers: looking up an enum's member costs as much as writing the row.
_PUBLISH, _CONFIRM, _DELIVER = int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.DELIVER)
_ACK, _ON_DISK = int(Ev.ACK), int(Ev.ON_DISK)

BATCH = 64
"""Ready messages that are delivered at once while mail keeps coming; fewer wait for the empty mailbox."""
FLUSH_STEP_EVERY = 1_024
"""Messages published between two steps of a journal flush while the mailbox does not run dry: the flush (one
segment a step) keeps pace without stopping the queue."""
DISK_FULL_RETRY = 1.0
"""Seconds between attempts to write while the disk is full."""


class Publisher:
    """Who publishes, as far as the queue cares: somebody to grant credit to.  Lives with the broker's face."""

    def bump(self, credit: int) -> None:
        """May send `credit` more messages to the queue; called in the queue's thread."""
        raise NotImplementedError


@dataclass(slots=True)
class Publish:
    """Publisher -> queue: messages that share all but their bodies."""

    publication: Publication
    confirm: Confirm
    publisher: Publisher

    def traced(self) -> tuple[int, int, int]:
        """The SEND row's columns."""
        return self.publication.first_id, 0, len(self.publication.bodies)


@dataclass(slots=True)
class Ack:
    """Consumer -> queue: this delivery, or all up to it, is done with."""

    consumer: int
    tag: int
    multiple: bool


@dataclass(slots=True)
class Reject:
    """Consumer -> queue: nack or reject.  Priority 0: it must not overtake (974789eb3c)."""

    consumer: int
    tag: int
    multiple: bool
    requeue: bool


@dataclass(slots=True)
class Taken:
    """Consumer -> queue: the application took so many deliveries from its channel (notify_sent)."""

    consumer: int
    count: int


@dataclass(slots=True)
class MsgsOnDisk:
    """Store -> queue: bodies are safe, or will never be needed (`ignored`)."""

    msg_ids: list[bytes]
    reason: str


@dataclass(slots=True)
class Consume:
    """Call: have messages sent to `outlet`, up to `prefetch` unacked ones (0 = no limit)."""

    consumer: int
    outlet: Outlet
    prefetch: int
    no_ack: bool
    exclusive: bool


@dataclass(slots=True)
class Cancel:
    """Call: no more deliveries; those in `untaken` (tags) go back, the others may still be acked."""

    consumer: int
    untaken: list[int]


@dataclass(slots=True)
class Get:
    """Call: one message, or None after `timeout` seconds (0 = at once)."""

    consumer: int
    no_ack: bool
    timeout: float


@dataclass(slots=True)
class Purge:
    """Call: drop every ready message; the reply is how many."""


@dataclass(slots=True)
class Delete:
    """Call: check the conditions, `commit` and go; the reply is how many ready messages went along."""

    if_unused: bool
    if_empty: bool
    commit: Callable[[], None]


@dataclass(slots=True)
class Drain:
    """Call: answered when no publisher waits for a confirm."""


@dataclass(slots=True)
class Info:
    """Call: the reply is a QueueInfo."""


@dataclass(slots=True)
class Refused:
    """A reply: the call was refused with this error, and nothing changed."""

    error: Exception


@dataclass(slots=True, frozen=True)
class QueueInfo:
    """What a queue knows of itself."""

    ready: int
    unacked: int
    consumers: int
    in_memory: int
    unconfirmed: bool
    mailbox: int


@dataclass(slots=True)
class Deliveries:
    """Queue -> consumer's outlet: messages with consecutive tags from `first_tag`."""

    first_tag: int
    messages: list[Fetched]


@dataclass(slots=True, frozen=True)
class QueueSpec:
    """What a queue process is started with."""

    name: str
    directory: str
    quarantine: str
    durable: bool
    persistent_store: Any
    transient_store: Any
    settings: Settings
    disk: Disk
    last_consumer_gone: Callable[[], object] | None = None
    """For an auto-delete queue: called when the last of its consumers has gone."""


class _SyncTimeout:
    """Info from the process's own timer."""


class _RetryWrite:
    """Info: the disk was full; try again."""


@dataclass(slots=True)
class _GetTimeout:
    sender: From


_PRIORITIES: dict[type, int] = {
    Info: 9, Delete: 8, MsgsOnDisk: 6, _SyncTimeout: 6, Ack: 4, BumpCredit: 4, Taken: 3,
}  # fmt: skip


class QueueProcess(Server):
    """One queue (the state record of rabbit_amqqueue_process).

    spec           name, directory, stores, settings
    vq             the messages (rabbit_variable_queue)
    unconfirmed    publishers without an answer
    consumers      consumer id -> Consumer; `turn` says who is first in the next round
    getters        basic.get with a timeout, waiting for a message
    acks_unsynced  acks were written, but not synced; nobody waits for that, so the slow timer does it
    disk_full      the last write failed with ENOSPC: publishes are refused until one succeeds
    exclusive      id of the consumer that shares with nobody
    """

    receives: ClassVar[frozenset[type]] = frozenset({Publish, Ack})

    @staticmethod
    def priority(message: Any) -> int:
        """As rabbit_amqqueue_process:prioritise_*; an ack may overtake a publish, a reject may not."""
        return _PRIORITIES.get(type(message), 0)

    @staticmethod
    def undelivered(message: Any) -> None:
        """A publish that nobody will handle gets its nack."""
        if isinstance(message, Publish):
            message.confirm.nack("the queue process ended before it handled the message; publish it again")

    def init(self, spec: QueueSpec) -> None:
        """Recover what the directory holds (all of it, before the first message is handled)."""
        self.spec = spec
        self.log = structlog.get_logger().bind(queue=spec.name)
        self._credit = CreditFlow(CreditSpec(*spec.settings.credit_flow_default_credit))
        self._unconfirmed = Unconfirmed()
        self._consumers: dict[int, Consumer] = {}
        self._turn = 0
        self._getters: list[tuple[From, Consumer]] = []
        self._draining: list[From] = []
        self._acks_unsynced = False
        self._disk_full = False
        self._exclusive: int | None = None
        self._since_flush_step = 0
        self._sync_timer: Timer | None = None
        self._idle_timer: Timer | None = None
        self._sync_interval = spec.settings.msg_store_sync_interval / 1000
        self._idle_interval = spec.settings.queue_sync_interval / 1000
        unconfirmed = self._unconfirmed
        self.actor_inbox.on_close(
            lambda _reason: unconfirmed.nack_all("the queue process ended before the message was safe; publish it again")
        )
        self._recover()

    def _recover(self) -> None:
        spec = self.spec
        disk = spec.disk.fenced(self.fence)
        owner = spec.name
        self._persistent = MsgStoreClient(
            self, spec.persistent_store, owner, self.runtime.token_bytes(16), self._msgs_on_disk
        )
        self._transient = MsgStoreClient(self, spec.transient_store, owner, self.runtime.token_bytes(16), None)
        terms = None
        if spec.durable:
            terms = take_terms(disk, spec.directory)
            holds = store_message_ids(disk, spec.directory, spec.settings.queue_index_segment_entry_count)
        else:
            disk.rmtree(spec.directory)
            holds = []
        present = self._persistent.register(holds)
        self._transient.register([])
        index, found = QueueIndex.recover(
            disk,
            spec.directory,
            spec.settings,
            terms=terms,
            contains=present.__contains__,
            quarantine=spec.quarantine,
            trace=self.trace,
        )
        self._disk = disk
        self._vq = VariableQueue(
            index, self._persistent, self._transient, spec.settings.queue_index_embed_msgs_below
        )
        clean = terms is not None
        next_deliver = terms.next_deliver_seq_id if terms is not None else found.next_seq_id
        self._vq.recovered(found.low, found.count, found.next_seq_id, next_deliver)
        if (trace := self.trace) is not None:
            trace.emit(Ev.QUEUE_RECOVERED, CLEAN if clean else DIRTY, a=found.count, b=found.next_seq_id, c=found.dropped)
            for first, count in index.live_runs():
                trace.emit(Ev.RECOVERED, a=first, b=count)
        if found.count or found.dropped or found.quarantined:
            self.log.info("queue recovered", messages=found.count, clean=clean, dropped=found.dropped,
                          quarantined=found.quarantined)  # fmt: skip

    # -- what arrives

    def handle_cast(self, message: Any) -> None:
        """One message (see the top of this module)."""
        match message:
            case Publish():
                self._publish(message)
            case Ack():
                self._ack(message)
            case Taken():
                if (consumer := self._consumers.get(message.consumer)) is not None:
                    consumer.unsent -= message.count
            case MsgsOnDisk():
                if (trace := self.trace) is not None:
                    flag = WRITTEN if message.reason == "written" else IGNORED
                    for msg_id in message.msg_ids:
                        trace.emit(_ON_DISK, flag, msg=int.from_bytes(msg_id[8:], "big"))
                self._confirm(self._unconfirmed.on_disk(message.msg_ids))
            case Reject():
                self._reject(message)
            case BumpCredit():
                self._bump(message)
            case _:
                msg = f"a queue process does not understand {message!r}"
                raise TypeError(msg)
        if self._vq.ready >= BATCH:
            self._deliver()

    def handle_call(self, request: Any, sender: From) -> Any:
        """Answer one call; a refusal is an answer, not a crash."""
        match request:
            case Get():
                return self._get(request, sender)
            case Consume():
                return self._consume(request)
            case Cancel():
                return self._cancel(request)
            case Purge():
                return self._purge(DROP_PURGED)
            case Delete():
                return self._delete(request, sender)
            case Drain():
                if not self._unconfirmed:
                    return None
                self._draining.append(sender)
                return NO_REPLY
            case Info():
                return self._info()
            case _:
                msg = f"a queue process does not understand {request!r}"
                raise TypeError(msg)

    def handle_info(self, message: Any) -> None:
        """The process's own timers."""
        match message:
            case _SyncTimeout():
                self._sync_timer = None
                if self._unconfirmed.wait_for_sync:
                    self._sync(Trigger.TIMER)
            case _RetryWrite():
                self._sync(Trigger.TIMER)
            case _GetTimeout():
                if any(sender is message.sender for sender, _ in self._getters):
                    self._getters = [each for each in self._getters if each[0] is not message.sender]
                    message.sender.reply(None)

    def mailbox_empty(self) -> None:
        """Nothing more to do first: deliver, let the stores have their mail, and make it all safe."""
        self._deliver()
        self._persistent.send()
        self._transient.send()
        if self._unconfirmed.wait_for_sync and not self._disk_full:
            self._sync(Trigger.MAILBOX_EMPTY)
        elif self._acks_unsynced and self._idle_timer is None:
            self._idle_timer = self.send_after(self._idle_interval, _RetryWrite())
        if self._vq.index.flushing:
            self._guarded(self._vq.index.flush_step)

    def terminate(self, reason: Any) -> None:
        """A clean stop leaves everything on disk and says so; anything else leaves the files to recovery."""
        if reason != "shutdown" or self._disk_full:
            return
        vq = self._vq
        vq.drop_transient_pending()
        if not self.spec.durable:
            vq.index.delete()
            self._persistent.delete()
        else:
            vq.index.sync(Trigger.CLOSE)
            self._confirm(self._unconfirmed.index_synced())
            self._persistent.terminate()
            messages = vq.ready + vq.unacked
            terms = vq.index.terminate(next_seq_id=vq.next_seq_id, next_deliver_seq_id=vq.next_deliver_seq_id)
            save_terms(self._disk, self.spec.directory, terms)
            if (trace := self.trace) is not None:
                trace.emit(Ev.QUEUE_CLOSED, a=messages, b=vq.next_seq_id)
        self._transient.delete()

    # -- publish and confirm

    def _publish(self, message: Publish) -> None:
        publication, confirm = message.publication, message.confirm
        count = len(publication.bodies)
        if self._disk_full:
            confirm.fail(Blocked(f"the disk is full, queue {self.spec.name!r} takes no messages until there is room"))
            message.publisher.bump(count)
            if (trace := self.trace) is not None:
                trace.emit(Ev.RECV, peer=self.sender_id, pseq=self.sender_seq)
            return
        durable = publication.persistent and self.spec.durable
        if durable is not publication.persistent:
            publication = publication._replace(persistent=durable)
        first, in_store = self._vq.publish(publication)
        for client in (self._persistent, self._transient):
            if client.blocked:
                self._credit.block(client.store)
        if credit := self._credit.ack(message.publisher, count):
            message.publisher.bump(credit)
        if (trace := self.trace) is not None:
            flag = (PERSISTENT if durable else 0) | WANTS_CONFIRM | (IN_STORE if in_store else 0)
            trace.emit(_PUBLISH, flag, publication.first_id, self.sender_id, self.sender_seq, first, count)
        owed = Owed(first, count, publication.first_id, confirm)
        if not durable:
            if trace is not None:
                trace.emit(_CONFIRM, CONFIRM_TRANSIENT, publication.first_id, a=first, b=count)
            confirm.confirm()
            return
        self._unconfirmed.add(owed, in_store)
        if (index := self._vq.index).flushing:
            self._since_flush_step += count
            if self._since_flush_step >= FLUSH_STEP_EVERY:
                self._since_flush_step = 0
                self._guarded(index.flush_step)
        if self._sync_timer is None:
            self._sync_timer = self.send_after(self._sync_interval, _SyncTimeout())

    def _sync(self, trigger: Trigger) -> None:
        self._idle_timer = None
        self._acks_unsynced = False
        if self._guarded(lambda: self._vq.index.sync(trigger)):
            self._confirm(self._unconfirmed.index_synced())

    def _guarded(self, write: Any) -> bool:
        """Run a write; a full disk is a state to wait in, every other failure of the disk is a crash."""
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not self._disk_full:
                self._disk_full = True
                self.log.warning("the disk is full: publishes are refused until there is room", error=str(error))
            self._idle_timer = self.send_after(DISK_FULL_RETRY, _RetryWrite())
            return False
        if self._disk_full:
            self._disk_full = False
            self.log.info("there is room on the disk again")
        return True

    def _confirm(self, complete: Sequence[Owed]) -> None:
        if not complete:
            return
        if (trace := self.trace) is not None:
            for first, count, msg in _merged(complete):
                trace.emit(_CONFIRM, CONFIRM_DURABLE, msg, a=first, b=count)
        for _first, _count, _msg, promise in complete:
            promise.confirm()
        if self._draining and not self._unconfirmed:
            draining, self._draining = self._draining, []
            for sender in draining:
                sender.reply(None)

    def _msgs_on_disk(self, msg_ids: list[bytes], reason: str) -> None:
        """Called in the store's thread: only pass it on."""
        self.actor_inbox.send(MsgsOnDisk(msg_ids, reason))

    def _bump(self, message: BumpCredit) -> None:
        client = self._persistent if message.store == self.spec.persistent_store else self._transient
        client.handle_bump(message.credit)
        if not client.blocked:
            for publisher, credit in self._credit.unblock(client.store):
                publisher.bump(credit)

    # -- deliver and settle

    def _deliver(self) -> None:
        vq = self._vq
        while self._getters and vq.ready:
            sender, consumer = self._getters.pop(0)
            self._answer_getter(sender, consumer)
        while vq.ready:
            open_ = self._pushed()
            rooms = [max(0, consumer.room()) for consumer in open_]
            if not (wanted := min(vq.ready, sum(rooms))):
                return
            if len(open_) > 1:  # whoever was served first last time is last now
                self._turn = (self._turn + 1) % len(open_)
                open_ = open_[self._turn :] + open_[: self._turn]
                rooms = rooms[self._turn :] + rooms[: self._turn]
            for consumer, share in zip(open_, share_out(wanted, rooms), strict=True):
                if share:
                    self._send(consumer, vq.fetch(share, ack_required=not consumer.no_ack))

    def _send(self, consumer: Consumer, fetched: list[Fetched]) -> None:
        if not fetched or consumer.outlet is None:
            return
        first_tag = self._note_delivery(consumer, fetched, NO_ACK if consumer.no_ack else 0)
        consumer.unsent += len(fetched)
        consumer.outlet.put(Deliveries(first_tag, fetched))

    def _note_delivery(self, consumer: Consumer, fetched: list[Fetched], flag: int) -> int:
        first_tag = consumer.take(fetched)
        if consumer.no_ack:
            self._acks_unsynced = True
        if (trace := self.trace) is not None:
            tag = first_tag
            for first, count, redelivered in _delivery_runs(fetched):
                trace.emit(
                    _DELIVER, flag | (REDELIVERED if redelivered else 0), peer=consumer.id, a=first, b=count, c=tag
                )
                tag += count
        return first_tag

    def _ack(self, message: Ack) -> None:
        consumer = self._consumers.get(message.consumer)
        seqs = [] if consumer is None else consumer.settle(message.tag, multiple=message.multiple)
        acked = self._vq.ack(seqs)
        self._acks_unsynced = True
        if (trace := self.trace) is not None:
            if not acked:
                trace.emit(Ev.RECV, peer=self.sender_id, pseq=self.sender_seq)
            pseq = self.sender_seq
            for first, count in runs(acked):
                trace.emit(_ACK, 0, 0, self.sender_id, pseq, first, count)
                pseq = 0
        if consumer is not None and consumer.outlet is None and not consumer.unacked and consumer.id in self._consumers:
            self._forget_if_done(consumer)

    def _reject(self, message: Reject) -> None:
        consumer = self._consumers.get(message.consumer)
        if consumer is None:
            return
        seqs = consumer.settle(message.tag, multiple=message.multiple)
        self._put_back(seqs) if message.requeue else self._drop(self._vq.ack(seqs), DROP_REJECTED)

    def _put_back(self, seqs: list[int]) -> None:
        back = self._vq.requeue(seqs)
        if (trace := self.trace) is not None:
            for first, count in runs(back):
                trace.emit(Ev.REQUEUE, a=first, b=count)

    def _drop(self, seqs: list[int], flag: int) -> None:
        self._acks_unsynced = True
        if (trace := self.trace) is not None:
            for first, count in runs(seqs):
                trace.emit(Ev.DROP, flag, a=first, b=count)

    def _get(self, request: Get, sender: From) -> Any:
        consumer = self._consumers.get(request.consumer)
        if consumer is None:
            consumer = self._consumers[request.consumer] = Consumer(request.consumer, None, 0, no_ack=False)
        consumer.no_ack = request.no_ack
        self._getters.append((sender, consumer))
        self._deliver()
        if any(waiting is sender for waiting, _ in self._getters):
            if request.timeout <= 0:
                self._getters.pop()
                return None
            self.send_after(request.timeout, _GetTimeout(sender))
        return NO_REPLY

    def _answer_getter(self, sender: From, consumer: Consumer) -> None:
        fetched = self._vq.fetch(1, ack_required=not consumer.no_ack)
        if not fetched:
            sender.reply(None)
            return
        sender.reply(Deliveries(self._note_delivery(consumer, fetched, GET | (NO_ACK if consumer.no_ack else 0)), fetched))

    # -- consumers and control

    def _consume(self, request: Consume) -> Any:
        if self._exclusive is not None and self._exclusive in self._consumers:
            return Refused(AccessRefused(f"queue {self.spec.name!r} has an exclusive consumer"))
        if request.exclusive and self._pushed():
            return Refused(AccessRefused(f"queue {self.spec.name!r} has consumers: an exclusive one cannot join them"))
        self._exclusive = request.consumer if request.exclusive else None
        self._consumers[request.consumer] = Consumer(
            request.consumer, request.outlet, request.prefetch, no_ack=request.no_ack
        )
        return None

    def _cancel(self, request: Cancel) -> None:
        consumer = self._consumers.get(request.consumer)
        if consumer is None:
            return
        back = [seq for tag in request.untaken for seq in consumer.settle(tag, multiple=False)]
        self._put_back(back)
        consumer.outlet = None
        self._forget_if_done(consumer)
        if self.spec.last_consumer_gone is not None and not self._pushed():
            self.spec.last_consumer_gone()

    def _pushed(self) -> list[Consumer]:
        """Consumers that messages are pushed to: all but getters and cancelled ones."""
        return [consumer for consumer in self._consumers.values() if consumer.outlet is not None]

    def _forget_if_done(self, consumer: Consumer) -> None:
        """A cancelled consumer is kept while it holds unacked messages."""
        if not consumer.unacked and all(waiting is not consumer for _, waiting in self._getters):
            self._consumers.pop(consumer.id, None)

    def _purge(self, flag: int) -> int:
        dropped = self._vq.purge()
        self._drop(dropped, flag)
        return len(dropped)

    def _delete(self, request: Delete, sender: From) -> Any:
        name = self.spec.name
        if request.if_unused and self._pushed():
            return Refused(PreconditionFailed(f"queue {name!r} is in use: it has consumers"))
        if request.if_empty and self._vq.ready:
            return Refused(PreconditionFailed(f"queue {name!r} is not empty: it has {self._vq.ready} ready messages"))
        request.commit()
        ready = self._purge(DROP_DELETED)
        self._vq.index.delete()
        discard_terms(self._disk, self.spec.directory)
        self._persistent.delete()
        self._transient.delete()
        sender.reply(ready)
        raise Stop("normal")

    def _info(self) -> QueueInfo:
        vq = self._vq
        consumers = len(self._pushed())
        return QueueInfo(
            vq.ready, vq.unacked, consumers, vq.in_memory, bool(self._unconfirmed), len(self.actor_inbox)
        )


def runs(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of each run of consecutive numbers."""
    first = count = 0
    for seq in seqs:
        if count and seq == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = seq, 1
    if count:
        yield first, count


def _delivery_runs(fetched: Sequence[Fetched]) -> Iterator[tuple[int, int, bool]]:
    """(first, count, redelivered) of each run that is alike."""
    first, count, redelivered = fetched[0].seq_id, 0, fetched[0].redelivered
    for each in fetched:
        if each.seq_id == first + count and each.redelivered is redelivered:
            count += 1
            continue
        yield first, count, redelivered
        first, count, redelivered = each.seq_id, 1, each.redelivered
    yield first, count, redelivered


def _merged(complete: Sequence[Owed]) -> Iterator[tuple[int, int, int]]:
    """(first, count, msg) of publications, those next to each other in one."""
    first, count, msg = complete[0].first, 0, complete[0].msg
    for each in complete:
        if each.first == first + count:
            count += each.count
            continue
        yield first, count, msg
        first, count, msg = each.first, each.count, each.msg
    yield first, count, msg
