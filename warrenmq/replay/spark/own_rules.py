"""Users' rules as queries over a DataFrame of rows (docs/rules.md)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from warrenmq.replay.drive.own_rules import EVERY_ROW, SqlRule
from warrenmq.replay.drive.result import Result
from warrenmq.replay.rules.sql import COUNTED, nested, views
from warrenmq.replay.spark.failures import told_in_a_sentence
from warrenmq.replay.spark.frames import narrowed
from warrenmq.trace.catalog import Catalog

_STORED = {"run", "actor_id", "seq", "t", "ev_id", "flag_id", "msg", "peer_id", "pseq", "a", "b", "c"}
_LACKING = pa.schema([("run", pa.string()), ("actor", pa.int64()), ("missing", pa.int64())])
_ACTORS = {"run", "actor_id", "actor", "kind", "parent_id", "directory", "vhost"}


def check_own(rows: DataFrame, rules: Sequence[SqlRule], found: Result) -> DataFrame:
    """Violations of these rules in rows as `read` gives them: lazy, with the columns of `check`.

    `found` is the result of a check of these rows.
    """
    query = " UNION ALL ".join(
        f"SELECT :id{number} AS rule, concat('actor ', f.name) AS subject, :text{number} AS text, "  # noqa: S608 - the user's own
        f"array(named_struct('run', f.run, 'actor', f.name, 'seq', f.seq)) AS rows, {_cases(rule)} AS exercised "
        f"FROM {_found(rule)} AS f WHERE f.stands"
        for number, rule in enumerate(rules)
    )
    return _asked(rows, query, rules, found.catalog)


def verdicts_own(rows: DataFrame, rules: Sequence[SqlRule], found: Result) -> DataFrame:
    """The verdicts on these rules, lazy, with the columns of `verdicts`; `found` as for `check_own`."""
    undecided = found.counts["indeterminate"]
    query = " UNION ALL ".join(
        f"SELECT :id{number} AS rule, :id{number} AS name, :text{number} AS text, {_cases(rule)} AS exercised, count_if(f.stands) AS violated, "  # noqa: S608 - the user's own
        f"count_if(NOT f.stands) + {undecided.get(rule.id, 0)} AS indeterminate FROM {_found(rule)} AS f"
        for number, rule in enumerate(rules)
    )
    return _asked(rows, query, rules, found.catalog)


def _found(rule: SqlRule) -> str:
    """The query of the rows that a rule finds, each once; one behind a missing row of its actor does not stand."""
    return (
        "(SELECT DISTINCT q.run, q.actor, a.name, q.seq, l.run IS NULL OR q.seq < l.missing AS stands "  # noqa: S608 - the user's own
        f"FROM {nested(rule.sql)} AS q (run, actor, seq) JOIN actors AS a ON a.run = q.run AND a.actor = q.actor "
        "LEFT JOIN lacking AS l ON l.run = q.run AND l.actor = q.actor WHERE q.seq IS NOT NULL)"
    )


def _cases(rule: SqlRule) -> str:
    """The query of how many cases there are."""
    each = "" if rule.cases == EVERY_ROW else "DISTINCT "
    return f"(SELECT count(*) FROM (SELECT {each}* FROM {nested(rule.cases)}))"  # noqa: S608 - the user's own


def _asked(rows: DataFrame, query: str, rules: Sequence[SqlRule], catalog: Catalog) -> DataFrame:
    """Ask a query over the tables of rules; `:id0` and `:text0` are those of the first rule."""
    tables = {
        "stored": "SELECT run, actor_id AS actor, seq, t, ev_id AS event, flag_id AS flag, msg, coalesce(peer_id, 0) AS peer, "
        "pseq, a, b, c FROM {stored_rows}",
        "actors": "SELECT DISTINCT run, actor_id AS actor, concat_ws(' ', directory, vhost) AS scope, actor AS name, kind, "
        "coalesce(parent_id, 0) AS parent FROM {actor_rows}",
        "lacking": "SELECT * FROM {lacking_rows}",
        "most": f"SELECT coalesce(max(b), 1) AS n FROM stored WHERE event IN ({', '.join(str(int(event)) for event in COUNTED)})",  # noqa: S608 - of the schema alone
        "numbers": "SELECT explode(sequence(0, n - 1)) AS n FROM most",
        **views(),
    }
    given = ", ".join(f"{name} AS ({table})" for name, table in tables.items())
    escaped = query.replace("{", "{{").replace("}", "}}")  # else Spark takes a brace for a placeholder
    stored = narrowed(rows, _STORED)
    with told_in_a_sentence():
        return rows.sparkSession.sql(
            f"WITH {given} {escaped}",
            # no text of a rule goes through SQL, whose escapes are a setting; a select behind this would analyse all of it again
            {f"id{number}": rule.id for number, rule in enumerate(rules)}
            | {f"text{number}": rule.text for number, rule in enumerate(rules)},
            stored_rows=stored.distinct() if catalog.counts_once else stored,
            actor_rows=narrowed(rows, _ACTORS),
            # With its schema: of an empty table Spark Connect takes none from it.
            lacking_rows=rows.sparkSession.createDataFrame(_lacking(catalog), from_arrow_schema(_LACKING)),
        )


def _lacking(catalog: Catalog) -> pa.Table:
    """The first row that is missing of each actor that lacks rows before its last one; 0 where none proves anything."""
    first = {
        who: 0 if catalog.runs[who[0]].why_undecidable else coverage.missing[0][0]
        for who, coverage in catalog.coverage.items()
        if coverage.gaps or catalog.runs[who[0]].why_undecidable
    }
    return pa.Table.from_pylist(
        [
            {"run": catalog.runs[run].name, "actor": actor, "missing": seq}
            for (run, actor), seq in first.items()
        ],
        _LACKING,
    )
