"""The states of 4,096 messages of a queue in one incarnation, for Q1 and Q3.

    state        PUBLISH, RECOVERED      DELIVER            ACK, DROP
      none ───────────────────► ready ─────────► unacked ──────────► gone
                                  ▲    (no_ack: straight to gone)      ▲
                                  └──── REQUEUE ───┘    DROP of a ready message

A rule is asked of each step, `fine(event << 8 | flag, state before, mark before)`; what is not fine is kept
as it was met (Odd). A message costs some 34 bytes, in arrays as long as the largest id met.

Array form: entries are rows of single messages, as columns.  Sorted by message, and as they came within each,
the state before an entry is what the entry before it left; so no state is kept, and all messages are judged
in one go.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warrenmq.replay.drive.columns import Bools, Bytes, Ints, Places, group_starts, np
from warrenmq.replay.rules.rule import Answers, Judge, questions
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    CONFIRM_NACK,
    DEAD_LETTERED,
    DROP_EXPIRED,
    DROP_LOST,
    DROP_RELEASED,
    IN_STORE,
    NO_ACK,
    PERSISTENT,
    REDELIVERED,
    WANTS_CONFIRM,
    Ev,
)

SHIFT = 12
"""Messages are decided in buckets of SIZE: a number, of a message or its sequence id, shifted right by this
is its bucket's.
"""
SIZE = 1 << SHIFT

NONE, READY, UNACKED, GONE = range(4)
_NO_STEP = 255

# marks, bits
DURABLE, STORED, CONFIRMED, DELIVERED, RECOVERED, MORTAL, LOST, PUBLISHED = (1 << bit for bit in range(8))
"""MORTAL: it has a time to live.  LOST: it was to be delivered, and its body was damaged.  RECOVERED,
PUBLISHED: in this incarnation.
"""

PUBLISH, CONFIRM, DELIVER, ACK = int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.DELIVER), int(Ev.ACK)
REQUEUE, DROP, RECOVER, EXPIRY = int(Ev.REQUEUE), int(Ev.DROP), int(Ev.RECOVERED), int(Ev.EXPIRY)
STEPS = (PUBLISH, RECOVER, DELIVER, ACK, REQUEUE, DROP)
"""The events that move a message from one state to another."""


def by_word(value: Callable[[int, int], int], default: int) -> bytes:
    """A table: event << 8 | flag -> what a function says of a step (event, flag)."""
    table = bytearray((default,)) * (1 << 16)
    for event in STEPS:
        table[event << 8 : event + 1 << 8] = bytes(value(event, flag) for flag in range(256))
    return bytes(table)


def value_of(table: bytes, word: Any) -> Any:
    """A table's value for a number, or its values for an array of numbers."""
    return table[word] if isinstance(word, int) else np.frombuffer(table, np.uint8).take(word)


def _left(event: int, flag: int) -> int:
    if event == DELIVER:
        return GONE if flag & NO_ACK else UNACKED
    return GONE if event in {ACK, DROP} else READY


_LEAVES = by_word(_left, _NO_STEP)
"""event << 8 | flag -> the state that a step leaves."""


def is_expired(word: Any) -> Any:
    """True for a row, or for each row of arrays, that drops messages whose time to live, or whose delay, was over."""
    reason = word & 0xFF & ~DEAD_LETTERED
    return (word >> 8 == DROP) & ((reason == DROP_EXPIRED) | (reason == DROP_RELEASED))


def _table(change: Callable[[int], int]) -> bytes:
    return bytes(change(value) for value in range(256))


# bytes.translate tables: a step of a range of any length
_CONFIRM_IT = _table(lambda mark: mark | CONFIRMED)
_DELIVER_IT = _table(lambda mark: mark | DELIVERED)
_LIMIT_IT = _table(lambda mark: mark | MORTAL)
_LOSE_IT = _table(lambda mark: mark | LOST)
_UNDELIVERED = bytes(mark for mark in range(256) if not mark & DELIVERED)
LOSES = DROP << 8 | DROP_LOST


class Odd(NamedTuple):
    """A row with steps that are not as they should be, and its messages as they were before it."""

    word: int
    first: int
    """The message's first sequence id."""
    states: bytearray
    marks: bytearray
    seq: int
    t: int


