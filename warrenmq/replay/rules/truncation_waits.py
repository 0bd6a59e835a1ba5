"""S8: a compacted file is cut when no reader can know an old place."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule, is_known
from warrenmq.trace.events import Ev


def _to_its_new_size(file: File, _mark: int, size: int) -> str:
    return f"cut to {size} bytes, the compaction before made {file.cut} of it" if size != file.cut else ""


def _began_later(file: File, mark: int) -> str:
    if mark <= file.threshold:
        return f"reader {mark} was still there when all up to {file.threshold} were waited for"
    return ""


_DECIDING = frozenset({Ev.COMPACT_START, Ev.COMPACT_DONE, Ev.TRUNCATE, Ev.UNLOCK})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


def _is_final(finding: Finding, context: TraceContext) -> bool:
    """It also has to be known whether the reader was killed while it read: the reader has ended."""
    run, actor, _ = finding.rows[0]
    return is_known(finding, context) and context.has_ended((run, actor))


RULE = Rule(
    judge={Files: {Ev.TRUNCATE: _to_its_new_size, Ev.READ: _began_later}},
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
