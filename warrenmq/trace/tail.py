"""Follow a trace that is still being written: find the new rows, each of them once.

A row is first in a slab and moves to a segment, where it stays, when the slab is full.  The slab is emptied after the segment
was written, so a reader that looks at the slabs *first* finds every row at least once.  Its run, actor and seq then show
whether it was read before:

    Place = {run: {"n": its number,
                   "of": its data directory (Run.of_directory),
                   "files": {number of a segment: bytes read of it, always whole frames},
                   "rows": {actor: [lo, hi]},         its rows lo to hi were taken from a slab; frames read so far end at lo - 1
                   "t": the last t of any row,
                   "settled": that of the look before: whatever has a t up to this is read,
                   "actors": the largest trace id of an actor that has registered,
                   "closed": whether the run was closed, "lossy": whether its disk refused rows,
                   "damaged": whether a segment has less than was written to it,
                   "missing": whether parts are, by what is there now; "ended": whether it could be the end of a run}}

The rows between two places are the same whenever and wherever they are read, also by another process after a restart: rows
that were in a slab are still there, or in a segment.  Numbers are strings where JSON wants it so: a place is an offset
of Spark's structured streaming, and is kept in its checkpoint.

An actor leaves `rows` when nothing of it is in a slab, a segment leaves `files` when it and all before it were read to
their footers ("files": {"0": n} = the first n).  So a place is as large as what is open.

A slab is read while its owners write; slab_reader.py says when a row is taken.

An actor stamps a row and then writes it, and may be suspended in between; so all rows up to the last t are there only at the
next look (`settled`), half a second later or so.  The actors of a run share a clock that never goes back (clock.py).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Any, NamedTuple

from warrenmq.trace.block import ROW, Frame, Kind, decode_columns, decode_map, next_frame, raw_columns
from warrenmq.trace.catalog import NEVER, Chunk, Run, branch_of, is_whole, order_of_boots, reaches
from warrenmq.trace.index import ActorEntry, Damage, take_names
from warrenmq.trace.reader import header_of, named_by, names_in, opened_file
from warrenmq.trace.segment import decode_header
from warrenmq.trace.slab import SLAB_SUFFIX
from warrenmq.trace.slab_reader import SlabReader

Place = dict[str, Any]
"""The place up to which a trace was read (see above)."""

_READ = "0"


class Part(NamedTuple):
    """Rows between two places: a frame of a segment, or rows that a slab held."""

    run: str
    """The run's name, node and pid."""
    actor: int
    seq_first: int
    seq_end: int
    file: str = ""
    offset: int = 0
    raw: bytes = b""


@dataclass(slots=True)
class RunFiles:
    """The files of one run, and the names from their headers and META frames."""

    run: Run
    segments: dict[int, str] = field(default_factory=dict)
    slab: SlabReader | None = None
    named_to: dict[int, int] = field(default_factory=dict)
    """Segment -> how far its names were read."""
    finished: set[int] = field(default_factory=set)
    """Segments whose footer was read."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Segment -> its size when it was last read."""
    counted: dict[int, int] = field(default_factory=dict)
    """Segment -> the rows in it so far."""
    frames: dict[int, int] = field(default_factory=dict)
    """Segment -> the frames in it so far."""
    has_two_slabs: bool = False
    """There is a copy of the slab file, and either may be older than the other."""
    damaged: bool = False
    """A frame of a segment was unreadable, or its footer counts more frames or rows."""

    @property
    def last(self) -> int:
        """The number of the last segment; 0 without any."""
        return max(self.segments, default=0)

    def lacks_parts(self, read: int) -> bool:
        """True if parts of the run are missing, though it may go on; the first `read` segments were read before."""
        last, slab = self.last, self.slab
        written = slab.progress if slab is not None else None
        unfinished = (number for number in range(read + 1, last) if number not in self.finished)
        if (
            last < (written.segment if written is not None else 1)
            or any(unfinished)
            or self.has_two_slabs
            or (slab is not None and slab.is_cut)
        ):
            return True
        if not self.run.closed and (slab is None or slab.is_gone):
            return True  # it is deleted when the last footer is written
        if last <= read:
            return False
        end, rows = self.named_to.get(last, 0), self.counted.get(last, 0)
        is_torn = end != self.sizes.get(last, -1)
        return is_torn or (written is not None and not reaches(written, last, end, rows))

    @property
    def can_have_ended(self) -> bool:
        """True if nothing has to follow: the last segment has the run's footer, or, after a kill, none, or
        its slab file knows of no other.
        """
        written = self.slab.progress if self.slab is not None else None
        return (
            self.run.closed
            or self.last not in self.finished
            or (written is not None and written.segment == self.last)
        )


