"""Every public DataFrame is made from scans of the columns that it needs, as explain() shows."""

from __future__ import annotations

import re

import pytest

from warrenmq.replay import SqlRule, events, lifecycles, read
from warrenmq.replay.drive import engine
from warrenmq.trace.schema import EVENTS

pytest.importorskip("pyspark")

from warrenmq.replay.spark import check as spark_check
from warrenmq.replay.spark.arrow_rows import COLUMNS
from warrenmq.replay.spark.only import Only
from warrenmq.replay.spark.own_rules import check_own, verdicts_own

pytestmark = pytest.mark.spark

_SCAN = re.compile(r"BatchScan warrenmq-trace\[(.*?)\]")
_COLUMN = re.compile(r"\w+#\d+")
OWN = [SqlRule("mine", "acked", "SELECT a.run, a.actor, a.seq FROM ack_rows AS a")]
"""Of a query's views Spark alone knows which columns it needs: it scans those that any event may use."""


@pytest.fixture
def scans(capsys):
    def of(frame):
        """The columns of each scan in a plan, and those of them that nothing above it uses."""
        capsys.readouterr()
        frame.explain()
        lines = capsys.readouterr().out.splitlines()
        found = []
        for line in lines:
            if (scan := _SCAN.search(line)) is not None:
                used = {each for other in lines if other is not line for each in _COLUMN.findall(other)}
                columns = _COLUMN.findall(scan.group(1))
                found.append((columns, [each for each in columns if each not in used]))
        return found

    return of


def test_views_of_events_and_lifecycles_scan_what_they_use(spark, small_trace, scans):
    rows = read(spark, small_trace)
    views = {event.name: events(rows, event.name) for event in list(EVENTS.values())[::4]}
    for name, frame in (views | {"lifecycles": lifecycles(rows)}).items():
        found = scans(frame)
        assert len(found) == 1, name
        assert [unused for _, unused in found if unused] == [], name


def test_a_check_and_rules_of_ones_own_leave_out_what_they_never_use(spark, small_trace, scans, monkeypatch):
    rows = read(spark, small_trace, only={"seq": (1, 100)})

    class Kept(Exception):
        pass

    def kept(frame, until):
        raise Kept(scans(frame))

    monkeypatch.setattr(spark_check, "_kept", kept)
    with pytest.raises(Kept) as raised:
        spark_check.check_rows(rows)
    ((_, unused),) = raised.value.args[0]
    assert unused == []
    # All rows of a trace are not even read as rows.
    whole, expected = spark_check.check_rows(read(spark, small_trace)), engine.replay(small_trace)
    assert (whole.verdict, whole.figures) == (expected.verdict, expected.figures)
    for frame in (check_own(rows, OWN, whole), verdicts_own(rows, OWN, whole)):
        found = scans(frame)
        assert found
        assert all(len(columns) < len(COLUMNS) for columns, _ in found)


def test_rows_that_are_kept_or_filtered_are_not_read_anew(spark, small_trace, scans):
    rows = read(spark, small_trace, only={"ev": ["PUBLISH", "ACK"]})
    assert events(rows, "ACK").count() > 0
    assert Only.of({"ev": ["PUBLISH", "ACK"]}).of_events(["ACK", "DELIVER"]) == Only.of({"ev": "ACK"})
    ((columns, _),) = scans(events(rows.where("seq > 0"), "ACK"))
    assert len(columns) == len(COLUMNS)
    rows.cache()
    ((columns, _),) = scans(events(rows, "ACK"))
    assert len(columns) == len(COLUMNS)
    rows.unpersist()
