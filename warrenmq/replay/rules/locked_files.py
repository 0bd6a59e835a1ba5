"""S4: a locked file belongs to the collector."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Link, Story, file_chain
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

_DECIDING = frozenset({Ev.LOCK, Ev.UNLOCK})


def _explain(story: Story) -> Chain:
    """The last row that decided whether it was locked; a LOCK is missing unless the store wrote to a locked file."""
    chain = file_chain(story, _DECIDING)[-1:]
    if story.event in {Ev.APPEND, Ev.FILE_WRITE}:
        return chain
    return [*chain, Link(story.run, None, f"LOCK of file {story.finding.about[1]}")]


RULE = Rule(
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
