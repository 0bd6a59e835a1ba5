"""Every tutorial is typed from top to bottom: its files are written, its commands run, and they print what the page shows.

    ```python title="first.py"          a file
    ```console                          a terminal: `$ ` and a command, then all that it prints; a line `...` is any lines
    ```console title="the server"       another terminal, where a program goes on until `^C` is typed there

Numbers that are different each time (decimals, times, five digits and more) stand for what is printed, and for the same number further
down. The parts with Spark run in the session of tests/spark.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import threading

import pytest

from tests.examples.pages import expected
from tests.support import golden, programs
from tests.support.limits import LIMIT
from tests.support.source_tree import PART, TUTORIALS, pages, text_of

SETUP = ("python3 -m venv ", ". ", "pip install ", "mkdir ", "cd ", "tar ")
"""Beginnings of commands that the tests have behind them."""
NEEDS = {
    "move-from-rabbitmq": ["pika"],
    "serve": ["pika", "uvicorn"],
    "many-processes": ["pamqp"],
    "write-a-lesson": ["greenlet"],
}
TUTORIAL = [page for page in pages() if page.startswith(TUTORIALS)]


class Terminal:
    """One terminal of a page: the program that runs there and its output, followed line by line."""

    def __init__(self, folder, number):
        self._path = folder / f".terminal-{number}"
        self._folder = folder
        self.program = None
        self._seen = 0

    def start(self, command):
        self._path.write_text("")
        self._seen = 0
        words = shlex.split(command)
        if words[0] in {"python", "warrenmq"} and not set(command) & set("|&;<>$"):
            arguments = words[1:] if words[0] == "python" else ["-m", *words]
            self.program = programs.start(arguments, cwd=self._folder, stdout=self._path, stderr=self._path)
        else:
            with self._path.open("a") as printed:
                subprocess.run(
                    command, shell=True, cwd=self._folder, stdout=printed, stderr=printed, check=False
                )
            self.program = None

    def end(self):
        """Wait until the program has ended by itself."""
        if self.program.wait() == -signal.SIGKILL:
            with self._path.open("a") as printed:
                printed.write("Killed\n")  # the shell's word
        self.program = None

    def interrupt(self):
        os.kill(self.program.pid, signal.SIGINT)
        self.end()

    def unread(self):
        return self._path.read_text()[self._seen :]

    def follow(self, lines, known, whole):
        """Take the next lines of what is printed, which must be these; all that there is, if `whole`."""
        pattern, numbers = expected(lines)
        waited = 0
        while not (found := re.match(pattern + (r"\Z" if whole else ""), self.unread())):
            if whole or waited > LIMIT:
                raise AssertionError("\n".join(["printed:", self.unread(), "on the page:", *lines]))
            threading.Event().wait(0.02)  # another process has no other sign
            waited += 0.02
        known.update(zip(numbers, found.groups(), strict=True))
        self._seen += found.end()


def renamed(text, known):
    return re.sub(r"\d{5,}", lambda number: known.get(number[0], number[0]), text)


def type_down(page, folder):
    """Do all that a page says, in a folder."""
    ports = {port: free_port() for port in ("5672", "15672")}
    text = re.sub(r"\b1?5672\b", lambda port: ports[port[0]], text_of(page))
    terminals, known = {}, {}
    try:
        for part in PART.finditer(text):
            if part["language"] == "console":
                terminal = terminals.setdefault(part["title"], Terminal(folder, len(terminals)))
                in_terminal(terminal, part["code"].splitlines(), known, ends=part["title"] is None)
            elif part["title"]:
                path = folder / part["title"]
                path.parent.mkdir(exist_ok=True)
                path.write_text(renamed(part["code"], known))
    finally:
        for terminal in terminals.values():
            if terminal.program is not None:
                os.kill(terminal.program.pid, signal.SIGKILL)
                terminal.program.wait()


def in_terminal(terminal, lines, known, *, ends):
    at = 0
    while at < len(lines):
        first = lines[at]
        command = first.removeprefix("$ ") if first.startswith("$ ") else None
        at += command is not None or first == "^C"
        printed = []
        while at < len(lines) and not lines[at].startswith("$ ") and lines[at] != "^C":
            printed.append(lines[at])
            at += 1
        if command is not None:
            if command.startswith(SETUP) or is_for_spark(command, terminal):
                continue
            terminal.start(renamed(command, known))
        elif first == "^C":
            terminal.interrupt()
        if terminal.program is not None and ((ends and command is not None) or printed[-1:] == ["Killed"]):
            terminal.end()
        terminal.follow(printed, known, whole=terminal.program is None)


def is_for_spark(command, terminal):
    words = shlex.split(command)
    return words[0] == "python" and "spark" in (terminal._folder / words[1]).read_text()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return str(listening.getsockname()[1])


@pytest.mark.parametrize("page", TUTORIAL)
def test_a_tutorial_prints_what_it_shows(page, tmp_path):
    for package in NEEDS.get(os.path.basename(page).removesuffix(".md"), []):
        pytest.importorskip(package)
    golden.lay_out("c02-v1-store-a", tmp_path / "rabbit")
    type_down(page, tmp_path)
