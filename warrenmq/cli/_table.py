"""Numbers in columns, for people; whoever wants to go on with them takes --json."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: float | None) -> str:
    """Whole from a thousand on, `-` for none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or value >= 1_000 else f"{value:,.3f}"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Each row begins with its name, which has no head; a column is as wide as what is in it."""
    lines = [("", *heads), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        told = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        print("  ".join([name.ljust(widths[0]), *told]))
