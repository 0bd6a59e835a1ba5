"""The index of one trace file: its header, names, frames and damage, without its rows.

`index_file` is a pure function of the bytes, so a cluster can run it on each file and send the small result
to one place (catalog.py).  It never raises on damage: unreadable stretches are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from warrenmq.trace.block import ROW, Frame, Kind, decode_columns, decode_map, next_frame
from warrenmq.trace.events import Ev
from warrenmq.trace.receives import last_sends_named
from warrenmq.trace.schema import Row
from warrenmq.trace.segment import decode_header
from warrenmq.trace.slab import SLAB_SUFFIX, Progress, read_slabs

__all__ = [
    "BROKER", "NO_HEADER", "ActorEntry", "Damage", "FileIndex", "FrameEntry", "Row", "index_file", "raw_rows", "rows_of", "run_starts",
]  # fmt: skip

BROKER = "broker"
"""The actor kind that writes RUN_START and RUN_END."""


class ActorEntry(NamedTuple):
    """An actor as its run registered it."""

    name: str
    kind: str
    parent: int


class FrameEntry(NamedTuple):
    """The place of consecutive rows of one actor in a file."""

    offset: int
    seq_first: int
    rows: int
    t_first: int
    t_last: int
    who: int
    """The actor of the last row."""


def joined(frames: Iterable[FrameEntry]) -> list[FrameEntry]:
    """Join frames whose rows follow each other; enough for a catalogue from which no frame is looked up."""
    found: list[FrameEntry] = []
    last: dict[int, int] = {}
    for frame in frames:
        actor = frame.who >> 16
        before = found[last[actor]] if actor in last else None
        if (
            before is not None
            and frame.seq_first == before.seq_first + before.rows
            and frame.t_first > before.t_last
        ):
            found[last[actor]] = FrameEntry(
                before.offset,
                before.seq_first,
                before.rows + frame.rows,
                before.t_first,
                frame.t_last,
                frame.who,
            )
        else:
            last[actor] = len(found)
            found.append(frame)
    return found


class Damage(NamedTuple):
    """A stretch of bytes that is not a whole frame."""

    file: str
    offset: int
    size: int
    at_end: bool
    """True if nothing whole follows: a torn tail."""


@dataclass(slots=True)
class FileIndex:
    """The contents of one segment or slab file."""

    name: str
    header: dict[str, Any] | None
    """None if nothing of the file can be read; then the rest is empty."""
    size: int = 0
    unread: str = ""
    """Why nothing of it can be read; empty if it has a header."""
    actors: dict[int, ActorEntry] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    frames: list[FrameEntry] = field(default_factory=list)
    starts: list[Row] = field(default_factory=list)
    """RUN_START rows, which name the boot."""
    damage: list[Damage] = field(default_factory=list)
    counted: int = 0
    """Frames of any kind before the footer."""
    last_frame: tuple[int, int, int] = (0, 0, 0)
    """The last of them: its offset, and the actor and number of its last row, 0 if it names something."""
    footer: dict[str, Any] | None = None
    slabs: dict[int, bytes] | None = None
    """The rows of a slab file, by actor."""
    named: dict[int, int] = field(default_factory=dict)
    """Each sender, with the last of its SENDs that these rows name."""
    torn_rows: int = 0
    lossy: bool = False
    progress: Progress | None = None
    """The place up to which the segment files were written, at least; of a slab file only."""


NO_HEADER = "it does not begin with a whole header of a trace"


def index_file(name: str, data: memoryview) -> FileIndex:
    """Index the bytes of a file; its name says only whether it is a slab file."""
    return _index_slabs(name, data) if name.endswith(SLAB_SUFFIX) else _index_segment(name, data)


def unread_file(name: str, why: str, size: int = 0) -> FileIndex:
    """The index of a file of which nothing can be read."""
    return FileIndex(name, None, size, why, damage=[Damage(name, 0, size, at_end=True)])


def _index_slabs(name: str, data: memoryview) -> FileIndex:
    content = read_slabs(data)
    if content is None:
        return unread_file(name, NO_HEADER, len(data))
    return FileIndex(
        name, content.header, len(data), slabs=content.rows, named=last_sends_named(content.rows),
        torn_rows=content.torn, lossy=content.lossy,
        damage=[Damage(name, at, size, at_end=False) for at, size in _stretches(content.bad)], progress=content.progress,
    )  # fmt: skip


def _stretches(places: list[int]) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of rows that follow each other."""
    begin = end = 0
    for at in places:
        if at != end:
            if end:
                yield begin, end - begin
            begin = at
        end = at + ROW.size
    if end:
        yield begin, end - begin


def _index_segment(name: str, data: memoryview) -> FileIndex:
    head = decode_header(data)
    if head is None:
        return unread_file(name, NO_HEADER, len(data))
    header, offset = head
    index = FileIndex(name, header, len(data))
    index.actors = {actor: ActorEntry(*entry) for actor, entry in header["actors"].items()}
    index.kinds = dict(header["kinds"])
    index.texts = dict(header.get("texts", {}))
    while offset < len(data):
        frame = next_frame(data, offset)
        if frame is None:
            index.damage.append(Damage(name, offset, len(data) - offset, at_end=True))
            break
        if frame.offset > offset:
            index.damage.append(Damage(name, offset, frame.offset - offset, at_end=False))
        _take(index, frame)
        offset = frame.end
    return index


def _take(index: FileIndex, frame: Frame) -> None:
    if frame.kind != Kind.FOOTER:
        index.counted += 1
        index.last_frame = (frame.offset, 0, 0)
    if frame.kind == Kind.ROWS:
        index.last_frame = (frame.offset, frame.who >> 16, frame.seq_first + frame.rows - 1)
        index.frames.append(
            FrameEntry(frame.offset, frame.seq_first, frame.rows, frame.t_first, frame.t_last, frame.who)
        )
        entry = index.actors.get(frame.who >> 16)
        if entry is not None and entry.kind == BROKER:
            index.starts += run_starts(decode_columns(frame))
    elif frame.kind == Kind.META:
        take_names(frame, index)
    elif frame.kind == Kind.FOOTER:
        index.footer = decode_map(frame)


class Named(Protocol):
    """The names that a file registers: of actors, of message kinds, and texts, by their numbers."""

    actors: dict[int, ActorEntry]
    kinds: dict[int, str]
    texts: dict[int, str]


def take_names(frame: Frame, named: Named) -> None:
    """Add the actor, the message kind or the text that a META frame registers."""
    meta = decode_map(frame)
    if "actor" in meta:
        actor, *entry = meta["actor"]
        named.actors[actor] = ActorEntry(*entry)
    if "kind" in meta:
        number, kind = meta["kind"]
        named.kinds[number] = kind
    if "text" in meta:
        number, text = meta["text"]
        named.texts[number] = text


def run_starts(columns: list[memoryview]) -> list[Row]:
    """The RUN_START rows among these."""
    return [row for row in rows_of(columns) if row.event == Ev.RUN_START]


class Integers(Protocol):
    """A column: a memoryview, or an array."""

    def tolist(self) -> list[int]: ...


_as_row: Callable[[Iterable[int]], Row] = partial(tuple.__new__, Row)
"""Row._make costs three times as much."""


def rows_of(columns: Sequence[Integers]) -> list[Row]:
    """Columns as rows."""
    return list(map(_as_row, zip(*[column.tolist() for column in columns], strict=True)))


def raw_rows(raw: bytes) -> list[Row]:
    """Rows as they are in a slab, without their checks."""
    return list(map(_as_row, ROW.iter_unpack(raw)))
