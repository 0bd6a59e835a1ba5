"""C2: what was confirmed is there after a restart, and what was acked is not."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import restart_chain
from warrenmq.replay.rules.passes.queue_ledger import Ledger
from warrenmq.replay.rules.rule import Exercised, Rule


def _is_final(finding: Finding, context: TraceContext) -> bool:
    """When all earlier incarnations have ended, and the one that recovered is known up to its QUEUE_RECOVERED.

    What comes later does not matter.  What a queue confirmed and lost in one life needs no other rows.
    """
    if not finding.needs:
        return True
    run, actor, _ = finding.rows[0]
    who = run, actor
    recovered = context.actor_summary(who).recovered
    if recovered is None or context.known_until(who) < recovered[0]:
        return False
    return all(context.has_ended(each) for each in finding.needs if each < who)


RULE = Rule(
    id="C2",
    name="nothing confirmed is lost",
    text=(
        "A confirmed persistent message is acked, dropped, recovered by the next incarnation of its "
        "queue, or still there, and its body is not found damaged; what was acked and synced does not "
        "come back, and nothing transient does."
    ),
    sources=(
        "docs/reference/classic-queue.md#start-and-recovery",
        "docs/reference/classic-queue.md#recovery-of-version-2",
        "docs/reference/classic-queue.md#p8",
        "docs/reference/classic-queue.md#p10",
        "docs/reference/classic-queue.md#p11",
        "docs/reference/classic-queue.md#p13",
        "docs/reference/classic-queue.md#p5",
        "docs/reference/message-store.md#i28",
    ),
    exercised=Exercised(
        "a message of an incarnation that has a successor, or one whose body was found damaged"
    ),
    machines=(Ledger,),
    explain=restart_chain,
    is_final=_is_final,
)
