"""Static pictures of a fold's state for pages without scripts: HTML and SVG, made in Python.

    parts(tables, ("stores", "flying"))     one figure for each part of the picture that a step looks at

Forms say what colours say: solid = synced, tinted = handed to the system, dashed = in the write buffer,
hatched = garbage.  Everything that a trace may name is escaped, and isolated (<bdi>), so that no name of a
queue can change the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from warrenmq.trace.events import State

Tables = Mapping[str, Mapping[Any, Any]]
WIDTH = 640
"""The width of a file's map, in units of its SVG."""
MOST_CELLS = 48
MOST_LINES = 8
_STORES = {"p": "persistent store", "t": "transient store"}
_STATES = ("alpha", "beta", "gamma", "delta")


def parts(tables: Tables, look: Sequence[str]) -> str:
    """Figures of these parts, those that have something to show."""
    drawn: dict[str, Callable[[], str]] = {
        "stores": lambda: _stores(tables),
        "flying": lambda: _flying(tables),
        "cache": lambda: _cache(tables),
        "mail": lambda: _mail(tables),
        "tree": lambda: _tree(tables),
        "queue": lambda: _queues(tables),
        "index": lambda: _index(tables),
        "publisher": lambda: _publisher(tables),
        "exchanges": lambda: _exchanges(tables),
        "memory": lambda: _memory(tables),
        "alarms": lambda: _alarms(tables),
    }
    return "".join(f'<section class="part {name}">{drawn[name]()}</section>' for name in look)


def name(text: str) -> str:
    """Escape a user-supplied name for HTML."""
    return f"<bdi>{escape(text)}</bdi>"


def _part(title: str, content: str, nothing: str) -> str:
    return f"<h3>{title}</h3>" + (content or f'<p class="none">{nothing}</p>')


def _short(tables: Tables, actor: int) -> str:
    found = tables["actor"].get(actor)
    return found[0].removeprefix("queue:") if found else "?"


# -- stores


def _stores(tables: Tables) -> str:
    drawn = []
    limit = tables["run"].get("settings", (1, 1 << 24))[1]
    for store, words in _STORES.items():
        files = sorted(
            (int(key[2:]), value) for key, value in tables["file"].items() if key.startswith(store + "/")
        )
        if not files or (store == "t" and not any(value[0] for _, value in files)):
            continue
        longest = max([limit, *(value[0] for _, value in files)])
        drawn.append(
            _part(words, "".join(_file(tables, store, number, value, longest) for number, value in files), "")
        )
    return "".join(drawn) or _part("message stores", "", "not open")


def _file(tables: Tables, store: str, number: int, value: tuple[Any, ...], longest: int) -> str:
    size, handed, synced, garbage, state = value
    prefix = f"{store}/{number}/"
    boxes = []
    for key, (message, length, references, why) in tables["rec"].items():
        if not key.startswith(prefix):
            continue
        at = int(key[len(prefix) :])
        kind = (
            "garbage"
            if not references or why == "old place"
            else "synced" if at + length <= synced else "handed" if at + length <= handed else "buffered"
        )  # fmt: skip
        if why == "asleep":
            kind = "asleep"
        x, width = WIDTH * at / longest, max(WIDTH * length / longest - 1.5, 2)
        label = f"m{message}, {length:,} bytes, references: {references}, {kind}"
        boxes.append(
            f'<g class="rec {kind}"><title>{label}</title><rect x="{x:.1f}" y="1" width="{width:.1f}" height="26" rx="2"/>'
            + (f'<text x="{x + width / 2:.1f}" y="18">m{message}</text>' if width > 24 and message else "")
            + "</g>"
        )
    share = f", {100 * garbage // size} % garbage" if garbage and size else ""
    what = {"current": "current file", "asleep": "asleep on disk"}.get(state, state)
    hatched = (
        f'<rect class="dead" x="0" y="1" width="{WIDTH * size / longest:.1f}" height="26" rx="2"/>'
        if garbage
        else ""
    )
    return (
        f'<div class="file"><p><strong>{number}.rdq</strong> {size:,} bytes{share}{", " + what if what else ""}</p>'
        f'<svg viewBox="0 0 {WIDTH} 28" role="img" aria-label="file {number}.rdq: {size:,} bytes{share}">{_HATCH}'
        f'<rect class="ground" x="0" y="1" width="{WIDTH}" height="26" rx="2"/>{hatched}'
        f"{''.join(boxes)}</svg></div>"
    )


