"""The form of help texts and the number types that all verbs' parsers share."""

from __future__ import annotations

import argparse
import math
import os
import textwrap
from collections.abc import Callable
from typing import Any

_MOST_COLUMNS = 100


class _Help(argparse.HelpFormatter):
    """A help formatter that fills paragraphs, keeps indented lines and adds every default."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)
        self._width = min(self._width, _MOST_COLUMNS)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = []
        for part in text.split("\n\n"):
            is_code = part.startswith("  ")
            parts.append(
                part
                if is_code
                else textwrap.fill(
                    " ".join(part.split()), width, initial_indent=indent, subsequent_indent=indent
                )
            )
        return "\n\n".join(parts)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help, action.default
        told = text is None or "default" in text or not action.option_strings or default == []
        return (
            text
            if told or default is None or default is False or default == argparse.SUPPRESS
            else f"{text} (default: %(default)s)"
        )


def add_verb(
    verbs: Any, name: str, *, summary: str, does: str, example: str, ends: str, aliases: tuple[str, ...] = ()
) -> Any:
    """A verb, or a task of one: `does` is what it does in a sentence or two, `ends` what its exit status means."""
    lines = "\n".join(f"  {line}" for line in example.splitlines())
    parser = verbs.add_parser(
        name, help=summary, description=does, epilog=f"Example:\n\n{lines}\n\nExit status: {ends}",
        formatter_class=_Help, aliases=aliases,
    )  # fmt: skip
    if aliases:
        parser.set_defaults(verb=name)
    return parser


def add_page_server(parser: Any) -> None:
    """Add --port and --open, for verbs that serve a page on the loopback."""
    parser.add_argument(
        "--port",
        type=whole(0, 65_535),
        default=0,
        metavar="N",
        help="the port on this machine; 0 = any that is free (default: 0)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def whole(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: a whole number between these."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not between {low:,} and {high:,}")
        return value

    return parse


def real(low: float, high: float, *, above: bool = False, below: bool = False) -> Callable[[str], float]:
    """A type for argparse: a number between these; `above` and `below`: but not these themselves."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if (
            math.isnan(value)
            or not low <= value <= high
            or (above and value == low)
            or (below and value == high)
        ):
            limits = (
                f"{'above' if above else 'at least'} {low:,g} and {'below' if below else 'at most'} {high:,g}"
            )
            raise argparse.ArgumentTypeError(f"{text} is not {limits}")
        return value

    return parse


def require_writable(path: str) -> None:
    """Raise the OSError that opening a file to write would raise, and make nothing: asked before minutes of work."""
    if os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        return
    folder = os.path.dirname(os.path.abspath(path))
    os.stat(f"{folder}/")
    if not os.access(folder, os.W_OK):
        raise PermissionError(13, os.strerror(13), path)
