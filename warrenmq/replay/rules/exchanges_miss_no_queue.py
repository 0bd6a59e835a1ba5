"""X1: an exchange leads to every queue that is bound to it.

Key: (run,).  A publisher writes how many queues its exchange chose, and the time of a row before that: they
were chosen between the two (ROUTED; where none is said, that row is its last one of these).  A publish that no queue
is bound for says the same of none (UNROUTED; where no time is said nothing is asked).
A binding that was there by then, and is not undone before the ROUTED, has to count.  The vhost's process
writes BOUND after the binding is there, and UNBOUND before it goes, so nothing is asked for that may not have
been there.

    exchange                          queues that must be among the chosen
    direct, amq.direct                those bound with the routing key
    fanout, amq.fanout                all that are bound
    topic, amq.topic                  those whose pattern fits the routing key
    of another type, or not known     none: headers are not in rows

Names beyond the first 4,096 of a trace are not in it; what is about one of these is not asked.

More may be chosen: by other exchanges that are bound, by alternates, by bindings of the same time.

Array form: ROUTED and UNROUTED rows go on as columns, and those with the same exchange, key and number of queues are
decided in one go, if no binding came or went between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from warrenmq.replay.drive.columns import Ints, Rows, np
from warrenmq.replay.drive.machines import EXERCISED, Finding, Key, Machine, Outcome
from warrenmq.replay.drive.trace_context import TraceContext
from warrenmq.replay.explain.evidence import Near
from warrenmq.replay.explain.story import Chain, Story, links_of
from warrenmq.replay.rules.rule import Exercised, Rule
from warrenmq.trace.catalog import FOREVER, Chunk
from warrenmq.trace.events import (
    BindingGone,
    BindingMade,
    Bound,
    Ev,
    ExchangeDeclared,
    ExchangeType,
    Routed,
    Unrouted,
)
from warrenmq.trace.index import Row
from warrenmq.trace.schema import COLUMNS

_ends = {
    int(Ev.BOUND): BindingMade.getter("to", "exchange", "destination", "routing_key"),
    int(Ev.UNBOUND): BindingGone.getter("to", "exchange", "destination", "routing_key"),
}
_routed = Routed.getter("since", "exchange", "queues", "routing_key")
_declared = ExchangeDeclared.getter("type", "exchange")
_unrouted = Unrouted.getter("since", "exchange", "routing_key")
_PREDECLARED = {
    "amq.direct": ExchangeType.DIRECT,
    "amq.fanout": ExchangeType.FANOUT,
    "amq.topic": ExchangeType.TOPIC,
}
NOT_SAID = -1


class Asked(NamedTuple):
    """A ROUTED or UNROUTED row; `since` is said by it, or by the one before."""

    t: int
    actor: int
    seq: int
    since: int
    exchange: int
    queues: int
    """How many were chosen; NOT_SAID."""
    routing_key: int


class Binding(NamedTuple):
    """A queue that was bound, from when to when."""

    began: int
    ended: int
    queue: int
    routing_key: int


_ASKING = frozenset({Ev.ROUTED, Ev.UNROUTED})


class Routes(Machine):
    """Compares what was chosen with what was bound."""

    name: ClassVar[str] = "routes"
    events: ClassVar[frozenset[int]] = frozenset(
        {Ev.BOUND, Ev.UNBOUND, Ev.ROUTED, Ev.UNROUTED, Ev.EXCHANGE_DECLARED}
    )

    def summarise(self, piece: Chunk, rows: list[Row]) -> Iterator[tuple[Key, list[Row]]]:
        yield (piece.run,), rows

    def fold(self, piece: Chunk, rows: Rows) -> Iterator[tuple[Key, list[Any]]]:
        """`summarise` for arrays: ROUTED and UNROUTED rows as one table."""
        routed = rows.are(_ASKING)
        yield (piece.run,), [*rows.where(~routed).tuples(), rows.where(routed).table()]

    def finish(self, key: Key, state: list[Any], context: TraceContext) -> Outcome:
        run, outcome = int(key[0]), Outcome()
        rows = sorted(each for each in state if isinstance(each, Row))
        tables = [each for each in state if not isinstance(each, Row) and len(each)]
        if any(row.event in _ASKING for row in rows):  # of a piece that is no table, like those before it
            rows = sorted([*rows, *(Row._make(each) for table in tables for each in table.tolist())])
            tables = []
        bindings, types, leads = _bindings(rows), self._types(run, rows), _Leads(self.runs[run].texts)
        binders = {row.actor for row in rows if row.event == Ev.BOUND}
        for alike in [*([asked] for asked in _asked(rows)), *_alike(tables, bindings)]:
            asked = Asked(*map(int, alike[0]))
            must = {
                each.queue
                for each in bindings.get(asked.exchange, ())
                if each.began < asked.since
                and asked.t < each.ended
                and leads(types.get(asked.exchange, 0), each, asked)
            }
            if asked.queues != NOT_SAID and must:
                outcome.figures[EXERCISED, "X1"] += len(alike)
            if NOT_SAID < asked.queues < len(must):
                # rows of a DataFrame have numbers alone
                name = self.runs[run].texts.get(asked.exchange, f"number {asked.exchange}")
                text = f"exchange {name} chose {asked.queues} queues, where {len(must)} are bound"
                namesakes = [context.namesakes(context.name((run, one)), run) for one in binders]
                for t, actor, seq, *_ in (map(int, each) for each in alike):
                    who = run, actor
                    needs = tuple(sorted({who, *chain.from_iterable(namesakes)}))
                    outcome.findings.append(Finding("X1", context.name(who), text, ((*who, seq),), t, needs))
        outcome.findings.sort(key=attrgetter("t"))
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


class _Leads:
    """The queues that an exchange of some type leads to, of those that are bound to it: True for these, False where it is not known."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._texts = texts
        self._fits: dict[tuple[int, int], bool] = {}
        """(pattern, routing key) -> whether it fits."""

    def __call__(self, type_: int, binding: Binding, asked: Asked) -> bool:
        if not asked.exchange:
            return False
        if type_ == ExchangeType.FANOUT:
            return True
        both = binding.routing_key, asked.routing_key
        if not all(both):
            return False
        if type_ != ExchangeType.TOPIC:
            return type_ == ExchangeType.DIRECT and both[0] == both[1]
        if both not in self._fits:
            pattern, key = (self._texts.get(each) for each in both)
            known = pattern is not None and key is not None
            self._fits[both] = known and _fits(_words(str(pattern)), _words(str(key)))
        return self._fits[both]


