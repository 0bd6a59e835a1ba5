"""`warrenmq trace export`: what other tools are given, on a trace of a real run."""

import json
import re

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.simulated import SimulatedHost, stuck_queue
from warrenmq.cli import main
from warrenmq.replay.export.selection import Selection, select_rows
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import open_trace
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.schema import ACTOR, CONSUMER, EVENTS
from warrenmq.trace.sentences import Words

MESSAGES = 12


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with warrenmq.open(folder / "data", trace=folder / "trace") as broker:
        jobs = broker.declare_queue("jobs")
        for number in range(MESSAGES):
            jobs.publish(b"x" * (5_000 if number % 2 else 10)).result()
        with jobs.consume(prefetch=4) as consumer:
            for _ in range(MESSAGES):
                consumer.get(timeout=LIMIT).ack()
    return str(folder / "trace")


def exported(trace, tmp_path, *options):
    output = tmp_path / "out"
    assert main(["trace", "export", trace, "-o", str(output), *options]) == 0
    return output.read_text()


def test_perfetto_has_a_track_for_each_actor_and_whole_arrows(trace, tmp_path):
    events = json.loads(exported(trace, tmp_path, "--to", "perfetto"))["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"queue:jobs", "msg_store_persistent", "vhost_process", "broker"} <= tracks
    starts = {event["id"] for event in events if event["ph"] == "s" and event["cat"] == "cast"}
    ends = [event["id"] for event in events if event["ph"] == "f"]
    assert len(ends) == len(set(ends)), "a cast is received once"
    assert ends, "casts are drawn"
    assert set(ends) <= starts
    counters = {}
    for event in events:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).extend(event["args"].values())
    for name in ("messages of queue:jobs", "mail of queue:jobs", "mail of msg_store_persistent"):
        assert max(counters[name]) > 0
        assert counters[name][-1] == 0, "everything was taken, and acked"


def test_perfetto_counts_waiting_actors(tmp_path):
    host = SimulatedHost(3)
    with host.open() as broker:
        stuck_queue(host, broker, 1.0).publish(b"one too many").result()
    folder = tmp_path / "trace"
    folder.mkdir()
    for name, content in host.sink.files().items():
        (folder / name).write_bytes(content)
    host.close()
    events = json.loads(exported(str(folder), tmp_path, "--to", "perfetto"))["traceEvents"]
    told = [
        (event["ts"], event["args"]["senders"])
        for event in events
        if event["name"] == "waiting for credit of queue:q"
    ]
    assert [senders for _, senders in told] == [1, 0]
    assert told[1][0] - told[0][0] == pytest.approx(1e6, rel=0.01), "microseconds"


def test_slices_of_a_track_do_not_overlap(trace, tmp_path):
    events = json.loads(exported(trace, tmp_path, "--to", "perfetto"))["traceEvents"]
    ends = {}
    slices = sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"])
    assert len(slices) > MESSAGES
    for event in slices:
        assert event["ts"] >= ends.get(event["tid"], 0) - 1e-6
        ends[event["tid"]] = event["ts"] + event["dur"]


def test_every_row_is_exported_once_in_the_order_of_causes(trace):
    with open_trace(trace) as opened:
        rows = [row for _, row in select_rows(opened, Selection())]
        assert len(rows) == sum(coverage.rows for coverage in opened.catalog.coverage.values())
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_one_message_can_be_followed_through_all_actors(trace, tmp_path):
    with open_trace(trace) as opened:
        published = [row for _, row in select_rows(opened, Selection()) if row[8] >> 8 & 0xFF == Ev.PUBLISH]
        message = published[1][2]  # the second has a body in the store
        rows = [row for _, row in select_rows(opened, Selection(message=message))]
    told = [Ev(row[8] >> 8 & 0xFF) for row in rows]
    life = [Ev.SEND, Ev.PUBLISH, Ev.STORE_WRITE, Ev.APPEND, Ev.CONFIRM, Ev.DELIVER, Ev.ACK, Ev.STORE_REMOVE]
    assert [event for event in dict.fromkeys(told) if event in life] == life
    assert exported(trace, tmp_path, "--to", "shiviz", "--message", str(message)).count("\n") == 2 + 2 * len(
        rows
    )


