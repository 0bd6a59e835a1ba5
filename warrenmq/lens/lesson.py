"""A lesson: a scenario that makes a trace, and a text whose steps point to its rows.

    lesson = find_lesson("flying-counter")     # by number, name or folder
    lesson.title, lesson.steps
    played = play(lesson)                      # the scenario runs; each step has its row, each question its answer

A folder NN-name holds scenario.py, which is run, and lesson.md, whose form is in lesson_text.py;
docs/lessons.md says how to write one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib.resources import files
from types import ModuleType

from warrenmq.errors import CallerError
from warrenmq.lens.lesson_text import Lesson, Step, parse
from warrenmq.lens.patience import run_code
from warrenmq.lens.predict import Count
from warrenmq.lens.scripts import SMALL, Script
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedMachine
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import Ev, Mark
from warrenmq.trace.reader import open_memory
from warrenmq.trace.schema import Row

SCENARIO, TEXT = "scenario.py", "lesson.md"
MOST_LINES = 40
"""The most lines of a scenario."""


@dataclass(frozen=True)
class PlayedStep:
    """A step of a lesson with its row in the trace."""

    step: Step
    row: int
    """The number of its mark's row, from 1."""
    right: int | None
    """Index of the right answer of its question; None if it asks nothing."""


@dataclass(frozen=True)
class Played:
    """A lesson with the trace that its scenario made."""

    lesson: Lesson
    files: dict[str, bytes]
    """The trace's files."""
    steps: list[PlayedStep]


def folder_of_lessons() -> str:
    """The folder of the lessons that come with the package."""
    return str(files("warrenmq.lens").joinpath("lessons"))


def lessons() -> list[Lesson]:
    """The lessons that come with the package, in their order."""
    folder = folder_of_lessons()
    return [load(os.path.join(folder, name)) for name in _names(folder)]


def _names(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name, TEXT)))


def find_lesson(wanted: str) -> Lesson:
    """Find a lesson by its number ("4"), its name ("flying-counter", "04-flying-counter") or its folder;
    CallerError if there is none.
    """
    if (name := _own_name(wanted)) is not None:
        return load(os.path.join(folder_of_lessons(), name))
    if os.path.isdir(wanted):
        return load(wanted)
    known = ", ".join(name.partition("-")[2] for name in _names(folder_of_lessons()))
    raise CallerError(f"there is no lesson {wanted!r}; give a folder, a number, or one of: {known}.")


def _own_name(wanted: str) -> str | None:
    """The folder's name of a lesson that comes with the package; None if there is none."""
    for name in _names(folder_of_lessons()):
        number, _, short = name.partition("-")
        if wanted in {name, short, number} or (wanted.isdecimal() and int(wanted) == int(number)):
            return name
    return None


def load(folder: str) -> Lesson:
    """Read the text of a lesson; CallerError if it is malformed."""
    path = os.path.join(folder, TEXT)
    for each in (path, os.path.join(folder, SCENARIO)):
        if not os.path.isfile(each):
            raise CallerError(f"a lesson needs {TEXT} and {SCENARIO}; there is no {each}.")
    try:
        with open(path, encoding="utf-8-sig") as file:  # some editors begin a text with a mark of its coding
            return parse(file.read(), path, os.path.normpath(folder))
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"{path} cannot be read: {error}.") from error


def script(lesson: Lesson) -> Script:
    """The scenario as the beginning of a drive."""
    module, where = _scenario(lesson), os.path.join(lesson.folder, SCENARIO)
    seed, limits = getattr(module, "SEED", 0), getattr(module, "LIMITS", {})
    if type(seed) is not int:
        raise CallerError(f"{where}: SEED is {seed!r}; give a whole number.")
    if not isinstance(limits, dict):
        raise CallerError(f"{where}: LIMITS is {limits!r}; give a dict of settings.")
    if unknown := limits.keys() - {each.name for each in fields(Settings)}:
        raise CallerError(f"{where}: LIMITS has {min(map(str, unknown))!r}, which is no setting.")
    return Script(seed, getattr(module, "PROFILE", "modern"), module.scenario, where, {**SMALL, **limits})


def script_of(name: str) -> Script:
    """Find a script by its name, "empty" or a lesson's; CallerError if there is none."""
    return Script() if name == "empty" else script(find_lesson(name))


def script_name(lesson: Lesson) -> str:
    """The name of a lesson's script, from which any copy of this package makes it; the folder of a lesson of one's own."""
    return lesson.name if os.path.dirname(lesson.folder) == folder_of_lessons() else lesson.folder


def is_known(name: str) -> bool:
    """True for "empty" and for the lessons that come with the package."""
    return name == "empty" or _own_name(name) is not None


def _scenario(lesson: Lesson) -> ModuleType:
    path = os.path.join(lesson.folder, SCENARIO)
    spec = importlib.util.spec_from_file_location(f"warrenmq_lesson_{lesson.name.replace('-', '_')}", path)
    assert spec is not None
    loader = spec.loader
    assert loader is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the package may be read only
    try:
        run_code(path, lambda: loader.exec_module(module))
    finally:
        sys.dont_write_bytecode = before
    if not callable(getattr(module, "scenario", None)):
        raise CallerError(f"{path} has no function scenario(machine).")
    return module


def play(lesson: Lesson) -> Played:
    """Run the scenario, find every mark, decide every question; CallerError names what is missing or undecided."""
    begin = script(lesson)
    with SimulatedMachine(begin.seed, begin.settings(begin.profile), traced=True) as machine:
        begin.run(machine)
        assert machine.sink is not None
        made = machine.sink.files()
        if not machine.runs:
            raise CallerError(f"{begin.where} opens no broker, so there is no trace to show.")
    with open_memory(made) as trace:
        runs = trace.catalog.runs
        rows = list(rows_in_order(trace))
    return Played(lesson, made, list(_placed(lesson, runs, rows)))


def _placed(lesson: Lesson, runs: list[Run], rows: list[tuple[int, Row]]) -> Iterator[PlayedStep]:
    marks: dict[str, int] = {}
    for number, (run, row) in enumerate(rows, 1):
        if row.event == Ev.MARK:
            marks.setdefault(runs[run].texts.get(Mark.of(row).text, ""), number)
    places = []
    for step in lesson.steps:
        if step.mark not in marks:
            known = ", ".join(repr(mark) for mark in marks) or "none"
            raise CallerError(
                f"lesson {lesson.name}, step {step.title!r}: no mark {step.mark!r} in its trace; there are: {known}."
            )
        places.append(marks[step.mark])
    if places != sorted(places):
        raise CallerError(f"lesson {lesson.name}: its steps are not in the order of their marks.")
    for step, begin, end in zip(lesson.steps, places, [*places[1:], len(rows)], strict=True):
        yield PlayedStep(step, begin, _right_answer(lesson, step, runs, rows[begin:end]))


def _right_answer(lesson: Lesson, step: Step, runs: list[Run], rows: list[tuple[int, Row]]) -> int | None:
    """Find the answer that the rows from this step to the next make true."""
    if not step.answers:
        return None
    right = [at for at, answer in enumerate(step.answers) if _holds(answer.true_if, runs, rows)]
    if len(right) != 1:
        said = ", ".join(step.answers[at].text for at in right) or "none"
        raise CallerError(
            f"lesson {lesson.name}, step {step.title!r}: exactly one answer has to be right by the trace; those that are: {said}."
        )
    return right[0]


def _holds(count: Count, runs: list[Run], rows: list[tuple[int, Row]]) -> bool:
    return count.holds((runs[run].actor_name(row.actor), row) for run, row in rows)
