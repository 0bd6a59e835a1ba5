"""X1: an exchange leads to every queue that is bound to it.

Key: (run,).  A publisher writes how many queues its exchange chose, and the time of a row before that: they were chosen between the two (ROUTED;
where none is said, that row is its last ROUTED).
A binding that was there by then, and is not undone before the ROUTED, has to count.  The vhost's process writes BOUND after the binding
is there, and UNBOUND before it goes, so nothing is asked for that may not have been there.

    exchange                          queues that must be among the chosen
    direct, amq.direct                those bound with the routing key
    fanout, amq.fanout                all that are bound
    of another type, or not known     none: headers and patterns are not in rows

More may be chosen: by other exchanges that are bound, by alternates, by bindings of the same time.  Such rows are few, so they need no arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar

from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.evidence import Near
from warrenmq.replay.explain.story import Chain, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import Chunk
from warrenmq.trace.events import BindingGone, BindingMade, Bound, Ev, ExchangeDeclared, ExchangeType, Routed
from warrenmq.trace.index import Row

_ends = {
    int(Ev.BOUND): BindingMade.getter("to", "exchange", "destination", "routing_key"),
    int(Ev.UNBOUND): BindingGone.getter("to", "exchange", "destination", "routing_key"),
}
_routed = Routed.getter("since", "exchange", "queues", "routing_key")
_declared = ExchangeDeclared.getter("type", "exchange")
_PREDECLARED = {"amq.direct": ExchangeType.DIRECT, "amq.fanout": ExchangeType.FANOUT}


class Routes(Machine):
    """Compares what was chosen with what was bound."""

    name: ClassVar[str] = "routes"
    events: ClassVar[frozenset[int]] = frozenset({Ev.BOUND, Ev.UNBOUND, Ev.ROUTED, Ev.EXCHANGE_DECLARED})

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Row]]]:
        yield (piece.run,), rows

    def finish(self, key: Key, state: list[Row], context: TraceContext) -> Outcome:
        run, outcome = int(key[0]), Outcome()
        types = self._types(run, state)
        bound: defaultdict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        """Exchange -> (queue, routing key) -> since when."""
        binders = {row.actor for row in state if row.event == Ev.BOUND}
        before: dict[int, int] = {}
        for row in sorted(state):
            if (event := row.event) in _ends:
                to, exchange, *ends = _ends[event](row)
                if to == Bound.QUEUE and event == Ev.BOUND:
                    bound[exchange].setdefault((ends[0], ends[1]), row.t)
                elif to == Bound.QUEUE:
                    bound[exchange].pop((ends[0], ends[1]), None)
            elif event == Ev.ROUTED:
                since, exchange, queues, routing_key = _routed(row)
                since = since or before.get(row.actor, 0)
                before[row.actor] = row.t
                type_ = types.get(exchange)
                any_key = type_ == ExchangeType.FANOUT
                must = {
                    destination
                    for (destination, with_key), t in bound[exchange].items()
                    if t < since and (any_key or (type_ == ExchangeType.DIRECT and with_key == routing_key))
                }
                outcome.figures[EXERCISED, "X1"] += bool(queues and must)
                if 0 < queues < len(must):
                    name = self.runs[run].texts.get(exchange, "")
                    text = f"exchange {name} chose {queues} queues, where {len(must)} are bound"
                    needs = {
                        (run, row.actor),
                        *(
                            each
                            for one in binders
                            for each in context.namesakes(context.name((run, one)), run)
                        ),
                    }
                    outcome.findings.append(
                        Finding(
                            "X1",
                            context.name((run, row.actor)),
                            text,
                            ((run, row.actor, row.seq),),
                            row.t,
                            tuple(sorted(needs)),
                        )
                    )
        return outcome

    def _types(self, run: int, rows: list[Row]) -> dict[int, int]:
        """The type of each exchange whose type is known, and never another."""
        texts = self.runs[run].texts
        found = {number: int(_PREDECLARED[text]) for number, text in texts.items() if text in _PREDECLARED}
        for row in rows:
            if row.event == Ev.EXCHANGE_DECLARED:
                type_, exchange = _declared(row)
                found[exchange] = type_ if found.get(exchange, type_) == type_ else 0
        return found


def _missed(story: Story) -> Chain:
    """The last binding before."""
    known = [
        story.known.row(Near(story.run, actor, int(Ev.BOUND), story.last.t, after=False))
        for actor, entry in story.runs[story.run].actors.items()
        if entry.kind == "VhostProcess"
    ]
    return links_of([placed for placed in known if placed is not None] + story.evidence)


_SQL = """
WITH types AS (
    SELECT run, exchange, min(type) AS type FROM exchange_declared_rows GROUP BY run, exchange HAVING min(type) = max(type)),
routed AS (
    SELECT run, actor, seq, t, exchange, queues, routing_key,
           CASE WHEN since > 0 THEN since ELSE coalesce(lag(t) OVER (PARTITION BY run, actor ORDER BY seq), 0) END AS since
    FROM routed_rows),
bindings AS (
    SELECT b.run, b.exchange, b.destination, b.routing_key, b.t, min(u.t) AS until FROM bound_rows AS b
    LEFT JOIN unbound_rows AS u ON u.run = b.run AND u.`to` = b.`to` AND u.exchange = b.exchange
      AND u.destination = b.destination AND u.routing_key = b.routing_key AND u.t > b.t
    WHERE b.`to` = 1 GROUP BY b.run, b.exchange, b.destination, b.routing_key, b.t)
SELECT r.run, r.actor, r.seq FROM routed AS r JOIN types AS x ON x.run = r.run AND x.exchange = r.exchange
JOIN bindings AS b ON b.run = r.run AND b.exchange = r.exchange AND b.t < r.since AND coalesce(b.until, r.t) >= r.t
  AND (x.type = 2 OR (x.type = 1 AND b.routing_key = r.routing_key))
WHERE r.queues > 0 GROUP BY r.run, r.actor, r.seq, r.queues HAVING r.queues < count(DISTINCT b.destination)
"""

RULE = Rule(
    id="X1",
    name="exchanges miss no queue",
    text="A publish to a direct or fanout exchange goes to every queue that is bound for it.",
    sources=("docs/reference/classic-queue.md#p28",),
    exercised=Exercised("a publish to an exchange with a binding for it"),
    machines=(Routes,),
    sql=_SQL,
    not_in_sql="exchanges that are always there, whose names are not in tables",
    explain=_missed,
)
