"""`warrenmq trace what-if`: with the present settings the record, with others what a model of the actor does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warrenmq
from tests.support.limits import LIMIT
from tests.support.simulated_trace import consistent_trace
from tests.support.trace_writer import write_trace
from warrenmq.cli import main
from warrenmq.latency import delay_class
from warrenmq.replay.report.measures import measure_trace
from warrenmq.replay.report.totals import totals
from warrenmq.replay.what_if.store import CHECK_INTERVAL, StoreModel
from warrenmq.replay.what_if.syncs import SyncRows, with_interval
from warrenmq.replay.what_if.what_if import MODEL, RECORDED, REPLAYED, Question, _Walk, what_if
from warrenmq.settings import Settings
from warrenmq.trace.events import Append, Decision, StoreRemove, StoreWrite, Trigger
from warrenmq.trace.reader import open_memory, open_trace
from warrenmq.trace.schema import row_of

MS = 1_000_000


# -- syncs


def rows_of(comings, syncs):
    rows = SyncRows()
    for t, trigger in syncs:
        rows.sync(t, trigger)
    for t in comings:
        rows.wait(t, 1)
    return rows


def actor(comings, interval, late, empty=()):
    """An actor's times: (syncs, delays) with a timer that is `late`, and mailboxes that are empty at these times."""
    syncs, delays, waiting, due = [], [], [], None
    moments = sorted([(t, "come") for t in comings] + [(t, "empty") for t in empty])
    for t, what in [*moments, (1 << 60, "end")]:
        if due is not None and due < t:
            syncs.append((due, Trigger.TIMER))
            delays += [due - came for came in waiting]
            waiting, due = [], None
        if what == "come":
            due = t + interval + late if not waiting else due
            waiting.append(t)
        elif what == "empty" and waiting:
            syncs.append((t, Trigger.MAILBOX_EMPTY))
            delays += [t - came for came in waiting]
            waiting, due = [], None
    return syncs, delays


comings = st.sets(st.integers(1, 400), max_size=40).map(sorted).map(lambda found: [2 * t * MS for t in found])
empties = (
    st.sets(st.integers(0, 400), max_size=10).map(sorted).map(lambda found: [(2 * t + 1) * MS for t in found])
)
intervals = st.integers(1, 60).map(lambda ms: ms * MS)


@given(comings, empties, intervals, st.integers(1, 9))
def test_with_the_interval_it_had_an_actor_syncs_as_it_did(came, empty, interval, late):
    syncs, delays = actor(came, interval, late, empty)
    found = with_interval(rows_of(came, syncs), interval, interval)
    assert found.count == len(syncs)
    assert found.by_timer == sum(trigger == Trigger.TIMER for _, trigger in syncs)
    assert sorted(found.delays.elements()) == sorted(map(delay_class, delays))


@given(comings, st.lists(st.tuples(st.integers(0, 800), st.sampled_from(Trigger)), max_size=30))
def test_any_record_is_reproduced_as_it_is(came, marks):
    syncs = [(2 * t * MS + 1, trigger) for t, trigger in sorted(dict(marks).items())]
    found = with_interval(rows_of(came, syncs), 25 * MS, 25 * MS)
    assert found.count == len(syncs)
    last = syncs[-1][0] if syncs else 0
    assert found.delays.total() == sum(t < last for t in came)


@given(comings, intervals, intervals, st.integers(1, 9))
def test_with_another_interval_an_actor_that_is_never_idle_syncs_as_it_would(came, was, now, late):
    recorded, _ = actor(came, was, late)
    syncs, delays = actor(came, now, late)
    found = with_interval(rows_of(came, recorded), was, now)
    assert found.count == len(syncs)
    assert sorted(found.delays.elements()) == sorted(map(delay_class, delays))


@given(comings, empties, intervals, intervals)
def test_no_confirm_waits_longer_than_the_interval_and_all_are_synced(came, empty, was, now):
    recorded, _ = actor(came, was, 1, empty)
    found = with_interval(rows_of(came, recorded), was, now)
    assert found.delays.total() == len(came)
    assert all(cls <= delay_class(now + 1) for cls in found.delays)


def test_a_timer_that_is_due_while_a_sync_is_under_way_makes_none():
    rows = rows_of([1 * MS], [])
    rows.write(2 * MS, Trigger.MAILBOX_EMPTY)
    rows.sync(9 * MS, Trigger.MAILBOX_EMPTY)
    assert with_interval(rows, 25 * MS, 5 * MS).by_timer == 0
    assert with_interval(rows_of([1 * MS], [(9 * MS, Trigger.MAILBOX_EMPTY)]), 25 * MS, 5 * MS).by_timer == 1


