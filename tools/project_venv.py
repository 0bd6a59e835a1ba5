"""The virtual environment of the README's commands, made on first use and used again while it is up to date.

The README's two commands stand on this: they are typed in a fresh clone, on a machine that has Python (with `venv`
and `pip`) and nothing else.  So this file imports the standard library only, and it must still be readable for an
old Python, to be able to say that it is too old.

All of them use the same one; each adds what it needs and is not there.  An extra is there while its stamp
file holds the hash of what went in with it: pyproject.toml, constraints.txt and the interpreter.  The stamp
is written last, so that an installation that broke off is done again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST = (3, 11)
FOLDER = ".venv-test"
EVERYTHING = "all"
"""The extra that holds all others."""


def ensure(extra: str, groups: Sequence[str] = ()) -> str:
    """The interpreter of an environment that holds this project with `extra` and dependency groups.

    Ends the process with a sentence on stderr, and pip's own words above it, when it cannot be made.
    """
    if sys.version_info < OLDEST:
        sys.exit(f"warrenmq needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is {sys.version.split()[0]}")
    folder = os.path.join(ROOT, FOLDER)
    python = os.path.join(folder, "bin", "python")
    stamp, wanted = os.path.join(folder, "stamp-" + extra), _fingerprint()
    enough = [stamp, os.path.join(folder, "stamp-" + EVERYTHING)]
    if os.path.exists(python) and any(_read(each) == wanted for each in enough):
        return python
    started = time.monotonic()
    _say(f"setting up {FOLDER} (first use, or pyproject.toml or constraints.txt changed)")
    _make(folder, python)
    _say("installing; pyspark is a 450 MB source archive, so this takes one to three minutes the first time")
    _install(python, ["-e", f".[{extra}]", *(each for group in groups for each in _group(group))])
    with open(stamp, "w", encoding="ascii") as file:
        file.write(wanted)
    _say(f"ready after {time.monotonic() - started:.0f} s")
    return python


def run(python: str, *arguments: str, cwd: str | None = None) -> int:
    """Run `python arguments...` and return its exit code; modules are compiled once, not by each of its child processes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        return subprocess.call([python, *arguments], cwd=cwd, env=environment)
    except KeyboardInterrupt:
        return 130  # the child had the same Ctrl-C and has said what it had to say


def _group(name: str) -> list[str]:
    """The requirements of a dependency group, read here because pip knows groups only since 25.1."""
    import tomllib  # noqa: PLC0415  (there since Python 3.11, which was checked above)

    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return list(tomllib.load(file)["dependency-groups"][name])


def _fingerprint() -> str:
    digest = hashlib.sha256(repr((sys.version, ROOT)).encode())
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def _make(folder: str, python: str) -> None:
    if (
        os.path.exists(python)
        and subprocess.call([python, "-c", "import pip"], stderr=subprocess.DEVNULL) == 0
    ):
        return
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if made.returncode:
        _say(made.stdout.strip())
        shutil.rmtree(folder, ignore_errors=True)
        sys.exit("python -m venv failed; on Debian and Ubuntu it is in the package python3-venv")


def _install(python: str, requirements: list[str]) -> None:
    pip = [python, "-m", "pip", "install", "-qq", "--no-input", "--disable-pip-version-check"]
    failed = subprocess.call([*pip, "-c", "constraints.txt", *requirements], cwd=ROOT)
    if failed:
        sys.exit(
            f"pip failed with exit code {failed}; its own message is above. What is installed so far is kept:"
            " run the same command again once the cause is gone."
        )


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
