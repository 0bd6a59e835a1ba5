"""A trace of any length, quickly: the middle of a simulated broker's rows over and over.

Times, row numbers, messages and the rows that others receive go on from one time to the next; sequence ids
and places in files do not, so a queue takes the same sequence ids in again at each seam, which breaks a rule
there.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.simulated_trace import write_large
from tests.support.trace_writer import MSG, PEER, PSEQ, RECEIVES, SEQ, WHO, T
from warrenmq.trace.block import encode_rows
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import Trace, open_trace
from warrenmq.trace.recorder import SEGMENT_BYTES
from warrenmq.trace.segment import SEGMENT_SUFFIX, OutputFile, Segment, decode_header, encode_header

SOURCE_ROWS = 300_000
_FRAME_ROWS = 1_024
_KEPT = 0.1
"""The share of the rows at either end that are there once."""


def write_long(folder: Path, rows: int) -> tuple[str, int]:
    """Write a trace of at least so many rows into a new folder; returns a row behind three quarters that
    breaks a rule: its actor, its number.
    """
    with tempfile.TemporaryDirectory() as scratch:
        write_large(Path(scratch), SOURCE_ROWS)
        with open_trace(scratch) as trace:
            header, _ = decode_header(memoryview(next(Path(scratch).iterdir()).read_bytes())) or ({}, 0)
            (run,) = trace.catalog.runs
            header |= {"actors": run.actors, "kinds": run.kinds, "texts": run.texts}
            return _repeat(folder, header, trace, rows)


def _repeat(folder: Path, header: dict[str, Any], trace: Trace, rows: int) -> tuple[str, int]:
    pieces: defaultdict[int, list[Any]] = defaultdict(list)
    for chunk in trace.catalog.chunks:
        pieces[chunk.actor].append(np.array([column.tolist() for column in trace.columns(chunk)]).T)
    source = {actor: np.concatenate(its) for actor, its in pieces.items()}
    times = np.sort(np.concatenate([its[:, T] for its in source.values()]))
    begin, end = (int(times[int(len(times) * share)]) for share in (_KEPT, 1 - _KEPT))
    middle = {actor: its[(its[:, T] >= begin) & (its[:, T] < end)] for actor, its in source.items()}
    often = max(1, -(-(rows - len(times)) // sum(map(len, middle.values()))) + 1)
    ids = np.concatenate([its[:, MSG] for its in source.values()])
    messages = int(ids.max() - ids[ids > 0].min()) + 1

    def later(its: Any, time: int) -> Any:
        """Rows as they are in the repetition `time`, from 0 on."""
        its = its.copy()
        its[:, T] += time * (end - begin)
        its[:, MSG] += (its[:, MSG] > 0) * time * messages
        actor = its[:, WHO] >> 16
        sender = np.where(its[:, PEER] > 0, its[:, PEER], actor)
        receives = np.isin(its[:, WHO] >> 8 & 0xFF, list(RECEIVES)) & (its[:, PSEQ] > 0)
        its[:, PSEQ] += receives * time * written[np.minimum(sender, len(written) - 1)]
        its[:, SEQ] += time * written[actor]
        return its

    written = np.zeros(max(source) + 1, dtype=np.int64)
    for actor, its in middle.items():
        written[actor] = len(its)

    def batches() -> Iterator[list[Any]]:
        yield [its[its[:, T] < begin] for its in source.values()]
        for time in range(often):
            yield [later(its, time) for its in middle.values()]
        yield [later(its[its[:, T] >= end], often - 1) for its in source.values()]

    folder.mkdir()
    stem = f"{header['run']}-{header['node']}-{header['pid']}"
    segment, number = None, 0
    for batch in batches():
        frames = [its[at : at + _FRAME_ROWS] for its in batch for at in range(0, len(its), _FRAME_ROWS)]
        for frame in sorted(frames, key=lambda its: int(its[-1, T])):  # as full buffers are written
            if segment is None:
                number += 1
                name = folder / f"{stem}-{number:06d}{SEGMENT_SUFFIX}"
                head = encode_header(header | {"n": number})
                segment = Segment(OutputFile(str(name), head), len(head))
            segment.append(encode_rows(frame.tobytes()), len(frame))
            if segment.size >= SEGMENT_BYTES:
                segment.finish(closed=False)
                segment = None
    if segment is not None:
        segment.finish(closed=True)
    queue = next(actor for actor, its in middle.items() if Ev.PUBLISH in its[:, WHO] >> 8 & 0xFF)
    its = later(middle[queue], often * 3 // 4)
    taken_in = its[(its[:, WHO] >> 8 & 0xFF) == Ev.PUBLISH][0]
    return trace.catalog.runs[0].actor_name(queue), int(taken_in[SEQ])
