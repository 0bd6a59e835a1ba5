"""The state of a queue against a plain model: no broker, no thread, no process, and a clock that the test sets."""

from __future__ import annotations

import math
from random import Random
from typing import Any, cast

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from warrenmq.backing_queue.memory_target import MemoryTargetQueue
from warrenmq.backing_queue.priority_queue import PriorityQueue
from warrenmq.backing_queue.read_ahead import ReadAheadQueue
from warrenmq.backing_queue.variable_queue import VariableQueue
from warrenmq.errors import AccessRefused, Nacked
from warrenmq.log import Log
from warrenmq.message.queue_message import Publication
from warrenmq.message.stored import body_of, decode, encode_head
from warrenmq.queue.arguments import QueueArguments
from warrenmq.queue.asleep import NEVER_USED
from warrenmq.queue.effects import (
    CastStore,
    DeadLetter,
    Deliver,
    GrantCredit,
    Refuse,
    Reply,
    Settle,
    StartTimer,
)
from warrenmq.queue.messages import (
    Ack,
    Acks,
    AckUpTo,
    Cancel,
    Consume,
    CountBytes,
    Get,
    MsgsOnDisk,
    NewArguments,
    Publish,
    Publisher,
    Purge,
    Reject,
    Taken,
)
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue.state import WAITS, QueueState
from warrenmq.queue.x_death import EXPIRED, MAXLEN, REJECTED
from warrenmq.queue_index import versions as index_versions
from warrenmq.queue_index.protocol import Opening
from warrenmq.settings import Settings
from warrenmq.testing.disk import SimulatedDisk

HEAD = encode_head("", ["q"], None)
SMALL, LARGE = 10, 200
"""Sizes of bodies: below and above the limit of what goes to the index."""
MORE_CREDIT_AFTER = 4


class Store:
    """A message store's end without a store."""

    store_trace_id = 0
    disk_full = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocked = self.collected = False
        self.bodies: dict[bytes, bytes] = {}
        self.unreported: list[bytes] = []

    def write(self, msg_id: bytes, stored: bytes) -> None:
        self.bodies[msg_id] = stored
        self.unreported.append(msg_id)
        self.collected = True

    def remove(self, msg_ids: list[bytes]) -> None:
        for msg_id in msg_ids:
            del self.bodies[msg_id]
        self.collected = True

    def read(self, msg_id: bytes) -> bytes | None:
        return self.bodies.get(msg_id)

    def read_many(self, msg_ids: Any) -> dict[bytes, bytes]:
        return {msg_id: self.bodies[msg_id] for msg_id in msg_ids}


class Promise:
    """Counts its answers."""

    def __init__(self, syncs: int) -> None:
        self.syncs = syncs
        """How often the index had been synced when it was published."""
        self.answers: list[str] = []
        self.owed = 1

    def confirm(self) -> None:
        self.answers.append("confirm")

    def nack(self, _why: str) -> None:
        self.answers.append("nack")

    def fail(self, error: Exception) -> None:
        assert isinstance(error, Nacked)
        self.answers.append("nack")

    def parts(self, count: int) -> list[Promise]:
        self.owed = count
        return [self] * count


class Sender(Publisher):
    """Counts the credit that it was granted."""

    def __init__(self) -> None:
        super().__init__()
        self.credit = 0

    def bump(self, credit: int) -> None:
        self.credit += credit


