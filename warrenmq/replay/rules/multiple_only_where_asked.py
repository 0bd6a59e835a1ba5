"""A2: an ack of one tag settles one message."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.passes.settlements import (
    CONSUMER_SHIFT,
    EACH,
    SETTLED_SQL,
    Held,
    Misfit,
    Settles,
    findings_of,
)
from warrenmq.replay.rules.rule import Exercised, Judge, Rule


def takes_older_ones(misfit: Misfit) -> bool:
    """One tag was named, and messages below it were settled as well."""
    same_consumer = misfit.held >> CONSUMER_SHIFT == misfit.named >> CONSUMER_SHIFT
    return misfit.which == EACH and same_consumer and misfit.held < misfit.named and misfit.several


def _older_ones(who: Who, state: Held, context: TraceContext, outcome: Outcome) -> None:
    outcome.findings += findings_of("A2", filter(takes_older_ones, state.misfits), who, context)


_SQL = """
SELECT p.run, p.actor, p.seq FROM pairs AS p
WHERE p.holder = p.consumer AND p.up_to = 0 AND p.held < p.tag AND (p.count > 1 OR EXISTS (
    SELECT 1 FROM settled AS o WHERE o.run = p.run AND o.actor = p.actor AND o.seq <> p.seq AND o.up_to = 0
              AND o.consumer = p.consumer AND o.named = p.named))
"""

RULE = Rule(
    id="A2",
    name="multiple only where asked",
    text="An ack or reject of one tag settles one message.",
    sources=("docs/reference/classic-queue.md#channel-methods",),
    exercised=Exercised("a message settled by a delivery tag without multiple"),
    machines=(Settles,),
    judge={Settles: Judge(decide=_older_ones)},
    sql=SETTLED_SQL + _SQL,
    explain=settle_chain,
)
