"""Chapters: bookmarks for the first row of each kind of event."""

from __future__ import annotations

from warrenmq.lens.tables import CANCEL, COLLECT, CRASH, RECOVERY, ROLL, Step
from warrenmq.trace.events import Ev

_OF_MARKS = {
    CANCEL: "a write is cancelled",
    ROLL: "roll-over",
    COLLECT: "the collector",
    RECOVERY: "recovery",
}
_OF_EVENTS = {
    int(Ev.CONFIRM): "the first confirm",
    int(Ev.QI_FLUSH): "journal to segments",
    int(Ev.PAGE_OUT): "a queue lets go of memory",
    int(Ev.FILE_DELETE): "a file is deleted",
    int(Ev.TRUNCATE): "a file is cut",
    int(Ev.CREDIT_BLOCKED): "no credit left",
    int(Ev.ALARM_SET): "an alarm",
    int(Ev.ESCALATE): "a supervisor gives up",
}
_CRASHES = {
    int(Ev.RUN_START): "the process is gone",
    int(Ev.ACTOR_STOP): "an actor dies",
    int(Ev.CHILD_EXIT): "an actor dies",
}
MOST = 16
MOST_MARKS = 100


class Chapters:
    """Collects the chapters of one trace while its rows are folded."""

    def __init__(self) -> None:
        self._found: list[tuple[int, str]] = []
        self._marks: list[tuple[int, str]] = []
        self._met: set[str] = set()

    @property
    def found(self) -> list[tuple[int, str]]:
        """(row, title): the marks, where an application, a test or a lesson has written some."""
        return self._marks or self._found

    def look(self, number: int, event: int, step: Step) -> None:
        """Note a row if it begins a chapter."""
        if event == Ev.MARK:
            if len(self._marks) < MOST_MARKS:
                self._marks.append((number, step.caption[1]))
            return
        title = _OF_EVENTS.get(event)
        if title is None and step.mark:
            title = _CRASHES.get(event) if step.mark == CRASH else _OF_MARKS.get(step.mark)
        if title is None and event == Ev.SEND and step.caption[0].startswith("{0} publishes"):
            title = "one message"
        if title is not None and title not in self._met and len(self._found) < MOST:
            self._met.add(title)
            self._found.append((number, title))
