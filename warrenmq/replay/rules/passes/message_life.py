"""4,096 messages of a queue in one incarnation: the states that Q1 is about.

    state        PUBLISH, RECOVERED      DELIVER            ACK, DROP
      none ───────────────────► ready ─────────► unacked ──────────► gone
                                  ▲    (no_ack: straight to gone)      ▲
                                  └──── REQUEUE ───┘    DROP of a ready message

Any other step breaks Q1; so does a second delivery without the redelivered flag, and a first one with it of a message that
was published in this incarnation.  If such a one expires without an EXPIRY row, that breaks Q3.  A message costs some 34 bytes, in
arrays as long as the largest id met.

Array form: The steps of messages in a queue (life.py's table), for many messages at once.

Entries are rows of single messages.  Sorted by message, and as they came within each, an entry is fine if the state that it wants
is the state that the entry before it left; so no state is kept, and all messages are judged in one go.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from warrenmq.replay.drive.columns import Bools, Ints, Places, group_starts, np
from warrenmq.trace.events import (
    CONFIRM_DURABLE,
    DEAD_LETTERED,
    DROP_EXPIRED,
    DROP_LOST,
    DROP_MAXLEN,
    DROP_PURGED,
    DROP_REJECTED,
    IN_STORE,
    MULTIPLE,
    NO_ACK,
    PERSISTENT,
    REDELIVERED,
    RETURNED,
    WANTS_CONFIRM,
    Ev,
)

SHIFT = 12
SIZE = 1 << SHIFT

NONE, READY, UNACKED, GONE = range(4)
_STATES = ("not in the queue", "ready", "unacked", "gone")

# marks, bits
DURABLE, STORED, CONFIRMED, DELIVERED, RECOVERED, MORTAL, LOST = 1, 2, 4, 8, 16, 32, 64
"""MORTAL: it has a time to live.  LOST: it was to be delivered, and its body was damaged."""

PUBLISH, CONFIRM, DELIVER, ACK = int(Ev.PUBLISH), int(Ev.CONFIRM), int(Ev.DELIVER), int(Ev.ACK)
REQUEUE, DROP, RECOVER, EXPIRY = int(Ev.REQUEUE), int(Ev.DROP), int(Ev.RECOVERED), int(Ev.EXPIRY)

_STEPS: dict[int, tuple[int, int]] = {
    **{PUBLISH << 8 | flag: (NONE, READY) for flag in range(8)},
    **{DELIVER << 8 | flag: (READY, GONE if flag & NO_ACK else UNACKED) for flag in range(8)},
    **{ACK << 8 | flag: (UNACKED, GONE) for flag in (0, MULTIPLE)},
    **{REQUEUE << 8 | flag: (UNACKED, READY) for flag in (0, MULTIPLE, RETURNED)},
    DROP << 8 | DROP_REJECTED: (UNACKED, GONE),
    DROP << 8 | DROP_PURGED: (READY, GONE),
    DROP << 8 | DROP_LOST: (READY, GONE),
    DROP << 8 | DROP_EXPIRED: (READY, GONE),
    DROP << 8 | DROP_MAXLEN: (READY, GONE),
    DROP << 8 | DROP_REJECTED | DEAD_LETTERED: (UNACKED, GONE),
    DROP << 8 | DROP_EXPIRED | DEAD_LETTERED: (READY, GONE),
    DROP << 8 | DROP_MAXLEN | DEAD_LETTERED: (READY, GONE),
    RECOVER << 8: (NONE, READY),
}
"""event << 8 | flag -> (the state it wants, the state it leaves).  DROP_DELETED wants ready or unacked."""


def step_of(word: int) -> tuple[frozenset[int], int]:
    """By event << 8 | flag: the states that it may be taken from, and the one it leads to."""
    if word in _STEPS:
        wanted, becomes = _STEPS[word]
        return frozenset({wanted}), becomes
    return frozenset({READY, UNACKED}), GONE


def _table(change: Callable[[int], int]) -> bytes:
    return bytes(change(value) for value in range(256))


# bytes.translate tables: a step of a range of any length
_CONFIRM_IT = _table(lambda mark: mark | CONFIRMED)
_DELIVER_IT = _table(lambda mark: mark | DELIVERED)
_LIMIT_IT = _table(lambda mark: mark | MORTAL)
_LOSE_IT = _table(lambda mark: mark | LOST)
_UNDELIVERED = bytes(mark for mark in range(256) if not mark & DELIVERED)
_EXPIRED = frozenset({DROP << 8 | DROP_EXPIRED, DROP << 8 | DROP_EXPIRED | DEAD_LETTERED})
LOSES = DROP << 8 | DROP_LOST


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
    """Message numbers, as PUBLISH told them."""
    gone_at: array[int] = field(default_factory=_int64s)
    """seq of the row that made it gone"""
    problems: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    """(rule, text, sequence id, seq, t)"""
    counts: Counter[int] = field(default_factory=Counter)
    """Messages by event."""
    confirm_delays: array[int] = field(default_factory=_int64s)
    """From publish to confirm, ns."""
    deliver_delays: array[int] = field(default_factory=_int64s)
    """From publish to the first delivery."""
    ack_delays: array[int] = field(default_factory=_int64s)
    """From the last delivery to the ack."""
    unflagged: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Recovered, and delivered for the first time without the redelivered flag: place -> (seq, t) of the DELIVER."""

    def take(self, entries: list[int], base: int) -> None:
        """Rows, flat (event << 8 | flag, place, n, message of the first, seq, t); `base` is the id of place 0."""
        states, marks, published = self.states, self.marks, self.published
        steps, counts = _STEPS, self.counts
        numbers = iter(entries)
        for word, place, n, msg, seq, t in zip(*[numbers] * 6, strict=True):
            event = word >> 8
            end = place + n
            if end > len(states):
                self._grow(end)
            counts[event] += n
            if n > 1 or event == CONFIRM or (step := steps.get(word)) is None or states[place] != step[0]:
                self._take_range(word, place, end, msg, seq, t, base)
                continue
            # One message that may take this step: by far the commonest row.
            states[place] = step[1]
            if event == PUBLISH:
                marks[place] = (DURABLE if word & PERSISTENT else 0) | (STORED if word & IN_STORE else 0)
                published[place] = t
                self.messages[place] = msg
                continue
            if step[1] == GONE:
                self.gone_at[place] = seq
                if word in _EXPIRED:
                    self._expire(place, end, seq, t, base)
                elif word == LOSES:
                    marks[place] |= LOST
            if event == DELIVER:
                if marks[place] & DELIVERED:
                    self._deliver_again(word, place, end, seq, t, base)
                else:
                    if word & REDELIVERED:
                        self._deliver_first(place, end, seq, t, base)
                    elif marks[place] & RECOVERED:
                        self.unflagged[place] = seq, t
                    marks[place] |= DELIVERED
                    if published[place]:
                        self.deliver_delays.append(t - published[place])
                self.delivered[place] = t
            elif event == ACK:
                self.ack_delays.append(t - self.delivered[place])
            elif event == RECOVER:
                marks[place] = RECOVERED

    def _grow(self, size: int) -> None:
        more = min(max(size, 2 * len(self.states), 64), SIZE) - len(self.states)
        self.states += bytes(more)
        self.marks += bytes(more)
        for column in (self.published, self.delivered, self.messages, self.gone_at):
            column.frombytes(bytes(8 * more))

    def _take_range(self, word: int, place: int, end: int, msg: int, seq: int, t: int, base: int) -> None:
        event, flag, n = word >> 8, word & 0xFF, end - place
        if event == CONFIRM:
            if flag == CONFIRM_DURABLE:
                self.marks[place:end] = self.marks[place:end].translate(_CONFIRM_IT)
            self.confirm_delays.extend([t - since for since in self.published[place:end] if since])
            return
        if event == EXPIRY:
            self.marks[place:end] = self.marks[place:end].translate(_LIMIT_IT)
            return
        allowed, becomes = step_of(word)
        if sum(self.states.count(state, place, end) for state in allowed) != n:
            first = next(at for at in range(place, end) if self.states[at] not in allowed)
            self._complain(event, place, end, base + first, seq, t, base)
        self.states[place:end] = bytes((becomes,)) * n
        if becomes == GONE:
            self.gone_at[place:end] = array("q", (seq,)) * n
            if word in _EXPIRED:
                self._expire(place, end, seq, t, base)
            elif word == LOSES:
                self.marks[place:end] = self.marks[place:end].translate(_LOSE_IT)
        if event == PUBLISH:
            mark = (DURABLE if flag & PERSISTENT else 0) | (STORED if flag & IN_STORE else 0)
            self.marks[place:end] = bytes((mark,)) * n
            self.published[place:end] = array("q", (t,)) * n
            self.messages[place:end] = array("q", range(msg, msg + n))
        elif event == DELIVER:
            marks = self.marks[place:end]
            if flag & REDELIVERED:
                self._deliver_first(place, end, seq, t, base)
            else:
                self.unflagged |= {
                    place + at: (seq, t)
                    for at, mark in enumerate(marks)
                    if mark & (RECOVERED | DELIVERED) == RECOVERED
                }
            if marks.translate(None, _UNDELIVERED):
                self._deliver_again(word, place, end, seq, t, base)
            else:
                self.deliver_delays.extend([t - since for since in self.published[place:end] if since])
            self.marks[place:end] = marks.translate(_DELIVER_IT)
            self.delivered[place:end] = array("q", (t,)) * n
        elif event == ACK:
            self.ack_delays.extend([t - since for since in self.delivered[place:end] if since])
        elif event == RECOVER:
            self.marks[place:end] = bytes((RECOVERED,)) * n

    def _deliver_again(self, word: int, place: int, end: int, seq: int, t: int, base: int) -> None:
        if not word & REDELIVERED:
            again = next(at for at in range(place, end) if self.marks[at] & DELIVERED)
            self.problems.append(
                ("Q1", f"delivered {base + again} again without the redelivered flag", base + again, seq, t)
            )

    def _deliver_first(self, place: int, end: int, seq: int, t: int, base: int) -> None:
        """Flagged as redelivered: fine for what an earlier incarnation may have delivered."""
        new = next(
            (at for at in range(place, end) if self.published[at] and not self.marks[at] & DELIVERED), None
        )
        if new is not None:
            text = f"delivered {base + new} for the first time with the redelivered flag"
            self.problems.append(("Q1", text, base + new, seq, t))

    def _expire(self, place: int, end: int, seq: int, t: int, base: int) -> None:
        """Dropped as expired: what was published here must have been given a time to live."""
        immortal = next(
            (at for at in range(place, end) if self.published[at] and not self.marks[at] & MORTAL), None
        )
        if immortal is not None:
            text = f"{base + immortal} expired, which has no time to live"
            self.problems.append(("Q3", text, base + immortal, seq, t))

    def _complain(self, event: int, place: int, end: int, first: int, seq: int, t: int, base: int) -> None:
        found = sorted({_STATES[state] for state in self.states[place:end]})
        ids = f"{base + place}" if end - place == 1 else f"{base + place} to {base + end - 1}"
        self.problems.append(("Q1", f"{Ev(event).name} of {ids}: {' and '.join(found)}", first, seq, t))


