"""S6: a file is left when it is full."""

from __future__ import annotations

from warrenmq.replay.explain.story import Chain, Story, file_chain
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.events import Ev

_DECIDING = frozenset({Ev.ROLL, Ev.APPEND, Ev.FILE_WRITE, Ev.FILE_STATE})


def _explain(story: Story) -> Chain:
    return file_chain(story, _DECIDING)


RULE = Rule(
    machines=(Files,),
    explain=_explain,
    id="S6",
    name="roll at the limit",
    text=(
        "A file is opened before it is written, and left once, when it has reached the limit, not "
        "before and not later, but for a large message that gets a file of its own and for a file "
        "that is mostly garbage."
    ),
    sources=(
        "docs/reference/message-store.md#append-and-roll-over",
        "docs/reference/message-store.md#i6",
        "docs/reference/message-store.md#i18",
    ),
    exercised=Exercised("a file that was left", {Ev.ROLL: None}),
)
