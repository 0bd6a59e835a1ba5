"""D1: a queue that reads a body by itself finds its record.

Key: (run, msg >> 12).  A queue reads a body from a file of a store by itself, where the index says that it is
(READ DIRECT).  The record is, or was, there: an APPEND, a REF_RECOVERED, a GC_MOVE or a COMPACT_MOVE of that
message in that store reported this place.

    READ DIRECT of a message            the stores of the run reported of it
    file and offset                     a record at this place, before the read         fine
                                        no such record, or only later                   D1

An old place may still be read after the record was moved: whether that was too late is for S4 and S8.  A
place is reported before the index has it, so its t is below that of any read there, though no message goes
from the one to the other.

Array form: each read is at a place that a row of the store or its collector names.

Open rows are the records (message, store, file, offset, t), each once, and the reads that have not met theirs
in the unit, flat; and how many reads there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, np, parts_of
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome, message_name
from warrenmq.replay.drive.precheck import OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Link, Story, event_of, links_of
from warrenmq.replay.rules.passes.files import store_of_collector
from warrenmq.replay.rules.passes.message_life import SHIFT
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import DIRECT, Ev, Read
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T, also_called

READ = int(Ev.READ) << 8 | DIRECT
MOVES = frozenset({Ev.GC_MOVE, Ev.COMPACT_MOVE})
RECORDS = frozenset({Ev.APPEND, Ev.REF_RECOVERED}) | MOVES


class _Place(Shared[T], of=RECORDS | {Ev.READ}):
    message: T
    file: T
    offset: T = also_called("new_offset")


_place = _Place.getter("t", "seq", "message", "file", "offset")
_store_of = Read.getter("store")
WIDTH = 7
"""Numbers of an entry: (message, store, file, offset, reader or 0, seq, t)."""

Place = tuple[int, int, int, int]
"""(message, store, file, offset)"""


@dataclass(slots=True)
class Places:
    """The places of 4,096 messages."""

    records: dict[Place, int] = field(default_factory=dict)
    """t of the first row that says so."""
    reads: list[tuple[Place, int, int, int]] = field(default_factory=list)
    """(where, reader, seq, t)"""


class DirectReads(Machine):
    """Compares the places of direct reads with those of records."""

    name: ClassVar[str] = "places"
    events: ClassVar[frozenset[int]] = RECORDS | {Ev.READ}

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, array[int]]]:
        found: dict[int, list[int]] = {}
        collector_of = store_of_collector(self.runs[piece.run], piece.actor)
        for row in rows:
            t, seq, msg, file, offset = _place(row)
            event = row.who >> 8 & 0xFF
            if event in RECORDS:
                entry = (msg, collector_of if event in MOVES else piece.actor, file, offset, 0, 0, t)
            elif row.who & 0xFFFF == READ and (store := _store_of(row)[0]):
                entry = (msg, store, file, offset, piece.actor, seq, t)
            else:
                continue
            found.setdefault(msg >> SHIFT, []).extend(entry)
        for bucket, entries in found.items():
            yield (piece.run, bucket), array("q", entries)

    def start(self, key: Key) -> Places:
        return Places()

    def absorb(self, state: Places, summary: array[int]) -> None:
        numbers = iter(summary)
        for msg, store, file, offset, reader, seq, t in zip(*[numbers] * WIDTH, strict=True):
            if reader:
                state.reads.append(((msg, store, file, offset), reader, seq, t))
            else:
                place = msg, store, file, offset
                state.records[place] = min(state.records.get(place, t), t)

    def finish(self, key: Key, state: Places, context: TraceContext) -> Outcome:
        run = int(key[0])
        outcome = Outcome()
        outcome.figures[EXERCISED, "D1"] = len(state.reads)
        for place, reader, seq, t in state.reads:
            if state.records.get(place, t + 1) > t:
                msg, store, file, offset = place
                subject = f"{message_name(msg)} in queue {context.name((run, reader))}"
                text = f"it was read at {offset} of file {file} of {context.name((run, store))}, where it was not"
                needs = ((run, reader), (run, store), *context.collectors_of((run, store)))
                outcome.findings.append(Finding("D1", subject, text, ((run, reader, seq),), t, needs, (msg,)))
        return outcome


_WIDTH = 5
_T = 4


class PlacesPrecheck(Precheck):
    """The array form of the rule; see the module."""

    machine: ClassVar[type[Machine]] = DirectReads

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        rows = unit.of(DirectReads.events)
        is_read = (rows.who & 0xFFFF == READ) & (Read.of(rows).store != 0)
        is_record, is_move = map(rows.are, (RECORDS, MOVES))
        store = rows.actor.copy()
        for actor in np.unique(rows.actor[is_move]).tolist():
            store[(rows.actor == actor) & is_move] = store_of_collector(self.runs[unit.run], actor)
        store[is_read] = Read.of(rows).store[is_read]
        place = _Place.of(rows)
        places = np.stack((place.message, store, place.file, place.offset, rows.t), axis=1)
        records, reads = _firsts(places[is_record]), places[is_read]
        tables = (records, reads[~_are_in(reads, records)], reads)
        for bucket, (its, lost, asked) in parts_of(*((each[:, 0] >> SHIFT, each) for each in tables)):
            yield (unit.run, bucket), (its, lost, np.array([len(asked) // _WIDTH], np.int64))

    def second_part(self, rows: Rows) -> Ints:
        return _Place.of(rows).message >> SHIFT

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        records, reads = joined(open_rows, _WIDTH, _WIDTH)
        if not np.all(_are_in(reads, records)):
            return None
        outcome = Outcome()
        outcome.figures[EXERCISED, "D1"] = sum(int(each[2][0]) for each in open_rows)
        return outcome


def _firsts(places: Ints) -> Ints:
    """Each place once, with its lowest t."""
    places = places[np.lexsort((places[:, _T], *places[:, :_T].T))]
    begins = np.ones(len(places), np.bool_)
    begins[1:] = np.any(np.diff(places[:, :_T], axis=0) != 0, axis=1)
    return places[begins]


def _are_in(wanted: Ints, known: Ints) -> Bools:
    """True for each place of one table that is in the other, with a t that is not above its own."""
    if not len(wanted):
        return np.zeros(0, np.bool_)
    both = np.concatenate((known, wanted))
    of_wanted = np.repeat([0, 1], [len(known), len(wanted)])
    order = np.lexsort((of_wanted, both[:, _T], *both[:, :_T].T))
    of_wanted = of_wanted[order]
    begins = np.ones(len(both), np.bool_)
    begins[1:] = np.any(np.diff(both[order, :_T], axis=0) != 0, axis=1)
    # within a place the first entry decides: what is known first is known to all that follow
    starts = np.flatnonzero(begins)
    reported_first = of_wanted[starts][np.cumsum(begins) - 1] == 0
    found = np.zeros(len(both), np.bool_)
    found[order] = reported_first
    return found[len(known) :]


def _places_of(story: Story) -> Chain:
    """Explains a finding by the places of the message's record."""
    places = {Ev.APPEND, Ev.REF_RECOVERED, Ev.GC_MOVE, Ev.COMPACT_MOVE, Ev.STORE_REMOVE}
    rows = [
        placed
        for placed in story.of_message(story.finding.about[0])
        if event_of(placed) in places and placed.run == story.run
    ]
    return links_of(rows[-4:]) or [Link(story.run, None, "APPEND: no store had a record of this message")]


