"""The rows that explain findings: chains note which rows they need, and one pass over the trace finds all of them.

    known = Known()
    while True:
        chains = [chain(finding, known) for finding in findings]     # causes.py; asks known for rows
        if not (wants := known.unanswered()):
            break
        known.learn(wants, <pick(wants, ...) of every piece of the trace>)

`known` answers with what was found, and notes what was asked and not yet looked for.  Each round is one pass over the pieces,
by either engine; a trace without violations is not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from warrenmq.replay.rules.passes.files import OF_SEVERAL, other_files
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import message_ids_of, sends_of, seq_ids_of
from warrenmq.trace.schema import EVENTS, Row

STATE_ROWS = 5
"""Rows of a file that one piece gives, of each event: the last ones, as no chain shows more."""


class RowAt(NamedTuple):
    """The row of this number."""

    run: int
    actor: int
    seq: int


class OfId(NamedTuple):
    """Rows of a queue, in all its incarnations, that speak of a sequence id."""

    scope: str
    queue: str
    id: int


class OfMessage(NamedTuple):
    """Rows that name a message."""

    scope: str
    msg: int


class Receives(NamedTuple):
    """Rows that name a SEND as theirs."""

    run: int
    sender: int
    seq: int


class Near(NamedTuple):
    """An actor's first row of an event after t, or its last one before."""

    run: int
    actor: int
    event: int
    t: int
    after: bool


class OfFile(NamedTuple):
    """The last rows, up to t, of each event of a store or its collector that are about a file."""

    run: int
    store: int
    file: int
    t: int


Want = RowAt | OfId | OfMessage | Receives | Near | OfFile


class Placed(NamedTuple):
    """A row and the run that it is of."""

    run: int
    row: Row


def in_order(placed: Placed) -> tuple[int, int, int, int]:
    """The key that sorts rows by runs and times."""
    return placed.run, placed.row.t, placed.row.actor, placed.row.seq


@dataclass(slots=True)
class Known:
    """The rows found so far, and the wants noted since."""

    answers: dict[Want, list[Placed]] = field(default_factory=dict)
    _asked: set[Want] = field(default_factory=set)

    def rows(self, want: Want) -> list[Placed]:
        """The rows found, in the order of runs and times; none before the first search for them."""
        if want not in self.answers:
            self._asked.add(want)
        return self.answers.get(want, [])

    def row(self, want: RowAt | Near) -> Placed | None:
        """The one row, if it is there."""
        found = self.rows(want)
        if not found:
            return None
        return found[0] if isinstance(want, RowAt) or want.after else found[-1]

    def unanswered(self) -> list[Want]:
        """The wants noted since the last call."""
        asked, self._asked = sorted(self._asked, key=repr), set()
        return asked

    def learn(self, wants: Sequence[Want], found: Iterable[tuple[int, int, Row]]) -> None:
        """Take in what `pick` found in all pieces: (number of the want, run, row)."""
        for want in wants:
            self.answers[want] = []
        for number, run, row in found:
            self.answers[wants[number]].append(Placed(run, row))
        for want in wants:
            self.answers[want].sort(key=in_order)


def pick(
    wants: Sequence[Want], runs: Sequence[Run], piece: Chunk, unpack: Callable[[], Sequence[Row]]
) -> Iterator[tuple[int, int, Row]]:
    """The rows of one piece that are wanted: (number of the want, run, row).  Unpacked only if it can hold any."""
    mine = [(number, want) for number, want in enumerate(wants) if _speaks_to(want, runs, piece)]
    if mine:
        rows = unpack()
        for number, want in mine:
            for row in _pick(want, rows):
                yield number, piece.run, row


def _speaks_to(want: Want, runs: Sequence[Run], piece: Chunk) -> bool:
    """True if the head of a piece does not rule out wanted rows."""
    match want:
        case RowAt(run, actor, seq):
            return (piece.run, piece.actor) == (run, actor) and piece.seq_first <= seq < piece.seq_end
        case Near(run, actor, _, t, after):
            return (piece.run, piece.actor) == (run, actor) and (
                piece.t_last > t if after else piece.t_first < t
            )
        case OfId(scope, queue, _):
            return runs[piece.run].scope == scope and runs[piece.run].actor_name(piece.actor) == queue
        case OfMessage(scope, _):
            return runs[piece.run].scope == scope
        case OfFile(run, store, _, t):
            entry = runs[piece.run].actors.get(piece.actor)
            its = piece.actor == store or (entry is not None and entry.parent == store)
            return piece.run == run and its and piece.t_first <= t
        case Receives(run, _, _):
            return piece.run == run
    return True


def _pick(want: Want, rows: Sequence[Row]) -> Iterable[Row]:
    match want:
        case RowAt(_, _, seq):
            return [row for row in rows if row.seq == seq]
        case OfId(_, _, id_):
            return [row for row in rows if id_ in seq_ids_of(row)]
        case OfMessage(_, msg):
            return [row for row in rows if msg in message_ids_of(row)]
        case Receives(_, sender, seq):
            return [row for row in rows if _receives(row, sender, seq)]
        case Near(_, _, event, t, after):
            if after:
                found = next((row for row in rows if row.t > t and row.event == event), None)
            else:
                found = next((row for row in reversed(rows) if row.t < t and row.event == event), None)
            return [] if found is None else [found]
        case OfFile(_, _, file, t):
            last: dict[int, list[Row]] = {}
            for row in rows:
                if row.t <= t and speaks_of_file(row, file):
                    last.setdefault(row.event, []).append(row)
            # one more than a chain shows: the row that broke the rule is among them, and is not shown twice
            return sorted(
                (row for its in last.values() for row in its[-STATE_ROWS - 1 :]), key=attrgetter("t")
            )


def _receives(row: Row, sender: int, seq: int) -> bool:
    its_sender, sends = sends_of(row)
    return its_sender == sender and seq in sends


_FILE_OF = {
    number: event.getter("file")
    for number, event in EVENTS.items()
    if event.has("file") and number not in OF_SEVERAL
}


def speaks_of_file(row: Row, file: int) -> bool:
    """True if a row of a store or its collector changes this file, or what is live in it."""
    if row.event in OF_SEVERAL:
        return file in other_files(row)
    get = _FILE_OF.get(row.event)
    return get is not None and get(row) == (file,)