def test_an_actor_that_never_synced_does_not_sync_at_another_interval():
    assert with_interval(rows_of([1 * MS], []), 25 * MS, 1 * MS).count == 0


# -- the store


UNUSED = {"client": 0, "file": 0, "references": 0}
"""Columns of writes and removes that the model does not read."""


class StoreRows:
    """Rows of one store, written by hand."""

    def __init__(self):
        self.rows = []
        self.t = 0

    def row(self, event, seconds=0, **columns):
        self.t += seconds * 1_000_000_000 + 1
        self.rows.append(row_of(event, actor=1, t=self.t, seq=len(self.rows) + 1, **columns))
        return self

    def write(self, msg, size=100, decision=Decision.WRITE, seen=1):
        self.row(StoreWrite, message=msg, decision=decision, flying=seen, was_flying=1, **UNUSED)
        if decision != Decision.WRITE:
            return self
        return self.row(Append, message=msg, file=0, offset=0, size=size, checksum=0)

    def remove(self, msg, decision=Decision.REMOVE, seen=-1, **when):
        return self.row(
            StoreRemove, message=msg, decision=decision, flying=seen, was_flying=1, **UNUSED, **when
        )

    def walk(self, *, limit=1_000, threshold=0.5, in_place=True, flying=True):
        store = StoreModel(limit, threshold, 70, in_place=in_place, flying=flying)
        for row in self.rows:
            store.take(row)
        return store.work


def test_a_cancelled_write_is_a_record_without_flying_counters_and_is_garbage_when_its_remove_comes():
    rows = StoreRows().write(1).write(2, decision=Decision.IGNORE, seen=0).remove(2, Decision.IGNORE, seen=0)
    assert (rows.walk().writes, rows.walk().bytes) == (1, 100)
    work = rows.walk(flying=False)
    assert (work.writes, work.bytes, work.largest, work.most_garbage) == (2, 170, 170, 70)


def test_a_cancelled_write_of_a_record_that_is_there_is_one_reference_more():
    rows = (
        StoreRows().write(1).write(1, decision=Decision.IGNORE, seen=0).remove(1)
        .remove(1, Decision.IGNORE, seen=0).write(2)
    )  # fmt: skip
    work = rows.walk(flying=False)
    assert (work.writes, work.most_garbage) == (2, 100)


def test_a_record_that_follows_a_cancelled_write_of_its_message_is_not_written_twice():
    rows = StoreRows().write(1, decision=Decision.IGNORE, seen=0).write(1).remove(1)
    assert rows.walk(flying=False).writes == 1
    assert rows.walk(flying=False).most_garbage == 0


def test_writes_of_a_dying_client_are_ignored_with_and_without_flying_counters():
    rows = StoreRows().write(1, decision=Decision.IGNORE, seen=1)
    assert rows.walk(flying=False).writes == 0


def test_a_record_without_references_is_brought_back_where_it_is():
    rows = StoreRows().write(1).remove(1).write(1, decision=Decision.CONFIRM)
    work = rows.walk()
    assert (work.writes, work.most_garbage) == (1, 100)


def test_an_empty_file_is_deleted_and_nothing_is_copied():
    rows = StoreRows()
    for msg in range(1, 12):
        rows.write(msg)
    for msg in range(1, 11):
        rows.remove(msg)
    work = rows.walk()
    assert (work.deleted, work.gc_runs, work.gc_bytes) == (1, 0, 0)


THRESHOLDS = {
    # threshold, in place: runs, bytes copied
    (0.5, True): (0, 0),
    (0.3, True): (1, 300),
    (0.5, False): (0, 0),
    (0.3, False): (1, 1_000),
}


@pytest.mark.parametrize("case", THRESHOLDS)
def test_a_lower_threshold_collects_earlier_and_copies_more(case):
    """Three files of ten records; of the first two 3 and 7 go, of the current one nothing: a third of all is garbage."""
    threshold, in_place = case
    rows = StoreRows()
    for msg in range(30):
        rows.write(msg)
    for msg in [0, 1, 2, 10, 11, 12, 13, 14, 15, 16]:
        rows.remove(msg)
    work = rows.walk(threshold=threshold, in_place=in_place)
    assert (work.gc_runs, work.gc_bytes) == THRESHOLDS[case]


