"""The client's model: which guarantees hold for each message, judged by the client's own calls and answers.

It knows nothing of the broker's inside.  One application publishes, gets and settles; each queue's messages
are kept with what is known of them, and each thing that the broker does is compared with that:

    delivered      the body is as it was published, to this queue; it is not held, and was not settled; nothing of the same publisher that
                   was sent before it still waits
    nothing came   no message waits that is surely there
    a consumer     never holds more unacked messages than its prefetch count

found.py judges what is there after an end of the broker, length.py how long a queue may be.  The model is lenient where a
client cannot know, never where it can.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from pamqp.commands import Basic

from warrenmq.message.properties import Properties
from warrenmq.simulate.length import Length
from warrenmq.simulate.messages import MAIN, Copy, Message, PromiseBroken, State, number_of
from warrenmq.simulate.topology import ALL_POLICIES, DEAD_LETTER, RETURNS


@dataclass(slots=True)
class QueueModel:
    """The model of one queue."""

    name: str
    copies: dict[int, Copy] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    """Settled, and known to be on disk."""
    may_drop: bool = False
    """True if a message may go at any time: it expires, or the queue has priorities and its length has a limit."""
    has_dropped: bool = False
    """It may have dropped messages."""
    has_ttl: bool = False
    """Messages sent to it have a time to live."""
    length: Length = field(default_factory=Length)
    """The length that its policies allow."""
    rejects: bool = False
    """It may nack what is sent to it."""
    dead_letters: bool = False
    """Rejected messages go to the queue `dead`."""
    is_ordered: bool = True
    """Messages of one publisher come in their order."""
    repeated: set[int] = field(default_factory=set)
    """Dead-lettered to it more than once, so that it may hold them more than once."""
    strays: set[int] = field(default_factory=set)
    """May come here as dead letters at any time."""
    arrived: set[int] = field(default_factory=set)
    """Ready, and surely there when the queue was last asked for something (`asked`)."""
    one_journal: bool = True
    """False with priorities: each has an index of its own, so a later confirm says nothing of an earlier ack."""
    is_limited: bool = False
    """It may have a delivery limit (topology.py)."""
    counts_returns: bool = False
    """It surely has one."""
    graves: tuple[str, str | None] = DEAD_LETTER
    """The exchange and routing key of its dead letters; None as a key: their own."""
    spills_to: QueueModel | None = None
    """The queue of dead letters, to which any of its messages may go at any time."""

    def sent(self, message: Message, now: float, *, may_be_refused: bool = False) -> None:
        """It is about to be sent, at this virtual time."""
        is_certain = not self.may_drop and not may_be_refused
        copy = Copy(message, is_certain=is_certain, awaits_confirm=may_be_refused, has_ttl=self.has_ttl)
        copy.sent_at = -inf if may_be_refused else now
        self._add(copy)

    def _add(self, copy: Copy) -> None:
        """A copy is about to come here."""
        copy.may_expire = self.may_drop
        self.length.sent(copy)
        self.copies[copy.message.number] = copy
        self._may_spill([copy.message])

    def may_come(self, messages: Iterable[Message]) -> None:
        """They may come here: a queue that they were sent to was deleted before they were routed, or is this
        one's predecessor.
        """
        for message in messages:
            if message.number not in self.copies:
                self._add(Copy(message, is_certain=False, has_ttl=self.has_ttl))

    def may_stray(self, messages: Sequence[Message]) -> None:
        """They may be dead letters that come here, now or later, and more than once."""
        self.strays.update(message.number for message in messages)
        for message in messages:
            self.may_repeat(message)
            if message.number not in self.copies:
                self._add(Copy(message, is_certain=False, is_dead_letter=True, may_be_gone=True))

    def spill_to(self, dead: QueueModel | None) -> None:
        """Any of its messages, those to come as well, may be dead letters in this queue from now on."""
        self.spills_to = dead
        self._may_spill([copy.message for copy in self.copies.values()])

    def _may_spill(self, messages: Sequence[Message]) -> None:
        if self.spills_to is not None:
            self.spills_to.may_stray(messages)

    def not_sent(self, messages: Iterable[Message]) -> None:
        """They were refused before they were sent."""
        for message in messages:
            self.copies.pop(message.number, None)

    def nacked(self, messages: Iterable[Message]) -> None:
        """They may have been taken or not."""
        for message in messages:
            if (copy := self.copies.get(message.number)) is not None:
                copy.is_certain = False

    def unconfirmed_may_be_gone(self) -> None:
        """The broker was closed while other threads published, and dead letters were on their way."""
        for copy in self.copies.values():
            copy.is_certain &= copy.is_confirmed or copy.was_found

    def dead_lettered(self, message: Message, way: tuple[str, str] = DEAD_LETTER) -> None:
        """A queue has sent it here on this way; it is certain after `dead_letters_arrived`."""
        self._add(Copy(message, is_certain=False, is_dead_letter=True, way=way))

    def sent_later(self, message: Message, due_at: float, *, may_be_gone: bool = False) -> None:
        """It is about to be sent with a delay; a crash may make it come twice."""
        copy = Copy(message, is_certain=False, due_at=due_at, has_ttl=self.has_ttl)
        copy.may_be_gone = may_be_gone
        self._add(copy)
        self.may_repeat(message)

    def may_repeat(self, message: Message) -> None:
        """It may be in the queue more than once, and count for its length so often."""
        self.repeated.add(message.number)
        self.length.may_come_again(message)

    def dues_came(self) -> None:
        """Every delayed message whose confirm came is here by now."""
        for copy in self.copies.values():
            if copy.due_at > 0 and copy.state is State.READY and copy.is_confirmed and not copy.may_be_gone:
                copy.is_certain = not copy.may_expire

    def dead_letters_arrived(self) -> None:
        """Nothing can be on its way here any more."""
        for copy in self.copies.values():
            copy.is_certain |= copy.is_dead_letter and not self.may_drop and not copy.may_be_gone

    def surely_sent(self) -> set[int]:
        """The messages whose `publish` has returned: what another publisher or a queue sends now may reach
        the next process.
        """
        return {number for number in self.sent_so_far() if self.copies[number].message.confirm is not None}

    def sent_so_far(self) -> set[int]:
        """The numbers of all messages but those that wait elsewhere to be delivered later, or may become dead
        letters later.
        """
        return {
            number
            for number, copy in self.copies.items()
            if copy.is_certain
            or not (copy.is_on_its_way or (copy.is_dead_letter and copy.state is State.READY))
        }

    def may_refuse(self) -> None:
        """Mark all unconfirmed messages as possibly refused from now on."""
        for copy in self.copies.values():
            if copy.is_certain and not copy.is_confirmed:
                copy.is_certain, copy.awaits_confirm = False, True

    def confirmed(self, messages: Iterable[Message], now: float) -> None:
        """The confirm of these messages was seen, at this virtual time."""
        for message in messages:
            copy = self.copies.get(message.number)
            if copy is None:
                continue
            if copy.awaits_confirm:
                copy.is_certain, copy.awaits_confirm = not copy.may_expire, False
            if copy.came_at is None and copy.due_at < 0:  # a delayed message is only safe where it waits
                copy.came_at = now

    def settled_so_far(self) -> set[int]:
        """The settled messages whose acks a confirm of the next publish proves to be on disk."""
        if not self.one_journal:
            return set()
        return {
            number
            for number, copy in self.copies.items()
            if copy.state is State.SETTLED and not copy.settled_over_amqp
        }

    def acks_are_safe(self, before: float) -> None:
        """Acks sent before this virtual time are on disk by now, though no confirm says so (README, What is durable when)."""
        if not self.has_dropped:
            self.known_gone([number for number, copy in self.copies.items() if copy.settled_at < before])

    def known_gone(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            copy = self.copies.get(number)
            if copy is not None and copy.state is State.SETTLED and number not in self.repeated:
                del self.copies[number]
                self.gone.add(number)

    def delivered(self, body: bytes, *, redelivered: bool, way: tuple[str, str]) -> Copy:
        """Check a delivery against the model; returns the copy, now held by the client."""
        copy = self.known(body)
        number = copy.message.number
        expected = copy.way or copy.message.way
        if way != expected and number not in self.repeated:
            raise PromiseBroken(
                "altered",
                f"queue {self.name} delivered message {number} as published to {way}, not {expected}",
            )
        if copy.state is not State.READY and number not in self.repeated:
            raise PromiseBroken(
                "delivered twice",
                f"queue {self.name} delivered message {number}, which is {copy.state.value}",
            )
        if copy.sure_returns > RETURNS:
            raise PromiseBroken(
                "delivery limit",
                f"queue {self.name} delivered message {number}, which came back {copy.sure_returns} times",
            )
        is_known = copy.is_redelivered is not None and number not in self.repeated
        if is_known and redelivered != copy.is_redelivered:
            was = "was" if copy.is_redelivered else "was not"
            raise PromiseBroken(
                "redelivered flag",
                f"queue {self.name} delivered message {number} with redelivered={redelivered}; it {was} delivered before",
            )
        self._check_first(copy, "delivered")
        copy.state = State.HELD
        return copy

    def _check_first(self, copy: Copy, done: str, shown: Collection[int] = ()) -> None:
        """Check that nothing that must be there goes before a message, but what was shown with it."""
        for other in self.copies.values():
            if (
                other.state is State.READY
                and self.must_have(other)
                and self._goes_first(other, copy)
                and other.message.number not in shown
            ):
                raise PromiseBroken(
                    "order",
                    f"queue {self.name} {done} message {copy.message.number} before {other.message.number}",
                )

    def check_once(self, copies: Iterable[Copy], broken: str, done: str) -> None:
        """Check that no message is there twice."""
        times = Counter(copy.message.number for copy in copies)
        if doubled := [number for number, n in times.items() if n > 1 and number not in self.repeated]:
            raise PromiseBroken(broken, f"queue {self.name} {done} messages {doubled} more than once")

    def _goes_first(self, other: Copy, copy: Copy) -> bool:
        """True if a client may rely on `other` being delivered before `copy`."""
        one, two = other.message, copy.message
        if not self.is_ordered or one.number in self.repeated:
            return False
        if one.priority != two.priority and not self.one_journal:
            return one.priority > two.priority and one.number in self.arrived
        return one.publisher == two.publisher and one.number < two.number

    def check_properties(self, copy: Copy, properties: Properties | Basic.Properties) -> None:
        """Check that a delivery has the priority, the persistence and the headers of its publish; a dead letter has more."""
        message, headers = copy.message, properties.headers or {}
        if (
            (properties.priority or 0) != message.priority
            or (properties.delivery_mode == 1) == message.persistent
            or any(headers.get(name) != value for name, value in message.headers.items())
        ):
            raise PromiseBroken(
                "altered",
                f"queue {self.name} delivered message {message.number} with other properties than were published",
            )

    def rank(self, body: bytes) -> tuple[int, int]:
        """The place of a message among those that were delivered together: with priorities the most urgent
        ones first, then the oldest.
        """
        message = self.known(body).message
        return 0 if self.one_journal else -message.priority, message.number

    def asked(self) -> None:
        """Note which messages must be in the queue before a request: the script's own, and confirmed ones of
        other publishers.
        """
        self.arrived = {
            number
            for number, copy in self.copies.items()
            if copy.state is State.READY
            and self.must_have(copy)
            and (copy.message.publisher == MAIN or copy.is_confirmed)
        }

    def waiting(self) -> list[int]:
        """The messages that were in the queue when it was last asked for something, and have not left it."""
        return [
            number
            for number in sorted(self.arrived)
            if (copy := self.copies.get(number)) is not None
            and copy.state is State.READY
            and self.must_have(copy)
        ]

    @property
    def may_hold_something(self) -> bool:
        """True if a message may be ready."""
        return bool(self.strays) or any(
            copy.state is State.READY or number in self.repeated for number, copy in self.copies.items()
        )

    def nothing_came(self) -> None:
        """Check an empty answer: PromiseBroken if a message must be in the queue."""
        if self.arrived:
            raise PromiseBroken(
                "missing",
                f"queue {self.name} says that it is empty, but holds messages {sorted(self.arrived)}",
            )

    def expired_too_soon(self, since: float) -> None:
        """The queue said that it has no message: none may be gone that was sent after this virtual time, and
        so has not expired.
        """
        young = [
            number
            for number, copy in self.copies.items()
            if copy.state is State.READY and copy.message.publisher == MAIN and copy.sent_at > since
        ]
        if young:
            raise PromiseBroken(
                "expired too soon",
                f"queue {self.name} says that it is empty, but messages {young} have time to live left",
            )

    def settled(self, copy: Copy, now: float, *, over_amqp: bool = False) -> None:
        """The client acks or rejects it, at this virtual time."""
        copy.state, copy.settled_at, copy.settled_over_amqp = State.SETTLED, now, over_amqp

    def requeued(self, copy: Copy) -> None:
        copy.state, copy.is_redelivered = State.READY, True
        copy.is_certain &= not copy.may_expire
        copy.sure_returns += self.counts_returns
        if self.is_limited:
            self.may_have_come_back([copy])

    def may_have_come_back(self, copies: Iterable[Copy] | None = None) -> None:
        """Copies were perhaps in delivery, and came back; all that are ready if none are named, and those that may be
        there once more.
        """
        if not self.is_limited:
            return
        if copies is None:
            copies = [copy for copy in self.copies.values() if copy.state is State.READY]
        for copy in [*copies, *self.again()]:
            copy.returns += 1
            if copy.returns > RETURNS:
                copy.doubt()

    def again(self) -> list[Copy]:
        """The settled messages that may be there once more."""
        return [
            copy
            for number, copy in self.copies.items()
            if number in self.repeated and copy.state is State.SETTLED
        ]

    def giving_away(self) -> Callable[[], None]:
        """A message is about to be taken without an ack: if no answer comes, any may be gone that is ready.
        Returns what ends that doubt.
        """
        doubted = [
            (copy, copy.is_certain, copy.awaits_confirm, copy.may_be_gone, copy.sent_at)
            for copy in self.copies.values()
            if copy.state is State.READY
        ]
        for copy, *_ in doubted:
            copy.doubt()

        def end() -> None:
            for copy, is_certain, awaits_confirm, may_be_gone, sent_at in doubted:
                copy.is_certain, copy.awaits_confirm = is_certain, awaits_confirm
                copy.may_be_gone, copy.sent_at = may_be_gone, sent_at

        return end

    def peeked(self, bodies: Sequence[bytes], *, is_all: bool) -> None:
        """Check the first messages of the queue, or all, which stay there."""
        seen = [self.known(body) for body in bodies]
        self.check_once(seen, "peeked", "shows")
        if wrong := [
            copy.message.number
            for copy in seen
            if copy.state is not State.READY and copy.message.number not in self.repeated
        ]:
            raise PromiseBroken("peeked", f"queue {self.name} shows messages {wrong}, which are not ready")
        self.check_order([copy for copy in seen if copy.message.number not in self.repeated])
        shown = {copy.message.number for copy in seen}
        for copy in seen:
            self._check_first(copy, "shows", shown)
        if is_all and (missing := set(self.waiting()) - {copy.message.number for copy in seen}):
            raise PromiseBroken("missing", f"queue {self.name} does not show messages {sorted(missing)}")

    def retried(self, copy: Copy, now: float) -> None:
        """A delivery is about to be given back for another attempt: it is acked when a delayed copy is safe,
        else it comes back.
        """
        self.sent_later(copy.message, now, may_be_gone=copy.may_be_gone or not copy.message.persistent)
        self.copies[copy.message.number].may_expire |= copy.may_expire
        self.copies[copy.message.number].returns = copy.returns
        self.may_have_come_back([self.copies[copy.message.number]])

    def all_may_be_gone(self) -> None:
        """Its process has ended, and it is transient."""
        for copy in self.copies.values():
            copy.doubt()

    @contextmanager
    def taking_what_expires(self) -> Iterator[None]:
        """Have what is sent in this block expire."""
        self.has_dropped, before, self.may_drop = True, self.may_drop, True
        yield
        self.may_drop = before

    def must_have(self, copy: Copy) -> bool:
        """True if it is surely there, as long as nobody has taken it."""
        return copy.is_certain and not self.length.may_drop(copy)

    def may_return(self, copy: Copy) -> None:
        """Its ack was sent over AMQP, and the channel may have ended before that was handled."""
        if self.copies.get(copy.message.number) is copy and copy.state is State.SETTLED:
            copy.state, copy.is_redelivered, copy.settled_at = State.READY, True, inf
            copy.doubt()

    def policy(self, key: str) -> None:
        """A policy of this kind (topology.py) is about to hold for it, or none any more; what the one before
        allows holds until `policy_holds`.
        """
        definition = ALL_POLICIES.get(key, {})
        self.has_ttl = "message-ttl" in definition
        self.rejects = "overflow" in definition
        most = None if self.rejects else definition.get("max-length")
        self.length.allow(most, definition.get("max-length-bytes"))
        self.is_limited = self.counts_returns = "delivery-limit" in definition
        self.dead_letters = "dead-letter-exchange" in definition
        self.graves = definition.get("dead-letter-exchange", ""), definition.get("dead-letter-routing-key")
        for copy in self.copies.values():
            copy.sure_returns = 0
        if self.rejects:
            self.may_refuse()
        self.may_drop |= self._drops_any
        self.has_dropped |= self.may_drop or self._is_short
        if self._drops_any:
            for copy in self.copies.values():
                copy.may_expire = True
                copy.is_certain = copy.awaits_confirm = False
                copy.sent_at = -inf

    @property
    def _is_short(self) -> bool:
        return self.length.messages is not None or self.length.bytes is not None

    @property
    def _drops_any(self) -> bool:
        """True if its policy may have it drop any message: with priorities not the oldest one goes, but the least urgent."""
        return self.has_ttl or (self._is_short and not self.one_journal)

    def policy_holds(self) -> None:
        """The policy holds by now, and none before it."""
        for copy in self.copies.values():
            if self.length.may_drop(copy):
                copy.is_certain = copy.awaits_confirm = False
                copy.may_be_gone |= copy.due_at > 0
        self.length.holds()
        self.may_drop = self._drops_any

    def policy_is_in_doubt(self) -> None:
        """Its policy may be the one that was to be set, or the one before."""
        self.length.is_in_doubt()
        self.counts_returns = False

    @property
    def spills(self) -> bool:
        """True if what it drops is a dead letter."""
        return self.dead_letters and (self.has_dropped or self.rejects)

    def is_too_long(self, ready: int) -> bool:
        """True if its policy allows fewer ready messages."""
        return self.length.messages is not None and ready > self.length.messages

    def check_length(self, ready: int) -> None:
        """Check the number of ready messages that the queue says it has."""
        if self.is_too_long(ready):
            raise PromiseBroken(
                "length",
                f"queue {self.name} holds {ready} messages; its policy allows {self.length.messages}",
            )

    def check_bytes(self, bodies: Iterable[bytes]) -> None:
        """Check the bytes of all bodies that are ready."""
        most = self.length.bytes
        if most is not None and (there := sum(map(len, bodies))) > most:
            raise PromiseBroken("length", f"queue {self.name} holds {there} bytes; its policy allows {most}")

    def purging(self) -> None:
        """A purge is about to be asked for: if it never returns, what was there may be gone or not."""
        for copy in self.copies.values():
            if copy.state is State.READY:
                copy.doubt()

    def purged(self) -> None:
        for copy in self.copies.values():
            if copy.state is not State.READY:
                continue
            if copy.message.number in self.arrived:
                copy.state = State.SETTLED
            else:  # it came before the purge, or a moment later
                copy.is_certain = copy.awaits_confirm = False
                copy.may_be_gone = True

    def check_order(self, back: Sequence[Copy]) -> None:
        """Check that of each publisher and priority they stand in the order in which they were published."""
        last: defaultdict[tuple[int, int], int] = defaultdict(int)
        for copy in back if self.is_ordered else ():
            message = copy.message
            of = (message.publisher, message.priority)
            if message.number < last[of]:
                raise PromiseBroken(
                    "order",
                    f"queue {self.name} has message {last[of]} before {message.number} after its recovery",
                )
            last[of] = message.number

    def known(self, body: bytes) -> Copy:
        """Find the copy with this body; PromiseBroken if it is unknown or altered."""
        number = number_of(body)
        copy = self.copies.get(number)
        if copy is None:
            how = "was settled, and is known to be gone" if number in self.gone else "was never sent to it"
            raise PromiseBroken(
                "came from nowhere", f"queue {self.name} has message {number} ({body[:20]!r}), which {how}"
            )
        if body != copy.message.body:
            raise PromiseBroken(
                "altered", f"queue {self.name} has message {number} with another body than was published"
            )
        return copy
