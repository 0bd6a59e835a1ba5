"""Precheck of messages between actors (mail.py): a SEND and its one receive, wherever they are, cancel each other.

Open rows are the sends that nobody received (seq, t, receiver) and the receives without a send (seq of the SEND, t,
actor, 1 = UNDELIVERED), flat.  At the end sends may be left, they lie in mailboxes; receives may not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from warrenmq.replay.drive.columns import (
    Bools,
    Ints,
    Rows,
    Unit,
    codes,
    doubles,
    expand,
    groups,
    look_up,
    touches,
)
from warrenmq.replay.drive.machines import Key, Machine, Outcome
from warrenmq.replay.drive.precheck import NEEDS_FULL_CHECK, OpenRows, Precheck
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.mail import SHIFT, Mail
from warrenmq.trace.events import Ev

_RECEIVES = frozenset({Ev.RECV, Ev.ACK, Ev.UNDELIVERED})


class MailPrecheck(Precheck):
    """See the module."""

    machine: ClassVar[type[Machine]] = Mail

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        sent = unit.of(frozenset({Ev.SEND}))
        took = unit.of(_RECEIVES)
        took = took.where(took.pseq > 0)
        published = unit.of(frozenset({Ev.PUBLISH}))
        published = published.where(published.pseq > 0)
        row, send = expand(published.pseq, np.maximum(published.c, 1))
        sender = np.concatenate((np.where(took.peer != 0, took.peer, took.actor), published.peer[row]))
        pseq = np.concatenate((took.pseq, send))
        receives = np.stack((
            pseq,
            np.concatenate((took.t, published.t[row])),
            np.concatenate((took.actor, published.actor[row])),
            np.concatenate(((took.event == Ev.UNDELIVERED).astype(np.int64), np.zeros(len(row), np.int64))),
        ), axis=1)  # fmt: skip
        sends = np.stack((sent.seq, sent.t, sent.peer), axis=1)
        send_codes, receive_codes = codes((sent.actor, sender), (sent.seq, pseq))
        open_sends, open_receives, wrong = _meet(sends, send_codes, receives, receive_codes)
        unproven = np.unique(np.stack((sender[wrong], pseq[wrong] >> SHIFT), axis=1), axis=0)
        left = _by_bucket(
            sent.actor[open_sends], sends[open_sends], sender[open_receives], receives[open_receives]
        )
        for each in unproven.tolist():
            left[each[0], each[1]] = NEEDS_FULL_CHECK
        for (whose, bucket), rows_left in left.items():
            yield (unit.run, whose, bucket), rows_left

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        found = np.zeros(len(rows), np.bool_)
        sends = rows.event == Ev.SEND
        mine = sends | ((rows.peer == 0) & (rows.event != Ev.PUBLISH))
        sender = np.where(mine, rows.actor, rows.peer)
        first = np.where(sends, rows.seq, rows.pseq)
        last = first + np.where(rows.event == Ev.PUBLISH, np.maximum(rows.c, 1), 1) - 1
        buckets: dict[int, list[int]] = {}
        for of_run, whose, bucket in keys:
            if of_run == run:
                buckets.setdefault(int(whose), []).append(int(bucket))
        for whose, its in buckets.items():
            found |= (sender == whose) & touches(first >> SHIFT, last >> SHIFT, np.sort(np.array(its)))
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        sends = np.concatenate([each[0].reshape(-1, 3) for each in open_rows])
        receives = np.concatenate([each[1].reshape(-1, 4) for each in open_rows])
        sends = sends[np.argsort(sends[:, 0], kind="stable")]
        open_sends, open_receives, wrong = _meet(sends, sends[:, 0], receives, receives[:, 0])
        if wrong.any() or open_receives.any() or doubles(sends[:, 0]).any():
            return None
        outcome = Outcome()
        outcome.figures["messages between actors", "in flight at the end"] = int(open_sends.sum())
        return outcome


def _meet(sends: Ints, send_codes: Ints, receives: Ints, receive_codes: Ints) -> tuple[Bools, Bools, Bools]:
    """Sends, by rising codes, and receives: which sends and which receives are open, which receives are not as they should be."""
    order = np.argsort(receive_codes, kind="stable")
    twice = np.empty(len(order), np.bool_)
    twice[order] = doubles(receive_codes[order])
    at, found = look_up(send_codes, receive_codes)
    if not len(sends):
        return np.zeros(0, np.bool_), ~found, twice
    meets = sends[at]
    right = (meets[:, 1] < receives[:, 1]) & (
        (meets[:, 2] == receives[:, 2]) | (meets[:, 2] == 0) | (receives[:, 3] == 1)
    )
    wrong = twice | (found & ~right)
    open_sends = np.ones(len(sends), np.bool_)
    open_sends[at[found]] = False
    return open_sends, ~found, wrong


def _by_bucket(actors: Ints, sends: Ints, senders: Ints, receives: Ints) -> dict[tuple[int, int], OpenRows]:
    nothing = np.zeros(0, np.int64)
    found: dict[tuple[int, int], OpenRows] = {}
    for who, bucket, rows in _split(actors, sends):
        found[who, bucket] = (rows.reshape(-1), nothing)
    for who, bucket, rows in _split(senders, receives):
        found[who, bucket] = (found.get((who, bucket), (nothing,))[0], rows.reshape(-1))
    return found


def _split(actors: Ints, rows: Ints) -> Iterator[tuple[int, int, Ints]]:
    (code,) = codes((actors,), (rows[:, 0] >> SHIFT,))
    order = np.argsort(code, kind="stable")
    for _, where in groups(code[order]):
        its = order[where]
        yield int(actors[its[0]]), int(rows[its[0], 0] >> SHIFT), rows[its]
