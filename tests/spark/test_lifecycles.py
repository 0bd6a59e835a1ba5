"""The life of each message: the plain engine's figures, from SQL, and nothing guessed where rows are missing."""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import warrenmq
from tests.support.limits import LIMIT
from tests.support.simulated_trace import consistent_trace
from tests.support.source_tree import ROOT
from tests.support.trace_union import side_by_side, write_directory
from warrenmq.actors.vhost.vhost import queue_name
from warrenmq.rabbit_logs.lifecycles import lifecycles as tracing_lives
from warrenmq.rabbit_logs.log_files import open_logs
from warrenmq.replay import lifecycles, read, read_tracing
from warrenmq.replay.drive import engine
from warrenmq.replay.drive.result import percentiles
from warrenmq.replay.rules.passes.queue_ledger import delay_class

pytest.importorskip("pyspark")
from pyspark.sql import functions as sf

pytestmark = pytest.mark.spark

GOLDEN = Path(ROOT, "tests") / "golden" / "rabbitmq-tracing-3.10" / "all-json.log"
DELAYS = {"confirm_ms": "confirm_us", "deliver_ms": "delay_us", "ack_ms": "ack_us"}
ALWAYS = {"whole", "matched"}

ONE_QUERY = """
    select queue, count(published_t) published, sum(deliveries) deliveries, percentile(delay_us, 0.5) half,
           count_if(delivered_t < latest) overtaken
    from (select *, max(delivered_t) over (partition by queue, priority order by published_t
                        range between unbounded preceding and interval 1 microsecond preceding) latest
          from {lives} where published_t is not null and delivered_t is not null)
    group by queue
"""


def counted(lives):
    """Lives as the plain engine's figures of queues."""
    found = defaultdict(Counter)
    delays = defaultdict(lambda: defaultdict(Counter))
    for life in lives:
        found[life.queue].update({
            "published": life.published_t is not None, "confirmed": life.confirmed_t is not None,
            "delivered": life.deliveries, "acked": life.acked_t is not None, "requeued": life.requeues,
            "dropped": life.dropped_t is not None, "recovered": life.recovered,
            "given a time to live": life.expires is not None,
        })  # fmt: skip
        for what, column in DELAYS.items():
            if life[column] is not None:
                delays[life.queue][what][delay_class(round(life[column] * 1_000))] += 1
    return {
        queue: {what: n for what, n in counts.items() if n}
        | {what: percentiles(classes.items()) for what, classes in delays[queue].items()}
        for queue, counts in found.items()
    }


def figures_of(path, prefix=""):
    return {name.removeprefix(prefix): told for name, told in engine.replay(path).figures["queues"].items()}


def left(lives):
    """Number of ready and of unacked messages at the end of each run, by the plain engine."""
    last = {}
    for life in lives:
        last[life.run, life.queue] = max(last.get((life.run, life.queue), 0), life.actor_id)
    return Counter(
        (life.run, life.queue, life.state) for life in lives if last[life.run, life.queue] == life.actor_id
    )


@pytest.fixture(scope="module")
def lives(spark, clean_trace):
    return lifecycles(read(spark, clean_trace)).collect()


def test_counts_and_delays_are_those_of_the_plain_engine(lives, clean_trace):
    assert counted(lives) == figures_of(clean_trace)


def test_states_at_the_end_are_those_of_the_plain_engine(lives, clean_trace):
    found = left(lives)
    for run, state in engine.replay(clean_trace).figures["state"].items():
        for queue, told in state["queues"].items():
            assert (found[run, queue, "ready"], found[run, queue, "unacked"]) == (
                told["ready"],
                told["unacked"],
            )


def test_there_is_a_row_for_each_message_in_each_incarnation(lives):
    assert len({(life.run, life.actor_id, life.seq_id) for life in lives}) == len(lives)
    assert all(life.whole for life in lives)
    assert {life.state for life in lives} == {"ready", "unacked", "acked", "dropped"}
    assert {"EXPIRED", "MAXLEN, DEAD_LETTERED"} < {life.dropped for life in lives}
    for life in lives:
        assert life.recovered == (life.published_t is None) == (life.persistent is None)
        assert (life.state == "dropped") == (life.dropped is not None)
        assert life.confirmed in {None, "DURABLE" if life.persistent else "TRANSIENT"}


