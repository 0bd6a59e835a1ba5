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

on_receive raises: nothing of it is sent, the state is what it was before, and the message is retried by the
policy, at last dead-lettered; the actor lives on.  A message that cannot be decoded is dead-lettered at once.
An actor that is killed, or falls in on_start, is its supervisor's business: what it held goes back to the
queue.  When the broker is closed, or the queue deleted, the actor stops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any, ClassVar

from pykka import ActorDeadError, ThreadingActor

from warrenmq.actors.sending.confirms import Confirm
from warrenmq.broker.broker import Broker
from warrenmq.broker.delivery import Delivery
from warrenmq.broker.transaction import Transaction
from warrenmq.checks import short_text
from warrenmq.durable_actors.address import AGAIN, DurableRef, Handling, declare, handling
from warrenmq.durable_actors.codec import Codec, read
from warrenmq.durable_actors.ownership import Addresses, NotifyingQueue, OwnedConsumer, Ownership
from warrenmq.durable_actors.refusals import Write, pause_before
from warrenmq.durable_actors.replies import ANSWER, FAILURE
from warrenmq.durable_actors.snapshot import Answer, Snapshot
from warrenmq.errors import ArgumentTypeError, Blocked, BrokerClosed, Error, Nacked, NotFound
from warrenmq.log import Log
from warrenmq.message.properties import Properties
from warrenmq.seams.disk_errors import lack_of

BATCH = 64
"""Messages that are handled before one snapshot and their acks."""
_STATES = Codec("msgpack")