def test_the_clock_collects_what_is_mostly_garbage_in_a_small_store():
    rows = StoreRows()
    for msg in range(11):
        rows.write(msg)
    for msg in range(6):
        rows.remove(msg)
    assert rows.walk().gc_runs == 0
    rows.remove(99, Decision.IGNORE, seconds=CHECK_INTERVAL // 1_000_000_000)
    assert rows.walk().gc_runs == 1
    assert rows.walk(in_place=False).gc_runs == 1
    assert rows.walk(threshold=0.9).gc_runs == 0


# -- whole traces


@pytest.fixture(scope="module", params=["combine", "compact"])
def trace(request, tmp_path_factory):
    """A run with collected garbage, cancelled writes, small bodies and large ones."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = Settings(msg_store_gc=request.param, msg_store_file_size_limit=32_768, durability="os")
    with warrenmq.open(folder / "data", trace=folder / "trace", settings=settings) as broker:
        queues = [broker.declare_queue(name) for name in ("a", "b")]
        for _ in range(3):
            for queue in queues:
                for confirm in [queue.publish(b"x" * size) for size in (10, 5_000, 7_000) * 12]:
                    confirm.result()
                for number in range(36):
                    message = queue.get(timeout=LIMIT)
                    if number % 5:
                        message.ack()
    return str(folder / "trace")


def same(lines, told):
    for line in lines:
        assert line.basis == RECORDED
        assert line.what_if == line.recorded, line.name
        if line.name in told:
            assert line.recorded == told[line.name]


def test_the_present_settings_give_the_record(trace):
    with open_trace(trace) as opened:
        measures = measure_trace(opened)
        told = totals(measures)
        same(what_if(opened, Question()), told)
        same(what_if(opened, Question(25.0, 0.5)), told)
        walked = _Walk(opened, Question(40.0, was_sync_interval=40.0), measures)
    for name, (was, now) in (("index syncs", walked.index), ("store syncs", walked.store)):
        assert was.count == now.count == told[name]
        assert was.delays == now.delays
        assert was.delays


@pytest.mark.parametrize("seed", range(8))
def test_the_present_settings_give_the_record_of_synthetic_traces(seed):
    opened = open_memory(write_trace(consistent_trace(seed)))
    measures = measure_trace(opened)
    told = totals(measures)
    same(what_if(opened, Question(25.0, 0.5)), told)
    walked = _Walk(opened, Question(gc_threshold=0.4), measures)
    assert walked.index[0].count == told["index syncs"]
    assert walked.store[0].count == told["store syncs"]


@pytest.mark.parametrize("seed", range(8))
def test_without_flying_counters_no_write_is_saved_and_at_most_the_saved_ones_are_added(seed):
    opened = open_memory(write_trace(consistent_trace(seed)))
    lines = {line.name: line for line in what_if(opened, Question(flying=False))}
    appended, saved = lines["records appended"], lines["store writes saved by flying counters"]
    assert appended.basis == saved.basis == REPLAYED
    assert saved.what_if == 0
    assert appended.recorded <= appended.what_if <= appended.recorded + saved.recorded


def test_the_model_of_the_present_store_writes_the_records_that_were_written(trace):
    with open_trace(trace) as opened:
        walked = _Walk(opened, Question(gc_threshold=0.3), measure_trace(opened))
        lines = {line.name: line for line in what_if(opened, Question(gc_threshold=0.3))}
    assert walked.present.writes == lines["records appended"].recorded
    assert walked.present.bytes == round(lines["store written MB"].recorded * 1e6)
    assert lines["gc runs"].basis == MODEL
    assert lines["garbage MB, at most"].what_if < lines["garbage MB, at most"].model


def test_the_command_prints_the_numbers_as_a_table_and_as_json(trace, capsys):
    assert main(["trace", "what-if", trace, "--sync-interval", "1", "--no-flying", "--json"]) == 0
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert told["index syncs"]["basis"] == MODEL
    assert told["index syncs"]["what_if"] >= told["index syncs"]["recorded"]
    assert told["records appended"]["basis"] == REPLAYED
    assert main(["trace", "what-if", trace]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["recorded", "what", "if", "model", "basis"]
    assert all(line.endswith("  recorded") for line in lines[1:])


@pytest.mark.parametrize(
    "wrong", [["--gc-threshold", "1.5"], ["--sync-interval", "0"], ["--sync-interval", "x"]]
)
def test_an_unknown_setting_is_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        main(["trace", "what-if", "somewhere", *wrong])
    assert "argument" in capsys.readouterr().err
