"""S5: records of a file follow each other without a gap and do not overlap."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev


def _after_the_last(file: File, _msg: int, offset: int, _size: int) -> str:
    if file.end >= 0 and offset != file.end:
        return f"a record begins at {offset}, the last one ended at {file.end}"
    return ""


def _after_the_last_moved(file: File, _msg: int, offset: int, _size: int) -> str:
    if file.moved not in {-1, offset}:
        return f"a record was moved to {offset}, the one before ended at {file.moved}"
    return ""


def _into_a_hole(file: File, source: int, target: int, size: int) -> str:
    """Behind the record that was copied before it, and not onto its own old place."""
    if target < file.moved or target + size > source:
        return f"a record of {size} bytes was moved from {source} to {target}, the one before ended at {file.moved}"
    return ""


def _all_copied(file: File, _size: int, copied: int) -> str:
    if file.copied < 0:
        return "a compaction ended that had not begun"
    return f"a compaction copied {copied} bytes, its moves {file.copied}" if file.copied != copied else ""


_DECIDING = frozenset(
    {Ev.ROLL, Ev.APPEND, Ev.GC_START, Ev.GC_MOVE, Ev.GC_DONE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.TRUNCATE}
)


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
    judge={
        Files: {
            Ev.APPEND: _after_the_last,
            Ev.GC_MOVE: _after_the_last_moved,
            Ev.COMPACT_MOVE: _into_a_hole,
            Ev.COMPACT_DONE: _all_copied,
        }
    },
    machines=(Files,),
    explain=_explain,
    id="S5",
    name="contiguous offsets",
    text=(
        "A record begins where the one before it in its file ended, and a compaction copies as many "
        "bytes as it says."
    ),
    sources=(
        "docs/reference/message-store.md#append-and-roll-over",
        "docs/reference/message-store.md#compaction",
        "docs/reference/message-store.md#i7",
        "docs/reference/message-store.md#i19",
    ),
    exercised=Exercised(
        "a record appended or moved", dict.fromkeys((Ev.APPEND, Ev.GC_MOVE, Ev.COMPACT_MOVE, Ev.COMPACT_DONE))
    ),
)
