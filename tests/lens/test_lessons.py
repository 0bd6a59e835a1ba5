"""Every lesson runs, finds its marks, and has its questions answered by the trace; a wrong one says what is wrong in a sentence."""

import re

import pytest

from warrenmq.errors import CallerError
from warrenmq.lens.drive import Drive
from warrenmq.lens.lesson import MOST_LINES, SCENARIO, find_lesson, lessons, load, play
from warrenmq.lens.lesson_text import parse
from warrenmq.lens.predict import condition
from warrenmq.replay.drive.engine import replay_memory
from warrenmq.trace.events import Append, Decision, Ev, Read, ReadFrom, Recovered, StoreWrite
from warrenmq.trace.schema import row_of

ALL = [lesson.name for lesson in lessons()]
WORDS = (
    "flying counter", "current-file cache", "file summary", "message location", "journal", "segments", "queue index",
    "queue store", "compaction", "alpha to delta",
)  # fmt: skip

TEXT = """# Title

## Step
mark: here
look: stores

Text.

? How many?
- None. `APPEND = 0`
- One. `APPEND = 1`
- More. `APPEND > 1`
= Because.

## End
mark: there
"""
SCENE = """
def scenario(machine):
    broker = machine.open()
    jobs = broker.declare_queue("jobs")
    machine.mark("here")
    jobs.publish(b"x" * 5000).result()
    machine.mark("there")
"""


@pytest.fixture
def folder(tmp_path):
    """Writes a lesson of one's own."""

    def write(text=TEXT, scene=SCENE):
        (tmp_path / "lesson.md").write_text(text, encoding="utf-8-sig")
        (tmp_path / SCENARIO).write_text(scene)
        return str(tmp_path)

    return write


@pytest.mark.parametrize("name", ALL)
def test_a_lesson_finds_its_marks_and_its_trace_answers_its_questions(name):
    lesson = find_lesson(name)
    played = play(lesson)
    assert [each.row for each in played.steps] == sorted({each.row for each in played.steps})
    for each in played.steps:
        assert (each.right is None) is (not each.step.question)
    with open(f"{lesson.folder}/{SCENARIO}", encoding="utf-8") as file:
        assert len(file.readlines()) <= MOST_LINES
    assert play(lesson).files == played.files


@pytest.mark.parametrize("name", [ALL[3], ALL[12], ALL[14]])
def test_the_rules_hold_in_a_lesson_and_are_not_needed_to_know_the_new_rows(name):
    assert replay_memory(play(find_lesson(name)).files).verdict == "ok"


def test_there_are_fifteen_and_their_headings_are_the_words_of_the_field():
    assert [lesson.number for lesson in lessons()] == [str(n) for n in range(1, 16)]
    headings = " / ".join(
        heading for lesson in lessons() for heading in (lesson.title, *(step.title for step in lesson.steps))
    ).lower()
    assert [word for word in WORDS if word not in headings] == []


def test_the_right_answer_is_not_always_the_same_one():
    right = {each.right for lesson in lessons() for each in play(lesson).steps if each.right is not None}
    assert right == {0, 1, 2}


def test_a_lesson_is_found_by_number_name_and_folder(folder):
    assert find_lesson("4").name == find_lesson("flying-counter").name == "04-flying-counter"
    assert [step.right for step in play(find_lesson(folder())).steps] == [1, None]


