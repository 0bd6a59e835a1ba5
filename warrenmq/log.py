"""The log for people: start, stop, restart, damage, a full disk.  Never a line for a message.

Lines go through structlog.  A program that has configured structlog gets them its way; in one that has not they go to
the standard library's logger "warrenmq", so that an embedded broker is silent below WARNING unless it is asked.  Which
of the two is decided line by line: a program may configure either after it imported us.

structlog is imported with the first line that somebody asked for: it is a third of what the embedded broker costs to import.

A line that cannot be written is dropped, as `logging.Handler.handleError` does: a closed stderr, a full disk
or a program's own processor that raises must not crash the actor that had something to say, least of all
while it ends.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any


class Log:
    """A logger with context; cheap to make."""

    __slots__ = ("_context", "_name")

    def __init__(self, name: str, **context: Any) -> None:
        self._name = name
        self._context = context

    def bind(self, **context: Any) -> Log:
        """Return a logger with more context."""
        return Log(self._name, **(self._context | context))

    def info(self, event: str, **more: Any) -> None:
        """Log something that a person may want to know."""
        self._write("info", event, more)

    def warning(self, event: str, **more: Any) -> None:
        """Log something that a person should look at."""
        self._write("warning", event, more)

    def error(self, event: str, **more: Any) -> None:
        """Log something that is wrong; `exc_info` adds an exception."""
        self._write("error", event, more)

    def exception(self, event: str, **more: Any) -> None:
        """Log an error with the exception that is being handled."""
        self._write("error", event, {"exc_info": True} | more)

    def _write(self, level: str, event: str, more: dict[str, Any]) -> None:
        if _silenced:
            return
        if "structlog" not in sys.modules and not logging.getLogger(self._name).isEnabledFor(_LEVELS[level]):
            return  # nobody can have configured it
        with suppress(Exception):
            getattr(self._logger(), level)(event, **more)

    def _logger(self) -> Any:
        import structlog  # noqa: PLC0415  # see above

        if structlog.is_configured():
            return structlog.get_logger(self._name, **self._context)
        plain = structlog.wrap_logger(
            logging.getLogger(self._name), processors=_plain(), wrapper_class=structlog.stdlib.BoundLogger
        )
        return plain.bind(**self._context)


_silenced: list[None] = []


@contextmanager
def silence() -> Iterator[None]:
    """Drop all lines of this process while the block runs: those of a fleet of simulated brokers are never read."""
    _silenced.append(None)
    try:
        yield
    finally:
        _silenced.pop()


_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@cache
def _plain() -> list[Any]:
    """The processors for a program that has not configured structlog."""
    import structlog  # noqa: PLC0415  # see above

    renderer = structlog.dev.ConsoleRenderer(
        colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    return [structlog.stdlib.filter_by_level, renderer]
