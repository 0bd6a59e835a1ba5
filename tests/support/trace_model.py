"""A model of the broker that only writes its trace: consistent by construction, from a seed.

It has what the machines look at: an application, a supervisor, queues that crash and recover, a store with flying
counters, shared references, roll-over and a collector, several runs of which some are killed.  No bytes, no threads.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from tests.support.trace_writer import Actor, RunRows
from warrenmq.message_store.compact import plan
from warrenmq.replay.rules.passes.settlements import CONSUMER_SHIFT
from warrenmq.trace.events import (
    BY_SERVER,
    CHANNEL_ENDED,
    CLEAN,
    CONFIRM_DURABLE,
    CONFIRM_TRANSIENT,
    CONSUMER_CANCELLED,
    CONSUMER_LAPSED,
    CREDIT_GAVE_UP,
    CREDIT_GRANTED,
    CREDIT_PEER_DOWN,
    DEAD_LETTERED,
    DEFER_REMOVE,
    DIRECT,
    DIRTY,
    DROP_EXPIRED,
    DROP_LOST,
    DROP_MAXLEN,
    DROP_PURGED,
    DROP_REJECTED,
    EXCLUSIVE,
    FROM_CACHE,
    GET,
    IGNORED,
    IN_STORE,
    LIMITED,
    MULTIPLE,
    NO_ACK,
    OF_CHANNEL,
    OF_CONSUMERS_TO_COME,
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT,
    OVERFLOW_REJECT_DLX,
    PERSISTENT,
    REDELIVERED,
    RETURNED,
    SINGLE_ACTIVE,
    WANTS_CONFIRM,
    WRITTEN,
    Decision,
    Ev,
    Reason,
    Trigger,
)

LIMIT = 6_000
BUFFER = 1_500
_QUEUE_LIMITS = (OVERFLOW_DROP_HEAD, OVERFLOW_REJECT, OVERFLOW_REJECT_DLX, OVERFLOW_REJECT | SINGLE_ACTIVE)
KIND = 1
"""Flag of SEND and RECV rows."""


@dataclass
class Kept:
    """A message in a queue."""

    msg: int
    durable: bool
    in_store: bool
    indexed: bool = False
    body_safe: bool = False
    cancelled: bool = False
    confirmed: bool = False
    delivered: bool = False
    ack_written: bool = False


@dataclass
class Consumer:
    """One that is there, or a getter."""

    id: int
    next_tag: int = 1
    held: dict[int, int] = field(default_factory=dict)
    """Delivery tag -> sequence id."""


@dataclass
class Queue:
    """A queue over all its incarnations."""

    name: str
    actor: Actor | None = None
    next: int = 0
    ready: set[int] = field(default_factory=set)
    unacked: set[int] = field(default_factory=set)
    kept: dict[int, Kept] = field(default_factory=dict)
    acks_to_sync: list[int] = field(default_factory=list)
    held_up: bool = False
    """It has no credit towards the store."""
    consumer: Consumer = field(default_factory=lambda: Consumer(0))
    getter: Consumer = field(default_factory=lambda: Consumer(0))
    holders: dict[int, tuple[Consumer, int]] = field(default_factory=dict)
    """Sequence id -> who holds it, and the delivery tag; former consumers too."""


@dataclass
class StoreModel:
    """The store over all its incarnations; operations wait in `mail`."""

    actor: Actor | None = None
    collector: Actor | None = None
    mail: list[tuple[str, Queue, int, int]] = field(default_factory=list)
    """(write or remove, queue, msg, seq of the SEND)"""
    flying: dict[tuple[str, int], int] = field(default_factory=dict)
    refs: dict[int, int] = field(default_factory=dict)
    place: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """message -> (file, offset, bytes)"""
    owners: dict[int, set[str]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=lambda: {0: 0})
    current: int = 0
    written: int = 0
    safe: int = 0
    mark: int = 0
    """Of the youngest reader."""
    waiting: list[tuple[Queue, int]] = field(default_factory=list)
    """Confirms that wait for the sync."""
    locked: frozenset[int] = frozenset()
    """Files that keep removes waiting."""
    deferred: list[tuple[Queue, int, dict[str, int]]] = field(default_factory=list)


class Model:
    """Runs of one data directory."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.waits = random.Random(f"waits {seed}")
        """Decides who waits: whoever does is none of the others' business."""
        self.consuming = random.Random(f"consumers {seed}")
        """Decides who consumes, and how it settles."""
        self.consumers_change = True
        self.last_consumer = 0
        self.t = 1000
        self.runs: list[RunRows] = []
        self.queues = [Queue("queue/a"), Queue("queue/b")]
        self.store = StoreModel()
        self.next_msg = 1 << 40
        self.restarts = 0

    # rows

    def actor(self, name: str, kind: str, parent: Actor | None = None) -> Actor:
        run = self.runs[-1]
        actor = Actor(len(run.actors) + 1, name, kind, parent.id if parent else 0)
        run.actors.append(actor)
        return actor

    def emit(self, actor: Actor | None, what: int, flag: int = 0, **columns: int) -> int:
        self.t += self.rng.randrange(1, 50)
        return self.row(actor, what, flag, **columns)

    def row(self, actor: Actor | None, what: int, flag: int = 0, **columns: int) -> int:
        assert actor is not None
        get = columns.get
        actor.last += 1
        row = [
            self.t, actor.last, get("msg", 0), get("peer", 0), get("pseq", 0), get("a", 0), get("b", 0), get("c", 0),
            actor.id << 16 | what << 8 | flag,
        ]  # fmt: skip
        actor.rows.append(row)
        return actor.last

    def begin(self, actor: Actor) -> None:
        run = self.runs[-1]
        lives = sum(each.name == actor.name for each in run.actors)
        self.emit(actor, Ev.ACTOR_START, a=lives)

    # runs

    def run(self, steps: int, *, kill: bool) -> None:
        """A whole run: start, recover, work, end."""
        boot = len(self.runs) + 1
        self.runs.append(RunRows(f"run{boot}", boot, closed=not kill))
        self.broker = self.actor("broker", "broker")
        self.emit(self.broker, Ev.RUN_START, a=boot, b=1, c=LIMIT, pseq=BUFFER)
        self.client = self.actor("client", "client")
        self.sup = self.actor("queue_sup", "Supervisor", self.broker)
        self.begin(self.sup)
        self.start_store()
        for queue in self.queues:
            self.start_queue(queue, clean=boot > 1 and self.runs[-2].closed)
        for _ in range(steps):
            self.step()
        if kill:
            self.power_off()
        else:
            self.stop()

    def step(self) -> None:
        queue = self.rng.choice(self.queues)
        self.hold_up(queue)
        self.consumers(queue)
        choices = (
            (self.publish, 6), (self.deliver, 6), (self.ack, 5), (self.requeue, 1), (self.drop, 1),
            (self.sync_queue, 3), (self.crash_queue, 1 if self.restarts < 2 else 0),
        )  # fmt: skip
        work = self.rng.choices([each for each, _ in choices], [weight for _, weight in choices])[0]
        work(queue)
        for _ in range(self.rng.randrange(4)):
            self.handle_mail()
        if self.rng.random() < 0.3:
            self.sync_store(Trigger.MAILBOX_EMPTY)
        if self.rng.random() < 0.2:
            self.combine()
        elif self.rng.random() < 0.2:
            self.compact(queue)
        if self.rng.random() < 0.1:
            self.delete_empty()
            self.read(queue)

    def wait(self, actor: Actor | None, what: int, flag: int = 0, peer: int = 0) -> None:
        """A row about waiting."""
        self.t += self.waits.randrange(1, 50)
        self.row(actor, what, flag, peer=peer)

    def hold_up(self, queue: Queue) -> None:
        """The application waits for a queue or for an alarm, a queue for the store, and both go on."""
        assert queue.actor is not None
        assert self.store.actor is not None
        if self.waits.random() < 0.1:
            self.wait(self.client, Ev.CREDIT_BLOCKED, peer=queue.actor.id)
            self.wait(
                self.client,
                Ev.CREDIT_UNBLOCKED,
                self.waits.choice((CREDIT_GRANTED, CREDIT_GAVE_UP)),
                queue.actor.id,
            )
        if self.waits.random() < 0.1:
            self.wait(self.client, Ev.ALARM_BLOCKED)
            self.wait(self.client, Ev.ALARM_UNBLOCKED)
        if self.waits.random() < 0.2:
            if queue.held_up:
                self.let_go(queue)
            else:
                queue.held_up = True
                self.wait(queue.actor, Ev.CREDIT_BLOCKED, peer=self.store.actor.id)

    def let_go(self, queue: Queue) -> None:
        """The store grants credit again."""
        assert self.store.actor is not None
        queue.held_up = False
        self.wait(queue.actor, Ev.CREDIT_UNBLOCKED, CREDIT_GRANTED, self.store.actor.id)

    # consumers

    def new_consumer(self) -> Consumer:
        self.last_consumer += 1
        return Consumer(self.last_consumer)

    def start_consumers(self, queue: Queue) -> None:
        """Of a new queue process."""
        queue.consumer, queue.getter, queue.holders = self.new_consumer(), self.new_consumer(), {}
        self.add_consumer(queue)
        if self.consuming.random() < 0.3:
            self.told(queue.actor, Ev.QUEUE_LIMITS, self.consuming.choice(_QUEUE_LIMITS), a=100, b=-1)

    def add_consumer(self, queue: Queue) -> None:
        self.told(
            queue.actor,
            Ev.CONSUMER_ADDED,
            self.consuming.choice((0, NO_ACK, EXCLUSIVE, LIMITED)),
            peer=queue.consumer.id,
            a=10,
        )

    def told(self, actor: Actor | None, what: int, flag: int = 0, **columns: int) -> int:
        """A row about consumers."""
        self.t += self.consuming.randrange(1, 50)
        return self.row(actor, what, flag, **columns)

    def consumers(self, queue: Queue) -> None:
        """A consumer goes and another one comes; a channel speaks of its limit; the queue comes to rest."""
        chance = self.consuming.random()
        if chance < 0.04 and self.consumers_change:
            former = queue.consumer
            taken = self.consuming.choice((-1, 0, former.next_tag - 2))
            flag = CONSUMER_CANCELLED if taken else self.consuming.choice((CHANNEL_ENDED, CONSUMER_LAPSED))
            if not taken and queue.getter.held:
                self.told(
                    queue.actor,
                    Ev.CONSUMER_GONE,
                    CHANNEL_ENDED,
                    peer=queue.getter.id,
                    a=0,
                    b=len(queue.getter.held),
                )
            self.told(queue.actor, Ev.CONSUMER_GONE, flag, peer=former.id, a=taken, b=len(former.held))
            if not taken:
                self.give_back(queue, queue.getter, 0)
                queue.getter = self.new_consumer()
            if taken >= 0:
                self.give_back(queue, former, taken)
            queue.consumer = self.new_consumer()
            self.add_consumer(queue)
        elif chance < 0.10:
            self.told(queue.actor, Ev.QUEUE_RESTS, a=len(queue.ready), b=0 if queue.ready else 1, c=1)
        elif chance < 0.13:
            self.told(
                self.client, Ev.CHANNEL_LIMIT, self.consuming.choice((OF_CHANNEL, OF_CONSUMERS_TO_COME)), a=10
            )
            self.told(self.client, Ev.UNROUTED, b=1)

    def give_back(self, queue: Queue, former: Consumer, taken: int) -> None:
        """Requeue the deliveries that a consumer which is gone had not settled."""
        for tag in [tag for tag in former.held if tag > taken]:
            seq = former.held.pop(tag)
            del queue.holders[seq]
            self.told(queue.actor, Ev.REQUEUE, RETURNED, a=seq, b=1, c=former.id << CONSUMER_SHIFT)
            queue.unacked.discard(seq)
            queue.ready.add(seq)

    def named(self, queue: Queue, seq: int) -> tuple[list[int], bool, int]:
        """Choose the settlement of a message by its client: (it and what goes with it, whether multiple is asked, who
        and which tag).
        """
        consumer, tag = queue.holders[seq]
        multiple = self.consuming.random() < 0.2
        tags = [each for each in consumer.held if each < tag] if multiple else []
        seqs = sorted(consumer.held.pop(each) for each in [*tags, tag])
        for each in seqs:
            del queue.holders[each]
        return seqs, multiple, consumer.id << CONSUMER_SHIFT | tag

    # queues

    def start_queue(self, queue: Queue, *, clean: bool = False) -> None:
        queue.held_up = False
        queue.actor = self.actor(queue.name, "QueueProcess", self.sup)
        self.emit(self.sup, Ev.CHILD_START, peer=queue.actor.id)
        for seq in list(queue.kept):
            kept = queue.kept[seq]
            alive = seq in queue.ready or seq in queue.unacked
            if not alive or not kept.durable or not kept.indexed or (kept.in_store and not kept.body_safe):
                del queue.kept[seq]
            else:
                again = kept.delivered or not clean
                queue.kept[seq] = Kept(
                    kept.msg, True, kept.in_store, True, kept.body_safe, confirmed=True, delivered=again
                )
        queue.ready, queue.unacked = set(queue.kept), set()
        for seq in sorted(queue.kept):
            self.emit(queue.actor, Ev.RECOVERED, a=seq, b=1)
        self.emit(
            queue.actor, Ev.QUEUE_RECOVERED, CLEAN if clean else DIRTY, a=len(queue.kept), b=queue.next, c=0
        )
        self.start_consumers(queue)
        for msg, owners in sorted(self.store.owners.items()):
            if queue.name in owners and msg not in {kept.msg for kept in queue.kept.values()}:
                owners.discard(queue.name)
                self.lose_reference(queue, msg)
        self.begin(queue.actor)

    def lose_reference(self, queue: Queue, msg: int) -> None:
        """The store drops a reference of a dead incarnation."""
        store = self.store
        store.refs[msg] -= 1
        assert queue.actor is not None
        self.emit(
            store.actor,
            Ev.REF_DROPPED,
            msg=msg,
            peer=queue.actor.id,
            pseq=store.place[msg][0],
            b=store.refs[msg],
        )

    def publish(self, queue: Queue) -> None:
        """One to three messages; a large one goes to both queues sometimes."""
        n = self.rng.randrange(1, 4)
        durable, in_store = self.rng.random() < 0.8, self.rng.random() < 0.6
        msg = self.next_msg
        self.next_msg += n
        targets = self.queues if in_store and self.rng.random() < 0.3 else [queue]
        for target in targets:
            assert target.actor is not None
            sent = self.emit(self.client, Ev.SEND, KIND, msg=msg, peer=target.actor.id, b=n)
            first = target.next
            target.next += n
            flags = WANTS_CONFIRM | (PERSISTENT if durable else 0) | (IN_STORE if in_store and durable else 0)
            self.emit(target.actor, Ev.PUBLISH, flags, msg=msg, peer=self.client.id, pseq=sent, a=first, b=n)
            if not durable:
                self.emit(target.actor, Ev.CONFIRM, CONFIRM_TRANSIENT, msg=msg, a=first, b=n)
            for i in range(n):
                target.kept[first + i] = Kept(msg + i, durable, in_store and durable)
                target.ready.add(first + i)
                if in_store and durable:
                    self.mail_to_store("write", target, msg + i)

    def mail_to_store(self, what: str, queue: Queue, msg: int) -> None:
        store = self.store
        assert store.actor is not None
        key = (queue.name, msg)
        store.flying[key] = store.flying.get(key, 0) + (1 if what == "write" else -1)
        sent = self.emit(queue.actor, Ev.SEND, KIND + 1, msg=msg, peer=store.actor.id, b=1)
        store.mail.append((what, queue, msg, sent))

    def deliver(self, queue: Queue) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            if not queue.ready:
                return
            seq = min(queue.ready)
            kept = queue.kept[seq]
            no_ack = self.rng.random() < 0.1
            get = self.rng.random() < 0.3
            flags = (REDELIVERED if kept.delivered else 0) | (NO_ACK if no_ack else 0) | (GET if get else 0)
            consumer = queue.getter if get else queue.consumer
            self.emit(queue.actor, Ev.DELIVER, flags, peer=consumer.id, a=seq, b=1, c=consumer.next_tag)
            if not no_ack:
                consumer.held[consumer.next_tag] = seq
                queue.holders[seq] = consumer, consumer.next_tag
            consumer.next_tag += 1
            kept.delivered = True
            queue.ready.discard(seq)
            if no_ack:
                self.gone(queue, seq)
            else:
                queue.unacked.add(seq)

    def gone(self, queue: Queue, seq: int) -> None:
        queue.ready.discard(seq)
        queue.unacked.discard(seq)
        queue.acks_to_sync.append(seq)
        kept = queue.kept[seq]
        if kept.in_store:
            self.mail_to_store("remove", queue, kept.msg)

    def ack(self, queue: Queue) -> None:
        assert queue.actor is not None
        if queue.unacked:
            seq = self.rng.choice(sorted(queue.unacked))
            sent = self.emit(self.client, Ev.SEND, KIND, peer=queue.actor.id)
            seqs, multiple, by = self.named(queue, seq)
            for each in seqs:
                self.emit(
                    queue.actor,
                    Ev.ACK,
                    MULTIPLE if multiple else 0,
                    peer=self.client.id,
                    pseq=sent,
                    a=each,
                    b=1,
                    c=by,
                )
                sent = 0
            for each in seqs:
                self.gone(queue, each)

    def requeue(self, queue: Queue) -> None:
        if queue.unacked:
            seq = self.rng.choice(sorted(queue.unacked))
            seqs, multiple, by = self.named(queue, seq)
            for each in seqs:
                self.emit(queue.actor, Ev.REQUEUE, MULTIPLE if multiple else 0, a=each, b=1, c=by)
                queue.unacked.discard(each)
                queue.ready.add(each)

    def drop(self, queue: Queue) -> None:
        if queue.unacked and self.rng.random() < 0.5:
            seq = self.rng.choice(sorted(queue.unacked))
            flag = self.rng.choice((DROP_REJECTED, DROP_REJECTED | DEAD_LETTERED))
            seqs, multiple, by = self.named(queue, seq)
            for each in seqs:
                self.emit(queue.actor, Ev.DROP, flag, pseq=int(multiple), a=each, b=1, c=by)
            for each in seqs:
                self.gone(queue, each)
        elif queue.ready:
            flag = self.rng.choice((DROP_PURGED, DROP_LOST, DROP_MAXLEN, DROP_EXPIRED))
            seq = max(queue.ready) if flag in {DROP_PURGED, DROP_LOST} else min(queue.ready)
            if flag == DROP_LOST and queue.kept[seq].durable:
                flag = DROP_PURGED  # a loss of what was confirmed, or is yet to be, breaks C2
            expired = flag == DROP_EXPIRED
            if flag in {DROP_MAXLEN, DROP_EXPIRED}:
                flag |= self.rng.choice((0, DEAD_LETTERED))
            if expired:
                self.emit(queue.actor, Ev.EXPIRY, a=seq, b=1, c=1_000)
            self.emit(queue.actor, Ev.DROP, flag, a=seq, b=1, c=1_000 if expired else 0)
            self.gone(queue, seq)
            if flag & ~DEAD_LETTERED == DROP_MAXLEN and queue.ready:
                seq = min(queue.ready)
                self.emit(queue.actor, Ev.DROP, flag, a=seq, b=1)
                self.gone(queue, seq)

    def read(self, queue: Queue) -> None:
        """Rows that no rule looks at closely."""
        self.emit(queue.actor, Ev.READ, FROM_CACHE)
        self.write_buffer(Trigger.READ)
        self.emit(self.store.actor, Ev.READ, BY_SERVER)
        self.emit(queue.actor, Ev.QI_FLUSH, a=1, b=100)
        self.emit(queue.actor, Ev.SEGMENT_DELETE)
        sent = self.emit(self.client, Ev.SEND, KIND)
        self.emit(self.client, Ev.UNDELIVERED, KIND, pseq=sent)

    def sync_queue(self, queue: Queue, trigger: Trigger = Trigger.MAILBOX_EMPTY) -> None:
        self.emit(queue.actor, Ev.QI_WRITE, trigger, a=100, b=1)
        self.emit(queue.actor, Ev.QI_SYNC, trigger, a=100, b=1)
        for kept in queue.kept.values():
            kept.indexed = True
        for seq in queue.acks_to_sync:
            queue.kept[seq].ack_written = True
        queue.acks_to_sync.clear()
        self.confirm(queue)

    def confirm(self, queue: Queue) -> None:
        for seq, kept in sorted(queue.kept.items()):
            ready = kept.indexed and (not kept.in_store or kept.body_safe or kept.cancelled)
            if kept.durable and not kept.confirmed and (ready or kept.cancelled):
                kept.confirmed = True
                self.emit(queue.actor, Ev.CONFIRM, CONFIRM_DURABLE, msg=kept.msg, a=seq, b=1)

    def crash_queue(self, queue: Queue) -> None:
        """The queue process dies with its buffers; the supervisor starts the next one."""
        assert queue.actor is not None
        self.restarts += 1
        self.sync_queue(
            queue, Trigger.TIMER
        )  # everything written is known, whether synced or not: the kernel keeps it
        while self.store.mail:
            self.handle_mail()
        self.sync_store(Trigger.TIMER)
        self.wait(self.client, Ev.CREDIT_BLOCKED, peer=queue.actor.id)
        self.emit(queue.actor, Ev.ACTOR_STOP, Reason.CRASH)
        self.wait(self.client, Ev.CREDIT_UNBLOCKED, CREDIT_PEER_DOWN, queue.actor.id)
        self.emit(self.sup, Ev.CHILD_EXIT, Reason.CRASH, peer=queue.actor.id)
        self.emit(self.sup, Ev.RESTART, peer=queue.actor.id, a=self.restarts, b=2, c=300_000)
        self.start_queue(queue)

    # the store

    def start_store(self) -> None:
        store = self.store
        store.actor = self.actor("msg_store_persistent", "MsgStore", self.broker)
        store.collector = self.actor("msg_store_persistent/gc", "MsgStoreGC", store.actor)
        store.mail.clear()
        store.flying.clear()
        store.waiting.clear()
        held: dict[int, set[str]] = {}
        for queue in self.queues:
            for seq, kept in queue.kept.items():
                if (seq in queue.ready or seq in queue.unacked) and kept.in_store and kept.body_safe:
                    held.setdefault(kept.msg, set()).add(queue.name)
        held = {msg: owners for msg, owners in held.items() if msg in store.place}
        store.owners = held
        store.refs = {msg: len(owners) for msg, owners in held.items()}
        store.place = {msg: store.place[msg] for msg in held}
        killed = len(self.runs) > 1 and not self.runs[-2].closed
        self.emit(store.actor, Ev.STORE_RECOVERED, DIRTY if killed else CLEAN, a=len(held), b=len(store.ends))
        for msg, (file, offset, size) in sorted(store.place.items()):
            self.emit(store.actor, Ev.REF_RECOVERED, msg=msg, pseq=store.refs[msg], a=file, b=offset, c=size)
        store.ends[store.current] = store.written = store.safe = store.safe
        for file in sorted(store.ends):
            self.tell_file(file)
        self.begin(store.actor)
        self.begin(store.collector)

    def valid(self, file: int) -> int:
        store = self.store
        return sum(
            size for msg, (where, _, size) in store.place.items() if where == file and store.refs.get(msg)
        )

    def tell_file(self, file: int) -> None:
        self.emit(self.store.actor, Ev.FILE_STATE, a=file, b=self.valid(file), c=self.store.ends[file])

    def handle_mail(self) -> None:
        store = self.store
        if not store.mail:
            return
        what, queue, msg, sent = store.mail.pop(0)
        assert queue.actor is not None
        self.emit(store.actor, Ev.RECV, KIND + 1, peer=queue.actor.id, pseq=sent)
        key = (queue.name, msg)
        seen = store.flying.get(key)
        columns = {"msg": msg, "peer": queue.actor.id, "a": seen or 0, "c": int(seen is not None)}
        if what == "write":
            self.handle_write(queue, msg, seen, columns)
        else:
            self.handle_remove(queue, msg, seen, columns)
        if store.flying.get(key) == 0:
            del store.flying[key]

    def handle_write(self, queue: Queue, msg: int, seen: int | None, columns: dict[str, int]) -> None:
        store = self.store
        if seen is None or seen <= 0:
            self.emit(store.actor, Ev.STORE_WRITE, Decision.IGNORE, **columns, b=store.refs.get(msg, 0))
            self.tell_queue(queue, msg, IGNORED)
            return
        store.flying[queue.name, msg] -= 1
        owners = store.owners.setdefault(msg, set())
        owners.add(queue.name)
        if msg in store.place:
            store.refs[msg] += 1
            file = store.place[msg][0]
            self.emit(store.actor, Ev.STORE_WRITE, Decision.CONFIRM, **columns, b=store.refs[msg], pseq=file)
            if file != store.current:
                self.tell_queue(queue, msg, WRITTEN)
                return
        else:
            store.refs[msg] = 1
            self.emit(store.actor, Ev.STORE_WRITE, Decision.WRITE, **columns, b=1)
            self.append(msg)
        store.waiting.append((queue, msg))
        if store.ends[store.current] >= LIMIT:
            self.roll()
        elif store.ends[store.current] - store.written > BUFFER:
            self.write_buffer(Trigger.BUFFER_FULL)

    def append(self, msg: int) -> None:
        store = self.store
        size = self.rng.randrange(300, 900)
        offset = store.ends[store.current]
        store.place[msg] = (store.current, offset, size)
        store.ends[store.current] += size
        self.emit(store.actor, Ev.APPEND, msg=msg, a=store.current, b=offset, c=size)

    def handle_remove(self, queue: Queue, msg: int, seen: int | None, columns: dict[str, int]) -> None:
        store = self.store
        file = store.place[msg][0] if msg in store.place else 0
        if seen is None or seen >= 0:
            self.emit(
                store.actor, Ev.STORE_REMOVE, Decision.IGNORE, **columns, pseq=file, b=store.refs.get(msg, 0)
            )
            return
        store.flying[queue.name, msg] += 1
        if file in store.locked and msg in store.place:
            self.emit(store.actor, Ev.DEFER, DEFER_REMOVE, msg=msg, a=file)
            self.emit(store.actor, Ev.STORE_REMOVE, Decision.DEFER, **columns, pseq=file, b=store.refs[msg])
            store.deferred.append((queue, msg, columns))
            return
        self.take_reference(queue, msg, columns)

    def take_reference(self, queue: Queue, msg: int, columns: dict[str, int]) -> None:
        store = self.store
        file = store.place[msg][0]
        store.refs[msg] -= 1
        store.owners[msg].discard(queue.name)
        self.emit(store.actor, Ev.STORE_REMOVE, Decision.REMOVE, **columns, pseq=file, b=store.refs[msg])
        if (queue, msg) in store.waiting:
            store.waiting.remove((queue, msg))
            self.tell_queue(queue, msg, IGNORED)

    def write_buffer(self, trigger: Trigger) -> None:
        store = self.store
        size = store.ends[store.current] - store.written
        if size:
            self.emit(store.actor, Ev.FILE_WRITE, trigger, a=store.current, b=store.written, c=size)
            store.written += size

    def sync_store(self, trigger: Trigger) -> None:
        store = self.store
        self.write_buffer(trigger)
        if store.written > store.safe:
            self.emit(
                store.actor,
                Ev.FILE_SYNC,
                trigger,
                a=store.current,
                b=store.written,
                c=store.written - store.safe,
            )
            store.safe = store.written
        waiting, store.waiting = store.waiting, []
        for queue, msg in waiting:
            self.tell_queue(queue, msg, WRITTEN)

    def tell_queue(self, queue: Queue, msg: int, reason: int) -> None:
        assert queue.actor is not None
        self.emit(self.store.actor, Ev.STORE_CONFIRM, reason, msg=msg, peer=queue.actor.id)
        self.emit(queue.actor, Ev.ON_DISK, reason, msg=msg)
        for kept in queue.kept.values():
            if kept.msg == msg:
                kept.body_safe = kept.body_safe or reason == WRITTEN
                kept.cancelled = kept.cancelled or reason == IGNORED
        self.confirm(queue)

    def roll(self) -> None:
        store = self.store
        self.sync_store(Trigger.ROLL_OVER)
        old = store.current
        store.current += 1
        store.ends[store.current] = store.written = store.safe = 0
        self.emit(store.actor, Ev.ROLL, a=store.current, b=old, c=store.ends[old])

    def delete_empty(self) -> None:
        """Files without a live record go."""
        store = self.store
        for file in [file for file in sorted(store.ends) if file != store.current and not self.valid(file)]:
            self.emit(store.actor, Ev.LOCK, a=file)
            for msg in [msg for msg, place in store.place.items() if place[0] == file]:
                del store.place[msg]
            self.emit(store.actor, Ev.FILE_DELETE, a=file, b=store.ends.pop(file))

    def combine(self) -> None:
        """Two neighbours with garbage become one."""
        store = self.store
        closed = [file for file in sorted(store.ends) if file != store.current]
        pair = next(
            (
                (left, right) for left, right in pairwise(closed)
                if self.valid(left) and self.valid(right) and self.valid(left) + self.valid(right) < LIMIT
            ),
            None,
        )  # fmt: skip
        if pair is None:
            return
        for file in pair:
            self.emit(store.actor, Ev.LOCK, a=file)
        left, right = pair
        store.locked = frozenset(pair)
        while store.mail and store.mail[0][0] == "remove":
            self.handle_mail()
        total = self.valid(left) + self.valid(right)
        self.emit(store.collector, Ev.GC_START, a=left, b=right, c=total)
        survivors = sorted(
            (place, msg) for msg, place in store.place.items() if place[0] in pair and store.refs.get(msg)
        )
        for msg in [
            msg for msg, place in store.place.items() if place[0] in pair and not store.refs.get(msg)
        ]:
            del store.place[msg]
        offset = 0
        for (_, _, size), msg in survivors:
            self.emit(store.collector, Ev.GC_MOVE, msg=msg, a=left, b=offset, c=size)
            store.place[msg] = (left, offset, size)
            offset += size
        reclaimed = store.ends[left] + store.ends[right] - total
        self.emit(store.collector, Ev.GC_DONE, a=left, b=right, c=reclaimed)
        store.ends[left] = total
        del store.ends[right]
        self.emit(store.actor, Ev.UNLOCK, a=left)
        self.tell_file(left)
        store.locked = frozenset()
        for queue, msg, columns in store.deferred:
            self.take_reference(queue, msg, columns)
        store.deferred = []

    def compact(self, reader: Queue) -> None:
        """A file's last records move into its holes, and it is cut when a reader has left; another one begins."""
        store = self.store
        file = next(
            (n for n in sorted(store.ends) if n != store.current and 0 < self.valid(n) < store.ends[n]), None
        )
        if file is None:
            return
        assert store.actor is not None
        self.emit(store.actor, Ev.LOCK, a=file)
        for msg in [
            msg for msg, place in store.place.items() if place[0] == file and not store.refs.get(msg)
        ]:
            del store.place[msg]
        ids = {place[1]: msg for msg, place in store.place.items() if place[0] == file}
        records = sorted((place[1], place[2]) for place in store.place.values() if place[0] == file)
        todo = plan(records)
        self.emit(store.collector, Ev.COMPACT_START, a=file, b=self.valid(file), c=sum(records[-1]))
        for source, target, total in todo.moves:
            msg = ids[source]
            self.emit(store.collector, Ev.COMPACT_MOVE, msg=msg, pseq=source, a=file, b=target, c=total)
            store.place[msg] = (file, target, total)
        copied = sum(move.total for move in todo.moves) if todo.moves else 0
        self.emit(store.collector, Ev.COMPACT_DONE, a=file, b=todo.size, c=copied)
        self.emit(store.actor, Ev.UNLOCK, a=file)
        threshold, store.mark = store.mark + 1, store.mark + 2
        read = {"msg": ids[todo.moves[0].source] if todo.moves else ids[records[0][0]], "a": file}
        read["b"] = store.place[read["msg"]][1]
        self.emit(reader.actor, Ev.READ, DIRECT, peer=store.actor.id, pseq=threshold, **read)
        self.emit(
            store.collector, Ev.TRUNCATE, pseq=threshold, a=file, b=todo.size, c=store.ends[file] - todo.size
        )
        self.emit(reader.actor, Ev.READ, DIRECT, peer=store.actor.id, pseq=threshold + 1, **read)
        store.ends[file] = todo.size
        self.tell_file(file)

    # ends

    def power_off(self) -> None:
        """SIGKILL: what was written is kept by the kernel, what was in a buffer of ours is not."""
        store = self.store
        for msg, (file, offset, size) in list(store.place.items()):
            if file == store.current and offset + size > store.safe:
                del store.place[msg]
                for queue in self.queues:
                    for kept in queue.kept.values():
                        if kept.msg == msg:
                            kept.body_safe = False
        for queue in self.queues:
            # An ack that was not synced may be forgotten; the message comes back if its body is still there.
            for seq in queue.acks_to_sync:
                kept = queue.kept[seq]
                if kept.durable and kept.indexed and (not kept.in_store or kept.msg in store.place):
                    queue.ready.add(seq)
            queue.acks_to_sync = []

    def stop(self) -> None:
        while self.store.mail:
            self.handle_mail()
        self.sync_store(Trigger.CLOSE)
        for queue in self.queues:
            self.sync_queue(queue, Trigger.CLOSE)
            left = len(queue.ready) + len(queue.unacked)
            self.emit(queue.actor, Ev.QUEUE_CLOSED, a=left, b=queue.next)
            self.emit(queue.actor, Ev.ACTOR_STOP, Reason.SHUTDOWN)
        for file in sorted(self.store.ends):
            self.tell_file(file)
        counts = [count for count in self.store.refs.values() if count]
        self.emit(self.store.actor, Ev.STORE_CLOSED, a=len(counts), b=sum(counts), c=len(self.store.ends))
        for actor in (self.store.collector, self.store.actor, self.sup):
            self.emit(actor, Ev.ACTOR_STOP, Reason.SHUTDOWN)
        self.emit(self.broker, Ev.RUN_END, a=self.runs[-1].boot)


def consistent_trace(seed: int, steps: int = 150) -> list[RunRows]:
    """Three runs: one that is killed, one closed, one closed."""
    model = Model(seed)
    model.run(steps, kill=True)
    model.run(steps, kill=False)
    model.run(steps // 2, kill=False)
    return model.runs
