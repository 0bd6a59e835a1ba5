"""The report of a replay: one HTML file that needs no network, violations first, then plots.

`report.html` is the page; `report_data` is what it shows, as plain values, which go into it as JSON.  plotly.js goes into it
too (4.8 MB), so that the file can be mailed, or kept beside the trace that it is about.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from warrenmq.errors import CallerError
from warrenmq.replay.drive.incidents import incidents_line
from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.result import Result
from warrenmq.replay.explain.links import ChainWords
from warrenmq.replay.replayed import Replayed
from warrenmq.replay.report.figures import plots
from warrenmq.replay.report.measures import CONFIRM_DELAY
from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.plots import short_time
from warrenmq.replay.report.queue_delays import KINDS, queue_delays
from warrenmq.replay.report.summary import verdict_in_words
from warrenmq.terminal import cut
from warrenmq.trace.catalog import Catalog

SHOWN = 200
"""Findings on the page, and queues; the rest is counted."""
_NAME = 48
"""Characters of a moment's name on the strip."""
COUNTS = ("published", "confirmed", "delivered", "acked", "dropped")
PERCENTILES = ("p50", "p99", "p99.9")

Plain = dict[str, Any]
"""An object of JSON."""


class Moment(NamedTuple):
    """A kill, a crash or a mark, with the page that shows it row by row, or the command that opens one."""

    run: int
    seconds: float
    """Seconds since the first row of the run."""
    text: str
    link: str = ""
    command: str = ""


class ReportUnavailable(CallerError):
    """plotly is missing; the text names the remedy."""


def require_plotly() -> None:
    if importlib.util.find_spec("plotly") is None:
        raise ReportUnavailable("A report needs plotly: pip install 'warrenmq[report]'.")


def write_report(replayed: Replayed, target: str | os.PathLike[str], moments: Sequence[Moment] = ()) -> None:
    """Write the page of a replay to the file `target`; CallerError without plotly, or without a picture.

    `moments` are what the page tells of when, with links (the verbs give those of the lens that they write beside the page).
    """
    require_plotly()
    if replayed.picture is None:
        raise CallerError("This replay took no picture: call replay(..., picture=True) for a report.")
    write_page(
        target,
        report_data(replayed, replayed.picture, moments),
        title="Replay of a trace",
        plots="What happened",
        footer="Written by warrenmq replay. Times are seconds since the first row of the trace.",
    )