@pytest.mark.parametrize(
    ("text", "scene", "complaint"),
    [
        (TEXT.replace("there", "nowhere"), SCENE, "no mark 'nowhere' in its trace; there are: 'here', 'there'"),
        (TEXT.replace("mark: there\n", ""), SCENE, "names no mark"),
        (TEXT.replace("APPEND > 1", "APPEND = 1"), SCENE, "exactly one answer has to be right"),
        (TEXT.replace("APPEND = 1", "APPEND = 7"), SCENE, "those that are: none"),
        (TEXT.replace("APPEND = 1", "APPENDED = 1"), SCENE, "no event APPENDED"),
        (TEXT.replace("APPEND = 1", "APPEND colour=1 = 1"), SCENE, "no column colour"),
        (TEXT.replace("APPEND = 1", "READ source=NOSE = 1"), SCENE, "source has no value NOSE"),
        (TEXT.replace("APPEND = 1", "import os"), SCENE, "is no condition"),
        (TEXT.replace("- More. `APPEND > 1`\n", ""), SCENE, "a question has 3 answers"),
        (TEXT.replace("- More. `APPEND > 1`", "- More."), SCENE, "ends with its condition"),
        (TEXT.replace("stores", "moon"), SCENE, "looks at 'moon'"),
        ("no title", SCENE, "begins with '# title'"),
        (TEXT, "raise ValueError(1)", "failed: ValueError: 1"),
        (TEXT, "raise SystemExit(3)", "failed: SystemExit: 3"),
        (TEXT, "x = 1", "no function scenario"),
        (TEXT, "def scenario(machine):\n    pass", "opens no broker"),
        (TEXT, "SEED = 'x'\n" + SCENE, "SEED is 'x'; give a whole number"),
        (TEXT, "LIMITS = 5\n" + SCENE, "LIMITS is 5; give a dict of settings"),
        (TEXT, "LIMITS = {'nope': 1}\n" + SCENE, "LIMITS has 'nope', which is no setting"),
        (TEXT, "def scenario(machine):\n    1 / 0", "failed: ZeroDivisionError"),
        (TEXT.replace("mark: there", "mark: first").replace("mark: here", "mark: there").replace("mark: first", "mark: here"), SCENE, "not in the order"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_lesson_is_said_in_a_sentence(folder, text, scene, complaint):
    with pytest.raises(CallerError, match=re.escape(complaint)) as raised:
        play(load(folder(text, scene)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "scene",
    [
        "while True:\n    pass",
        "def scenario(machine):\n    while True:\n        pass",
        "def scenario(machine):\n    machine.open()\n    while True:\n        machine.sleep(1)",
        "def scenario(machine):\n    jobs = machine.open().declare_queue('jobs')\n    while True:\n        jobs.publish(b'x').result()",
        "try:\n    while True:\n        pass\nexcept BaseException:\n    while True:\n        pass",
        "try:\n    while True:\n        pass\nexcept BaseException:\n    raise ValueError",
    ],
)
def test_a_scenario_that_does_not_end_is_told(folder, scene, monkeypatch):
    monkeypatch.setattr("warrenmq.lens.patience.MOST_SECONDS", 0.1)
    with pytest.raises(CallerError, match=r"scenario\.py did not end within 0\.1 s of processor time"):
        play(load(folder(TEXT, scene)))


def test_a_scenario_that_waits_for_ever_is_told(folder):
    scene = "def scenario(machine):\n    machine.open()\n    while True:\n        machine.sim.turn()"
    with pytest.raises(CallerError, match=r"scenario\.py waits for what never comes"):
        play(load(folder(TEXT, scene)))


def test_an_unknown_lesson_is_told_with_those_that_there_are(tmp_path):
    with pytest.raises(CallerError, match=r"no lesson 'flying'.*flying-counter"):
        find_lesson("flying")
    with pytest.raises(CallerError, match=r"needs lesson.md and scenario.py"):
        find_lesson(str(tmp_path))


def test_conditions_count_rows_and_sum_columns():
    rows = [
        ("store", row_of(Append, message=1, checksum=0, file=0, offset=0, size=10)),
        ("store", row_of(Append, message=2, checksum=0, file=0, offset=10, size=20)),
        (
            "q",
            row_of(
                Read,
                source=ReadFrom.DIRECT,
                message=1,
                store=1,
                checksum=0,
                mark=0,
                file=0,
                offset=0,
                size=10,
            ),
        ),
        ("q", row_of(Recovered, first_seq_id=0, count=3)),
        (
            "store",
            row_of(
                StoreWrite,
                decision=Decision.IGNORE,
                message=1,
                client=1,
                file=0,
                flying=0,
                references=0,
                was_flying=1,
            ),
        ),
    ]
    cases = {
        "APPEND = 2": True, "APPEND < 2": False, "APPEND >= 2": True, "APPEND actor=q = 0": True, "APPEND file=0 = 2": True,
        "sum APPEND size = 30": True, "sum RECOVERED count > 3": False, "READ source=DIRECT actor=q = 1": True,
        "STORE_WRITE decision=IGNORE <= 0": False,
    }  # fmt: skip
    assert {text: condition(text).holds(rows) for text in cases} == cases


@pytest.mark.parametrize(
    ("end", "is_open"),
    [("return 5", True), ("return None", True), ("broker.close(); return broker", False), ("machine.crash(power_cut=True)", False)],
)  # fmt: skip
def test_a_drive_goes_on_with_the_broker_that_is_open_whatever_the_scenario_returns(folder, end, is_open):
    scene = (
        f"def scenario(machine):\n    broker = machine.open()\n    broker.declare_queue('orders')\n    {end}"
    )
    with Drive(folder(TEXT, scene)) as drive:
        assert drive.now()["open"] is is_open
        answer = drive.do({"do": "publish", "queue": "orders"} if is_open else {"do": "open"})
        assert "error" not in answer
        assert answer["open"]


def test_a_text_may_be_cut_into_lines_anywhere():
    lesson = parse(TEXT.replace("Text.", "A text\nof two lines.\n\nAnother."), "x", "folder")
    assert lesson.steps[0].text == "A text of two lines.\n\nAnother."
    assert lesson.steps[0].because == "Because."
    assert lesson.steps[0].answers[0].true_if.event == Ev.APPEND
