"""The steps of messages in a queue (life.py's table), for many messages at once.

Entries are rows of single messages.  Sorted by message, and as they came within each, an entry is fine if the state that it wants
is the state that the entry before it left; so no state is kept, and all messages are judged in one go.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warrenmq.replay.drive.columns import Bools, Ints, Places, group_starts
from warrenmq.replay.rules.life import CONFIRM, DELIVER, EXPIRY, LOSES, NONE, PUBLISH, step_of
from warrenmq.trace.events import DEAD_LETTERED, DROP_EXPIRED, REDELIVERED, WANTS_CONFIRM, Ev

WIDTH = 6
ACTOR, ID, WORD, MSG, SEQ, T = range(WIDTH)
"""The columns of entries."""

_NOT_A_STEP = -1
_EVENTS = (Ev.PUBLISH, Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP, Ev.RECOVERED)


def _tables() -> tuple[Ints, Ints]:
    wants = np.zeros(1 << 16, np.int64)
    leaves = np.full(1 << 16, _NOT_A_STEP, np.int64)
    for event in _EVENTS:
        for flag in range(256):
            wanted, becomes = step_of(event << 8 | flag)
            wants[event << 8 | flag] = sum(1 << state for state in wanted)
            leaves[event << 8 | flag] = becomes
    return wants, leaves


_WANTS, _LEAVES = _tables()
"""event << 8 | flag -> the states it may be taken from, as bits; the state it leads to."""


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
    leaves = _LEAVES[word]

    steps = np.flatnonzero(leaves != _NOT_A_STEP)
    whose = owner[steps]
    is_first = np.ones(len(steps), np.bool_)
    is_first[1:] = whose[1:] != whose[:-1]
    before = np.empty(len(steps), np.int64)
    before[1:] = leaves[steps[:-1]]
    before[is_first] = NONE
    right = (_WANTS[word[steps]] >> before) & 1 == 1
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