class _Note(Enum):
    """A message of an actor to itself."""

    DELIVERIES_READY = auto()
    """Its consumer's channel has deliveries, or news of the queue."""
    STATE_REFUSED = auto()
    """The state could not be written a while ago."""


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
        self._codec = self._own_codec()
        self._ref = DurableRef(broker, self._name(), self._codec)
        """Its address, as others have it."""
        self._ownership = Ownership(broker.inside.client, broker.runtime.lock())
        """Its consumer, and the messages at hand."""
        self._handled: list[Delivery] = []
        """Those of the messages at hand that are acked when the state is written."""
        self._snapshot: Snapshot
        """The state behind the last message that was handled, and its file; from on_start on."""
        self._local: Broker
        """The broker of the process that owns the directory, which is this one; from on_start on."""
        self._has_room = True
        """The state could be written when it was last tried."""
        self._log = Log("warrenmq.durable_actors", actor=self._ref.address)
        self._tell_of_pykka, self._ask_of_pykka = self.actor_ref.tell, self.actor_ref.ask
        self.actor_ref.tell = self._tell  # type: ignore[method-assign]
        self.actor_ref.ask = self._ask  # type: ignore[method-assign]

    @classmethod
    def ref(cls, broker: Broker) -> DurableRef:
        """The actor's address: tell and ask work whether it runs or not, once its queue was declared."""
        if cls._name() not in broker.inside.client.retry_policies:
            declare(broker, cls._name(), cls.retries)
        return DurableRef(broker, cls._name(), cls._own_codec())

    def initial_state(self) -> Any:
        """The state before the first message; None = the actor has none."""
        return None

    def on_receive(self, message: Any) -> Any:
        """Handle one message; what it returns is the answer to an ask.  It may be called twice for one
        message, if there is no state to remember it by.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say what it does with {type(message).__name__}"
        )

    # -- life

    def on_start(self) -> None:
        """Take over the address: read the snapshot, subscribe.

        PreconditionFailed where another process owns the directory.
        """
        broker, address = self.broker, self._ref.address
        self._local = broker.inside.local()
        declare(broker, address, self.retries)
        addresses: Addresses = broker.inside.kept.setdefault(Addresses, Addresses(broker.runtime.lock()))
        with addresses.taking_over:
            if (before := addresses.owners.get(address)) is not None:
                before.end()
            self._snapshot = Snapshot(self._local, address)
            if self._snapshot.state is None:
                self.state = self.initial_state()
            else:
                self.state = self._unpacked()
            self._snapshot.add(None, self._packed())
            addresses.owners[address] = self._ownership
            channel = NotifyingQueue(partial(self._note, _Note.DELIVERIES_READY))
            OwnedConsumer(self._ownership, broker.inside.client, address, self.prefetch, channel)

    def on_stop(self) -> None:
        """Requeue unhandled messages when the actor stops."""
        self._ownership.end()

    def on_failure(self, *_error: Any) -> None:
        """Requeue unhandled messages when the actor fails."""
        self._ownership.end()

    # -- the messages at hand

    def _handle_receive(self, message: Any) -> Any:
        if message is _Note.DELIVERIES_READY:
            return self._work()
        if message is _Note.STATE_REFUSED:
            return self._settle()
        return super()._handle_receive(message)

    def _work(self) -> None:
        """Handle the deliveries that have arrived, a batch at a time."""
        if batch := self._ownership.take(BATCH):
            self._handled = [delivery for delivery in batch if self._handle(delivery)]
            self._settle()
        elif self._ownership.has_lost_queue:
            self.stop()

    def _settle(self) -> None:
        """Write the state and ack what was handled; later, if the state is refused for now."""
        ownership = self._ownership
        try:
            with ownership.settling:
                if ownership.is_over:
                    return
                if self._local.is_open:
                    self._snapshot.write()
                with suppress(BrokerClosed):
                    for delivery in self._handled:
                        delivery.ack()
                # an actor that was killed has left some, which its successor gives back
                if self.actor_ref.is_alive():
                    ownership.at_hand = []
        except OSError as refusal:
            if (pause := pause_before(Write.STATE, refusal)) is None:
                raise
            if self._has_room:
                self._log.warning(
                    f"{lack_of(refusal)}: the state is written when there is room", error=str(refusal)
                )
            self._has_room = False
            self._wait(pause)
            self._note(_Note.STATE_REFUSED)
        else:
            self._has_room = True
            self._note(_Note.DELIVERIES_READY)

    @property
    def _comes_again(self) -> bool:
        """True if the messages at hand come again: to a successor, when the directory is opened the next
        time, or from another process of the queue.
        """
        ownership = self._ownership
        is_gone = ownership.is_over or not self.actor_ref.is_alive()
        return is_gone or not self._local.is_open or ownership.are_void

    def _make_safe(self) -> None:
        """Wait until the messages at hand are on the disk; ProcessDied if they may be lost."""
        while not self._ownership.is_safe:
            try:
                self._ownership.wait_until_safe()
            except Blocked as refusal:
                if not self._waited(Write.AT_HAND, refusal):
                    raise

    # -- one message

    def _handle(self, delivery: Delivery) -> bool:
        """Handle one message; True if it is to be acked, False if it was settled otherwise, or comes again."""
        if self._comes_again:
            return False
        properties = delivery.properties
        if (message_id := properties.message_id) is not None and message_id in self._snapshot:
            if (kept := self._snapshot.answer(message_id)) is not None:
                self._answer(properties, kept, ANSWER)
            return True
        try:
            message = self._codec.decode(delivery.body, properties.type)
        except Error as why:
            self._log.warning("a message cannot be decoded, so it is dead-lettered", error=str(why))
            self._failed(delivery, str(why), lambda: (False, delivery.dead_lettered()))
            return False
        try:
            answer = self._received(message, properties)
        except BaseException as error:
            if self.broker.runtime.passes(error):
                raise
            self.state = self._unpacked()
            if self._comes_again:
                return False
            logging.getLogger("warrenmq.durable_actors").debug("%s failed", self._ref.address, exc_info=True)
            self._log.warning("a message failed", attempt=delivery.attempt, error=repr(error))
            self._failed(delivery, repr(error), delivery.retried)
            return False
        if answer is not None:
            self._answer(properties, answer, ANSWER)
        return True

    def _received(self, message: Any, properties: Properties) -> Answer | None:
        """Call `on_receive`, send what it told, and add its state to the snapshot; returns the answer, None
        if nobody asked.
        """
        client, answer = self.broker.inside.client, None
        began = self.broker.runtime.monotonic_ns()
        current = Handling(properties.message_id, self._make_safe)
        token = handling.set(current)
        try:
            with Transaction(
                client, self.broker.publish, lambda refusal: self._waited(Write.TOLD, refusal, began)
            ):
                value = self.on_receive(message)
                state = self._packed()
                if properties.reply_to:
                    answer = self._codec.encode(value)
                pending = client.publishing.own.pending
                has_told = current.told > 0 or bool(pending and not pending.is_empty)
                # what others learn of the message does not outlive it; an answer that only reads the state
                # tells nothing of it
                if has_told or (answer is not None and state != self._snapshot.state):
                    self._make_safe()
        finally:
            handling.reset(token)
        kept = answer if properties.app_id == AGAIN else None
        self._snapshot.add(properties.message_id, state, kept, has_told=has_told)
        return answer

    def _failed(
        self, delivery: Delivery, why: str, settle: Callable[[], tuple[bool, Confirm | None]]
    ) -> None:
        """Have a message tried again or dead-lettered; it comes again as it is if its copy is refused."""
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
            if pause := pause_before(Write.COPY, refusal):
                self._wait(pause)
        except BrokerClosed:
            pass
        else:
            if not again and delivery.properties.reply_to:
                told = f"{self._ref.address} gave the message up: {why}"
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
            except Error as refusal:
                if self._waited(Write.ANSWER, refusal):
                    continue
            return

    def _waited(self, write: Write, refusal: Exception, began: int | None = None) -> bool:
        """Wait until a write that was refused is to be tried again; False if it is not, or if the messages at
        hand come again.

        `began` is the time of its first try.
        """
        now = self.broker.runtime.monotonic_ns()
        pause = pause_before(write, refusal, 0.0 if began is None else (now - began) / 1e9)
        if pause is None or self._comes_again:
            return False
        self._wait(pause)
        return not self._comes_again

    def _wait(self, seconds: float) -> None:
        self.broker.runtime.event().wait(seconds)

    def _note(self, note: _Note) -> None:
        with suppress(ActorDeadError):
            self._tell_of_pykka(note)

    # -- the state as bytes

    def _packed(self) -> bytes | None:
        if self.state is not None:
            return _STATES.state_bytes(self.state, self.state_type)
        if self._snapshot.state is not None:
            raise ArgumentTypeError(
                "a state that was there cannot become None; put an empty one in its place"
            )
        return None

    def _unpacked(self) -> Any:
        packed = self._snapshot.state
        return None if packed is None else read(self.state_type, _STATES.decode(packed, None))

    # -- doors

    def _tell(self, message: Any) -> None:
        """ActorRef.tell: a persistent publish; returns when it is on disk, or in a durable actor at once.
        Pykka's own stop as ever.
        """
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


def _is_of_pykka(message: Any) -> bool:
    return type(message).__module__.startswith("pykka.")
