"""Machine of direct reads: D1.

Key: (run, msg >> 12).  A queue reads a body from a file of a store by itself, where the index says that it is (READ DIRECT).
The record is, or was, there: an APPEND, a REF_RECOVERED, a GC_MOVE or a COMPACT_MOVE of that message in that store told this place.

    READ DIRECT of a message            the stores of the run told of it
    file and offset                     a record at this place, before the read         fine
                                        no such record, or only later                   D1

An old place may still be read after the record was moved: whether that was too late is for S4 and S8.  A place is told before
the index has it, so its t is below that of any read there, though no message goes from the one to the other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from warrenmq.replay.drive.machines import JUDGED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.files import store_of_collector
from warrenmq.replay.rules.life import SHIFT
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import DIRECT, Ev
from warrenmq.trace.index import Row

READ = int(Ev.READ) << 8 | DIRECT
MOVES = frozenset({Ev.GC_MOVE, Ev.COMPACT_MOVE})
RECORDS = frozenset({Ev.APPEND, Ev.REF_RECOVERED}) | MOVES
WIDTH = 7
"""Numbers of an entry: (message, store, file, offset, reader or 0, seq, t)."""

Place = tuple[int, int, int, int]
"""(message, store, file, offset)"""


@dataclass(slots=True)
class Places:
    """Of 4,096 messages."""

    records: dict[Place, int] = field(default_factory=dict)
    """When each was told first: t."""
    reads: list[tuple[Place, int, int, int]] = field(default_factory=list)
    """(where, reader, seq, t)"""


class DirectReads(Machine):
    """See the module."""

    name: ClassVar[str] = "places"
    events: ClassVar[frozenset[int]] = RECORDS | {Ev.READ}

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, array[int]]]:
        found: dict[int, list[int]] = {}
        collector_of = store_of_collector(self.runs[piece.run], piece.actor)
        for t, seq, msg, peer, _, a, b, _, who in rows:
            event = who >> 8 & 0xFF
            if event in RECORDS:
                entry = (msg, collector_of if event in MOVES else piece.actor, a, b, 0, 0, t)
            elif who & 0xFFFF == READ and peer:
                entry = (msg, peer, a, b, piece.actor, seq, t)
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
        outcome.figures[JUDGED, "D1"] = len(state.reads)
        for place, reader, seq, t in state.reads:
            if state.records.get(place, t + 1) > t:
                msg, store, file, offset = place
                subject = f"message {msg & 0xFFFFFFFFFFFFFFFF:016x} in queue {context.name((run, reader))}"
                text = f"it was read at {offset} of file {file} of {context.name((run, store))}, where it was not"
                needs = ((run, reader), (run, store), *context.started_by((run, store)))
                outcome.findings.append(Finding("D1", subject, text, ((run, reader, seq),), t, needs, (msg,)))
        return outcome
