"""S6: a file is left when it is full."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import ROLL_FOR_LARGE, ROLL_GARBAGE, ROLL_LARGE, Ev


def _has_room(file: File, _msg: int, offset: int, _size: int) -> str:
    if file.left:
        return "a record was appended after the roll-over"
    if file.large and file.appended:
        return "a second record was appended to a large message's own file"
    if file.end < 0:
        return "a record was appended to a file that was not opened"
    if offset == file.end and file.appended and 0 < file.limit <= offset:
        return f"a record was appended at {offset}, the limit is {file.limit}"
    return ""


def _left_for_its_reason(file: File, first: bool, why: int, size: int) -> str:
    """Of the file that is left: the other one is new."""
    if first:
        return ""
    if file.left:
        return "left a second time"
    if why == ROLL_LARGE and len(file.sizes) > 1:
        return f"left as a large message's own file, with {len(file.sizes)} records in it"
    if why == ROLL_GARBAGE and file.valid * 2 >= size:
        return f"left because of garbage, with {file.valid} live of {size} bytes"
    if why not in {ROLL_FOR_LARGE, ROLL_LARGE, ROLL_GARBAGE} and size < file.limit:
        return f"left with {size} bytes, the limit is {file.limit}"
    return f"left with {size} bytes, but its records end at {file.end}" if file.end not in {-1, size} else ""


_DECIDING = frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_STATE})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
    judge={Files: {Ev.APPEND: _has_room, Ev.ROLL: _left_for_its_reason}},
    machines=(Files,),
    explain=_explain,
    id="S6",
    name="roll at the limit",
    text=(
        "A file is opened before it is written, and left once, when it has reached the limit, not "
        "before and not later, but for a large message that gets a file of its own and for a file "
        "that is mostly garbage."
    ),
    sources=(
        "docs/reference/message-store.md#append-and-roll-over",
        "docs/reference/message-store.md#i6",
        "docs/reference/message-store.md#i18",
    ),
    exercised=Exercised("a file that was left", {Ev.ROLL: None}),
)
