"""A feed: the packed rows of a trace, or the last rows of a live one, for any number of pages.

A page asks for the tape, and then for what came since.  The rows are packed in generations: each begins with
the state before it, and a feed that grows keeps the last two, so its memory is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from warrenmq.lens.chapters import Chapters
from warrenmq.lens.fold import Folding
from warrenmq.lens.marked import NONE, Evidence, Marked
from warrenmq.lens.pack import SEGMENT_ROWS, Packer, compact
from warrenmq.lens.saved import header
from warrenmq.lens.tables import Tables
from warrenmq.trace.catalog import Run
from warrenmq.trace.schema import Row

GENERATION_ROWS = 100_000
_SLICE = 4_096


@dataclass(slots=True)
class _Generation:
    """Rows packed with one dictionary of words and shapes."""

    first: int
    """The number of the row before its first one."""
    base: Tables
    """The state then."""
    packer: Packer = field(default_factory=Packer)
    segments: list[tuple[int, str]] = field(default_factory=list)
    """(rows, packed)."""
    marks: list[int] = field(default_factory=list)
    rows: int = 0


class Feed:
    """The packed rows of one trace.  Thread-safe: one thread adds rows, others read."""

    def __init__(
        self,
        runs: Sequence[Run],
        title: str,
        *,
        live: bool = False,
        first: int = 0,
        note: str = "",
        evidence: Evidence = NONE,
    ) -> None:
        """`runs` may grow; `first` is the number of rows before the first one added; `note` is shown beside the title."""
        self.live = live
        self.ended = ""
        """Why no row will come any more, of a feed that grew."""
        self._runs = runs
        self._title, self._note = title, note
        self._folding = Folding(runs, first)
        self._chapters, self._marked = Chapters(), Marked(evidence)
        self._generations = [_Generation(first, _copied(self._folding.tables))]
        self._last = first
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The number of the last row that is packed for pages."""
        return self._last

    def add(self, rows: Iterable[tuple[int, Row]]) -> None:
        """Fold rows in order and pack them for pages.  The lock is released between slices, so that readers
        do not wait for all.
        """
        coming = iter(rows)
        while slice_ := list(islice(coming, _SLICE)):
            with self._lock:
                for run, row in slice_:
                    self._add(run, row)
        with self._lock:
            self._cut()

    def end(self, why: str) -> None:
        """Say that no row will come any more; `why` takes the place of the note."""
        with self._lock:
            self.live, self._note, self.ended = False, why, why

    def skip(self, rows: Iterable[tuple[int, Row]], count: int) -> None:
        """Add rows, but fold the first `count` only into the state that pages begin with."""
        coming = iter(rows)
        with self._lock:
            for run, row in islice(coming, count):
                step = self._folding.step(run, row)
                self._marked.look(self._folding.number, run, row, step)
            self._generations = [_Generation(self._folding.number, _copied(self._folding.tables))]
            self._last = self._folding.number
        self.add(coming)

    def _add(self, run: int, row: Row) -> None:
        folding, now = self._folding, self._generations[-1]
        if self.live and now.rows >= GENERATION_ROWS:
            self._cut()
            now = _Generation(folding.number, _copied(folding.tables))
            self._generations = [*self._generations[-1:], now]
        step = folding.step(run, row)
        number = folding.number
        now.packer.add(number, run, row, step)
        now.rows += 1
        if step.mark:
            now.marks += (number, step.mark)
        self._marked.look(number, run, row, step)
        self._chapters.look(number, row.event, step)
        if len(now.packer) == SEGMENT_ROWS:
            self._cut()

    def _cut(self) -> None:
        now = self._generations[-1]
        if count := len(now.packer):
            now.segments.append((count, now.packer.segment()))
            self._last += count

    def tape(self, *, reads_bytes: bool = False) -> str:
        """The lines of the page's data: the header, then one per segment; `reads_bytes` = the server can read records."""
        with self._lock:
            eldest = self._generations[0]
            listed = [(g, n, text) for g, each in enumerate(self._generations) for n, text in each.segments]
            head = self._head() | {
                "first": eldest.first,
                "bytes": reads_bytes,
                "base": [list(table.items()) for table in eldest.base],
                "segments": [n for _, n, _ in listed],
                "fresh": [i for i in range(1, len(listed)) if listed[i][0] != listed[i - 1][0]],
                "marked": [each for generation in self._generations for each in generation.marks],
            }
        return "\n".join([compact(head), *(text for _, _, text in listed)])

    def since(self, row: int) -> list[tuple[dict[str, Any], int]]:
        """The segments after `row`, for a page that has all rows before: each as its object and its last row.

        A page whose rows were dropped must begin anew.
        """
        with self._lock:
            if row == self._last:
                return []
            found: list[tuple[dict[str, Any], int]] = []
            known = False
            for generation in self._generations:
                at = generation.first
                for place, (n, text) in enumerate(generation.segments):
                    known = known or at == row
                    if known:
                        marks = [
                            each
                            for i in range(0, len(generation.marks), 2)
                            if at < generation.marks[i] <= at + n
                            for each in generation.marks[i : i + 2]
                        ]
                        more = {
                            "n": n,
                            "text": text,
                            "fresh": place == 0 and generation.first > 0,
                            "marked": marks,
                        }
                        found.append((more | self._news(), at + n))
                    at += n
            return found if known else [({"anew": True}, row)]

    def _head(self) -> dict[str, Any]:
        return header(self._runs, self._title) | {"live": self.live, "note": self._note} | self._news()

    def _news(self) -> dict[str, Any]:
        """The parts of the header that grow while a trace is written."""
        runs, chapters = header(self._runs, "")["runs"], self._chapters.found
        return {"runs": runs, "chapters": chapters, "violations": self._marked.violations}


def _copied(tables: Tables) -> Tables:
    return [dict(table) for table in tables]
