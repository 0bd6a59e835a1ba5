"""Rows, empty places, half-written places and damage in a slab file are distinguished."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kept_rows import emit
from warrenmq.trace.block import ROW
from warrenmq.trace.events import Append, Confirm
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.row_check import SLAB_ROW, mix, mixed, row_check
from warrenmq.trace.sink import MemorySink
from warrenmq.trace.slab import EMPTY_ROW, HEAD_BYTES, read_slabs
from warrenmq.trace.writers import writer

confirm, append = writer(Confirm), writer(Append)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


def slab(rows: int = 5) -> bytearray:
    sink = MemorySink()
    recorder = Recorder(sink, run="1", boot=1)
    one, two = recorder.actor("one", "k"), recorder.actor("two", "k")
    for number in range(rows):
        if number % 2:
            emit(one, 1 + number, number, 1 << 40, a=-1, b=number)  # all columns are checked
        else:
            confirm(one, 1, 1 << 40, first_seq_id=number, count=3)  # those of the event are
        append(two, (1 << 64) - number - 1, 0, 0, number, size=9)
    return bytearray(sink.files()["1-warrenmq-0.slab"])


def place(number: int) -> slice:
    return slice(HEAD_BYTES + number * ROW.size, HEAD_BYTES + (number + 1) * ROW.size)


@given(st.tuples(*[int64s] * 8, st.integers(0, 255), st.integers(0, 255), st.integers(1, 1 << 32)))
def test_the_check_is_the_same_in_every_python(row):
    assert mixed(row) == mix(row)


@given(st.integers(0, 9), st.integers(0, ROW.size * 8 - 1))
def test_a_flipped_bit_is_found(number, bit):
    data = slab()
    begin = place(number if number < 5 else 11 + number).start  # the second actor's slab begins 16 places on
    data[begin + bit // 8] ^= 1 << bit % 8
    found = read_slabs(memoryview(data))
    assert found.lossy
    assert len(found.bad) + found.torn == 1
    assert sum(map(len, found.rows.values())) == 9 * ROW.size


def test_zeroed_pages_are_found():
    whole = slab(40)
    assert not read_slabs(memoryview(whole)).lossy
    rng = random.Random(1)
    for _ in range(50):
        data = bytearray(whole)
        begin = rng.randrange(HEAD_BYTES // 512, len(data) // 512) * 512
        size = rng.choice((512, 4096))
        data[begin : begin + size] = bytes(len(data[begin : begin + size]))
        assert read_slabs(memoryview(data)).lossy


@pytest.mark.parametrize("columns", range(9))
@pytest.mark.parametrize("rows", range(1, 16))
def test_a_half_written_row_is_skipped_and_nothing_else_is_lost(rows, columns):
    data = slab(rows)
    row = SLAB_ROW.pack(*range(7, 15), 1, 1, 1, row_check((*range(7, 15), 1, 1, 1)))
    data[place(rows)] = row[: 8 * columns].ljust(ROW.size, b"\0")
    found = read_slabs(memoryview(data))
    assert (found.lossy, found.torn, found.bad) == (False, 1, [])


@pytest.mark.parametrize("words", range(1, 9))
def test_a_half_emptied_slab_has_lost_nothing(words):
    data = slab()
    data[place(0)] = EMPTY_ROW
    data[place(1)] = EMPTY_ROW[: 8 * words] + bytes(data[place(1)])[8 * words :]
    found = read_slabs(memoryview(data))
    assert (found.lossy, found.torn, found.bad) == (False, 1, [])


def test_a_lost_last_chunk_is_noticed():
    data = slab()
    assert read_slabs(memoryview(data[:HEAD_BYTES])).lossy
