"""The Spark code of the pages and the lesson, in the session of these tests: to start one takes longer than most of
them.
"""

from __future__ import annotations

import logging
import os
import re
import runpy
import shutil
import sys

import pytest

from tests.examples.pages import IN_SPARK, WITH_SPARK, expected, lay_out_logs, named, python, readme_trace
from tests.support.source_tree import PART, ROOT, text_of
from warrenmq.cli import main

pytest.importorskip("pyspark")
pytest.importorskip("plotly")
pytestmark = pytest.mark.spark

LESSON = [
    r"\|queue:pictures +\|PUBLISH +\|PERSISTENT\|WANTS_CONFIRM\|IN_STORE\|",
    r"\|msg_store_persistent\|FILE_SYNC ",
    r"\|queue:pictures +\|CONFIRM +\|DURABLE ",
    r"\|pictures\| +\d+\| +false\| +acked\| +2001\|",
    r"^acked before the crash, and there again: [1-9]\d*; confirmed and lost: 0$",
    r"\|queue:pictures\|MAILBOX_EMPTY\| +\d+\| +\d{4}\| +\d{3}\.\d\|",
    r"\| *IGNORE\| +[1-9]",
    r"\|pictures\| +2000\|",
    r"^violations: 0$",
    r"^queue:pictures +2,001 ",
    r"^verdict ok: ",
]
"""Lines that are somewhere in its output, in this order, as regular expressions."""


@pytest.fixture
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pieces_of_the_pages_run_and_print_what_is_said(spark, here, capsys):
    shutil.copytree(readme_trace(here), "trace-of-another-machine")
    lay_out_logs(here)
    assert main(IN_SPARK.split()[1:]) == 0
    assert "\nverdict ok: " in capsys.readouterr().out
    for name, says in WITH_SPARK.items():
        # Where Spark reads and writes by itself, a path is relative to the folder in which its JVM was started.
        code = re.sub(
            r'"((trace|rabbitmq-tracing|rows|checkpoint)[\w-]*/)"', rf'"{here}/\1"', named(name).code
        )
        exec(code, {"spark": spark})
        for query in spark.streams.active:
            query.stop()
        printed = capsys.readouterr().out
        assert re.search(says, printed, re.MULTILINE), (name, printed)


def test_the_tutorial_asks_what_it_shows(spark, here, capsys):
    parts = list(PART.finditer(text_of("docs/tutorials/read-a-trace.md")))
    files = {part["title"]: part["code"] for part in parts if part["title"]}
    (here / "run.py").write_text(files["run.py"])
    assert python("run.py", cwd=here).returncode == 0
    exec(files["ask.py"].replace('"trace/"', f'"{here}/trace/"'), {})
    (shown,) = (part["code"] for part in parts if (part["code"] or "").startswith("$ python ask.py\n"))
    pattern, _ = expected(shown.splitlines()[1:])
    printed = capsys.readouterr().out
    assert re.fullmatch(pattern, printed), printed


def test_the_lesson_shows_what_it_speaks_of(spark, here, capsys, monkeypatch):
    lesson = os.path.join(ROOT, "examples", "trace_in_spark.py")
    monkeypatch.setattr(sys, "argv", [lesson, str(here)])
    try:
        runpy.run_path(lesson, run_name="__main__")
    finally:
        logging.disable(logging.NOTSET)
        spark.catalog.clearCache()
    printed, at = capsys.readouterr().out, 0
    for line in LESSON:
        found = re.compile(line, re.MULTILINE).search(printed, at)
        assert found, f"{line} is not in {printed[at:]}"
        at = found.end()
