"""Paths and addresses of traces, as Spark takes them.

| a user says | what reads it |
| --- | --- |
| a path | this machine's file system, whatever the cluster's `fs.defaultFS` is; by the letter if something is there, else as a pattern |
| `file:/x` | Spark, from the local file systems of driver and workers |
| `s3a://`, `abfss://`, `hdfs://`, `dbfs:/`, ... | Spark, through Hadoop's connectors; a pattern (`*`) may name several |
| `/Volumes/...` | Spark, from its default file system: a volume of Databricks, which need not be mounted where Python runs |
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from warrenmq.errors import CallerError
from warrenmq.trace.reader import is_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

_VOLUMES = "/Volumes/"
Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
"""A path or an address, or several in a list, as `load` of Spark's readers takes them."""


def listed(given: Iterable[Paths]) -> list[str]:
    """Each path that was given, by itself or in a list, once; CallerError for one that Java has no letters for."""
    paths = [
        os.fspath(path)
        for some in given
        for path in ([some] if isinstance(some, str | os.PathLike) else some)
    ]
    for path in paths:
        try:
            path.encode()
        except UnicodeEncodeError as odd:
            raise CallerError(f"{path!r} is not UTF-8, and Spark finds no other names: rename it.") from odd
    return list(dict.fromkeys(paths))


def is_of_spark(path: str) -> bool:
    """True if only Spark is asked for it, and Python's `open` is not."""
    return is_address(path) or path.startswith(_VOLUMES)


def load(reader: DataFrameReader, paths: Iterable[str]) -> DataFrame:
    """Load addresses, and local paths by the letter, with one of Spark's own readers of files."""
    names = list(paths)
    addresses = [path for path in names if is_of_spark(path)]
    local = [f"file:{os.path.abspath(path)}" for path in names if path not in addresses]
    found = [reader.load(addresses)] if addresses else []
    if local:
        # An escaped pattern would not do: Hadoop finds no path that has one and a colon.
        found.append(reader.option("__globPaths__", "false").load(local))
    return found[0] if len(found) == 1 else found[0].union(found[1])


def local_name(address: str) -> str:
    """file:/x as /x; other addresses as they are."""
    return re.sub(r"^file:(//[^/]*)?(?=/)", "", address)
