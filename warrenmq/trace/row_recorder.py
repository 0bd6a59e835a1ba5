"""RowRecorder: a recorder that keeps its rows as they are, for a reader in the same process.

A simulated run of a few hundred rows would spend a fifth of its time on frames that are packed and unpacked again at once.
`open_rows` reads the rows of such recorders as `open_memory` reads the files of the others; a test holds both ways equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from warrenmq.trace.block import CHECK_BYTES, ROW
from warrenmq.trace.index import ActorEntry, FileIndex
from warrenmq.trace.reader import Trace
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.segment import SEGMENT_SUFFIX
from warrenmq.trace.sink import MemorySink
from warrenmq.trace.slab import SLAB_SUFFIX


class RowRecorder(Recorder):
    """One run's trace, in memory alone: rows move from an actor's slab to a buffer of that actor."""

    def __init__(self, **of_the_run: Any) -> None:
        self._rows: dict[int, bytearray] = {}
        super().__init__(MemorySink(), **of_the_run)

    def _open(self) -> None:
        self._header["n"] = 1

    def _finish(self) -> None:
        """Do nothing: there are no files."""

    def _meta(self, meta: dict[str, Any]) -> None:
        """Do nothing: `indexes` has the names from the header."""

    def _take(self, rows: int) -> memoryview:
        return memoryview(bytearray(rows * ROW.size))

    def larger(self, slab: memoryview) -> memoryview:
        return slab

    def store(self, slab: memoryview, used: int) -> None:
        actor = ROW.unpack_from(slab)[-1] >> 16 & 0xFFFFFFFF
        self._rows.setdefault(actor, bytearray()).extend(slab[:used])

    def release(self, actor: int, slab: memoryview) -> None:  # noqa: ARG002 - nothing to take back
        if (ended := self._traces.pop(actor, None)) is not None:
            self._rows_of_ended += ended.seq

    def indexes(self) -> Iterator[FileIndex]:
        """The indexes that the files of a recorder would have: one of names, and one with the rows as in a slab."""
        names, header = f"{self._name}-{1:06d}{SEGMENT_SUFFIX}", self._header
        yield FileIndex(
            names,
            header,
            actors={actor: ActorEntry(*entry) for actor, entry in header["actors"].items()},
            kinds=header["kinds"],
            texts=header["texts"],
            footer={"frames": 0, "rows": 0, "closed": True} if self._closed else None,
        )
        rows = {actor: bytearray(kept) for actor, kept in self._rows.items()}
        for actor, trace in self._traces.items():  # of actors that were killed
            if trace.at:
                rows.setdefault(actor, bytearray()).extend(trace.slab[: trace.at])
        yield FileIndex(
            self._name + SLAB_SUFFIX,
            header,
            slabs={actor: _without_checks(rows[actor]) for actor in sorted(rows)},
        )


def _without_checks(rows: bytearray) -> bytes:
    nothing = bytes(len(rows) // ROW.size)
    for byte in range(ROW.size - CHECK_BYTES, ROW.size):
        rows[byte :: ROW.size] = nothing
    return bytes(rows)


def open_rows(recorders: Iterable[RowRecorder]) -> Trace:
    """Open the rows of these recorders, a run each, as one trace."""
    return Trace({}, indexes=[index for recorder in recorders for index in recorder.indexes()])
