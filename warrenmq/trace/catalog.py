"""The catalogue of a trace: its runs, its actors, the pieces of their rows, and which rows are missing.

An actor numbers its rows from 1 without a gap, so the pieces that are there show the ones that are not:

    first row missing       the first piece does not begin with seq 1
    rows missing between    seq jumps from one piece to the next
    last row unknown        nothing proves that the last piece is the last one

The last row is known when it is an ACTOR_STOP, when it stands in the run's slab file (always the latest rows), or when
the run's files are whole: numbered without a gap, undamaged, ended by the footer of a clean close or, after a kill,
beside a slab file that lost nothing.

`known_until` turns this into a time: every row of the actor up to that t is here.  Missing rows are all
later, so a rule's decision on rows up to then stands, and the rest is indeterminate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, NamedTuple, Self

from warrenmq.trace.block import ROW, Frame, raw_columns
from warrenmq.trace.events import SCHEMA_VERSION, Ev
from warrenmq.trace.index import BROKER, ActorEntry, Damage, FileIndex, FrameEntry, Row, run_starts
from warrenmq.trace.slab import NOTHING, Progress

FOREVER = (1 << 63) - 1
NEVER = -(1 << 63)
GAPS = 100
"""So many gaps of an actor are kept one by one; all are counted."""
STRANGER = 0
"""Stands for actors of a run that may have registered in files that are missing; it has a Coverage only where
that is possible.
"""


class Chunk(NamedTuple):
    """A piece: consecutive rows of one actor in one file."""

    run: int
    """Index in Catalog.runs."""
    actor: int
    seq_first: int
    rows: int
    t_first: int
    t_last: int
    who: int
    """The actor of the last row."""
    file: str
    offset: int
    """The frame's offset in the file; -1 when the rows came from a slab."""
    raw: bytes = b""
    """The rows themselves, of a slab."""

    @classmethod
    def of(cls, run: int, frame: Frame | FrameEntry, file: str, offset: int) -> Self:
        """The piece that is a frame of a file."""
        return cls(run, frame.who >> 16, frame.seq_first, frame.rows, frame.t_first, frame.t_last, frame.who, file, offset)  # fmt: skip

    @property
    def seq_end(self) -> int:
        """One past the last seq."""
        return self.seq_first + self.rows

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: an actor's pieces in the order of its rows."""
        return self.run, self.actor, self.seq_first


@dataclass(slots=True)
class Run:
    """One run of a broker: from open to close or kill."""

    name: str
    node: str
    pid: int
    boot: int
    wall_ns: int
    mono_ns: int
    version: int
    directory: str = ""
    """The id of its data directory; "" = not said, by an old trace."""
    vhost: str = ""
    machine: str = ""
    """The machine's boot; another one means that the machine was down since."""
    follows: str | None = None
    """The name of the run before, the last of its directory that was traced, "" = there was none; None = not said."""
    untraced: bool | None = None
    """The directory was open without a trace since that run; None = not said."""
    branch: int = 0
    """Above 0: a boot number of its directory came before, so the directory was copied, or restored from a copy."""
    actors: dict[int, ActorEntry] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    """Names of exchanges, keys, bindings and marks."""
    events: dict[int, str] = field(default_factory=dict)
    start: Row | None = None
    """The run's RUN_START row."""
    closed: bool = False
    """The recorder was closed, so the run was not killed."""
    whole: bool = False
    """True if no file is missing or damaged."""
    lossy: bool = False
    """The disk refused rows, or those of the slab file are not the latest."""
    has_strangers: bool = False
    """Parts are missing that may have named actors, or the run before it is."""
    contradicted: str = ""
    """A file, or of a table a row, that has the number of another one and other contents: of another run of
    this name, or a damaged copy.
    """

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Run:
        """Make a run from a file's header."""
        known = (header[key] for key in ("run", "node", "pid", "boot", "wall_ns", "mono_ns", "v"))
        run = cls(*known, *(header.get(key, "") for key in ("directory", "vhost", "machine")))
        run.follows, run.untraced = header.get("follows"), header.get("untraced")
        return run

    @property
    def scope(self) -> str:
        """The directory and virtual host of the run: names, messages and sequence ids mean the same only in
        runs that share them.
        """
        host = "" if self.vhost in {"", "/"} else f", virtual host {self.vhost}"
        copy = f", copy {self.branch + 1}" if self.branch else ""
        return f"{self.of_directory}{host}{copy}"

    @property
    def of_directory(self) -> str:
        """The data directory of the run, with all its virtual hosts; no rule looks at runs of two."""
        return f"directory {self.directory[:12]}" if self.directory else f"node {self.node}"

    @property
    def is_stillborn(self) -> bool:
        """Killed before its directory noted its name, or before any actor began: the next run may follow the
        one before it.
        """
        return self.whole and not self.closed and not self.actors

    @property
    def is_newer(self) -> bool:
        """Written by a later version of the format, in which rows may mean something else."""
        return self.version > SCHEMA_VERSION

    @property
    def why_undecidable(self) -> str:
        """The reason why no row of the run proves anything; empty if rows do."""
        if self.is_newer:
            return f"version {self.version} of the format is not known here"
        if self.contradicted:
            name = self.contradicted.rpartition("/")[2]
            return f"{name} has the number of another one and other contents, so the rows of this run may be those of two"
        return ""

    @property
    def why_strangers(self) -> str:
        """The reason why there may have been actors of whom nothing is known, if there may."""
        missing = (
            "its directory was open without a trace before it"
            if self.whole and self.untraced
            else "parts of it, or the run before it, are missing"
        )
        return f"{missing}: there may have been actors of whom nothing is known"

    def actor_name(self, actor: int) -> str:
        entry = self.actors.get(actor)
        return entry.name if entry is not None else f"?{actor}"

    def event_name(self, event: int) -> str:
        """The name of an event, "?<number>" when this version does not know it."""
        return Ev(event).name if event in Ev._value2member_map_ else f"?{event}"


