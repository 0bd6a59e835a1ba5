"""The publishing side of the face: from a body to casts in the queues' mailboxes.

Each application thread that publishes has a Publishing of its own, so nothing on the way of a message takes a
lock: its block of message ids, its encoded heads, and one Flow for each queue that it publishes to.

A Flow is one end of RabbitMQ's credit flow (credit_flow, `credit_flow_default_credit`): the thread may be
`initial` messages ahead of the queue, which grants more as it handles them.  It counts with two numbers that
only grow, one written by the publishing thread and one by the queue's, so neither needs a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.actors.queue_messages import Publish, Publisher
from warrenmq.actors.vhost_process import queue_name
from warrenmq.storage.stored_message import encode_head
from warrenmq.storage.variable_queue import Publication

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykka import ActorRef

    from warrenmq.actors.confirms import Confirm
    from warrenmq.runtime import Event, Lock, Runtime
    from warrenmq.storage.stored_message import Properties
    from warrenmq.trace.recorder import ActorTrace

ID_BLOCK = 1 << 14
"""Message ids that a thread takes at a time."""
LOOK_FOR_LIFE = 0.1
"""Seconds between looks whether the queue process that owes credit still lives."""
HEADS = 256
"""Encoded heads that a thread keeps; a publisher with more routing keys than this encodes anew."""


class Flow(Publisher):
    """One thread's credit towards one incarnation of a queue process."""

    __slots__ = ("_granted", "_initial", "_runtime", "_sent", "_waiting", "ref")

    def __init__(self, runtime: Runtime, ref: ActorRef, initial: int) -> None:
        self._runtime = runtime
        self.ref = ref
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

    @property
    def credit(self) -> int:
        """Messages that may be sent now; negative after a large batch."""
        return self._initial + self._granted - self._sent

    def spend(self, count: int) -> None:
        """Wait until there is credit, then use up `count` (it may go negative: a batch is never split)."""
        while self.credit <= 0 and self.ref.is_alive():
            # Register first, look second; the queue grants first and looks for waiters second.
            self._waiting = self._runtime.event()
            if self.credit <= 0:
                self._waiting.wait(LOOK_FOR_LIFE)
            self._waiting = None
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

    def __init__(self, runtime: Runtime, ids: MessageIds, initial_credit: int, trace: ActorTrace | None,
                 address: Callable[[str], ActorRef]) -> None:  # fmt: skip
        self._runtime = runtime
        self._ids = ids
        self._initial_credit = initial_credit
        self.trace = trace
        self._address = address
        """Finds a queue's process by the queue's name; waits while it is being restarted."""
        self._flows: dict[str, Flow] = {}
        self._heads: dict[tuple[str, str], bytes] = {}
        self._next_id = self._id_end = 0

    def publication(self, exchange: str, routing_key: str, bodies: Sequence[bytes], properties: Properties | None,
                    *, persistent: bool) -> Publication:  # fmt: skip
        """What the queues are sent: one object for all of them."""
        count = len(bodies)
        if self._id_end - self._next_id < count:
            block = max(ID_BLOCK, count)
            self._next_id = self._ids.take(block)
            self._id_end = self._next_id + block
        first = self._next_id
        self._next_id = first + count
        plain = self._heads.get((exchange, routing_key))
        if plain is None:
            plain = encode_head(exchange, [routing_key], None)
            if len(self._heads) >= HEADS:
                self._heads.clear()
            self._heads[exchange, routing_key] = plain
        head, properties_size = plain, 0
        if properties is not None:
            head = encode_head(exchange, [routing_key], properties)
            properties_size = len(head) - len(plain)
            if properties.delivery_mode == 1:
                persistent = False
        return Publication(self._ids.prefix, first, head, properties_size, bodies, persistent)

    def send(self, queue: str, publication: Publication, confirm: Confirm) -> None:
        """Cast a publication to one queue, waiting for credit; the promise is nacked when nobody takes it."""
        flow = self._flows.get(queue)
        if flow is None or not flow.ref.is_alive():
            flow = self._flows[queue] = Flow(self._runtime, self._address(queue), self._initial_credit)
        flow.spend(len(publication.bodies))
        # A cast that meets a dead mailbox comes back through QueueProcess.undelivered, which nacks.
        self._runtime.cast(flow.ref, Publish(publication, confirm, flow), self.trace)

    def would_block(self, queue: str) -> bool:
        """Whether `send` would wait: for credit, or because the queue's process is not there."""
        flow = self._flows.get(queue)
        if flow is None or not flow.ref.is_alive():
            return not self._runtime.is_registered(queue_name(queue))
        return flow.credit <= 0
