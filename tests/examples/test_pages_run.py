"""Every piece of code in the README and in docs/ runs, and prints what the page says it does."""

import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

import warrenmq
from tests.examples.pages import IN_SPARK, WITH_SPARK, lay_out_logs, named, python, readme_trace
from tests.support import golden
from tests.support.source_tree import blocks

PRINTS = {
    "README.md: Embed it, python 1": "done: resize cat.jpg\n",
    "README.md: Serve RabbitMQ's clients, python 1": "resize cat.jpg\n",
    "README.md: Analyse a run, python 1": "ok\n",
    "README.md: Supervise your own actors, python 1": "mailed cat.jpg\n",
    "docs/alarms.md: What a publisher sees, python 1": "True\nTrue 1000000 publisher\n1\n",
    "docs/embedding.md: OpenTelemetry, python 1": r"b'resize cat.jpg'\n",
    "docs/later-and-again.md: x-delayed-message, python 1": "{'x-delay': -100}\n",
    "docs/durable-actors.md: Durable actors, python 1": "10\n",
    "docs/durable-actors.md: In your own tests, python 1": "passed\n",
    "docs/lens.md: The lens, python 1": "",
    "docs/lens.md: The rule: nothing is on the screen that is not in the trace, python 1": r"(?s).*jobs.*",
    "docs/lessons.md: Driving on, python 1": "",
    "docs/operating.md: Operating a server, python 1": "RabbitMQ\n",
    "docs/operating.md: Policies, python 1": r"b'2'\n",
    "docs/runtime.md: Servers, python 1": "",
    "docs/runtime.md: Simulation, python 1": "crash: the whole process\n",
    "docs/runtime.md: Supervisors, python 1": "",
    "docs/testing.md: A first test, python 1": "passed\n",
    "docs/testing.md: A crash at any disk operation, python 1": "passed\n",
    "docs/testing.md: Time that passes, python 1": "passed\n",
    "docs/testing.md: Clients over AMQP, python 1": r"(?s).*1 passed.*",
    "docs/simulate.md: From Python, python 1": "",
    "docs/settings.md: Settings, python 1": "67108864\nfsync\n",
}
"""The output of each, as a regular expression."""

_TRACED = """\
import warrenmq, warrenmq.lens

broker = warrenmq.open("data/", trace="trace/")
broker.declare_queue("jobs").publish_many([b"job"] * 500).result()
"""

AROUND = {
    "docs/lens.md: The lens, python 1": (f"{_TRACED}\nfrom starlette.applications import Starlette\n\napp = Starlette()\n", "broker.close()\n"),
    "docs/lens.md: The rule: nothing is on the screen that is not in the trace, python 1": (f"{_TRACED}broker.close()\n", ""),
    "docs/runtime.md: Simulation, python 1": (
        """\
from warrenmq.runtime import Server, Simulation

class Idle(Server):
    def init(self): pass

def workload():
    global ref
    ref = sim.start(Idle)
""",
        "print('crash: the whole process')\n",
    ),
    "docs/runtime.md: Supervisors, python 1": (
        """\
import logging, pykka
from warrenmq.runtime import Server
path = "data"

class Store(Server):
    def init(self, path): pass

class SomePykkaActor(pykka.ThreadingActor):
    pass
""",
        "root.stop()\n",
    ),
    "docs/durable-actors.md: In your own tests, python 1": ("", "test_what_was_told_is_taken_once()\nprint('passed')\n"),
    "docs/testing.md: A first test, python 1": ("", "test_a_confirmed_job_survives_a_power_cut()\nprint('passed')\n"),
    "docs/testing.md: A crash at any disk operation, python 1": ("", "test_no_confirmed_job_is_lost()\nprint('passed')\n"),
    "docs/testing.md: Time that passes, python 1": ("", "test_a_job_expires_after_an_hour()\nprint('passed')\n"),
    "docs/testing.md: Clients over AMQP, python 1": (
        "",
        "\nif __name__ == '__main__':\n    import pytest\n    raise SystemExit(pytest.main(['-q', __file__]))\n",
    ),
}  # fmt: skip
"""Code that a fragment needs before and after it."""

THE_TWO_COMMANDS = ["python3 examples/run_demo.py", "python3 tests/run.py"]
"""Not run here: one is what runs this, and .ci/run types both."""
ELSEWHERE = {*THE_TWO_COMMANDS, IN_SPARK}

FEWER = {
    "warrenmq simulate --runs 200": "warrenmq simulate --runs 20",
    "warrenmq simulate --runs 1000000 --size short --out runs": "warrenmq simulate --runs 20 --size short --out runs",
    "warrenmq simulate --runs 2000 --cores 2 --out runs.parquet": "warrenmq simulate --runs 20 --cores 2 --out runs.parquet",
}
"""Lines of which less is run here: tests/simulate has runs of its own."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    pytest.importorskip("plotly")
    return readme_trace(tmp_path_factory.mktemp("readme"))


@pytest.mark.parametrize("name", PRINTS)
def test_a_piece_of_python_runs_and_prints_what_is_said(name, tmp_path):
    block = named(name)
    if "import pika" in block.code:
        pytest.importorskip("pika")
    extras = (
        ("warrenmq.otel", "opentelemetry"),
        ("warrenmq.management", "uvicorn"),
        ("warrenmq.lens", "starlette"),
    )
    for module, package in extras:
        if module in block.code:
            pytest.importorskip(package)
    if "write_report" in block.code:
        pytest.importorskip("plotly")
    for conf in blocks("ini"):
        (tmp_path / "rabbitmq.conf").write_text(conf.code)
    before, after = AROUND.get(name, ("", ""))
    (tmp_path / "block.py").write_text(before + block.code + after)
    done = python("block.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTS[name], done.stdout), done.stdout


def command_lines():
    lines = [line.partition(" #")[0].strip() for block in blocks("sh") for line in block.code.splitlines()]
    return [line for line in lines if line]


def test_the_two_commands_come_first():
    assert command_lines()[:2] == THE_TWO_COMMANDS


@pytest.mark.parametrize("line", [line for line in command_lines() if line not in ELSEWHERE])
def test_a_command_line_runs(line, tmp_path, trace):
    verb, *arguments = shlex.split(FEWER.get(line, line))
    assert verb == "warrenmq"
    if arguments[0] in {"replay", "trace", "lens"}:
        shutil.copytree(trace, tmp_path / "trace")
        lay_out_logs(tmp_path)
    golden.lay_out("c02-v1-store-a", tmp_path / "rabbit")
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("jobs").publish_many([b"one", b"two"]).result()
    if arguments[0] == "lens":
        pytest.importorskip("uvicorn")
        serves_until_interrupted(arguments, tmp_path)
        return
    done = python("-m", "warrenmq", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if "-o" in arguments:
        assert (tmp_path / arguments[arguments.index("-o") + 1]).stat().st_size
    else:
        assert done.stdout


def serves_until_interrupted(arguments, folder):
    command = [sys.executable, "-m", "warrenmq", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=120) == 0
    assert "http://127.0.0.1" in address


def test_every_piece_of_python_has_its_line_here():
    assert {str(block) for block in blocks("python")} == set(PRINTS) | set(WITH_SPARK)
