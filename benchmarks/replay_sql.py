"""The pass of DuckDB over a trace in Parquet: plain SQL for the questions of the rules, as fast as SQL answers.

A yardstick of benchmarks/replay.py, not an engine of warrenmq: of the rules it has what is a join or a window over rows, and
beside them the lifecycle of messages.  A rule that needs an account that is carried along from row to row (the smallest ready
sequence id of Q1, the flying counters of S2, the files of S3 to S8, what a crash leaves of C2) is not in it, and it takes
for granted what the engines find out: that no rows are missing and that no queue crashed.

A queue is its name within a run, and a message of it its sequence id; rows that speak of a block of messages are unrolled.
"""

from __future__ import annotations

from typing import Any

from warrenmq.trace.events import CONFIRM_DURABLE, IGNORED, PRIORITY_SHIFT, REDELIVERED, WRITTEN, Decision, Ev
from warrenmq.trace.schema import EVENTS

MEMORY = "3GB"
"""The memory that the replay is allowed, too; beyond it DuckDB goes to its temporary files."""

_NUMBERS = {
    **{event.name: int(event) for event in Ev}, **{f"BY_{decision.name}": int(decision) for decision in Decision},
    "IF_DURABLE": CONFIRM_DURABLE, "IF_WRITTEN": WRITTEN, "IF_IGNORED": IGNORED,
    "IF_REDELIVERED": REDELIVERED, "PRIORITY_SHIFT": PRIORITY_SHIFT,
}  # fmt: skip
_STORED_AS = {"flag": "flag_id", "peer": "peer_id"}
"""Stored columns of which the Parquet files have names, beside the numbers."""


def _views() -> dict[str, str]:
    """publish_rows, confirm_rows, ...: the rows of one event, its columns by their names."""
    found = {}
    for number, event in EVENTS.items():
        columns = "".join(
            f', {each.expression(_STORED_AS.get(each.place, each.place))} as "{each.name}"'
            for each in event.columns
        )
        found[f"{event.name.lower()}_rows"] = (
            f"select run, actor, actor_id, seq, t{columns} from rows where ev_id = {number}"
        )
    return found


VIEWS = _views()


def _unrolled(event: str, columns: str = "") -> str:
    return f"select run, actor, unnest(range(first_seq_id, first_seq_id + count)) as id, t{columns} from {event}_rows"


TABLES = {
    "received": """
        select run, sender, send as sent, t from recv_rows where send > 0
        union all select run, acker, send, t from ack_rows where send > 0
        union all select run, publisher, unnest(range(send, send + greatest(sends, 1))), t
        from publish_rows where send > 0""",
    "published": _unrolled("publish"),
    "confirmed": _unrolled(
        "confirm", ", message + id - first_seq_id as message, kind = {IF_DURABLE} as durable"
    ),
    "delivered": _unrolled("deliver", ", flags & {IF_REDELIVERED} > 0 as again"),
    "acked": _unrolled("ack"),
    "lives": """
        select run, actor, published.t as published, confirmed.t as confirmed, delivered.t as delivered, acked.t as acked
        from published left join confirmed using (run, actor, id)
        left join (select * from delivered where not again) as delivered using (run, actor, id)
        left join acked using (run, actor, id)""",
}

