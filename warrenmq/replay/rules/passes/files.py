"""Machine of one file of a store: S3 to S8, and its size of E1.

Key: (run, store actor, file), with the rows of the store and of its garbage collector, sorted by t when all are there;
file_life.py walks through them.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Bools, Ints, Rows, Unit, codes, doubles, group_starts, np, parts_of
from warrenmq.replay.drive.machines import STATE, FileEnd, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.precheck import OpenRows, Precheck, joined
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.passes.file_life import File, checks_of
from warrenmq.trace.catalog import FOREVER, Chunk, Run
from warrenmq.trace.events import DIRECT, Append, Decision, Ev, Read, RunStart
from warrenmq.trace.index import Row
from warrenmq.trace.schema import COLUMNS, Shared, T, also_called

_REF_DROPPED, _READ = int(Ev.REF_DROPPED), int(Ev.READ)
_READ_DIRECTLY = _READ << 8 | DIRECT
REMOVED = int(Ev.STORE_REMOVE) << 8 | Decision.REMOVE
REVIVED = int(Ev.STORE_WRITE) << 8 | Decision.CONFIRM
OF_TWO = frozenset({Ev.ROLL, Ev.GC_START, Ev.GC_DONE})
OF_RECORDS = frozenset({Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_DROPPED})
RELEASES = frozenset({Ev.STORE_REMOVE, Ev.REF_DROPPED})
"""Events by which a record of a file loses its last reference."""
OF_SEVERAL = OF_TWO | OF_RECORDS
"""Events whose files `other_files` tells."""
COLLECTORS = frozenset(
    {Ev.GC_START, Ev.GC_MOVE, Ev.GC_DONE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.COMPACT_DONE, Ev.TRUNCATE}
)
OF_ONE = frozenset(
    {
        Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC, Ev.LOCK, Ev.UNLOCK, Ev.FILE_DELETE, Ev.FILE_STATE, Ev.REF_RECOVERED,
        Ev.GC_MOVE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.COMPACT_DONE, Ev.TRUNCATE,
    }
)  # fmt: skip


class _OfOne(Shared[T], of=OF_ONE | {Ev.READ}):
    file: T


class _OfTwo(Shared[T], of=OF_TWO):
    destination: T = also_called("new_file")
    source: T = also_called("old_file")


class _OfRecord(Shared[T], of=OF_RECORDS):
    file: T
    references: T


_file = _OfOne.getter("file")
_two_files = _OfTwo.getter("destination", "source")
_record = _OfRecord.getter("file", "references")
_read = Read.getter("store", "mark")
_IN_ORDER = itemgetter(*map(COLUMNS.index, ("t", "seq", "who")))


def other_files(row: Row) -> tuple[int, ...]:
    """The files that a row is about, of the events that do not just name theirs; destination first."""
    word = row.who & 0xFFFF
    if word >> 8 in OF_TWO:
        return tuple(dict.fromkeys(_two_files(row)))
    file, references = _record(row)
    last_one_went = references == 0 and (word == REMOVED or word >> 8 == _REF_DROPPED)
    return (file,) if last_one_went or (references == 1 and word == REVIVED) else ()


def store_of_collector(run: Run, actor: int) -> int:
    """The store that a collector works for: the actor that started it; 0 = not known."""
    entry = run.actors.get(actor)
    return entry.parent if entry is not None else 0


class Files(Machine):
    """Collects the rows of each file, and walks through them."""

    name: ClassVar[str] = "files"
    events: ClassVar[frozenset[int]] = OF_ONE | OF_SEVERAL | {Ev.READ}

    def __init__(self, runs: Sequence[Run], judges: Mapping[str, Any] | None = None) -> None:
        super().__init__(runs, judges)
        self._checks = checks_of(self.judges)

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, array[int]]]:
        found: dict[tuple[int, int], list[int]] = {}
        actor = piece.actor
        collector_of = store_of_collector(self.runs[piece.run], actor)
        for row in rows:
            word = row.who & 0xFFFF
            if word >> 8 == _READ:
                store, mark = _read(row)
                files = _file(row) if word == _READ_DIRECTLY and mark else ()
            else:
                store = collector_of if word >> 8 in COLLECTORS else actor
                files = _file(row) if word >> 8 in OF_ONE else other_files(row)
            for file in files:
                found.setdefault((store, file), []).extend(row)
        for (store, file), entries in found.items():
            if store:  # else it is not known whose collector it is
                yield (piece.run, store, file), array("q", entries)

    def start(self, key: Key) -> array[int]:
        return array("q")

    def absorb(self, state: array[int], summary: array[int]) -> None:
        state.extend(summary)

    def finish(self, key: Key, state: array[int], context: TraceContext) -> Outcome:
        run, store, number = int(key[0]), int(key[1]), int(key[2])
        file, findings = self.new_file(key, context), []
        subject = f"file {number} of {context.name((run, store))}"
        needs = ((run, store), *context.collectors_of((run, store)))
        # plain tuples: a large store has a tenth of all rows here
        for row in sorted(zip(*[iter(state)] * len(COLUMNS), strict=True), key=_IN_ORDER):
            for rule, text in file.take(row):
                t, seq, actor = row[0], row[1], row[-1] >> 16
                until, whose = t, needs
                if rule == "S8" and (run, actor) not in needs:
                    if context.was_killed((run, actor)):
                        continue  # its mark was released, which its thread did not notice yet
                    until, whose = FOREVER, (*needs, (run, actor))
                finding = Finding(rule, subject, text, ((run, actor, seq),), until, whose, (store, number))
                findings.append(finding)
        return outcome_of(key, file, findings)

    def new_file(self, key: Key, context: TraceContext) -> File:
        """The file before its first row."""
        limit, buffer = limits(context.runs[int(key[0])])
        return File(int(key[2]), limit, buffer, self._checks)


def outcome_of(key: Key, file: File, findings: Sequence[Finding] = ()) -> Outcome:
    """The outcome of a file behind its last row."""
    outcome = Outcome([*findings])
    if file.size >= 0:
        run, store = int(key[0]), int(key[1])
        outcome.figures[STATE, run, store, "files"] = 1
        outcome.file = FileEnd(run, store, file.number, file.size, file.valid, file.locked)
    return outcome


class FilesPrecheck(Precheck):
    """The array form of the pass: the same walk, in which a stretch of rows that only append and release is one step.

    Open rows are appends (t, message, offset, size), releases (t, message) and whole rows of all other events.
    """

    machine: ClassVar[type[Machine]] = Files

    def open_rows(self, unit: Unit) -> Iterator[tuple[Key, OpenRows]]:
        for piece, rows in unit.of_each_piece(Files.events):
            collector_of = store_of_collector(self.runs[piece.run], piece.actor)
            for store, file, left in _by_file(rows, piece.actor, collector_of):
                if store:  # else it is not known whose collector it is
                    yield (piece.run, store, file), left

    def concerned(self, rows: Rows, keys: Collection[Key], run: int) -> Bools:
        """The rows of these stores and of their collectors, and all reads."""
        stores = [int(key[1]) for key in keys if key[0] == run]
        collectors = [actor for actor, entry in self.runs[run].actors.items() if entry.parent in stores]
        found: Bools = np.isin(rows.actor, stores + collectors) | (rows.event == _READ)
        return found

    def prove(
        self, key: Key, open_rows: Sequence[OpenRows], facts: Sequence[Any], context: TraceContext
    ) -> Outcome | None:
        file = Files(self.runs, self.judges).new_file(key, context)
        return outcome_of(key, file) if _is_fine(file, *joined(open_rows, *_WIDTHS)) else None


_WIDTHS = 4, 2, len(COLUMNS)
_T, _MSG = map(COLUMNS.index, ("t", "msg"))


def _by_file(rows: Rows, actor: int, collector_of: int) -> Iterator[tuple[int, int, OpenRows]]:
    """The rows of an actor by what they are about: store, file, their open rows."""
    word = rows.who & 0xFFFF
    one, two, record, read = _OfOne.of(rows), _OfTwo.of(rows), _OfRecord.of(rows), Read.of(rows)
    store = np.where(rows.are(COLLECTORS), collector_of, actor)
    last_went = (word == REMOVED) | (rows.event == Ev.REF_DROPPED)
    of_record = (last_went & (record.references == 0)) | ((word == REVIVED) & (record.references == 1))
    of_two = rows.are(OF_TWO)
    is_read = (word == _READ_DIRECTLY) & (read.mark != 0)
    first = np.flatnonzero(of_record | of_two | is_read | rows.are(OF_ONE))
    second = np.flatnonzero(of_two & (two.destination != two.source))
    whose = np.concatenate((np.where(is_read, read.store, store)[first], store[second]))
    file = np.select([of_record, of_two], [record.file, two.destination], default=one.file)
    file = np.concatenate((file[first], two.source[second]))
    (number,) = codes([whose], [file])
    numbers, places = np.unique(number, return_index=True)
    names = dict(
        zip(numbers.tolist(), zip(whose[places].tolist(), file[places].tolist(), strict=True), strict=True)
    )

    rows = rows.at(np.concatenate((first, second)))
    appends, releases = rows.event == Ev.APPEND, rows.are(RELEASES)
    others = ~(appends | releases)
    appended, released = rows.where(appends), rows.where(releases)
    record_of = Append.of(appended)
    tables = (
        np.stack((appended.t, record_of.message, record_of.offset, record_of.size), axis=1),
        np.stack((released.t, released.msg), axis=1),
        rows.where(others).table(),
    )
    of_tables = (number[chosen] for chosen in (appends, releases, others))
    for each, left in parts_of(*zip(of_tables, tables, strict=True)):
        yield (*names[each], left)


def _is_fine(file: File, appends: Ints, releases: Ints, others: Ints) -> bool:
    """Take all rows of a file, in order; False as soon as one of them breaks a check, or might."""
    times = np.concatenate((appends[:, 0], releases[:, 0], others[:, _T]))
    messages = np.concatenate((appends[:, 1], releases[:, 1], others[:, _MSG]))
    order = np.argsort(times, kind="stable")
    kind = np.repeat(range(3), (len(appends), len(releases), len(others)))[order]
    is_first = np.zeros(len(order), np.bool_)
    is_first[np.unique(messages[order], return_index=True)[1]] = True
    # A record that is not new, and rows of two actors at the same time, are left to the machine.
    if not is_first[kind == 0].all() or doubles(times[order]).any():
        return False
    appends, releases, others = (
        table[np.argsort(table[:, 0], kind="stable")] for table in (appends, releases, others)
    )
    message, offset, size = appends[:, 1:].T
    gap = (offset[1:] != (offset + size)[:-1]) | (size[:-1] < 0)
    gaps = np.concatenate(([0], np.cumsum(gap), [0]))[: len(offset)].tolist()
    appended, offsets, sizes = message.tolist(), offset.tolist(), size.tolist()
    released, rows = releases[:, 1].tolist(), map(tuple, others.tolist())
    starts = np.append(group_starts(kind == 2), len(kind))
    counts = [np.concatenate(([0], np.cumsum(kind == each)))[starts].tolist() for each in range(3)]
    for (append, append_end), (release, release_end), (other, other_end) in zip(
        *map(pairwise, counts), strict=True
    ):
        if append_end > append and gaps[append_end - 1] != gaps[append]:
            return False
        its = slice(append, append_end)
        if not file.take_stretch(appended[its], offsets[its], sizes[its], released[release:release_end]):
            return False
        if any(file.take(row) for row in islice(rows, other_end - other)):
            return False
    return True


def limits(run: Run) -> tuple[int, int]:
    """File size limit and write buffer as in RUN_START; 0 = not said."""
    if run.start is None:
        return 0, 0
    start = RunStart.of(run.start)
    return start.file_size_limit, start.write_buffer
