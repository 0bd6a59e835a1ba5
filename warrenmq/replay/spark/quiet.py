"""The standard error of the Java that Spark starts, without the lines that are said every time and say nothing to a user."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_SAID_EVERY_TIME = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Starting Streaming TransformWithStateInPandas Python worker",
    b"Streaming TransformWithStateInPandas Python worker ",
)


@contextmanager
def quiet() -> Iterator[None]:
    """A Java that is started inside has a pipe as its standard error; what it says there is passed on, but for such lines."""
    kept = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    passing = threading.Thread(target=_pass_on, args=(reader, kept), name="stderr of Spark", daemon=True)
    passing.start()
    try:
        yield
    except BaseException:
        os.dup2(kept, 2)
        passing.join(1)  # why Java did not start
        raise
    os.dup2(kept, 2)


def _pass_on(reader: int, to: int) -> None:
    with os.fdopen(reader, "rb") as said, os.fdopen(to, "wb", buffering=0) as passed:
        for line in worth_saying(said):
            passed.write(line)


def worth_saying(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The other lines; an empty one after such a line belongs to it."""
    dropped = False
    for line in lines:
        dropped = line.startswith(_SAID_EVERY_TIME) or (dropped and not line.strip())
        if not dropped:
            yield line
