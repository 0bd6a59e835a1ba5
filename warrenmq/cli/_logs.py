"""Logs of `warrenmq serve`: one line an event, as text or as JSON, to stderr or to a file."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog

LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR, "critical": logging.CRITICAL, "none": logging.CRITICAL + 1,
}  # fmt: skip
"""RabbitMQ's names of levels."""


class LogFile:
    """A log file that is appended to, and opened anew when it was renamed or removed: as logrotate leaves it, and
    OTP's logger takes it.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._file = self._opened()

    def _opened(self) -> TextIO:
        return open(self._path, "a", encoding="utf-8", buffering=1)

    def write(self, text: str) -> None:
        """Append a line."""
        with suppress(OSError):  # it goes into the old file while there can be no new one
            if not self._is_there():
                new = self._opened()
                self._file.close()
                self._file = new
        self._file.write(text)

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def flush(self) -> None:
        self._file.flush()

    def isatty(self) -> bool:
        return self._file.isatty()


def configure(*, level: str, as_json: bool, path: str | None, console: bool = True) -> None:
    """Log from now on as said: to a file that is appended to, or to stderr; nowhere when `console` is False without a file.

    OSError when the file cannot be opened.
    """
    out: Any = sys.stderr
    if path is not None:
        out = LogFile(path)
    elif not console:
        level = "none"
    renderer: Any
    if as_json:
        renderer = structlog.processors.JSONRenderer(sort_keys=False, default=repr)
    else:
        # plain tracebacks: rich ones print the values of variables, among them passwords and messages
        renderer = structlog.dev.ConsoleRenderer(
            colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        )
    processors = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%Y-%m-%d %H:%M:%S", utc=as_json),
        *([structlog.processors.format_exc_info] if as_json else []),
        renderer,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
