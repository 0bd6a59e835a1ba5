"""The six tables of `measures`, filled by Spark in one job.

    blocks of the trace ──mapInArrow──► sums of a task, and rows that must meet others (report/measure_arrays.py)
                                         │ a row for each queue and chunk of its ids, store and chunk of messages, run's store files
                                         ▼ repartition by key, sort by order
                                        ──mapInArrow──► sums of a task ──► merged in one task, to the driver

Each row of the trace is unpacked once, and none goes through Spark by itself: rows that must meet others are
columns of numbers in a row for each key.  Slices of time are as long as the trace asks for, so that the
driver does not collect more of a longer one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from warrenmq.replay.drive.columns import Ints, units_of
from warrenmq.replay.drive.levels import LevelKey, slice_of
from warrenmq.replay.explain.evidence import Placed
from warrenmq.replay.report.measure_arrays import (
    LEVELS,
    TALLIES,
    BodyTimes,
    TimedRows,
    UnitMeasures,
    bytes_gained,
    chunk_delays,
    measure_unit,
    summed,
)
from warrenmq.replay.report.measures import Measures, Tally, TallyKey
from warrenmq.replay.report.store_files import Collected, StoreFile, StoreFiles, fold
from warrenmq.replay.spark.jobs import described
from warrenmq.replay.spark.partitions import ROWS_OF_KEYS, partitions
from warrenmq.replay.spark.source import Batches, Pieces, TraceIndex, map_pieces
from warrenmq.replay.spark.stage_columns import ROW, batches, pressed, unpressed
from warrenmq.trace.catalog import Run
from warrenmq.trace.schema import Row

_Numbers = TypeVar("_Numbers", TimedRows, BodyTimes)


def _longs(names: Iterable[str]) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.int64()) for name in names]


def _columns(names: Iterable[str]) -> pa.DataType:
    """Columns of numbers, each as its bytes: Spark would copy a list of them number by number, twice a shuffle."""
    return pa.struct([(name, pa.binary()) for name in names])


_FILES = pa.struct([
    ("run", pa.int64()),
    ("found", pa.list_(pa.struct(_longs(("store", "slice", "bytes"))))),
    ("files", pa.list_(pa.struct(_longs(StoreFile._fields)))),
    ("collected", pa.list_(pa.struct(_longs(Collected._fields)))),
])  # fmt: skip
_DELAYS = pa.struct([
    ("delay", pa.string()), *_longs(("run", "slice")), ("counts", pa.map_(pa.int32(), pa.int64())),
])  # fmt: skip
"""A histogram for each delay, run and slice of time: how many messages waited as long as each class says."""

_MEASURES = pa.schema([
    ("tallies", pa.binary()), ("levels", pa.binary()),
    ("rare", pa.list_(pa.struct([("run", pa.int64()), ("row", ROW)]))),
    ("files", pa.list_(_FILES)),
    ("delays", pa.list_(_DELAYS)),
    ("bodies", pa.list_(pa.struct(_longs(("run", "store", "slice", "bytes"))))),
])  # fmt: skip
"""The sums of a task: Measures.  Those of which there are tens of thousands are tables of numbers, as bytes."""
_OTHERS = [name for name in _MEASURES.names if name not in ("tallies", "levels")]

_PARTS = pa.schema([
    *_longs(("run", "actor", "chunk", "seq")),
    ("timed", _columns(TimedRows._fields)), ("bodies", _columns(BodyTimes._fields)), ("of_files", pa.list_(ROW)),
    ("sums", pa.struct(list(_MEASURES))),
])  # fmt: skip
"""The result of a unit: its sums, or rows that go to their key; the other columns are null."""


def measure(spark: SparkSession, trace: TraceIndex) -> Measures:
    """Compute all six tables of a trace."""
    catalog = trace.catalog
    slice_ns = slice_of(catalog)
    schema = from_arrow_schema(_MEASURES)
    merged = (
        map_pieces(spark, trace, partial(measure_units, slice_ns), from_arrow_schema(_PARTS))
        .repartition(partitions(catalog.rows, ROWS_OF_KEYS), "run", "actor", "chunk")
        .sortWithinPartitions("run", "actor", "chunk", "seq")
        .mapInArrow(partial(measure_keys, catalog.runs, slice_ns), schema)
        .repartition(1)
        .mapInArrow(_merge, schema)
    )
    with described(spark, "measure actors, delays, stores and mailboxes"):
        return _sum(merged.toArrow().to_batches()).measures(slice_ns)


@dataclass(slots=True)
class Sums:
    """The sums of a task; tallies and levels as tables."""

    others: Measures = field(default_factory=Measures)
    tallies: list[Ints] = field(default_factory=list)
    levels: list[Ints] = field(default_factory=list)

    def add(self, struct: pa.StructScalar) -> None:
        """Take in the sums of a task, as `struct` makes them."""
        self.tallies.append(_numbers(struct["tallies"]).reshape(-1, len(TALLIES)))
        self.levels.append(_numbers(struct["levels"]).reshape(-1, len(LEVELS)))
        self.others.add(_measures({name: struct[name].as_py() for name in _OTHERS}))

    def struct(self) -> dict[str, Any]:
        """The sums as a row of _MEASURES."""
        return {
            "tallies": _bytes(_sums(self.tallies, TallyKey, TALLIES)),
            "levels": _bytes(_sums(self.levels, LevelKey, LEVELS)),
            **_struct(self.others),
        }

    def measures(self, slice_ns: int) -> Measures:
        """The sums as Measures, with tables as dicts."""
        tallies = _sums(self.tallies, TallyKey, TALLIES).tolist()
        levels = _sums(self.levels, LevelKey, LEVELS).tolist()
        return replace(
            self.others,
            tallies={TallyKey(*each[:-3]): Tally(*each[-3:]) for each in tallies},
            levels={LevelKey(*each[:-3]): tuple(each[-3:]) for each in levels},
            slice_ns=slice_ns,
        )


def measure_units(slice_ns: int, unpack: Pieces, given: Batches) -> Iterator[pa.RecordBatch]:
    """Job of `map_pieces`."""
    sums = Sums()
    for unit in units_of(unpack(given)):
        found = measure_unit(unit, slice_ns)
        sums.others.rare += found.rare
        sums.tallies.append(found.tallies)
        sums.levels.append(found.levels)
        yield from batches(_parts(unit.run, found), _PARTS)
    yield from batches([(-1, 0, 0, 0, None, None, None, sums.struct())], _PARTS)


def _parts(run: int, found: UnitMeasures) -> Iterator[tuple[Any, ...]]:
    for queue, chunk, seq, timed in found.timed:
        yield run, queue, chunk, seq, tuple(map(_bytes, timed)), None, None, None
    for store, chunk, bodies in found.bodies:
        yield run, store, chunk, 0, None, tuple(map(_bytes, bodies)), None, None
    if found.of_files:
        yield run, -1, 0, 0, None, None, [row._asdict() for row in found.of_files], None


def measure_keys(runs: Sequence[Run], slice_ns: int, given: Batches) -> Iterator[pa.RecordBatch]:
    """Parts that come key by key, in order: the sums of a task."""
    sums = Sums()
    of_files: dict[int, list[Row]] = defaultdict(list)
    for (run, actor, chunk), its in _by_key(given):
        if timed := _together(TimedRows, its, "timed"):
            sums.others.add(Measures(delays=chunk_delays(run, chunk, timed, slice_ns)))
        if bodies := _together(BodyTimes, its, "bodies"):
            gained = bytes_gained(bodies, slice_ns)
            sums.others.add(Measures(bodies={(run, actor, slice_): n for slice_, n in gained.items()}))
        for batch, at in its:
            of_files[run] += [Row(**row) for row in batch.column("of_files")[at].as_py() or ()]
            if batch.column("sums")[at].is_valid:
                sums.add(batch.column("sums")[at])
    for run, rows in of_files.items():
        in_time = sorted(rows, key=lambda row: (row.t, row.actor, row.seq))
        if in_time:
            sums.others.files[run] = fold(runs[run], in_time, slice_ns)
    yield from batches([tuple(sums.struct().values())], _MEASURES)


def _by_key(given: Batches) -> Iterator[tuple[tuple[int, int, int], list[tuple[pa.RecordBatch, int]]]]:
    """Each key, and where its parts are."""
    rows = (
        (key, (batch, at))
        for batch in given
        for at, key in enumerate(
            zip(*(batch.column(name).to_pylist() for name in ("run", "actor", "chunk")), strict=True)
        )
    )
    for key, its in groupby(rows, key=itemgetter(0)):
        yield key, [place for _, place in its]


def _together(form: type[_Numbers], its: Sequence[tuple[pa.RecordBatch, int]], name: str) -> _Numbers | None:
    """The columns of numbers of all parts that have them."""
    parts = [batch.column(name)[at] for batch, at in its]
    whole = [part for part in parts if part.is_valid]
    if not whole:
        return None
    return form(*(np.concatenate([_numbers(part[column]) for part in whole]) for column in form._fields))


def _merge(given: Batches) -> Iterator[pa.RecordBatch]:
    """The sums of all tasks as those of one."""
    return batches([tuple(_sum(given).struct().values())], _MEASURES)


def _sum(given: Iterable[pa.RecordBatch]) -> Sums:
    found = Sums()
    for batch in given:
        for struct in batch.to_struct_array():
            found.add(struct)
    return found


def _bytes(numbers: Ints) -> bytes:
    return pressed(numbers.astype("<i8", copy=False).tobytes())


def _numbers(column: pa.BinaryScalar) -> Ints:
    return np.frombuffer(unpressed(memoryview(column.as_buffer())), "<i8")


def _sums(tables: Sequence[Ints], key: type[Any], names: Sequence[str]) -> Ints:
    """The sum of these tables, whose columns have these names."""
    return summed(tables, len(key._fields)) if tables else np.zeros((0, len(names)), np.int64)


def _struct(measures: Measures) -> dict[str, list[Any]]:
    """Measures, but for tallies and levels, as _MEASURES has them: structs as tuples."""
    return {
        "rare": measures.rare,
        "files": [
            (run, [(*place, size) for place, size in its.found.items()], its.files, its.collected)
            for run, its in measures.files.items()
        ],
        "delays": [(*key, list(counts.items())) for key, counts in measures.delays.items()],
        "bodies": [(*key, gained) for key, gained in measures.bodies.items()],
    }


def _measures(struct: dict[str, list[dict[str, Any]]]) -> Measures:
    """Make Measures of a struct."""

    def tuples(name: str) -> Iterator[tuple[Any, ...]]:
        return (tuple(each.values()) for each in struct[name])

    found = Measures()
    found.rare = [Placed(run, Row(**row)) for run, row in tuples("rare")]
    for run, sizes, files, collected in tuples("files"):
        found.files[run] = StoreFiles(
            Counter({(each["store"], each["slice"]): each["bytes"] for each in sizes}),
            [StoreFile(**file) for file in files],
            [Collected(**each) for each in collected],
        )
    for *key, counts in tuples("delays"):
        found.delays[key[0], key[1], key[2]] = Counter(dict(counts))
    for run, store, slice_, gained in tuples("bodies"):
        found.bodies[run, store, slice_] = gained
    return found
