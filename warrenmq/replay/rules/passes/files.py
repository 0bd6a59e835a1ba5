"""Machine of one file of a store: S3 to S8, and its size of E1.

Key: (run, store actor, file), with the rows of the store and of its garbage collector, sorted by t when all are there;
file_life.py walks through them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import le
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Ints, Places, Rows, np
from warrenmq.replay.drive.machines import STATE, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.rules.passes.file_life import File, checks_of
from warrenmq.trace.catalog import FOREVER, Chunk, Run
from warrenmq.trace.events import DIRECT, Decision, Ev
from warrenmq.trace.index import Row

_REF_DROPPED = int(Ev.REF_DROPPED)
REMOVED = int(Ev.STORE_REMOVE) << 8 | Decision.REMOVE
REVIVED = int(Ev.STORE_WRITE) << 8 | Decision.CONFIRM
OF_TWO = frozenset({Ev.ROLL, Ev.GC_START, Ev.GC_DONE})
OF_SEVERAL = OF_TWO | {Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_DROPPED}
"""Events whose files `other_files` tells."""
COLLECTORS = frozenset(
    {Ev.GC_START, Ev.GC_MOVE, Ev.GC_DONE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.COMPACT_DONE, Ev.TRUNCATE}
)
_READ = int(Ev.READ)
_READ_DIRECTLY = _READ << 8 | DIRECT
OF_ONE = frozenset(
    {
        Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC, Ev.LOCK, Ev.UNLOCK, Ev.FILE_DELETE, Ev.FILE_STATE, Ev.REF_RECOVERED,
        Ev.GC_MOVE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.COMPACT_DONE, Ev.TRUNCATE,
    }
)  # fmt: skip

_FIELDS = 8
"""t, seq, actor, (event << 8 | flag) << 1 | (1 = the row's first file), msg, pseq, b, c."""


def other_files(row: Row) -> tuple[int, ...]:
    """The files that a row is about, of the events that do not just name theirs in column a; destination first."""
    word = row[8] & 0xFFFF
    if word >> 8 in OF_TWO:
        return (row[5], row[6]) if row[5] != row[6] else (row[5],)
    last_one_went = word == REMOVED or word >> 8 == _REF_DROPPED
    if row[6] == (0 if last_one_went else 1) and (last_one_went or word == REVIVED):
        return (row[4],)
    return ()


def store_of_collector(run: Run, actor: int) -> int:
    """The store that a collector works for: it started it; 0 = nobody said."""
    entry = run.actors.get(actor)
    return entry.parent if entry is not None else 0


class Files(Machine):
    """See the module."""

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
            t, seq, msg, peer, pseq, a, b, c, who = row
            word = who & 0xFFFF
            if word >> 8 == _READ:
                if word == _READ_DIRECTLY and pseq:
                    found.setdefault((peer, a), []).extend((t, seq, actor, word << 1, msg, pseq, b, c))
                continue
            store = collector_of if word >> 8 in COLLECTORS else actor
            for place, file in enumerate((a,) if word >> 8 in OF_ONE else other_files(row)):
                entries = found.get((store, file))
                if entries is None:
                    entries = found[store, file] = []
                entries += (t, seq, actor, word << 1 | (not place), msg, pseq, b, c)
        for (store, file), entries in found.items():
            if store:  # else nobody said whose collector it is
                yield (piece.run, store, file), array("q", entries)

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Any]]:
        """`summarise` for arrays."""
        yield from fold_files(self.runs, piece, rows)

    def start(self, key: Key) -> array[int]:
        return array("q")

    def absorb(self, state: array[int], summary: array[int]) -> None:
        state.extend(summary)

    def finish(self, key: Key, state: array[int], context: TraceContext) -> Outcome:
        run, store, number = int(key[0]), int(key[1]), int(key[2])
        limit, buffer = limits(context.runs[run])
        file = File(limit, buffer, self._checks)
        outcome = Outcome()
        subject = f"file {number} of {context.name((run, store))}"
        columns = [state[i::_FIELDS] for i in range(_FIELDS)]
        needs = ((run, store), *context.started_by((run, store)))
        rows: Iterable[tuple[int, ...]] = zip(*columns, strict=True)
        if not all(map(le, columns[0], columns[0][1:])):
            rows = sorted(rows)
        for t, seq, actor, word, msg, pseq, b, c in rows:
            for rule, text in file.take(word >> 1, bool(word & 1), msg, pseq, b, c):
                until, whose = t, needs
                if rule == "S8" and (run, actor) not in needs:
                    if context.was_killed((run, actor)):
                        continue  # its mark was released; its thread did not know yet
                    until, whose = FOREVER, (*needs, (run, actor))
                finding = Finding(rule, subject, text, ((run, actor, seq),), until, whose, (store, number))
                outcome.findings.append(finding)
        if file.size >= 0:
            figures = {
                "there": 1, "file_size": file.size, "valid_total_size": file.valid, "locked": int(file.locked)
            }  # fmt: skip
            for what, n in figures.items():
                outcome.figures[STATE, run, store, "file", number, what] = n
        return outcome


def limits(run: Run) -> tuple[int, int]:
    """File size limit and write buffer as RUN_START said them; 0 = not said."""
    return (run.start[7], run.start[4]) if run.start is not None else (0, 0)


def fold_files(runs: Sequence[Run], piece: Chunk, rows: Rows) -> Iterator[tuple[Key, Any]]:
    """What Files.summarise makes of rows of its events."""
    word = rows.who & 0xFFFF
    event = word >> 8
    collects = np.isin(event, list(COLLECTORS))
    store = np.where(collects, store_of_collector(runs[piece.run], piece.actor), piece.actor)
    last_went = (word == REMOVED) | (event == Ev.REF_DROPPED)
    of_record = (last_went & (rows.b == 0)) | ((word == REVIVED) & (rows.b == 1))
    of_two = np.isin(event, list(OF_TWO))
    read = (word == int(Ev.READ) << 8 | DIRECT) & (rows.pseq != 0)
    of_one = np.isin(event, list(OF_ONE))
    first = np.flatnonzero(of_record | of_two | of_one | read)
    second = np.flatnonzero(of_two & (rows.a != rows.b))
    table = np.concatenate(
        (
            _table(rows, first, np.where(read[first], 0, 1)),
            _table(rows, second, np.zeros(len(second), np.int64)),
        )
    )
    whose = np.concatenate((np.where(read, rows.peer, store)[first], store[second]))
    file = np.concatenate((np.where(of_record, rows.pseq, rows.a)[first], rows.b[second]))
    order = np.lexsort((table[:, 1], file, whose))
    table, whose, file = table[order], whose[order], file[order]
    starts = np.flatnonzero(
        np.concatenate(([True], (whose[1:] != whose[:-1]) | (file[1:] != file[:-1])))[: len(whose)]
    )
    for at, end in zip(starts.tolist(), np.append(starts, len(whose))[1:].tolist(), strict=True):
        if whose[at]:
            yield (piece.run, int(whose[at]), int(file[at])), array("q", table[at:end].tobytes())


def _table(rows: Rows, places: Places, mark: Ints) -> Ints:
    chosen = rows.at(places)
    word = (chosen.who & 0xFFFF) << 1 | mark
    return np.stack(
        (chosen.t, chosen.seq, chosen.who >> 16, word, chosen.msg, chosen.pseq, chosen.b, chosen.c), axis=1
    )
