"""Following a live trace: whatever is read between two places is each row once, also after a restart."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.kept_rows import emit
from warrenmq.trace.events import Ev
from warrenmq.trace.index import rows_of
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.slab import Blocks
from warrenmq.trace.tail import Tail, read_parts

EMITS, LOOKS, RESTARTS, ENDS = "emit", "look", "restart", "end"

steps = st.lists(
    st.one_of(
        st.tuples(st.just(EMITS), st.integers(0, 4), st.integers(1, 60)),
        st.tuples(st.just(ENDS), st.integers(0, 4), st.just(0)),
        st.tuples(st.sampled_from([LOOKS, RESTARTS]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def read(tail, start, end):
    parts, damage = tail.parts(start, end)
    assert damage == []
    keys = list(tail.runs)
    numbers = {key: at for at, key in enumerate(keys)}
    return [
        (keys[chunk.run], row[8] >> 16, row[1], row[2])
        for chunk, columns in read_parts(parts, numbers)
        for row in rows_of(columns)
    ]


def written(recorder_name, actors):
    return [
        (f"{recorder_name}-warrenmq-0", actor, seq, seq * 7)
        for actor, n in actors.items()
        for seq in range(1, n + 1)
    ]


@settings(max_examples=60, deadline=None)
@given(steps, st.booleans())
def test_each_row_comes_once_whenever_one_looks_and_restarts(tmp_path_factory, steps, closes):
    folder = str(tmp_path_factory.mktemp("trace"))
    recorder = Recorder(folder, run="one", segment_bytes=900)
    traces, counts, got = {}, {}, []
    tail, place = Tail(folder), {}
    for what, actor, n in [*steps, (LOOKS, 0, 0)]:
        if what == EMITS:
            if actor not in traces:
                traces[actor] = recorder.actor(f"actor {actor}", "Kind")
                counts[traces[actor].id] = 0
            for _ in range(n):
                counts[traces[actor].id] += 1
                emit(traces[actor], int(Ev.SEND), msg=7 * counts[traces[actor].id])
        elif what == ENDS:
            if actor in traces:
                traces.pop(actor).close()
        else:
            if what == RESTARTS:
                tail, place = Tail(folder), json.loads(json.dumps(place))
            end = tail.look(place)
            got += read(tail, place, end)
            place = end
            assert sorted(got) == written("one", counts)
    if closes:
        recorder.close()
    end = tail.look(place)
    assert read(tail, place, end) == []
    assert sorted(read(Tail(folder), {}, tail.look({}))) == written("one", counts)


def test_rows_of_a_slab_are_found_again_after_they_moved(tmp_path):
    """A restart reads between two old places: what was in the slab then is in a segment now."""
    recorder = Recorder(tmp_path, run="one")
    actor = recorder.actor("a", "Kind")
    places = [{}]
    for _ in range(5):
        for _ in range(9):
            emit(actor, int(Ev.SEND), msg=1)
        places.append(Tail(str(tmp_path)).look(places[-1]))
    recorder.close()
    later = Tail(str(tmp_path))
    seqs = [[row[2] for row in read(later, one, two)] for one, two in itertools.pairwise(places)]
    assert seqs == [list(range(at, at + 9)) for at in range(1, 46, 9)]


def test_a_place_forgets_what_is_finished(tmp_path):
    recorder = Recorder(tmp_path, run="one", segment_bytes=700)
    for number in range(50):
        actor = recorder.actor(f"actor {number}", "Kind")
        emit(actor, int(Ev.ACTOR_STOP))
        actor.close()
    recorder.close()
    tail, place = Tail(str(tmp_path)), {}
    for _ in range(2):
        place = tail.look(place)
    run = place["one-warrenmq-0"]
    assert (run["files"], run["rows"], run["closed"]) == ({"0": len(list(tmp_path.glob("*.wtr")))}, {}, True)
    assert run["t"] == run["settled"]
    assert tail.look(place) == place


def test_rows_seen_by_one_look_are_settled_by_the_next(tmp_path):
    recorder = Recorder(tmp_path, run="one")
    actor = recorder.actor("a", "Kind")
    emit(actor, int(Ev.SEND))
    tail = Tail(str(tmp_path))
    first = tail.look({})
    emit(actor, int(Ev.SEND))
    second = tail.look(first)
    assert second["one-warrenmq-0"]["settled"] == first["one-warrenmq-0"]["t"] < second["one-warrenmq-0"]["t"]


def test_runs_keep_their_numbers(tmp_path):
    place = {}
    for name in ("b", "a", "c"):
        Recorder(tmp_path, run=name)
        place = Tail(str(tmp_path)).look(place)
    assert [place[f"{name}-warrenmq-0"]["n"] for name in "bac"] == [0, 1, 2]


def test_damage_in_between_is_reported_and_skipped(tmp_path):
    recorder = Recorder(tmp_path, run="one")
    actor = recorder.actor("a", "Kind")
    for _ in range(64):
        emit(actor, int(Ev.SEND))
    recorder.close()
    segment = next(tmp_path.glob("*.wtr"))
    content = bytearray(segment.read_bytes())
    second = content.index(b"WTRB", content.index(b"WTRB") + 1)
    content[second + 60] ^= 0xFF
    segment.write_bytes(content)
    tail = Tail(str(tmp_path))
    parts, damage = tail.parts({}, tail.look({}))
    assert [found.offset for found in damage] == [second]
    assert parts


def test_a_row_that_is_being_written_waits_for_the_next_look(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, run="one")
    actor = recorder.actor("a", "Kind")
    emit(actor, int(Ev.SEND))
    tail = Tail(str(tmp_path))
    changed = Blocks.changed

    def written_meanwhile(blocks, body, before=b""):  # between the two readings of a block
        emit(actor, int(Ev.SEND))
        return changed(blocks, body, before)

    with monkeypatch.context() as patch:
        patch.setattr(Blocks, "changed", written_meanwhile)
        end = tail.look({})
    assert end["one-warrenmq-0"]["rows"] == {"1": [1, 1]}
    assert tail.look(end)["one-warrenmq-0"]["rows"] == {"1": [1, 2]}


def test_a_look_parses_only_what_is_new(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, run="one")
    actors = [recorder.actor(f"actor {number}", "Kind") for number in range(200)]
    for actor in actors:
        emit(actor, int(Ev.SEND))
    tail, parsed, parse = Tail(str(tmp_path)), [], Blocks.parse
    place = tail.look({})
    emit(actors[7], int(Ev.SEND))
    monkeypatch.setattr(Blocks, "parse", lambda *block: parsed.append(block) or parse(*block))
    after = tail.look(place)
    assert [(actor, seq) for _, actor, seq, _ in read(tail, place, after)] == [(8, 2)]
    assert len(parsed) == 1


def test_a_pattern_names_also_what_comes_later(tmp_path):
    tail, place = Tail(str(tmp_path / "*")), {}
    for name in ("one", "two"):
        recorder = Recorder(tmp_path / name, run=name)
        emit(recorder.actor("a", "Kind"), int(Ev.SEND))
        before, place = place, tail.look(place)
        assert [seq for _, _, seq, _ in read(tail, before, place)] == [1]
        recorder.close()


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_where_nothing_is_there_is_nothing_to_read(tmp_path, name):
    (tmp_path / "empty").mkdir()
    assert Tail(str(tmp_path / name)).look({}) == {}