class Getter:
    """Receives the answer to a get."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder

    def begin(self) -> None: ...
    def park(self) -> None: ...


class Holder:
    """A consumer or getter as the model knows it: what it holds, by tag; `put` makes it an outlet."""

    def __init__(self, number: int, prefetch: int, no_ack: bool, exclusive: bool, priority: int) -> None:
        self.number, self.prefetch, self.no_ack = number, prefetch, no_ack
        self.exclusive, self.priority = exclusive, priority
        self.held: dict[int, int] = {}
        self.next_tag = 1
        self.untaken = 0
        self.cancelled = self.getter = False

    def put(self, _deliveries: object) -> None:
        """The test looks at the effect itself."""


def number_of(message: Any) -> int:
    return int.from_bytes(body_of(message.payload, message.size)[:4], "big")


class QueueMachine(RuleBasedStateMachine):
    """Messages are numbers, ascending in the order in which they were published.

    waiting     what is in the queue and not delivered, the buffer of publishes included
    requeued    what the call that is going on puts back
    rejected    what the call that is going on sends to the dead-letter exchange
    holders     consumers and getters, with the messages that they hold
    active      the single active consumer, in a queue that has one
    expiry      when a message expires
    """

    @initialize(
        behaviour=st.sampled_from([MemoryTargetQueue, ReadAheadQueue]),
        version=st.sampled_from([1, 2]),
        limit=st.sampled_from([None, None, 0, 3]),
        overflow=st.sampled_from(["drop-head", "reject-publish-dlx"]),
        ttl=st.sampled_from([None, None, 0, 5]),
        single_active=st.booleans(),
        one_priority=st.booleans(),
    )
    def begin(self, behaviour: type[VariableQueue], version: int, limit: int | None, overflow: str, ttl: int | None,
              single_active: bool, one_priority: bool) -> None:  # fmt: skip
        settings = Settings(queue_version=version, credit_flow_default_credit=(8, MORE_CREDIT_AFTER), queue_index_embed_msgs_below=100, queue_ram_bytes=2_000,
                            msg_store_credit_disc_bound=(5, 5), msg_store_io_batch_size=2)  # fmt: skip
        self.disk = SimulatedDisk(Random(0))
        self.now = 1_000_000_000
        self.persistent, self.transient = Store("persistent"), Store("transient")
        index, found = index_versions.recover(
            Opening(self.disk, "/q", settings, lambda _id: True, "/quarantine")
        )
        vq: Any = behaviour(index, self.persistent, self.transient, settings, lambda: self.now)
        vq.recovered(found.low, found.count, found.next_seq_id, 0, found.lost)
        self.syncs = 0
        sync = index.sync

        def counted(trigger: Any, **options: bool) -> Any:
            self.syncs += 1
            return sync(trigger, **options)

        index.sync = counted  # type: ignore[method-assign]
        if one_priority:
            vq = PriorityQueue([vq], None)
        self.limit, self.overflow, self.ttl = limit, overflow, ttl
        self.most_bytes: int | None = None
        self.sizes: dict[int, int] = {}
        self.state = QueueState(vq, QueueSetting(
            name="q", vhost="/", ref=cast("Any", "q"), durable=True,
            arguments=QueueArguments(max_length=limit, overflow=overflow, message_ttl=ttl,
                                     single_active_consumer=single_active),
            settings=settings, disk=self.disk, directory="/q",
            stores={"persistent": self.persistent, "transient": self.transient},
            rooms=[self.persistent, self.transient],
            has_dead_letter_exchange=lambda: True,
            monotonic_ns=lambda: self.now, wall_ns=lambda: self.now, before=NEVER_USED.counts, found_expiring=found.expires, is_up=True,
            log=Log("test"), delay_of=lambda _publication: 0,
        ))  # fmt: skip
        self.timers: dict[type, Any] = {}
        self.sender = Sender()
        self.single_active = single_active
        self.number = self.next_holder = 0
        self.waiting: list[int] = []
        self.requeued: list[int] = []
        self.rejected: list[int] = []
        self.expiry: dict[int, int] = {}
        self.holders: dict[int, Holder] = {}
        self.active: Holder | None = None
        self.promises: list[Promise] = []
        self.carry_out()

    # -- what the process does

    def carry_out(self) -> None:
        """Do as the queue process does, and compare what leaves the queue with the front of the model's."""
        left: list[int] = []
        requeued, self.requeued = self.requeued, []
        for effect in self.state.effects:
            match effect:
                case Deliver():
                    holder = cast("Holder", effect.outlet)
                    left += self.handed_over(holder, effect.deliveries.first_tag, effect.deliveries.messages)
                    holder.untaken += len(effect.deliveries.messages)
                case Reply() if effect.value is not None:
                    left += self.handed_over(effect.sender.holder, effect.value.tag, [effect.value.message])
                case DeadLetter():
                    numbers = [int.from_bytes(bytes(decode(each).body[:4]), "big") for each in effect.stored]
                    if effect.reason == EXPIRED:
                        assert all(self.expires(number) <= self.now for number in numbers)
                        left += numbers
                    elif effect.reason == MAXLEN:
                        assert (self.limit, self.most_bytes) != (None, None)
                        if self.overflow == "drop-head":
                            left += numbers
                        for number in numbers if self.overflow != "drop-head" else ():
                            self.waiting.remove(number)  # it never got in
                    else:
                        assert effect.reason == REJECTED
                        assert numbers == self.rejected
                        self.rejected = []
                case Settle():
                    for _, _, _, promise in effect.complete:
                        assert isinstance(promise, Promise)
                        assert self.syncs > promise.syncs, "confirmed before a sync"
                        promise.confirm()
                case Refuse():
                    assert isinstance(effect.promise, Promise)
                    effect.promise.fail(effect.error)
                case GrantCredit():
                    effect.publisher.bump(effect.credit)
                case CastStore():
                    self.persistent.collected = self.transient.collected = False
                case StartTimer():
                    self.timers[type(effect.info)] = effect.info
        self.state.effects.clear()
        if self.may_drop:  # what comes back is dropped at once when it is too much, or has expired
            self.waiting = sorted([*self.waiting, *requeued])
        assert sorted(left) == self.waiting[: len(left)], "not from the front"
        del self.waiting[: len(left)]
        if not self.may_drop:  # what was ready before is delivered first
            self.waiting = sorted([*self.waiting, *requeued])

    def handed_over(self, holder: Holder, first_tag: int, messages: list[Any]) -> list[int]:
        numbers = [number_of(message) for message in messages]
        assert not holder.cancelled
        assert holder.getter or not self.single_active or holder is self.active
        assert numbers == sorted(numbers)
        assert first_tag == holder.next_tag
        assert all(self.expires(number) >= self.now for number in numbers), "expired"
        holder.next_tag += len(numbers)
        if not holder.no_ack:
            holder.held.update(zip(range(first_tag, holder.next_tag), numbers, strict=True))
        if holder.prefetch and not holder.no_ack:
            assert len(holder.held) <= holder.prefetch
        return numbers

    @property
    def may_drop(self) -> bool:
        """True if a message may leave by itself."""
        return bool(self.expiry) or (self.limit, self.most_bytes) != (None, None)

    def expires(self, number: int) -> float:
        """The time at which a message expires: time passes only when the buffer is empty, so it counts from its publish."""
        return self.expiry.get(number, math.inf)

    def catch_up(self) -> None:
        self.state.catch_up()
        self.carry_out()

    # -- what happens

    @rule(count=st.integers(1, 5), size=st.sampled_from([SMALL, LARGE]), persistent=st.booleans(),
          expiration=st.sampled_from([None, None, 0, 7]))  # fmt: skip
    def publish(self, count: int, size: int, persistent: bool, expiration: int | None) -> None:
        numbers = range(self.number, self.number + count)
        self.number += count
        self.sizes.update(dict.fromkeys(numbers, size))
        bodies = [number.to_bytes(4, "big").ljust(size, b".") for number in numbers]
        publication = Publication(b"warrenmq", numbers[0], HEAD, 0, bodies, persistent, expiration)
        promise = Promise(self.syncs if persistent else -1)
        self.promises.append(promise)
        if times := [time for time in (self.ttl, expiration) if time is not None]:
            self.expiry.update(dict.fromkeys(numbers, self.now + min(times) * 1_000_000))
        self.waiting += numbers
        self.state.publish(Publish(publication, promise, self.sender))
        self.carry_out()

    @rule()
    def mailbox_empty(self) -> None:
        self.state.mailbox_empty()
        self.carry_out()
        self.state.make_safe()
        self.carry_out()
        assert not self.state.buffer.count
        if self.waiting:
            for holder in self.consuming() if not self.single_active else filter(None, [self.active]):
                assert holder.prefetch, "it could have had more"
                assert len(holder.held) >= holder.prefetch

    @rule(
        prefetch=st.sampled_from([0, 1, 2, 5]),
        no_ack=st.booleans(),
        exclusive=st.booleans(),
        priority=st.integers(0, 1),
    )
    def consume(self, prefetch: int, no_ack: bool, exclusive: bool, priority: int) -> None:
        self.catch_up()
        others = self.consuming()
        refused = exclusive and (self.single_active or bool(others))
        holder = self.new_holder(prefetch, no_ack, exclusive=exclusive, priority=priority)
        request = Consume(holder.number, holder, prefetch, no_ack, exclusive, priority=priority)
        if refused or any(other.exclusive for other in others):
            with pytest.raises(AccessRefused):
                self.state.call(request, None)
            del self.holders[holder.number]
            return
        self.active = self.active or holder
        self.state.call(request, None)

    @rule(no_ack=st.booleans(), wait=st.sampled_from([0.0, 1.0]))
    def get(self, no_ack: bool, wait: float) -> None:
        self.catch_up()
        holder = self.new_holder(0, no_ack)
        holder.getter = True
        before = len(self.waiting)
        answer = self.state.call(Get(holder.number, no_ack, wait), Getter(holder))
        self.carry_out()
        if answer is not WAITS:
            assert answer is None
            assert wait == 0
            assert not before or self.expiry, "there was a message"

    def new_holder(
        self, prefetch: int, no_ack: bool, *, exclusive: bool = False, priority: int = 0
    ) -> Holder:
        self.next_holder += 1
        holder = Holder(self.next_holder, prefetch, no_ack, exclusive, priority)
        self.holders[holder.number] = holder
        return holder

    def consuming(self) -> list[Holder]:
        """Consumers that messages are pushed to, oldest first."""
        return [each for each in self.holders.values() if not each.cancelled and not each.getter]

    @precondition(lambda self: any(holder.held for holder in self.holders.values()))
    @rule(data=st.data(), how=st.sampled_from(["ack", "multiple", "many", "requeue", "reject", "unknown"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        if self.may_drop:
            self.catch_up()
        holder = data.draw(st.sampled_from([each for each in self.holders.values() if each.held]))
        tag = data.draw(st.sampled_from([*holder.held]))
        tags = [each for each in holder.held if each <= tag] if how in {"multiple", "many"} else [tag]
        if how == "unknown":
            self.state.cast(Ack(holder.number, holder.next_tag), 0, 0)
            tags = []
        elif how == "many":
            self.state.cast(Acks(holder.number, tags), 0, 0)
        elif how in {"ack", "multiple"}:
            self.state.cast((AckUpTo if how == "multiple" else Ack)(holder.number, tag), 0, 0)
        else:
            back = holder.held.pop(tag)
            tags = []
            self.state.cast(Reject(holder.number, tag, multiple=False, requeue=how == "requeue"), 0, 0)
            (self.requeued if how == "requeue" else self.rejected).append(back)
        for each in tags:
            del holder.held[each]
        self.carry_out()
        assert not self.rejected

    @precondition(lambda self: any(holder.untaken for holder in self.holders.values()))
    @rule(data=st.data())
    def taken(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from([each for each in self.holders.values() if each.untaken]))
        self.state.cast(Taken(holder.number, holder.untaken), 0, 0)
        holder.untaken = 0
        self.carry_out()

    @precondition(lambda self: self.consuming())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.catch_up()
        holder = data.draw(st.sampled_from(self.consuming()))
        handed_out = data.draw(st.integers(0, holder.next_tag - 1))
        holder.cancelled = True
        if holder is self.active:  # the oldest of those with the highest priority is the next
            self.active = max(self.consuming(), key=lambda each: each.priority, default=None)
        back = [tag for tag in holder.held if tag > handed_out]
        self.requeued += [holder.held.pop(tag) for tag in back]
        self.state.call(Cancel(holder.number, handed_out), None)
        self.carry_out()

    @rule(
        limit=st.sampled_from([None, 0, 3]),
        most_bytes=st.sampled_from([None, 40, 450]),
        overflow=st.sampled_from(["drop-head", "reject-publish-dlx"]),
        ttl=st.sampled_from([None, 0, 5]),
    )
    def new_arguments(
        self, limit: int | None, most_bytes: int | None, overflow: str, ttl: int | None
    ) -> None:
        """A policy changes: limits hold for what is there, a time to live for what comes."""
        self.catch_up()
        self.limit, self.most_bytes, self.overflow, self.ttl = limit, most_bytes, overflow, ttl
        arguments = QueueArguments(
            max_length=limit, max_length_bytes=most_bytes, overflow=overflow, message_ttl=ttl
        )
        self.state.cast(NewArguments(arguments), 0, 0)
        self.carry_out()
        if overflow == "drop-head":
            assert limit is None or len(self.waiting) <= limit
            assert most_bytes is None or sum(map(self.sizes.__getitem__, self.waiting)) <= most_bytes

    @rule()
    def bytes_are_counted(self) -> None:
        self.catch_up()
        self.state.call(CountBytes(), None)

    @rule()
    def purge(self) -> None:
        self.catch_up()
        assert self.state.call(Purge(), None) == len(self.waiting)
        self.waiting.clear()

    @precondition(lambda self: self.persistent.unreported)
    @rule(data=st.data())
    def on_disk(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.persistent.unreported)))
        ids, self.persistent.unreported = (
            self.persistent.unreported[:count],
            self.persistent.unreported[count:],
        )
        self.state.cast(MsgsOnDisk(ids, "written"), 0, 0)
        self.carry_out()

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def timer(self, data: st.DataObject) -> None:
        info = self.timers.pop(data.draw(st.sampled_from([*self.timers])))
        self.catch_up()
        self.state.info(info)
        self.carry_out()

    @rule(milliseconds=st.integers(1, 6))
    def time_passes(self, milliseconds: int) -> None:
        self.catch_up()
        self.now += milliseconds * 1_000_000

    # -- what always holds

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "state"):
            return
        held = sum(len(holder.held) for holder in self.holders.values())
        assert self.state.vq.unacked == held
        assert self.state.vq.ready + self.state.buffer.count == len(self.waiting)
        if self.state.vq.ready_bytes is not None:
            ready = self.waiting[: len(self.waiting) - self.state.buffer.count]
            assert self.state.vq.ready_bytes == sum(map(self.sizes.__getitem__, ready))
            pending = [number for holder in self.holders.values() for number in holder.held.values()]
            assert self.state.vq.unacked_bytes == sum(map(self.sizes.__getitem__, pending))
        assert all(len(promise.answers) <= promise.owed for promise in self.promises)
        assert self.number - MORE_CREDIT_AFTER - self.state.buffer.count < self.sender.credit <= self.number

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        if self.number % 2:  # the process dies
            self.state.nack_all("dead")
        else:
            self.mailbox_empty()  # what was collected goes to the store now
            while self.persistent.unreported:
                self.state.cast(MsgsOnDisk([self.persistent.unreported.pop()], "written"), 0, 0)
            self.mailbox_empty()
            assert not self.state.unconfirmed
        assert all(len(promise.answers) == promise.owed for promise in self.promises)


TestQueueState = QueueMachine.TestCase
TestQueueState.settings = hypothesis_settings(max_examples=150, stateful_step_count=30, deadline=None)
