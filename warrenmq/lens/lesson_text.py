"""The text of a lesson, lesson.md: a small part of Markdown.

    # Flying counters: the write that never happens

    An introduction.

    ## The step's title
    mark: both are on their way
    look: flying, stores

    One or two sentences, with `code`, *emphasis* and **more of it**.

    ? What will the store write?
    - The record once. `APPEND = 1`
    - Nothing. `APPEND = 0`
    = What the reader learns from the right answer.

A step is at a mark that the scenario wrote, never at a row.  A question is about the rows from there to the
next step's mark; each answer ends with the condition (predict.py) under which it is right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from warrenmq.errors import CallerError
from warrenmq.lens.predict import Count, condition

LOOKS = (
    "tree", "mail", "publisher", "exchanges", "queue", "index", "stores", "flying", "cache", "memory", "alarms",
)  # fmt: skip
"""The parts of the picture that a step may point at."""
ANSWERS = 3
_ANSWER = re.compile(r"(?P<text>.+?)\s*`(?P<condition>[^`]+)`")


@dataclass(frozen=True)
class Answer:
    """One answer, with the condition under which it is right."""

    text: str
    true_if: Count


@dataclass(frozen=True)
class Step:
    """One step: its mark in the trace, the part of the picture, the text, and an optional question."""

    title: str
    mark: str
    look: tuple[str, ...]
    text: str
    question: str = ""
    answers: tuple[Answer, ...] = ()
    because: str = ""
    """The explanation that follows the answer."""


@dataclass(frozen=True)
class Lesson:
    """A lesson as it was written."""

    folder: str
    title: str
    introduction: str
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return os.path.basename(self.folder)

    @property
    def number(self) -> str:
        """The lesson's number without leading zeros; "" for a folder that has none."""
        return self.name.partition("-")[0].lstrip("0") if self.name[:1].isdecimal() else ""


def parse(text: str, path: str, folder: str) -> Lesson:
    """Parse a lesson's text; CallerError, with the line, if it is malformed."""
    head, *sections = re.split(r"^## ", text.strip() + "\n", flags=re.MULTILINE)
    title, _, introduction = head.strip().partition("\n")
    if not title.startswith("# ") or not sections:
        raise CallerError(f"{path}: a lesson begins with '# title' and has steps, each with '## title'.")
    try:
        steps = tuple(_step(section) for section in sections)
    except CallerError as error:
        raise CallerError(f"{path}: {error}") from error
    return Lesson(folder, title[2:].strip(), introduction.strip(), steps)


def _step(section: str) -> Step:
    title, _, rest = section.partition("\n")
    title = title.strip()
    settings: dict[str, str] = {}
    paragraphs: list[str] = []
    question, because, answers = "", "", []
    for line in _joined(rest):
        if found := re.fullmatch(r"(mark|look): (.+)", line):
            settings[found[1]] = found[2].strip()
        elif line.startswith("? "):
            question = line[2:]
        elif line.startswith("- ") and question:
            answers.append(_answer(line[2:], title))
        elif line.startswith("= ") and question:
            because = line[2:]
        elif line:
            paragraphs.append(line)
    if "mark" not in settings:
        raise CallerError(f"step {title!r} names no mark; write a line 'mark: TEXT'.")
    look = tuple(each.strip() for each in settings.get("look", "").split(",") if each.strip())
    for each in look:
        if each not in LOOKS:
            raise CallerError(f"step {title!r} looks at {each!r}; there are: {', '.join(LOOKS)}.")
    if question and len(answers) != ANSWERS:
        raise CallerError(f"step {title!r}: a question has {ANSWERS} answers, and this has {len(answers)}.")
    return Step(title, settings["mark"], look, "\n\n".join(paragraphs), question, tuple(answers), because)


def _answer(line: str, title: str) -> Answer:
    found = _ANSWER.fullmatch(line)
    if found is None:
        raise CallerError(f"step {title!r}: an answer ends with its condition, as in: Once. `APPEND = 1`")
    return Answer(found["text"], condition(found["condition"]))


def _joined(text: str) -> Iterator[str]:
    """Join continuation lines into paragraphs and items."""
    open_line = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or re.match(r"(mark: |look: |\? |- |= )", line):
            yield open_line
            open_line = line
        else:
            open_line = f"{open_line} {line}" if open_line else line
    yield open_line
