"""Tables for a terminal of 80 columns, and texts without control characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import combining, east_asian_width

WIDTH = 80
_PREVIEW = 76
_GAP = "  "
_NARROWEST = 8
_NUMBER = re.compile(r"[\d.,]+( ([KMGT]?B|[mµn]?s))?|v\d|-")
_UNITS = ("B", "KB", "MB", "GB", "TB")


def table(headers: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Columns beside each other, numbers to the right; the widest texts are cut where a line would be longer than WIDTH."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else plain(cell) for cell in row] for row in rows]
    right = [bool(cells) and all(_NUMBER.fullmatch(row[n]) for row in cells) for n in range(len(headers))]
    widths = [max(columns(row[n]) for row in [list(headers), *cells]) for n in range(len(headers))]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > WIDTH:
        widest = max(range(len(widths)), key=lambda n: (not right[n], widths[n]))
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    lines = []
    for row in [list(headers), *cells]:
        line = []
        for n, cell in enumerate(row):
            shown = cut(cell, widths[n])
            space = " " * (widths[n] - columns(shown))
            line.append(space + shown if right[n] else shown + space)
        lines.append(_GAP.join(line).rstrip())
    return "\n".join(lines)


def columns(text: str) -> int:
    """The width of a text in a terminal: Chinese characters take two columns, combining ones none."""
    return sum(2 if east_asian_width(each) in "WF" else not combining(each) for each in text)


def cut(text: str, width: int) -> str:
    """A text that is no longer than `width`, its middle left out where it is: names differ at both ends."""
    if columns(text) <= width:
        return text
    head, tail = text, text
    while columns(head) > width - 1 - (width - 1) // 2:
        head = head[:-1]
    while columns(tail) > (width - 1) // 2:
        tail = tail[1:]
    return f"{head}…{tail}"


def plain(text: str) -> str:
    """A text with its control characters escaped: a queue may be called anything."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 message, 2 messages."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: int) -> str:
    """A number of bytes with its unit: 12.3 MB, below a thousand 812 B."""
    number = float(count)
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError  # the last unit takes everything


def number(value: float | None) -> str:
    """1,234 or 12.345; `-` for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or value >= 1_000 else f"{value:,.3f}"


def preview(body: bytes) -> str:
    """The beginning of a body in one line: text if it is, else hex."""
    try:
        text = body[: 4 * _PREVIEW].decode(errors="strict" if len(body) <= 4 * _PREVIEW else "ignore")
    except UnicodeDecodeError:
        text = ""
    if (
        body and sum(not each.isprintable() and not each.isspace() for each in text) * 10 > len(text)
    ) or not text:
        text = body[: _PREVIEW // 2].hex() if body else "(empty)"
    shown = plain(" ".join(text.split()) or repr(text))
    return shown if len(shown) <= _PREVIEW and len(body) <= 4 * _PREVIEW else shown[: _PREVIEW - 1] + "…"
