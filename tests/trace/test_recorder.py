"""The recorder and the reader: every row comes back, whatever became of the process and of the files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np  # noqa: F401 - loaded: see without_numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import old_frames
from tests.support.kept_rows import emit
from warrenmq.errors import CallerError
from warrenmq.trace import slab as slabs
from warrenmq.trace.block import FRAME, ROW, Frame, decode_columns, encode_meta, encode_rows, frame_at
from warrenmq.trace.catalog import FOREVER
from warrenmq.trace.clock import SteppingClock
from warrenmq.trace.events import Ev
from warrenmq.trace.reader import NotATrace, Trace, open_memory, open_trace
from warrenmq.trace.recorder import ActorTrace, Recorder
from warrenmq.trace.row_check import SLAB_ROW
from warrenmq.trace.schema import COLUMNS
from warrenmq.trace.segment import decode_header, encode_header
from warrenmq.trace.sink import MemorySink


class Still:
    """A clock that stands still."""

    def monotonic_ns(self) -> int:
        return 1_000

    def wall_ns(self) -> int:
        return 5_000


def recorder(sink: MemorySink, segment_bytes: int = 1 << 20) -> Recorder:
    return Recorder(sink, run="r", node="n", clock=Still(), segment_bytes=segment_bytes)


def one_actor(rows: int = 0) -> tuple[MemorySink, Recorder, ActorTrace]:
    """A recorder and its only actor, a, which has written so many rows."""
    sink = MemorySink()
    writing = recorder(sink)
    actor = writing.actor("a", "K")
    for i in range(rows):
        emit(actor, Ev.SEND, a=i)
    return sink, writing, actor


def rows_by_actor(trace: Trace) -> dict[str, list[tuple[int, ...]]]:
    found: dict[str, list[tuple[int, ...]]] = {}
    for chunk in trace.catalog.chunks:
        found.setdefault(trace.catalog.runs[chunk.run].actor_name(chunk.actor), []).extend(trace.rows(chunk))
    return found


int64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 255), st.integers(0, 255), int64, int64, int64),
        max_size=300,
    ),
    st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_every_row_is_read_whether_the_recorder_was_closed_or_not(
    events: list[tuple[int, int, int, int, int, int]], close: bool
) -> None:
    sink = MemorySink()
    writing = recorder(sink, segment_bytes=2_000)
    actors = [writing.actor(f"actor {i}", "Kind", i) for i in range(4)]
    emitted: dict[str, list[tuple[int, ...]]] = {}
    for actor, event, flag, msg, a, c in events:
        seq = emit(actors[actor], event, flag, msg=msg, peer=3, pseq=4, a=a, b=5, c=c)
        emitted.setdefault(f"actor {actor}", []).append(
            (actors[actor].last_t, seq, msg, 3, 4, a, 5, c, actors[actor].id << 16 | event << 8 | flag)
        )
    if close:
        writing.close()
    with open_memory(sink.files()) as trace:
        assert rows_by_actor(trace) == emitted
        assert all(coverage.complete for coverage in trace.catalog.coverage.values())
        assert trace.catalog.runs[0].closed is close
        assert not trace.catalog.overlaps
        assert trace.catalog.runs[0].actors[2] == ("actor 1", "Kind", 1)


def test_the_same_events_give_the_same_bytes() -> None:
    def bytes_of_a_run() -> dict[str, bytes]:
        sink = MemorySink()
        writing = recorder(sink, segment_bytes=5_000)
        actors = [writing.actor(f"a{i}", "K") for i in range(3)]
        writing.kind(int)
        for i in range(2_000):
            emit(actors[i % 3], Ev.SEND, 1, msg=i, a=i * i)
        return sink.files()

    assert bytes_of_a_run() == bytes_of_a_run()


def test_unsigned_numbers_are_kept_as_the_same_bits() -> None:
    sink = MemorySink()
    actor = recorder(sink).actor("a", "K")
    emit(actor, Ev.SEND, msg=(1 << 64) - 1, a=1 << 63)
    with open_memory(sink.files()) as trace:
        (row,) = rows_by_actor(trace)["a"]
        assert (row[2], row[5]) == (-1, -(1 << 63))


def test_time_rises_within_an_actor_and_across_messages_although_the_clock_stands_still() -> None:
    sink = MemorySink()
    writing = recorder(sink)
    sender, receiver = writing.actor("s", "K"), writing.actor("r", "K")
    for _ in range(10):
        emit(sender, Ev.SEND)
    receiver.observe(sender.last_t)
    emit(receiver, Ev.RECV, peer=sender.id, pseq=10)
    assert receiver.last_t > sender.last_t
    with open_memory(sink.files()) as trace:
        times = [row[0] for row in rows_by_actor(trace)["s"]]
        assert times == sorted(set(times))


def test_a_stepping_clock_never_stands_still() -> None:
    clock = SteppingClock(Still())
    assert [clock.monotonic_ns() for _ in range(3)] == [1000, 1001, 1002]
    assert clock.wall_ns() == 5_000


def test_segments_rotate_and_each_can_be_read_alone() -> None:
    sink = MemorySink()
    writing = recorder(sink, segment_bytes=4_000)
    actor = writing.actor("early", "K")
    for i in range(20_000):
        emit(actor, Ev.SEND, a=i * 7919)
    emit(writing.actor("late", "K"), Ev.SEND)
    writing.close()
    files = sink.files()
    assert len(files) > 5
    assert not any(name.endswith(".slab") for name in files)
    name = sorted(files)[3]
    with open_memory({name: files[name]}) as trace:
        assert trace.catalog.runs[0].actors[1].name == "early"
        coverage = trace.catalog.coverage[0, 1]
        assert not coverage.complete
        assert coverage.missing[0][0] == 1


def test_a_missing_segment_is_a_gap_and_a_missing_last_one_an_unknown_end() -> None:
    sink = MemorySink()
    writing = recorder(sink, segment_bytes=4_000)
    actor = writing.actor("a", "K")
    for i in range(20_000):
        emit(actor, Ev.SEND, a=i * 7919)
    writing.close()
    files = sink.files()
    names = sorted(files)
    with open_memory({name: files[name] for name in names if name != names[2]}) as trace:
        coverage = trace.catalog.coverage[0, 1]
        assert len(coverage.missing) == 1
        assert 0 < coverage.known_until < FOREVER
    with open_memory({name: files[name] for name in names[:-1]}) as trace:
        coverage = trace.catalog.coverage[0, 1]
        assert not coverage.missing
        assert not coverage.end_known


def test_an_actor_whose_last_row_says_so_is_complete_even_without_the_end_of_the_trace() -> None:
    sink, _, actor = one_actor()
    emit(actor, Ev.ACTOR_STOP)
    actor.close()
    (name,) = [name for name in sink.files() if name.endswith(".wtr")]
    with open_memory({name: sink.files()[name]}) as trace:
        assert trace.catalog.coverage[0, 1].complete
        assert trace.catalog.coverage[0, 1].stopped


def test_cut_at_any_byte_a_closed_trace_is_read_up_to_there_and_never_called_complete() -> None:
    sink, writing, _ = one_actor(40)
    writing.close()
    ((name, whole),) = sink.files().items()
    with open_memory({name: whole}) as trace:
        everything = rows_by_actor(trace)["a"]
    read = set()
    for size in range(len(whole)):
        try:
            trace = open_memory({name: whole[:size]})
        except NotATrace:
            continue
        rows = rows_by_actor(trace).get("a", [])
        read.add(len(rows))
        assert rows == everything[: len(rows)]
        assert not any(coverage.complete for coverage in trace.catalog.coverage.values())
        damaged = sum(damage.size for damage in trace.catalog.damage)
        assert 0 <= damaged <= size
    assert read == {0, 16, 40}


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_any_damaged_byte_is_noticed_and_costs_at_most_its_own_frame(data: st.DataObject) -> None:
    sink, writing, _ = one_actor(400)
    writing.close()
    ((name, whole),) = sink.files().items()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        trace = open_memory({name: bytes(damaged)})
    except NotATrace:
        head = decode_header(memoryview(whole))
        assert at < head[1]
        return
    rows = rows_by_actor(trace).get("a", rows_by_actor(trace).get("?1", []))
    assert len(rows) >= 400 - 256
    coverage = trace.catalog.coverage.get((0, 1))
    assert coverage is None or not coverage.complete or len(rows) == 400
    assert trace.catalog.damage


def test_a_row_torn_by_the_kill_is_not_read() -> None:
    sink, _, _ = one_actor(5)
    files = {name: bytearray(content) for name, content in sink.files().items()}
    (name,) = [name for name in files if name.endswith(".slab")]
    for cut in range(1, ROW.size):
        content = bytearray(files[name])
        at = next(
            at
            for at in range(slabs.HEAD_BYTES, len(content), ROW.size)
            if ROW.unpack_from(content, at)[1] == 5
        )
        torn_at = at + min(cut, ROW.size - 8)
        content[torn_at : at + ROW.size] = bytes(at + ROW.size - torn_at)
        with open_memory({**{n: bytes(c) for n, c in files.items()}, name: bytes(content)}) as trace:
            assert len(rows_by_actor(trace)["a"]) == 4
            assert trace.catalog.torn_rows == 1
            assert trace.catalog.coverage[0, 1].complete


def test_rows_that_are_in_the_segment_and_still_in_the_slab_are_read_once() -> None:
    """Killed between the append of a frame and the zeroing of the slab."""
    sink, _, actor = one_actor(15)
    before = sink.files()
    emit(actor, Ev.SEND, a=15)
    after = sink.files()
    assert len(before) == len(after) == 2
    mixed = {name: after[name] if name.endswith(".wtr") else before[name] for name in after}
    with open_memory(mixed) as trace:
        assert [row[1] for row in rows_by_actor(trace)["a"]] == list(range(1, 17))
        assert not trace.catalog.overlaps


def test_a_killed_process_loses_no_row(tmp_path: Path) -> None:
    script = """
