"""Save a trace as one HTML file that opens offline, without this package and without a network.

The rows are packed (pack.py), compressed, and decoded by the browser (DecompressionStream).  Script and style
are in the file, and the page's policy allows nothing but them, by their hashes; no request leaves it.  The
same trace gives the same file.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from warrenmq.errors import CallerError
from warrenmq.lens.chapters import Chapters
from warrenmq.lens.fold import Folding
from warrenmq.lens.marked import Evidence, Marked, sizes
from warrenmq.lens.pack import Packer, compact, segments
from warrenmq.lens.tables import MARKS, NAMES, Step
from warrenmq.replay.drive.engine import replay_trace
from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import SCHEMA_VERSION, Ev
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import Row

MODULES = ("dom", "tape", "machine", "stores", "timeline", "travel", "inspector", "app", "saved")
"""The page's modules, each behind those that it needs."""
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) )", re.MULTILINE)


def static(name: str) -> str:
    """A file of the page."""
    return files("warrenmq.lens").joinpath("static", name).read_text(encoding="utf-8")


def one_script() -> str:
    """Join the page's JavaScript modules into one script; their top-level names differ."""
    return "".join(_EXPORT.sub("", _IMPORT.sub("", static(f"{name}.js"))) for name in MODULES)


def packed(trace: Trace, title: str, marked: Marked | None = None) -> str:
    """The packed lines of a trace: the header, then one per segment; `marked` has the violated rules for the
    strip, and is filled.
    """
    folding, chapters, marked = Folding(trace.catalog.runs), Chapters(), marked or Marked()

    def steps() -> Iterator[tuple[int, int, Row, Step]]:
        for run, row in rows_in_order(trace):
            step = folding.step(run, row)
            marked.look(folding.number, run, row, step)
            chapters.look(folding.number, row.event, step)
            yield folding.number, run, row, step

    lines = list(segments(steps(), Packer()))
    head = header(trace.catalog.runs, title) | {
        "segments": sizes(folding.number),
        "marked": marked.rows,
        "chapters": chapters.found,
        "violations": marked.violations,
    }
    return "\n".join([compact(head), *lines])


def header(runs: Sequence[Run], title: str) -> dict[str, Any]:
    """The header of the page's data: all that it needs before the first row."""
    return {
        "title": title,
        "tables": NAMES,
        "marks": MARKS,
        "events": {int(event): event.name for event in Ev},
        "runs": [
            {
                "name": run.name, "boot": run.boot, "t": run.start.t if run.start else run.mono_ns,
                "actors": {n: each.name for n, each in run.actors.items()},
            }
            for run in runs
        ],
        "chapters": [],
    }  # fmt: skip


def page(data: str, title: str) -> str:
    """Build the HTML file."""
    style, script = static("style.css"), one_script()
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    trace = b64encode(gzip.compress(data.encode(), 9, mtime=0)).decode()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)}: the lens</title><style>{style}</style></head><body><div id="app"><p class="wait">Unpacking the trace.</p></div>'
        f'<script id="trace" type="text/plain">{trace}</script><script type="module">{script}</script></body></html>\n'
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def require_known(runs: list[Run]) -> None:
    """CallerError if a run was written by a later version, whose rows may mean something else."""
    newer = next((run for run in runs if run.is_newer), None)
    if newer is not None:
        raise CallerError(
            f"run {newer.name} was written by a later version of warrenmq (schema {newer.version}, this one knows "
            f"{SCHEMA_VERSION}); show it with that version."
        )


def page_of(trace: Trace, title: str) -> str:
    """Build the page of a trace with the violations a replay finds; CallerError for a trace of a later version."""
    require_known(trace.catalog.runs)
    return page(packed(trace, title, Marked(Evidence.of_findings(replay_trace(trace).violations))), title)


def save(trace: Trace, path: str, title: str, violations: Iterable[Finding] | None = None) -> Marked:
    """Write the page of a trace with these violations (None = those that a replay finds); returns what was marked in it."""
    require_known(trace.catalog.runs)
    marked = Marked(
        Evidence.of_findings(replay_trace(trace).violations if violations is None else violations)
    )
    text = page(packed(trace, title, marked), title)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return marked
