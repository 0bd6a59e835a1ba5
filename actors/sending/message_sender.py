"""One sender's way to the queues: message ids, encoded heads, and a Flow to each queue process (rabbit_queue_type:deliver).

Each publisher has a MessageSender of its own: a thread of the application (warrenmq/broker/publisher.py), a
channel of an AMQP client, a queue that dead-letters.  So no lock is taken on the way of a message.

A Flow is one end of RabbitMQ's credit flow (credit_flow, `credit_flow_default_credit`): the sender may be
`initial` messages ahead of the queue, which grants more as it handles them.  It counts with two numbers that
only grow, one written by the sender's thread and one by the queue's, so neither needs a lock.  `spend` is what a kind of
Flow does where credit ends; a message that leaves some is only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

from pykka import ActorDeadError, ActorRef

from warrenmq.errors import Blocked, NotFound, ResourceError
from warrenmq.message.properties import Properties
from warrenmq.message.queue_message import Publication, alike_checksums
from warrenmq.message.stored import encode_head, encode_raw_head
from warrenmq.queue.collected import OpenPublish
from warrenmq.queue.messages import DELETED, Publish, Publisher
from warrenmq.queue.unconfirmed import Promise
from warrenmq.runtime import Lock, Runtime
from warrenmq.runtime.life import inbox_of
from warrenmq.trace.events import Routed, Send, Undelivered, Unrouted
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_send, _write_undelivered = writer(Send), writer(Undelivered)
_write_routed, _write_unrouted = writer(Routed), writer(Unrouted)

ID_BLOCK = 1 << 14
"""Message ids that a sender takes at a time."""
FLOWS = 256
"""Flows from which on a sender looks for those to processes that have ended, each time that they have doubled."""
HEADS = 256
"""Encoded heads that a sender keeps; one with more routing keys than this encodes anew."""
FALLS_ASLEEP = 0.001
"""Seconds that a queue's process needs for its end once it has closed its mailbox, about."""
NO_QUEUE = "the queue that the message was routed to is gone, or is being restarted; publish it again"


class Flow(Publisher):
    """A sender's credit towards one incarnation of a queue process; it counts, and never waits."""

    __slots__ = ("inbox", "limit", "ref", "runtime", "send", "sent")

    def __init__(self, runtime: Runtime, ref: ActorRef[Any], initial: int) -> None:
        super().__init__()
        self.runtime = runtime
        self.ref = ref
        self.inbox = inbox_of(ref)
        self.send: Callable[[Publish], bool] = self.inbox.send
        """Put a message in the queue's mailbox; False when the process is dead."""
        self.sent = 0
        """Messages sent; written by the sender's thread."""
        self.limit = initial
        """Messages that may be sent in all, with the credit received so far; written by the queue's thread."""

    def bump(self, credit: int) -> None:
        """The queue handled messages; called in its thread."""
        self.limit += credit

    @property
    def credit(self) -> int:
        """Messages that may be sent now; negative after a large batch."""
        return self.limit - self.sent

    def spend(self, count: int, size: int) -> None:  # noqa: ARG002  # of those that wait
        """Spend credit for so many messages about to be sent, whose bodies have `size` bytes."""
        self.sent += count


F = TypeVar("F", bound=Flow)


