"""S3: a file's valid_total_size is the sum of its live records."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev


def _sum_of_live_records(file: File, valid: int, _size: int) -> str:
    if valid != file.valid:
        return f"valid_total_size is {valid}, its {len(file.live)} live records have {file.valid} bytes"
    return ""


def _all_moved(file: File, destination: int) -> str:
    if destination != file.number:
        return ""
    # Records that lie at the front already get no row: where none was moved, the destination's own are all there is.
    found = file.moved if file.moved >= 0 else file.valid
    return "" if found == file.due else f"{max(file.moved, 0)} bytes were moved, {file.due} were to be"


def _no_live_records(file: File) -> str:
    return f"deleted with {len(file.live)} live records of {file.valid} bytes" if file.valid else ""


def _room_for_live_records(file: File, _mark: int, size: int) -> str:
    if size < file.valid:
        return f"cut to {size} bytes, its {len(file.live)} live records have {file.valid}"
    return ""


_DECIDING = frozenset({
    Ev.FILE_STATE, Ev.APPEND, Ev.STORE_REMOVE, Ev.REF_DROPPED, Ev.REF_RECOVERED, Ev.GC_MOVE, Ev.GC_DONE,
    Ev.TRUNCATE,
})  # fmt: skip


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
    judge={
        Files: {
            Ev.FILE_STATE: _sum_of_live_records,
            Ev.GC_DONE: _all_moved,
            Ev.FILE_DELETE: _no_live_records,
            Ev.TRUNCATE: _room_for_live_records,
        }
    },
    machines=(Files,),
    not_in_sql=(
        "which records are live is a set that five kinds of rows fill and empty, and a combine carries from one file to another"
    ),
    explain=_explain,
    id="S3",
    name="valid_total_size",
    text=("A file's valid_total_size is the sum of its live records, and a combine moves just these."),
    sources=(
        "docs/reference/message-store.md#tables-to-312",
        "docs/reference/message-store.md#combine",
        "docs/reference/message-store.md#i1",
        "docs/reference/message-store.md#i10",
        "docs/reference/message-store.md#i19",
    ),
    exercised=Exercised(
        "a FILE_STATE row, a combine, a truncation", dict.fromkeys((Ev.FILE_STATE, Ev.GC_DONE, Ev.TRUNCATE))
    ),
)
