"""Reading a trace: directories or files in, pieces of rows out.

    with open_trace("trace/") as trace:
        for chunk in trace.catalog.chunks:
            for row in trace.rows(chunk): ...

Damage never raises an error, it is listed in the catalogue; only a path that holds no trace does.
"""

from __future__ import annotations

import errno
import glob
import mmap
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO, Self

from warrenmq.errors import CallerError
from warrenmq.trace.block import Stored, columns_of, frame_at, raw_columns
from warrenmq.trace.catalog import Catalog, Chunk, build_catalog
from warrenmq.trace.index import NO_HEADER, FileIndex, Row, index_file, raw_rows, rows_of, unread_file
from warrenmq.trace.schema import COLUMNS
from warrenmq.trace.segment import OF_A_RUN, OF_A_SEGMENT, SEGMENT_SUFFIX, decode_header
from warrenmq.trace.slab import HEAD_BYTES, SLAB_SUFFIX

_NAMED = 3
"""Files that a sentence names."""


class NotATrace(CallerError):
    """The path holds no trace of warrenmq."""


class Trace:
    """An open trace.  Not thread-safe; closing it lets go of its files."""

    def __init__(
        self,
        files: Mapping[str, memoryview],
        opened: ExitStack | None = None,
        indexes: Sequence[FileIndex] = (),
    ) -> None:
        """`indexes`: of more files, whose rows are all in slabs, or cannot be read."""
        self._files = files
        self._opened = opened or ExitStack()
        self.catalog: Catalog = build_catalog(
            [*(index_file(name, data) for name, data in files.items()), *indexes]
        )
        require_runs(self.catalog)

    def columns(self, chunk: Chunk, wanted: Collection[str] = COLUMNS) -> list[memoryview]:
        """The nine columns of a piece, as int64; those that are not wanted may be zeros."""
        return columns_of(self.stored(chunk), wanted)

    def stored(self, chunk: Chunk) -> Stored:
        """The rows of a piece as they stand in its file."""
        if chunk.raw:
            return raw_columns(chunk.raw)
        frame = frame_at(self._files[chunk.file], chunk.offset)
        assert frame is not None, "the catalogue lists only frames that were whole"
        return frame

    def rows(self, chunk: Chunk) -> list[Row]:
        return raw_rows(chunk.raw) if chunk.raw else rows_of(self.columns(chunk))

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_address(path: str) -> bool:
    """True for an address with a scheme (s3a://..., dbfs:/..., file:/...), which is no path of this machine; C:/ is one."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) is not None


def named_by(path: str) -> list[str]:
    """The paths that a pattern (`*`, `?`, `[`) names; the path itself if something is there, or nothing fits the pattern."""
    return [path] if os.path.lexists(path) else sorted(glob.glob(path)) or [path]


def trace_files(path: str) -> list[str]:
    """The trace files of a path or of all that a pattern names: all in a directory, or the file itself."""
    return [file for each in named_by(path) for file in _files_at(each)]


def _files_at(path: str) -> list[str]:
    if is_address(path):
        msg = f"{path} is an address: only `warrenmq replay` in Spark and warrenmq.replay.read take one; name a path of this machine."
        raise NotATrace(msg)
    if os.path.isdir(path):
        names = names_in(path)
        if not names:
            inner = any(map(is_named_as_trace, glob.iglob(os.path.join(glob.escape(path), "*", "*"))))
            remedy = (
                f"The folders in it do: name them all as {os.path.join(path, '*')}."
                if inner
                else "Was the broker opened with trace=...?"
            )
            raise NotATrace(f"{path} is no trace: it holds no {SEGMENT_SUFFIX} file. {remedy}")
        return names
    if not os.path.exists(path):
        raise NotATrace(f"there is no trace at {path}: no such file or directory.")
    if not os.path.isfile(path):  # to open a pipe waits for a writer, and a device may have no end
        raise NotATrace(f"{path} is no trace: it is neither a directory nor a file.")
    return [path]


def names_in(directory: str) -> list[str]:
    """The trace files of a directory, also those that cannot be read."""
    return [
        os.path.join(directory, name) for name in sorted(os.listdir(directory)) if is_named_as_trace(name)
    ]


def is_named_as_trace(path: str) -> bool:
    """True if a file that is found by this name is one of a trace; hidden ones are not, as Spark does not find them."""
    name = os.path.basename(path)
    return name.endswith((SEGMENT_SUFFIX, SLAB_SUFFIX)) and not name.startswith((".", "_"))


def require_live(paths: Iterable[str]) -> None:
    """Raise NotATrace unless each path, or pattern, names directories with trace files, or a file that begins as one."""
    for path in paths:
        trace_files(path)
        if files := [each for each in named_by(path) if not os.path.isdir(each)]:
            require_header(files)


def require_header(names: Iterable[str]) -> None:
    """Raise NotATrace unless one of these files begins as a trace."""
    names = list(names)
    if all(header_of(name) is None for name in names):
        named = ", ".join(names[:_NAMED]) or "no path was given"
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise NotATrace(f"{named}{more}: no file there begins with a whole header of a trace.")


def require_runs(catalog: Catalog, of: Iterable[str] = ()) -> None:
    """Raise NotATrace if no file has a header."""
    if not catalog.runs:
        why = [f"{name}: {reason}" for name, reason in catalog.unread.items()]
        why = why or [f"{name}: it holds no file of a trace" for name in of]
        more = f"; and {len(why) - _NAMED} more" if len(why) > _NAMED else ""
        raise NotATrace(f"there is no trace to be read ({'; '.join(why[:_NAMED])}{more}).")


def header_of(name: str) -> dict[str, Any] | None:
    """The header of a trace file; None if the file begins with none, is gone, or cannot be read."""
    try:
        return _header(name)
    except OSError:
        return None


def why_unread(name: str) -> str:
    """The reason why nothing of a file can be read; empty if it begins with a header."""
    try:
        return "" if _header(name) is not None else NO_HEADER
    except OSError as error:
        return _refused(error)


def _header(name: str) -> dict[str, Any] | None:
    keys = OF_A_RUN if name.endswith(SLAB_SUFFIX) else OF_A_SEGMENT
    with opened_file(name) as file:
        # Headers repeat the names of all actors, so they may be long: try a little first.
        data = file.read(HEAD_BYTES)
        head = decode_header(memoryview(data), keys) or decode_header(memoryview(data + file.read()), keys)
    return head[0] if head is not None else None


def _refused(error: OSError) -> str:
    return f"it cannot be read ({error.strerror})"


def open_trace(*paths: str | os.PathLike[str]) -> Trace:
    """Open directories and files as one trace."""
    opened = ExitStack()
    try:
        files, unread = mapped([name for path in paths for name in trace_files(os.fspath(path))], opened)
        return Trace(files, opened, unread)
    except BaseException:
        opened.close()
        raise


def open_memory(files: Mapping[str, bytes]) -> Trace:
    """Open the files of a MemorySink."""
    return Trace({name: memoryview(data) for name, data in files.items()})


def mapped(names: Iterable[str], opened: ExitStack) -> tuple[dict[str, memoryview], list[FileIndex]]:
    """The bytes of files, mapped until `opened` is closed, and the indexes of those that are empty or cannot be read."""
    files: dict[str, memoryview] = {}
    unread: list[FileIndex] = []
    for name in names:
        try:
            with opened_file(name) as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            unread.append(unread_file(name, _refused(error)))
        except ValueError:  # an empty file cannot be mapped
            unread.append(unread_file(name, NO_HEADER))
        else:
            opened.callback(_unmap, data)
            files[name] = memoryview(data)
    return files, unread


def opened_file(name: str) -> BinaryIO:
    """A file that is open for reading: to open a pipe would wait for a writer, and a device may have no end."""
    if not stat.S_ISREG(os.stat(name).st_mode):
        raise OSError(errno.EINVAL, "it is no file", name)
    return open(name, "rb")


def _unmap(data: mmap.mmap) -> None:
    try:
        data.close()
    except BufferError:
        pass  # a memoryview of the bytes is still in use: the map goes with it
