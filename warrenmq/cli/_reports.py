"""The report of a replay, and beside it the lens, to which the report's moments lead."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warrenmq.lens.marked import Marked
    from warrenmq.replay.replayed import Replayed

MOST_ROWS = 300_000
"""Of a trace whose lens is written beside its report: some 3 MB."""


def write_report_and_lens(replayed: Replayed, report: str, trace: Any) -> Marked | None:
    """Write REPORT.html and, of a local trace that is not too long and not of a later version, REPORT.lens.html; returns what is marked in the latter."""
    from warrenmq.lens.saved import save
    from warrenmq.replay import write_report
    from warrenmq.replay.report.report import Moment
    from warrenmq.trace.reader import open_trace

    newer = any(run.is_newer for run in replayed.result.catalog.runs)
    if newer or replayed.result.figures["events"] > MOST_ROWS or not os.path.exists(str(trace)):
        write_report(replayed, report)
        return None
    lens = f"{os.path.splitext(report)[0]}.lens.html"
    with open_trace(trace) as opened:
        marked = save(opened, lens, os.path.basename(os.path.abspath(trace)), replayed.result.violations)
    moments = [
        Moment(each.run, (each.t - marked.began[each.run]) / 1e9, " ".join(each.words), f"{os.path.basename(lens)}#row={each.row}")
        for each in marked.moments
    ]  # fmt: skip
    write_report(replayed, report, moments)
    return marked