def _words(key: str) -> list[str]:
    return key.split(".") if key else []


def _fits(pattern: list[str], words: list[str]) -> bool:
    """True if words fit a pattern, in which `*` is any word and `#` any number of them.

    `reached` has for each number of words whether the pattern so far fits the first so many.
    """
    reached = [True, *[False] * len(words)]
    for each in pattern:
        if each == "#":
            first = reached.index(True) if True in reached else len(reached)
            reached = [place >= first for place in range(len(reached))]
        else:
            reached = [
                False,
                *(was and each in ("*", word) for was, word in zip(reached, words, strict=False)),
            ]
    return reached[-1]


def _bindings(rows: Sequence[Row]) -> dict[int, list[Binding]]:
    """The queues that were bound to each exchange."""
    found: defaultdict[int, list[Binding]] = defaultdict(list)
    began: dict[tuple[int, int, int], int] = {}
    for row in rows:
        if (ends := _ends.get(row.event)) is not None:
            to, *which = ends(row)
            exchange, *bound = whose = (which[0], which[1], which[2])
            if to == Bound.QUEUE and row.event == Ev.BOUND:
                began.setdefault(whose, row.t)
            elif to == Bound.QUEUE and (since := began.pop(whose, None)) is not None:
                found[exchange].append(Binding(since, row.t, *bound))
    for (exchange, *bound), since in began.items():
        found[exchange].append(Binding(since, FOREVER, *bound))
    return found


