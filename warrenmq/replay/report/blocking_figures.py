"""Plots of waiting: mail in mailboxes, senders for credit or for an alarm to clear."""

from __future__ import annotations

from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.plots import (
    SERIES,
    Plot,
    axes,
    bars,
    course,
    run_edges,
    short_time,
    time_in_words,
    times_in_words,
)

SENDERS_SHOWN = 25


def mailboxes(picture: Picture) -> Plot | None:
    """Depth over time, with how long a message lay there."""
    if not picture.mailboxes:
        return None
    data = [
        course(picture, box.depth, f"{name} ({short_time(box.wait)})", colour, line={"shape": "hv"},
              customdata=box.in_and_out, hovertemplate="%{y:,} (%{customdata[0]:,} in, %{customdata[1]:,} out)")
        for (name, box), colour in zip(picture.mailboxes.items(), SERIES, strict=False)
    ]  # fmt: skip
    return Plot(
        "Mailboxes",
        f"The most messages at once within {time_in_words(picture.width)}, looked at every 10 ms, of senders that are traced; "
        "in brackets, how long one lay there on average. A queue takes publishes in together: they count until then.",
        data,
        axes("seconds", "messages", hovermode="x unified", shapes=run_edges(picture)),
    )


def waiting(picture: Picture) -> Plot | None:
    """Plot the number of waiting senders, by cause."""
    if not picture.held:
        return None
    colours = _colours(picture)
    data = [
        course(picture, [round(n, 4) for n in line], towards, colours[towards], stackgroup="all",
              line={"shape": "hv", "width": 1})
        for towards, line in picture.waiting.items()
    ]  # fmt: skip
    return Plot(
        "Senders that wait",
        f"How many senders wait for credit of whom, or for an alarm to clear, on average over {time_in_words(picture.width)}. "
        "A queue that waits for its store grants its publishers none.",
        data,
        axes("seconds", "senders", hovermode="x unified", shapes=run_edges(picture)),
    )


def senders(picture: Picture) -> Plot | None:
    """The senders that waited longest, and for what."""
    if not picture.held:
        return None
    total: dict[str, float] = {}
    for held in picture.held:
        total[held.sender] = total.get(held.sender, 0.0) + held.seconds
    shown = sorted(total, key=lambda sender: (-total[sender], sender))[:SENDERS_SHOWN]
    data = []
    for towards, colour in _colours(picture).items():
        its = [held for held in picture.held if held.towards == towards and held.sender in shown]
        if its:
            data.append(bars(
                [held.seconds for held in its], [held.sender for held in its], towards, colour, orientation="h",
                text=[times_in_words(held.times) for held in its], hovertemplate="%{y}: %{x:.3g} s, %{text}", textposition="none",
            ))  # fmt: skip
    hidden = len(total) - len(shown)
    times = sum(held.times for held in picture.held)
    return Plot(
        "Who waited, and for what",
        f"{len(total):,} sender{'' if len(total) == 1 else 's'} waited {times_in_words(times)}, "
        f"{short_time(sum(total.values()))} in all." + (f" {hidden:,} more are not shown." if hidden else ""),
        data,
        {
            "xaxis": {"title": {"text": "seconds"}, "rangemode": "tozero"},
            "yaxis": {"categoryorder": "array", "categoryarray": shown[::-1], "automargin": True, "dtick": 1},
            "barmode": "stack",
            "height": max(330, 110 + 22 * len(shown)),
        },
    )


def _colours(picture: Picture) -> dict[str, str]:
    """A peer or alarm has the same colour in both plots."""
    return {towards: SERIES[place % len(SERIES)] for place, towards in enumerate(picture.waiting)}