def _int64s() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Life:
    """One incarnation's part in 4,096 ids."""

    states: bytearray = field(default_factory=bytearray)
    marks: bytearray = field(default_factory=bytearray)
    published: array[int] = field(default_factory=_int64s)
    """t"""
    delivered: array[int] = field(default_factory=_int64s)
    """t of the last delivery"""
    messages: array[int] = field(default_factory=_int64s)
    """Message ids, as in PUBLISH."""
    gone_at: array[int] = field(default_factory=_int64s)
    """seq of the row that made it gone"""
    odd: list[Odd] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    """Messages by event."""
    confirm_delays: array[int] = field(default_factory=_int64s)
    """Delays from publish to confirm, ns."""
    deliver_delays: array[int] = field(default_factory=_int64s)
    """Delays from publish to the first delivery, ns."""
    ack_delays: array[int] = field(default_factory=_int64s)
    """Delays from the last delivery to the ack, ns."""
    unflagged: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Recovered, and delivered for the first time without the redelivered flag: place -> (seq, t) of the DELIVER."""

    def take(self, entries: list[int], base: int, fine: Answers) -> None:
        """Rows, flat (event << 8 | flag, place, n, message of the first, seq, t); `base` is the id of place 0."""
        states, marks, published, counts = self.states, self.marks, self.published, self.counts
        numbers = iter(entries)
        for word, place, n, msg, seq, t in zip(*[numbers] * 6, strict=True):
            event = word >> 8
            end = place + n
            if end > len(states):
                self._grow(end)
            counts[event] += n
            if n > 1 or event in {CONFIRM, EXPIRY}:
                self._take_range(word, place, end, msg, seq, t, base, fine)
                continue
            # one message: by far the commonest row
            mark = marks[place]
            if not fine[word, states[place], mark]:
                self.odd.append(Odd(word, base + place, states[place:end], marks[place:end], seq, t))
            states[place] = _LEAVES[word]
            if event == PUBLISH:
                marks[place] = _mark_of(word)
                published[place] = t
                self.messages[place] = msg
                continue
            if states[place] == GONE:
                self.gone_at[place] = seq
                if word == LOSES:
                    marks[place] |= LOST
            if event == DELIVER:
                if not mark & DELIVERED:
                    if mark & RECOVERED and not word & REDELIVERED:
                        self.unflagged[place] = seq, t
                    marks[place] |= DELIVERED
                    if published[place]:
                        self.deliver_delays.append(t - published[place])
                self.delivered[place] = t
            elif event == ACK:
                if self.delivered[place]:
                    self.ack_delays.append(t - self.delivered[place])
            elif event == RECOVER:
                marks[place] = RECOVERED
                self.messages[place] = msg

    def _grow(self, size: int) -> None:
        more = min(max(size, 2 * len(self.states), 64), SIZE) - len(self.states)
        self.states += bytes(more)
        self.marks += bytes(more)
        for column in (self.published, self.delivered, self.messages, self.gone_at):
            column.frombytes(bytes(8 * more))

    def _take_range(
        self, word: int, place: int, end: int, msg: int, seq: int, t: int, base: int, fine: Answers
    ) -> None:
        event, n = word >> 8, end - place
        if event == CONFIRM:
            if word & 0xFF == CONFIRM_DURABLE:
                self.marks[place:end] = self.marks[place:end].translate(_CONFIRM_IT)
            self.confirm_delays.extend([t - since for since in self.published[place:end] if since])
            return
        if event == EXPIRY:
            self.marks[place:end] = self.marks[place:end].translate(_LIMIT_IT)
            return
        states, marks, becomes = self.states[place:end], self.marks[place:end], _LEAVES[word]
        met = {(states[0], marks[0])} if n else set()
        if states.count(states[:1]) < n or marks.count(marks[:1]) < n:
            met = set(zip(states, marks, strict=True))
        if not all(fine[word, state, mark] for state, mark in met):
            self.odd.append(Odd(word, base + place, states, marks, seq, t))
        self.states[place:end] = bytes((becomes,)) * n
        if becomes == GONE:
            self.gone_at[place:end] = array("q", (seq,)) * n
            if word == LOSES:
                self.marks[place:end] = self.marks[place:end].translate(_LOSE_IT)
        if event == PUBLISH:
            self.marks[place:end] = bytes((_mark_of(word),)) * n
            self.published[place:end] = array("q", (t,)) * n
            self.messages[place:end] = array("q", range(msg, msg + n))
        elif event == DELIVER:
            if not word & REDELIVERED:
                self.unflagged |= {
                    place + each: (seq, t)
                    for each, mark in enumerate(marks)
                    if mark & (RECOVERED | DELIVERED) == RECOVERED
                }
            if not marks.translate(None, _UNDELIVERED):
                self.deliver_delays.extend([t - since for since in self.published[place:end] if since])
            self.marks[place:end] = marks.translate(_DELIVER_IT)
            self.delivered[place:end] = array("q", (t,)) * n
        elif event == ACK:
            self.ack_delays.extend([t - since for since in self.delivered[place:end] if since])
        elif event == RECOVER:
            self.marks[place:end] = bytes((RECOVERED,)) * n
            self.messages[place:end] = array("q", range(msg, msg + n) if msg else bytes(8 * n))


def _mark_of(word: int) -> int:
    """The mark of messages that were published so."""
    return PUBLISHED | (DURABLE if word & PERSISTENT else 0) | (STORED if word & IN_STORE else 0)


class Entries(NamedTuple):
    """Rows of single messages; `event << 8 | flag` is the word of a row."""

    actor: Ints
    id: Ints
    word: Ints
    message: Ints
    seq: Ints
    t: Ints

    def at(self, places: Places) -> Entries:
        """The entries at these indices."""
        return Entries._make(column.take(places) for column in self)

    def table(self) -> Ints:
        """The entries as rows of an array."""
        return np.stack(self, axis=1)


@dataclass(frozen=True, slots=True)
class Walked:
    """Outcome of a walk through the entries of many messages; the lists have one value a message."""

    entries: Entries
    starts: Places
    sizes: Places
    """The first entry of each message, and the number of its entries."""
    fine: Bools
    """True if from PUBLISH or RECOVERED on every step is as it should be; if its body was damaged, it was
    published here, and no confirm promised it.
    """
    state: Bytes
    """The last."""
    confirmed: Bools
    """Or it does not want a confirm."""
    begins: Places
    """The entry (place in `entries`) that it began with."""
    confirm: Places
    delivery: Places
    """The places of its CONFIRM and its first DELIVER; -1 = it has no such row."""
    damaged: Bools
    """True if its body was damaged when it was to be delivered."""
    acks: Places
    """ACK entries, of whichever message."""
    last_delivery: Places
    """The DELIVER before each of `acks`."""


def walk(entries: Entries, code: Ints, judges: Mapping[str, Judge]) -> Walked:
    """Entries by message, of each in the order of its rows; `code` rises, and is equal for equal messages."""
    starts = group_starts(code)
    messages = len(starts)
    sizes = np.diff(np.append(starts, len(code)))
    owner = np.repeat(np.arange(messages), sizes)
    # as wide as the words of rules need, and half of what has to be moved
    word = entries.word.astype(np.int32)
    event = (word >> 8).astype(np.uint8)
    leaves = value_of(_LEAVES, word)

    steps = np.flatnonzero(leaves != _NO_STEP)
    whose, words, left = owner.take(steps), word.take(steps), leaves.take(steps)
    is_first = np.ones(len(steps), np.bool_)
    is_first[1:] = whose[1:] != whose[:-1]
    before = np.empty(len(steps), np.uint8)
    before[1:] = left[:-1]
    before[is_first] = NONE
    begins = _first_of(steps[is_first], whose[is_first], messages)
    begun = word.take(begins)
    was_published = begun >> 8 == PUBLISH

    delivers = np.flatnonzero(event == DELIVER)
    to = owner.take(delivers)
    again = np.zeros(len(delivers), np.bool_)
    again[1:] = to[1:] == to[:-1]
    delivery = _first_of(delivers[~again], to[~again], messages)

    # only the marks that decide about a step: is it the first delivery, and had a time to live been set
    mark = np.where(was_published, PUBLISHED, 0).astype(np.uint8).take(whose)
    mark[np.flatnonzero(words >> 8 == DELIVER)[again]] |= DELIVERED
    _add_mortal(mark, words, steps, whose, begins, np.flatnonzero(event == EXPIRY), owner)
    right = np.ones(len(steps), np.bool_)
    for question in questions(judges):
        right &= question(words, before, mark)
    fine = begins >= 0
    fine[whose[~right]] = False

    state = np.full(messages, NONE, np.uint8)
    is_last = np.ones(len(steps), np.bool_)
    is_last[:-1] = is_first[1:]
    state[whose[is_last]] = left[is_last]

    confirms = np.flatnonzero(event == CONFIRM)
    confirmed = owner.take(confirms)
    confirm = _first_of(confirms, confirmed, messages)
    fine[confirmed[1:][confirmed[1:] == confirmed[:-1]]] = False
    fine &= (confirm < 0) | (was_published & (confirm > begins))
    damaged = np.zeros(messages, np.bool_)
    damaged[owner[word == LOSES]] = True
    owed = (confirm >= 0) & (word.take(confirm) & 0xFF != CONFIRM_NACK) & (begun & PERSISTENT != 0)
    # only an earlier incarnation can say if a message that was recovered had been confirmed
    fine &= ~damaged | (was_published & ~owed)

    acks = np.flatnonzero(event == ACK)
    last_delivery = _last_deliveries(delivers, to, acks, owner.take(acks))
    waits = was_published & (begun & WANTS_CONFIRM != 0) & (confirm < 0)
    return Walked(
        entries, starts, sizes, fine, state, ~waits, begins, confirm, delivery, damaged, acks, last_delivery
    )


def _first_of(places: Places, owners: Places, messages: int) -> Places:
    """The first of these places that is the message's own, for each message; -1 = none."""
    found = np.full(messages, -1, np.intp)
    found[owners[::-1]] = places[::-1]
    return found


def _add_mortal(
    mark: Bytes, words: Any, steps: Places, whose: Places, begins: Places, limits: Places, owner: Places
) -> None:
    """Mark the steps that a time to live ended, if it was set (at `limits`) behind the message's beginning
    and before the step.
    """
    expired = np.flatnonzero(is_expired(words))
    if len(expired):
        of = whose[expired]
        limit = _first_of(limits, owner[limits], len(begins))[of]
        mark[expired[(limit > begins[of]) & (limit < steps[expired])]] |= MORTAL


def _last_deliveries(delivers: Places, to: Places, acks: Places, of: Places) -> Places:
    """The last of `delivers` (to messages `to`) before each of `acks` (of messages `of`) that is the same
    message's; -1 = none.
    """
    if not len(delivers):
        return np.full(len(acks), -1, np.intp)
    at = np.searchsorted(delivers, acks) - 1
    return np.where((at >= 0) & (to.take(at) == of), delivers.take(at), -1)
