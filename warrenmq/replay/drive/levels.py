"""Levels that rise and fall with the rows of a trace: mail in a mailbox, senders that wait for credit or for an alarm.

    level    whose                      rises with        falls with
    MAIL     of a mailbox               a SEND to it      a receive that names its SEND: RECV, ACK, PUBLISH (of several)
    CREDIT   of an actor and its peer   CREDIT_BLOCKED    CREDIT_UNBLOCKED
    ALARM    of an actor                ALARM_BLOCKED     ALARM_UNBLOCKED

Each row changes one level by itself, so nothing has to be paired: a table of sums by slice of time is enough,
whatever the order in which the rows come and wherever they are added up.  Beside rises and falls it has the
time that the changes of a slice put under the level until the slice's end: what rises by 1 at t adds `end -
t`, what falls by 1 takes it away.  `spans` makes the course of a level of that.

Limits of the numbers:

- Mail without a SEND row, of timers, sockets and other senders that are not traced, never counts; nor do answers to calls, for which
  the caller waits and not his mailbox.
- A queue takes publishes in together, up to 64 at once, and only then writes the receive row: they count until then.
- Where the row of a rise is missing the fall shows it, and the level is at least the one given here.  Where the row of
  a fall is missing nothing shows it: `until` of `spans` should not lie behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from warrenmq.trace.catalog import Catalog
from warrenmq.trace.events import Ack, CreditBlocked, Ev, Publish, Recv, Send
from warrenmq.trace.schema import Row

SLICE_NS = 10_000_000
"""The finest slice."""
SLICES = 750
"""The most slices of all runs of a trace together: five for each of the 150 points that a report draws."""


def slice_of(catalog: Catalog) -> int:
    """Length of a slice in ns: long enough that a trace has few, and a round number, so that points of a plot
    are whole slices.
    """
    spans_: dict[int, tuple[int, int]] = {}
    for (run, _), coverage in catalog.coverage.items():
        if coverage.rows:
            first, last = spans_.get(run, (coverage.t_first, coverage.t_last))
            spans_[run] = min(first, coverage.t_first), max(last, coverage.t_last)
    length = sum(last - first for first, last in spans_.values())
    return round_up(length / SLICES)


def round_up(width: float) -> int:
    """The next of 10 ms, 20 ms, 50 ms, 100 ms, ... in ns."""
    step = SLICE_NS
    while step * 5 < width:
        step *= 10
    return next(step * factor for factor in (1, 2, 5) if step * factor >= width)


class Kind(IntEnum):
    """The three kinds of level."""

    MAIL = 1
    CREDIT = 2
    ALARM = 3


class LevelKey(NamedTuple):
    """One slice of one level."""

    kind: int
    run: int
    actor: int
    peer: int  # of CREDIT, else 0
    slice: int


Change = tuple[int, int, int]
"""Rises, falls, and the ns that they put under the level until the end of their slice."""
Levels = dict[LevelKey, Change]

RECEIVES = frozenset({Ev.RECV, Ev.ACK, Ev.PUBLISH})
RISES: dict[int, Kind] = {Ev.SEND: Kind.MAIL, Ev.CREDIT_BLOCKED: Kind.CREDIT, Ev.ALARM_BLOCKED: Kind.ALARM}
FALLS: dict[int, Kind] = {
    Ev.CREDIT_UNBLOCKED: Kind.CREDIT, Ev.ALARM_UNBLOCKED: Kind.ALARM, **dict.fromkeys(RECEIVES, Kind.MAIL),
}  # fmt: skip
CHANGING = frozenset(RISES) | frozenset(FALLS)
_MAIL, _CREDIT = int(Kind.MAIL), int(Kind.CREDIT)
_SEND, _PUBLISH = int(Ev.SEND), int(Ev.PUBLISH)
_sends = Publish.getter("send", "sends")
_SEND_OF = {int(event.number): event.getter("send") for event in (Recv, Ack)}
_receiver = Send.getter("receiver")
_granter = CreditBlocked.getter("granter")


def step(event: int, row: Row) -> tuple[int, int, int, int] | None:
    """The change of a level by a row of CHANGING: (kind, actor, peer, rise; negative = a fall), or None.

    | event                              |                         |                                            |
    | ---------------------------------- | ----------------------- | ------------------------------------------ |
    | SEND                               | names its receiver      | the receiver's mail rises by 1             |
    | SEND                               | does not                | nothing: no actor had that name            |
    | RECV, ACK, PUBLISH                 | names a SEND            | the actor's mail falls by 1                |
    | PUBLISH                            | names several           | the actor's mail falls by as many          |
    | RECV, ACK, PUBLISH                 | names none              | nothing: it is no receive, or its sender has no trace |
    | CREDIT_BLOCKED, CREDIT_UNBLOCKED   |                         | 1 more, or fewer, of the actor towards the granter |
    | ALARM_BLOCKED, ALARM_UNBLOCKED     |                         | 1 more, or fewer, of the actor             |
    """
    if event == _SEND:
        (receiver,) = _receiver(row)
        return (_MAIL, receiver, 0, 1) if receiver else None
    if event == _PUBLISH:
        send, sends = _sends(row)
        return (_MAIL, row.actor, 0, -max(sends, 1)) if send else None
    if event in RECEIVES:
        (send,) = _SEND_OF[event](row)
        return (_MAIL, row.actor, 0, -1) if send else None
    rises = event in RISES
    kind = RISES[event] if rises else FALLS[event]
    (granter,) = _granter(row) if kind == _CREDIT else (0,)
    return int(kind), row.actor, granter, 1 if rises else -1


class Span(NamedTuple):
    """Slices from `first` to before `end`, at whose ends the level was the same; `ns` is the time under it in all of them."""

    first: int
    end: int
    level: int
    ns: int


def spans(changes: Mapping[int, Change], until: int, slice_ns: int = SLICE_NS) -> Iterator[Span]:
    """The course of one level, from its changes by slice, up to the time `until`; where it is 0 all the time
    there is no span.
    """
    last = until // slice_ns
    high = lowest = 0  # rises less falls so far; a fall below 0 is of a rise without a row
    at = level = 0
    for slice_ in sorted(changes):
        if slice_ > last:
            break
        if level and at < slice_:
            yield Span(at, slice_, level, level * (slice_ - at) * slice_ns)
        rises, falls, ns = changes[slice_]
        ns += level * slice_ns
        high += rises - falls
        lowest = min(lowest, high)
        level, at = high - lowest, slice_ + 1
        if slice_ == last:
            ns -= level * (at * slice_ns - until)
        yield Span(slice_, at, level, max(ns, 0))
    if level and at <= last:
        yield Span(at, last + 1, level, level * (until - at * slice_ns))