import os, signal, sys, threading
from warrenmq.trace.events import Send
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.writers import writer
send = writer(Send)
r = Recorder(sys.argv[1], run="r", pid=7, segment_bytes=1 << 16)
def work(name, n):
    a = r.actor(name, "K")
    for i in range(n):
        send(a, 1, message=i, first_seq_id=n)
threads = [threading.Thread(target=work, args=(f"a{i}", 1000 * i + 17)) for i in range(5)]
[t.start() for t in threads]
[t.join() for t in threads]
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with open_trace(tmp_path) as trace:
        rows = rows_by_actor(trace)
        assert {name: len(its) for name, its in rows.items()} == {f"a{i}": 1000 * i + 17 for i in range(5)}
        assert all(coverage.complete for coverage in trace.catalog.coverage.values())
        assert not trace.catalog.runs[0].closed


def test_five_thousand_idle_actors_take_little_room(tmp_path: Path) -> None:
    writing = Recorder(tmp_path, run="r")
    actors = [writing.actor(f"queue {i}", "Q") for i in range(5_000)]
    for actor in actors:
        emit(actor, Ev.ACTOR_START)
    (name,) = [name for name in os.listdir(tmp_path) if name.endswith(".slab")]
    assert os.path.getsize(tmp_path / name) < 8 << 20
    writing.close()
    with open_trace(tmp_path) as trace:
        assert len(trace.catalog.chunks) == 5_000


