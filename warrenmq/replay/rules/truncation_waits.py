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
    """True once a finding is final: the reader has ended, so it is known whether it was killed while it read."""
    run, actor, _ = finding.rows[0]
    return is_known(finding, context) and context.has_ended((run, actor))


_SQL = """
WITH sizes AS (
    SELECT run, actor, seq, file, new_size, 0 AS cut FROM compact_done_rows
    UNION ALL SELECT run, actor, seq, file, new_size, 1 FROM truncate_rows)
SELECT run, actor, seq FROM (
    SELECT sizes.*, lag(new_size) OVER (PARTITION BY run, actor, file ORDER BY seq) AS compacted FROM sizes) AS pairs
WHERE cut = 1 AND (compacted IS NULL OR new_size <> compacted)
UNION
SELECT r.run, r.actor, r.seq FROM read_rows AS r
JOIN actors AS c ON c.run = r.run AND c.parent = r.store
JOIN truncate_rows AS t ON t.run = c.run AND t.actor = c.actor AND t.file = r.file AND t.t < r.t AND r.mark <= t.mark
WHERE r.source = 2 AND r.mark > 0 AND NOT EXISTS (
    SELECT 1 FROM actor_stop_rows AS s WHERE s.run = r.run AND s.actor = r.actor AND s.reason = 3)
"""

RULE = Rule(
    judge={Files: {Ev.TRUNCATE: _to_its_new_size, Ev.READ: _began_later}},
    machines=(Files,),
    sql=_SQL,
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
