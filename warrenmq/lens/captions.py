"""Captions: the sentence of a row as a template and its fillers, which the page and the terminal render alike.

| placeholder | shows |
| --- | --- |
| {0} | a name or words |
| {m0} | a message by its number: m12 |
| {n0} | a number: 6 038 |
| {n0:byte} | a number of things: 1 byte, 6 038 bytes |
"""

from __future__ import annotations

import re

from warrenmq.lens.tables import Caption

PLACEHOLDER = re.compile(r"\{([mn]?)(\d)(?::([\w ]+))?\}")


def render(caption: Caption) -> str:
    """Fill a caption's template; returns the sentence."""
    template, *fillers = caption

    def fill(found: re.Match[str]) -> str:
        kind, place, thing = found.groups()
        value = fillers[int(place)]
        if kind == "m":
            return f"m{value}"
        if kind == "n":
            text = f"{value:,}".replace(",", "\u202f")
            return f"{text} {thing}{'' if value == 1 else 's'}" if thing else text
        return str(value)

    return PLACEHOLDER.sub(fill, template)