class Tail:
    """Follows the traces in some directories.  Holds no open files between two looks, and of rows what the
    slabs hold; not thread-safe.
    """

    def __init__(self, *paths: str) -> None:
        self._paths = paths
        self._seen: set[str] = set()
        self._without_header: set[str] = set()
        """Runs, by the names of files that do not begin with a whole header."""
        self.runs: dict[str, RunFiles] = {}
        """Runs by name, node and pid, in the order in which they were met."""

    def look(self, start: Place) -> Place:
        """The place up to which rows can be read now."""
        self._list()
        for files in self.runs.values():  # before any segment
            if files.slab is not None:
                files.slab.look()
        self._list()  # slab files say what there is by now
        place: Place = {}
        fresh = count(len(start))
        for key, files in self.runs.items():
            before = start.get(key) or {"n": next(fresh), "t": NEVER}
            place[key] = self._run(key, files, before)
        return {**start, **place}

    def parts(self, start: Place, end: Place) -> tuple[list[Part], list[Damage]]:
        """The rows between two places, an actor's in their order; and damage that whole frames follow, which
        is therefore final.
        """
        if any(key not in self.runs for key in end):
            self._list()
        found: list[Part] = []
        damage: list[Damage] = []
        for key, to in end.items():
            files = self.runs.get(key)
            if files is not None and start.get(key) != to:
                found += self._frames(key, files, start.get(key, {}), to, damage)
                found += self._from_slab(key, files, start.get(key, {}), to)
        return found, damage

    # the end of the rows that are complete

    def _list(self) -> None:
        self._without_header.clear()
        fresh: list[tuple[Any, str, dict[str, Any]]] = []
        for path in self._paths:
            for name in files_at(path):
                if name in self._seen:
                    continue
                header = header_of(name)
                if header is None:
                    self._without_header.add(_run_of(name))
                    continue
                self._seen.add(name)
                fresh.append(((*order_of_boots(Run.of(header)), header.get("n", 0)), name, header))
        for _, name, header in sorted(fresh, key=lambda each: each[:2]):
            key = f"{header['run']}-{header['node']}-{header['pid']}"
            files = self.runs.get(key)
            if files is None:
                run = Run.of(header)
                run.branch = branch_of(run, [files.run for files in self.runs.values()])
                files = self.runs[key] = RunFiles(run)
            if name.endswith(SLAB_SUFFIX):
                files.has_two_slabs = files.slab is not None
                files.slab = files.slab or SlabReader(name)
            else:
                known = files.segments.setdefault(header["n"], name)
                if not _begin_alike(name, known):
                    files.run.contradicted = name
                elif os.path.getsize(name) > os.path.getsize(known):
                    files.segments[header["n"]] = name
                files.run.events |= header["events"]

    def _run(self, key: str, files: RunFiles, start: Place) -> Place:
        files.run.closed = files.run.closed or start.get("closed", False)
        read: dict[str, int] = dict(start.get("files", {}))
        latest: int = start["t"]
        rows: dict[int, tuple[int, int]] = {
            int(actor): (lo, hi) for actor, (lo, hi) in start.get("rows", {}).items()
        }
        for number in sorted(files.segments):
            if number <= read.get(_READ, 0):
                continue
            at = read.get(str(number), 0)
            for frame in self._new_frames(files, number, at, None):
                at = frame.end
                if frame.kind == Kind.ROWS:
                    actor, last = frame.who >> 16, frame.seq_first + frame.rows - 1
                    lo, hi = rows.get(actor, (1, 0))
                    rows[actor] = max(lo, last + 1), max(hi, last)
                    latest = max(latest, frame.t_last)
            if at:
                read[str(number)] = at
        while (nth := read.get(_READ, 0) + 1) in files.finished:
            read[_READ] = nth
            read.pop(str(nth), None)
        read_before: int = start.get("files", {}).get(_READ, 0)
        slab = files.slab.rows if files.slab is not None else {}
        for actor, pieces in slab.items():
            last_piece = max(pieces, key=max)
            lo, hi = rows.get(actor) or (min(map(min, pieces)), 0)
            last = max(last_piece)
            rows[actor] = lo, max(hi, last)
            latest = max(latest, ROW.unpack(last_piece[last])[0])
        was = start.get("rows", {})
        return {
            "n": start["n"],
            "of": files.run.of_directory,
            "t": latest,
            "settled": start["t"],
            "actors": max(files.run.actors, default=0),
            "closed": files.run.closed,
            "lossy": (files.slab is not None and files.slab.lossy) or start.get("lossy", False),
            "damaged": files.damaged or start.get("damaged", False),
            "missing": files.lacks_parts(read_before) or key in self._without_header,
            "ended": start.get("ended", False) if 0 < files.last <= read_before else files.can_have_ended,
            "files": read,
            "rows": {
                str(actor): [lo, hi]
                for actor, (lo, hi) in sorted(rows.items())
                # Just moved: the slab may not be emptied yet.
                if lo <= hi or actor in slab or was.get(str(actor)) != [lo, hi]
            },
        }

    def _new_frames(
        self, files: RunFiles, number: int, begin: int, end: int | None, damage: list[Damage] | None = None
    ) -> Iterator[Frame]:
        """Whole frames of a segment from `begin` up to `end`; the names before them are read on the way."""
        mapped = _mapped(files.segments[number])
        if mapped is None:
            return
        try:
            data = memoryview(mapped)
            head = decode_header(data)
            if head is None:
                return
            named = files.named_to.get(number, 0)
            if not named:
                _take_header(files.run, head[0])
                files.named_to[number] = head[1]
            files.sizes[number] = len(data)
            at = min(max(named, head[1]), max(begin, head[1]))
            while (end is None or at < end) and (frame := next_frame(data, at)) is not None:
                if end is not None and frame.offset >= end:
                    return
                if frame.offset >= named:
                    files.damaged |= frame.offset > at
                    _take_names(files, number, frame)
                if frame.offset >= begin:
                    if damage is not None and frame.offset > at:
                        damage.append(Damage(files.segments[number], at, frame.offset - at, at_end=False))
                    yield frame
                at = frame.end
        finally:
            _close(mapped)

    # the rows between two places

    def _frames(
        self, key: str, files: RunFiles, start: Place, end: Place, damage: list[Damage]
    ) -> Iterator[Part]:
        taken = start.get("rows", {})
        for number, name in sorted(files.segments.items()):
            begin, to = _range(number, start, end)
            if to is not None and begin >= to:
                continue
            for frame in self._new_frames(files, number, begin, to, damage):
                if frame.kind != Kind.ROWS:
                    continue
                actor, first, last = frame.who >> 16, frame.seq_first, frame.seq_first + frame.rows
                lo, hi = taken.get(str(actor), (1, 0))
                for seq, stop in (
                    ((first, min(last, lo)), (max(first, hi + 1), last)) if lo <= hi else ((first, last),)
                ):
                    if seq < stop:
                        yield Part(key, actor, seq, stop, name, frame.offset)

    def _from_slab(self, key: str, files: RunFiles, start: Place, end: Place) -> Iterator[Part]:
        before = start.get("rows", {})
        wanted = {}
        for actor, (lo, hi) in end.get("rows", {}).items():
            first = max(lo, before.get(actor, (1, 0))[1] + 1)
            if first <= hi:
                wanted[int(actor)] = first, hi + 1
        if not wanted:
            return
        found = {actor: _rows_in_slab(files, actor, *ends) for actor, ends in wanted.items()}
        if any(len(found[actor]) < stop - first for actor, (first, stop) in wanted.items()):
            self._read_again(files, end, wanted, found)  # an earlier place, or one of another process
        for actor, rows in found.items():
            for seqs in _stretches(rows):
                raw = b"".join(rows[seq] for seq in seqs)
                yield Part(key, actor, seqs[0], seqs[-1] + 1, raw=raw)

    def _read_again(
        self,
        files: RunFiles,
        end: Place,
        wanted: dict[int, tuple[int, int]],
        found: dict[int, dict[int, bytes]],
    ) -> None:
        """Look for rows that a slab held at a place: they are still there, or in a segment."""
        if files.slab is not None:
            files.slab.look()  # before the segments: rows that have left the slab are there by now
        for actor, (first, stop) in wanted.items():
            found[actor] |= _rows_in_slab(files, actor, first, stop)
        for number in sorted(files.segments):
            _, to = _range(number, {}, end)
            if to is None:
                continue
            for frame in self._new_frames(files, number, to, None):
                if frame.kind == Kind.ROWS and (actor := frame.who >> 16) in wanted:
                    first, stop = wanted[actor]
                    for row in zip(*decode_columns(frame), strict=True):
                        if first <= row[1] < stop:
                            found[actor].setdefault(row[1], ROW.pack(*row))


