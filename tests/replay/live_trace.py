"""A trace that grows on disk as time passes: at each moment the files hold the rows up to then, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from tests.support.old_frames import encode_rows
from tests.support.trace_writer import Actor, Row, RunRows, T, header_of, packed, pieces
from warrenmq.trace.block import encode_footer
from warrenmq.trace.segment import encode_header
from warrenmq.trace.slab import CHUNK_BYTES, HEAD_BYTES, slab_header


def grow(folder: Path, runs: list[RunRows], moments: int, piece: int = 16) -> Iterator[int]:
    """Write the trace in so many steps a run; after each, who asks can look."""
    folder.mkdir(exist_ok=True)
    for number, run in enumerate(runs):
        seen = {id(row): t for actor in run.actors for row, t in _times(actor)}
        times = sorted(seen.values())
        cuts = [times[len(times) * (step + 1) // moments - 1] for step in range(moments)] if times else []
        for step, cut in enumerate(cuts):
            _write(folder, number, run, [[row for row in actor.rows if seen[id(row)] <= cut] for actor in run.actors],
                   piece, is_last=step + 1 == moments)  # fmt: skip
            yield number


def _times(actor: Actor) -> list[tuple[Row, int]]:
    """The time at which each row is written: an actor writes in order, whatever its rows say."""
    return list(zip(actor.rows, accumulate((row[T] for row in actor.rows), max), strict=True))


def _write(
    folder: Path, number: int, run: RunRows, there: list[list[Row]], piece: int, *, is_last: bool
) -> None:
    header = header_of(run) | {"wall_ns": number}
    frames, left = [], []
    for actor, rows in zip(run.actors, there, strict=True):
        written = {id(row): t for row, t in _times(actor)}
        for place, cut in enumerate(pieces(rows, piece)):
            follows = rows[-1] is not cut[-1]
            if len(cut) == piece or follows:
                # a piece that a gap ends is written with the row behind the gap
                until = (
                    written[id(cut[-1])] if len(cut) == piece else written[id(rows[rows.index(cut[-1]) + 1])]
                )
                frames.append((until, actor.id, place, cut))
            else:
                left.append((actor.id, cut))
    frames.sort(key=lambda each: each[:3])
    body = encode_header(header) + b"".join(encode_rows(packed(cut)) for *_, cut in frames)
    slab = folder / f"{run.name}-n-1.slab"
    if is_last and run.closed:
        body += b"".join(encode_rows(packed(cut)) for _, cut in left)
        body += encode_footer(len(frames) + len(left), sum(actor.last for actor in run.actors), closed=True)
        slab.unlink(missing_ok=True)
    else:
        content = slab_header(header) + b"".join(packed(cut) for _, cut in left)
        slab.write_bytes(content + bytes(-(len(content) - HEAD_BYTES) % CHUNK_BYTES))
    (folder / f"{run.name}-n-1-000001.wtr").write_bytes(body)
