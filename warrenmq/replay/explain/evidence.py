"""Rows that explain a finding, asked for in rounds: whoever explains says what it wants, an engine looks once for all of it.

    known = Known()
    while True:
        chains = [chain(finding, known) for finding in findings]     # causes.py; asks known for rows
        if not (wants := known.unanswered()):
            break
        known.learn(wants, <pick(wants, ...) of every piece of the trace>)

`known` answers with what it has, and notes what it was asked and has not looked for.  A round is one pass over the pieces,
by either engine; a trace in which everything is as it should be is never passed over again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from warrenmq.replay.rules.passes.files import OF_SEVERAL, other_files
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import COVERS_SEQ_IDS as COVERS_IDS
from warrenmq.trace.events import Ev
from warrenmq.trace.index import Row
from warrenmq.trace.schema import EVENTS

_RECEIVES = frozenset({Ev.RECV, Ev.PUBLISH, Ev.ACK, Ev.UNDELIVERED})
STATE_ROWS = 5
"""Rows of a file that one piece gives, of each event: the last ones, for nobody looks at more."""


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
    """The last rows, up to t, of each event of a store or its collector that name a file in column a or b."""

    run: int
    store: int
    file: int
    t: int


Want = RowAt | OfId | OfMessage | Receives | Near | OfFile
Placed = tuple[int, Row]
"""(run, row)"""


@dataclass(slots=True)
class Known:
    """What has been looked for, and what has been asked meanwhile."""

    answers: dict[Want, list[Placed]] = field(default_factory=dict)
    _asked: set[Want] = field(default_factory=set)

    def rows(self, want: Want) -> list[Placed]:
        """In the order of runs and times; empty, too, before it has been looked for."""
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
        """What has been asked since the last time."""
        asked, self._asked = sorted(self._asked, key=repr), set()
        return asked

    def learn(self, wants: Sequence[Want], found: Iterable[tuple[int, int, Row]]) -> None:
        """Take in what `pick` found in all pieces: (number of the want, run, row)."""
        for want in wants:
            self.answers[want] = []
        for number, run, row in found:
            self.answers[wants[number]].append((run, row))
        for want in wants:
            self.answers[want].sort(key=lambda placed: (placed[0], placed[1][0], placed[1][1]))


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
    """True if a piece can hold what is wanted, as far as its outside tells."""
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
            return [row for row in rows if row[1] == seq]
        case OfId(_, _, id_):
            return [
                row for row in rows if row[8] >> 8 & 0xFF in COVERS_IDS and row[5] <= id_ < row[5] + row[6]
            ]
        case OfMessage(_, msg):
            return [row for row in rows if row[2] and row[2] <= msg < row[2] + _messages(row)]
        case Receives(_, sender, seq):
            return [row for row in rows if row[8] >> 8 & 0xFF in _RECEIVES and _receives(row, sender, seq)]
        case Near(_, _, event, t, after):
            if after:
                found = next((row for row in rows if row[0] > t and row[8] >> 8 & 0xFF == event), None)
            else:
                found = next(
                    (row for row in reversed(rows) if row[0] < t and row[8] >> 8 & 0xFF == event), None
                )
            return [] if found is None else [found]
        case OfFile(_, _, file, t):
            last: dict[int, list[Row]] = {}
            for row in rows:
                if row[0] <= t and speaks_of_file(row, file):
                    last.setdefault(row[8] >> 8 & 0xFF, []).append(row)
            return sorted((row for its in last.values() for row in its[-STATE_ROWS:]), key=itemgetter(0))


def _messages(row: Row) -> int:
    """How many messages a row speaks of."""
    event = row[8] >> 8 & 0xFF
    return max(row[6], 1) if event in COVERS_IDS or event == Ev.SEND else 1


def _receives(row: Row, sender: int, seq: int) -> bool:
    pseq, event = row[4], row[8] >> 8 & 0xFF
    count = max(row[7], 1) if event == Ev.PUBLISH else 1
    return (row[3] or row[8] >> 16) == sender and 0 < pseq <= seq < pseq + count


_NAME_IT = frozenset(
    number for number, event in EVENTS.items() if event.has("file") and event.column("file").place == "a"
)


def speaks_of_file(row: Row, file: int) -> bool:
    """True if a row of a store or its collector changes this file, or what is live in it."""
    return (
        row[5] == file
        if row[8] >> 8 & 0xFF in _NAME_IT
        else (row[8] >> 8 & 0xFF in OF_SEVERAL and file in other_files(row))
    )