class MessageIds:
    """Blocks of message ids for the senders of one broker.

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


class MessageSender(Generic[F]):
    """One sender's ids, heads and flows: see the top of this module."""

    def __init__(self, runtime: Runtime, ids: MessageIds, flow: Callable[[Runtime, ActorRef[Any], int], F],
                 initial_credit: int, trace: ActorTrace | None, address: Callable[[str], ActorRef[Any]],
                 forward: Callable[[str, Publication, Promise], bool] | None = None) -> None:  # fmt: skip
        """`address` finds a queue's process by the queue's name, or raises ActorDeadError, NotFound, Blocked
        or ResourceError; `flow` is the kind of Flow that this sender counts with.  `forward` is of a sender
        whose `address` finds no queue that sleeps: it has another process start it and publish to it; False
        if this sender is to publish itself.
        """
        self.runtime = runtime
        self.trace = trace
        self.address = address
        self.flows: dict[str, F] = {}
        self._flows_to_keep = FLOWS
        self._forward = forward
        self._new_flow = flow
        self._ids = ids
        self._initial_credit = initial_credit
        self._kind = 0 if runtime.recorder is None else runtime.recorder.kind(Publish)
        self._heads: dict[tuple[str, tuple[str, ...]], bytes] = {}
        self._next_id = self._id_end = 0
        self._open: OpenPublish | None = None
        """The last message of `send_one`, and its ..."""
        self._open_kind = "", "", False
        """... exchange, routing key, and whether its messages are persistent."""
        self._told_of: set[str] = set()
        """Exchanges that the trace was told."""
        self._routed: tuple[str, tuple[str, ...], int] = "", (), 0
        """The exchange, keys and number of queues that the trace was last told; of the default exchange only itself."""

    def publication(self, exchange: str, routing_keys: tuple[str, ...], bodies: Sequence[bytes],
                    properties: Properties | bytes | None, *, persistent: bool,
                    expiration: int | None = None, priority: int = 0, due: int = 0, queues: int = 0) -> Publication:  # fmt: skip
        """The publication that is sent to the queues: one object for all of them.

        `properties` are bytes where an AMQP client sent them, which have been checked then; `expiration`
        (milliseconds) and `priority` are what they say; `due` is for a queue of delayed messages; `queues`
        tells the trace how many the exchange chose.  PreconditionFailed for properties that cannot be stored.
        """
        plain = self._plain_head(exchange, routing_keys)
        if properties is None:
            head = plain
        elif isinstance(properties, bytes):
            head = encode_raw_head(exchange, [*routing_keys], properties)
        else:
            head = encode_head(exchange, [*routing_keys], properties)
        if self.trace is not None and (exchange or self._routed[0]):
            self._tell_route(self.trace, exchange, routing_keys, queues)
        first = self._take_ids(len(bodies))
        size = len(head) - len(plain)
        checksums = alike_checksums(head, bodies)
        return Publication(
            self._ids.prefix, first, head, size, bodies, persistent, expiration, priority, due, checksums
        )

    def _plain_head(self, exchange: str, routing_keys: tuple[str, ...]) -> bytes:
        """The head of a message without properties."""
        plain = self._heads.get((exchange, routing_keys))
        if plain is None:
            plain = encode_head(exchange, [*routing_keys], None)
            if len(self._heads) >= HEADS:
                self._heads.clear()
            self._heads[exchange, routing_keys] = plain
        return plain

    def _tell_route(
        self, trace: ActorTrace, exchange: str, routing_keys: tuple[str, ...], queues: int
    ) -> None:
        """Tell the trace where publishes go from here on, if it does not know."""
        told = (exchange, routing_keys, queues) if exchange else ("", (), 0)
        if told != self._routed:
            since = 0 if exchange in self._told_of else trace.last_t
            self._told_of.add(exchange)
            self._routed = told
            key = self._text(routing_keys[0]) if exchange else 0
            _write_routed(trace, since, self._text(exchange), told[2], key)

    def unrouted(self, messages: int, exchange: str, routing_key: str, *, late: bool = False) -> None:
        """Tell the trace that so many messages were routed to no queue, a while ago if they are `late`."""
        if (trace := self.trace) is not None:
            since = 0 if late else trace.last_t
            _write_unrouted(
                trace,
                messages,
                since=since,
                exchange=self._text(exchange),
                routing_key=self._text(routing_key),
            )

    def _text(self, text: str) -> int:
        recorder = self.runtime.recorder
        return 0 if recorder is None else recorder.text(text)

    def send(self, queues: Collection[str], publication: Publication, confirm: Promise) -> None:
        """Cast a publication to each of these queues, all of which owe `confirm` an answer.

        A publish that meets a dead mailbox comes back through QueueProcess.undelivered, which nacks.
        """
        bodies = publication.bodies
        count = len(bodies)
        size = len(bodies[0]) if count == 1 else sum(map(len, bodies))
        for queue in queues:
            flow = self.flows.get(queue)
            if flow is None or flow.ref.actor_stopped.is_set():
                flow = self._connect(queue, confirm, publication)
                if flow is None:
                    continue
            flow.spend(count, size)
            if (trace := self.trace) is None:
                if not flow.send(Publish(publication, confirm, flow)) and flow.inbox.gives_back:
                    self._send_again(queue, publication, confirm)
            else:
                inbox_id = flow.inbox.trace_id
                row = _write_send(
                    trace, self._kind, publication.first_id, inbox_id, size, 0, count, len(queues)
                )
                if not flow.send(Publish(publication, confirm, flow, trace.id, row, trace.last_t)):
                    _write_undelivered(trace, self._kind, row)
                    if flow.inbox.gives_back:
                        self._send_again(queue, publication, confirm)

    def send_one(self, queue: str, exchange: str, routing_key: str, body: bytes, confirm: Promise, *,
                 persistent: bool) -> None:  # fmt: skip
        """Cast a message without properties to one queue: with those before it, if it is alike and they are
        still on their way.
        """
        flow = self.flows.get(queue)
        if flow is None or flow.ref.actor_stopped.is_set():
            flow = self._connect(queue, confirm)
            if flow is None:
                return
        if flow.sent + 1 < flow.limit:
            flow.sent += 1
        else:
            flow.spend(1, len(body))
        if self._next_id == self._id_end:
            self._more_ids(1)
        msg_id = self._next_id
        self._next_id += 1
        sender = row = sent_t = 0
        if (trace := self.trace) is not None:
            if exchange or self._routed[0]:
                self._tell_route(trace, exchange, (routing_key,), 1)
            row = _write_send(trace, self._kind, msg_id, flow.inbox.trace_id, len(body), 0, 1, 1)
            sender, sent_t = trace.id, trace.last_t
        message, kind = self._open, (exchange, routing_key, persistent)
        if (
            message is None or flow.inbox.newest is not message or message.publisher is not flow or kind != self._open_kind
            or msg_id != message.alike.first_id + message.added or (row and row != message.sent_seq + message.added)
        ):  # fmt: skip
            if message is not None and kind == self._open_kind:
                head = message.alike.head
            else:
                head = self._plain_head(exchange, (routing_key,))
            alike = Publication(self._ids.prefix, msg_id, head, 0, (), persistent)
            message = self._open = OpenPublish(alike, flow, body, confirm, sender, row, sent_t)
            self._open_kind = kind
        else:
            message.add(body, confirm, sent_t)
            if message.on_its_way:
                return
        try:
            message.on_its_way = True
            sent = flow.inbox.send_open(message)
        except BaseException:  # a signal handler's: the next one sends it, perhaps again
            message.on_its_way = False
            raise
        if not sent:
            if trace is not None:
                _write_undelivered(trace, self._kind, row)
            if flow.inbox.gives_back and (publish := message.take()) is not None:
                self._send_again(queue, publish.publication, publish.confirm)

    def _send_again(self, queue: str, publication: Publication, confirm: Promise) -> None:
        """Send what came back from a process that was falling asleep: it ends, or goes on, within a moment."""
        self.runtime.event().wait(FALLS_ASLEEP)
        self.flows.pop(queue, None)
        self.send((queue,), publication, confirm)

    def _connect(self, queue: str, confirm: Promise, publication: Publication | None = None) -> F | None:
        """A new flow to the queue's process; None if it has none: `confirm` is answered then, or
        `publication` is forwarded.
        """
        if (
            (forward := self._forward) is not None
            and publication is not None
            and forward(queue, publication, confirm)
        ):
            return None
        try:
            ref = self.address(queue)
        except NotFound:  # the other queues get the message all the same
            confirm.nack(DELETED)
            return None
        except ActorDeadError:
            confirm.nack(NO_QUEUE)
            return None
        except (Blocked, ResourceError) as error:
            confirm.fail(error)
            return None
        if (there := self.flows.get(queue)) is not None and there.ref == ref:
            return there  # another coroutine of this thread connected while the process was started
        if len(self.flows) >= self._flows_to_keep:
            self.flows = {
                name: each for name, each in self.flows.items() if not each.ref.actor_stopped.is_set()
            }
            self._flows_to_keep = max(FLOWS, 2 * len(self.flows))
        flow = self.flows[queue] = self._new_flow(self.runtime, ref, self._initial_credit)
        return flow

    def _take_ids(self, count: int) -> int:
        if self._id_end - self._next_id < count:
            self._more_ids(count)
        first = self._next_id
        self._next_id = first + count
        return first

    def _more_ids(self, count: int) -> None:
        block = max(ID_BLOCK, count)
        self._next_id = self._ids.take(block)
        self._id_end = self._next_id + block
