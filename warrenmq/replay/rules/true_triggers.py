"""S7: a flush writes what was appended, for the reason that it names."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import FORMAT, Exercised, Rule
from warrenmq.trace.events import Ev, Trigger


def _what_was_appended(file: File, trigger: int, offset: int, size: int) -> str:
    if (file.written >= 0 and offset != file.written) or (file.end >= 0 and offset + size != file.end):
        return f"{size} bytes were written at {offset}, but {file.end - file.written} were appended since {file.written}"
    if trigger == Trigger.BUFFER_FULL and 0 < file.buffer >= size:
        return f"buffer full with {size} bytes, it holds {file.buffer}"
    if trigger == Trigger.ROLL_OVER and offset + size < file.limit:
        return f"roll-over at {offset + size}, the limit is {file.limit}"
    return ""


def _what_was_written(file: File, safe: int, since: int) -> str:
    if file.written >= 0 and safe > file.written:
        return f"{safe} bytes were called safe, {file.written} were written"
    if file.safe >= 0 and safe - file.safe != since:
        return f"a sync of {since} bytes moved the safe end from {file.safe} to {safe}"
    return ""


_DECIDING = frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
    judge={Files: {Ev.FILE_WRITE: _what_was_appended, Ev.FILE_SYNC: _what_was_written}},
    machines=(Files,),
    explain=_explain,
    id="S7",
    name="true triggers",
    text=("A flush writes what was appended since the last one, for the reason it names."),
    sources=(
        "docs/reference/message-store.md#append-and-roll-over",
        "docs/reference/message-store.md#sync",
        FORMAT,
    ),
    exercised=Exercised("a write or a sync of a store's file", {Ev.FILE_WRITE: None, Ev.FILE_SYNC: None}),
)