_SQL = """
SELECT r.run, r.actor, r.seq FROM read_rows AS r
WHERE r.source = 2 AND r.store <> 0 AND NOT EXISTS (
    SELECT 1 FROM (
        SELECT run, actor AS store, t, message, file, `offset` AS place FROM append_rows
        UNION ALL SELECT run, actor, t, message, file, `offset` FROM ref_recovered_rows
        UNION ALL SELECT m.run, c.parent, m.t, m.message, m.file, m.`offset`
                  FROM gc_move_rows AS m JOIN actors AS c ON c.run = m.run AND c.actor = m.actor
        UNION ALL SELECT m.run, c.parent, m.t, m.message, m.file, m.new_offset
                  FROM compact_move_rows AS m JOIN actors AS c ON c.run = m.run AND c.actor = m.actor) AS known
    WHERE known.run = r.run AND known.store = r.store AND known.message = r.message AND known.file = r.file
      AND known.place = r.`offset` AND known.t <= r.t)
"""

RULE = Rule(
    id="D1",
    name="direct reads find their record",
    text=(
        "A body that a queue reads by itself is read where its store, or that store's collector, had "
        "reported its record."
    ),
    sources=(
        "docs/reference/message-store.md#read-to-312",
        "docs/reference/message-store.md#read-from-313",
        "docs/reference/message-store.md#i8",
    ),
    exercised=Exercised("a direct read"),
    machines=(DirectReads,),
    sql=_SQL,
    explain=_places_of,
)
