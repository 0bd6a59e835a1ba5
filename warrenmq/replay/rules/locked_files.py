"""S4: a locked file belongs to the collector."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Link, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev


def _appended(file: File, _msg: int, _offset: int, _size: int) -> str:
    return "a record was appended while the file was locked" if file.locked else ""


def _written(file: File, _trigger: int, _offset: int, _size: int) -> str:
    return "the buffer was written while the file was locked" if file.locked else ""


def _in_turns(file: File, locked: bool) -> str:
    if file.locked is locked:
        return f"it was {'locked' if locked else 'unlocked'}, and was already"
    return "the current file was locked" if locked and file.current else ""


def _moved_in(file: File, _msg: int, _offset: int, _size: int) -> str:
    return "" if file.locked else "the collector moved a record into it while it was not locked"


def _moved_within(file: File, _source: int, _target: int, _size: int) -> str:
    return "" if file.locked else "the collector moved a record within it while it was not locked"


def _deleted(file: File) -> str:
    return "the current file was deleted" if file.current else ""


_DECIDING = frozenset({Ev.LOCK, Ev.UNLOCK})


def _explain(story: Story) -> Chain:
    """The last row that decided whether it was locked; a LOCK is missing unless the store wrote to a locked file."""
    chain = file_chain(story, _DECIDING)[-1:]
    if story.event in {Ev.APPEND, Ev.FILE_WRITE}:
        return chain
    return [*chain, Link(story.run, None, f"LOCK of file {story.finding.about[1]}")]


RULE = Rule(
    judge={
        Files: {
            Ev.APPEND: _appended,
            Ev.FILE_WRITE: _written,
            Ev.LOCK: _in_turns,
            Ev.UNLOCK: _in_turns,
            Ev.GC_MOVE: _moved_in,
            Ev.COMPACT_MOVE: _moved_within,
            Ev.FILE_DELETE: _deleted,
        }
    },
    machines=(Files,),
    explain=_explain,
    id="S4",
    name="locked files",
    text=(
        "A file is locked once at a time; nothing is written to a locked one but by the collector, "
        "and the collector writes to no other. The file that is appended to is neither locked nor "
        "deleted."
    ),
    sources=(
        "docs/reference/message-store.md#operations-on-a-locked-file",
        "docs/reference/message-store.md#garbage-collection",
        "docs/reference/message-store.md#i6",
        "docs/reference/message-store.md#i15",
        "docs/reference/message-store.md#i24",
    ),
    exercised=Exercised(
        "a lock, and what the collector does",
        dict.fromkeys((Ev.LOCK, Ev.UNLOCK, Ev.GC_MOVE, Ev.COMPACT_MOVE, Ev.FILE_DELETE)),
    ),
)
