"""S6: a file is left when it is full."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import ROLL_FOR_LARGE, ROLL_GARBAGE, ROLL_LARGE, ROLL_LONGEST, Ev


def _has_room(file: File, _msg: int, offset: int, _size: int) -> str:
    if file.left:
        return "a record was appended after the roll-over"
    if file.large and file.appended:
        return "a second record was appended to a large message's own file"
    if file.end < 0:
        return "a record was appended to a file that was not opened"
    if offset == file.end and file.appended and 0 < file.limit <= offset:
        return f"a record was appended at {offset}, the limit is {file.limit}"
    return ""


def _left_for_its_reason(file: File, new_file: int, old_file: int, why: int, size: int) -> str:
    """Check the reason of a roll-over against the file that is left; the other one is new."""
    if new_file == file.number:
        return "left for itself" if old_file == new_file else ""
    if file.left:
        return "left a second time"
    if why == ROLL_LARGE and len(file.sizes) > 1:
        return f"left as a large message's own file, with {len(file.sizes)} records in it"
    if why == ROLL_GARBAGE and file.valid * 2 >= size:
        return f"left because of garbage, with {file.valid} live of {size} bytes"
    if why not in {ROLL_FOR_LARGE, ROLL_LARGE, ROLL_GARBAGE, ROLL_LONGEST} and size < file.limit:
        return f"left with {size} bytes, the limit is {file.limit}"
    return f"left with {size} bytes, but its records end at {file.end}" if file.end not in {-1, size} else ""


_DECIDING = frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_STATE})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


_SQL = """
WITH limits AS (SELECT run, max(file_size_limit) AS size_limit FROM run_start_rows GROUP BY run),
records AS (
    SELECT run, actor, file, count(*) AS n FROM (
        SELECT DISTINCT run, actor, file, message FROM append_rows) AS each_message GROUP BY run, actor, file)
SELECT r.run, r.actor, r.seq FROM roll_rows AS r JOIN limits ON limits.run = r.run
WHERE r.reason IN (0, 1) AND r.old_size < size_limit AND r.old_file <> r.new_file
UNION
SELECT run, actor, seq FROM roll_rows WHERE old_file = new_file
UNION
SELECT r.run, r.actor, r.seq FROM roll_rows AS r JOIN records AS n ON n.run = r.run AND n.actor = r.actor AND n.file = r.old_file
WHERE r.reason = 3 AND n.n > 1
UNION
SELECT run, actor, max(seq) FROM roll_rows WHERE old_file <> new_file GROUP BY run, actor, old_file HAVING count(*) > 1
UNION
SELECT a.run, a.actor, a.seq FROM append_rows AS a JOIN roll_rows AS r
  ON r.run = a.run AND r.actor = a.actor AND r.old_file = a.file AND r.old_file <> r.new_file AND r.seq < a.seq
UNION
SELECT r.run, r.actor, r.seq FROM roll_rows AS r JOIN append_rows AS a ON a.run = r.run AND a.actor = r.actor AND a.file = r.old_file
WHERE r.old_file <> r.new_file AND r.old_size <> a.`offset` + a.size AND a.seq = (
    SELECT max(b.seq) FROM append_rows AS b WHERE b.run = r.run AND b.actor = r.actor AND b.file = r.old_file AND b.seq < r.seq)
UNION
SELECT a.run, a.actor, a.seq FROM append_rows AS a
WHERE NOT EXISTS (SELECT 1 FROM append_rows AS b WHERE b.run = a.run AND b.actor = a.actor AND b.file = a.file AND b.seq < a.seq)
  AND NOT EXISTS (SELECT 1 FROM roll_rows AS r WHERE r.run = a.run AND r.actor = a.actor AND r.new_file = a.file AND r.seq < a.seq)
  AND NOT EXISTS (SELECT 1 FROM file_state_rows AS f WHERE f.run = a.run AND f.actor = a.actor AND f.file = a.file AND f.seq < a.seq)
UNION
SELECT a.run, a.actor, a.seq FROM append_rows AS a JOIN limits ON limits.run = a.run
WHERE size_limit > 0 AND a.`offset` >= size_limit AND EXISTS (
    SELECT 1 FROM append_rows AS b WHERE b.run = a.run AND b.actor = a.actor AND b.file = a.file AND b.seq < a.seq)
UNION
SELECT a.run, a.actor, a.seq FROM append_rows AS a JOIN roll_rows AS r
  ON r.run = a.run AND r.actor = a.actor AND r.new_file = a.file AND r.reason = 2
WHERE EXISTS (SELECT 1 FROM append_rows AS b WHERE b.run = a.run AND b.actor = a.actor AND b.file = a.file AND b.seq < a.seq)
"""

RULE = Rule(
    judge={Files: {Ev.APPEND: _has_room, Ev.ROLL: _left_for_its_reason}},
    machines=(Files,),
    sql=_SQL,
    not_in_sql=("that a file left because of garbage is mostly garbage: that is S3's sum"),
    explain=_explain,
    id="S6",
    name="roll at the limit",
    text=(
        "A file is opened before it is written, and left once, when it has reached the limit, not "
        "before and not later, but for a large message that gets a file of its own, for a file "
        "that is mostly garbage, and where the system lets no file grow as far."
    ),
    sources=(
        "docs/reference/message-store.md#append-and-roll-over",
        "docs/reference/message-store.md#i6",
        "docs/reference/message-store.md#i18",
    ),
    exercised=Exercised("a file that was left", {Ev.ROLL: None}),
)
