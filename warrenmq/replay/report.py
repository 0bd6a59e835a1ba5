"""The report: one HTML file that needs no network, violations first, then the plots people would draw.

plotly.js goes into the page (4.8 MB), so the file can be mailed or kept beside the trace it speaks of.
"""

from __future__ import annotations

import html
import importlib.util
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from warrenmq.errors import CallerError
from warrenmq.replay.figures import Plot, plots
from warrenmq.replay.measures import CONFIRM_DELAY
from warrenmq.replay.page import PAGE
from warrenmq.replay.picture import Picture

SHOWN = 200
"""Violations on the page; the rest is counted."""


class ReportUnavailable(CallerError):
    """plotly is missing; the text names the remedy."""


def require_plotly() -> None:
    if importlib.util.find_spec("plotly") is None:
        raise ReportUnavailable("A report needs plotly: pip install 'warrenmq[report]'.")


def write_report(target: str | Path, found: dict[str, Any], picture: Picture, trace: str) -> None:
    """Write the page for what a replay `found` (the object that `--json` prints) to the file `target`."""
    require_plotly()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    drawn = plots(picture)
    page = PAGE.substitute(
        title="Replay of a trace",
        subtitle=html.escape(trace),
        body="\n".join(
            [_verdict(found), _tiles(found, picture), *_findings(found), _rules(found), _cards(drawn)]
        ),
        footer="Written by warrenmq replay. Times are seconds since the first row of the trace.",
        plotly=get_plotlyjs(),
        # "</" inside a script would end it, whatever a queue is called
        plots=json.dumps([{"data": plot.data, "layout": plot.layout} for plot in drawn]).replace(
            "</", "<\\/"
        ),
    )
    Path(target).write_text(page, encoding="utf-8")


def _verdict(found: dict[str, Any]) -> str:
    verdict = found["verdict"]
    text = {
        "ok": "Every invariant holds.",
        "violated": f"{_count(len(found['violations']), 'violation')}.",
        "indeterminate": "No violation, but part of the trace is missing.",
    }[verdict]
    more = (
        f" <span>{_count(len(found['indeterminate']), 'case')} could not be decided.</span>"
        if found["indeterminate"]
        else ""
    )
    return f'<p class="verdict {verdict}">{text}{more}</p>'


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _tiles(found: dict[str, Any], picture: Picture) -> str:
    tiles = [(f"{found['messages']:,}", "messages"), (f"{found['events']:,}", "events")]
    if picture.seconds:
        tiles.append(
            (f"{picture.seconds[-1] + picture.width:,.1f} s", _count(max(len(picture.runs), 1), "run"))
        )
    if rates := picture.flows.get("confirmed"):
        tiles.append((f"{max(rates):,.0f}/s", "most confirms"))
    if confirm := picture.delays.get(CONFIRM_DELAY):
        tiles.append((_ms(confirm.overall[50.0]), "to confirm, median"))
        tiles.append((_ms(confirm.overall[99.0]), "to confirm, p99"))
    if syncs := sum(entry.times for entry in picture.syncs):
        tiles.append((f"{picture.totals.get('confirmed', 0) / syncs:,.1f}", "confirms per sync"))
    tiles.append((f"{len(picture.restarts):,}", "restarts"))
    cells = "".join(
        f'<div class="card tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.3g} ms"


def _findings(found: dict[str, Any]) -> Iterable[str]:
    for title, key in (("Violations", "violations"), ("Not decided", "indeterminate")):
        cases = found[key]
        if cases:
            yield f"<h2>{title}</h2>"
            rows = [
                [case.get("rule", ""), case.get("key", ""), case.get("detail", "")] for case in cases[:SHOWN]
            ]
            yield _table(["rule", "where", "what"], rows)
            if len(cases) > SHOWN:
                yield f'<p class="note">and {len(cases) - SHOWN:,} more: see --json.</p>'


def _rules(found: dict[str, Any]) -> str:
    columns = ("id", "text", "checked", "violated", "indeterminate")
    rows = [[rule[column] for column in columns] for rule in found["rules"]]
    return "<h2>Invariants</h2>" + _table(["rule", "", "checked", "violated", "not decided"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; whole numbers stand right, and in the columns of findings they have a colour."""
    colours = {"violated": "bad", "not decided": "open"}
    numeric = {index for index, name in enumerate(head) if name in {"checked", *colours}}
    parts = ['<div class="card scroll"><table><tr>']
    parts += [f"<th{' class=n' if index in numeric else ''}>{name}</th>" for index, name in enumerate(head)]
    parts.append("</tr>")
    for row in rows:
        parts.append("<tr>")
        for index, value in enumerate(row):
            if index in numeric:
                colour = (
                    ("zero" if not value else colours.get(head[index], "")) if head[index] in colours else ""
                )
                parts.append(f'<td class="n {colour}">{value:,}</td>')
            else:
                text = html.escape(str(value))
                parts.append(f"<td><code>{text}</code></td>" if index == 0 else f"<td>{text}</td>")
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
