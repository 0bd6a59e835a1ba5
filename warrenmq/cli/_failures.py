"""The message and exit status of a command that raises.

| raised | exit status | said |
| --- | --- | --- |
| Problem, CorruptFile, Nacked, Returned | 1 | its message: a problem was found |
| any other Error of ours | 2 | its message: the command cannot be carried out |
| OSError | 2 | the file, and what the system says |
| KeyboardInterrupt | 130 | nothing |
| anything else, a defect of ours | 2 | its last line, and the file with its traceback |
"""

from __future__ import annotations

import errno
import os
import tempfile
import traceback
from typing import NamedTuple

from warrenmq.errors import CorruptFile, Error, Nacked, Returned

FOUND, IMPOSSIBLE, INTERRUPTED = 1, 2, 130


class Problem(Error):
    """A command ran and found a problem (exit status 1)."""


class Failure(NamedTuple):
    """The end of a command: exit status and message."""

    status: int
    text: str
    """One sentence; empty: nothing is said."""


def failure_of(error: BaseException) -> Failure:
    """Look an error up in the table above."""
    if isinstance(error, (Problem, CorruptFile, Nacked, Returned)):
        return Failure(FOUND, _sentence(str(error)))
    if isinstance(error, Error):
        return Failure(IMPOSSIBLE, _sentence(str(error)))
    if isinstance(error, KeyboardInterrupt):
        return Failure(INTERRUPTED, "")
    if isinstance(error, OSError):
        return Failure(IMPOSSIBLE, of_the_system(error))
    if isinstance(error, MemoryError):
        return Failure(IMPOSSIBLE, "there is not enough memory.")
    return Failure(IMPOSSIBLE, _defect(error))


def of_the_system(error: OSError) -> str:
    """An error of the operating system in one sentence: which file, what is wrong, and what to do where that is sure."""
    path = error.filename if error.filename2 is None else error.filename2
    reason = (error.strerror or str(error) or type(error).__name__).rstrip(".")
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return f"too many files are open ({reason}); raise the limit with ulimit -n."
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"there is no room left on the disk{f' for {path}' if path else ''} ({reason}); make room and try again."
    if not isinstance(path, str):
        return f"the system refused: {reason}."
    folder = os.path.dirname(os.path.abspath(path))
    if error.errno == errno.ENOENT and not os.path.isdir(folder):
        return f"{path} cannot be used: there is no directory {folder}."
    if error.errno == errno.EISDIR:
        return f"{path} is a directory; name a file."
    if error.errno == errno.ENOTDIR:
        return f"{path} cannot be used: a part of this path is a file and not a directory."
    return f"{path} cannot be used: {reason}."


def _sentence(text: str) -> str:
    """The text as one line, with one full stop if it ends with that of a quoted error and its own."""
    line = " ".join(text.split())
    return line[:-1] if line.endswith("..") and not line.endswith("...") else line


def _defect(error: BaseException) -> str:
    said = _sentence(traceback.format_exception_only(error)[-1])
    try:
        with tempfile.NamedTemporaryFile("w", prefix="warrenmq-traceback-", suffix=".txt", delete=False, encoding="utf-8",
                                         errors="backslashreplace") as file:  # fmt: skip
            file.writelines(traceback.format_exception(error))
    except OSError:  # the disk may be what is wrong
        return f"this is a defect of warrenmq ({said}); please report it."
    return f"this is a defect of warrenmq ({said}); please report it with the file {file.name}."
