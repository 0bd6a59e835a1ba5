"""The plots of the report: message flow, writes and their triggers, files, actors (waiting: `blocking_figures`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from warrenmq.replay.report.blocking_figures import mailboxes, senders, waiting
from warrenmq.replay.report.picture import Picture
from warrenmq.replay.report.plots import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    RED,
    ROSE,
    SERIES,
    TEAL,
    VIOLET,
    Plot,
    axes,
    bars,
    course,
    run_edges,
    time_in_words,
)

FLOWS = {"published": BLUE, "confirmed": GREEN, "delivered": AMBER, "acked": VIOLET}
TRIGGERS = {
    "MAILBOX_EMPTY": BLUE,
    "TIMER": AMBER,
    "BUFFER_FULL": RED,
    "ROLL_OVER": VIOLET,
    "JOURNAL_FLUSH": GREEN,
    "READ": TEAL,
    "CLOSE": GREY,
}
DECISIONS = {"WRITE": BLUE, "REMOVE": BLUE, "IGNORE": GREEN, "CONFIRM": AMBER, "DEFER": VIOLET}
ENDS = {
    "still running": BLUE,
    "SHUTDOWN": GREEN,
    "NORMAL": GREEN,
    "KILLED": RED,
    "CRASH": ROSE,
    "the process died": AMBER,
}
LIVES_SHOWN = 40


def plots(picture: Picture) -> list[Plot]:
    """Every plot for which the trace has something to show."""
    makers: Sequence[Callable[[Picture], Plot | None]] = (
        _rates, _depth, _delays_over_time, _delay_percentiles, mailboxes, waiting, senders, _syncs, _sync_sizes, _flying,
        _disk, _files, _lives,
    )  # fmt: skip
    return [plot for maker in makers if (plot := maker(picture)) is not None]


def _rates(picture: Picture) -> Plot | None:
    if not any(picture.totals.values()):
        return None
    data = [course(picture, [round(r, 1) for r in picture.flows[name]], name, colour)
            for name, colour in FLOWS.items()]  # fmt: skip
    return Plot(
        "Messages per second",
        f"Each point covers {time_in_words(picture.width)}. Confirmed follows published at the distance of one sync.",
        data,
        axes("seconds", "messages/s", hovermode="x unified", shapes=run_edges(picture)),
        wide=True,
    )


def _depth(picture: Picture) -> Plot | None:
    if not picture.depth:
        return None
    data = [
        course(picture, line, name, colour, line={"shape": "hv"})
        for (name, line), colour in zip(picture.depth.items(), SERIES, strict=False)
    ]
    return Plot(
        "Queue depth",
        "Messages in each queue, delivered ones that are not yet acked included.",
        data,
        axes("seconds", "messages", hovermode="x unified", shapes=run_edges(picture)),
    )


def _delays_over_time(picture: Picture) -> Plot | None:
    if not picture.delays:
        return None
    data = []
    for (name, delays), colour in zip(picture.delays.items(), (GREEN, AMBER, VIOLET), strict=False):
        for line, label, dash in ((delays.median, "median", "solid"), (delays.p99, "p99", "dot")):
            data.append(
                course(
                    picture,
                    [None if value is None else value * 1000 for value in line],
                    f"{name}, {label}",
                    colour,
                    joined=True,
                    line={"dash": dash},
                )
            )
    layout = axes("seconds", "ms (log)", hovermode="x unified", shapes=run_edges(picture))
    layout["yaxis"] = {"title": {"text": "ms"}, "type": "log", "dtick": 1}
    return Plot("Delays over time", "Time until the confirm, the first delivery and the ack, at the moment "
                "it ended.", data, layout)  # fmt: skip


def _delay_percentiles(picture: Picture) -> Plot | None:
    if not picture.delays:
        return None
    data = [
        bars(
            ["max" if percent == 100 else f"p{percent:g}" for percent in delays.overall],
            [seconds * 1000 for seconds in delays.overall.values()],
            f"{name} ({delays.messages:,})",
            colour,
            hovertemplate="%{x}: %{y:.3g} ms",
        )
        for (name, delays), colour in zip(picture.delays.items(), (GREEN, AMBER, VIOLET), strict=False)
    ]
    layout = axes("", "ms", barmode="group")
    layout["yaxis"] = {"title": {"text": "ms"}, "type": "log", "dtick": 1}
    return Plot("Delay percentiles", "Over the whole trace; histogram classes are 6 % wide.", data, layout)


def _syncs(picture: Picture) -> Plot | None:
    if not (picture.syncs or picture.writes):
        return None
    columns = ["index writes", "index syncs", "store writes", "store syncs"]
    counts: dict[str, list[int]] = {}
    for offset, entries in enumerate((picture.writes, picture.syncs)):
        for entry in entries:
            row = counts.setdefault(entry.trigger, [0] * 4)
            row[offset + (0 if entry.what == "queue index" else 2)] += entry.times
    data = [
        bars(columns, counts[trigger], _words(trigger), colour)
        for trigger, colour in TRIGGERS.items()
        if trigger in counts
    ]
    return Plot(
        "Why buffers were written and synced",
        "A write hands the buffer to the kernel, a sync puts it on disk; each names its trigger.",
        data,
        axes("", "times", barmode="stack"),
    )


def _sync_sizes(picture: Picture) -> Plot | None:
    by_trigger = picture.sync_sizes
    used = [bits for bits in range(64) if any(sizes[bits] for sizes in by_trigger.values())]
    if not used:
        return None
    span = range(used[0], used[-1] + 1)
    labels = [_range(bits) for bits in span]
    data = [
        bars(labels, [by_trigger[trigger][bits] for bits in span], _words(trigger), colour)
        for trigger, colour in TRIGGERS.items()
        if trigger in by_trigger
    ]
    total = sum(entry.records for entry in picture.syncs if entry.what == "queue index")
    times = sum(entry.times for entry in picture.syncs if entry.what == "queue index")
    return Plot(
        "Records per index sync",
        f"Group commit: {total:,} records shared {times:,} syncs, {total / max(times, 1):,.1f} records each on average.",
        data,
        {**axes("records in one sync", "syncs", barmode="stack", bargap=0.08),
         "xaxis": {"title": {"text": "records in one sync"}, "type": "category"}},
    )  # fmt: skip


def _range(bits: int) -> str:
    if bits <= 1:
        return str(bits)
    return f"{1 << (bits - 1):,}-{(1 << bits) - 1:,}"


def _flying(picture: Picture) -> Plot | None:
    if not picture.decisions:
        return None
    columns = [name for name in ("write", "remove") if name in picture.decisions]
    data = [
        bars([f"{name}s" for name in columns], [picture.decisions[name].get(decision, 0) for name in columns],
             _words(decision), colour)
        for decision, colour in DECISIONS.items()
        if any(picture.decisions[name].get(decision) for name in columns)
    ]  # fmt: skip
    writes = picture.decisions.get("write", {})
    total = sum(writes.values())
    saved = writes.get("IGNORE", 0)
    return Plot(
        "What the store did with writes and removes",
        f"The flying counter cancelled {saved:,} of {total:,} writes ({saved / max(total, 1):.0%}): "
        "the message was gone before its body was written.",
        data,
        axes("", "messages", barmode="stack"),
    )


def _disk(picture: Picture) -> Plot | None:
    if not any(any(line) for line in picture.on_disk.values()):
        return None
    data = []
    names = [
        name for name in picture.on_disk if any(picture.on_disk[name]) or any(picture.live.get(name, ()))
    ]
    for name, colour in zip(names, SERIES, strict=False):
        data.append(course(picture, [n / 1e6 for n in picture.on_disk[name]], f"{name}: files", colour))
        if name in picture.live:
            data.append(
                course(
                    picture,
                    [n / 1e6 for n in picture.live[name]],
                    f"{name}: live records",
                    colour,
                    line={"dash": "dot"},
                )
            )
    return Plot(
        "Disk use of the stores",
        f"Between the lines lies garbage. {_collected(picture)}",
        data + _gc_marks(picture),
        axes("seconds", "MB", hovermode="x unified", shapes=run_edges(picture)),
    )


def _collected(picture: Picture) -> str:
    parts = [
        f"{times:,} {what}{'' if times == 1 else 's'} gave back {size / 1e6:,.1f} MB"
        for what, (times, size) in sorted(picture.reclaimed.items())
    ]
    all_of_them = sum(times for times, _ in picture.reclaimed.values()) == len(picture.combines) + len(
        picture.cuts
    )
    marked = "marked below" if all_of_them else "the largest are marked below"
    return f"{' and '.join(parts)} ({marked})." if parts else "No file was combined or compacted."


def _gc_marks(picture: Picture) -> list[dict[str, Any]]:
    combines = [
        (
            run.start,
            f"{run.destination} + {run.source}: {run.reclaimed / 1e6:.2f} MB in {run.seconds * 1000:.1f} ms",
        )
        for run in picture.combines
    ]
    cuts = [(cut.at, f"{cut.file}: {cut.reclaimed / 1e6:.2f} MB") for cut in picture.cuts]
    return [
        {
            "type": "scatter", "mode": "markers", "name": name, "x": [at for at, _ in marks], "y": [0] * len(marks),
            "marker": {"color": colour, "symbol": "triangle-up", "size": 9}, "text": [text for _, text in marks],
            "hovertemplate": "%{text}",
        }
        for name, colour, marks in (("combine", RED, combines), ("compaction", ROSE, cuts))
        if marks
    ]  # fmt: skip


def _files(picture: Picture) -> Plot | None:
    if not picture.files:
        return None
    largest = sorted(picture.files, key=lambda bar: (-bar.size, bar.store, bar.file))[:LIVES_SHOWN]
    shown = sorted(largest, key=lambda bar: (bar.store, bar.file))
    labels = [f"{bar.file}.rdq<br>{bar.store.rsplit('_', 1)[-1]}" for bar in shown]
    data = [
        bars(labels, [bar.valid / 1e6 for bar in shown], "valid", GREEN),
        bars(labels, [(bar.size - bar.valid) / 1e6 for bar in shown], "garbage", GREY),
    ]
    return Plot(
        "Store files at the end", "As the file summary last told them.", data, axes("", "MB", barmode="stack")
    )


def _lives(picture: Picture) -> Plot | None:
    if not picture.lives:
        return None
    names: dict[str, list[int]] = {}
    for index, life in enumerate(picture.lives):
        names.setdefault(life.name, []).append(index)
    eventful = {"KILLED", "CRASH", "the process died"}
    order = sorted(
        names,
        key=lambda name: (not any(picture.lives[i].how in eventful for i in names[name]), -len(names[name])),
    )[:LIVES_SHOWN]
    shown = [life for life in picture.lives if life.name in set(order)]
    rows = sorted(order, key=lambda name: min(i for i in names[name]), reverse=True)
    data: list[dict[str, Any]] = []
    for how, colour in ENDS.items():
        lives = [life for life in shown if life.how == how]
        if lives:
            data.append({
                "type": "bar", "orientation": "h", "name": f"ended: {_words(how)}" if how != "still running" else how,
                "y": [life.name for life in lives], "base": [life.start for life in lives],
                "x": [max(life.end - life.start, picture.width / 10) for life in lives],
                "marker": {"color": colour, "opacity": 0.75}, "width": 0.62,
                "hovertemplate": "%{y}: from %{base:.3f} s, for %{x:.3f} s",
            })  # fmt: skip
    for gave_up, name, symbol in ((False, "restart", "diamond"), (True, "supervisor gave up", "x")):
        marks = [r for r in picture.restarts if r.gave_up == gave_up and r.child in set(order)]
        if marks:
            data.append({
                "type": "scatter", "mode": "markers", "name": name, "x": [r.at for r in marks],
                "y": [r.child for r in marks], "marker": {"color": RED, "symbol": symbol, "size": 9},
                "text": [f"{r.supervisor}: {r.times} of {r.intensity} allowed" for r in marks],
                "hovertemplate": "%{text}",
            })  # fmt: skip
    hidden = len(names) - len(order)
    return Plot(
        "Lives of the actors",
        "Each bar is one incarnation, from the end of its init to its end."
        + (f" {hidden} more actors are not shown." if hidden else ""),
        data,
        {
            "xaxis": {"title": {"text": "seconds"}},
            "yaxis": {"categoryorder": "array", "categoryarray": rows, "automargin": True, "dtick": 1},
            "barmode": "overlay",
            "height": 150 + 22 * len(rows),
            "shapes": run_edges(picture),
        },
        wide=True,
    )


def _words(name: str) -> str:
    return name.replace("_", " ").lower()
