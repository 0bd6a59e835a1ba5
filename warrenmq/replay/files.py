"""Machine of one file of a store: S3 to S8.

Key: (run, store actor, file), with the rows of the store and of its garbage collector, sorted by t when all are there.

    end      where the next record begins      APPEND moves it, GC_DONE and TRUNCATE set it, a new file (ROLL) has 0
    live     records with references           APPEND, GC_MOVE, REF_RECOVERED, a write that revives: in
                                               the last reference goes, the file is combined away: out
    written  handed to the kernel              FILE_WRITE
    safe     synced                            FILE_SYNC
    locked   at the collector                  LOCK, UNLOCK

=====================================================================  ====
FILE_STATE says another valid_total_size than live adds up to          S3
FILE_STATE says another file_size than where the last record ends      E1
a file is deleted while records in it are live                         S3
TRUNCATE to less than its live records take                            S3
APPEND or FILE_WRITE while locked, GC_MOVE or COMPACT_MOVE while not   S4
APPEND not at the end, GC_MOVE not where the last one ended            S5
COMPACT_MOVE before the end of the last one, or onto its own old place S5
ROLL below the limit, APPEND beyond it or after the ROLL               S6
ROLL for or after a large message that is not alone in its file        S6
ROLL because of garbage, and half of the file or more is live          S6
FILE_WRITE that is not all that was appended since the last one        S7
FILE_WRITE "buffer full" of no more than the buffer                    S7
FILE_WRITE "roll over" of a file below the limit                       S7
FILE_SYNC of more than was written, or with a wrong count              S7
READ after a TRUNCATE by one who began before its threshold            S8
=====================================================================  ====

A file's history may begin before the trace's: until a row tells where the end is, the first one is believed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import le
from typing import ClassVar

from warrenmq.replay.machines import STATE, Finding, Key, Machine, Outcome
from warrenmq.replay.world import World
from warrenmq.trace.catalog import Chunk, Run
from warrenmq.trace.events import (
    DIRECT,
    ROLL_FOR_LARGE,
    ROLL_GARBAGE,
    ROLL_LARGE,
    Decision,
    Ev,
    Trigger,
)
from warrenmq.trace.index import Row

_APPEND = int(Ev.APPEND)
_REF_DROPPED = int(Ev.REF_DROPPED)
_LAST_GONE = frozenset({int(Ev.STORE_REMOVE), _REF_DROPPED})
_REMOVED = int(Ev.STORE_REMOVE) << 8 | Decision.REMOVE
_REVIVED = int(Ev.STORE_WRITE) << 8 | Decision.CONFIRM
_OF_TWO = frozenset({Ev.ROLL, Ev.GC_START, Ev.GC_DONE})
OF_SEVERAL = _OF_TWO | {Ev.STORE_WRITE, Ev.STORE_REMOVE, Ev.REF_DROPPED}
"""Events whose files `other_files` tells."""
_COLLECTORS = frozenset(
    {Ev.GC_START, Ev.GC_MOVE, Ev.GC_DONE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.TRUNCATE}
)
_READ = int(Ev.READ)
_READ_DIRECTLY = _READ << 8 | DIRECT
_OF_ONE = frozenset(
    {
        Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC, Ev.LOCK, Ev.UNLOCK, Ev.FILE_DELETE, Ev.FILE_STATE, Ev.REF_RECOVERED,
        Ev.GC_MOVE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.TRUNCATE,
    }
)  # fmt: skip

_FIELDS = 8
"""t, seq, actor, (event << 8 | flag) << 1 | (1 = the row's first file), msg, pseq, b, c."""

Broken = list[tuple[str, str]]
"""(rule, text) of what one row breaks."""


def other_files(row: Row) -> tuple[int, ...]:
    """The files that a row is about, of the events that do not just name theirs in column a; destination first."""
    word = row[8] & 0xFFFF
    if word >> 8 in _OF_TWO:
        return (row[5], row[6]) if row[5] != row[6] else (row[5],)
    last_one_went = word == _REMOVED or word >> 8 == _REF_DROPPED
    if row[6] == (0 if last_one_went else 1) and (last_one_went or word == _REVIVED):
        return (row[4],)
    return ()


@dataclass(slots=True)
class File:
    """The walk through one file's rows."""

    number: int
    limit: int
    buffer: int
    end: int = -1
    written: int = -1
    safe: int = -1
    moved: int = -1
    """Where the collector's next record goes; -1 = not told."""
    locked: bool = False
    appended: bool = False
    """By this incarnation: a file that was full when it was recovered is left after the first record."""
    left: bool = False
    large: bool = False
    """It was opened for a large message."""
    threshold: int = 0
    """Of the last TRUNCATE: a reader with this mark or an older one has left."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Every record, message -> bytes."""
    live: dict[int, int] = field(default_factory=dict)
    valid: int = 0
    """Sum of `live`."""
    gone: bool = False
    """Deleted, or combined away."""

    @property
    def size(self) -> int:
        """Of the file; -1 when nothing says that it is there."""
        return -1 if self.gone else max(self.end, self.moved if self.end < 0 else -1)

    def take(self, word: int, first: bool, msg: int, pseq: int, b: int, c: int) -> Broken:
        """One row; what it breaks.  `first`: of two files in the row, this is the first."""
        event = word >> 8
        if event == _APPEND:
            return self._append(msg, b, c)
        if event in _LAST_GONE:
            self.valid -= self.live.pop(msg, 0)
            return []
        match event:
            case Ev.FILE_WRITE:
                return self._write(word & 0xFF, b, c)
            case Ev.FILE_SYNC:
                return self._sync(b, c)
            case Ev.READ:
                return self._read(pseq)
            case Ev.ROLL:
                return self._begin(word & 0xFF) if first else self._leave(word & 0xFF, c)
            case Ev.STORE_WRITE:
                self._add(msg, self.sizes.get(msg, 0))
            case Ev.REF_RECOVERED:
                self._add(msg, c)
            case Ev.LOCK | Ev.UNLOCK:
                self.locked = event == Ev.LOCK
            case Ev.GC_START | Ev.COMPACT_START:
                self.moved = -1
            case Ev.COMPACT_MOVE:
                return self._compact(pseq, b, c)
            case Ev.TRUNCATE:
                return self._truncate(pseq, b)
            case Ev.GC_MOVE:
                return self._move(msg, b, c)
            case Ev.GC_DONE:
                self._combined(first=first)
            case Ev.FILE_DELETE:
                self.gone = True
                if self.valid:
                    return [("S3", f"deleted with {len(self.live)} live records of {self.valid} bytes")]
            case Ev.FILE_STATE:
                return self._state(b, c)
        return []

    def _append(self, msg: int, offset: int, size: int) -> Broken:
        broken: Broken = []
        if self.locked:
            broken.append(("S4", "a record was appended while the file was locked"))
        if self.left:
            broken.append(("S6", "a record was appended after the roll-over"))
        if self.large and self.appended:
            broken.append(("S6", "a second record was appended to a large message's own file"))
        if self.end >= 0 and offset != self.end:
            broken.append(("S5", f"a record begins at {offset}, the last one ended at {self.end}"))
        elif self.appended and 0 < self.limit <= offset:
            broken.append(("S6", f"a record was appended at {offset}, the limit is {self.limit}"))
        if self.written < 0:
            self.written = self.safe = offset
        self.end = offset + size
        self.appended = True
        self._add(msg, size)
        return broken

    def _add(self, msg: int, size: int) -> None:
        self.valid += size - self.live.get(msg, 0)
        self.sizes[msg] = self.live[msg] = size

    def _write(self, trigger: int, offset: int, size: int) -> Broken:
        broken: Broken = []
        if self.locked:
            broken.append(("S4", "the buffer was written while the file was locked"))
        if (self.written >= 0 and offset != self.written) or (self.end >= 0 and offset + size != self.end):
            text = f"{size} bytes were written at {offset}, but {self.end - self.written} were appended since {self.written}"
            broken.append(("S7", text))
        if trigger == Trigger.BUFFER_FULL and 0 < self.buffer >= size:
            broken.append(("S7", f"buffer full with {size} bytes, it holds {self.buffer}"))
        if trigger == Trigger.ROLL_OVER and offset + size < self.limit:
            broken.append(("S7", f"roll-over at {offset + size}, the limit is {self.limit}"))
        self.written = offset + size
        return broken

    def _sync(self, safe: int, since: int) -> Broken:
        broken: Broken = []
        if self.written >= 0 and safe > self.written:
            broken.append(("S7", f"{safe} bytes were called safe, {self.written} were written"))
        elif self.safe >= 0 and safe - self.safe != since:
            broken.append(("S7", f"a sync of {since} bytes moved the safe end from {self.safe} to {safe}"))
        self.safe = safe
        return broken

    def _begin(self, why: int) -> Broken:
        self.end = self.written = self.safe = 0
        self.large = why == ROLL_FOR_LARGE
        return []

    def _leave(self, why: int, size: int) -> Broken:
        self.left = True
        match why:
            case _ if why == ROLL_FOR_LARGE:
                pass  # the next file's machine sees what comes
            case _ if why == ROLL_LARGE:
                if len(self.sizes) > 1:
                    return [("S6", f"left as a large message's own file, with {len(self.sizes)} records in it")]
            case _ if why == ROLL_GARBAGE:
                if self.valid * 2 >= size:
                    return [("S6", f"left because of garbage, with {self.valid} live of {size} bytes")]
            case _:
                if size < self.limit:
                    return [("S6", f"left with {size} bytes, the limit is {self.limit}")]
        if self.end not in {-1, size}:
            return [("S6", f"left with {size} bytes, but its records end at {self.end}")]
        return []

    def _move(self, msg: int, offset: int, size: int) -> Broken:
        broken: Broken = []
        if not self.locked:
            broken.append(("S4", "the collector moved a record into it while it was not locked"))
        if self.moved not in {-1, offset}:
            broken.append(("S5", f"a record was moved to {offset}, the one before ended at {self.moved}"))
        self.moved = offset + size
        self._add(msg, size)
        return broken

    def _compact(self, source: int, target: int, size: int) -> Broken:
        broken: Broken = []
        if not self.locked:
            broken.append(("S4", "the collector moved a record within it while it was not locked"))
        if target < self.moved or target + size > source:
            text = f"a record of {size} bytes was moved from {source} to {target}, the one before ended at {self.moved}"
            broken.append(("S5", text))
        self.moved = target + size
        return broken

    def _truncate(self, threshold: int, size: int) -> Broken:
        self.end = self.written = self.safe = size
        self.threshold = threshold
        if size < self.valid:
            return [("S3", f"cut to {size} bytes, its {len(self.live)} live records have {self.valid}")]
        return []

    def _read(self, mark: int) -> Broken:
        if mark <= self.threshold:
            return [("S8", f"reader {mark} was still there when all up to {self.threshold} were waited for")]
        return []

    def _combined(self, *, first: bool) -> None:
        if not first:  # its records are in the other file now
            self.live.clear()
            self.valid = 0
            self.gone = True
        self.sizes = dict(self.live)
        self.end = self.written = self.safe = -1

    def _state(self, valid: int, size: int) -> Broken:
        if self.end < 0:
            self.end = self.written = self.safe = size
        broken: Broken = []
        if size != self.end:
            broken.append(("E1", f"file_size is {size}, it said; its rows make {self.end}"))
            self.end = size
        if valid != self.valid:
            text = f"valid_total_size is {valid}, its {len(self.live)} live records have {self.valid} bytes"
            broken.append(("S3", text))
        return broken


class Files(Machine):
    """See the module."""

    name: ClassVar[str] = "files"
    events: ClassVar[frozenset[int]] = _OF_ONE | OF_SEVERAL | {Ev.READ}

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[int]]]:
        found: dict[int, list[int]] = {}
        actor = piece.actor
        collects = False
        for row in rows:
            t, seq, msg, peer, pseq, a, b, c, who = row
            word = who & 0xFFFF
            if word >> 8 == _READ:
                if word == _READ_DIRECTLY and peer:
                    yield (piece.run, peer, a), [t, seq, actor, word << 1, msg, pseq, b, c]
                continue
            if word >> 8 in _OF_ONE:
                files: tuple[int, ...] = (a,)
            else:
                files = other_files(row)
            for place, file in enumerate(files):
                entries = found.get(file)
                if entries is None:
                    entries = found[file] = []
                entries += (t, seq, actor, word << 1 | (not place), msg, pseq, b, c)
            collects = collects or word >> 8 in _COLLECTORS
        store = self._store(piece) if collects else piece.actor
        if not store:
            return  # whose collector it is was not said
        for file, entries in found.items():
            yield (piece.run, store, file), entries

    def _store(self, piece: Chunk) -> int:
        """The store that a collector works for: it started it."""
        entry = self.runs[piece.run].actors.get(piece.actor)
        return entry.parent if entry is not None else 0

    def start(self, key: Key) -> array[int]:  # noqa: ARG002
        return array("q")

    def absorb(self, state: array[int], summary: list[int]) -> None:
        state.fromlist(summary)

    def finish(self, key: Key, state: array[int], world: World) -> Outcome:
        run, store, number = int(key[0]), int(key[1]), int(key[2])
        limit, buffer = limits(world.runs[run])
        file = File(number, limit, buffer)
        outcome = Outcome()
        subject = f"file {number} of {world.name((run, store))}"
        columns = [state[i::_FIELDS] for i in range(_FIELDS)]
        needs = ((run, store), *world.started_by((run, store)))
        rows: Iterable[tuple[int, ...]] = zip(*columns, strict=True)
        if not all(map(le, columns[0], columns[0][1:])):
            rows = sorted(rows)
        for t, seq, actor, word, msg, pseq, b, c in rows:
            for rule, text in file.take(word >> 1, bool(word & 1), msg, pseq, b, c):
                if rule == "S8" and world.was_killed((run, actor)):
                    continue  # its mark was released; its thread did not know yet
                outcome.findings.append(Finding(rule, subject, text, ((run, actor, seq),), t, needs, (store, number)))
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
