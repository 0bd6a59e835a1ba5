"""Programs of pages and examples, each in a process of its own that is forked from one which has imported the packages they use.

A new interpreter costs more than most of these programs do.  This file is also what runs in the process that forks.
"""

import atexit
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import warnings

PRELOADED = {
    "python": (
        "warrenmq",
        "warrenmq.supervisors.broker_sup",
        "pika",
        "pamqp.frame",
        "asyncio",
        "sqlite3",
        "uuid",
    ),
    "warrenmq": (
        "warrenmq.cli",
        "warrenmq.amqp",
        "warrenmq.shared.looking",
        "warrenmq.replay",
        "warrenmq.testing",
    ),
}
"""For programs not the submodules that they have to import by themselves: one that forgets to must fail."""


class Program:
    """One started program; its process is ended by a signal, or by itself."""

    def __init__(self, starter, pid):
        self._starter = starter
        self.pid = pid

    def wait(self):
        """Wait for its end; returns the exit code, or minus the signal."""
        return self._starter.ask({"wait": self.pid})


class _Starter:
    def __init__(self, kind):
        from tests.support.source_tree import ROOT  # not in the process that forks

        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": ROOT},
        )
        atexit.register(self._end)

    def _end(self):
        self._process.communicate()

    def ask(self, order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@functools.cache
def _starter(kind):
    return _Starter(kind)


def start(arguments, *, cwd, stdout, stderr, environment=()):
    """Run Python with arguments, as `python ARGUMENTS` would; stdout and stderr are paths, to which it appends."""
    order = {
        "arguments": [os.fspath(each) for each in arguments],
        "cwd": os.fspath(cwd),
        "stdout": os.fspath(stdout),
        "stderr": os.fspath(stderr),
        "environment": dict(environment),
    }
    starter = _starter("warrenmq" if order["arguments"][:2] == ["-m", "warrenmq"] else "python")
    return Program(starter, starter.ask(order))


def run(arguments, *, cwd, environment=()):
    """Run Python with arguments to its end; returns what subprocess.run would."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = (os.path.join(folder, name) for name in ("stdout", "stderr"))
        code = start(arguments, cwd=cwd, stdout=out, stderr=err, environment=environment).wait()
        with open(out, encoding="utf-8") as printed, open(err, encoding="utf-8") as told:
            return subprocess.CompletedProcess(arguments, code, printed.read(), told.read())


def _serve():
    """Fork a child for each program that is ordered; returns its order in the child, and None when there is nobody to order."""
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                return order
        print(answer, flush=True)
    return None


def _become(order):
    """Run the program in this process, which has nothing of the parent but its modules."""
    os.chdir(order["cwd"])
    os.environ.update(order["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdout.reconfigure(line_buffering=True)  # as in a terminal, where output and log come in their order
    first, *others = order["arguments"]
    if first == "-m":
        sys.argv, sys.path[0] = others, os.getcwd()
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *others[1:]], ""
        exec(compile(others[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [first, *others], os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for each in PRELOADED[sys.argv[1]]:
        try:
            __import__(each)
        except ImportError:
            pass  # an extra that is not installed: those who need it skip
    if (ordered := _serve()) is not None:
        warnings.simplefilter("error")
        _become(ordered)