_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatchground" width="6" height="6"/><rect class="hatchline" width="2" height="6"/></pattern></defs>'
)


def _flying(tables: Tables) -> str:
    rows = [
        (f"m{message}", queue, value)
        for key, value in tables["flying"].items()
        for _, message, queue in [key.split("/", 2)]
    ]
    lines = "".join(
        f'<tr><th>{message}</th><td>{name(queue)}</td><td class="number">{value:+d}</td></tr>'.replace(
            "+0", "0"
        )
        for message, queue, value in rows[:MOST_LINES]
    )
    return _part(
        "flying counters",
        f"<table><tr><th>message</th><th>queue</th><th>value</th></tr>{lines}</table>{_more(rows, MOST_LINES)}" if rows else "",
        "none: nothing is on its way to a store",
    )  # fmt: skip


def _cache(tables: Tables) -> str:
    messages = [key.split("/")[1] for key in tables["cache"]]
    chips = "".join(f'<span class="chip">m{each}</span>' for each in messages[:MOST_CELLS])
    return _part("current-file cache", chips and f"<p>{chips}</p>", "empty")


def _more(things: Sequence[Any], most: int) -> str:
    return f'<p class="none">and {len(things) - most} more</p>' if len(things) > most else ""


# -- actors


def _mail(tables: Tables) -> str:
    boxes: dict[int, list[tuple[str, int, int]]] = {}
    for receiver, kind, message, count, _ in tables["mail"].values():
        boxes.setdefault(receiver, []).append((kind, message, count))
    lines = [
        f"<tr><th>{name(_short(tables, actor))}</th><td>{_letters(letters)}</td></tr>"
        for actor, letters in boxes.items()
        if actor in tables["actor"]
    ]
    return _part("mailboxes", (lines and f"<table>{''.join(lines[:MOST_LINES])}</table>") or "", "all empty")


def _letters(letters: list[tuple[str, int, int]]) -> str:
    groups: dict[str, list[str]] = {}
    for kind, message, count in letters:
        said = (
            "" if not message else f" m{message}" if count <= 1 else f" m{message} to m{message + count - 1}"
        )
        groups.setdefault(kind, []).append(said)
    return ", ".join(
        f"{name(kind)}{which[0] if len(which) == 1 else f' &times; {len(which)}'}"
        for kind, which in groups.items()
    )


def _tree(tables: Tables) -> str:
    actors = tables["actor"]
    children: dict[int, list[int]] = {}
    for actor, (_, kind, parent, state, _) in actors.items():
        if state == "up" and kind not in {"client", "broker", "scenario"}:
            children.setdefault(parent if parent in actors else 0, []).append(actor)

    def branch(parent: int) -> Iterator[str]:
        for actor in children.get(parent, ()):
            again = actors[actor][4]
            note = f" <small>incarnation {again}</small>" if again > 1 else ""
            inner = "".join(branch(actor))
            yield f"<li>{name(actors[actor][0])}{note}{f'<ul>{inner}</ul>' if inner else ''}</li>"

    roots = [actor for actor in children if actor and actors[actor][3] != "up"]
    lines = "".join([*branch(0), *(line for root in roots for line in branch(root))])
    return _part("supervision tree", (lines and f'<ul class="tree">{lines}</ul>') or "", "no process is up")


def _publisher(tables: Tables) -> str:
    sent, confirmed, nacked = (sum(value[at] for value in tables["pub"].values()) for at in range(3))
    waiting = [f'<span class="chip">m{message}</span>' for message in tables["owed"]]
    waits = (
        f"<p>not confirmed: {''.join(waiting[:MOST_CELLS])}</p>{_more(waiting, MOST_CELLS)}"
        if waiting
        else ""
    )
    blocked = f"<p>{len(tables['wait'])} wait for credit</p>" if tables["wait"] else ""
    return _part(
        "publisher",
        f'<p class="figures"><strong>{sent}</strong> sent <strong>{confirmed}</strong> confirmed{f" <strong>{nacked}</strong> nacked" if nacked else ""}</p>{waits}{blocked}'
        if sent
        else "",
        "has sent nothing",
    )