def test_shiviz_clocks_rise_by_one_and_carry_causes(trace, tmp_path):
    text = exported(
        trace, tmp_path, "--to", "shiviz", "--actor", "queue:jobs", "--actor", "msg_store_persistent"
    )
    seen = {}
    met = False
    for host, told in re.findall(r"^(\S*) (\{.*\})$", text, re.MULTILINE):
        clock = json.loads(told)
        assert clock[host] == seen.get(host, 0) + 1, "ShiViz refuses clocks with holes"
        seen[host] = clock[host]
        met = met or (host == "msg_store_persistent" and "queue:jobs" in clock)
    assert met, "the store has heard of the queue"


def test_a_name_of_several_lines_is_one_line_of_shiviz(tmp_path):
    """Its second line could be read as an actor and a clock."""
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        broker.declare_queue("a\nb {}")
    log = exported(str(tmp_path / "trace"), tmp_path, "--to", "shiviz")
    with open_trace(tmp_path / "trace") as opened:
        assert log.count("\n") == 2 + 2 * opened.catalog.rows


def test_a_consumer_is_named_as_one_and_never_as_an_actor(trace, tmp_path):
    """Both are numbered from 1: the handle of the queue is consumer 1, and actor 2 is the supervisor."""
    slices = json.loads(exported(trace, tmp_path, "--to", "perfetto"))["traceEvents"]
    told = [event["args"] for event in slices if event["ph"] == "X" and event["name"].startswith("DELIVER")]
    assert {args["consumer"] for args in told} == {2}
    assert " to consumer 2" in exported(trace, tmp_path, "--to", "shiviz")
    with open_trace(trace) as opened:
        actors = {entry.name for entry in opened.catalog.runs[0].actors.values()}
        words = Words(opened.catalog.runs[0])
        for _, row in select_rows(opened, Selection()):
            event = Ev(row[8] >> 8 & 0xFF)
            for column in EVENTS[event].columns:
                value = getattr(EVENTS[event].of(row), column.name)
                if column.type in (ACTOR, CONSUMER) and value and column.name in words.columns(row):
                    assert (words.columns(row)[column.name] in actors) is (column.type is ACTOR), event.name


def test_a_limit_cuts_and_says_so(trace, tmp_path, capsys):
    text = exported(trace, tmp_path, "--to", "shiviz", "--limit", "5")
    assert text.count("{") == 5 + 1, "five rows, and the parser's expression"
    assert "first 5 rows" in capsys.readouterr().err


def test_the_report_is_one_of_the_formats(trace, tmp_path):
    assert "<html" in exported(trace, tmp_path, "--to", "html")


def test_parquet_has_every_row_and_comes_to_the_same_columns(trace, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    assert main(["trace", "export", trace, "--to", "parquet", "-o", str(tmp_path / "rows")]) == 0
    table = pq.read_table(tmp_path / "rows")
    with open_trace(trace) as opened:
        assert table.num_rows == sum(coverage.rows for coverage in opened.catalog.coverage.values())
    assert table["ev"].to_pylist().count("PUBLISH") == MESSAGES
    peers = set(zip(table["ev"].to_pylist(), table["peer"].to_pylist(), strict=True))
    assert {peer for event, peer in peers if event == "DELIVER"} == {"consumer 2"}
    assert {peer for event, peer in peers if event == "ACK"} == {"client-1"}


def test_a_trace_without_rows_is_a_table_of_the_same_columns(tmp_path):
    """A reader of a folder without a file knows no columns, and refuses it."""
    pq = pytest.importorskip("pyarrow.parquet")
    Recorder(tmp_path / "trace", run="000001-1").close()
    assert (
        main(["trace", "export", str(tmp_path / "trace"), "--to", "parquet", "-o", str(tmp_path / "rows")])
        == 0
    )
    table = pq.read_table(tmp_path / "rows")
    assert (table.num_rows, "run_actors" in table.column_names) == (0, True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--to", "parquet"], "needs -o"),
        (["--to", "parquet", "-o", "x", "--actor", "a"], "whole trace"),
        (["--to", "perfetto", "--actor", "nobody"], "no actor of this trace is called 'nobody'"),
        (["--to", "perfetto", "--message", "17"], "no row of this trace speaks of message 17"),
        (["--to", "perfetto", "--from", "9999"], "widen"),
    ],
)
def test_an_impossible_export_is_refused_with_a_sentence(trace, capsys, options, sentence):
    assert main(["trace", "export", trace, *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_not_filled_with_parquet(trace, tmp_path, capsys):
    pytest.importorskip("pyarrow.parquet")
    (tmp_path / "mine").write_text("keep me")
    assert main(["trace", "export", trace, "--to", "parquet", "-o", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
