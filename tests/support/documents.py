"""The pieces of code in the project's pages."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tests.support.source_tree import ROOT

PART = re.compile(
    r"^(?:#+ (?P<heading>[^\n]+)|```(?P<language>\w*)\n(?P<code>.*?)^```)$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    page: str
    heading: str
    nth: int
    """Under its heading, among those of its language."""
    language: str
    code: str

    def __str__(self):
        return f"{self.page}: {self.heading}, {self.language} {self.nth}"


def pages():
    """The pages for people, relative to the root."""
    docs = os.path.join(ROOT, "docs")
    return ["README.md", *(f"docs/{name}" for name in sorted(os.listdir(docs)) if name.endswith(".md"))]


def text_of(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def blocks(language):
    """Every fenced block of a language, in all pages."""
    found = []
    for page in pages():
        heading, seen = "", {}
        for part in PART.finditer(text_of(page)):
            if part["heading"]:
                heading = part["heading"]
            elif part["language"] == language:
                seen[heading] = seen.get(heading, 0) + 1
                found.append(Block(page, heading, seen[heading], language, part["code"]))
    return found
