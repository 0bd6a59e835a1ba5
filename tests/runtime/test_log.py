"""A log that cannot be written costs its lines and nothing else."""

from __future__ import annotations

import io
import logging

import pytest
import structlog

from tests.support.schedulers import LIMIT, until
from warrenmq.log import Log
from warrenmq.runtime import Server
from warrenmq.supervisors import ChildSpec, Supervisor, which_children


class Worker(Server):
    def handle_call(self, request, _sender):
        return request

    def handle_cast(self, message):
        raise ValueError(message)

    def terminate(self, reason):
        Log("test").warning("ends", reason=repr(reason))


class Sup(Supervisor):
    def children(self):
        return [ChildSpec("worker", Worker, name="worker")]


def a_processor_that_raises():
    def raises(_logger, _level, _event):
        raise KeyError("a field that a program's own processor expects")

    structlog.configure(processors=[raises])


def a_closed_file():
    closed = io.StringIO()
    closed.close()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(closed))


def a_handler_that_raises():
    class Handler(logging.Handler):
        def emit(self, record):
            raise OSError("no space left on device")

    handler = Handler()
    logging.getLogger("warrenmq").addHandler(handler)
    return lambda: logging.getLogger("warrenmq").removeHandler(handler)


@pytest.mark.parametrize("broken", [a_processor_that_raises, a_closed_file, a_handler_that_raises])
def test_a_crash_whose_log_line_cannot_be_written_is_still_a_crash_and_a_restart(runtime, broken):
    structlog.reset_defaults()  # the fixture's capture
    mend = broken()
    try:
        sup = runtime.start(Sup)
        first = which_children(runtime, sup)[0].ref
        runtime.cast("worker", "boom")
        until(runtime, lambda: which_children(runtime, sup)[0].ref not in {first, None})
        assert runtime.call("worker", 1, LIMIT) == 1
        assert runtime.stop_actor(sup, timeout=LIMIT)
    finally:
        if mend is not None:
            mend()
