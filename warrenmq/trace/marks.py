"""Marks: places of a run that an application, a test or a lesson gives a name."""

from __future__ import annotations

from warrenmq.trace.events import Mark
from warrenmq.trace.recorder import MARKS, TEXTS, ActorTrace, Recorder
from warrenmq.trace.writers import writer

_write_mark = writer(Mark)


def mark(recorder: Recorder, trace: ActorTrace, text: str) -> None:
    """Write a MARK row with this text behind the last row of `trace`."""
    _write_mark(trace, recorder.text(text, TEXTS + MARKS))
