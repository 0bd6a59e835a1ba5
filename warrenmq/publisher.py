"""The publishing side of the face: from a body to casts in the queues' mailboxes.

Each application thread that publishes has a Publishing of its own, so nothing on the way of a message takes a
lock: its block of message ids, its encoded heads, and one Flow for each queue that it publishes to.

Before any of this a publisher waits for its turn: while a memory or disk alarm is set nobody's has come (RabbitMQ blocks
the connection; here it is the thread, in `wait_for_turn`).  docs/alarms.md says what an application sees of it.

A Flow is one end of RabbitMQ's credit flow (credit_flow, `credit_flow_default_credit`): the thread may be
`initial` messages ahead of the queue, which grants more as it handles them.  It counts with two numbers that
only grow, one written by the publishing thread and one by the queue's, so neither needs a lock.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Any

from warrenmq.actors.confirms import Confirm
from warrenmq.actors.queue_messages import Publish, Publisher
from warrenmq.actors.vhost_process import queue_name
from warrenmq.errors import Blocked, Returned
from warrenmq.runtime.life import inbox_of
from warrenmq.storage.alarms import BlockedPublisher, in_words
from warrenmq.storage.queue_message import Publication
from warrenmq.storage.stored_message import encode_head
from warrenmq.trace.events import Ev

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from warrenmq.routing import Router
    from warrenmq.runtime import Event, Lock, Runtime
    from warrenmq.storage.alarms import Alarms
    from warrenmq.storage.properties import Properties
    from warrenmq.trace.recorder import ActorTrace
    from warrenmq.transaction import Transaction

_SEND, _UNDELIVERED = int(Ev.SEND), int(Ev.UNDELIVERED)

ID_BLOCK = 1 << 14
"""Message ids that a thread takes at a time."""
LOOK_FOR_LIFE = 0.1
"""Seconds between looks whether the queue process that owes credit still lives."""
LOOK_FOR_PROCESS = 0.002
"""Seconds between looks for a queue process that is being restarted."""
HEADS = 256
"""Encoded heads that a thread keeps; a publisher with more routing keys than this encodes anew."""


class Flow(Publisher):
    """One thread's credit towards one incarnation of a queue process."""

    __slots__ = ("_granted", "_initial", "_sent", "_waiting", "inbox", "ref", "runtime", "send")

    def __init__(self, runtime: Runtime, ref: ActorRef[Any], initial: int) -> None:
        self.runtime = runtime
        self.ref = ref
        self.inbox = inbox_of(ref)
        self.send: Callable[[Publish], bool] = self.inbox.send
        """Put a message in the queue's mailbox; False when nobody will take it."""
        self._initial = initial
        self._sent = 0
        """Messages sent; written by the publishing thread."""
        self._granted = 0
        """Credit received; written by the queue's thread."""
        self._waiting: Event | None = None

    def bump(self, credit: int) -> None:
        """The queue handled messages; called in its thread."""
        self._granted += credit
        if (waiting := self._waiting) is not None:
            waiting.set()

    def wait_for_credit(self, timeout: float) -> None:
        """Wait until there is credit, or not much longer than `timeout` seconds."""
        # Register first, look second; the queue grants first and looks for waiters second.
        self._waiting = self.runtime.event()
        if self.credit <= 0:
            self._waiting.wait(min(timeout, LOOK_FOR_LIFE))
        self._waiting = None

    @property
    def credit(self) -> int:
        """Messages that may be sent now; negative after a large batch."""
        return self._initial + self._granted - self._sent

    def spend(self, count: int) -> None:
        """Wait until there is credit, then use up `count` (it may go negative: a batch is never split)."""
        while self._initial + self._granted <= self._sent and self.ref.is_alive():
            self.wait_for_credit(LOOK_FOR_LIFE)
        self._sent += count


class MessageIds:
    """Blocks of message ids for the threads of one broker.

    An id is 16 bytes: eight that are this boot's own, and a number whose upper part is the directory's boot
    serial (rabbit_serial), so that the number alone is unique in the directory; traces use it.
    """

    def __init__(self, runtime: Runtime, boot: int, lock: Lock) -> None:
        self.prefix = runtime.token_bytes(8)
        self._next = boot << 40
        self._lock = lock

    def take(self, count: int) -> int:
        """The first of `count` consecutive numbers."""
        with self._lock:
            first = self._next
            self._next += count
        return first


