"""Q4: a message that may have been delivered before a restart is flagged redelivered."""

from __future__ import annotations

from warrenmq.replay.explain.story import restart_chain
from warrenmq.replay.rules.passes.queue_ledger import Ledger
from warrenmq.replay.rules.rule import Exercised, Rule

RULE = Rule(
    id="Q4",
    name="redelivered after a restart",
    text=(
        "A message that was recovered is flagged redelivered when it is delivered for the first time, "
        "if an earlier incarnation of its queue had delivered it, or if the queue was not stopped "
        "cleanly."
    ),
    sources=("docs/reference/classic-queue.md#delivery-marks", "docs/reference/classic-queue.md#p3"),
    exercised=Exercised("a recovered message that may have been delivered before, and is delivered"),
    machines=(Ledger,),
    explain=restart_chain,
)
