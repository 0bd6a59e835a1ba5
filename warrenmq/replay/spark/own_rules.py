"""Users' rules as queries over a DataFrame of rows (docs/rules.md)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from warrenmq.replay.drive.own_rules import SqlRule
from warrenmq.replay.rules.sql import COUNTED, views
from warrenmq.replay.spark.frames import narrowed

_STORED = {"run", "actor_id", "seq", "t", "ev_id", "flag_id", "msg", "peer_id", "pseq", "a", "b", "c"}
_ACTORS = {"run", "actor_id", "actor", "kind", "parent_id", "directory", "vhost"}


def check_own(rows: DataFrame, rules: Sequence[SqlRule]) -> DataFrame:
    """Violations of these rules in rows as `read` gives them: lazy, with the columns of `check`."""
    query = " UNION ALL ".join(
        f"SELECT {_literal(rule.id)} AS rule, concat('actor ', a.name) AS subject, {_literal(rule.text)} AS text, "  # noqa: S608 - the user's own
        f"array(named_struct('run', f.run, 'actor', a.name, 'seq', f.seq)) AS rows, "
        f"(SELECT count(*) FROM ({rule.cases})) AS exercised "
        f"FROM ({rule.sql}) AS f (run, actor, seq) JOIN actors AS a ON a.run = f.run AND a.actor = f.actor"
        for rule in rules
    )
    return _asked(rows, query)


def verdicts_own(rows: DataFrame, rules: Sequence[SqlRule]) -> DataFrame:
    """The verdicts on these rules, lazy, with the columns of `verdicts`; a query leaves nothing open."""
    query = " UNION ALL ".join(
        f"SELECT {_literal(rule.id)} AS rule, {_literal(rule.id)} AS name, {_literal(rule.text)} AS text, "  # noqa: S608 - the user's own
        f"(SELECT count(*) FROM ({rule.cases})) AS exercised, (SELECT count(*) FROM ({rule.sql})) AS violated, "
        "0L AS indeterminate"
        for rule in rules
    )
    return _asked(rows, query)


def _asked(rows: DataFrame, query: str) -> DataFrame:
    """Ask a query over the tables of rules."""
    tables = {
        "stored": "SELECT run, actor_id AS actor, seq, t, ev_id AS event, flag_id AS flag, msg, coalesce(peer_id, 0) AS peer, "
        "pseq, a, b, c FROM {stored_rows}",
        "actors": "SELECT DISTINCT run, actor_id AS actor, concat_ws(' ', directory, vhost) AS scope, actor AS name, kind, "
        "coalesce(parent_id, 0) AS parent FROM {actor_rows}",
        "most": f"SELECT coalesce(max(b), 1) AS n FROM stored WHERE event IN ({', '.join(str(int(event)) for event in COUNTED)})",  # noqa: S608 - of the schema alone
        "numbers": "SELECT explode(sequence(0, n - 1)) AS n FROM most",
        **views(),
    }
    given = ", ".join(f"{name} AS ({table})" for name, table in tables.items())
    escaped = query.replace("{", "{{").replace("}", "}}")  # else Spark takes a brace for a placeholder
    return rows.sparkSession.sql(
        f"WITH {given} {escaped}", stored_rows=narrowed(rows, _STORED), actor_rows=narrowed(rows, _ACTORS)
    )


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
