"""The pass of DuckDB over a trace in Parquet: what somebody who knows SQL would ask of it, as fast as SQL answers.

A yardstick of benchmarks/replay.py, not an engine of warrenmq: of the rules it has what is a join or a window over rows, and
beside them the lifecycle of messages.  What needs an account that is carried along from row to row (the smallest ready
sequence id of Q1, the flying counters of S2, the files of S3 to S8, what a crash leaves of C2) is not in it, and it takes
for granted what the engines find out: that no rows are missing and that no queue crashed.

A queue is its name within a run, and a message of it its sequence id; rows that speak of a block of messages are unrolled.
"""

from __future__ import annotations

from typing import Any

from warrenmq.trace.events import CONFIRM_DURABLE, IGNORED, PRIORITY_SHIFT, REDELIVERED, WRITTEN, Decision, Ev

MEMORY = "3GB"
"""What the replay is allowed, too; beyond it DuckDB goes to its temporary files."""

_NUMBERS = {
    **{event.name: int(event) for event in Ev}, **{f"BY_{decision.name}": int(decision) for decision in Decision},
    "IF_DURABLE": CONFIRM_DURABLE, "IF_WRITTEN": WRITTEN, "IF_IGNORED": IGNORED,
    "IF_REDELIVERED": REDELIVERED, "PRIORITY_SHIFT": PRIORITY_SHIFT,
}  # fmt: skip

_SENDS_TOLD = "unnest(range(pseq, pseq + if(ev_id = {PUBLISH} and c > 1, c, 1)))"
"""A PUBLISH row can be the receive of several SENDs in a row."""


def _unrolled(event: str, columns: str = "") -> str:
    return (
        f"select run, actor, unnest(range(a, a + b)) as id, t{columns} from events where ev_id = {{{event}}}"
    )


TABLES = {
    "events": "select run, actor, actor_id, peer_id, ev_id, flag_id, t, seq, msg, pseq, a, b, c from rows",
    "received": f"""
        select run, peer_id as sender, {_SENDS_TOLD} as sent, t
        from events where ev_id in ({{RECV}}, {{PUBLISH}}, {{ACK}}) and pseq > 0""",
    "published": _unrolled("PUBLISH"),
    "confirmed": _unrolled("CONFIRM", ", msg + id - a as msg, flag_id = {IF_DURABLE} as durable"),
    "delivered": _unrolled("DELIVER", ", flag_id & {IF_REDELIVERED} > 0 as again"),
    "acked": _unrolled("ACK"),
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
            from events window each_actor as (partition by run, actor_id order by seq)
        ) where step <> 1 or later <= 0""",
    "T2, T4: a receive has a send, before it": """
        select count(*) from received
        left join (select run, actor_id, seq, t from events where ev_id = {SEND}) as send
        on send.run = received.run and send.actor_id = received.sender and send.seq = received.sent
        where send.t is null or send.t >= received.t""",
    "T2: no send is received twice": """
        select count(*) from (select 1 from received group by run, sender, sent having count(*) > 1)""",
    "C1: a durable confirm follows a sync of the index": """
        select count(*) from (
            select run, actor, published.t as published, confirmed.t as confirmed
            from confirmed join published using (run, actor, id)
            anti join (select * from events where ev_id = {ON_DISK} and flag_id = {IF_IGNORED}) as cancelled
            on cancelled.run = confirmed.run and cancelled.actor = confirmed.actor and cancelled.msg = confirmed.msg
            where durable
        ) as each
        asof left join (select run, actor, t from events where ev_id = {QI_SYNC}) as synced
        on synced.run = each.run and synced.actor = each.actor and synced.t <= each.confirmed
        where synced.t is null or synced.t < published""",
    "C1: a body is synced before the store says so": """
        select count(*) from (
            select told.run, told.actor, told.t, file, until
            from (select run, actor, msg, t from events where ev_id = {STORE_CONFIRM} and flag_id = {IF_WRITTEN}) as told
            asof join (
                select run, actor, msg, t, a as file, b + c as until from events where ev_id = {APPEND}
            ) as appended
            on appended.run = told.run and appended.actor = told.actor and appended.msg = told.msg and appended.t <= told.t
        ) as each
        asof left join (select run, actor, a, b as safe, t from events where ev_id = {FILE_SYNC}) as synced
        on synced.run = each.run and synced.actor = each.actor and synced.a = each.file and synced.t <= each.t
        where safe is null or safe < until""",
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
            select b - lag(b, 1, 0) over (partition by run, actor, msg order by seq) as step, ev_id
            from events where ev_id in ({STORE_WRITE}, {STORE_REMOVE}) and flag_id in ({BY_WRITE}, {BY_CONFIRM}, {BY_REMOVE})
        ) where step <> if(ev_id = {STORE_WRITE}, 1, -1)""",
    "S5: a record begins where the last one ended": """
        select count(*) from (
            select b - lag(b + c, 1, 0) over (partition by run, actor, a order by seq) as hole
            from events where ev_id = {APPEND}
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
                select run, actor, t, b as step from events where ev_id = {PUBLISH}
                union all select run, actor, t, -b from events where ev_id in ({ACK}, {DROP})
            )
        ) group by actor order by actor""",
    "stores": """
        select actor, count(*) filter (ev_id = {STORE_WRITE}) as writes,
            count(*) filter (ev_id = {STORE_WRITE} and flag_id = {BY_IGNORE}) as cancelled_writes,
            count(*) filter (ev_id = {APPEND}) as appends, count(*) filter (ev_id = {STORE_REMOVE}) as removes
        from events where ev_id in ({STORE_WRITE}, {STORE_REMOVE}, {APPEND}) group by actor order by actor""",
    "syncs": """
        select actor, flag_id as trigger, count(*), avg(c) from events
        where ev_id = {FILE_SYNC} group by all order by all""",
}


def run(rows: str, threads: int) -> dict[str, Any]:
    """The whole pass over the Parquet files in a folder; all that it found, by the names above."""
    import duckdb

    with duckdb.connect(config={"threads": threads, "memory_limit": MEMORY}) as database:
        database.execute(f"create view rows as select * from read_parquet('{rows}/*.parquet')")
        for name, query in TABLES.items():
            database.execute(f"create temp table {name} as {query.format_map(_NUMBERS)}")
        return {
            name: database.execute(query.format_map(_NUMBERS)).fetchall()
            for name, query in (VIOLATIONS | FIGURES).items()
        }
