"""A1: an ack settles the message that was delivered under the tag that it names."""

from __future__ import annotations

from typing import Any

from warrenmq.replay.drive.machines import Outcome
from warrenmq.replay.drive.trace_context import TraceContext, Who
from warrenmq.replay.explain.story import settle_chain
from warrenmq.replay.rules.multiple_only_where_asked import takes_older_ones
from warrenmq.replay.rules.passes.settlements import (
    CONSUMER_SHIFT,
    GIVEN_BACK,
    SETTLED_SQL,
    UNNAMED,
    UP_TO,
    Held,
    Settles,
    findings_of,
)
from warrenmq.replay.rules.rule import Exercised, Judge, Rule


def _is_of_its_delivery(which: Any, named: Any, held: Any) -> Any:
    """Under that tag, or, with multiple, under a lower one of the same consumer; where nothing is named,
    anything is right.
    """
    same_consumer = named >> CONSUMER_SHIFT == held >> CONSUMER_SHIFT
    up_to = (which == UP_TO) & same_consumer & (held < named)
    return (held == named) | up_to | (which == UNNAMED) | (which == GIVEN_BACK)


def _misfits(who: Who, state: Held, context: TraceContext, outcome: Outcome) -> None:
    """Report the misfits that do not belong to rule A2."""
    misfits = (each for each in state.misfits if not takes_older_ones(each))
    outcome.findings += findings_of("A1", misfits, who, context)


_SQL = """
SELECT p.run, p.actor, p.seq FROM pairs AS p
WHERE p.holder <> p.consumer OR (p.up_to = 1 AND p.held > p.tag)
   OR (p.up_to = 0 AND p.held <> p.tag AND NOT (p.held < p.tag AND (p.count > 1 OR EXISTS (
    SELECT 1 FROM settled AS o WHERE o.run = p.run AND o.actor = p.actor AND o.seq <> p.seq AND o.up_to = 0
              AND o.consumer = p.consumer AND o.named = p.named))))
"""

RULE = Rule(
    id="A1",
    name="an ack is of its own delivery",
    text=(
        "What a client acks, rejects or requeues under a delivery tag is the message that was "
        "delivered under it to that consumer; with multiple, what was delivered up to it."
    ),
    sources=("docs/reference/classic-queue.md#channel-methods",),
    exercised=Exercised("a message settled by a delivery tag"),
    machines=(Settles,),
    judge={Settles: Judge(_is_of_its_delivery, _misfits)},
    sql=SETTLED_SQL + _SQL,
    explain=settle_chain,
)