def test_the_slab_of_an_actor_that_fills_it_quickly_grows_to_the_largest() -> None:
    sink = MemorySink()
    with closing(recorder(sink)) as writing:
        actor = writing.actor("busy", "K")
        for _ in range(sum(slabs.SIZES) + slabs.SIZES[-1]):
            emit(actor, Ev.SEND)
    with open_memory(sink.files()) as trace:
        assert [chunk.rows for chunk in trace.catalog.chunks] == [*slabs.SIZES, slabs.SIZES[-1]]


def test_slabs_of_busy_actors_stay_within_their_budget() -> None:
    sink = MemorySink()
    writing = recorder(sink)
    actors = [writing.actor(f"a{i}", "K") for i in range(600)]
    for actor in actors:
        for _ in range(200):
            emit(actor, Ev.SEND)
    slab = next(len(content) for name, content in sink.files().items() if name.endswith(".slab"))
    assert slab < slabs.LARGE_BUDGET + (600 * 1152) + 2 * slabs.CHUNK_BYTES


def test_slabs_of_ended_actors_are_used_again() -> None:
    sink = MemorySink()
    writing = recorder(sink)
    for i in range(3_000):
        actor = writing.actor(f"a{i}", "K")
        for _ in range(20):
            emit(actor, Ev.SEND)
        actor.close()
    slab = next(len(content) for name, content in sink.files().items() if name.endswith(".slab"))
    assert slab <= slabs.HEAD_BYTES + 2 * slabs.CHUNK_BYTES


