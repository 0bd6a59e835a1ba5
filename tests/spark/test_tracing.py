"""Logs of RabbitMQ's tracing plugin in Spark: the same lives as in one process."""

from pathlib import Path

import pytest

from tests.rabbit_logs.tracing_logs import json_log, published, received, text_log
from tests.support.source_tree import ROOT
from warrenmq.rabbit_logs.lifecycles import lifecycles
from warrenmq.rabbit_logs.log_files import open_logs
from warrenmq.replay import read_tracing

GOLDEN = Path(ROOT, "tests") / "golden" / "rabbitmq-tracing-3.10"
T = 1_700_000_000_000_000
COLUMNS = ("vhost", "queue", "exchange", "message_id", "size", "deliveries", "matched", "published_connection",
           "delivered_channel", "dead_lettered", "from_stream")  # fmt: skip


def plain(*paths):
    logs = open_logs(*paths)
    lives = lifecycles(logs.records(), several=len(logs.files) > 1)
    return sorted(
        (
            *(str(getattr(life, name)) for name in COLUMNS),
            life.routing_keys,
            life.delay,
            life.published_t,
            life.delivered_t,
        )
        for life in lives
    )


def in_spark(spark, *paths):
    rows = read_tracing(spark, *paths).selectExpr(
        *COLUMNS,
        "routing_keys",
        "delay_us",
        "unix_micros(published_t) published",
        "unix_micros(delivered_t) delivered",
    )
    found = rows.collect()
    return sorted(
        (
            *(str(row[name]) for name in COLUMNS),
            tuple(row["routing_keys"]),
            row["delay_us"],
            row["published"],
            row["delivered"],
        )
        for row in found
    )


@pytest.mark.parametrize("name", ["all-json", "all-text", "quorum-stream-json"])
def test_real_logs_have_the_same_lives(spark, name):
    path = GOLDEN / f"{name}.log"
    assert in_spark(spark, path) == plain(path)


def test_a_log_in_many_parts_and_several_logs_have_the_same_lives(spark, tmp_path, monkeypatch):
    from warrenmq.rabbit_logs import spark as spark_tracing

    monkeypatch.setattr(spark_tracing, "PART", 4_000)  # a dozen parts and more
    records = []
    for n in range(60):
        records.append(published(T + n * 3_000, "a", "b", body=b"%d" % (n % 7)))
        records += [received(T + n * 3_000 + 1_000, queue, body=b"%d" % (n % 7)) for queue in "ab"]
        records.append(published(T + n * 3_000 + 2_000, body=b"unrouted"))
    (tmp_path / "whole.json").write_bytes(json_log(records))
    assert in_spark(spark, tmp_path / "whole.json") == plain(tmp_path / "whole.json")
    (tmp_path / "in.log").write_bytes(json_log([record for record in records if record.published]))
    (tmp_path / "out.log").write_bytes(text_log([record for record in records if not record.published]))
    both = plain(tmp_path)
    assert in_spark(spark, tmp_path) == both
    assert in_spark(spark, f"{tmp_path}/*.log") == both
    assert in_spark(spark, [tmp_path / "in.log", tmp_path / "out.log"]) == both


def test_a_log_without_messages_has_no_rows(spark, tmp_path):
    (tmp_path / "quiet.log").write_bytes(b"")
    assert in_spark(spark, tmp_path) == []
