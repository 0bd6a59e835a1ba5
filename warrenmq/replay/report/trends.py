"""The trends of a history of replays: a table for the terminal, and a page of plots."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from warrenmq.replay.report.plots import (
    AMBER,
    BLUE,
    GREEN,
    INDIGO,
    RED,
    ROSE,
    TEAL,
    VIOLET,
    Plot,
    axes,
    bars,
    curve,
    short_time,
)  # fmt: skip
from warrenmq.replay.report.queue_delays import KINDS
from warrenmq.replay.report.report import write_page
from warrenmq.terminal import table

if TYPE_CHECKING:
    from warrenmq.replay.export.history import HistoryRow

INCIDENTS = {
    "crashes": ROSE,
    "killed_runs": VIOLET,
    "restarts": TEAL,
    "lost_messages": RED,
    "damaged_messages": AMBER,
}
CONFIRM = ("delays_ms.confirm.p50", "delays_ms.confirm.p99")
TRENDS = {"events": "events", "messages": "messages", CONFIRM[0]: "confirm median", CONFIRM[1]: "confirm p99"}
"""Figures that the newest replay is compared by."""


class OneReplay(NamedTuple):
    """The results of one replay, put together from its rows."""

    replay: str
    began: datetime
    trace: str
    version: str
    verdict: str
    rules: list[HistoryRow]
    figures: dict[str, float]

    @property
    def violated(self) -> int:
        return sum(rule.violated or 0 for rule in self.rules)

    @property
    def undecided(self) -> int:
        return sum(rule.undecided or 0 for rule in self.rules)

    @property
    def when(self) -> str:
        return f"{self.began:%Y-%m-%d %H:%M}"

    @property
    def name(self) -> str:
        return os.path.basename(self.trace.rstrip("/"))

    def time(self, figure: str) -> str:
        """A figure in ms with its unit; "-" for None."""
        return short_time(self.figures[figure] / 1e3) if figure in self.figures else "-"

    def as_dict(self) -> dict[str, Any]:
        """The object that `warrenmq trace history --json` prints in a list."""
        return {
            "replay": self.replay,
            "began": self.began.isoformat(),
            "trace": self.trace,
            "version": self.version,
            "verdict": self.verdict,
            "violated": self.violated,
            "undecided": self.undecided,
            "figures": self.figures,
        }


def replays(rows: Iterable[HistoryRow]) -> list[OneReplay]:
    """The replays of a history, in the order of its rows: the oldest trace first."""
    found: dict[str, OneReplay] = {}
    for row in rows:
        if row.replay not in found:
            found[row.replay] = OneReplay(row.replay, row.began, row.trace, row.version, row.verdict, [], {})
        if row.kind == "rule":
            found[row.replay].rules.append(row)
        elif row.value is not None:
            found[row.replay].figures[row.name] = row.value
    return list(found.values())


def trend_lines(history: list[OneReplay]) -> list[str]:
    """A line for each replay, and how the newest compares with those before it."""
    rows: list[list[str | int]] = [
        [each.when, each.name, each.verdict, int(each.figures.get("events", 0)), each.violated, *map(each.time, CONFIRM)]
        for each in history
    ]  # fmt: skip
    lines = table(
        ["began (UTC)", "trace", "verdict", "events", "violated", "confirm", "p99"], rows
    ).splitlines()
    return [*lines, *(f"trend     {trend}" for trend in [_trend(history)] if trend)]


def _trend(history: list[OneReplay]) -> str:
    """The trend in words, for instance "the newest has 1.02 times the events and 1.30 times the confirm p99
    of the median of the 4 before it".
    """
    *earlier, newest = history
    ratios = []
    for figure, name in TRENDS.items():
        before = [each.figures[figure] for each in earlier if figure in each.figures]
        if before and (usual := median(before)) and figure in newest.figures:
            ratios.append(f"{newest.figures[figure] / usual:.2f} times the {name}")
    if not ratios:
        return ""
    of = "the one before it" if len(earlier) == 1 else f"the median of the {len(earlier):,} before it"
    return f"the newest has {', '.join(ratios)} of {of}"


def write_trends(history: list[OneReplay], folder: str, target: str) -> None:
    """Write the page of a history to the file `target`; CallerError without plotly."""
    write_page(
        target,
        page_data(history, folder),
        title="History of replays",
        plots="Trends",
        footer="Written by warrenmq trace history. Replays stand in the order in which their traces began.",
    )


def page_data(history: list[OneReplay], folder: str) -> dict[str, Any]:
    """Build the data of the page; sections without rows are not shown."""
    newest, trend = history[-1], _trend(history)
    nothing: dict[str, Any] = {"rows": []}
    ok = sum(each.verdict == "ok" for each in history)
    return {
        "subtitle": os.path.abspath(folder),
        "happened": f"{trend[0].upper()}{trend[1:]}." if trend else "",
        "verdict": {"kind": newest.verdict, "text": f"The newest replay, of {newest.name}, is {newest.verdict}.", "more": []},
        "tiles": [
            (f"{len(history):,}", "replay" if len(history) == 1 else "replays"), (f"{ok:,}", "ok"),
            (f"{sum(each.violated for each in history):,}", "violations"), (newest.time(CONFIRM[0]), "to confirm, newest median"),
            (newest.time(CONFIRM[1]), "99 % within"),
        ],
        "moments": [], "violations": nothing, "chains": [], "undecided": nothing, "missing": nothing, "queues": nothing,
        "replays": {"rows": [_row(each) for each in reversed(history)]},
        "rules": _rules(history),
        "plots": [plot._asdict() for plot in plots(history)],
    }  # fmt: skip


def _row(each: OneReplay) -> dict[str, Any]:
    return {
        "when": each.when, "trace": each.trace, "version": each.version, "verdict": each.verdict, "events": int(each.figures.get("events", 0)),
        "messages": int(each.figures.get("messages", 0)), "violated": each.violated, "undecided": each.undecided,
        "p50": each.time(CONFIRM[0]), "p99": each.time(CONFIRM[1]),
    }  # fmt: skip


def _rules(history: list[OneReplay]) -> list[dict[str, Any]]:
    """Each rule that was violated, or undecided, in some replay: its sums over all of them."""
    found: dict[str, dict[str, Any]] = {}
    for each in history:
        for row in each.rules:
            cases, violated, undecided = row.cases or 0, row.violated or 0, row.undecided or 0
            sums = found.setdefault(
                row.name,
                {"id": row.name, "name": row.text or "", "text": "", "checked": 0, "violated": 0, "indeterminate": 0},
            )  # fmt: skip
            sums["checked"] += cases
            sums["violated"] += violated
            sums["indeterminate"] += undecided
            if violated or undecided:
                sums["text"] = f"last in {each.name}, {each.when}"
    return [sums for sums in found.values() if sums["text"]]


def plots(history: list[OneReplay]) -> list[Plot]:
    """Every plot for which the history has something to show."""
    x = list(range(1, len(history) + 1))
    names = [f"{each.when} {each.name}: {each.verdict}" for each in history]

    def line(figure: str, name: str, colour: str) -> dict[str, Any]:
        y = [each.figures.get(figure) for each in history]
        return curve(x, y, name, colour, mode="lines+markers", text=names)

    def columns(name: str, colour: str, value: Callable[[OneReplay], float]) -> dict[str, Any]:
        return bars(x, [value(each) for each in history], name, colour, hovertext=names)

    def layout(y: str, **more: Any) -> dict[str, Any]:
        found = axes("replay, the oldest trace first", y, **more)
        found["xaxis"] |= {"tickformat": "d", "range": [0.5, len(history) + 0.5]}
        return found

    found = [
        Plot("Findings", "Cases in which a rule was violated, or could not be decided since rows are missing.",
             [columns("violated", RED, lambda each: each.violated), columns("undecided", AMBER, lambda each: each.undecided)],
             layout("cases", barmode="stack")),
        Plot("Size", "Events and messages of each trace.", [line("events", "events", BLUE), line("messages", "messages", GREEN)], layout("number")),
    ]  # fmt: skip
    for kind, title in KINDS.items():
        place = f"delays_ms.{kind.removesuffix('_ms')}"
        if any(f"{place}.p99" in each.figures for each in history):
            curves = [line(f"{place}.p50", "median", BLUE), line(f"{place}.p99", "99 %", INDIGO)]
            found.append(
                Plot(f"{title[0].upper()}{title[1:]}", "Of all queues together.", curves, layout("ms"))
            )
    met = {
        name: colour
        for name, colour in INCIDENTS.items()
        if any(each.figures.get(f"incidents.{name}") for each in history)
    }
    if met:
        curves = [line(f"incidents.{name}", name.replace("_", " "), colour) for name, colour in met.items()]
        found.append(Plot("Incidents", "What went wrong, whatever the verdict.", curves, layout("number")))
    return found
