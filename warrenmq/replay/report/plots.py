"""Parts of plots: plotly.js specifications as plain dicts; plotly is not imported.

One colour means one thing on the whole page.  Colours that depend on light or dark (text, grid, background) are left out
here and put in by the page, so that it can follow the reader's system.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from warrenmq.replay.report.picture import Picture

BLUE, GREEN, AMBER, VIOLET = "#3b82f6", "#22a06b", "#e0930a", "#9361d6"
RED, TEAL, ROSE, INDIGO, GREY = "#d9483b", "#0e9aa7", "#c0527f", "#6b7fd7", "#8a94a6"
SERIES = (BLUE, GREEN, AMBER, VIOLET, TEAL, ROSE, INDIGO, RED, GREY)


class Plot(NamedTuple):
    """One card of the page."""

    title: str
    note: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    wide: bool = False


def curve(x: Sequence[float], y: Sequence[Any], name: str, colour: str, **more: Any) -> dict[str, Any]:
    """A line; `more` is plotly's."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "name": name,
        "line": {"color": colour, "width": 1.8, **more.pop("line", {})},
        **more,
    }


def course(
    picture: Picture,
    values: Sequence[float | None],
    name: str,
    colour: str,
    *,
    joined: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """A line over time with a gap where no run lived; `joined`: points without a value are passed over."""
    x: list[float] = []
    y: list[float | None] = []
    for at, value, is_down in zip(picture.seconds, values, picture.is_down(), strict=True):
        if is_down or value is not None or not joined:
            x.append(at)
            y.append(None if is_down else value)
    return curve(x, y, name, colour, **more)


def bars(x: Sequence[Any], y: Sequence[Any], name: str, colour: str, **more: Any) -> dict[str, Any]:
    """Bars of one colour."""
    return {"type": "bar", "x": x, "y": y, "name": name, "marker": {"color": colour}, **more}


def axes(x: str, y: str, **more: Any) -> dict[str, Any]:
    """A layout with two titles."""
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}, "rangemode": "tozero"}, **more}


def run_edges(picture: Picture) -> list[dict[str, Any]]:
    """A thin vertical line where a run of the broker begins, the first one aside, and a grey field where none lived."""
    edges = [
        {"type": "line", "xref": "x", "yref": "paper", "x0": start, "x1": start, "y0": 0, "y1": 1,
         "line": {"color": GREY, "width": 1, "dash": "dot"}}
        for start, _ in picture.runs[1:]
    ]  # fmt: skip
    fields = [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": begin, "x1": end, "y0": 0, "y1": 1, "layer": "below",
         "fillcolor": GREY, "opacity": 0.14, "line": {"width": 0},
         "label": {"text": "no broker", "textposition": "middle center", "font": {"size": 11, "color": GREY}}}
        for begin, end in picture.outages()
    ]  # fmt: skip
    return edges + fields


def time_in_words(width: float) -> str:
    """A round time in words."""
    return f"{width * 1000:g} ms" if width < 1 else f"{width:g} s"


def short_time(seconds: float) -> str:
    """A time of three digits and its unit: 52 ns, 1.38 µs, 13.8 ms, 898 ms, 12.5 s, 1,200 s."""
    for unit, length in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds < length * 999.5:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"


def times_in_words(n: int) -> str:
    """A count in words, for instance "once", "1,200 times"."""
    return "once" if n == 1 else f"{n:,} times"
