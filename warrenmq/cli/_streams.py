"""The process's standard streams, for as long as a command runs: a failed write to stdout is one error, one
to stderr is ignored.

stdout   a write that fails raises OutputLost, once; nothing more is written, also not when the interpreter ends
stderr   a write that fails is dropped: a log on a full disk must not end the actor that writes to it
closed   its number is taken by /dev/null, so that no file of ours becomes "stdout" of a child process
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any


class OutputLost(Exception):
    """Standard output cannot be written.  Not an OSError: handlers of those mean files of their own."""

    def __init__(self, why: OSError) -> None:
        super().__init__(why.strerror)
        self.is_broken_pipe = why.errno == errno.EPIPE
        self.reason = "it is closed" if why.errno == errno.EBADF else why.strerror


class _Stdout(io.FileIO):
    """Standard output; after a failed write it takes everything and drops it."""

    _lost = False

    def write(self, data: Any, /) -> int:
        if not self._lost:
            try:
                return super().write(data) or 0
            except OSError as why:
                self._lost = True
                raise OutputLost(why) from None
        return len(memoryview(data).cast("B"))


class _Stderr(io.FileIO):
    """Standard error; what cannot be written is dropped."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(memoryview(data).cast("B"))


@contextmanager
def standard_streams() -> Iterator[None]:
    """Guard the streams, unless a program has replaced them; yields once they are."""
    # reading, and writing, still fails
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        _occupy(number, mode)
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Stdout(1, "w", closefd=False), line_buffering=os.isatty(1))
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Stderr(2, "w", closefd=False), line_buffering=True)
    try:
        yield
    finally:
        with suppress(OutputLost):
            sys.stdout.flush()
        sys.stdout, sys.stderr = before


def _occupy(number: int, mode: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)


def _text(raw: io.FileIO, *, line_buffering: bool) -> Any:
    """A name on the disk may be no text in the terminal's encoding; it is shown with backslashes."""
    encoding = getattr(sys.__stdout__, "encoding", None) or "utf-8"
    stream: IO[str] = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=line_buffering
    )
    return stream
