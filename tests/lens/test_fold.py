"""The fold: the same state forwards, backwards and from a checkpoint; bounded notes; the sentences of rows."""

import random
import re
from collections import Counter
from copy import copy
from itertools import islice

import pytest

import warrenmq
from tests.broker.lives import long_life, trace_of
from tests.support.simulated import BOTH_PROFILES, SimulatedHost
from warrenmq.errors import Nacked
from warrenmq.lens import fold as folds
from warrenmq.lens.captions import PLACEHOLDER, render
from warrenmq.lens.fold import Fold, Folding
from warrenmq.lens.scene import LatestRows
from warrenmq.lens.tables import MARKS, NAMES, apply, empty, named, undo
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.settings import Settings
from warrenmq.trace.events import Ev
from warrenmq.trace.index import ActorEntry
from warrenmq.trace.reader import open_memory, open_trace
from warrenmq.trace.schema import Row


@pytest.fixture(scope="module", params=BOTH_PROFILES)
def trace(request):
    return open_memory(trace_of(3, long_life, BOTH_PROFILES[request.param]))


@pytest.fixture(scope="module")
def steps(trace):
    return list(Fold(trace).steps())


def test_each_row_has_a_step(trace, steps):
    assert len(steps) == trace.catalog.rows == Fold(trace).rows


def test_each_event_has_a_caption_of_its_own():
    assert [event.name for event in Ev if folds._HANDLERS[event] is folds._other] == []


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_nothing_is_told_as_synced_where_nothing_is(durability):
    host = SimulatedHost(1, Settings(durability=durability))
    with host.open() as broker:
        broker.declare_queue("jobs").publish(b"x" * 6_000).result()
    trace = open_memory(host.sink.files())
    host.close()
    steps = list(Fold(trace).steps())
    said = " ".join(render(step.caption) for step in steps)
    syncs = Fold(trace).at(trace.catalog.rows)["cost"].get("syncs", 0)
    is_synced = durability == "fsync"
    assert bool(re.search("(is|safe|them) on disk", said)) is is_synced
    assert (syncs > 0) is (MARKS.index("sync") in {step.mark for step in steps}) is is_synced
    assert ("durability is os" in said) is not is_synced