WIDTH = 6
ACTOR, ID, WORD, MSG, SEQ, T = range(WIDTH)
"""The columns of entries."""

_NOT_A_STEP = -1
_EVENTS = (Ev.PUBLISH, Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP, Ev.RECOVERED)


@cache
def _tables() -> tuple[Ints, Ints]:
    """By event << 8 | flag: the states it may be taken from, as bits; the state it leads to."""
    wants = np.zeros(1 << 16, np.int64)
    leaves = np.full(1 << 16, _NOT_A_STEP, np.int64)
    for event in _EVENTS:
        for flag in range(256):
            wanted, becomes = step_of(event << 8 | flag)
            wants[event << 8 | flag] = sum(1 << state for state in wanted)
            leaves[event << 8 | flag] = becomes
    return wants, leaves


@dataclass(frozen=True, slots=True)
class Walked:
    """What the entries of many messages came to; the lists have one value a message."""

    entries: Ints
    """Sorted by message."""
    starts: Places
    sizes: Places
    """Where each message's entries begin, and how many there are."""
    fine: Bools
    """From PUBLISH or RECOVERED on, every step is as it should be, and it was not lost."""
    state: Ints
    """The last."""
    confirmed: Bools
    """Or nobody waits for a confirm."""
    begins: Places
    """The entry (place in `entries`) that it began with."""
    confirm: Places
    delivery: Places
    """Its CONFIRM, its first DELIVER; -1 = there is none."""
    acks: Places
    """ACK entries, of whichever message."""
    last_delivery: Places
    """For each of `acks`, the DELIVER before it."""


