"""The pages of lessons: text, questions and still pictures as HTML without any script, and beside each the lens on its trace.

    export(lessons(), "site/")     index.html, a page and a lens of each lesson, one style sheet

A page reads well alone, on paper, too.  Where the window is wide enough the lens stands beside the text, and
each step's link moves it to the step's row and points at what the step looks at; it is a frame that the links
aim at, so that takes no script.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from html import escape

from warrenmq.lens.captions import render
from warrenmq.lens.fold import Fold
from warrenmq.lens.lesson import Played, PlayedStep, play
from warrenmq.lens.lesson_text import Lesson
from warrenmq.lens.saved import page_of, static
from warrenmq.lens.stills import parts
from warrenmq.lens.tables import Step as Folded
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import Trace, open_memory
from warrenmq.trace.schema import Row

STYLE = "lessons.css"
FAR = 30
"""Rows before a mark among which the caption of a picture is looked for."""
_SMALL_TALK = frozenset({
    Ev.RECV, Ev.MARK, Ev.FILE_STATE, Ev.QUEUE_RESTS, Ev.CHILD_START, Ev.ACTOR_START, Ev.ROUTED, Ev.RAM_TARGET,
})  # fmt: skip
_TOLD = frozenset({"Publish", "Writes", "Removes"})
_POLICY = "default-src 'none'; style-src 'self' file:; img-src data:; frame-src 'self' file:; base-uri 'none'; form-action 'none'"
_MARKUP = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"\*([^*]+)\*"), r"<em>\1</em>"),
)


def page_name(lesson: Lesson) -> str:
    """The file name of a lesson's page."""
    return f"{lesson.name}.html"


def lens_name(lesson: Lesson) -> str:
    """The file name of the lens on a lesson's trace."""
    return f"{lesson.name}.lens.html"


def export(lessons: Sequence[Lesson], folder: str) -> list[str]:
    """Write the site of some lessons; returns the names of its files.  The same lessons give the same files."""
    os.makedirs(folder, exist_ok=True)
    site = {"index.html": index(lessons), STYLE: static(STYLE)}
    for at, lesson in enumerate(lessons):
        played = play(lesson)
        following = lessons[at + 1] if at + 1 < len(lessons) else None
        with open_memory(played.files) as trace:
            site[page_name(lesson)] = page(
                played, trace, lens=lens_name(lesson), home="index.html", following=following
            )
            site[lens_name(lesson)] = page_of(trace, lesson.title)
    for name, text in site.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    return list(site)


def index(lessons: Sequence[Lesson]) -> str:
    """Render the page that lists lessons."""
    items = "".join(
        f'<li><a href="{escape(page_name(each))}"><span class="no">{escape(each.number)}</span><span><strong>{_inline(each.title)}</strong> '
        f"{_inline(_first_sentence(each.introduction))}</span></a></li>"
        for each in lessons
    )
    return _html(
        "Lessons",
        "<header><p class='home'><strong>warrenmq</strong> lessons</p></header><main><h1>How RabbitMQ keeps its messages</h1>"
        "<p class='lead'>Each lesson is one mechanism, in some five minutes. What it shows was recorded from real actors in a simulation, row by row: "
        "pictures, places and right answers come from that trace.</p>"
        f"<ol class='lessons'>{items}</ol></main>",
    )


