"""The overview strip of the page: marks, violated rules and the beginnings of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from warrenmq.lens.pack import SEGMENT_ROWS
from warrenmq.lens.tables import Step
from warrenmq.replay.drive.machines import Finding
from warrenmq.trace.schema import Row

Place = tuple[int, int, int]
"""(run, actor, the actor's own number of the row)."""


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


class Marked:
    """Collects the strip's data while the rows of one trace are folded."""

    def __init__(self, evidence: Evidence = NONE) -> None:
        self.rows: list[int] = []
        """row, mark, row, mark, ..."""
        self.began: dict[int, int] = {}
        """Run -> time of its first row."""
        self._evidence = evidence
        self._found: dict[int, list[int]] = {}

    def look(self, number: int, run: int, row: Row, step: Step) -> None:
        """Note a row's mark and violations."""
        if step.mark:
            self.rows += (number, step.mark)
        if run not in self.began:
            self.began[run] = row.t
        if self._evidence.of:
            for which in self._evidence.of.get((run, row.who >> 16, row.seq), ()):
                self._found.setdefault(which, []).append(number)

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
