"""Reads log files of the tracing plugin into records, in the order of their times.

    with open_logs("/var/tmp/rabbitmq-tracing") as logs:
        for record in logs.records(): ...
        logs.files                                   # what each file was, and what is damaged in it

Files are read in pieces, compressed ones (.gz) as well: what is in memory is one record of each file.  Several files are one
trace: the parts of one log, or a trace of what is published beside one of what is received.
"""

from __future__ import annotations

import gzip
import heapq
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from operator import attrgetter
from typing import IO, Literal, TypeAlias

from warrenmq.errors import CallerError
from warrenmq.rabbit_logs.json_format import record_behind_damage, record_of_line
from warrenmq.rabbit_logs.record import BadRecord, Record
from warrenmq.rabbit_logs.text_format import BEGIN, TextLog

Format = Literal["json", "text", "empty"]
Bytes: TypeAlias = BufferedReader | gzip.GzipFile
PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_TORN = (EOFError, zlib.error, gzip.BadGzipFile)
"""A compressed file is damaged."""


class NotATracingLog(CallerError):
    """The path holds no log of the tracing plugin."""


@dataclass(slots=True)
class LogFile:
    """One file and the damage in it; complete when its records have been read."""

    path: str
    format: Format
    records: int = 0
    damaged: int = 0
    """Places where a record is torn or broken."""
    in_bodies: int = 0
    """Text format: records that were taken for text of a body."""
    skipped: int = 0
    """Bytes ahead of the first record: the file's beginning was cut off."""

    def read(self) -> Iterator[Record]:
        """Read the records of a file in order."""
        with _opened(self.path) as file:
            records = self._json(file) if self.format == "json" else self._text(_pieces(file))
            for record in records:
                self.records += 1
                yield record

    def read_part(self, begin: int, end: int) -> Iterator[Record]:
        """The records of the lines that begin at one of these bytes, of a log in JSON that is not compressed."""
        with open(self.path, "rb") as file:
            if begin:
                file.seek(begin - 1)
                file.readline()
            yield from self._json(_lines(file, end))

    @property
    def can_be_parted(self) -> bool:
        """True for plain JSON: the start of a record in the text format depends on the bytes before it."""
        with open(self.path, "rb") as file:
            return self.format == "json" and file.read(2) != _GZIP

    def _unpacked(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield from pieces
        except _TORN:
            self.damaged += 1  # a compressed file ends early

    def _json(self, lines: Iterable[bytes]) -> Iterator[Record]:
        for number, line in enumerate(self._unpacked(lines)):
            if not line.strip():
                continue
            try:
                yield record_of_line(line)
            except BadRecord:
                if number == 0 and not line.startswith(b"{"):
                    self.skipped = len(line)
                    continue
                self.damaged += 1
                found = record_behind_damage(line)
                if found is not None:
                    yield found

    def _text(self, pieces: Iterable[bytes]) -> Iterator[Record]:
        log = TextLog()
        yield from log.records(self._unpacked(pieces))
        self.damaged += log.damaged
        self.in_bodies, self.skipped = log.in_bodies, log.skipped


@dataclass(slots=True)
class TracingLogs:
    """Several log files read as one trace."""

    files: list[LogFile] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """All records; those of one file in its order, those of several by time."""
        return heapq.merge(*(file.read() for file in self.files), key=attrgetter("t"))


def open_logs(*paths: str | os.PathLike[str]) -> TracingLogs:
    """The logs that these paths mean: files, or directories with *.log and *.log.gz in them."""
    names = [name for path in paths for name in _names(os.fspath(path))]
    return TracingLogs([LogFile(name, format_of(name)) for name in names])


def _names(path: str) -> list[str]:
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name.endswith((".log", ".log.gz")))
        if not names:
            raise NotATracingLog(f"{path} holds no log: no *.log and no *.log.gz is in it.")
        return [os.path.join(path, name) for name in names]
    if not os.path.exists(path):
        raise NotATracingLog(f"there is no log at {path}: no such file or directory.")
    if stat.S_ISCHR(os.stat(path).st_mode) and path != os.devnull:
        raise NotATracingLog(f"{path} is no log: it is a device.")
    return [path]


def format_of(path: str) -> Format:
    """The plugin's format of a file.  Raises NotATracingLog when it has neither."""
    with _opened(path) as file:
        begin = b"\n"
        try:
            for piece in _pieces(file):
                begin += piece
                if len(begin) > PIECE:
                    break
        except _TORN:
            pass  # the reader counts it
        except OSError as error:
            raise NotATracingLog(f"{path} cannot be read: {error.strerror}.") from error
    if not begin.strip():
        return "empty"
    if BEGIN.search(begin) is not None and not begin.lstrip().startswith(b"{"):
        return "text"
    for line in begin.splitlines():
        try:
            record_of_line(line)
        except BadRecord:
            continue
        return "json"
    if begin.lstrip().startswith((b'{"channel":', b'{"timestamp":', b"=" * 80)):
        # nothing but one torn, or very long, record
        return "json" if begin.lstrip().startswith(b"{") else "text"
    raise NotATracingLog(
        f"{path} is no log of RabbitMQ's tracing plugin: nothing at its beginning is a record, neither as text nor as JSON."
    )


def _lines(file: IO[bytes], end: int) -> Iterator[bytes]:
    while file.tell() < end and (line := file.readline()):
        yield line


def _pieces(file: Bytes) -> Iterator[bytes]:
    # read1: what a torn compressed file still gives comes before the error
    return iter(lambda: file.read1(PIECE), b"")


def _opened(path: str) -> Bytes:
    try:
        file = open(path, "rb")  # noqa: SIM115 - the caller's `with` closes it
    except OSError as error:
        raise NotATracingLog(f"{path} cannot be read: {error.strerror}.") from error
    packed = file.read(2) == _GZIP
    file.seek(0)
    if not packed:
        return file
    file.close()
    return gzip.open(path, "rb")