VIOLATIONS = {
    "T1: rows without a gap, t rises": """
        select count(*) from (
            select seq - lag(seq, 1, 0) over each_actor as step, t - lag(t, 1, 0) over each_actor as later
            from rows window each_actor as (partition by run, actor_id order by seq)
        ) where step <> 1 or later <= 0""",
    "T2, T4: a receive has a send, before it": """
        select count(*) from received left join send_rows as send
        on send.run = received.run and send.actor_id = received.sender and send.seq = received.sent
        where send.t is null or send.t >= received.t""",
    "T2: no send is received twice": """
        select count(*) from (select 1 from received group by run, sender, sent having count(*) > 1)""",
    "C1: a durable confirm follows a sync of the index": """
        select count(*) from (
            select run, actor, published.t as published, confirmed.t as confirmed
            from confirmed join published using (run, actor, id)
            anti join (select * from on_disk_rows where report = {IF_IGNORED}) as cancelled
            on cancelled.run = confirmed.run and cancelled.actor = confirmed.actor
            and cancelled.message = confirmed.message
            where durable
        ) as each
        asof left join qi_sync_rows as synced
        on synced.run = each.run and synced.actor = each.actor and synced.t <= each.confirmed
        where synced.t is null or synced.t < published""",
    "C1: a body is synced before the store says so": """
        select count(*) from (
            select reported.run, reported.actor, reported.t, file, until
            from (select * from store_confirm_rows where report = {IF_WRITTEN}) as reported
            asof join (select run, actor, message, t, file, "offset" + size as until from append_rows) as appended
            on appended.run = reported.run and appended.actor = reported.actor
            and appended.message = reported.message and appended.t <= reported.t
        ) as each
        asof left join file_sync_rows as synced
        on synced.run = each.run and synced.actor = each.actor and synced.file = each.file and synced.t <= each.t
        where synced_to is null or synced_to < until""",
    "Q1: first deliveries in order": """
        select count(*) from (
            select id - lag(id) over (partition by run, actor, id >> {PRIORITY_SHIFT} order by t, id) as step
            from delivered where not again
        ) where step <= 0""",
    "Q1: what is acked was delivered before": """
        select count(*) from acked
        left join (select run, actor, id, min(t) as first from delivered group by all) as delivered using (run, actor, id)
        where delivered.first is null or delivered.first >= acked.t""",
    "Q1: acked once": "select count(*) from (select 1 from acked group by run, actor, id having count(*) > 1)",
    "S1: references move by one": """
        select count(*) from (
            select change, "references" - lag("references", 1, 0) over (partition by run, actor, message order by seq) as step
            from (
                select run, actor, message, seq, "references", 1 as change
                from store_write_rows where decision in ({BY_WRITE}, {BY_CONFIRM})
                union all select run, actor, message, seq, "references", -1
                from store_remove_rows where decision = {BY_REMOVE}
            )
        ) where step <> change""",
    "S5: a record begins where the last one ended": """
        select count(*) from (
            select "offset" - lag("offset" + size, 1, 0) over (partition by run, actor, file order by seq) as hole
            from append_rows
        ) where hole <> 0""",
}
"""Each counts what breaks it."""

_PERCENTILES = "[0.5, 0.9, 0.99, 0.999]"

FIGURES = {
    "queues": """
        select actor, count(*) as published, count(confirmed) as confirmed, count(acked) as acked
        from lives group by all order by all""",
    "delays_ns": f"""
        select actor, quantile_cont(confirmed - published, {_PERCENTILES}),
            quantile_cont(delivered - published, {_PERCENTILES}), quantile_cont(acked - delivered, {_PERCENTILES})
        from lives group by actor order by actor""",
    "deepest": """
        select actor, max(depth) from (
            select actor, sum(step) over (partition by run, actor order by t rows unbounded preceding) as depth
            from (
                select run, actor, t, count as step from publish_rows
                union all select run, actor, t, -count from ack_rows
                union all select run, actor, t, -count from drop_rows
            )
        ) group by actor order by actor""",
    "stores": """
        select actor, count(*) filter (ev_id = {STORE_WRITE}) as writes,
            count(*) filter (ev_id = {STORE_WRITE} and flag_id = {BY_IGNORE}) as cancelled_writes,
            count(*) filter (ev_id = {APPEND}) as appends, count(*) filter (ev_id = {STORE_REMOVE}) as removes
        from rows where ev_id in ({STORE_WRITE}, {STORE_REMOVE}, {APPEND}) group by actor order by actor""",
    "syncs": """
        select actor, trigger, count(*), avg(size) from file_sync_rows group by all order by all""",
}


def run(rows: str, threads: int) -> dict[str, Any]:
    """The whole pass over the Parquet files in a folder; all that it found, by the names above."""
    import duckdb

    with duckdb.connect(config={"threads": threads, "memory_limit": MEMORY}) as database:
        database.execute(f"create view rows as select * from read_parquet('{rows}/*.parquet')")
        for name, query in VIEWS.items():
            database.execute(f"create view {name} as {query}")
        for name, query in TABLES.items():
            database.execute(f"create temp table {name} as {query.format_map(_NUMBERS)}")
        return {
            name: database.execute(query.format_map(_NUMBERS)).fetchall()
            for name, query in (VIOLATIONS | FIGURES).items()
        }