def test_rows_written_after_the_end_are_not_read() -> None:
    sink, writing, actor = one_actor()
    emit(actor, Ev.SEND)
    writing.close()
    before = sink.files()
    for _ in range(100):
        emit(actor, Ev.SEND)
    actor.close()
    writing.close()
    assert sink.files() == before


def test_many_threads_write_one_trace(tmp_path: Path) -> None:
    writing = Recorder(tmp_path, run="r", segment_bytes=1 << 16)

    def work(number: int) -> None:
        actor = writing.actor(f"a{number}", "K")
        kind = writing.kind(type(f"Message{number % 3}", (), {}))
        for i in range(3_000):
            emit(actor, Ev.SEND, kind, a=i)
        actor.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writing.close()
    with open_trace(tmp_path) as trace:
        assert all(
            coverage.complete and coverage.rows == 3_000 for coverage in trace.catalog.coverage.values()
        )
        assert len(trace.catalog.runs[0].kinds) == 8


def test_a_full_disk_costs_rows_and_not_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = Recorder(tmp_path, run="r")
    actor = writing.actor("a", "K")
    for _ in range(16):
        emit(actor, Ev.SEND)

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("warrenmq.trace.segment.os.write", full)
        for _ in range(128):
            emit(actor, Ev.SEND)
    for _ in range(2_000):
        emit(actor, Ev.SEND)
    writing.close()
    assert writing.lost == 128
    with open_trace(tmp_path) as trace:
        coverage = trace.catalog.coverage[0, 1]
        assert coverage.missing == [(17, 144)]
        assert not coverage.end_known
        assert trace.catalog.runs[0].lossy


def test_a_folder_that_was_removed_stops_no_recorder(tmp_path: Path) -> None:
    writing = Recorder(tmp_path / "trace", run="r")
    emit(writing.actor("a", "K"), Ev.SEND)
    shutil.rmtree(tmp_path / "trace")
    writing.close()


def test_a_path_without_a_trace_is_refused_with_a_sentence(tmp_path: Path) -> None:
    for address in ("s3a://bucket/trace", "dbfs:/trace", "file:/trace"):
        with pytest.raises(NotATrace, match=f"{address} is an address: only"):
            open_trace(address)
    with pytest.raises(NotATrace, match="no such file"):
        open_trace(tmp_path / "nothing")
    with pytest.raises(NotATrace, match="is no trace"):
        open_trace(tmp_path)
    (tmp_path / "x.wtr").write_bytes(b"not a trace")
    with pytest.raises(NotATrace, match="whole header"):
        open_trace(tmp_path)


def test_a_pattern_names_traces_and_a_path_of_its_letters_comes_first(tmp_path: Path) -> None:
    for name in ("one", "two", "t*"):
        Recorder(tmp_path / name, run=name).close()
    for pattern, expected in (("*", {"one", "two", "t*"}), ("[ot][nw]?", {"one", "two"}), ("t*", {"t*"})):
        with open_trace(tmp_path / pattern) as trace:
            assert {run.name for run in trace.catalog.runs} == expected
    with pytest.raises(NotATrace, match=r"The folders in it do: name them all as .*/\*\.$"):
        open_trace(tmp_path)


