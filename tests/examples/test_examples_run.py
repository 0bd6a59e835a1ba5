"""Every script in examples/ runs and says what it promises."""

import os
import re
import subprocess
import sys

import pytest

from tests.support import programs
from tests.support.served import Served
from tests.support.source_tree import ROOT, pages, text_of

SAYS = {
    "quickstart.py": [
        "confirmed: resize cat.jpg",
        "confirmed: two more, with one sync",
        "done: resize cat.jpg",
        "done: resize dog.jpg",
        "done: resize owl.jpg",
    ],
    "stdlib_queue.py": ["resizing cat.jpg to 640", "resizing dog.jpg to 320", "resizing dog.jpg to 640", "resizing dog.jpg to 1280", "left: 0"],
    "asyncio_app.py": ["done: 15 jobs"],
    "with_multiprocessing.py": ["done: 600 jobs", "exit codes of the workers: [0, 0, 0]"],
    "trace_rules.py": ["no-long-wait: 30 violated", "shallow: 1 violated"],
    "order_workflow.py": ["15 orders: each was charged once, 12 shipped once, 3 refunded once"],
    "supervised_app_actors.py": [
        "resized cat.jpg",
        "the resizer crashed and was started again",
        "resized dog.jpg",
        "mailed dog.jpg",
        "stopped: True",
    ],
}  # fmt: skip
AT_A_SERVER = {
    "amqp_pika.py": [
        "confirmed: cat.jpg",
        "confirmed: dog.txt",
        "confirmed: owl.jpg",
        "resized: cat.jpg",
        "resized: owl.jpg",
        "failed: dog.txt, rejected by queue resize",
    ],
    "amqp_aio_pika.py": [
        "heat: kitchen.temperature 21",
        "heat: attic.temperature 35",
        "everything: kitchen.temperature 21",
        "everything: cellar.humidity 88",
        "everything: attic.temperature 35",
    ],
}
LESSONS = {
    "trace_compare.py": [
        r"^classic: ok, 6,600 messages in [\d,]+ events$",
        r"^modern: ok, 6,600 messages in [\d,]+ events$",
        r"^messages published +6,600 +6,600 +1\.00$",
        r"^gc runs +[1-9]\d* +[1-9]\d* ",
        r"^store writes saved by flying counters +[1-9][\d,]* +0 ",
        r"^gc runs +[1-9]\d* +[1-9]\d* +[1-9]\d* +model$",
    ]
}
"""Lines that are somewhere in the output, in this order, as regular expressions."""
LOGGED = re.compile(r" \[\w+ *\] ")
"""Is in a line of the log, with its level."""
TESTED_WITH_ITS_WORKER = {
    "celery_app.py",  # tests/clients/test_celery.py
    "dramatiq_app.py",  # tests/clients/test_task_libraries.py
    "fastapi_app.py",  # tests/clients/test_fastapi.py
    "faststream_app.py",  # tests/clients/test_task_libraries.py
    "gunicorn_app.py",  # tests/shared/test_gunicorn.py
    "taskiq_app.py",  # tests/clients/test_task_libraries.py
}
MAKES_ITS_OWN_ENVIRONMENT = {"run_demo.py"}
IN_A_SESSION_OF_SPARK = {"trace_in_spark.py"}  # tests/spark/test_pages.py
IS_A_TEST = {"simulated_test.py"}
QUOTED = {"trace_story.py"}
"""By the stories in docs/."""
NUMBER = re.compile(r"\d[\d,.:]*")


def run(script, *arguments):
    return programs.run([os.path.join(ROOT, "examples", script), *arguments], cwd=ROOT)


@pytest.mark.parametrize("script", SAYS)
def test_an_example_says_what_it_promises(script, tmp_path):
    directory = [] if script == "supervised_app_actors.py" else [str(tmp_path / "data")]
    done = run(script, *directory)
    assert done.returncode == 0, done.stderr
    assert [
        line
        for line in done.stdout.splitlines()
        if not LOGGED.search(line) and not line.startswith("killed after")
    ] == SAYS[script]


@pytest.mark.parametrize("script", LESSONS)
def test_a_lesson_shows_what_it_speaks_of(script, tmp_path):
    done = run(script, str(tmp_path))
    assert done.returncode == 0, done.stderr
    at = 0
    for line in LESSONS[script]:
        found = re.compile(line, re.MULTILINE).search(done.stdout, at)
        assert found, f"{line} is not in {done.stdout[at:]}"
        at = found.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "data")
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("script", AT_A_SERVER)
def test_an_example_with_a_server_says_what_it_promises(script, server):
    done = run(script, server.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == AT_A_SERVER[script]


@pytest.mark.parametrize("script", IS_A_TEST)
def test_an_example_of_tests_passes(script):
    pytest.importorskip("greenlet")
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", os.path.join(ROOT, "examples", script)]
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": ROOT},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_excerpts_of_traces_in_the_stories_are_true():
    """Line by line and in order; numbers may differ, as ids and offsets do when something else is written first."""
    quotes = re.findall(
        r"^```\n\$ python examples/trace_story.py (.*)\n\.\.\.\n([^`]+)```$",
        "".join(text_of(page) for page in pages()),
        re.MULTILINE,
    )
    assert len(quotes) == 4
    for arguments, quoted in quotes:
        done = run("trace_story.py", *arguments.split())
        assert done.returncode == 0, done.stderr
        said = iter(NUMBER.sub("#", done.stdout).splitlines())
        for line in NUMBER.sub("#", quoted).splitlines():
            assert line == "..." or line in said, line


def test_every_example_is_tested():
    scripts = {name for name in os.listdir(os.path.join(ROOT, "examples")) if name.endswith(".py")}
    assert (
        scripts
        == set(SAYS)
        | set(LESSONS)
        | set(AT_A_SERVER)
        | TESTED_WITH_ITS_WORKER
        | MAKES_ITS_OWN_ENVIRONMENT
        | IN_A_SESSION_OF_SPARK
        | IS_A_TEST
        | QUOTED
    )


def test_the_event_log_of_the_demo_is_what_its_note_says():
    folder = os.path.join(ROOT, "examples", "data")
    with open(os.path.join(folder, "dpkg.log"), "rb") as file:
        log = file.read()
    with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
        note = file.read()
    assert f"{log.count(10):,} lines" in note
    assert f"{len(log):,} bytes" in note
