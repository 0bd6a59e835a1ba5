"""E1: what queues and stores say of themselves is what their rows add up to."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import Chain, Story, file_chain, links_of
from warrenmq.replay.rules.passes.file_life import File
from warrenmq.replay.rules.passes.files import Files
from warrenmq.replay.rules.passes.queue_ledger import Ledger
from warrenmq.replay.rules.reference_counts import References
from warrenmq.replay.rules.rule import Exercised, Rule, is_known
from warrenmq.trace.catalog import FOREVER
from warrenmq.trace.events import Ev


def _as_its_records_make_it(file: File, _valid: int, size: int) -> str:
    return f"file_size is {size}, it said; its rows make {file.end}" if size != file.end else ""


_DECIDING = frozenset({Ev.FILE_STATE, Ev.ROLL, Ev.APPEND, Ev.GC_DONE, Ev.TRUNCATE})


def _ended(story: Story) -> Chain:
    """Compare the counts since the recovery with those told at the stop."""
    if story.finding.about:
        return file_chain(story, _DECIDING)
    seen = [
        story.near(event, story.last.t, after=False) for event in (Ev.QUEUE_RECOVERED, Ev.STORE_RECOVERED)
    ]
    return links_of(placed for placed in seen if placed is not None)


def _is_final(finding: Finding, context: TraceContext) -> bool:
    """True between two lives, when all actors of the name have ended; the rest is asked for only when its run has ended."""
    if finding.t == FOREVER:
        return all(context.has_ended(who) for who in finding.needs)
    return is_known(finding, context)


RULE = Rule(
    id="E1",
    name="state as reported",
    text=(
        "After recovery and at a clean stop a queue has as many messages, a store as many messages, "
        "references and files, and each file the size, that the rows add up to; and a recovery from a "
        "clean stop finds what the stop had left: no more messages and the same next sequence id in a "
        "queue, as many messages and files in a store."
    ),
    sources=(
        "docs/reference/classic-queue.md#init-and-terminate",
        "docs/reference/message-store.md#clean-stop",
        "docs/reference/message-store.md#clean-or-dirty",
        "docs/reference/message-store.md#i3",
        "docs/reference/message-store.md#i9",
        "docs/reference/message-store.md#i10",
        "docs/reference/message-store.md#i28",
        "docs/reference/classic-queue.md#p4",
        "docs/reference/classic-queue.md#p5",
        "docs/reference/classic-queue.md#p22",
        "docs/reference/classic-queue.md#p27",
    ),
    exercised=Exercised(
        "what a queue, a store or a file says of itself",
        dict.fromkeys(
            (Ev.QUEUE_RECOVERED, Ev.QUEUE_CLOSED, Ev.STORE_RECOVERED, Ev.STORE_CLOSED, Ev.FILE_STATE)
        ),
    ),
    judge={Files: {Ev.FILE_STATE: _as_its_records_make_it}},
    machines=(Ledger, References, Files),
    not_in_sql=("what queues, stores and files hold is the end of Q1's, S1's and S3's states"),
    explain=_ended,
    is_final=_is_final,
)