def test_a_publish_that_is_refused_is_a_nack():
    host = SimulatedHost(1)
    with host.open() as broker:
        queue = broker.declare_queue("jobs", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        confirms = [queue.publish(b"1"), queue.publish(b"2")]
        confirms[0].result()
        with pytest.raises(Nacked):
            confirms[1].result()
        trace = open_memory(host.sink.files())
        fold = Fold(trace)
        tables = fold.at(fold.rows)
        assert [row[:3] for row in tables["pub"].values()] == [(2, 1, 1)]
        assert not tables["owed"]
        assert any(render(step.caption).startswith("jobs refuses m2") for step in fold.steps())
    host.close()


def test_a_confirm_is_of_its_queues_messages_even_if_these_are_gone():
    host = SimulatedHost(1)
    with host.open() as broker:
        queues = [broker.declare_queue(name) for name in ("one", "two")]
        with queues[0].consume(0, no_ack=True), queues[1].consume(0, no_ack=True):
            confirms = [queues[number % 2].publish(b"small") for number in range(200)]
            for confirm in confirms:
                confirm.result()
    trace = open_memory(host.sink.files())
    host.close()
    owed, confirmed = NAMES.index("owed"), Counter()
    for step in Fold(trace).steps():
        answered = [key for table, key, new, _ in step.changes if table == owed and new is None]
        if answered:
            name = step.caption[1]
            assert {message % 2 for message in answered} == {1 if name == "one" else 0}
            confirmed[name] += len(answered)
    assert confirmed == {"one": 100, "two": 100}


def test_the_dead_leave_the_tree_when_their_successors_are_up(trace):
    fold = Fold(trace)
    again = 0
    for number, step in enumerate(fold.steps(), 1):
        if "is up again" in step.caption[0]:
            again += 1
            names = Counter(row[:2] for row in fold.at(number)["actor"].values())
            assert names[step.caption[1], "MsgStore"] <= 1
            assert names[step.caption[1], "QueueProcess"] <= 1
    assert again > 3


def test_what_is_asleep_is_on_disk(trace):
    fold, asleep = Fold(trace), 0
    for step in fold.steps():
        for table, _, new, _ in step.changes:
            if table == NAMES.index("entry") and new is not None and new[1] == "asleep":
                asleep += 1
                assert new[3] > 0
    assert asleep > 20


def test_changes_lead_forwards_and_back(steps):
    tables = empty()
    before = []
    for step in steps:
        before.append([dict(table) for table in tables])
        apply(tables, step.changes)
    for step in reversed(steps):
        undo(tables, step.changes)
        assert tables == before.pop()
    assert tables == empty()


def test_the_state_at_a_row_is_that_of_all_changes_before(trace, steps):
    fold = Fold(trace)
    last = len(steps)
    for row in (last, 0, 1, last // 2, last - 7, 1001, 999, 1000):
        tables = empty()
        for step in steps[:row]:
            apply(tables, step.changes)
        assert fold.at(row) == named(tables), row


@pytest.mark.parametrize(("checkpoints", "kept"), [(5, 100_000), (1_000, 4_000)])
def test_checkpoints_are_few_and_lead_to_the_same_state(trace, steps, monkeypatch, checkpoints, kept):
    monkeypatch.setattr(folds, "_CHECKPOINT_ROWS", 7)
    monkeypatch.setattr(folds, "_MOST_CHECKPOINTS", checkpoints)
    monkeypatch.setattr(folds, "_MOST_KEPT", kept)
    fold, choose, tables, wanted = Fold(trace), random.Random(5), empty(), {}
    places = {choose.randint(0, len(steps)) for _ in range(40)}
    for number, step in enumerate([None, *steps]):
        if step is not None:
            apply(tables, step.changes)
        if number in places:
            wanted[number] = {name: dict(table) for name, table in named(tables).items()}
    for number in choose.sample(sorted(places), len(places)):
        assert fold.at(number) == wanted[number], number
        assert 2 < len(fold._checkpoints) <= checkpoints
        assert sum(len(table) for each in fold._checkpoints for table in each.folding.tables) <= kept
    assert fold.at(0) == named(empty())


def test_a_copied_fold_goes_its_own_way(trace, steps):
    rows = list(rows_in_order(trace))
    folding, copies = Folding(trace.catalog.runs), []
    for number, (run, row) in enumerate(rows):
        if number % 409 == 0:
            copies.append((number, folding.copied()))
        assert folding.step(run, row) == steps[number]
    for begin, other in copies:
        for number, (run, row) in enumerate(rows[begin : begin + 700], begin):
            assert other.step(run, row)[:-1] == steps[number][:-1], (begin, number)


def test_rows_since_a_time_are_those_of_it_and_later(trace):
    rows = list(rows_in_order(trace))
    for run, row in rows[::173]:
        since = run, row.t
        assert list(rows_in_order(trace, since=since)) == [
            each for each in rows if (each[0], each[1].t) >= since
        ]


def test_a_row_that_is_not_there_is_refused(trace):
    with pytest.raises(IndexError, match="not between 0 and"):
        Fold(trace).at(trace.catalog.rows + 1)


def test_a_caption_fills_every_place_and_a_cause_is_earlier(steps):
    for number, step in enumerate(steps, 1):
        assert "{" not in render(step.caption)
        used = {int(found[1]) for found in PLACEHOLDER.findall(step.caption[0])}
        assert all(place < len(step.caption) - 1 for place in used)
        assert 0 <= step.cause < number
        assert 0 <= step.mark < len(MARKS)


def test_every_value_of_a_change_differs_from_the_old_one(steps):
    for step in steps:
        for table, _, new, old in step.changes:
            assert new != old
            assert 0 <= table < len(NAMES)


@pytest.mark.parametrize(
    ("caption", "text"),
    [
        (("{0} sends {m1}.", "orders", 7), "orders sends m7."),
        (("{n0:byte} and {n1:byte}", 1, 6038), "1 byte and 6\u202f038 bytes"),
        (("{0}", "<script>{m1}"), "<script>{m1}"),
        (("{n0}.rdq", 12), "12.rdq"),
    ],
)
def test_captions(caption, text):
    assert render(caption) == text


def test_rows_that_begin_in_the_middle_are_folded(trace):
    """Every row that the fold can meet without those before it."""
    for begin in range(0, trace.catalog.rows, 97):
        folding = Folding(trace.catalog.runs)
        for run, row in islice(rows_in_order(trace), begin, begin + 300):
            render(folding.step(run, row).caption)


def test_every_event_can_be_folded_alone(trace):
    """A row with nothing but zeros, as a damaged or later trace may have."""
    for event in Ev:
        for actor in trace.catalog.runs[0].actors:
            folding = Folding(trace.catalog.runs)
            row = Row(1, 1, 0, 0, 0, 0, 0, 0, actor << 16 | event << 8)
            assert render(folding.step(0, row).caption)


def test_rows_that_contradict_each_other_are_folded(trace):
    """Rows left out, said twice, of another actor, or with other numbers, as in a broken trace."""
    chosen = random.Random(11)
    rows = list(rows_in_order(trace))
    for _ in range(3):
        folding = Folding(trace.catalog.runs)
        for run, row in rows:
            while chosen.random() < 0.1:
                place = chosen.randrange(2, len(row) - 1)
                changed = list(row)
                changed[place] = chosen.choice((0, 1, -1, 2, 7, 300))
                render(folding.step(run, Row(*changed)).caption)
            if chosen.random() < 0.9:
                render(folding.step(run, row).caption)


def test_parents_in_a_circle_are_shown(trace):
    run = copy(trace.catalog.runs[0])
    run.actors = {1: ActorEntry("one", "Supervisor", 2), 2: ActorEntry("two", "Supervisor", 1)}
    folding = Folding([run])
    folding.step(0, Row(*(0, 1, 0, 0, 0, 0, 0, 0, 1 << 16 | Ev.ACTOR_START << 8)))
    assert {row[0] for row in folding.tables[NAMES.index("actor")].values()} == {"one", "two"}


def test_what_a_fold_keeps_depends_on_what_the_broker_holds_and_not_on_how_much_went_through_it():
    host = SimulatedHost(3)
    with host.open() as broker:
        queues = [broker.declare_queue(name) for name in ("one", "two")]
        broker.declare_exchange("both", "fanout")
        for queue in queues:
            broker.bind(queue, "both")
        for number in range(250):
            body = b"x" * (number % 5 * 60)
            broker.publish("both", "", body)
            queues[number % 2].publish(body, persistent=number % 3 > 0).result()
            for queue in queues:
                while (delivery := queue.get()) is not None:
                    delivery.ack()
    trace = open_memory(host.sink.files())
    host.close()
    folding, kept = Folding(trace.catalog.runs), []
    for run, row in rows_in_order(trace):
        folding.step(run, row)
        scene = folding._scene
        notes = [*vars(scene).values(), *scene.tables]
        for each in (*scene.queues.values(), *scene.stores.values()):
            notes += [getattr(each, name) for name in each.__slots__]
            notes += [each.writes["p"], each.removes["p"]] if hasattr(each, "writes") else []
        kept.append(sum(len(each) for each in notes if hasattr(each, "__len__")))
    half = len(kept) // 2
    assert max(kept[half:]) < max(kept[:half]) + 100


def test_landmarks_are_the_latest_ones_and_few():
    marks, most = LatestRows(), 0
    for row in range(1, 30_001):
        marks.set(("write", row), row)
        most = max(most, len(marks._young) + len(marks._old))
    assert marks.get(("write", 30_000)) == 30_000
    assert marks.get(("write", 25_001)) == 25_001
    assert marks.get(("write", 1)) == 0
    assert most <= 10_001


def test_another_broker_of_the_same_trace_has_messages_and_files_of_its_own(tmp_path):
    trace = tmp_path / "trace"
    brokers = [warrenmq.open(tmp_path / name, trace=trace) for name in ("one", "two")]
    for broker in brokers:
        broker.declare_queue("orders").publish(b"a" * 5_000).result()
    for broker in brokers:
        broker.close()
    with open_trace(trace) as opened:
        runs = [run for run, _ in rows_in_order(opened)]
        second = runs.index(1) + 1
        fold = Fold(opened)
        steps = list(fold.steps())
        files = [bool(fold.at(row)["file"]) for row in (second - 1, second)]
    assert files == [True, False]
    assert len({step.message for step in steps if step.message}) == 2
    assert "goodbye" not in render(steps[second - 1].caption)
