"""The tables that rules in SQL are queries of, and SQLite to run them.

    stored              every row: run, actor, seq, t, event (its number), flag, and the other columns as stored
    actors              run, actor, scope, name, kind, parent
    numbers             n: 0, 1, 2, ... up to the most messages that one row speaks of
    publish_rows, ...   the rows of one event, its columns by their names (warrenmq/trace/events/): a view for each event
    receives            run, actor, seq, t, event, sender, send: each SEND that a row is the receive of
    steps               run, actor, seq, t, event, flag, id: each message, by its sequence id, that a row of a queue moves (PUBLISH,
                        RECOVERED, DELIVER, ACK, REQUEUE, DROP); id >> 48 is its priority

A rule's query gives a row (run, actor, seq) for each violation.  It is written in what SQLite and Spark SQL
have in common: no types, no functions but aggregates and windows, names in `backticks`.  `run` is a number in
SQLite, and the run's name in Spark; `name` and `scope` hold what all incarnations of an actor have in common.

The queries of our own rules specify them, and tests hold them against the machines; a replay runs the machines.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from operator import attrgetter

from warrenmq.errors import CallerError
from warrenmq.trace.catalog import Run
from warrenmq.trace.events import Ev, Publish
from warrenmq.trace.index import Row
from warrenmq.trace.reader import Trace
from warrenmq.trace.schema import COLUMNS, EVENTS

_OTHERS = COLUMNS[2:-1]
"""Stored columns whose meaning depends on the event."""
_STORED = ", ".join(("run", "actor", "seq", "t", "event", "flag", *_OTHERS))
_MOVES = (Ev.PUBLISH, Ev.RECOVERED, Ev.DELIVER, Ev.ACK, Ev.REQUEUE, Ev.DROP)
COUNTED = (*_MOVES, Ev.CONFIRM, Ev.EXPIRY)
"""Events of which a row speaks of several messages."""


def views() -> dict[str, str]:
    """Name -> the query that it stands for, over `stored` and `numbers`; later ones may use earlier ones."""
    found = {}
    for number, event in sorted(EVENTS.items()):
        columns = "".join(
            f", {column.expression(column.place)} AS `{column.name}`" for column in event.columns
        )
        found[f"{event.name.lower()}_rows"] = (
            f"SELECT run, actor, seq, t{columns} FROM stored WHERE event = {number}"  # noqa: S608 - of the schema alone
        )
    found["receives"] = f"""
        SELECT run, actor, seq, t, {Ev.RECV:d} AS event, CASE sender WHEN 0 THEN actor ELSE sender END AS sender, send
        FROM recv_rows WHERE send > 0
        UNION ALL
        SELECT run, actor, seq, t, {Ev.ACK:d}, CASE acker WHEN 0 THEN actor ELSE acker END, send FROM ack_rows WHERE send > 0
        UNION ALL
        SELECT run, actor, seq, t, {Ev.UNDELIVERED:d}, CASE sender WHEN 0 THEN actor ELSE sender END, send
        FROM undelivered_rows WHERE send > 0
        UNION ALL
        SELECT run, actor, seq, t, {Ev.PUBLISH:d}, publisher, send + n
        FROM publish_rows JOIN numbers ON n < sends OR n = 0 WHERE send > 0"""  # noqa: S608
    first, count = (Publish.column(name).place for name in ("first_seq_id", "count"))
    found["steps"] = f"""
        SELECT run, actor, seq, t, event, flag, {first} + n AS id FROM stored JOIN numbers ON n < {count}
        WHERE event IN ({", ".join(str(int(event)) for event in _MOVES)})"""  # noqa: S608
    return found


def tables(trace: Trace) -> sqlite3.Connection:
    """A trace as tables of an SQLite database in memory."""
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE stored ({_STORED})")
    database.execute("CREATE TABLE actors (run, actor, scope, name, kind, parent)")
    database.execute("CREATE TABLE numbers (n)")
    marks = ", ".join("?" * len(_STORED.split(", ")))
    for piece in trace.catalog.chunks:
        database.executemany(f"INSERT INTO stored VALUES ({marks})", _stored(piece.run, trace.rows(piece)))  # noqa: S608
    database.executemany("INSERT INTO actors VALUES (?, ?, ?, ?, ?, ?)", _actors(trace.catalog.runs))
    for name, query in views().items():
        database.execute(f"CREATE TEMP VIEW {name} AS {query}")
    most = max(
        database.execute(f"SELECT coalesce(max({column}), 1) FROM {event.name.lower()}_rows").fetchone()[0]  # noqa: S608
        for event, column in ((Ev.PUBLISH, "sends"), *((event, "count") for event in COUNTED))
    )
    database.executemany("INSERT INTO numbers VALUES (?)", ((n,) for n in range(max(most, 1))))
    database.execute("CREATE TEMP TABLE moved AS SELECT * FROM steps")
    database.execute("DROP VIEW steps")
    database.execute("ALTER TABLE moved RENAME TO steps")
    database.execute("CREATE INDEX temp.by_id ON steps (run, actor, id, seq)")
    database.execute("CREATE INDEX by_event ON stored (event, run, actor, seq)")
    return database


def violations(trace: Trace, queries: Iterable[str]) -> list[list[tuple[int, int, int]]]:
    """The violations that each query finds in a trace: (run, actor, seq) of rows, in their order."""
    with closing(tables(trace)) as database:
        return [sorted(set(database.execute(query).fetchall())) for query in queries]


def found_in(trace: Trace, queries: Iterable[str]) -> list[list[tuple[int, int, int, int]]]:
    """Find rows as above, with each row's t; CallerError for a query that SQLite does not take."""
    with closing(tables(trace)) as database:
        return [_rows_with_t(database, query) for query in queries]


def _rows_with_t(database: sqlite3.Connection, query: str) -> list[tuple[int, int, int, int]]:
    try:
        return database.execute(
            "WITH found (of_run, of_actor, number) AS ("  # noqa: S608 - a query is what is asked for
            f"SELECT * FROM {nested(query)}) SELECT DISTINCT s.run, s.actor, s.seq, s.t FROM found JOIN stored AS s "
            "ON s.run = of_run AND s.actor = of_actor AND s.seq = number ORDER BY 1, 2, 3"
        ).fetchall()
    except sqlite3.Error as error:
        raise CallerError(
            f"SQLite does not take the query {' '.join(query.split())!r} of rows (run, actor, seq): {error}."
        ) from error


def nested(query: str) -> str:
    """A query in parentheses: without a semicolon, and with a line's end for a comment that it may end with."""
    return f"({query.strip().removesuffix(';')}\n)"


def _stored(run: int, rows: Iterable[Row]) -> Iterator[tuple[int, ...]]:
    others = attrgetter(*_OTHERS)
    for row in rows:
        yield run, row.actor, row.seq, row.t, row.event, row.flag, *others(row)


def _actors(runs: Iterable[Run]) -> Iterator[tuple[int | str, ...]]:
    for number, run in enumerate(runs):
        for actor, entry in run.actors.items():
            yield number, actor, run.scope, entry.name, entry.kind, entry.parent
