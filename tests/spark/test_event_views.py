"""The rows of one event as a DataFrame with the event's own columns."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from warrenmq.errors import CallerError
from warrenmq.replay import events, read
from warrenmq.trace import events as ev
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.schema import EVENTS
from warrenmq.trace.sink import DirectorySink
from warrenmq.trace.writers import writer

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

pytestmark = pytest.mark.spark

SPAN = {"first_seq_id": 7, "count": 2}
NOON = 1_600_000_000_000_000
STORED = {"message": 1 << 40, "file": 0, "flying": 0, "references": 1, "was_flying": 1}

WRITTEN = [
    (ev.Publish, {"flags": 5, "message": 1 << 40, "publisher": 2, "send": 0, **SPAN},
     {"flags": ["PERSISTENT", "IN_STORE"], "message": 1 << 40, "publisher": "client", "publisher_id": 2, "send": None, **SPAN, "checksum": None, "sends": 0, "body_size": None}),
    (ev.FileSync, {"trigger": ev.Trigger.TIMER, "file": 3, "synced_to": 4096, "size": 512},
     {"trigger": "TIMER", "file": 3, "synced_to": 4096, "size": 512}),
    (ev.Drop, {"reason": ev.DropReason.EXPIRED, "dead_lettered": 1, "expired_at": NOON, **SPAN},
     {"reason": "EXPIRED", **SPAN, "dead_lettered": True, "multiple": False, "expired_at": "2020",
      "consumer": None, "delivery_tag": None}),
    (ev.QueueLimits, {"overflow": 9, "max_length": -1, "max_length_bytes": 100, "single_active": 1},
     {"overflow": "9", "max_length": None, "max_length_bytes": 100, "single_active": True, "in_force": False}),
    (ev.ConsumerAdded, {"flags": 0, "consumer": 4, "channel": 2, "prefetch": 0, "priority": -1},
     {"flags": [], "consumer": 4, "channel_id": 2, "prefetch": 0, "priority": -1}),
    (ev.Send, {"kind": 1, "receiver": 0},
     {"kind": "Publish", "message": None, "receiver": None, "receiver_id": None, "size": 0, "first_seq_id": 0, "count": 0, "queues": 0}),
    (ev.StoreWrite, {"decision": ev.Decision.IGNORE, "client": 2, **STORED},
     {"decision": "IGNORE", "client": "client", "client_id": 2, **STORED, "was_flying": True}),
]  # fmt: skip
"""An event, what is written, what the view has."""


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    recorder = Recorder(DirectorySink(folder), run="000001", boot=1)
    queue = recorder.actor("queue:jobs", "QueueProcess")
    recorder.actor("client", "client")
    recorder.kind(type("Publish", (), {}))
    for event, values, _ in WRITTEN:
        writer(event)(queue, **values)
    recorder.close()
    return read(spark, folder)


def test_columns_have_the_names_and_types_of_the_event(rows):
    views = [
        events(rows, event.name).select(
            sf.lit(place).alias("place"),
            sf.to_json(sf.struct("*"), {"ignoreNullFields": "false", "timestampFormat": "yyyy"}).alias("row"),
        )
        for place, (event, _, _) in enumerate(WRITTEN)
    ]
    found = {place: json.loads(row) for place, row in reduce(DataFrame.unionAll, views).collect()}
    for place, (_, _, expected) in enumerate(WRITTEN):
        common = {"actor": "queue:jobs", "actor_id": 1, "seq": place + 1, "run": "000001"}
        assert {
            name: value for name, value in found[place].items() if name not in {"t", "time"}
        } == common | expected


def test_rows_that_a_file_made_strings_have_the_same_views(rows):
    text = rows.select(*(sf.col(name).cast("string") for name in rows.columns))
    for event, _, _ in WRITTEN:
        assert events(text, event.name).schema == events(rows, event.name).schema
    assert events(text, "DROP").collect() == events(rows, "DROP").collect()


def test_every_event_has_a_view_whose_columns_have_names_of_their_own(rows):
    for event in EVENTS.values():
        names = events(rows, event.name).columns
        assert len(names) == len(set(names))
        assert len(names) >= 6 + len(event.columns)


def test_an_unknown_event_is_refused_with_the_nearest_name(rows):
    with pytest.raises(CallerError, match="did you mean FILE_SYNC"):
        events(rows, "FILE_SINK")
