"""S7: a flush writes what was appended, for the reason that it names."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import FORMAT, Exercised, Rule
from warrenmq.trace.events import Ev

_DECIDING = frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_SYNC})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
    machines=(Files,),
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
