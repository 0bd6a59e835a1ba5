"""S2: the store decides on a write or a remove by the flying counter."""

from __future__ import annotations

from warrenmq.replay.drive.machines import Finding
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import count_chain
from warrenmq.replay.rules.passes.references import References
from warrenmq.replay.rules.rule import Exercised, Rule, is_known
from warrenmq.trace.events import Ev


def _is_final(finding: Finding, context: TraceContext) -> bool:
    """Of a write that was ignored it also has to be known whether its queue was about to stop: it worked on, or has ended."""
    if not is_known(finding, context):
        return False
    _, *clients = finding.needs
    return all(
        context.has_ended(client) or context.actor_summary(client).last_work > finding.t for client in clients
    )


_SQL = """
SELECT run, actor, seq FROM store_write_rows
WHERE CASE WHEN was_flying <> 0 AND flying > 0 THEN decision NOT IN (1, 3) ELSE decision <> 2 END
UNION
SELECT run, actor, seq FROM store_remove_rows
WHERE CASE WHEN was_flying <> 0 AND flying < 0 THEN decision NOT IN (4, 5) ELSE decision <> 2 END
"""

RULE = Rule(
    id="S2",
    name="flying decisions",
    text=(
        "The store's decision on a write or remove is the one that the flying counter's table names "
        "for the value seen."
    ),
    sources=(
        "docs/reference/message-store.md#flying-to-312",
        "docs/reference/message-store.md#flying-from-313",
        "docs/reference/message-store.md#i11",
        "docs/reference/message-store.md#i12",
    ),
    exercised=Exercised("a write or a remove", {Ev.STORE_WRITE: None, Ev.STORE_REMOVE: None}),
    machines=(References,),
    sql=_SQL,
    explain=count_chain,
    is_final=_is_final,
)
