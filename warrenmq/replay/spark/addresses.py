"""Paths and addresses of traces, as Spark takes them.

| a user says | what reads it |
| --- | --- |
| a path | this machine's file system, whatever the cluster's `fs.defaultFS` is; it is taken by the letter |
| `file:/x` | Spark, from the local file systems of driver and workers |
| `s3a://`, `abfss://`, `hdfs://`, `dbfs:/`, ... | Spark, through Hadoop's connectors; a pattern (`*`) may name several |
| `/Volumes/...` | Spark, from its default file system: a volume of Databricks, which need not be mounted where Python runs |
"""

from __future__ import annotations

import os
import re

from warrenmq.trace.reader import is_address

_VOLUMES = "/Volumes/"
_PATTERN = re.compile(r"([\\\[\]{}*?])")


def is_of_spark(path: str) -> bool:
    """True if only Spark is asked for it, and Python's `open` is not."""
    return is_address(path) or path.startswith(_VOLUMES)


def for_spark(path: str) -> str:
    """The path as an address; a local one names itself alone, though it has letters of a pattern."""
    return path if is_of_spark(path) else "file:" + _PATTERN.sub(r"\\\1", os.path.abspath(path))


def local_name(address: str) -> str:
    """file:/x as /x; other addresses as they are."""
    return re.sub(r"^file:(//[^/]*)?(?=/)", "", address)