def _exchanges(tables: Tables) -> str:
    lines = [
        f"<tr><th>{name(exchange)} <small>{tables['exchange'].get(exchange, '')}</small></th><td>{name(key) or '<i>any</i>'}</td><td>"
        f"{'' if to == 'queue' else 'exchange '}{name(destination)}</td></tr>"
        for exchange, destination, key, to in tables["binding"].values()
    ]
    head = "<tr><th>exchange</th><th>key</th><th>goes to</th></tr>"
    return _part(
        "exchanges and bindings",
        (lines and f"<table>{head}{''.join(lines)}</table>") or "",
        "none but the default exchange",
    )


# -- queues


def _entries(tables: Tables, queue: str) -> list[tuple[Any, ...]]:
    return [
        value
        for key, value in tables["entry"].items()
        if str(key).rpartition("/")[0] == queue and value[1] in {"ready", "unacked", "asleep"}
    ]


def _queues(tables: Tables) -> str:
    lines = []
    for queue in tables["queue"]:
        its = _entries(tables, queue)
        cells = "".join(_cell(*entry) for entry in its[:MOST_CELLS])
        lines.append(
            f'<div class="queue"><p><strong>{name(queue)}</strong> {len(its)} message{"" if len(its) == 1 else "s"}</p><p class="cells">{cells}</p>{_more(its, MOST_CELLS)}</div>'
        )
    return _part("queues", "".join(lines), "none")


def _cell(message: int, state: str, where: int, index: int, _body: int, size: int) -> str:
    safe = ("buffered", "handed", "synced")[index] if index in {0, 1, 2} else "buffered"
    title = (
        f"m{message}, {state}, {State(where).name.lower()}, position "
        + ("in memory", "written", "synced")[index]
        + (f", body of {size:,} bytes beside it" if size else "")
    )
    return f'<span class="cell {state} {safe}" title="{title}">{f"m{message}" if message else "?"}</span>'


def _memory(tables: Tables) -> str:
    lines = []
    for queue in tables["queue"]:
        counts = Counter(
            State(value[2]).name.lower() for value in _entries(tables, queue) if value[1] == "ready"
        )
        bars = "".join(f'<td class="number">{counts[state]}</td>' for state in _STATES)
        lines.append(f"<tr><th>{name(queue)}</th>{bars}</tr>")
    head = "<tr><th>ready messages</th>" + "".join(f"<th>{state}</th>" for state in _STATES) + "</tr>"
    return _part(
        "in memory and on disk", (lines and f"<table>{head}{''.join(lines)}</table>") or "", "no queue"
    )


def _index(tables: Tables) -> str:
    lines = []
    for queue, (_, following, confirmed, written, synced, version) in tables["queue"].items():
        files = {1: "journal and segments", 2: ".qi and .qs files"}.get(version, "")
        if queue in tables["journal"]:
            records, segments = tables["journal"][queue]
            files += f"; {records} records since the last flush, {segments} segments written so far"
        lines.append(
            f'<tr><th>{name(queue)}</th><td>{files}</td><td class="number">{written:,}</td><td class="number">{synced:,}</td>'
            f'<td class="number">{following}</td><td class="number">{confirmed}</td></tr>'
        )
    head = "<tr><th>queue</th><th>index</th><th>bytes written</th><th>synced</th><th>next position</th><th>confirmed</th></tr>"
    return _part("queue index", (lines and f"<table>{head}{''.join(lines)}</table>") or "", "none is open")


def _alarms(tables: Tables) -> str:
    lines = "".join(
        f"<p><strong>{kind}</strong> {measured:,} of {limit:,} bytes</p>"
        for kind, (measured, limit) in tables["alarm"].items()
    )
    return _part("alarms", lines, "none is set")