@dataclass(slots=True)
class Coverage:
    """The rows of one actor that are present."""

    run: int
    actor: int
    last_seq: int = 0
    rows: int = 0
    missing: list[tuple[int, int]] = field(default_factory=list)
    """The first gaps, as (first seq, last seq)."""
    gaps: int = 0
    missing_rows: int = 0
    """The number of missing rows in all gaps."""
    stopped: bool = False
    """True if its last row is ACTOR_STOP."""
    end_known: bool = False
    """True if no row can follow the last one."""
    known_until: int = NEVER
    """The t up to which no row is missing; FOREVER if none is at all."""
    t_first: int = 0
    t_last: int = 0

    @property
    def complete(self) -> bool:
        return self.known_until == FOREVER

    def add(self, piece: Chunk) -> bool:
        """Add the next piece, in the order of first seqs; False if it repeats rows, or its t is not later."""
        expected = self.last_seq + 1
        follows = not self.rows or (piece.seq_first >= expected and piece.t_first > self.t_last)
        if piece.seq_first > expected:
            if not self.gaps:
                self.known_until = self.t_last if self.rows else NEVER
            self.gaps += 1
            self.missing_rows += piece.seq_first - expected
            if len(self.missing) < GAPS:
                self.missing.append((expected, piece.seq_first - 1))
        if not self.rows:
            self.t_first = piece.t_first
        self.rows += piece.rows
        self.last_seq, self.t_last = piece.seq_end - 1, piece.t_last
        self.stopped = piece.who >> 8 & 0xFF == Ev.ACTOR_STOP
        return follows

    def close(self, run: Run, *, at_end: bool) -> None:
        """Note that all pieces were added; `at_end` = no row can follow the last one."""
        self.end_known = run.whole or self.stopped or at_end
        if run.why_undecidable:
            self.known_until = NEVER
        elif not self.gaps and self.end_known:
            self.known_until = FOREVER
        elif not self.gaps and self.rows:
            self.known_until = self.t_last


@dataclass(slots=True)
class Catalog:
    """All runs of a trace in the order of their boots, all pieces in an order in which an actor's seq rises."""

    runs: list[Run]
    chunks: list[Chunk]
    coverage: dict[tuple[int, int], Coverage]
    damage: list[Damage]
    torn_rows: int
    overlaps: list[tuple[Chunk, Chunk]]
    """Pieces of one actor that repeat a seq, or whose t does not rise from one to the next."""
    files: list[str] = field(default_factory=list)
    """Names of all files that were looked at."""
    unread: dict[str, str] = field(default_factory=dict)
    """Files of which nothing can be read, and why: any run may have had rows there."""
    copies: list[tuple[str, str]] = field(default_factory=list)
    """(file that was left out, the one that holds all of it): the same file under two names, or an earlier copy of it."""
    counts_once: bool = False
    """Rows of a table that were there twice were counted once."""

    @property
    def rows(self) -> int:
        """The number of rows of all actors."""
        return sum(coverage.rows for coverage in self.coverage.values())