def page(
    played: Played,
    trace: Trace,
    *,
    lens: str,
    home: str = "",
    following: Lesson | None = None,
    drive: str = "",
) -> str:
    """Render the page of a lesson; `lens`, `home` and `drive` are links: to the lens, to the list of lessons
    and to the drive ("" = none).
    """
    lesson, fold = played.lesson, Fold(trace)
    steps = dict(enumerate(fold.steps(), 1))
    rows = list(rows_in_order(trace))
    body = [
        _step(each, fold, _last_words(trace.catalog.runs, rows[: each.row], steps), lens, number)
        for number, each in enumerate(played.steps, 1)
    ]
    back = f'<a href="{home}">All lessons</a>' if home else ""
    onward = (
        f'<a class="next" href="{escape(page_name(following))}">Next: {_inline(following.title)}</a>'
        if following
        else ""
    )
    knobs = (
        f'<section class="drive"><h2>Now you</h2><p>The broker of this lesson goes on from here under your hands: choose whose mailbox is served next, '
        f'publish, kill, cut the power.</p><p><a class="go" href="{escape(drive)}">Drive it</a></p></section>'
        if drive
        else f'<section class="drive"><h2>Now you</h2><p>Step through all {len(rows):,} rows of it in the lens, forwards and backwards. To drive the broker on '
        f"from here: <code>warrenmq learn {escape(lesson.name)}</code></p></section>"
    )
    first = played.steps[0]
    number = f'<p class="number">Lesson {escape(lesson.number)}</p>' if lesson.number else ""
    return _html(
        lesson.title,
        f"<header aria-label='lessons'><p class='home'><strong>warrenmq</strong> lessons</p>{back}</header><main aria-label='the lesson'>{number}<h1>{_inline(lesson.title)}</h1>"
        f"<div class='lead'>{_paragraphs(lesson.introduction)}</div>{_KEY}{''.join(body)}{knobs}</main>"
        f'<aside class="lens" aria-label="the lens on this lesson"><iframe name="lens" title="the lens on this lesson" src="{_at(lens, first)}"></iframe>'
        f'<p><a href="{_at(lens, first)}" target="_top">the lens alone</a></p></aside>'
        f"<footer aria-label='other lessons'>{back}{onward}</footer>",
        "beside",
    )


def _at(lens: str, each: PlayedStep) -> str:
    """The link to a step's row in the lens, which points at what the step looks at."""
    return escape(f"{lens}#row={each.row}&look={','.join(each.step.look)}")


_KEY = (
    "<ul class='key' aria-label='key'><li><i class='cell buffered'></i>in memory</li><li><i class='cell handed'></i>handed to the system</li>"
    "<li><i class='cell synced'></i>on the disk</li><li><i class='cell garbage'></i>garbage</li></ul>"
)


def _step(each: PlayedStep, fold: Fold, said: str, lens: str, number: int) -> str:
    step = each.step
    link = f'<a href="{_at(lens, each)}" target="lens">row {each.row:,}</a>'
    picture = parts(fold.at(each.row), step.look)
    return (
        f'<article id="step-{number}"><h2>{_inline(step.title)}</h2>{_paragraphs(step.text)}'
        + (
            f'<figure><div class="parts">{picture}</div><figcaption>{link}{said}</figcaption></figure>'
            if picture
            else f"<p class='at'>{link}</p>"
        )
        + (_question(each, number) if step.question else "")
        + "</article>"
    )


def _last_words(runs: Sequence[Run], rows: list[tuple[int, Row]], steps: dict[int, Folded]) -> str:
    """The caption of the last row that is not just a RECV."""
    for number in range(len(rows), max(len(rows) - FAR, 0), -1):
        run, row = rows[number - 1]
        kind = runs[run].kinds.get(row.flag, "") if row.event == Ev.SEND else ""
        if row.event not in _SMALL_TALK and (row.event != Ev.SEND or kind in _TOLD):
            return f": <bdi>{escape(render(steps[number].caption))}</bdi>"
    return ""


def _question(each: PlayedStep, number: int) -> str:
    step = each.step
    answers = "".join(
        f'<li><label><input type="radio" name="q{number}"><span class="answer">{_inline(answer.text)}</span>'
        f'<span class="verdict {"right" if at == each.right else "wrong"}">{"Right." if at == each.right else "No."}</span></label></li>'
        for at, answer in enumerate(step.answers)
    )
    right = step.answers[each.right or 0]
    return (
        f'<div class="question"><p class="ask">{_inline(step.question)}</p><ul>{answers}</ul>'
        f"<details><summary>What the trace says</summary><p><strong>{_inline(right.text)}</strong> {_inline(step.because)}</p></details></div>"
    )


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_inline(' '.join(each.split()))}</p>" for each in text.split("\n\n") if each.strip())


def _inline(text: str) -> str:
    made = escape(text)
    for pattern, markup in _MARKUP:
        made = pattern.sub(markup, made)
    return made


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.]) ", " ".join(text.split()), maxsplit=1)[0]


def _html(title: str, body: str, kind: str = "plain") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><link rel="stylesheet" href="{STYLE}"></head><body class="{kind}">{body}</body></html>\n'
    )
