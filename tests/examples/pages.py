"""Pieces of code on the pages, and the files that they find where they run."""

import os
import re
import shutil

from tests.support import programs
from tests.support.source_tree import ROOT, blocks

WITH_SPARK = {
    "README.md: Analyse a run, python 2": r"\|queue:jobs\| +3\|",
    "docs/replay.md: Questions of your own, python 1": r"\|actor\|flag\|count\|",
    "docs/replay.md: Trends over many replays, python 1": r"\| +began\| +trace\| +value\|(.*\n){2}\|\d{4}-",
    "docs/replay.md: One event, its columns by name, python 1": r"queue:jobs\|MAILBOX_EMPTY\|(.*\n)*.*\[PERSISTENT",
    "docs/replay.md: Lifecycles, python 1": r"jobs *\|3 +\|.*(\n.*)*audit-a *\|\d+ +\|\[",
    "docs/replay.md: Recipes, python 1": r"\| *jobs\|\d[\d :-]+\| +3\| +3\|(.*\n)+.*\| *queue:jobs\| +CONFIRM\| +DURABLE",
    "docs/replay.md: The data source, python 1": r"^\s*[1-9]\d* \d+ \['t', 'ev'\] 0$",
    "docs/replay.md: The data source, python 2": "",
    "docs/replay.md: Traces of RabbitMQ, python 1": r"audit-a\|",
}
"""A part of the output of those that need Spark, which run in tests/spark: there is a session."""

IN_SPARK = "warrenmq replay trace/"
"""The command line that runs there, too."""


def python(*arguments, cwd):
    return programs.run(arguments, cwd=cwd)


def named(name):
    return next(block for block in blocks("python") if str(block) == name)


def readme_trace(where):
    """Run the README's own tracing example; return its trace."""
    done = python("-c", named("README.md: Analyse a run, python 1").code, cwd=where)
    assert done.returncode == 0, done.stderr
    return where / "trace"


def lay_out_logs(where):
    """Lay out logs of RabbitMQ's tracing plugin, in both formats."""
    folder = os.path.join(ROOT, "tests", "golden", "rabbitmq-tracing-3.10")
    (where / "rabbitmq-tracing").mkdir()
    shutil.copy(os.path.join(folder, "all-json.log"), where / "rabbitmq-tracing")
    for name in ("published", "received"):
        shutil.copy(os.path.join(folder, "all-text.log"), where / f"{name}.log")


DIFFERENT = re.compile(
    r"^ +\d+(?= \d\d:)|\d{4}-\d\d-\d\d[T ][\d:.]+|\d\d:\d\d\.\d+|\d+\.\d+|\d+(?= m?s\b| B\b| events\b)|/tutorial/\S+|\d[\d,]{4,}"
)
"""Parts of what is printed that are others each time: times, places, rows, sizes and long numbers."""


def expected(lines):
    """A regular expression for lines of a page, and the numbers of theirs that its groups stand for."""
    pattern, numbers = "", []
    for line in lines:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
            continue
        parts, at = [], 0
        for number in DIFFERENT.finditer(line):
            parts += [re.escape(line[at : number.start()]), r"([\d.,:T -]+|/\S+)"]
            numbers.append(number[0])
            at = number.end()
        parts.append(re.escape(line[at:]))
        pattern += re.sub(r"(?:\\ )+", r"\\s+", "".join(parts).strip()).join((r"[^\S\n]*", r"\s*?\n"))
    return pattern, numbers
