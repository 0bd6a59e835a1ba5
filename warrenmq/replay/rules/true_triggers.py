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
    return ""


def _no_more_after_a_roll_over(file: File, _msg: int, offset: int, _size: int) -> str:
    """A file is left full, for garbage or for a large message (S6 checks which): after its last flush nothing
    comes any more.
    """
    return f"a record was appended at {offset}, after a flush for a roll-over" if file.rolling else ""


def _what_was_written(file: File, safe: int, since: int) -> str:
    if file.written >= 0 and safe > file.written:
        return f"{safe} bytes were called safe, {file.written} were written"
    if file.safe >= 0 and safe - file.safe != since:
        return f"a sync of {since} bytes moved the safe end from {file.safe} to {safe}"
    return ""


_DECIDING = frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


_SQL = """
WITH opened AS (
    SELECT run, actor, file, min(seq) AS seq FROM (
        SELECT run, actor, file, seq FROM append_rows
        UNION ALL SELECT run, actor, file, seq FROM file_state_rows
        UNION ALL SELECT run, actor, new_file, seq FROM roll_rows) AS first
    GROUP BY run, actor, file),
changes AS (
    SELECT run, actor, seq, file, 'append' AS what, `offset` AS start, `offset` + size AS until, 0 AS trigger, 0 AS since FROM append_rows
    UNION ALL SELECT run, actor, seq, file, 'write', `offset`, `offset` + size, trigger, 0 FROM file_write_rows
    UNION ALL SELECT run, actor, seq, file, 'sync', synced_to, synced_to, trigger, size FROM file_sync_rows
    UNION ALL SELECT run, actor, seq, new_file, 'begin', 0, 0, 0, 0 FROM roll_rows
    UNION ALL SELECT f.run, f.actor, f.seq, f.file, CASE f.seq WHEN o.seq THEN 'begin' ELSE 'state' END, 0, f.file_size, 0, 0
              FROM file_state_rows AS f JOIN opened AS o ON o.run = f.run AND o.actor = f.actor AND o.file = f.file
    UNION ALL SELECT a.run, a.actor, a.seq - 1, a.file, 'begin', 0, a.`offset`, 0, 0
              FROM append_rows AS a JOIN opened AS o ON o.run = a.run AND o.actor = a.actor AND o.file = a.file AND o.seq = a.seq),
limits AS (
    SELECT run, max(write_buffer) AS buffer FROM run_start_rows GROUP BY run),
seen AS (
    SELECT changes.*,
           max(CASE WHEN what IN ('append', 'begin', 'state') THEN seq END) OVER earlier AS appended,
           max(CASE WHEN what IN ('write', 'begin') THEN seq END) OVER earlier AS written,
           max(CASE WHEN what IN ('sync', 'begin') THEN seq END) OVER earlier AS synced
    FROM changes
    WINDOW earlier AS (PARTITION BY run, actor, file ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
SELECT seen.run, seen.actor, seen.seq
FROM seen JOIN limits ON limits.run = seen.run
LEFT JOIN changes AS a ON a.run = seen.run AND a.actor = seen.actor AND a.file = seen.file AND a.seq = seen.appended
                          AND a.what IN ('append', 'begin', 'state')
LEFT JOIN changes AS w ON w.run = seen.run AND w.actor = seen.actor AND w.file = seen.file AND w.seq = seen.written
                          AND w.what IN ('write', 'begin')
LEFT JOIN changes AS s ON s.run = seen.run AND s.actor = seen.actor AND s.file = seen.file AND s.seq = seen.synced
                          AND s.what IN ('sync', 'begin')
WHERE (seen.what = 'write' AND (seen.start <> w.until OR seen.until <> a.until
                                OR (seen.trigger = 1 AND seen.until - seen.start <= buffer AND buffer > 0)))
   OR (seen.what = 'append' AND w.what = 'write' AND w.trigger = 4)
   OR (seen.what = 'sync' AND (seen.until > w.until OR seen.until - s.until <> seen.since))
"""

RULE = Rule(
    judge={
        Files: {
            Ev.APPEND: _no_more_after_a_roll_over,
            Ev.FILE_WRITE: _what_was_appended,
            Ev.FILE_SYNC: _what_was_written,
        }
    },
    machines=(Files,),
    sql=_SQL,
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