def test_a_real_run_with_a_killed_queue_and_large_batches(spark, tmp_path, monkeypatch):
    from warrenmq.replay.spark import lifecycles as spark_lifecycles

    monkeypatch.setattr(spark_lifecycles, "STEP", 7)
    with warrenmq.open(tmp_path / "data", trace=tmp_path / "trace") as broker:
        jobs = broker.declare_queue("jobs", arguments={"x-max-priority": 3})
        short = broker.declare_queue("queue:short", arguments={"x-max-length": 5})
        jobs.publish_many([b"x" * (n % 3 * 3_000) for n in range(100)]).result()
        jobs.publish(b"soon", properties=warrenmq.Properties(priority=2)).result()
        short.publish_many([b"y"] * 20).result()
        for _ in range(10):
            jobs.get(timeout=LIMIT).ack()
        jobs.get(timeout=LIMIT).reject(requeue=True)
        jobs.publish(b"before").result()
        killed = broker.runtime.whereis(queue_name("jobs"))
        broker.runtime.kill(killed)
        while (
            not broker.runtime.is_registered(queue_name("jobs"))
            or broker.runtime.whereis(queue_name("jobs")) is killed
        ):
            broker.runtime.event().wait(0.01)
        jobs.publish(b"after").result()
        jobs.get(timeout=LIMIT)
    found = lifecycles(read(spark, tmp_path / "trace")).collect()
    assert counted(found) == figures_of(tmp_path / "trace", "queue:")
    assert Counter(life.dropped for life in found if life.queue == "queue:short") == {"MAXLEN": 15, None: 5}
    first = [life for life in found if life.queue == "jobs" and not life.recovered and life.delivered_t]
    assert [(life.deliveries, life.requeues, life.state) for life in first if life.priority == 2] == [
        (1, 0, "acked")
    ]
    assert [life.seq_id for life in first if life.requeues] == [9]
    assert sum(life.recovered for life in found) >= 92  # acks of the last 200 ms may be forgotten
    assert all(life.whole for life in found)
    wall = min(life.published_t for life in found if life.published_t)
    assert abs(wall.timestamp() - (tmp_path / "trace").stat().st_mtime) < LIMIT


def holes(runs, rng):
    """The same trace without some rows of its queues."""
    runs = copy.deepcopy(runs)
    for run in runs:
        for actor in run.of("QueueProcess"):
            # what the files of a killed run lack at their end, nobody can see
            end = len(actor.rows) if run.closed else len(actor.rows) - 1
            at = rng.choice([0, rng.randrange(end), max(end - 5, 0)])
            del actor.rows[at : min(at + rng.randrange(1, 12), end)]
    return runs


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory):
    """Runs, and every life in them."""
    runs = side_by_side([consistent_trace(seed) for seed in range(4)])
    return runs, by_place(spark, write_directory(tmp_path_factory.mktemp("whole") / "trace", runs))


def by_place(spark, path):
    lives = lifecycles(read(spark, path)).collect()
    return {(life.run, life.actor_id, life.seq_id): life.asDict() for life in lives}


@pytest.mark.parametrize("by_frames", [True, False], ids=["gaps from frames", "gaps from rows"])
def test_where_rows_are_missing_nothing_is_guessed(spark, whole, tmp_path, monkeypatch, by_frames):
    from warrenmq.replay.spark import lifecycles as spark_lifecycles

    monkeypatch.setattr(spark_lifecycles, "BLOCK_BITS", 3)
    if not by_frames:  # as of files that only Spark reads
        monkeypatch.setattr(spark_lifecycles, "stretches", lambda _rows: None)
    runs, whole = whole
    found = by_place(spark, write_directory(tmp_path / "holes", holes(runs, random.Random(5))))
    unsure = 0
    for place, life in found.items():
        known = {name: value for name, value in life.items() if value is not None and name not in ALWAYS}
        assert known == {name: whole[place][name] for name in known}
        if life["whole"]:
            assert life == whole[place]
        unsure += not life["whole"]
    assert 100 < unsure < len(found) - 100


def test_rows_that_a_file_made_strings_have_the_same_lives(spark, clean_trace):
    rows = read(spark, clean_trace)
    content = ["count(*)", "sum(cast(xxhash64(*) as decimal(38)))"]
    text = rows.select(*(sf.col(name).cast("string") for name in rows.columns))
    assert lifecycles(text).selectExpr(*content).collect() == lifecycles(rows).selectExpr(*content).collect()


def test_a_filter_that_takes_events_away_makes_everything_unsure(spark, clean_trace):
    found = lifecycles(read(spark, clean_trace).where("ev in ('PUBLISH', 'DELIVER', 'DROP')")).collect()
    assert not any(life.whole for life in found)
    assert {life.state for life in found} == {None, "acked", "dropped"}  # acked: those that nobody acks
    assert {life.requeues for life in found} == {None}


def test_one_query_asks_our_traces_and_rabbitmqs_logs(spark, lives, clean_trace):
    def ask(frame):
        return {row.queue: row for row in spark.sql(ONE_QUERY, lives=frame).collect()}

    ours = ask(lifecycles(read(spark, clean_trace)))
    for queue, row in ours.items():
        delays = [life.delay_us for life in lives if life.queue == queue and life.delay_us is not None]
        assert (row.published, row.overtaken) == (len(delays), 0)
        assert min(delays) <= row.half <= max(delays)
    theirs = ask(read_tracing(spark, GOLDEN))
    expected = Counter(
        life.queue for life in tracing_lives(open_logs(GOLDEN).records()) if life.delay is not None
    )
    assert {queue: row.published for queue, row in theirs.items()} == expected


def test_lives_of_both_kinds_go_into_one_table(spark, clean_trace):
    ours, theirs = lifecycles(read(spark, clean_trace)), read_tracing(spark, GOLDEN)
    shared = [name for name in theirs.columns if name in ours.columns]
    assert shared == [
        "queue", "priority", "published_t", "delivered_t", "last_delivered_t", "deliveries", "delay_us", "matched",
    ]  # fmt: skip
    both = ours.select(shared).unionByName(theirs.select(shared))
    assert [kind for name, kind in both.dtypes if name.endswith("_t")] == ["timestamp"] * 3
