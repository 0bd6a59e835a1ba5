"""Users' rules as queries over a DataFrame of rows (docs/rules.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warrenmq.replay.drive.own_rules import SqlRule, require_own
from warrenmq.replay.rules.sql import views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_own(rows: DataFrame, rules: Sequence[SqlRule]) -> DataFrame:
    """What breaks these rules in rows as `read` gives them: lazy, with the columns of `check`."""
    require_own(rules)
    names = views()
    tables = {
        "stored": "SELECT run, actor_id AS actor, seq, t, ev_id AS event, flag_id AS flag, msg, coalesce(peer_id, 0) AS peer, "
        "pseq, a, b, c FROM __rows__",
        "actors": "SELECT DISTINCT run, actor_id AS actor, concat_ws(' ', directory, vhost) AS scope, actor AS name, kind, "
        "coalesce(parent_id, 0) AS parent FROM __rows__",
        "most": "SELECT coalesce(max(b), 1) AS n FROM stored WHERE event IN (20, 24, 25, 26, 27, 31)",
        "numbers": "SELECT explode(sequence(0, n - 1)) AS n FROM most",
        **names,
    }
    given = ", ".join(
        [f"{name} AS ({query})" for name, query in tables.items()]
        + [f"own_{number} (run, actor, seq) AS ({rule.sql})" for number, rule in enumerate(rules)]
    )
    found = [
        f"SELECT {_literal(rule.id)} AS rule, {_literal(rule.text)} AS text, run, actor, seq FROM own_{number}"  # noqa: S608 - the user's own
        for number, rule in enumerate(rules)
    ]
    query = (
        f"WITH {given}, found AS ({' UNION ALL '.join(found)}) "  # noqa: S608
        "SELECT f.rule, concat('actor ', a.name) AS subject, f.text, "
        "array(named_struct('run', f.run, 'actor', a.name, 'seq', f.seq)) AS rows "
        "FROM found AS f JOIN actors AS a ON a.run = f.run AND a.actor = f.actor"
    )
    escaped = query.replace("{", "{{").replace("}", "}}").replace("__rows__", "{given_rows}")
    return rows.sparkSession.sql(escaped, given_rows=rows)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
