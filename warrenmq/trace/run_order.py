"""Which runs of a trace follow each other, and what is not known because one is missing, came twice, or lost its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warrenmq.trace.catalog import Run


def find_missing_runs(runs: Sequence[Run]) -> None:
    """Boots of a directory that are not there, between others that are, or there twice; one that is not known could be any.

    A directory counts its boots, so from one that comes a second time on nobody can say which run follows which.  Of old traces,
    which do not name their directories, all are believed to be of one.
    """
    for _, group in groupby(runs, key=lambda run: (run.directory, run.node)):
        its = list(group)
        boots = Counter(run.boot for run in its)
        met: Counter[int] = Counter()
        forked = False
        for run in its:
            if run.directory and run.boot:
                run.branch = met[run.boot]
                met[run.boot] += 1
                forked = forked or boots[run.boot] > 1
            unknown = not run.boot and len(its) > 1
            if unknown or forked or (run.boot > its[0].boot and not boots[run.boot - 1]):
                run.has_strangers = True


def find_lost_pages(runs: Sequence[Run]) -> None:
    """A killed run, behind which the machine was started again: what was in the kernel's memory may be lost, and look whole."""
    for place, run in enumerate(runs):
        machines = {later.machine for later in runs[place + 1 :] if later.directory == run.directory}
        if not run.closed and run.machine and not machines <= {run.machine, ""}:
            run.lossy = run.has_strangers = True
            run.whole = False


def branch_of(run: Run, earlier: Sequence[Run]) -> int:
    """Which copy of its directory a run is of, as far as the earlier ones tell; behind a boot that came twice each run is one of its own, for nobody knows what it follows."""
    its = [each for each in earlier if run.directory and each.directory == run.directory]
    return len(its) if any(each.branch or each.boot == run.boot > 0 for each in its) else 0