class Publishing:
    """One thread's publishing: see the top of this module."""

    def __init__(self, runtime: Runtime, router: Router, ids: MessageIds, initial_credit: int,
                 trace: ActorTrace | None, address: Callable[[str], ActorRef[Any]], alarms: Alarms,
                 check_open: Callable[[], None]) -> None:  # fmt: skip
        self.runtime = runtime
        self._alarms = alarms
        self._check_open = check_open
        self._router = router
        self._ids = ids
        self._initial_credit = initial_credit
        self.trace = trace
        self._kind = 0 if runtime.recorder is None else runtime.recorder.kind(Publish)
        self._address = address
        """Finds a queue's process by the queue's name; waits while it is being restarted."""
        self.transaction: Transaction | None = None
        """What this thread publishes and acks is kept there until its end."""
        self._flows: dict[str, Flow] = {}
        self._heads: dict[tuple[str, str], bytes] = {}
        self._next_id = self._id_end = 0

    def wait_for_turn(self, exchange: str, routing_key: str, timeout: float | None) -> None:
        """Wait until no alarm is set and, with a timeout, until `publish` will not wait either.

        After `timeout` seconds it raises Blocked, saying what it waited for; nothing has been sent then.  Without one it
        leaves waiting for a queue's credit to `publish`.  In a transaction only alarms count: it sends nothing yet.
        BrokerClosed when the broker is closed meanwhile.
        """
        deadline = None if timeout is None else self.runtime.monotonic_ns() + round(timeout * 1e9)
        while True:
            if self._alarms.active:
                self._wait_for_alarms(exchange, routing_key, deadline)
            if deadline is None or self.transaction is not None:
                return
            if (queue := self._lacking(exchange, routing_key)) is None:
                return
            if (left := self._left(deadline)) <= 0:
                msg = f"queue {queue!r} is behind and takes no more for now, nothing was published; try again later"
                raise Blocked(msg)
            flow = self._flows.get(queue)
            if flow is not None and flow.ref.is_alive():
                flow.wait_for_credit(left)
            else:
                self.runtime.event().wait(min(left, LOOK_FOR_PROCESS))

    def _wait_for_alarms(self, exchange: str, routing_key: str, deadline: int | None) -> None:
        alarms = self._alarms
        who = BlockedPublisher(threading.current_thread().name, exchange, routing_key, self.runtime.wall_ns())
        news = self.runtime.channel()
        ticket = alarms.add_waiting(who, lambda: news.put(None))
        try:
            while active := alarms.active:
                self._check_open()
                left = None if deadline is None else self._left(deadline)
                if left is not None and left <= 0:
                    raise Blocked(in_words(active))
                with suppress(Empty):
                    news.get(timeout=left)
        finally:
            alarms.remove_waiting(ticket)

    def _left(self, deadline: int) -> float:
        return (deadline - self.runtime.monotonic_ns()) / 1e9

    def publish(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                persistent: bool, mandatory: bool) -> Confirm:  # fmt: skip
        """Route messages and cast them to their queues; NotFound when there is no such exchange."""
        queues = self._router.route(exchange, routing_key)
        if not queues or not bodies:
            confirm = Confirm(self.runtime)
            if mandatory and not queues:
                confirm.fail(Returned(exchange, routing_key))
            else:
                confirm.confirm()
            return confirm
        publication = self._publication(exchange, routing_key, bodies, properties, persistent)
        confirm = Confirm(self.runtime, len(queues))
        for queue in queues:
            flow = self._flows.get(queue)
            if flow is None or flow.ref.actor_stopped.is_set():
                flow = self._flows[queue] = Flow(self.runtime, self._address(queue), self._initial_credit)
            flow.spend(len(bodies))
            # A publish that meets a dead mailbox comes back through QueueProcess.undelivered, which nacks.
            if (trace := self.trace) is None:
                flow.send(Publish(publication, confirm, flow))
            else:
                inbox_id = flow.inbox.trace_id
                row = trace.emit(_SEND, self._kind, publication.first_id, inbox_id, 0, 0, len(bodies))
                if not flow.send(Publish(publication, confirm, flow, trace.id, row, trace.last_t)):
                    trace.emit(_UNDELIVERED, self._kind, pseq=row)
        return confirm

    def _publication(self, exchange: str, routing_key: str, bodies: list[bytes], properties: Properties | None,
                     persistent: bool) -> Publication:  # fmt: skip
        """What the queues are sent: one object for all of them."""
        count = len(bodies)
        first = self._next_id
        if self._id_end - first < count:
            block = max(ID_BLOCK, count)
            first = self._ids.take(block)
            self._id_end = first + block
        self._next_id = first + count
        plain = self._heads.get((exchange, routing_key))
        if plain is None:
            plain = encode_head(exchange, [routing_key], None)
            if len(self._heads) >= HEADS:
                self._heads.clear()
            self._heads[exchange, routing_key] = plain
        if properties is None:
            return Publication(self._ids.prefix, first, plain, 0, bodies, persistent)
        head = encode_head(exchange, [routing_key], properties)
        persistent = persistent and properties.delivery_mode != 1
        return Publication(self._ids.prefix, first, head, len(head) - len(plain), bodies, persistent)

    def cast(self, ref: ActorRef[Any], message: Any) -> None:
        """Send a message in this thread's name."""
        self.runtime.cast(ref, message, self.trace)

    def check_exchange(self, exchange: str) -> None:
        """NotFound when there is no such exchange."""
        self._router.route(exchange, "")

    def would_block(self, exchange: str, routing_key: str) -> bool:
        """Whether `publish` would wait: for credit, or because a queue's process is not there."""
        return self._lacking(exchange, routing_key) is not None

    def _lacking(self, exchange: str, routing_key: str) -> str | None:
        """The first queue that a publish would wait for."""
        for queue in self._router.route(exchange, routing_key):
            flow = self._flows.get(queue)
            if flow is None or not flow.ref.is_alive():
                if not self.runtime.is_registered(queue_name(queue)):
                    return queue
            elif flow.credit <= 0:
                return queue
        return None
