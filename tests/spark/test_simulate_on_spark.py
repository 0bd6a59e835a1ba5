"""Simulated runs on Spark are the runs of one process, and can be kept as Parquet."""

from __future__ import annotations

import pytest

from warrenmq.cli import main
from warrenmq.simulate.fleet import Plan, fleet, here

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark


def test_a_fleet_on_spark_gives_what_one_process_gives(spark, tmp_path):
    from warrenmq.simulate.on_spark import OnSpark
    from warrenmq.simulate.table import Parquet

    plan = Plan(range(100, 124))
    (alone,), (spread,) = list(fleet(plan, here)), list(fleet(plan, OnSpark(spark)))
    assert spread.outcomes == alone.outcomes
    with Parquet(str(tmp_path / "runs.parquet")) as table:
        table.add(spread.outcomes)
    kept = spark.read.parquet(str(tmp_path / "runs.parquet"))
    assert [(row.seed, row.digest) for row in kept.orderBy("seed").collect()] == [
        (each.seed, each.digest) for each in alone.outcomes
    ]


def test_workers_with_another_python_are_one_sentence(spark, monkeypatch, capfd):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    assert main(["simulate", "--runs", "2", "--master", "local"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("warrenmq simulate: ")
    assert "PYSPARK_PYTHON" in line
