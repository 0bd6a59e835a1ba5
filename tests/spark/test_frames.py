"""The public DataFrames: rows with names, the data source, and the rules on what is left of a trace."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from tests.support.simulated_trace import consistent_trace
from tests.support.trace_union import with_a_gap, write_directory
from tests.support.trace_writer import write_trace
from warrenmq.errors import CallerError, Error
from warrenmq.replay import (
    Exercised,
    Finding,
    Machine,
    Outcome,
    Rule,
    SqlRule,
    check,
    incidents,
    read,
    register,
    replay,
    verdicts,
)
from warrenmq.replay.rules.registry import RULES
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_memory, open_trace

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import functions as sf

from warrenmq.replay.spark import check as spark_check
from warrenmq.replay.spark.arrow_rows import SCHEMA, TYPES, named_batches, names_of
from warrenmq.replay.spark.own_rules import check_own, verdicts_own

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rows(spark, broken_trace, tmp_path_factory):
    """The rows that `read` gives, without a task for each of a hundred files, or a plan that holds them all."""
    from pyarrow import parquet

    file = str(tmp_path_factory.mktemp("rows") / "rows.parquet")
    with open_trace(broken_trace) as trace:
        pieces = ((piece, trace.columns(piece)) for piece in trace.catalog.chunks)
        parquet.write_table(pa.Table.from_batches(named_batches(names_of(trace.catalog), pieces)), file)
    kept = spark.read.parquet(file).coalesce(2).cache()
    yield kept
    kept.unpersist()


def test_rows_have_names(spark, clean_trace):
    found = read(spark, clean_trace).where("ev = 'QI_SYNC' and actor like '%queue:a'").limit(1).collect()[0]
    assert found.kind == "QueueProcess"
    assert found.flag in {"MAILBOX_EMPTY", "TIMER", "JOURNAL_FLUSH", "CLOSE", "BUFFER_FULL"}
    assert found.peer is None


def test_the_data_source_gives_the_same_rows(spark, clean_trace):
    register(spark)
    loaded = spark.read.format("warrenmq-trace").load(clean_trace)
    expected = read(spark, clean_trace)
    assert loaded.schema == expected.schema
    # Sums of hashes: the same rows in any order, without a sort of either side.
    content = ["count(*)", "sum(cast(xxhash64(*) as decimal(38)))"]
    assert loaded.selectExpr(*content).collect() == expected.selectExpr(*content).collect()


ASKED = ("T1", "A2")
"""Rules whose SQL Spark runs; all 27 in one plan are minutes of planning, and SQLite runs them (tests/replay/test_sql.py)."""


class Deliveries(Machine):
    """Finds the first delivery of each queue."""

    name = "deliveries"
    events = frozenset({Ev.DELIVER})

    def summarise(self, piece, rows):
        yield (piece.run, piece.actor), (rows[0].seq, rows[0].t)

    def start(self, key):
        return []

    def absorb(self, state, summary):
        state.append(summary)

    def finish(self, key, state, context):
        seq, t = min(state)
        subject = f"queue {context.name(key)}"
        return Outcome([Finding("own", subject, "it delivers", ((*key, seq),), t, (key,))])


OWN = Rule(
    id="own",
    name="own",
    text="",
    exercised=Exercised("a delivery", {Ev.DELIVER: None}),
    machines=(Deliveries,),
)


@pytest.fixture(scope="module")
def found(rows):
    """The result of a check of the rows in another order, with a rule of one's own."""
    return spark_check.check_rows(rows.repartition(3), [OWN])


@pytest.fixture(scope="module")
def expected(broken_trace):
    return replay(broken_trace, engine="python", picture=False, rules=[OWN])


def test_rows_in_any_order_come_to_what_the_files_come_to(rows, found, expected, monkeypatch):
    monkeypatch.setattr(spark_check, "check_rows", lambda *_: found)
    assert dict(incidents(rows).collect()) == expected.result.figures["incidents"]
    assert [tuple(row) for row in verdicts(rows).collect()] == expected.rules
    told = [(row.rule, row.subject, row.text, list(map(tuple, row.rows))) for row in check(rows).collect()]
    unnamed = [re.sub(r"^exchange number \d+ ", "exchange both ", text) for _, _, text, _ in told]
    assert unnamed != [text for _, _, text, _ in told], "the names of exchanges are not in rows"
    assert [
        (*each[:2], text, each[3]) for each, text in zip(told, unnamed, strict=True)
    ] == expected.violations
    assert {row.rule: row.exercised for row in check(rows).collect()}.items() <= found.figures[
        "exercised"
    ].items()
    assert "own" in {rule for rule, *_ in told}