def _asked(rows: Sequence[Row]) -> Iterator[Asked]:
    before: dict[int, int] = {}
    for row in rows:
        if row.event == Ev.ROUTED:
            since, exchange, queues, key = _routed(row)
            since = since or before.get(row.actor, 0)
            yield Asked(row.t, row.actor, row.seq, since, exchange, queues or NOT_SAID, key)
        elif row.event == Ev.UNROUTED:
            since, exchange, key = _unrouted(row)
            yield Asked(row.t, row.actor, row.seq, since, exchange, 0, key)
        else:
            continue
        before[row.actor] = row.t


def _alike(tables: Sequence[Ints], bindings: Mapping[int, Sequence[Binding]]) -> list[Any]:
    """ROUTED and UNROUTED rows, as Asked has them, those together that ask for the same."""
    if not tables:
        return []
    rows = Rows(dict(zip(COLUMNS, np.concatenate(tables).T, strict=True)))
    rows = rows.at(np.lexsort((rows.seq, rows.actor)))
    (since, exchange, queues, key), unrouted = _routed(rows), rows.event == Ev.UNROUTED
    before = np.where(np.diff(rows.actor, prepend=-1) == 0, np.roll(rows.t, 1), 0)
    since = np.where(unrouted, _unrouted(rows)[0], np.where(since > 0, since, before))
    exchange, key = (
        np.where(unrouted, of, its) for of, its in zip(_unrouted(rows)[1:], (exchange, key), strict=True)
    )
    rest = exchange, np.where(unrouted, 0, np.where(queues > 0, queues, NOT_SAID)), key
    changes = np.array(sorted({t for its in bindings.values() for each in its for t in each[:2]}), np.int64)
    asked = np.stack((rows.t, rows.actor, rows.seq, since, *rest), axis=1)
    case = np.stack((*rest, np.searchsorted(changes, since), np.searchsorted(changes, rows.t, side="right")))
    order = np.lexsort(case)
    case, asked = case.take(order, axis=1), asked.take(order, axis=0)
    return np.split(asked, np.flatnonzero(np.any(np.diff(case, axis=1) != 0, axis=0)) + 1)


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
told AS (
    SELECT run, actor, seq, t, exchange, queues, routing_key, since, 0 AS unrouted FROM routed_rows
    UNION ALL SELECT run, actor, seq, t, exchange, 0, routing_key, since, 1 FROM unrouted_rows),
routed AS (
    SELECT run, actor, seq, t, exchange, queues, routing_key, unrouted,
           CASE WHEN since > 0 OR unrouted = 1 THEN since
                ELSE coalesce(lag(t) OVER (PARTITION BY run, actor ORDER BY seq), 0) END AS since
    FROM told),
bindings AS (
    SELECT b.run, b.exchange, b.destination, b.routing_key, b.t, min(u.t) AS until FROM bound_rows AS b
    LEFT JOIN unbound_rows AS u ON u.run = b.run AND u.`to` = b.`to` AND u.exchange = b.exchange
      AND u.destination = b.destination AND u.routing_key = b.routing_key AND u.t > b.t
    WHERE b.`to` = 1 GROUP BY b.run, b.exchange, b.destination, b.routing_key, b.t)
SELECT r.run, r.actor, r.seq FROM routed AS r JOIN types AS x ON x.run = r.run AND x.exchange = r.exchange
JOIN bindings AS b ON b.run = r.run AND b.exchange = r.exchange AND b.t < r.since AND coalesce(b.until, r.t) >= r.t
  AND (x.type = 2 OR (x.type = 1 AND b.routing_key = r.routing_key AND b.routing_key > 0))
WHERE r.queues + r.unrouted > 0 AND r.exchange > 0 GROUP BY r.run, r.actor, r.seq, r.queues HAVING r.queues < count(DISTINCT b.destination)
"""

RULE = Rule(
    id="X1",
    name="exchanges miss no queue",
    text="A publish to a direct, fanout or topic exchange goes to every queue that is bound for it, and is not called unroutable then.",
    sources=("docs/reference/classic-queue.md#p28", "docs/reference/classic-queue.md#exchanges"),
    exercised=Exercised("a publish to an exchange with a binding for it"),
    machines=(Routes,),
    sql=_SQL,
    not_in_sql="exchanges that are always there, and patterns: names are not in tables",
    explain=_missed,
)