def write_page(
    target: str | os.PathLike[str], data: Mapping[str, Any], *, title: str, plots: str, footer: str
) -> None:
    """Write a page of `report.html` with its data; `plots` is the title of the plots.  CallerError without plotly."""
    require_plotly()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    # "<" would let a queue's name end the script that the data is in
    text = json.dumps(data).replace("<", "\\u003c")
    template = Template(resources.files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    page = template.safe_substitute(plotly=get_plotlyjs(), data=text, title=title, plots=plots, footer=footer)
    Path(target).write_text(page, encoding="utf-8")


def report_data(replayed: Replayed, picture: Picture, moments: Sequence[Moment] = ()) -> Plain:
    """Build the data of the report's page, in the order of the page."""
    result = replayed.result
    engine = {"spark": "in Spark", "python": "in one Python process"}[replayed.engine]
    return {
        "subtitle": f"{os.path.abspath(replayed.path)}, replayed {engine} in {replayed.seconds:,.1f} s",
        "happened": incidents_line(result.figures["incidents"]),
        "verdict": _verdict(replayed),
        "tiles": _tiles(replayed, picture),
        "moments": _moments(moments, picture),
        "outages": [[round(at / _whole(picture), 4) for at in outage] for outage in picture.outages()],
        "violations": _findings(result.violations, result.catalog),
        "chains": list(_chains(result)),
        "undecided": _findings(result.indeterminate, result.catalog),
        "missing": _first([
            {"what": row.what, "where": ", ".join(filter(None, (row.file, row.run, row.actor))), "text": row.text}
            for row in result.missing
        ]),
        "rules": [rule._asdict() for rule in replayed.rules],
        "queues": _queues(result, picture),
        "plots": [plot._asdict() for plot in plots(picture)],
    }  # fmt: skip


def _verdict(replayed: Replayed) -> Plain:
    undecided = replayed.result.indeterminate if replayed.verdict == "violated" else []
    text = verdict_in_words(replayed) + (f", with {replayed.told}" if replayed.told else "")
    brokers = replayed.result.figures["brokers"]
    more = [f"{_count(len(undecided), 'case')} could not be decided."] if undecided else []
    if len(brokers) > 1:
        more += [f"{one['broker']}: {one['verdict']}" for one in brokers]
    return {"kind": replayed.verdict, "text": f"{text[0].upper()}{text[1:]}.", "more": more}


def _moments(moments: Sequence[Moment], picture: Picture) -> list[Plain]:
    """The time of each moment, in seconds and as a share of the whole time, its name, its text and its link."""
    found = []
    for each in moments:
        at = (picture.runs[each.run][0] if each.run < len(picture.runs) else 0.0) + each.seconds
        found.append(
            {
                "at": f"{at:,.2f} s",
                "share": round(at / _whole(picture), 4),
                "name": cut(each.text.split(". ")[0].removesuffix("."), _NAME),
                "text": each.text,
                "link": each.link,
                "command": each.command,
            }
        )
    return found


def _whole(picture: Picture) -> float:
    """The seconds that the trace covers."""
    return picture.seconds[-1] + picture.width


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _tiles(replayed: Replayed, picture: Picture) -> list[tuple[str, str]]:
    """Figures with what they are, the most important first."""
    figures = replayed.result.figures
    tiles = [(f"{figures['messages']:,}", "messages"), (f"{figures['events']:,}", "events")]
    tiles.append((f"{_whole(picture):,.1f} s", _count(figures["runs"], "run")))
    if rates := picture.flows.get("confirmed"):
        tiles.append((f"{max(rates):,.0f}/s", "most confirms"))
    if confirm := picture.delays.get(CONFIRM_DELAY):
        slow = short_time(confirm.overall[99.0])
        tiles.append((short_time(confirm.overall[50.0]), f"to confirm, median; 99 % in {slow}"))
    if syncs := sum(entry.times for entry in picture.syncs):
        tiles.append((f"{picture.totals.get('confirmed', 0) / syncs:,.1f}", "confirms per sync"))
    if picture.held:
        tiles.append((short_time(sum(held.seconds for held in picture.held)), "senders waited"))
    tiles.append((f"{len(picture.restarts):,}", "restart" if len(picture.restarts) == 1 else "restarts"))
    return tiles


def _first(rows: Sequence[Plain]) -> Plain:
    """The rows that the page shows, and how many more there are."""
    return {"rows": rows[:SHOWN], "more": max(0, len(rows) - SHOWN)}


def _findings(findings: Sequence[Finding], catalog: Catalog) -> Plain:
    shown = [
        {
            "rule": finding.rule,
            "subject": finding.subject,
            "text": finding.text,
            "rows": ", ".join(
                f"{catalog.runs[run].actor_name(actor)} {seq:,}" for run, actor, seq in finding.rows[:4]
            ),
        }
        for finding in findings[:SHOWN]
    ]
    return {"rows": shown, "more": len(findings) - len(shown)}


def _chains(result: Result) -> Iterable[Plain]:
    """The rows that led to each of the first violations of every rule."""
    words = ChainWords(result.catalog)
    for place, chain in result.chains.items():
        finding = result.violations[place]
        yield {
            "title": f"{finding.rule}: why {finding.subject}: {finding.text}",
            "lines": list(words.lines(chain)),
        }


def _queues(result: Result, picture: Picture) -> Plain:
    """The figures of each queue, with the delays of its messages, and what was on its way to a confirm at a kill."""
    killed = picture.unconfirmed
    rows = [
        {
            "name": queue.name,
            "counts": [queue.counts.get(what, 0) for what in COUNTS]
            + ([killed.get(queue.name, 0)] if killed else []),
            "times": [queue.time(kind, percentile) for kind in KINDS for percentile in PERCENTILES],
        }
        for queue in queue_delays(result.figures)
    ]
    counts = [*COUNTS, "on its way at a kill"] if killed else COUNTS
    return {"counts": counts, "kinds": list(KINDS.values()), "percentiles": PERCENTILES, **_first(rows)}
