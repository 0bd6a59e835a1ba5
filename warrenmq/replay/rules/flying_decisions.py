"""S2: a store decides on a write or a remove by the flying counter.

By the counter that the store saw (`message_store/flying.py` says why it departs from RabbitMQ at 2 and -2):

==============  ==================  ==================
seen            a write             a remove
==============  ==================  ==================
no row, 0       ignored             ignored
1 and more      processed           ignored
-1 and less     ignored             processed
==============  ==================  ==================

A processed write is WRITE (no reference before) or CONFIRM (the record exists), a processed remove is REMOVE or DEFER.
Of a client that is being deleted the store may ignore what the counter would process.

Each row is decided by itself, so a piece's summary holds only the rows that the table does not name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

from warrenmq.replay.drive.columns import Rows
from warrenmq.replay.drive.machines import Finding, Key, Machine, Outcome, message_name
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.story import count_chain
from warrenmq.replay.rules.rule import Exercised, Rule, is_known
from warrenmq.trace.catalog import FOREVER, Chunk
from warrenmq.trace.events import Decision, Ev
from warrenmq.trace.index import Row
from warrenmq.trace.schema import Shared, T

_WRITE = int(Ev.STORE_WRITE)


class _Decided(Shared[T], of=(Ev.STORE_WRITE, Ev.STORE_REMOVE)):
    message: T
    client: T
    flying: T
    was_flying: T


_decided = _Decided.getter("t", "seq", "who", "message", "client", "flying", "was_flying")


def _is_of_the_table(who: Any, flying: Any, was_flying: Any) -> Any:
    """The table above, of numbers or of arrays."""
    is_write, decision = (who >> 8 & 0xFF) == _WRITE, who & 0xFF
    passes = (was_flying != 0) & ((is_write & (flying > 0)) | ((is_write ^ True) & (flying < 0)))
    processed = (is_write & ((decision == Decision.WRITE) | (decision == Decision.CONFIRM))) | (
        (is_write ^ True) & ((decision == Decision.REMOVE) | (decision == Decision.DEFER))
    )
    return (passes & processed) | ((passes ^ True) & (decision == Decision.IGNORE))


_is_one_of_the_table = cache(_is_of_the_table)


class Decisions(Machine):
    """Finds the decisions that the table does not name.  Key: (run, store actor)."""

    name: ClassVar[str] = "decisions"
    events: ClassVar[frozenset[int]] = frozenset({Ev.STORE_WRITE, Ev.STORE_REMOVE})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Row]]]:
        wrong = [
            row
            for row in rows
            for _, _, who, _, _, flying, was_flying in (_decided(row),)
            if not _is_one_of_the_table(who & 0xFFFF, flying, was_flying)
        ]
        if wrong:
            yield (piece.run, piece.actor), wrong

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, list[Row]]]:
        view = _Decided.of(rows)
        right = _is_of_the_table(rows.who, view.flying, view.was_flying)
        if not right.all():
            yield (piece.run, piece.actor), rows.where(~right).tuples()

    def finish(self, key: Key, state: list[Row], context: TraceContext) -> Outcome:
        who = int(key[0]), int(key[1])
        outcome = Outcome()
        for row in state:
            t, seq, word, msg, client, flying, was_flying = _decided(row)
            decision = word & 0xFF
            what = "write" if word >> 8 & 0xFF == _WRITE else "remove"
            until, needs = t, [who]
            if decision != Decision.IGNORE:
                counter = flying if was_flying else "no"
                names = {int(each): each.name for each in Decision}
                text = f"a {what} that met {counter} flying counter was {names.get(decision, decision)}"
            elif context.was_leaving((who[0], client), t):
                continue
            else:
                text = f"a {what} that the flying counter let pass was ignored"
                until, needs = FOREVER, [who, (who[0], client)]
            subject = f"{message_name(msg)} in {context.name(who)}"
            outcome.findings.append(Finding("S2", subject, text, ((*who, seq),), until, tuple(needs), (msg,)))
        return outcome


def _is_final(finding: Finding, context: TraceContext) -> bool:
    """True once a finding is final; for an ignored write, once its queue is known to have worked on or ended."""
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
    machines=(Decisions,),
    sql=_SQL,
    explain=count_chain,
    is_final=_is_final,
)