PARTS = {
    "rows": lambda row, chance: chance(row["run"], row["actor_id"], row["seq"]),
    "stretches": lambda row, chance: chance(row["run"], row["actor_id"], row["seq"] // 20),
    "actors": lambda row, chance: chance(row["run"], row["actor_id"]),
    "kinds": lambda row, chance: chance(row["kind"]),
    "events": lambda row, chance: chance(row["ev"]),
    "no stores": lambda row, _: row["kind"] != "MsgStore",
    "no clients": lambda row, _: not row["actor"].startswith("client"),
    "the beginning": lambda row, _: row["t"] < 2 * 10**9,
}
"""Conditions of users: which rows stay; `chance` says the same of the same things."""


def test_a_filter_takes_rows_away_and_never_makes_a_violation(spark):
    """Each trace has a filter of its own, and all are checked at once, as brokers of their own; of the last
    nobody said how many actors it had.
    """
    rng, parts, cut = random.Random(8), [], {"unsaid"}
    for number, stays in enumerate(PARTS.values()):
        chance = cache(lambda *_: rng.random() < 0.85)
        for row in rows_of(consistent_trace(number, 20)).to_pylist():
            row |= {"run": f"{number}{row['run']}", "directory": f"{number}"}
            if stays(row, chance):
                parts.append(row)
            else:
                cut.add(row["directory"])
    parts += [
        row | {"run": f"x{row['run']}", "directory": "unsaid", "run_actors": None}
        for row in rows_of(consistent_trace(1, 5)).to_pylist()
    ]
    part = spark_check.check_rows(spark.createDataFrame(pa.Table.from_pylist(parts, SCHEMA)))
    assert part.violations == []
    assert len(cut) == len(PARTS) + 1
    assert {each["verdict"] for each in part.figures["brokers"]} == {"indeterminate"}


def rows_of(runs):
    trace = open_memory(write_trace(runs))
    pieces = ((piece, trace.columns(piece)) for piece in trace.catalog.chunks)
    return pa.Table.from_batches(named_batches(names_of(trace.catalog), pieces))


def test_a_union_a_table_and_more_columns_change_nothing(spark):
    """The same rows twice, behind each other and as other pieces; as text; with a column of the user's."""
    rows = spark.createDataFrame(rows_of(consistent_trace(0, 20)))
    twice = rows.union(rows.where("seq > 7 or actor like 'queue%'"))
    text = twice.select(
        "*", sf.lit("mine").alias("note"), *(sf.col(name).cast("string").alias(f"{name}_") for name in TYPES)
    )
    as_text = text.drop(*TYPES).withColumnsRenamed({f"{name}_": name for name in TYPES})
    found = spark_check.check_rows(as_text.drop("directory", "vhost"))
    assert (found.verdict, found.violations) == ("ok", [])
    assert found.figures["events"] == rows.count()


def test_rows_of_a_trace_that_grew_count_once(spark):
    """A table to which a trace was appended while it was written, when nothing said how many rows there would be, and at its end."""
    rows = spark.createDataFrame(rows_of(consistent_trace(0, 20)))
    no_number = sf.lit(None).cast("long")
    before = rows.where("seq < 9").withColumn("actor_rows", no_number).withColumn("run_actors", no_number)
    found = spark_check.check_rows(before.unionByName(rows))
    assert (found.verdict, found.violations, found.catalog.counts_once) == ("ok", [], True)
    assert found.figures["events"] == rows.count()


@pytest.mark.parametrize("kept", ["true", "pmod(hash(run, actor, seq), 9) > 0", "t % 2 = 0"])
def test_other_rows_of_the_same_numbers_leave_it_open(spark, kept):
    """As two simulated machines have of one seed, which ran other programs: their runs have the same names."""
    one, other = (spark.createDataFrame(rows_of(consistent_trace(seed, 20))) for seed in (0, 1))
    named = other.withColumns({"run": sf.lit(one.first().run), "directory": sf.lit(one.first().directory)})
    found = spark_check.check_rows(one.unionByName(named.where(kept)))
    assert (found.verdict, found.violations) == ("indeterminate", [])
    assert "so the rows of this run may be those of two" in found.indeterminate[0].text


def test_rows_that_lack_what_every_row_has_are_refused_in_a_sentence(spark):
    rows = spark.createDataFrame(rows_of(consistent_trace(0, 5)))
    with pytest.raises(Error, match="these are no rows of a trace: one has no seq"):
        check(rows.withColumn("seq", sf.expr("nullif(seq, 3)")))
    with pytest.raises(CallerError, match="have no column seq"):
        verdicts(rows.drop("seq"))


def test_a_path_without_a_trace_is_the_callers_mistake(spark, tmp_path):
    with pytest.raises(CallerError, match="no trace"):
        read(spark, str(tmp_path))


def test_a_query_of_ones_own_is_asked_beside_the_rules(rows, found, monkeypatch):
    monkeypatch.setattr(spark_check, "check_rows", lambda *_: found)
    query = "SELECT a.run, a.actor, max(a.seq) FROM ack_rows AS a JOIN steps AS s ON s.run = a.run AND s.actor = a.actor GROUP BY 1, 2"
    both = check(rows, rules=[SqlRule("mine", "it's {acked}", query)])
    theirs = both.where("rule = 'mine'").collect()
    assert both.count() == len(found.violations) + len(theirs)
    acked = rows.where("ev = 'ACK'").groupBy("run", "actor", "actor_id").agg(sf.max("seq").alias("seq"))
    lacking = {
        found.catalog.runs[run].name: actor
        for (run, actor), each in found.catalog.coverage.items()
        if each.gaps
    }
    assert {(row.text, row.rows[0].run, row.rows[0].actor, row.rows[0].seq) for row in theirs} == {
        ("it's {acked}", row.run, row.actor, row.seq)
        for row in acked.collect()
        if lacking.get(row.run) != row.actor_id
    }


def test_queries_find_in_rows_what_they_find_in_files(spark, tmp_path):
    """Each row once, though the query or the table has it twice; behind a missing row of its actor nothing stands."""
    acked = "SELECT a.run, a.actor, a.seq FROM ack_rows AS a"
    twice = "SELECT run, actor, seq FROM stored GROUP BY run, actor, seq HAVING count(*) > 1"
    asked = [
        SqlRule("mine", "", f"{acked} JOIN actors ON true -- many", f"{acked} JOIN actors ON true;"),
        SqlRule("twice", "", f"{twice} UNION ALL SELECT run, actor, NULL FROM ack_rows"),
    ]
    trace = write_directory(tmp_path / "trace", with_a_gap(1))
    mine, never = replay(trace, engine="python", picture=False, rules=asked).rules[-2:]
    assert mine.violated * mine.indeterminate > 0
    assert (never.violated, never.indeterminate) == (0, 1)
    rows = spark.createDataFrame(rows_of(with_a_gap(1)))
    result = replay(trace, engine="python", picture=False, rules=[each.as_rule() for each in asked]).result
    result.catalog.counts_once = True  # as a check finds out
    counted = verdicts_own(rows.union(rows.where("seq > 7")), asked, result)
    assert [tuple(row) for row in counted.collect()] == [mine, never]
    with pytest.raises(Error, match="table or view `nope` cannot be found") as raised:
        check_own(rows, [SqlRule("mine", "", "SELECT a FROM nope")], result)
    assert "\n" not in str(raised.value)


def test_spark_understands_the_sql_of_every_rule(rows, found):
    queries = [SqlRule(rule.id, "", rule.sql) for rule in RULES.values() if rule.sql]
    assert check_own(rows, queries, found).columns == ["rule", "subject", "text", "rows", "exercised"]


def test_the_sql_of_rules_finds_in_spark_what_the_machines_find(rows, found, expected):
    queries = [SqlRule(name, "", RULES[name].sql, "SELECT 1 WHERE false") for name in ASKED]
    theirs = {(row.rule, row.rows[0].run[:3]) for row in check_own(rows, queries, found).collect()}
    assert theirs == {(each.rule, each.rows[0].run[:3]) for each in expected.violations if each.rule in ASKED}
