"""Read the slab file of a run that is being written, again and again, at the cost of what is new.

A look compares the file with what it was at the look before, and parses the blocks that differ.  They are
read twice: a row is taken when its place was the same both times, one that was being written comes with the
next look.
"""

from __future__ import annotations

import io

from warrenmq.trace.block import ROW
from warrenmq.trace.segment import OF_A_RUN, decode_header
from warrenmq.trace.slab import (
    BLOCK_BYTES,
    HEAD_BYTES,
    LOSSY_AT,
    Block,
    Blocks,
    Progress,
    damaged,
    is_cut,
    read_progress,
)


class SlabReader:
    """The rows in a slab file as of the last look.  Keeps a copy of the file, but does not hold it open; not thread-safe."""

    def __init__(self, path: str) -> None:
        self.rows: dict[int, list[dict[int, bytes]]] = {}
        """Actor -> its rows, by seq, in pieces of some rows each."""
        self.lossy = False
        """True if rows were dropped or damaged."""
        self.progress: Progress | None = None
        """The place up to which the segment files had been written at the last look, at least."""
        self.is_cut = False
        """True if the file was shorter at the last look than it has been."""
        self.is_gone = True
        """True if there was no whole file at the last look."""
        self._path = path
        self._blocks: Blocks | None = None
        self._forget()

    def _forget(self) -> None:
        """Forget all rows."""
        self.rows = {}
        self._body = b""
        self._parsed: dict[int, Block] = {}
        self._moving: set[int] = set()
        """Blocks with a row that was being written."""

    def look(self) -> None:
        """Read what was written since the last call.  A file that is gone has no rows: all are in segments."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                self._look(file)
        except FileNotFoundError:
            self.is_gone = True
            self._forget()

    def _look(self, file: io.FileIO) -> None:
        whole = file.readall()
        head, body = whole[:HEAD_BYTES], whole[HEAD_BYTES:]
        if self._blocks is None:
            header = decode_header(memoryview(head), OF_A_RUN)
            if header is None or len(head) < HEAD_BYTES:
                return
            self._blocks = Blocks(header[0])
        blocks = self._blocks
        self.progress = read_progress(memoryview(head))
        self.is_gone = False
        self.is_cut = is_cut(len(body), self.progress, checked=blocks.checked)
        moving: set[int] = set()
        changed = {*blocks.changed(body, self._body), *self._moving} if body != self._body else self._moving
        for at in changed:
            file.seek(HEAD_BYTES + at)
            one, two = body[at : at + BLOCK_BYTES], file.read(BLOCK_BYTES)
            if one != two:
                moving.add(at)
                one = b"".join(
                    one[place : place + ROW.size]
                    if one[place : place + ROW.size] == two[place : place + ROW.size]
                    else blocks.empty
                    for place in range(0, BLOCK_BYTES, ROW.size)
                )
            self._parsed[at] = blocks.parse(one, at)
        if changed:
            self.rows = {}
            for block in self._parsed.values():
                for actor, some in block.rows.items():
                    self.rows.setdefault(actor, []).append(some)
            if blocks.checked and damaged(self._parsed.values(), self.progress)[1]:
                self.lossy = True
        self.lossy = self.lossy or bool(head[LOSSY_AT])
        self._body, self._moving = body, moving
