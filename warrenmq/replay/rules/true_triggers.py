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
    """A file is left full, for garbage or for a large message (S6 checks which): after its last flush nothing comes any more."""
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
WITH changes AS (
    SELECT run, actor, seq, file, 'append' AS what, `offset` AS start, `offset` + size AS until, 0 AS trigger, 0 AS since FROM append_rows
    UNION ALL SELECT run, actor, seq, file, 'write', `offset`, `offset` + size, trigger, 0 FROM file_write_rows
    UNION ALL SELECT run, actor, seq, file, 'sync', synced_to, synced_to, trigger, size FROM file_sync_rows
    UNION ALL SELECT run, actor, seq, new_file, 'begin', 0, 0, 0, 0 FROM roll_rows
    UNION ALL SELECT run, actor, min(seq), file, 'begin', min(`offset`), min(`offset`), 0, 0 FROM append_rows
              GROUP BY run, actor, file),
limits AS (
    SELECT run, max(write_buffer) AS buffer FROM run_start_rows GROUP BY run),
seen AS (
    SELECT changes.*,
           max(CASE WHEN what IN ('append', 'begin') THEN until END) OVER earlier AS appended_to,
           max(CASE WHEN what IN ('write', 'begin') THEN until END) OVER earlier AS written_to,
           max(CASE WHEN what IN ('sync', 'begin') THEN until END) OVER earlier AS synced_to,
           max(CASE WHEN what = 'write' AND trigger = 4 THEN until END) OVER earlier AS left_at
    FROM changes
    WINDOW earlier AS (PARTITION BY run, actor, file ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
SELECT seen.run, actor, seq FROM seen JOIN limits ON limits.run = seen.run
WHERE (what = 'write' AND (start <> written_to OR until <> appended_to
                           OR (trigger = 1 AND until - start <= buffer AND buffer > 0)))
   OR (what = 'append' AND start >= left_at)
   OR (what = 'sync' AND (until > written_to OR until - synced_to <> since))
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
