"""The public DataFrames: rows with names, the data source, and the rules on what is left of a trace."""

from __future__ import annotations

import pytest

from warrenmq.errors import CallerError
from warrenmq.replay import SqlRule, check, incidents, read, register
from warrenmq.replay.drive import engine
from warrenmq.replay.rules.registry import RULES
from warrenmq.replay.spark.own_rules import check_own

pytest.importorskip("pyspark")

from pyspark.sql import functions as sf

pytestmark = pytest.mark.spark

ANY = SqlRule("any", "a row is there", "SELECT run, actor, seq FROM stored")


@pytest.fixture(scope="module")
def rows(spark, broken_trace):
    return read(spark, broken_trace)


def test_rows_have_names(spark, clean_trace):
    found = read(spark, clean_trace).where("ev = 'QI_SYNC' and actor like '%queue/a'").limit(1).collect()[0]
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


def test_what_went_wrong_is_counted_as_in_the_files(rows, broken_trace):
    assert dict(incidents(rows).collect()) == engine.replay(broken_trace).figures["incidents"]


def test_rows_in_any_order_give_the_violations_of_the_files(rows, broken_trace):
    found = check(rows.repartition(3)).collect()
    expected = engine.replay(broken_trace).as_dict()["violations"]
    assert [(row.rule, row.subject, row.text) for row in found] == [
        (each["rule"], each["subject"], each["text"]) for each in expected
    ]
    assert [row.asDict(recursive=True)["rows"] for row in found] == [each["rows"] for each in expected]


def test_a_filter_takes_rows_away_and_never_makes_a_violation(spark, clean_trace):
    from warrenmq.replay.spark.check import check_rows

    part = check_rows(read(spark, clean_trace).where("ev <> 'SEND' and seq < 60"))
    assert part.violations == []
    assert part.verdict == "indeterminate"


def test_a_path_without_a_trace_is_the_callers_mistake(spark, tmp_path):
    with pytest.raises(CallerError, match="no trace"):
        read(spark, str(tmp_path))


def test_a_query_of_ones_own_is_asked_beside_the_rules(rows):
    query = "SELECT a.run, a.actor, max(a.seq) FROM ack_rows AS a JOIN steps AS s ON s.run = a.run AND s.actor = a.actor GROUP BY 1, 2"
    found = check(rows, rules=[SqlRule("mine", "it's {acked}", query)]).where("rule = 'mine'")
    acked = rows.where("ev = 'ACK'").groupBy("run", "actor", "actor_id").agg(sf.max("seq").alias("seq"))
    assert {(row.text, row.rows[0].run, row.rows[0].actor, row.rows[0].seq) for row in found.collect()} == {
        ("it's {acked}", row.run, row.actor, row.seq) for row in acked.collect()
    }


def test_spark_understands_the_sql_of_every_rule(rows):
    for rule in RULES.values():
        if rule.sql:
            assert (
                check_own(rows, [SqlRule(f"sql {rule.id}", "", rule.sql)]).columns
                == check_own(rows, [ANY]).columns
            )