def build_catalog(indexes: Iterable[FileIndex]) -> Catalog:
    """Combine the files of a trace; of those without a readable header only the names are kept."""
    groups: dict[tuple[str, str, int], list[FileIndex]] = {}
    damage: list[Damage] = []
    names: list[str] = []
    unread: dict[str, str] = {}
    for index in sorted(indexes, key=attrgetter("name")):
        names.append(index.name)
        damage += index.damage
        if index.header is None:
            unread[index.name] = index.unread
        else:
            key = (index.header["run"], index.header["node"], index.header["pid"])
            groups.setdefault(key, []).append(index)
    copies: list[tuple[str, str]] = []
    gathered = [
        (_run(files), files) for files in (_without_copies(files, copies) for files in groups.values())
    ]
    left_out = {name for name, _ in copies}
    damage = [found for found in damage if found.file not in left_out]
    gathered.sort(key=lambda pair: order_of_boots(pair[0]))
    catalog = Catalog([run for run, _ in gathered], [], {}, damage, 0, [], names, unread, copies)
    find_missing_runs(catalog.runs)
    find_lost_pages(catalog.runs)
    for number, (run, files) in enumerate(gathered):
        catalog.torn_rows += sum(file.torn_rows for file in files)
        chunks = _chunks(number, files)
        catalog.chunks += chunks
        _cover(catalog, number, run, chunks)
    return catalog


def _without_copies(files: list[FileIndex], copies: list[tuple[str, str]]) -> list[FileIndex]:
    """Drop files of a run that are a copy of another file, or of its beginning; files of one number that differ all stay."""
    kept: list[FileIndex] = []
    for file in sorted(files, key=_extent, reverse=True):
        whole = next((other for other in kept if _is_copy(file, other)), None)
        if whole is None:
            kept.append(file)
        else:
            copies.append((file.name, whole.name))
    return [file for file in files if file in kept]


def _extent(file: FileIndex) -> tuple[tuple[int, ...], int, bool]:
    """Sort key: how much a file holds; of equal files the one that has kept its name is the largest."""
    header = file.header or {}
    has_its_name = f"{header['run']}-{header['node']}-{header['pid']}" == _stem(file)
    if file.slabs is None:
        return (len(file.frames),), file.size, has_its_name
    rows = sum(ROW.unpack_from(raw, len(raw) - ROW.size)[1] for raw in file.slabs.values() if raw)
    return file.progress or NOTHING, rows, has_its_name


def _stem(file: FileIndex) -> str:
    name = file.name.rpartition("/")[2].rpartition(".")[0]
    return name if file.slabs is not None else name.rpartition("-")[0]


def _is_copy(file: FileIndex, other: FileIndex) -> bool:
    """True if the other file holds everything in this one; of a run's slab files only the latest state
    counts, unless they differ in a row.
    """
    if file.slabs is not None or other.slabs is not None:
        both = file.slabs is not None and other.slabs is not None
        return both and not _has_other_rows(file.slabs or {}, other.slabs or {})
    same_names = all(
        mine.items() <= its.items()
        for mine, its in ((file.actors, other.actors), (file.kinds, other.kinds), (file.texts, other.texts))
    )
    same_number = _file_number(file) == _file_number(other)
    return same_number and same_names and file.frames == other.frames[: len(file.frames)]


def _has_other_rows(slabs: Mapping[int, bytes], others: Mapping[int, bytes]) -> bool:
    """True if an actor has two rows of one number in these slabs."""
    for actor, raw in slabs.items():
        its = {row[1]: row for row in ROW.iter_unpack(others.get(actor, b""))}
        if any(row != its.get(row[1], row) for row in ROW.iter_unpack(raw)):
            return True
    return False


def _segments(files: list[FileIndex]) -> list[FileIndex]:
    return sorted((file for file in files if file.slabs is None), key=_file_number)


def _file_number(file: FileIndex) -> int:
    number: int = (file.header or {}).get("n", 0)
    return number


