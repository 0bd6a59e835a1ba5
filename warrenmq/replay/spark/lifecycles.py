"""The life of each message, from the rows of a trace: one row for each message in each incarnation of a queue, in SQL.

    rows ─► a row a message and event ─► by (run, queue process, sequence id): times, counts ─► what is certain

Which events move messages, and the delays, are those of rules/passes/message_life.py:

| | from | to | where |
| --- | --- | --- | --- |
| `confirm_us` | PUBLISH | CONFIRM | the PUBLISH is in this incarnation |
| `delay_us` | PUBLISH | the first DELIVER | the same |
| `ack_us` | the DELIVER before it | ACK | |

The rows of an actor have no gap unless some are missing (arrow_rows.py's `actor_rows` says how many there
were), so it is known between which rows some are missing.  `whole` is false for a message that these may have
been about; the columns that they may have changed are null.

Names are those of rabbit_logs' lifecycles wherever they mean the same.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from warrenmq.replay.rules.passes.queue_ledger import Ledger
from warrenmq.replay.spark.frames import narrowed, refuse_stream, stretches
from warrenmq.replay.spark.named import PUBLIC
from warrenmq.trace.catalog import FOREVER
from warrenmq.trace.events import IN_STORE, NO_ACK, PERSISTENT, PRIORITY_SHIFT, REDELIVERED, WANTS_CONFIRM, Ev
from warrenmq.trace.sentences import flag_names

STEP = 4_096
"""Ids of a row that are taken apart at once."""
BLOCK_BITS = 14
"""Rows of an actor that are looked at together for missing ones: 16,384."""
_QUEUE = "queue:"
_OF_ROWS = ("run", "actor_id", "seq")
_WHOSE = attrgetter("run", "actor_id")
_MESSAGE = ("run", "actor", "actor_id", "seq_id")


def lifecycles(rows: DataFrame) -> DataFrame:
    """A row for each message in each incarnation of a queue; the columns are in docs/replay.md."""
    refuse_stream(rows, "take lifecycles of what read gives, which a live trace may be as well")
    lives, begin = _by_message(rows), _span()[0]
    gaps = _gaps(rows)
    if gaps is None:
        return _named(lives.withColumn("whole", begin != 0))
    lives = lives.join(sf.broadcast(gaps), ["run", "actor_id"], "left")
    return _named(lives.withColumn("whole", ~_may_lack(*_span())))


def _by_message(rows: DataFrame) -> DataFrame:
    """One row a message, of all rows that name it; times are t."""
    named = [(event, name) for event in Ledger.events for name in ("first_seq_id", "count")]
    needed = {
        "actor",
        *_OF_ROWS,
        "t",
        "msg",
        "epoch",
        "flag_id",
        *PUBLIC.places([*named, (Ev.EXPIRY, "expires_at")]),
    }
    first, count = PUBLIC.of("first_seq_id", *Ledger.events), PUBLIC.of("count", *Ledger.events)
    last = sf.col("first_seq_id") + sf.col("count") - 1
    several = (
        narrowed(rows, needed, Ledger.events)
        .where(PUBLIC.is_of(*Ledger.events))
        .select(
            "run", "actor", "actor_id", "ev_id", "flag_id", "t", "seq", "msg", "epoch",
            first.alias("first_seq_id"), count.alias("count"), PUBLIC.of("expires_at", Ev.EXPIRY).alias("expires_at"),
        )
        .where("count > 0")
        .select("*", last.alias("last"), sf.explode(sf.sequence("first_seq_id", last, sf.lit(STEP).cast("long"))).alias("begin"))
    )  # fmt: skip
    ids = sf.sequence("begin", sf.least(sf.col("begin") + STEP - 1, sf.col("last")))
    each = several.withColumn("seq_id", sf.explode(ids))

    def of(event: Ev, column: Column | str, also: Column | None = None) -> Column:
        chosen = sf.col("ev_id") == int(event)
        value = sf.col(column) if isinstance(column, str) else column
        return sf.when(chosen if also is None else chosen & also, value)

    flag = sf.col("flag_id")
    return each.groupBy(*_MESSAGE).agg(
        sf.max("epoch").alias("epoch"),
        sf.min("seq").alias("first_seq"),
        sf.max("seq").alias("last_seq"),
        sf.min(of(Ev.PUBLISH, "t")).alias("published"),
        sf.max(of(Ev.PUBLISH, "flag_id")).alias("publish_flag"),
        sf.max(of(Ev.PUBLISH, sf.col("msg") + sf.col("seq_id") - sf.col("first_seq_id"))).alias("msg"),
        sf.max("expires_at").alias("expires"),
        sf.min(of(Ev.RECOVERED, "t")).alias("found"),
        sf.min(of(Ev.CONFIRM, "t")).alias("confirmed"),
        sf.max(of(Ev.CONFIRM, "flag_id")).alias("confirm_flag"),
        sf.min(of(Ev.DELIVER, "t")).alias("delivered"),
        sf.min(of(Ev.DELIVER, "t", flag.bitwiseAND(REDELIVERED) == 0)).alias("delivered_new"),
        sf.max(of(Ev.DELIVER, "t")).alias("last_delivered"),
        sf.max(of(Ev.DELIVER, "t", flag.bitwiseAND(NO_ACK) != 0)).alias("taken"),
        sf.count(of(Ev.DELIVER, "t")).alias("deliveries"),
        sf.max(of(Ev.ACK, "t")).alias("acked"),
        sf.count(of(Ev.REQUEUE, "t")).alias("requeues"),
        sf.max(of(Ev.REQUEUE, "t")).alias("requeued"),
        sf.max(of(Ev.DROP, "t")).alias("dropped"),
        sf.max(of(Ev.DROP, "flag_id")).alias("drop_flag"),
    )


def _gaps(rows: DataFrame) -> DataFrame | None:
    """The gaps of each actor of whom rows are missing: pairs of numbers (first, last) that enclose missing
    rows.  None: none is missing.
    """
    there = stretches(rows)
    if there is None:
        return _gaps_in(rows)
    # the trace's own frames say it, no row has to be read for it
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for (run, actor), group in groupby(sorted(there, key=_WHOSE), key=_WHOSE):
        its = list(group)
        ends = [0, *(each.last for each in its)]
        gaps = [(before + 1, each.first - 1) for before, each in zip(ends, its, strict=False)]
        total = its[-1].actor_rows
        gaps.append((ends[-1] + 1, FOREVER if total is None else total))
        if gaps := [each for each in gaps if each[0] <= each[1]]:
            found[run, actor] = gaps
    if not found:
        return None
    its_runs, its_actors = zip(*found, strict=True)
    pairs = [[{"begin": begin, "end": end} for begin, end in gaps] for gaps in found.values()]
    of_pairs = pa.list_(pa.struct([("begin", pa.int64()), ("end", pa.int64())]))
    table = {
        "run": pa.array(its_runs),
        "actor_id": pa.array(its_actors, pa.int64()),
        "gaps": pa.array(pairs, of_pairs),
    }
    return rows.sparkSession.createDataFrame(pa.table(table))


def _gaps_in(rows: DataFrame) -> DataFrame:
    """The gaps of rows of which nothing else is known, by the numbers that they have."""
    numbered = narrowed(rows, {*_OF_ROWS, "actor_rows"})
    blocks = numbered.groupBy("run", "actor_id", sf.shiftright("seq", BLOCK_BITS).alias("block")).agg(
        sf.min("seq").alias("first"),
        sf.max("seq").alias("last"),
        sf.count("*").alias("n"),
        sf.max("actor_rows").alias("actor_rows"),
    )
    actor = Window.partitionBy("run", "actor_id").orderBy("first")
    between = blocks.select(
        "*",
        sf.lag("last", 1, 0).over(actor).alias("before"),
        sf.lead("last").over(actor).isNull().alias("is_last"),
    )
    first, last, total, before = map(sf.col, ("first", "last", "actor_rows", "before"))

    def gap(when: Column, begin: Column, end: Column) -> Column:
        return sf.when(when, sf.struct(begin.cast("long").alias("begin"), end.cast("long").alias("end")))

    found = sf.array(
        gap(first > before + 1, before + 1, first - 1),
        gap(sf.col("n") != last - first + 1, first, last),
        gap(
            sf.col("is_last") & (total.isNull() | (total > last)),
            last + 1,
            sf.coalesce(total, sf.lit(FOREVER)),
        ),
    )
    return (
        between.select("run", "actor_id", sf.explode(found).alias("gap"))
        .where("gap is not null")
        .groupBy("run", "actor_id")
        .agg(sf.collect_list("gap").alias("gaps"))
    )


def _span() -> tuple[Column, Column]:
    """The first and last row of the actor between which the message may have been affected."""
    begun = sf.col("published").isNotNull() | sf.col("found").isNotNull()
    waits = sf.col("publish_flag").bitwiseAND(WANTS_CONFIRM) != 0
    over = _is_gone() & (sf.col("confirmed").isNotNull() | ~sf.coalesce(waits, sf.lit(False)))
    return sf.when(begun, sf.col("first_seq")).otherwise(0), sf.when(over, sf.col("last_seq")).otherwise(
        FOREVER
    )


def _may_lack(begin: Column, end: Column) -> Column:
    lacks = sf.exists("gaps", lambda gap: (gap["begin"] <= end) & (gap["end"] >= begin))
    return sf.coalesce(lacks, sf.lit(False)) | (begin == 0)


def _is_gone() -> Column:
    return sf.coalesce("acked", "dropped", "taken").isNotNull()


def _named(lives: DataFrame) -> DataFrame:
    """Give the columns their public names."""
    published, delivered, last_delivered, acked = map(
        sf.col, ("published", "delivered", "last_delivered", "acked")
    )
    whole = sf.col("whole")
    first = sf.when(whole | (published.isNotNull() & (delivered == sf.col("delivered_new"))), delivered)
    was_published, was_found = published.isNotNull(), sf.col("found").isNotNull()
    state = (
        sf.when(sf.coalesce("acked", "taken").isNotNull(), "acked")
        .when(sf.col("dropped").isNotNull(), "dropped")
        .when(~whole, None)
        .when(last_delivered > sf.coalesce("requeued", sf.lit(0)), "unacked")
        .otherwise("ready")
    )

    def has(bit: int) -> Column:
        return sf.col("publish_flag").bitwiseAND(bit) != 0

    return lives.select(
        sf.when(sf.col("actor").startswith(_QUEUE), sf.substring("actor", len(_QUEUE) + 1, 1 << 30)).otherwise(sf.col("actor")).alias("queue"), "run", "actor_id", "seq_id",
        sf.shiftright("seq_id", PRIORITY_SHIFT).cast("int").alias("priority"), "msg",
        _time(published).alias("published_t"), _time(sf.col("confirmed")).alias("confirmed_t"),
        _time(first).alias("delivered_t"), _time(sf.when(whole, last_delivered)).alias("last_delivered_t"),
        _time(acked).alias("acked_t"), _time(sf.col("dropped")).alias("dropped_t"),
        sf.when(whole, sf.col("deliveries").cast("int")).alias("deliveries"),
        sf.when(whole, sf.col("requeues").cast("int")).alias("requeues"),
        _micros(published, sf.col("confirmed")).alias("confirm_us"), _micros(published, first).alias("delay_us"),
        sf.when(whole, _micros(last_delivered, acked)).alias("ack_us"),
        _flag(Ev.CONFIRM, "confirm_flag").alias("confirmed"), _flag(Ev.DROP, "drop_flag").alias("dropped"),
        has(PERSISTENT).alias("persistent"), has(IN_STORE).alias("in_store"), has(WANTS_CONFIRM).alias("wants_confirm"),
        sf.timestamp_micros("expires").alias("expires"),
        sf.when(was_found, True).when(was_published, False).alias("recovered"),
        state.alias("state"), "whole",
        sf.when(published.isNotNull() & first.isNotNull(), "seq_id").otherwise("none").alias("matched"),
    )  # fmt: skip


def _time(t: Column) -> Column:
    """The time by the wall clock."""
    return sf.timestamp_micros(sf.call_function("div", t + sf.col("epoch"), sf.lit(1_000)))


def _micros(begin: Column, end: Column) -> Column:
    return (end - begin) / 1_000


def _flag(event: Ev, column: str) -> Column:
    """The flag in words."""
    names = {flag: name for (its, flag), name in flag_names({}).items() if its == event}
    chosen = sf.when(sf.lit(False), "")
    for flag, name in names.items():
        chosen = chosen.when(sf.col(column) == flag, name)
    return chosen
