"""DurableActor: a Pykka actor whose mailbox is a durable queue.

    class Till(warrenmq.DurableActor):
        address = "till"                      # its queue
        messages = (Charge, Refund)           # dataclasses; none: plain data
        retries = {"max_attempts": 5, "backoff": exponential(1), "dead_letter": "till-failed"}

        def initial_state(self):
            return {"taken": 0}               # None: no state, no snapshot

        def on_receive(self, message):
            self.state["taken"] += message.amount
            Shop.ref(self.broker).tell(Paid(message.order))

    till = broker.runtime.start(Till, broker)     # or a ChildSpec("till", Till, args=(broker,)) of a supervisor

For each message, in this order:

    on_receive returns    the message is on disk, if it told or published something, which is sent then, and confirmed
    the answer            if somebody asked
    the snapshot          state and id of the message are on disk, if there is a state
    the ack               it will not come again

    a kill before         and then the message
    the sends' confirms   comes again; what was sent has the same ids when it is sent again, so its receivers know it
    the snapshot          comes again, likewise
    the ack               comes again, and is not handled: its id is in the snapshot

on_receive raises: nothing of it is sent, the state is what it was before, and the message is retried by the policy, at last
dead-lettered; the actor lives on.  A message that cannot be decoded is dead-lettered at once.  An actor that is killed, or falls
in on_start, is its supervisor's business: what it held goes back to the queue.  When the broker is closed, or the queue deleted, the
actor stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from pykka import ActorDeadError, ThreadingActor

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.broker.delivery import Delivery
from warrenmq.broker.transaction import Transaction
from warrenmq.checks import is_a, short_text, shown
from warrenmq.durable_actors.address import AGAIN, ANSWER, FAILURE, DurableRef, Handling, handling
from warrenmq.durable_actors.codec import Codec, read
from warrenmq.durable_actors.ownership import Addresses, NotifyingQueue, OwnedConsumer, Ownership
from warrenmq.durable_actors.snapshot import Answer, Snapshot
from warrenmq.errors import ArgumentTypeError, Blocked, BrokerClosed, Error, Nacked, NotFound, ProcessDied
from warrenmq.log import Log
from warrenmq.message.properties import Properties
from warrenmq.seams.disk import lack_of

BACKOFF = (1.0, 5.0, 30.0, 120.0)
"""Seconds between attempts."""
_RETRIES = ("max_attempts", "backoff", "dead_letter")
BATCH = 64
"""Messages that are handled before one snapshot and their acks."""
_PATIENCE_NS = 30 * 10**9
"""Nanoseconds for which what a message told is sent again before the message counts as failed: a queue's process is restarted sooner."""
_PAUSE = 0.05
"""Seconds between two such tries."""


class _Note:
    """A message of an actor to itself."""


_DELIVERIES_READY = _Note()
"""Its consumer's channel has deliveries, or news of the queue."""
_ROOM_PERHAPS = _Note()
"""The state that could not be written for want of room is to be written again."""
_UNTIL_ROOM = 1.0
"""Seconds between two tries of what the full disk refused."""


