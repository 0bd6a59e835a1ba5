"""S8: a compacted file is cut when no reader can know an old place."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule, is_known
from warrenmq.trace.events import Ev

_DECIDING = frozenset({Ev.COMPACT_START, Ev.COMPACT_DONE, Ev.TRUNCATE, Ev.UNLOCK})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


def _is_final(finding: Finding, context: TraceContext) -> bool:
    """It also has to be known whether the reader was killed while it read: the reader has ended."""
    run, actor, _ = finding.rows[0]
    return is_known(finding, context) and context.has_ended((run, actor))


RULE = Rule(
    machines=(Files,),
    explain=_explain,
    id="S8",
    name="truncation waits",
    text=(
        "A file is cut to what its compaction made of it, when every reader has left that began "
        "before the records had their new places."
    ),
    sources=(
        "docs/reference/message-store.md#compaction",
        "docs/reference/message-store.md#i24",
        "docs/reference/message-store.md#i25",
    ),
    exercised=Exercised("a truncation", {Ev.TRUNCATE: None}),
    is_final=_is_final,
)