def test_events_and_columns_of_a_later_version_are_passed_over() -> None:
    sink = MemorySink()
    writing = recorder(sink)
    emit(writing.actor("a", "K"), 200, 3, a=5)
    writing.close()
    with open_memory(sink.files()) as trace:
        assert trace.catalog.runs[0].event_name(200) == "?200"
        assert trace.catalog.runs[0].event_name(Ev.SEND) == "SEND"


INTEGERS = st.one_of(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.lists(st.tuples(*[INTEGERS] * len(COLUMNS)), min_size=1, max_size=40))
def test_rows_of_old_frames_come_back(rows: list[tuple[int, ...]]) -> None:
    raw = b"".join(ROW.pack(*row) for row in rows)
    for codec in (1, 2):
        assert decoded(old_frames.encode_rows(raw, codec)) == rows
    counted = [(t, number, *rest) for number, (t, _, *rest) in enumerate(rows, 7)]
    assert decoded(old_frames.encode_rows(b"".join(ROW.pack(*row) for row in counted), 3)) == counted


A_BYTE = st.integers(0, 255)


@given(
    st.lists(st.tuples(*[INTEGERS] * 7, A_BYTE, st.one_of(st.integers(3, 5), A_BYTE)), min_size=1, max_size=40),
    st.integers(1, (1 << 32) - 1),
    st.integers(1, 1 << 40),
)  # fmt: skip
def test_rows_of_a_slab_come_back_from_their_frame(
    rows: list[tuple[int, ...]], actor: int, first: int
) -> None:
    raw, there = b"", []
    for seq, (t, *columns, flag, event) in enumerate(rows, first):
        raw += SLAB_ROW.pack(t, seq, *columns, flag, event, actor, 0xABCD)
        there.append((t, seq, *columns, actor << 16 | event << 8 | flag))
    frame = encode_rows(raw)
    assert decoded(frame) == there
    with without_numpy():
        assert decoded(frame) == there
    some = decode_columns(known(frame), ("b", "t"))
    assert [list(column) for column in (some[0], some[6])] == [
        [row[0] for row in there],
        [row[6] for row in there],
    ]


@contextmanager
def without_numpy() -> Iterator[None]:
    """A process that has not loaded it sorts rows without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "numpy")
        yield


def known(frame: bytes) -> Frame:
    found = frame_at(memoryview(frame), 0)
    assert found is not None
    return found


def decoded(frame: bytes) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in decode_columns(known(frame))), strict=True))


def test_frames_are_found_again_after_garbage_that_looks_like_one() -> None:
    header = {
        "v": 1, "run": "r", "node": "n", "pid": 1, "boot": 1, "wall_ns": 0, "mono_ns": 0, "n": 1, "events": {},
        "actors": {1: ["a", "K", 0]}, "kinds": {},
    }  # fmt: skip
    row = ROW.pack(5, 1, 0, 0, 0, 0, 0, 0, 1 << 16 | 3 << 8)
    fake = FRAME.pack(b"WTRB", 1, 1, 0, 1 << 30, 0, 1, 1, 1, 1, 1) + b"WTRB" * 3
    body = (
        encode_header(header) + fake + old_frames.encode_rows(row) + b"WTR" + encode_meta({"kind": [1, "M"]})
    )
    with open_memory({"x.wtr": body}) as trace:
        assert [damage.size for damage in trace.catalog.damage] == [len(fake), 3]
        assert len(trace.catalog.chunks) == 1
        assert trace.catalog.runs[0].kinds == {1: "M"}


def test_rows_of_a_later_codec_are_refused_in_a_sentence():
    frame = old_frames.encode_rows(ROW.pack(*range(1, 10)), codec=2)
    later = bytearray(frame)
    later[5] = 5
    later[12:16] = bytes(4)
    later[12:16] = zlib.crc32(later).to_bytes(4, "little")
    found = frame_at(memoryview(bytes(later)), 0)
    assert found is not None
    with pytest.raises(CallerError, match="codec 5, which a later version of warrenmq writes"):
        decode_columns(found)
