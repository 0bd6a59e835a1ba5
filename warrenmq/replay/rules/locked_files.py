"""S4: a locked file belongs to the collector."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Link, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev


def _appended(file: File, _msg: int, _offset: int, _size: int) -> str:
    return "a record was appended while the file was locked" if file.locked else ""


def _written(file: File, _trigger: int, _offset: int, _size: int) -> str:
    return "the buffer was written while the file was locked" if file.locked else ""


def _unlocked_before(file: File) -> str:
    if file.locked:
        return "it was locked, and was already"
    return "the current file was locked" if file.current else ""


def _locked_before(file: File) -> str:
    return "" if file.locked else "it was unlocked, and was already"


def _moved_in(file: File, _msg: int, _offset: int, _size: int) -> str:
    return "" if file.locked else "the collector moved a record into it while it was not locked"


def _moved_within(file: File, _source: int, _target: int, _size: int) -> str:
    return "" if file.locked else "the collector moved a record within it while it was not locked"


def _deleted(file: File) -> str:
    if file.current:
        return "the current file was deleted"
    if file.deleted:
        return "it was deleted a second time"
    return "" if file.locked else "it was deleted while it was not locked"


_DECIDING = frozenset({Ev.LOCK, Ev.UNLOCK})


def _explain(story: Story) -> Chain:
    """The last row that decided whether it was locked; a LOCK is missing unless the store wrote to a locked file."""
    chain = file_chain(story, _DECIDING)[-1:]
    if story.event in {Ev.APPEND, Ev.FILE_WRITE}:
        return chain
    return [*chain, Link(story.run, None, f"LOCK of file {story.finding.about[1]}")]


_SQL = """
WITH locks AS (
    SELECT run, actor, seq, t, file, 1 AS locked FROM lock_rows
    UNION ALL SELECT run, actor, seq, t, file, 0 FROM unlock_rows UNION ALL SELECT run, actor, seq, t, file, 0 FROM file_delete_rows),
turns AS (
    SELECT run, actor, seq, t, file, locked,
           coalesce(lag(locked) OVER (PARTITION BY run, actor, file ORDER BY seq), 0) AS before,
           lead(t) OVER (PARTITION BY run, actor, file ORDER BY seq) AS until
    FROM locks),
opened AS (
    SELECT run, actor, new_file AS file, min(seq) AS seq FROM roll_rows GROUP BY run, actor, new_file
    UNION ALL SELECT run, actor, file, min(seq) FROM append_rows GROUP BY run, actor, file),
moved AS (
    SELECT m.run, m.actor, m.seq, m.t, m.file, c.parent AS store FROM gc_move_rows AS m JOIN actors AS c ON c.run = m.run AND c.actor = m.actor
    UNION ALL
    SELECT m.run, m.actor, m.seq, m.t, m.file, c.parent FROM compact_move_rows AS m JOIN actors AS c ON c.run = m.run AND c.actor = m.actor)
SELECT run, actor, seq FROM turns WHERE locked = before
UNION
SELECT w.run, w.actor, w.seq FROM (
    SELECT run, actor, seq, t, file FROM append_rows UNION ALL SELECT run, actor, seq, t, file FROM file_write_rows) AS w
JOIN turns AS l ON l.run = w.run AND l.actor = w.actor AND l.file = w.file AND l.locked = 1 AND l.t < w.t AND coalesce(l.until, w.t + 1) > w.t
UNION
SELECT m.run, m.actor, m.seq FROM moved AS m
WHERE m.store <> 0 AND NOT EXISTS (
    SELECT 1 FROM turns AS l WHERE l.run = m.run AND l.actor = m.store AND l.file = m.file
              AND l.locked = 1 AND l.t < m.t AND coalesce(l.until, m.t + 1) > m.t)
UNION
SELECT f.run, f.actor, f.seq FROM (
    SELECT run, actor, seq, file FROM lock_rows UNION ALL SELECT run, actor, seq, file FROM file_delete_rows) AS f
JOIN opened AS o ON o.run = f.run AND o.actor = f.actor AND o.file = f.file AND o.seq < f.seq
WHERE NOT EXISTS (SELECT 1 FROM roll_rows AS r WHERE r.run = f.run AND r.actor = f.actor AND r.old_file = f.file AND r.seq < f.seq)
"""

RULE = Rule(
    judge={
        Files: {
            Ev.APPEND: _appended,
            Ev.FILE_WRITE: _written,
            Ev.LOCK: _unlocked_before,
            Ev.UNLOCK: _locked_before,
            Ev.GC_MOVE: _moved_in,
            Ev.COMPACT_MOVE: _moved_within,
            Ev.FILE_DELETE: _deleted,
        }
    },
    machines=(Files,),
    sql=_SQL,
    explain=_explain,
    id="S4",
    name="locked files",
    text=(
        "A file is locked once at a time; nothing is written to a locked one but by the collector, "
        "and the collector writes to no other. A file is deleted once, while it is locked. The file that is appended to is "
        "neither locked nor deleted."
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
