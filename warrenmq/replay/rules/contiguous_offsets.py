"""S5: records of a file follow each other without a gap and do not overlap."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

_DECIDING = frozenset(
    {Ev.ROLL, Ev.APPEND, Ev.GC_START, Ev.GC_MOVE, Ev.GC_DONE, Ev.COMPACT_START, Ev.COMPACT_MOVE, Ev.TRUNCATE}
)


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
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