class DurableActor(ThreadingActor):
    """Base class of durable actors: override `on_receive`, and the class attributes as needed; see the module.

    An `on_start` or `on_stop` of one's own has to call super()'s.
    """

    use_daemon_thread = True
    address: ClassVar[str] = ""
    """The name of its queue; empty = the name of the class."""
    codec: ClassVar[str] = "msgpack"
    """ "msgpack" or "json"."""
    messages: ClassVar[Iterable[type]] = ()
    """The dataclasses that it takes and answers with."""
    state_type: ClassVar[Any] = Any
    """The type of the state, if it is a dataclass or has some in it; msgpack's plain types need none."""
    retries: ClassVar[Mapping[str, Any]] = {}
    """The arguments of its queue's `retry_policy`, where they are not five attempts, BACKOFF and the queue ADDRESS-failed."""
    prefetch: ClassVar[int] = 256

    broker: Broker
    state: Any
    """Made by `initial_state`, or read from the snapshot; change it, or put another one in its place, in on_receive."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self.state = None
        self._packed: bytes | None = None
        """The state behind the last message that was handled; None if the actor has none."""
        self._changed = False
        """A message has changed the state since the snapshot; it may be what it was all the same, when another changed it back."""
        self._own = self._name()
        self._codec = self._own_codec()
        self._states = Codec("msgpack", ())
        self._handled: list[Delivery] = []
        """Deliveries that are acked when the state is written."""
        self._has_room = True
        """The state could be written when it was last tried."""
        self._is_safe = self._are_void = False
        """The messages at hand are on the disk; they come again, if they are."""
        self._ownership = Ownership(broker.inside.client, broker.runtime.lock())
        self._log = Log("warrenmq.durable_actors", actor=self._own)
        ref = DurableRef(broker, self._own, self._codec)
        self._tell_of_pykka, self._ask_of_pykka = self.actor_ref.tell, self.actor_ref.ask
        self.actor_ref.tell = self._tell  # type: ignore[method-assign]
        self.actor_ref.ask = self._ask  # type: ignore[method-assign]
        self._ref = ref

    @classmethod
    def ref(cls, broker: Broker) -> DurableRef:
        """The actor's address: tell and ask work whether it runs or not, once its queue was declared."""
        if cls._name() not in broker.inside.client.retry_policies:
            cls._declare(broker)
        return DurableRef(broker, cls._name(), cls._own_codec())

    def initial_state(self) -> Any:
        """The state before the first message; None = the actor has none."""
        return None

    def on_receive(self, message: Any) -> Any:
        """Handle one message; what it returns is the answer to an ask.  It may be called twice for one message, if there is no
        state to remember it by.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say what it does with {type(message).__name__}"
        )

    # -- life

    def on_start(self) -> None:
        """Take over the address: read the snapshot, subscribe.

        PreconditionFailed where another process owns the directory.
        """
        broker, address = self.broker, self._own
        self._local = broker.inside.local()
        self._declare(broker)
        addresses: Addresses = broker.inside.kept.setdefault(Addresses, Addresses(broker.runtime.lock()))
        with addresses.taking_over:
            if (before := addresses.owners.get(address)) is not None:
                before.end()
            self._snapshot = Snapshot(self._local, address)
            if self._snapshot.state is None:
                self.state = self.initial_state()
            else:
                self.state = self._unpacked(self._snapshot.state)
            self._packed = self._pack()
            self._changed = self._packed != self._snapshot.state
            addresses.owners[address] = self._ownership
            channel = NotifyingQueue(self._notify)
            OwnedConsumer(self._ownership, broker.inside.client, address, self.prefetch, channel)

    def on_stop(self) -> None:
        """Requeue unhandled messages when the actor stops."""
        self._ownership.end()

    def on_failure(self, *_error: Any) -> None:
        """Requeue unhandled messages when the actor fails."""
        self._ownership.end()

    # -- messages

    def _handle_receive(self, message: Any) -> Any:
        if message is _DELIVERIES_READY:
            return self._work()
        if message is _ROOM_PERHAPS:
            self._wait_for_room()
            return self._settle()
        return super()._handle_receive(message)

    def _work(self) -> None:
        """Handle the deliveries that have arrived, a batch at a time."""
        ownership = self._ownership
        with ownership.settling:
            if ownership.is_over or ownership.unsettled or (consumer := ownership.consumer) is None:
                return
            try:
                batch = consumer.take(BATCH, 0)
            except (BrokerClosed, ProcessDied):  # of a queue that is being restarted there will be news
                batch = []
            ownership.unsettled = batch
        if batch:
            self._is_safe = self._are_void = False
            self._handled = [delivery for delivery in batch if self._handle(delivery)]
            self._settle()
        elif consumer.ended:  # the broker is closed, or the queue deleted
            self.stop()

    def _settle(self) -> None:
        """Write the state, if it has changed, and ack what was handled; again later, if there is no room."""
        ownership = self._ownership
        with ownership.settling:
            if ownership.is_over:
                return
            if self._local.is_open and self._packed is not None and self._changed:
                try:
                    self._snapshot.write(self._packed)
                except OSError as error:
                    if (lack := lack_of(error)) is None:
                        raise
                    if self._has_room:
                        self._log.warning(
                            f"{lack}: the state is written when there is room", error=str(error)
                        )
                    self._has_room = False
                    self._tell_of_pykka(_ROOM_PERHAPS)
                    return
                self._changed, self._has_room = False, True
            for delivery in self._handled:
                with suppress(BrokerClosed):
                    delivery.ack()
            ownership.unsettled = []
        self._notify()

    @property
    def _comes_again(self) -> bool:
        """True if the messages at hand come again: to a successor, when the directory is opened the next time, or from another process of the queue."""
        gone = self._ownership.is_over or not self.actor_ref.is_alive()
        return gone or not self._local.is_open or self._are_void

    def _make_safe(self) -> None:
        """Wait until the messages at hand are on the disk; ProcessDied if they may be lost."""
        consumer = self._ownership.consumer
        assert consumer is not None
        while not self._is_safe:
            try:
                self._is_safe = consumer.wait_until_safe()
            except (ActorDeadError, ProcessDied) as error:
                self._are_void = True
                raise ProcessDied(
                    f"the process of queue {self._own!r} died, so its messages come again"
                ) from error
            if not self._is_safe:
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        self.broker.runtime.event().wait(_UNTIL_ROOM)

    def _notify(self) -> None:
        with suppress(ActorDeadError):
            self._tell_of_pykka(_DELIVERIES_READY)

    def _handle(self, delivery: Delivery) -> bool:
        """Handle one message; True if it is to be acked, False if it was settled otherwise, or comes again."""
        if self._comes_again:
            return False
        properties = delivery.properties
        message_id = properties.message_id
        if self._packed is not None and message_id is not None and message_id in self._snapshot:
            if (kept := self._snapshot.answer(message_id)) is not None:
                self._answer(properties, kept, ANSWER)
            return True
        try:
            message = self._codec.decode(delivery.body, properties.type)
        except Error as why:
            self._log.warning("a message cannot be decoded, so it is dead-lettered", error=str(why))
            self._failed(delivery, str(why), lambda: (False, delivery.dead_lettered()))
            return False
        client = self.broker.inside.client
        token = handling.set(Handling(message_id, self._make_safe))
        answer: Answer | None = None
        try:
            with Transaction(client, self.broker.publish, self._repeats()):
                value = self.on_receive(message)
                packed = self._pack()
                if properties.reply_to:
                    answer = self._codec.encode(value)
                told = client.publishing.own.pending
                if (told and not told.is_empty) or (answer is not None and packed != self._packed):
                    self._make_safe()
        except Exception as error:
            self.state = self._unpacked(self._packed)
            if self._comes_again:
                return False
            logging.getLogger("warrenmq.durable_actors").debug("%s failed", self._own, exc_info=True)
            self._log.warning("a message failed", attempt=delivery.attempt, error=repr(error))
            self._failed(delivery, repr(error), delivery.retried)
            return False
        finally:
            handling.reset(token)
        self._changed |= packed != self._packed
        self._packed = packed
        if packed is not None and message_id is not None:
            self._snapshot.add(message_id, answer if properties.app_id == AGAIN else None)
        if answer is not None:
            self._answer(properties, answer, ANSWER)
        return True

    def _repeats(self) -> Callable[[Exception], bool]:
        """The decision, for one message, whether what it told and a queue did not take over is sent again: its receivers know the ids."""
        runtime = self.broker.runtime
        end = runtime.monotonic_ns() + _PATIENCE_NS

        def repeats(error: Exception) -> bool:
            is_full = isinstance(error, Blocked)
            if self._comes_again or (runtime.monotonic_ns() > end and not is_full):
                return False
            runtime.event().wait(_PAUSE)
            return True

        return repeats

    def _failed(
        self, delivery: Delivery, why: str, settle: Callable[[], tuple[bool, Confirm | None]]
    ) -> None:
        """Have a message tried again or dead-lettered; it comes again as it is if there is no room for its copy."""
        try:
            with self._ownership.settling:
                if self._ownership.is_over:
                    return
                again, copied = settle()
            if copied is not None:
                copied.result()
        except NotFound as nowhere:
            self._log.error("a message that failed stays in its queue", error=str(nowhere))
        except (Blocked, Nacked) as refusal:
            with suppress(Error):
                delivery.nack()
            if isinstance(refusal, Blocked):
                self._wait_for_room()
        except BrokerClosed:
            pass
        else:
            if not again and delivery.properties.reply_to:
                told = f"{self._own} gave the message up: {why}"
                self._answer(delivery.properties, self._codec.encode(told), FAILURE)

    def _answer(self, asked: Properties, answer: Answer, kind: str) -> None:
        """Send an answer, when there is room for it; the asker may be gone."""
        body, name = answer
        properties = Properties(
            content_type=self._codec.content_type, type=name, correlation_id=asked.correlation_id, app_id=kind
        )
        while not self._comes_again:
            try:
                self.broker.publish(
                    "", asked.reply_to or "", body, properties=properties, persistent=False
                ).result()
            except Blocked:
                self._wait_for_room()
                continue
            except Error:
                pass
            return

    # -- state

    def _pack(self) -> bytes | None:
        if self.state is None:
            if self._packed is not None:
                raise ArgumentTypeError(
                    "a state that was there cannot become None; put an empty one in its place"
                )
            return None
        return self._states.state_bytes(self.state, self.state_type)

    def _unpacked(self, packed: bytes | None) -> Any:
        return None if packed is None else read(self.state_type, self._states.decode(packed, None))

    # -- doors

    def _tell(self, message: Any) -> None:
        """ActorRef.tell: a persistent publish; returns when it is on disk, or in a durable actor at once.  Pykka's own stop as ever."""
        if _is_of_pykka(message):
            self._tell_of_pykka(message)
            return
        confirm = self._ref.tell(message)
        if self.broker.inside.client.publishing.own.pending is None:
            confirm.result()

    def _ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """ActorRef.ask: of Pykka's own messages (stop, proxies) as ever."""
        if _is_of_pykka(message):
            return self._ask_of_pykka(message, block=block, timeout=timeout)
        return self._ref.ask(message, block=block, timeout=timeout)

    @classmethod
    def _name(cls) -> str:
        return short_text("address", cls.address or cls.__name__)

    @classmethod
    def _own_codec(cls) -> Codec:
        return Codec(cls.codec, cls.messages)

    @classmethod
    def _declare(cls, broker: Broker) -> None:
        """Declare the actor's queue, the queue of messages it gave up, and the retry policy."""
        name = cls._name()
        if not is_a(cls.retries, Mapping):
            raise ArgumentTypeError("retries is the arguments of retry_policy, as in {'max_attempts': 5}")
        if unknown := [each for each in cls.retries if each not in _RETRIES]:
            raise ArgumentTypeError(
                f"retries has {shown(unknown[0])}, which is none of {', '.join(_RETRIES)}"
            )
        options = {"max_attempts": 5, "backoff": BACKOFF, "dead_letter": f"{name}-failed", **cls.retries}
        queue = broker.declare_queue(name)
        if is_a(options["dead_letter"], str):
            broker.declare_queue(options["dead_letter"])
        queue.retry_policy(**options)


def _is_of_pykka(message: Any) -> bool:
    return type(message).__module__.startswith("pykka.")
