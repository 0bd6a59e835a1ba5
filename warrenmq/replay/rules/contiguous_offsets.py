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


_SQL = """
WITH ends AS (
    SELECT run, actor AS store, actor, seq, t, file, `offset` AS start, `offset` + size AS until FROM append_rows
    UNION ALL SELECT run, actor, actor, seq, t, new_file, NULL, 0 FROM roll_rows
    UNION ALL SELECT run, actor, actor, seq, t, file, NULL, file_size FROM file_state_rows
    UNION ALL SELECT d.run, c.parent, d.actor, d.seq, d.t, d.destination, NULL, NULL FROM gc_done_rows AS d
              JOIN actors AS c ON c.run = d.run AND c.actor = d.actor
    UNION ALL SELECT d.run, c.parent, d.actor, d.seq, d.t, d.file, NULL, d.new_size FROM truncate_rows AS d
              JOIN actors AS c ON c.run = d.run AND c.actor = d.actor),
moves AS (
    SELECT run, actor, seq, file, `offset` AS start, `offset` + size AS until, 0 AS source, 0 AS size FROM gc_move_rows
    UNION ALL SELECT run, actor, seq, destination, NULL, NULL, 0, 0 FROM gc_start_rows),
copies AS (
    SELECT run, actor, seq, file, new_offset AS start, new_offset + size AS until, old_offset, size FROM compact_move_rows
    UNION ALL SELECT run, actor, seq, file, NULL, 0, 0, 0 FROM compact_start_rows),
compacted AS (
    SELECT run, actor, seq, file, 'start' AS what, 0 AS size FROM compact_start_rows
    UNION ALL SELECT run, actor, seq, file, 'move', size FROM compact_move_rows
    UNION ALL SELECT run, actor, seq, file, 'done', copied FROM compact_done_rows),
numbered AS (
    SELECT compacted.*,
           sum(CASE what WHEN 'start' THEN 1 ELSE 0 END) OVER (PARTITION BY run, actor, file ORDER BY seq) AS nth
    FROM compacted),
summed AS (
    SELECT numbered.*,
           sum(CASE what WHEN 'move' THEN size ELSE 0 END) OVER (PARTITION BY run, actor, file, nth ORDER BY seq) AS moved
    FROM numbered)
SELECT run, actor, seq FROM (
    SELECT ends.*, lag(until) OVER (PARTITION BY run, store, file ORDER BY t) AS ended FROM ends) AS appended
WHERE start IS NOT NULL AND start <> ended
UNION
SELECT run, actor, seq FROM (
    SELECT moves.*, lag(until) OVER (PARTITION BY run, actor, file ORDER BY seq) AS ended FROM moves) AS moved
WHERE start IS NOT NULL AND start <> ended
UNION
SELECT run, actor, seq FROM (
    SELECT copies.*, lag(until) OVER (PARTITION BY run, actor, file ORDER BY seq) AS ended FROM copies) AS copied
WHERE start IS NOT NULL AND (start < ended OR until > old_offset)
UNION
SELECT run, actor, seq FROM summed WHERE what = 'done' AND (nth = 0 OR size <> moved)
UNION
SELECT run, actor, max(seq) FROM numbered WHERE what = 'done' GROUP BY run, actor, file, nth HAVING count(*) > 1
"""

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
    sql=_SQL,
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
