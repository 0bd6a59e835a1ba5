"""A home of Spark whose Python workers find PySpark compiled.

Spark puts the archive python/lib/pyspark.zip of its home first on the path of its workers, and of an archive
Python keeps no compiled modules: each of the four daemons behind a first read would compile for half a
second.  So beside the home that pip installed we write another one into the user's cache folder, made of
links, in which a folder stands in the archive's place.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warrenmq.replay.spark.java import cache_folder

_ARCHIVE = "pyspark.zip"
_LINKED = ("bin", "conf", "jars", "sbin")
"""Folders of a home that Spark looks for there; of a user's own `conf` it is enough that it may come."""


@contextmanager
def compiled_pyspark() -> Iterator[None]:
    """A Java that is started inside has this home, unless the user chose another, or another Python for the workers."""
    import pyspark

    if "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON") != sys.executable:
        yield
        return
    installed = Path(pyspark.__file__).parent
    name = "spark-" + hashlib.sha256(f"{installed} {pyspark.__version__}".encode()).hexdigest()[:12]
    try:
        home = home_of_links(cache_folder() / name, installed)
    except OSError:  # a read-only home: it is only slower
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]  # a program that this one starts may have another PySpark


def home_of_links(home: Path, installed: Path) -> Path:
    """Write a home of links to an installed PySpark, if it is not there."""
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=home.name, dir=home.parent))
    try:
        for name in _LINKED:
            (half / name).symlink_to(installed / name)
        libraries = half / "python" / "lib"
        (libraries / _ARCHIVE).mkdir(parents=True)
        (libraries / _ARCHIVE / installed.name).symlink_to(installed)
        for library in (installed / "python" / "lib").iterdir():
            if library.name != _ARCHIVE:
                (libraries / library.name).symlink_to(library)
        half.rename(home)
    except OSError:
        shutil.rmtree(half, ignore_errors=True)
        if not home.exists():  # two processes may be here at once
            raise
    return home