def read_parts(parts: Iterable[Part], numbers: dict[str, int]) -> Iterator[tuple[Chunk, list[memoryview]]]:
    """The rows themselves, as pieces; `numbers` says which index a run has."""
    opened: tuple[str, mmap.mmap | None] = "", None
    try:
        for part in parts:
            if part.raw:
                columns = raw_columns(part.raw)
            else:
                if opened[0] != part.file:
                    _close(opened[1])
                    opened = part.file, _mapped(part.file)
                if opened[1] is None:
                    continue
                frame = next_frame(memoryview(opened[1]), part.offset)
                assert frame is not None, "a place names only frames that were whole"
                skip = part.seq_first - frame.seq_first
                columns = [
                    column[skip : skip + part.seq_end - part.seq_first] for column in decode_columns(frame)
                ]
                frame.payload.release()
            yield _chunk(part, numbers[part.run], columns), columns
    finally:
        _close(opened[1])


def _chunk(part: Part, run: int, columns: Sequence[memoryview]) -> Chunk:
    t, who = columns[0], columns[8]
    return Chunk(
        run, part.actor, columns[1][0], len(t), t[0], t[-1], who[-1], part.file, part.offset, part.raw
    )


def _close(mapped: mmap.mmap | None) -> None:
    if mapped is not None:
        try:
            mapped.close()
        except BufferError:
            pass  # a memoryview of the bytes is still in use


