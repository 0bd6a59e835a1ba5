"""The public rows of a trace, with names, as Arrow batches.

    run, actor, kind, ev, flag, t, seq, msg, peer, pseq, a, b, c      what one reads and queries
    actor_id, parent_id, peer_id, ev_id, flag_id                      the numbers behind the names
    actor_rows                                                        how many rows the actor wrote, where that is known
    run_actors                                                        how many actors wrote rows in the run, where that is known
    epoch                                                             the wall clock when t was 0, ns since 1970
    directory, vhost                                                  whose run it is: the data directory's id, the virtual host

`actor_rows` and `run_actors` are what makes a filtered or stored DataFrame safe to check: if fewer rows of an
actor are there, or fewer actors of a run, what is missing counts as missing, and rules that need it do not
convict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from warrenmq.replay.spark.only import Only
from warrenmq.trace.block import Stored, decode_into
from warrenmq.trace.catalog import Catalog, Chunk, Run
from warrenmq.trace.events import OF_CONSUMERS
from warrenmq.trace.schema import COLUMNS as STORED
from warrenmq.trace.schema import CONSUMER
from warrenmq.trace.sentences import flag_names

BATCH_ROWS = 65_536
PART_PIECES = 512
"""Pieces in one partition: half a million rows."""

Piece = tuple[Chunk, Stored]
"""Consecutive rows of one actor: where they are from, and as they stand in their file."""

_STRINGS = ("run", "actor", "kind", "ev", "flag", "peer", "directory", "vhost")
COLUMNS = ("run", "actor", "kind", "ev", "flag", "t", "seq", "msg", "peer", "pseq", "a", "b", "c", "actor_id", "parent_id",
           "peer_id", "ev_id", "flag_id", "actor_rows", "run_actors", "epoch", "directory", "vhost")  # fmt: skip
TYPES = {name: "string" if name in _STRINGS else "long" for name in COLUMNS}
DDL = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
SCHEMA = pa.schema([(name, pa.string() if name in _STRINGS else pa.int64()) for name in COLUMNS])

_FROM = {"run": (), "run_actors": (), "epoch": (), "directory": (), "vhost": (), "t": ("t",), "seq": ("seq",), "msg": ("msg",), "peer": ("peer", "who"), "peer_id": ("peer",),
         "pseq": ("pseq",), "a": ("a",), "b": ("b",), "c": ("c",)}  # fmt: skip
"""The stored columns that each column is made of; those that are not here are made of `who`."""


def stored_columns(columns: Collection[str]) -> frozenset[str]:
    """The columns of a trace file that these are made of."""
    return frozenset(stored for name in columns for stored in _FROM.get(name, ("who",)))


@dataclass(frozen=True)
class Names:
    """The names for the rows of a run; small, goes to the workers by value."""

    run: Run
    rows: dict[int, int]
    """Actor -> how many rows it wrote, where that is known."""
    actors: int | None = None
    """The number of actors that wrote rows; None = not known."""


def names_of(catalog: Catalog) -> list[Names]:
    """The Names of each run."""
    known: list[dict[int, int]] = [{} for _ in catalog.runs]
    actors: Counter[int] = Counter()
    for (run, actor), coverage in catalog.coverage.items():
        actors[run] += coverage.rows > 0 or not coverage.complete
        if coverage.end_known:
            known[run][actor] = coverage.last_seq
    return [
        Names(run, rows, None if run.has_strangers else actors[number])
        for number, (run, rows) in enumerate(zip(catalog.runs, known, strict=True))
    ]


class Naming:
    """Names as Arrow arrays in which numbers are looked up."""

    def __init__(self, names: Names) -> None:
        run = names.run
        ids = range(max(run.actors, default=0) + 1)
        entries = [run.actors.get(actor) for actor in ids]
        flags = flag_names(run.kinds)
        self._run = pa.scalar(run.name)
        self._actors = pa.scalar(names.actors, pa.int64())
        self._directory, self._vhost = pa.scalar(run.directory), pa.scalar(run.vhost)
        self._epoch = pa.scalar(run.wall_ns - run.mono_ns, pa.int64())
        self._names = pa.array([entry.name if entry else None for entry in entries], pa.string())
        self._kinds = pa.array([entry.kind if entry else None for entry in entries], pa.string())
        self._parents = pa.array([entry.parent if entry else None for entry in entries], pa.int64())
        self._rows = pa.array([names.rows.get(actor) for actor in ids], pa.int64())
        self._events = pa.array([run.event_name(event) for event in range(256)])
        by_word: list[str | None] = [None] * (1 << 16)
        for (event, flag), name in flags.items():
            by_word[event << 8 | flag] = name
        self._flags = pa.array(by_word, pa.string())
        # Not made when this module is imported: the first array of a process imports pandas, and one that
        # plans a query makes none.
        self._of_consumers = pa.array(sorted(map(int, OF_CONSUMERS)), pa.int64())

    def batch(self, pieces: Sequence[Piece], columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
        """The rows of pieces, with these columns."""
        wanted, ends = stored_columns(columns), list(accumulate(chunk.rows for chunk, _ in pieces))
        rows = ends[-1]
        table = np.empty((len(STORED), rows), "<i8")
        for (chunk, stored), end in zip(pieces, ends, strict=True):
            decode_into(table[:, end - chunk.rows : end], stored, wanted)
        t, seq, msg, peer, pseq, a, b, c, who = map(pa.array, table)
        actor, word = pc.shift_right(who, 16), pc.bit_wise_and(who, 0xFFFF)
        event = pc.shift_right(word, 8)
        made: dict[str, Callable[[], pa.Array]] = {
            "run": lambda: pa.repeat(self._run, rows), "actor": lambda: _look_up(self._names, actor),
            "kind": lambda: _look_up(self._kinds, actor), "ev": lambda: self._events.take(event),
            "flag": lambda: self._flags.take(word), "t": lambda: t, "seq": lambda: seq, "msg": lambda: msg,
            "peer": lambda: self._peers(event, peer), "pseq": lambda: pseq, "a": lambda: a, "b": lambda: b,
            "c": lambda: c, "actor_id": lambda: actor, "parent_id": lambda: _look_up(self._parents, actor),
            "peer_id": lambda: peer, "ev_id": lambda: event, "flag_id": lambda: pc.bit_wise_and(word, 0xFF),
            "actor_rows": lambda: _look_up(self._rows, actor), "run_actors": lambda: pa.repeat(self._actors, rows), "epoch": lambda: pa.repeat(self._epoch, rows),
            "directory": lambda: pa.repeat(self._directory, rows), "vhost": lambda: pa.repeat(self._vhost, rows),
        }  # fmt: skip
        schema = SCHEMA if columns is COLUMNS else pa.schema([SCHEMA.field(name) for name in columns])
        return pa.RecordBatch.from_arrays([made[name]() for name in columns], schema=schema)

    def _peers(self, event: pa.Array, peer: pa.Array) -> pa.Array:
        """Names of actors, and of consumers where the event speaks of one."""
        of_actors = _look_up(self._names, peer)
        of_consumer = pc.is_in(event, self._of_consumers)
        if not pc.any(of_consumer).as_py():
            return of_actors
        numbers = pc.if_else(pc.not_equal(peer, 0), peer, None)
        return pc.if_else(
            of_consumer, pc.binary_join_element_wise(CONSUMER.name, numbers.cast(pa.string()), " "), of_actors
        )


def _look_up(table: pa.Array, ids: pa.Array) -> pa.Array:
    known = pc.and_(pc.greater_equal(ids, 0), pc.less(ids, len(table)))
    return table.take(pc.if_else(known, ids, None))


def named_batches(
    names: Sequence[Names] | Mapping[int, Names], pieces: Iterator[Piece], columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Pieces as Arrow batches of the public rows, or of these columns of them."""
    namings: dict[int, Naming] = {}
    for run, group in groupby(pieces, key=lambda piece: piece[0].run):
        if run not in namings:
            namings[run] = Naming(names[run])
        pending: list[Piece] = []
        rows = 0
        for piece in group:
            pending.append(piece)
            rows += piece[0].rows
            if rows >= BATCH_ROWS:
                yield namings[run].batch(pending, columns)
                pending, rows = [], 0
        if pending:
            yield namings[run].batch(pending, columns)


def chosen_batches(
    names: Mapping[int, Names], pieces: Iterable[Piece], columns: Sequence[str], only: Only
) -> Iterator[pa.RecordBatch]:
    """The rows of pieces that fulfil conditions, with these columns."""
    asked = [*columns, *(each for each in only.of_rows if each not in columns)]
    wanted = (piece for piece in pieces if may_hold(piece[0], names[piece[0].run].run, only))
    for batch in named_batches(names, wanted, asked):
        chosen = batch
        for name, (first, last) in only.ranges.items():
            column = chosen.column(name)
            chosen = chosen.filter(pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last)))
        if "ev" in only.names:
            chosen = chosen.filter(pc.is_in(chosen.column("ev"), pa.array(only.names["ev"], pa.string())))
        if chosen.num_rows:
            yield chosen.select(list(columns))


def may_hold(piece: Chunk, run: Run, only: Only) -> bool:
    """True if a piece of a run can hold a row that is read."""
    entry = run.actors.get(piece.actor)
    actor, kind = (entry.name, entry.kind) if entry is not None else (None, None)
    return only.may_be_in(piece, run.name, actor, kind)