def walk(entries: Ints, code: Ints) -> Walked:
    """Entries, of each message in the order of its rows; `code` is equal for equal messages."""
    order = np.argsort(code, kind="stable")
    entries, code = entries[order], code[order]
    starts = group_starts(code)
    sizes = np.diff(np.append(starts, len(code)))
    owner = np.repeat(np.arange(len(starts)), sizes)
    word = entries[:, WORD]
    event = word >> 8
    wants, becomes = _tables()
    leaves = becomes[word]

    steps = np.flatnonzero(leaves != _NOT_A_STEP)
    whose = owner[steps]
    is_first = np.ones(len(steps), np.bool_)
    is_first[1:] = whose[1:] != whose[:-1]
    before = np.empty(len(steps), np.int64)
    before[1:] = leaves[steps[:-1]]
    before[is_first] = NONE
    right = (wants[word[steps]] >> before) & 1 == 1
    fine = np.bincount(whose[~right], minlength=len(starts)) == 0
    begins = _first_of(steps[is_first], whose[is_first], len(starts))
    fine &= begins >= 0
    state = np.full(len(starts), NONE, np.int64)
    is_last = np.ones(len(steps), np.bool_)
    is_last[:-1] = is_first[1:]
    state[whose[is_last]] = leaves[steps[is_last]]

    delivers = np.flatnonzero(event == DELIVER)
    again = np.zeros(len(delivers), np.bool_)
    again[1:] = owner[delivers[1:]] == owner[delivers[:-1]]
    delivery = _first_of(delivers[~again], owner[delivers[~again]], len(starts))
    flagged = word[delivers] & REDELIVERED != 0
    was_published = event[begins] == PUBLISH
    wrong = np.where(again, ~flagged, flagged & was_published[owner[delivers]])
    fine &= np.bincount(owner[delivers[wrong]], minlength=len(starts)) == 0

    confirms = np.flatnonzero(event == CONFIRM)
    confirm = _first_of(confirms, owner[confirms], len(starts))
    fine &= np.bincount(owner[confirms], minlength=len(starts)) <= 1
    fine &= (confirm < 0) | (was_published & (confirm > begins))
    fine &= _may_expire(word, owner, begins, was_published)
    fine[owner[word == LOSES]] = False  # whether it was confirmed, earlier lives may have to say

    acks = np.flatnonzero(event == Ev.ACK)
    if len(delivers) and len(acks):
        at = np.searchsorted(delivers, acks) - 1
        last_delivery = np.where((at >= 0) & (owner[delivers[at]] == owner[acks]), delivers[at], -1)
    else:
        last_delivery = np.full(len(acks), -1, np.intp)
    waits = was_published & (word[begins] & WANTS_CONFIRM != 0) & (confirm < 0)
    return Walked(entries, starts, sizes, fine, state, ~waits, begins, confirm, delivery, acks, last_delivery)


def _first_of(places: Places, owners: Places, messages: int) -> Places:
    """For each message the first of these places that is its own; -1 = none."""
    found = np.full(messages, -1, np.intp)
    found[owners[::-1]] = places[::-1]
    return found


def _may_expire(word: Ints, owner: Places, begins: Places, was_published: Bools) -> Bools:
    """False for a message that was published, and dropped as expired without an EXPIRY between the two."""
    fine = np.ones(len(begins), np.bool_)
    expired = np.flatnonzero((word >> 8 == Ev.DROP) & (word & 0xFF & ~DEAD_LETTERED == DROP_EXPIRED))
    if not len(expired):
        return fine
    limits = np.flatnonzero(word >> 8 == EXPIRY)
    limit = _first_of(limits, owner[limits], len(begins))
    whose = owner[expired]
    lasts = (limit[whose] > begins[whose]) & (limit[whose] < expired)
    fine[whose[~lasts & was_published[whose]]] = False
    return fine
