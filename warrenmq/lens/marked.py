"""The overview strip of the page: marks, violated rules, the beginnings of runs, and the moments to which a report leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from warrenmq.lens.captions import render
from warrenmq.lens.pack import SEGMENT_ROWS
from warrenmq.lens.tables import CRASH, Step
from warrenmq.replay.drive.machines import Finding
from warrenmq.trace.events import Ev
from warrenmq.trace.schema import Row

Place = tuple[int, int, int]
"""(run, actor, the actor's own number of the row)."""


MOST_MOMENTS, MOST_WORDS = 100, 2
AT_ONCE_NS = 100_000_000
"""Deaths that follow each other within this time are one moment."""


class Evidence(NamedTuple):
    """Rows of a trace that show violations of rules."""

    findings: list[Finding]
    of: Mapping[Place, list[int]]
    """Row -> the findings that it is evidence of."""

    @classmethod
    def of_findings(cls, findings: Iterable[Finding]) -> Evidence:
        """Index the violations of a replay by row."""
        listed = list(findings)
        of: dict[Place, list[int]] = {}
        for which, finding in enumerate(listed):
            for place in finding.rows:
                of.setdefault(tuple(place), []).append(which)  # type: ignore[arg-type]
        return cls(listed, of)


NONE = Evidence([], {})


class Moment(NamedTuple):
    """A place of a trace that a report leads to: a mark, or a death, and what followed it at once."""

    row: int
    run: int
    t: int
    words: list[str]
    """Sentences."""


class Marked:
    """Collects the strip's data while the rows of one trace are folded."""

    def __init__(self, evidence: Evidence = NONE) -> None:
        self.rows: list[int] = []
        """row, mark, row, mark, ..."""
        self.began: dict[int, int] = {}
        """Run -> time of its first row."""
        self.moments: list[Moment] = []
        """The moments on the strip, at most MOST_MOMENTS."""
        self._evidence = evidence
        self._found: dict[int, list[int]] = {}

    def look(self, number: int, run: int, row: Row, step: Step) -> None:
        """Note a row's mark and violations."""
        if step.mark:
            self.rows += (number, step.mark)
            if step.mark == CRASH:
                self._add_moment(number, run, row.t, render(step.caption))
        elif row.event == Ev.MARK:
            self._add_moment(number, run, row.t, f"{step.caption[1]}.")
        if run not in self.began:
            self.began[run] = row.t
        if self._evidence.of:
            for which in self._evidence.of.get((run, row.who >> 16, row.seq), ()):
                self._found.setdefault(which, []).append(number)

    def _add_moment(self, number: int, run: int, t: int, words: str) -> None:
        last = self.moments[-1] if self.moments else None
        if last is not None and last.run == run and t - last.t < AT_ONCE_NS:
            if len(last.words) < MOST_WORDS:
                last.words.append(words)
        elif len(self.moments) < MOST_MOMENTS:
            self.moments.append(Moment(number, run, t, [words]))

    @property
    def violations(self) -> list[dict[str, Any]]:
        """The violations, each with the number of the row where the rule was found violated."""
        return [
            {"row": rows[-1], "rows": rows, "rule": finding.rule, "text": finding.text}
            for which, rows in sorted(self._found.items())
            if (finding := self._evidence.findings[which])
        ]


def sizes(rows: int) -> list[int]:
    """The number of rows in each segment."""
    whole, rest = divmod(rows, SEGMENT_ROWS)
    return [SEGMENT_ROWS] * whole + ([rest] if rest else [])
