"""The report of a replay, and beside it the lens, to which the report's moments lead."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from warrenmq.trace.events import ChildExit, Ev, Reason

if TYPE_CHECKING:
    from warrenmq.lens.marked import Marked
    from warrenmq.replay.replayed import Replayed
    from warrenmq.replay.report.report import Moment
    from warrenmq.trace.reader import Trace

MOST_ROWS = 300_000
"""The most rows of a trace whose lens is written beside its report: some 3 MB."""
MOST_KILLS = 20
"""The most kills of a longer trace that get the command that opens the lens there."""
_AT_ONCE_NS = 50_000_000
"""Processes that end within this of each other are one kill: the supervisor takes the others with it."""
_SUDDEN = {int(Reason.KILLED): "was killed", int(Reason.CRASH): "crashed"}


def write_report_and_lens(replayed: Replayed, report: str, trace: Any) -> Marked | None:
    """Write REPORT.html and, of a local trace, the way to the lens from each kill; returns what is marked in
    REPORT.lens.html.

    That page is written beside the report; of a trace that is too long for it the report says the commands.
    A trace of a later version has neither.
    """
    from warrenmq.lens.saved import save
    from warrenmq.replay import write_report
    from warrenmq.replay.report.report import Moment
    from warrenmq.trace.reader import open_trace

    newer = any(run.is_newer for run in replayed.result.catalog.runs)
    if newer or not os.path.exists(str(trace)):
        write_report(replayed, report)
        return None
    if replayed.result.figures["events"] > MOST_ROWS:
        with open_trace(trace) as opened:
            write_report(replayed, report, _kills(opened, str(trace)))
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


def _kills(trace: Trace, path: str) -> list[Moment]:
    """The first kills and crashes of a long trace, each with the command that shows it."""
    from warrenmq.lens.sources import row_at
    from warrenmq.replay.report.report import Moment

    parents = [{entry.parent for entry in run.actors.values()} for run in trace.catalog.runs]
    began: dict[int, int] = {}
    ended: dict[int, int] = {}
    found: list[tuple[int, int, str]] = []
    for chunk in trace.catalog.chunks:
        run = chunk.run
        began[run] = min(chunk.t_first, began.get(run, chunk.t_first))
        ended[run] = max(chunk.t_last, ended.get(run, 0))
        if chunk.actor in parents[run]:
            for row in trace.rows(chunk):
                if row.event == Ev.CHILD_EXIT and (exit_ := ChildExit.of(row)).reason in _SUDDEN:
                    name = trace.catalog.runs[run].actor_name(exit_.child)
                    found.append((run, row.t, f"{name} {_SUDDEN[exit_.reason]}."))
    found += [
        (run, t, "The process went without a goodbye.")
        for run, t in ended.items()
        if not trace.catalog.runs[run].closed
    ]
    moments: list[Moment] = []
    last = -1, 0
    for run, t, words in sorted(found):
        if run == last[0] and t - last[1] < _AT_ONCE_NS:
            continue
        last = run, t
        command = f"warrenmq lens {shlex.quote(path)} --at {row_at(trace, run, t)}"
        moments.append(Moment(run, (t - began[run]) / 1e9, words, command=command))
        if len(moments) == MOST_KILLS:
            break
    return moments
