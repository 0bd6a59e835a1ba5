"""Writes trace files from rows given by a test, whatever they say: what the recorder would never write, too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.old_frames import encode_rows
from warrenmq.trace.block import ROW, encode_footer
from warrenmq.trace.events import SCHEMA_VERSION, Ev
from warrenmq.trace.schema import COLUMNS
from warrenmq.trace.segment import encode_header
from warrenmq.trace.slab import CHUNK_BYTES, HEAD_BYTES, slab_header

Row = list[int]
"""t, seq, msg, peer, pseq, a, b, c, who."""

T, SEQ, MSG, PEER, PSEQ, A, B, C, WHO = range(9)
RECEIVES = frozenset({Ev.RECV, Ev.PUBLISH, Ev.ACK, Ev.UNDELIVERED})


def event(row: Row) -> int:
    return row[WHO] >> 8 & 0xFF


def flag(row: Row) -> int:
    return row[WHO] & 0xFF


def set_flag(row: Row, value: int) -> None:
    row[WHO] = row[WHO] & ~0xFF | value


@dataclass
class Actor:
    """One incarnation and its rows."""

    id: int
    name: str
    kind: str
    parent: int
    rows: list[Row] = field(default_factory=list)
    last: int = 0
    """How many rows it wrote, whatever has become of them."""

    def find(self, wanted: int, **columns: int) -> list[Row]:
        """Rows of an event, with these columns (flag, a, b, ...)."""
        names = {name: i for i, name in enumerate(COLUMNS)}
        return [
            row
            for row in self.rows
            if event(row) == wanted
            and all(
                (flag(row) if name == "flag" else row[names[name]]) == value
                for name, value in columns.items()
            )
        ]


@dataclass
class RunRows:
    """One run: its actors, and whether it was closed or killed."""

    name: str
    boot: int
    actors: list[Actor] = field(default_factory=list)
    closed: bool = True
    directory: str = ""
    texts: dict[int, str] = field(default_factory=dict)

    def of(self, kind: str) -> list[Actor]:
        return [actor for actor in self.actors if actor.kind == kind]


def header_of(run: RunRows, number: int = 1) -> dict[str, Any]:
    """The head of a file of a run."""
    return {
        "v": SCHEMA_VERSION, "lib": "test", "run": run.name, "node": "n", "pid": 1, "boot": run.boot,
        "directory": run.directory, "wall_ns": run.boot, "mono_ns": 0, "n": number, "columns": list(COLUMNS),
        "events": {int(each): each.name for each in Ev},
        "actors": {actor.id: [actor.name, actor.kind, actor.parent] for actor in run.actors}, "kinds": {}, "texts": run.texts,
    }  # fmt: skip


def packed(rows: list[Row]) -> bytes:
    return b"".join(ROW.pack(*row) for row in rows)


def pieces(rows: list[Row], size: int) -> list[list[Row]]:
    """Rows as a recorder would have cut them: a gap in seq begins a new piece."""
    found: list[list[Row]] = []
    for row in rows:
        if not found or len(found[-1]) == size or found[-1][-1][SEQ] + 1 != row[SEQ]:
            found.append([])
        found[-1].append(row)
    return found


def write_trace(
    runs: list[RunRows], piece: int = 50, *, backwards: bool = False, a_file: int = 1 << 30
) -> dict[str, bytes]:
    """Files of a trace; of a killed run the last rows of each actor are in its slab file.

    A segment file holds `a_file` pieces at most.
    `backwards` writes the actors in the opposite order: only the order of each actor's own rows means anything.
    """
    files: dict[str, bytes] = {}
    for run in runs:
        header = header_of(run)
        frames: list[tuple[bytes, int]] = []
        slab = bytearray(slab_header(header))
        for actor in reversed(run.actors) if backwards else run.actors:
            cut = pieces(actor.rows, piece)
            if not run.closed and cut:
                slab += packed(cut.pop())
            frames += [(encode_rows(packed(together)), len(together)) for together in cut]
        if not run.closed:
            slab += bytes(-(len(slab) - HEAD_BYTES) % CHUNK_BYTES)
            files[f"{run.name}-n-1.slab"] = bytes(slab)
        groups = [frames[at : at + a_file] for at in range(0, len(frames), a_file)] or [[]]
        for number, group in enumerate(groups, 1):
            body = encode_header({**header, "n": number}) + b"".join(frame for frame, _ in group)
            last = number == len(groups)
            gone = sum(actor.last - len(actor.rows) for actor in run.actors) if last else 0
            if run.closed or not last:
                body += encode_footer(len(group), sum(n for _, n in group) + gone, closed=last)
            files[f"{run.name}-n-1-{number:06d}.wtr"] = body
    return files


def insert(
    run: RunRows, actor: Actor, at: int, what: int, flag_: int = 0, t: int = 0, **columns: int
) -> None:
    """Put a row before the actor's row `at`, and count on: later rows, and receives of their messages, are renumbered.

    Without `t` it goes halfway to the next row.
    """
    names = {name: i for i, name in enumerate(COLUMNS)}
    row = [0] * len(COLUMNS)
    before = actor.rows[at - 1][T] if at else actor.rows[0][T] - 100
    row[T] = t or (before + (actor.rows[at][T] if at < len(actor.rows) else before + 100)) // 2
    row[SEQ] = at + 1
    row[WHO] = actor.id << 16 | what << 8 | flag_
    for name, value in columns.items():
        row[names[name]] = value
    for later in actor.rows[at:]:
        later[SEQ] += 1
    for other in run.actors:
        for receive in other.rows:
            is_receive = event(receive) in RECEIVES and receive[PSEQ]
            if is_receive and (receive[PEER] or other.id) == actor.id and receive[PSEQ] > at:
                receive[PSEQ] += 1
    actor.rows.insert(at, row)
    actor.last += 1


def become(row: Row, what: int, flag_: int = 0) -> None:
    """Turn a row into one of another event, one that no rule reads closely."""
    row[WHO] = row[WHO] >> 16 << 16 | what << 8 | flag_
