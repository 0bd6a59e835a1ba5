"""The report: one HTML file that needs no network, violations first, then the plots people would draw.

plotly.js goes into the page (4.8 MB), so the file can be mailed or kept beside the trace it speaks of.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from warrenmq.errors import CallerError
from warrenmq.replay.drive.engine import Result
from warrenmq.replay.drive.incidents import incidents_line
from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.explain.links import ChainWords
from warrenmq.replay.replayed import Replayed
from warrenmq.replay.report.figures import plots
from warrenmq.replay.report.measures import CONFIRM_DELAY
from warrenmq.replay.report.page import PAGE
from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.plots import Plot, short_time
from warrenmq.replay.report.queue_delays import KINDS, QueueDelays, queue_delays
from warrenmq.trace.catalog import Catalog

SHOWN = 200
"""Violations on the page, and queues; the rest is counted."""
COUNTS = ("published", "confirmed", "delivered", "acked", "dropped")
PERCENTILES = ("p50", "p99", "p99.9")


class ReportUnavailable(CallerError):
    """plotly is missing; the text names the remedy."""


def require_plotly() -> None:
    if importlib.util.find_spec("plotly") is None:
        raise ReportUnavailable("A report needs plotly: pip install 'warrenmq[report]'.")


def write_report(replayed: Replayed, target: str | os.PathLike[str]) -> None:
    """Write the page of a replay to the file `target`; CallerError without plotly, or without a picture."""
    require_plotly()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    picture = replayed.picture
    if picture is None:
        raise CallerError("This replay took no picture: call replay(..., picture=True) for a report.")
    drawn = plots(picture)
    page = PAGE.substitute(
        title="Replay of a trace",
        subtitle=_subtitle(replayed),
        body="\n".join([
            _happened(replayed.result), _verdict(replayed), _tiles(replayed, picture), *_findings(replayed), *_missing(replayed.result),
            _rules(replayed), *_queues(replayed.result), _cards(drawn),
        ]),
        footer="Written by warrenmq replay. Times are seconds since the first row of the trace.",
        plotly=get_plotlyjs(),
        # "</" inside a script would end it, whatever a queue is called
        plots=json.dumps([{"data": plot.data, "layout": plot.layout} for plot in drawn]).replace("</", "<\\/"),
    )  # fmt: skip
    Path(target).write_text(page, encoding="utf-8")


def _subtitle(replayed: Replayed) -> str:
    engine = {"spark": "in Spark", "python": "in one Python process"}[replayed.engine]
    return f"{html.escape(os.path.abspath(replayed.path))}, replayed {engine} in {replayed.seconds:,.1f} s"


def _happened(result: Result) -> str:
    return f'<p class="note">{html.escape(incidents_line(result.figures["incidents"]))}</p>'


def _verdict(replayed: Replayed) -> str:
    violations, undecided = replayed.result.violations, replayed.result.indeterminate
    text = {
        "ok": "Every invariant holds.",
        "violated": f"{_count(len(violations), 'violation')}.",
        "indeterminate": "No violation, but part of the trace is missing.",
    }[replayed.verdict]
    told = replayed.result.figures["brokers"]
    each = "".join(
        f"<br><span>{html.escape(one['broker'])}: {one['verdict']}</span>" for one in told if len(told) > 1
    )
    more = f" <span>{_count(len(undecided), 'case')} could not be decided.</span>" if undecided else ""
    return f'<p class="verdict {replayed.verdict}">{text}{more}{each}</p>'


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _tiles(replayed: Replayed, picture: Picture) -> str:
    figures = replayed.result.figures
    tiles = [(f"{figures['messages']:,}", "messages"), (f"{figures['events']:,}", "events")]
    tiles.append((f"{picture.seconds[-1] + picture.width:,.1f} s", _count(figures["runs"], "run")))
    if rates := picture.flows.get("confirmed"):
        tiles.append((f"{max(rates):,.0f}/s", "most confirms"))
    if confirm := picture.delays.get(CONFIRM_DELAY):
        tiles.append((short_time(confirm.overall[50.0]), "to confirm, median"))
        tiles.append((short_time(confirm.overall[99.0]), "to confirm, p99"))
    if syncs := sum(entry.times for entry in picture.syncs):
        tiles.append((f"{picture.totals.get('confirmed', 0) / syncs:,.1f}", "confirms per sync"))
    if picture.held:
        tiles.append((short_time(sum(held.seconds for held in picture.held)), "senders waited"))
    tiles.append((f"{len(picture.restarts):,}", "restart" if len(picture.restarts) == 1 else "restarts"))
    cells = "".join(
        f'<div class="card tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _findings(replayed: Replayed) -> Iterable[str]:
    result = replayed.result
    for title, findings in (("Violations", result.violations), ("Not decided", result.indeterminate)):
        if findings:
            yield f"<h2>{title}</h2>"
            rows = [
                [finding.rule, finding.subject, finding.text, _evidence(finding, result.catalog)]
                for finding in findings[:SHOWN]
            ]
            yield _table(["rule", "where", "what", "rows"], rows)
            if findings is result.violations:
                yield from _chains(result)
            if len(findings) > SHOWN:
                yield f'<p class="note">and {len(findings) - SHOWN:,} more: warrenmq replay --json lists all.</p>'


def _chains(result: Result) -> Iterable[str]:
    """Why: the rows that led to each of the first violations of every rule."""
    words = ChainWords(result.catalog.runs)
    for place, chain in result.chains.items():
        finding = result.violations[place]
        title = html.escape(f"{finding.rule}: why {finding.subject}: {finding.text}")
        lines = html.escape("\n".join(words.lines(chain)))
        yield f'<details class="card"><summary>{title}</summary><pre>{lines}</pre></details>'


def _missing(result: Result) -> Iterable[str]:
    """What the trace lacks, and what is wrong with its files."""
    rows = result.missing
    if rows:
        yield "<h2>What is missing</h2>"
        yield _table(
            ["what", "where", "text"],
            [
                [row.what, ", ".join(name for name in (row.file, row.run, row.actor) if name), row.text]
                for row in rows[:SHOWN]
            ],
        )
        if len(rows) > SHOWN:
            yield f'<p class="note">and {len(rows) - SHOWN:,} more: warrenmq replay --json lists all.</p>'


def _evidence(finding: Finding, catalog: Catalog) -> str:
    """Which rows show it: actor and row number."""
    return ", ".join(f"{catalog.runs[run].actor_name(actor)} {seq:,}" for run, actor, seq in finding.rows[:4])


def _rules(replayed: Replayed) -> str:
    rows = [
        [rule.id, rule.name, rule.text, rule.checked, rule.violated, rule.indeterminate]
        for rule in replayed.rules
    ]
    return "<h2>Invariants</h2>" + _table(
        ["rule", "name", "text", "rows checked", "violated", "not decided"], rows
    )


def _queues(result: Result) -> Iterable[str]:
    """What each queue did, and how long its messages took."""
    queues = queue_delays(result.figures)
    if not queues:
        return
    yield "<h2>Queues</h2>"
    above = "".join(
        f'<th class="over" colspan="{len(PERCENTILES)}">{html.escape(kind)}</th>' for kind in KINDS.values()
    )
    names = "".join(f'<th class="n">{name}</th>' for name in (*COUNTS, *PERCENTILES * len(KINDS)))
    head = f'<tr><th></th><th colspan="{len(COUNTS)}"></th>{above}</tr><tr><th>queue</th>{names}</tr>'
    yield f'<div class="card scroll"><table>{head}{"".join(map(_queue, queues[:SHOWN]))}</table></div>'
    if len(queues) > SHOWN:
        yield f'<p class="note">and {len(queues) - SHOWN:,} more: warrenmq replay --json lists all.</p>'


def _queue(queue: QueueDelays) -> str:
    counts = [queue.counts.get(what, 0) for what in COUNTS]
    cells = [f'<td class="n{"" if n else " zero"}">{n:,}</td>' for n in counts]
    cells += [
        f'<td class="n">{queue.time(kind, percentile)}</td>' for kind in KINDS for percentile in PERCENTILES
    ]
    return f"<tr><td>{html.escape(queue.name)}</td>{''.join(cells)}</tr>"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; counts of findings stand right and have a colour."""
    colours = {"rows checked": "", "violated": "bad", "not decided": "open"}
    parts = ['<div class="card scroll"><table><tr>']
    parts += [f"<th{' class=n' if name in colours else ''}>{name}</th>" for name in head]
    parts.append("</tr>")
    for row in rows:
        parts.append("<tr>")
        for name, value in zip(head, row, strict=True):
            if name in colours:
                parts.append(f'<td class="n {colours[name] if value else "zero"}">{value:,}</td>')
            else:
                text = html.escape(str(value))
                parts.append(f'<td class="{name}">{text}</td>')
        parts.append("</tr>")
    parts.append("</table></div>")
    return "".join(parts)


def _cards(drawn: Sequence[Plot]) -> str:
    cards = []
    for index, plot in enumerate(drawn):
        cards.append(
            f'<section class="card{" wide" if plot.wide else ""}"><h3>{html.escape(plot.title)}</h3>'
            f'<p class="note">{html.escape(plot.note)}</p><div id="plot-{index}"></div></section>'
        )
    return f'<h2>What happened</h2><div class="plots">{"".join(cards)}</div>'