def _range(number: int, start: Place, end: Place) -> tuple[int, int | None]:
    """The offsets of the rows between two places in a segment; None = at its end."""
    before, after = start.get("files", {}), end.get("files", {})
    if number <= before.get(_READ, 0):
        return 0, 0
    begin = before.get(str(number), 0)
    return begin, (None if number <= after.get(_READ, 0) else after.get(str(number), begin))


def _stretches(rows: Iterable[int]) -> Iterator[list[int]]:
    """The seqs in stretches without a gap: a damaged slab has holes."""
    for _, group in groupby(enumerate(sorted(rows)), key=lambda each: each[1] - each[0]):
        yield [seq for _, seq in group]


def _rows_in_slab(files: RunFiles, actor: int, first: int, stop: int) -> dict[int, bytes]:
    """An actor's rows with first <= seq < stop, as of the last look at its slab."""
    pieces = files.slab.rows.get(actor, ()) if files.slab is not None else ()
    return {seq: raw for piece in pieces for seq, raw in piece.items() if first <= seq < stop}


def _take_header(run: Run, header: dict[str, Any]) -> None:
    for actor, entry in header["actors"].items():
        run.actors.setdefault(actor, ActorEntry(*entry))
    run.kinds.update(header["kinds"])
    run.texts.update(header.get("texts", {}))


def _take_names(files: RunFiles, number: int, frame: Frame) -> None:
    """Take names and the end of a segment from a frame."""
    files.named_to[number] = frame.end
    if frame.kind != Kind.FOOTER:
        files.counted[number] = files.counted.get(number, 0) + frame.rows
        files.frames[number] = files.frames.get(number, 0) + 1
    if frame.kind == Kind.FOOTER:
        files.finished.add(number)
        footer = decode_map(frame)
        files.run.closed = files.run.closed or bool(footer["closed"])
        files.damaged |= not is_whole(footer, files.frames.get(number, 0), files.counted.get(number, 0))
    elif frame.kind == Kind.META:
        take_names(frame, files.run)


def files_at(path: str) -> list[str]:
    """The files of a path or a pattern; none if it is not there yet, because the broker has not begun."""
    files: list[str] = []
    for each in named_by(path):
        if os.path.isdir(each):
            files += names_in(each)
        elif os.path.exists(each):
            files.append(each)
    return files


def _begin_alike(one: str, other: str) -> bool:
    """True if one of two files, which may be the same one, holds all of the other, as far as both can be read."""
    mapped = [each for each in (_mapped(one), _mapped(other)) if one != other and each is not None]
    try:
        shorter = min(map(len, mapped), default=0)
        return len({each[:shorter] for each in mapped}) < 2
    finally:
        for each in mapped:
            each.close()


def _run_of(name: str) -> str:
    """The run, node and pid that a file's name says."""
    stem, suffix = os.path.splitext(os.path.basename(name))
    return stem if suffix == SLAB_SUFFIX else stem.rpartition("-")[0]


def _mapped(name: str) -> mmap.mmap | None:
    """Map a file read-only; None if it was deleted or emptied, as gaps in the row numbers will show what is missing."""
    try:
        with opened_file(name) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