def _run(files: list[FileIndex]) -> Run:
    segments = _segments(files)
    slabs = [file for file in files if file.slabs is not None]
    header: dict[str, Any] = (segments or slabs)[0].header or {}
    run = Run.of(header)
    run.version = max((file.header or {})["v"] for file in files)
    for file in segments:
        run.actors |= file.actors
        run.kinds |= file.kinds
        run.texts |= file.texts
        run.events |= (file.header or {})["events"]
    starts = [row for file in segments for row in file.starts]
    for file in slabs:
        for actor, raw in (file.slabs or {}).items():
            if run.actors.get(actor, ActorEntry("", "", 0)).kind == BROKER:
                starts += run_starts(raw_columns(raw))
    if starts:
        run.start = starts[0]
        run.boot = starts[0][5]
    last = segments[-1].footer if segments else None
    run.closed = last is not None and bool(last["closed"])
    run.lossy = any(file.lossy for file in slabs) or (not run.closed and _is_of_many_moments(slabs, segments))
    # A torn tail counts, too: the slab file has the rows that were being written, but other actors' rows may
    # have been in that frame.
    damaged = any(file.damage for file in segments) or any(file.footer is None for file in segments[:-1])
    damaged = damaged or any(
        not is_whole(file.footer, file.counted, sum(frame.rows for frame in file.frames))
        for file in segments
        if file.footer is not None
    )
    numbers = [_file_number(file) for file in segments]
    numbered = numbers == list(range(1, len(segments) + 1))
    twice = [
        later.name for earlier, later in pairwise(segments) if _file_number(earlier) == _file_number(later)
    ]
    run.contradicted = next(iter([*twice, *(file.name for file in slabs[1:])]), "")
    last_file = _file_number(segments[-1]) if segments else 0
    # A file whose end was written is followed by another one, unless the process was killed before it began it.
    ended = run.closed or any(
        (last is None and bool(segments))
        or (file.progress is not None and file.progress.segment == last_file)
        for file in slabs
    )
    size, rows = (segments[-1].size, sum(frame.rows for frame in segments[-1].frames)) if segments else (0, 0)
    cut = any(
        file.progress is not None and not reaches(file.progress, last_file, size, rows) for file in slabs
    )
    run.whole = numbered and ended and not damaged and not run.lossy and not cut
    # A filtered trace lists all its actors.
    run.has_strangers = not run.whole and not header.get("filtered", False)
    return run


def is_whole(footer: Mapping[str, Any], frames: int, rows: int) -> bool:
    """True if a segment file has as many frames and rows as its footer says; a frame without rows names something."""
    return bool(footer["frames"] == frames and footer["rows"] == rows)


def reaches(written: Progress, segment: int, size: int, rows: int) -> bool:
    """True if the last segment file, which has this number, holds as much as had been written when the slab file said so."""
    if segment != written.segment:
        return segment > written.segment
    return size >= written.size and rows >= written.rows


def _is_of_many_moments(slabs: Sequence[FileIndex], segments: Sequence[FileIndex]) -> bool:
    """True if the files were copied one after the other, or page by page, while they were written, so that the rows in
    the slab files are not the latest.
    """
    if any(_is_behind(slab, segment) for slab in slabs for segment in segments):
        return True
    last: dict[int, int] = {}
    for file in segments:
        for _, seq_first, rows, _, _, who in file.frames:
            _note_last(last, who, seq_first + rows - 1)
    for file in slabs:
        for raw in (file.slabs or {}).values():
            row = _last_row(raw)
            _note_last(last, row[-1], row[1])
    # a SEND is written before the row of its receive
    return any(send > last.get(sender, 0) for file in slabs for sender, send in file.named.items())


def _is_behind(slab: FileIndex, segment: FileIndex) -> bool:
    """True if a segment has more than the one frame that is written before the slab file says so, and before its rows
    are taken out of the slab.
    """
    if slab.progress is None or not segment.counted:
        return False
    offset, actor, seq = segment.last_frame
    place, said = (_file_number(segment), offset), (slab.progress.segment, slab.progress.size)
    raw = (slab.slabs or {}).get(actor)
    kept = _last_row(raw)[1] if raw else 0
    return place > said or (place == said and seq > kept)


def _last_row(raw: bytes) -> tuple[int, ...]:
    """The last row of a slab."""
    return ROW.unpack_from(raw, len(raw) - ROW.size)


def _note_last(last: dict[int, int], who: int, seq: int) -> None:
    """Note a row that may be its actor's last; of an actor that stopped none is missing."""
    seq = FOREVER if who >> 8 & 0xFF == Ev.ACTOR_STOP else seq
    last[who >> 16] = max(seq, last.get(who >> 16, 0))


def _chunks(run: int, files: list[FileIndex]) -> list[Chunk]:
    chunks = []
    last: dict[int, int] = {}
    for file in _segments(files):
        for offset, seq, rows, t_first, t_last, who in file.frames:
            actor = who >> 16
            chunks.append(Chunk(run, actor, seq, rows, t_first, t_last, who, file.name, offset))
            last[actor] = max(last.get(actor, 0), seq + rows - 1)
    for file in files:
        for actor, raw in (file.slabs or {}).items():
            chunks += _slab_chunks(run, actor, raw, last.get(actor, 0), file.name)
    return chunks


