"""S3: a file's valid_total_size is the sum of its live records."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

_DECIDING = frozenset(
    {
        Ev.FILE_STATE,
        Ev.APPEND,
        Ev.STORE_REMOVE,
        Ev.REF_DROPPED,
        Ev.REF_RECOVERED,
        Ev.GC_MOVE,
        Ev.GC_DONE,
        Ev.TRUNCATE,
    }
)


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
    machines=(Files,),
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
        "a file's state as it was told, a combine, a truncation",
        dict.fromkeys((Ev.FILE_STATE, Ev.GC_DONE, Ev.TRUNCATE)),
    ),
)
