"""Every verb with every kind of path that cannot be what it should be: one sentence, exit status 2, and nothing is made.

Tests may run as root, so "permission denied" is what /proc and /sys say.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import warrenmq
from tests.support.source_tree import ROOT
from warrenmq.cli import main

TARGETS = {
    "missing": "missing",
    "in a missing directory": "nope/x",
    "an empty directory": "dir",
    "a text": "file",
    "below a file": "file/x",
    "an empty file": "empty",
    "bytes": "bytes",
    "not to be made": "/proc/x",
    "a full disk": "/dev/full",
    "nothing": "/dev/null",
    "a loop": "loop",
    "too long": "n" * 300,
    "a socket": "socket",
    "no name": "",
    "no text": "\udcff",
    "a surrogate and a line end": "\udcff\n",
}


def targets() -> dict[str, str]:
    """TARGETS, but for a null device that is none now: a program run by root can put a file there, which is one more text."""
    usable = stat.S_ISCHR(os.stat(os.devnull).st_mode)
    return {name: target for name, target in TARGETS.items() if usable or name != "nothing"}


READING = [
    "ls T", "ls T --json", "peek T jobs", "peek T --json", "check T", "check T --json", "stats T", "stats T --json", "repair T --dry-run",
    "consume jobs --data T", "compact T", "repair T", "recover T --to out", "recover T --to amqp://127.0.0.1:1",
    "recover good --to amqp://127.0.0.1:1 --ledger T",
    "replay T --engine python", "trace export T --to perfetto", "trace export T --to parquet -o out", "trace compare trace T", "trace what-if T",
    "trace watch T --engine python --until-closed", "trace rabbitmq T", "demo --engine python --data out --input T",
    "serve --data out --config T", "serve --data out --users T", "serve --data out --tls-cert T",
]  # fmt: skip
"""Verbs that need what is there."""
WRITING = [
    "publish jobs --data T", "recover good --to T", "serve --data T --port BUSY", "serve --data out --trace T --port BUSY",
    "replay trace --engine python --report T", "trace export trace --to perfetto -o T", "trace export trace --to shiviz -o T",
    "trace export trace --to parquet -o T", "trace export trace --to html -o T", "bench --dir T --only append --quick",
    "trace watch trace --engine python --until-closed --checkpoint T", "demo --engine python --messages 3 --data T",
    "demo --engine python --messages 3 --data out --report T",
]  # fmt: skip
CAN_BE = {
    # a log that has no record yet, or damage
    "trace rabbitmq T": {"a text", "an empty file", "bytes", "nothing"},
    "demo --engine python --data out --input T": {"a text", "bytes"},
    # no setting, or one without end
    "serve --data out --config T": {"an empty file", "nothing", "a full disk"},
    "serve --data out --users T": {"a full disk"},
}
"""Values that a verb can use."""
DOES = {"demo", "bench"}
"""Verbs that run for seconds on a path that they can use: they are only asked for those that they cannot."""
USABLE = {"missing", "in a missing directory", "an empty directory", "no text", "a surrogate and a line end", "nothing", "a text",
          "an empty file", "bytes"}  # fmt: skip


@pytest.fixture(scope="module")
def busy_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with one of each target, a data directory and a trace."""
    root = tmp_path_factory.mktemp("any-path")
    with warrenmq.open(root / "good", trace=root / "trace") as broker:
        broker.declare_queue("jobs").publish(b"x").result(5)
    (root / "dir").mkdir()
    (root / "file").write_text("hello\n")
    (root / "empty").touch()
    (root / "bytes").write_bytes(bytes(range(256)) * 20)
    (root / "loop").symlink_to("loop")
    return root


@pytest.fixture
def here(world, monkeypatch):
    monkeypatch.chdir(world)
    monkeypatch.setattr("tempfile.tempdir", str(world))  # a file with a traceback would be seen
    monkeypatch.setattr(sys, "stdin", subprocess.DEVNULL)
    with open(os.devnull) as nothing, socket.socket(socket.AF_UNIX) as unix:
        monkeypatch.setattr(sys, "stdin", nothing)
        unix.bind("socket")
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        yield world
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.unlink("socket")


@pytest.fixture(autouse=True)
def _in_time():
    """A verb that waits, for a file or a broker, must fail here and not hang."""

    class Late(BaseException):
        """An exception that no handler may take for an error of the command."""

    def late(*_):
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def tree(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def words(command: str, target: str, port: str = "") -> list[str]:
    return [{"T": target, "BUSY": port}.get(word, word) for word in command.split()]


def said_once(capfd) -> str:
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert "defect" not in said
    [line] = [line for line in said.splitlines() if line.startswith("warrenmq ")]
    return line


@pytest.mark.parametrize("command", READING)
def test_a_verb_without_its_input_fails_in_one_sentence_and_makes_nothing(here, capfd, command):
    before = tree(here)
    for name, target in targets().items():
        if name in CAN_BE.get(command, ()):
            continue
        if "--ledger" in command and name in USABLE:
            target = "missing"  # noqa: PLW2901 - the broker is what is missing
        status = main(words(command, target))
        assert status == 2, (name, capfd.readouterr())
        assert said_once(capfd)
        assert tree(here) == before, name


@pytest.mark.parametrize("command", WRITING)
def test_a_verb_that_cannot_write_its_output_fails_in_one_sentence(here, capfd, command, busy_port):
    for name, target in targets().items():
        if name in USABLE and (command.split()[0] in DOES or not command.startswith("serve")):
            continue
        if name in {"a full disk", "not to be made"} and command.startswith("demo") and "--report" in command:
            continue  # known when the demo is over
        status = main(words(command, target, busy_port))
        assert status == 2, (name, capfd.readouterr())
        assert said_once(capfd)


def in_a_shell(line, folder):
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": ROOT},
    )


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("--help", "full"), ("consume jobs --data copy", "full"), ("check good", "closed"),
        ("trace export trace --to shiviz", "gone"), ("consume jobs --data copy", "gone"),
    ],
)  # fmt: skip
def test_a_stdout_that_takes_nothing_is_a_sentence(world, command, where):
    if "copy" in command and not (world / "copy").exists():
        with warrenmq.open(world / "copy") as broker:
            broker.declare_queue("jobs").publish(b"x").result(5)
    redirect = {"full": ">/dev/full", "closed": ">&-", "gone": "| true"}[where]
    line = f"set -o pipefail; '{sys.executable}' -m warrenmq {command} {redirect}"
    done = in_a_shell(line, world)
    assert done.returncode == (0 if where == "gone" else 2), done.stderr
    assert len(done.stderr.splitlines()) == (0 if where == "gone" else 1)
    assert where == "gone" or "stdout cannot be written" in done.stderr


def test_a_stderr_that_takes_nothing_changes_nothing(world):
    for redirect in ("2>/dev/full", "2>&-"):
        line = f"seq 3 | '{sys.executable}' -m warrenmq publish jobs --data good {redirect}; '{sys.executable}' -m warrenmq ls nope {redirect}"
        done = in_a_shell(line, world)
        assert (done.returncode, done.stderr) == (2, "")
    with warrenmq.open(world / "good") as broker:
        assert broker.queue("jobs").info().ready == 7