def _slab_chunks(run: int, actor: int, raw: bytes, stored: int, file: str) -> list[Chunk]:
    """Pieces of consecutive rows; those with seq <= `stored` are in a segment too and left out."""
    numbers = [row[1] for row in ROW.iter_unpack(raw)]
    if numbers and numbers[0] > stored and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return [_slab_chunk(run, actor, numbers[0], raw, file)]
    rows = [(at * ROW.size, seq) for at, seq in enumerate(numbers) if seq > stored]
    chunks = []
    begin = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i][1] != rows[i - 1][1] + 1:
            piece = raw[rows[begin][0] : rows[i - 1][0] + ROW.size]
            chunks.append(_slab_chunk(run, actor, rows[begin][1], piece, file))
            begin = i
    return chunks


def _slab_chunk(run: int, actor: int, seq_first: int, raw: bytes, file: str) -> Chunk:
    t_first = ROW.unpack_from(raw, 0)[0]
    t_last, *_, who = ROW.unpack_from(raw, len(raw) - ROW.size)
    return Chunk(run, actor, seq_first, len(raw) // ROW.size, t_first, t_last, who, file, -1, raw)


def _cover(catalog: Catalog, number: int, run: Run, chunks: list[Chunk]) -> None:
    if run.has_strangers:
        catalog.coverage[number, STRANGER] = Coverage(number, STRANGER)
    by_actor: dict[int, list[Chunk]] = {actor: [] for actor in run.actors}
    for chunk in chunks:
        by_actor.setdefault(chunk.actor, []).append(chunk)
    for actor, pieces in by_actor.items():
        pieces.sort(key=attrgetter("seq_first"))
        coverage = catalog.coverage[number, actor] = Coverage(number, actor)
        previous: Chunk | None = None
        for piece in pieces:
            if not coverage.add(piece) and previous is not None:
                catalog.overlaps.append((previous, piece))
            previous = piece
        in_slab = previous is not None and previous.offset < 0 and not run.lossy
        coverage.close(run, at_end=in_slab)


def order_of_boots(run: Run) -> tuple[str, str, int, int, str, int]:
    """Sort key: the runs of each directory in the order of its boots, whatever the wall clock said."""
    return run.directory, run.node, run.boot, run.wall_ns, run.name, run.pid


def find_missing_runs(runs: Sequence[Run]) -> None:
    """Number the copies of each directory, and mark runs whose predecessor is missing."""
    met: Counter[tuple[str, str, int]] = Counter()
    for run in runs:
        if run.boot:
            boot = run.directory, run.node, run.boot
            run.branch = met[boot]
            met[boot] += 1
    mark_missing_runs(runs)


def mark_missing_runs(runs: Sequence[Run]) -> None:
    """Mark runs whose predecessor is missing or ambiguous: a boot number is absent, unknown, or there twice,
    or it is another run.

    A directory counts its boots, also those that were killed before their traces began, or before the
    directory noted them; after a number that comes a second time the order of runs is unknown.  Old traces do
    not name their directories: all their runs count as runs of one.
    """
    for _, group in groupby(runs, key=lambda run: (run.directory, run.node)):
        its = list(group)
        boots = Counter(run.boot for run in its)
        forked = False
        before: set[str] = set()
        for run in its:
            if run.boot:
                forked = forked or boots[run.boot] > 1 or run.branch > 0
            forked = forked or (bool(before) and run.follows not in {None, *before})
            unknown = not run.boot and len(its) > 1
            # boots between the two were killed as they began
            is_next = run.follows in before and run.untraced is False
            if unknown or forked or (run.boot > its[0].boot and not boots[run.boot - 1] and not is_next):
                run.has_strangers = True
            before = {run.name, *(before if run.is_stillborn else ())}


def find_lost_pages(runs: Sequence[Run]) -> None:
    """Mark killed runs after which the machine was started again: pages in the kernel's memory may be lost
    without a sign of it.
    """
    for place, run in enumerate(runs):
        machines = {later.machine for later in runs[place + 1 :] if later.directory == run.directory}
        if not run.closed and run.machine and not machines <= {run.machine, ""}:
            run.lossy = run.has_strangers = True
            run.whole = False


def branch_of(run: Run, earlier: Sequence[Run]) -> int:
    """The number of the copy of its directory that a run belongs to, judged by the earlier runs.

    After a boot number that came twice, or after a later one, each run counts as a copy of its own, since its
    predecessor is unknown.
    """
    its = [each for each in earlier if run.directory and each.directory == run.directory]
    return len(its) if any(each.branch or each.boot >= run.boot > 0 for each in its) else 0
