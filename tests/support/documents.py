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
    found = [
        os.path.relpath(os.path.join(where, name), ROOT)
        for where, _, names in os.walk(os.path.join(ROOT, "docs"))
        for name in names
        if name.endswith(".md")
    ]
    return ["README.md", *sorted(found)]


def text_of(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def anchors(page):
    """What a link into a page can name: its headings, as GitHub turns them into anchors, and its own anchors."""
    text = text_of(page)
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings} | set(
        re.findall(r'<a id="([\w-]+)">', text)
    )


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
