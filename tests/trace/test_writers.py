"""A writer writes the row that its event's columns make, however its arguments are given."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from tests.support.interrupted_calls import signalled
from tests.support.kept_rows import KeptRows
from warrenmq.trace.clock import SystemClock
from warrenmq.trace.events import Ack, Confirm, Drop, Lock, Publish, is_checked
from warrenmq.trace.reader import open_memory
from warrenmq.trace.recorder import Recorder
from warrenmq.trace.schema import EVENTS, STORED, Column, row_of
from warrenmq.trace.sink import MemorySink
from warrenmq.trace.slab import SIZES
from warrenmq.trace.writers import writer


def some(rng: Random, column: Column) -> int:
    """A value as wide as the column is; a whole column takes signed and unsigned 64-bit numbers."""
    if column.mask > 0:
        return rng.randint(0, column.mask)
    return rng.choice((0, -1, 1 << 63, rng.getrandbits(64), -rng.getrandbits(63), rng.getrandbits(20)))


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.name)
def test_a_row_holds_what_its_writer_was_given(event):
    rng = Random(event.number)
    for _ in range(20):
        values = {column.name: some(rng, column) for column in event.columns}
        trace, by_place = KeptRows(actor=7), rng.randint(0, len(values))
        named = dict([*values.items()][by_place:])
        seq = writer(event)(trace, *[*values.values()][:by_place], **named)
        (row,) = trace.rows()
        stored = row_of(event, actor=7, seq=seq, **values)
        assert (seq, row.seq, row.who) == (1, 1, stored.who)
        for place in STORED:
            assert (getattr(row, place) - getattr(stored, place)) % (1 << 64) == 0


@pytest.mark.parametrize("event", [Confirm, Ack, Drop, Lock])
def test_columns_with_a_default_may_be_left_out_others_must_be_given(event):
    trace, needed = KeptRows(), sum(column.default is None for column in event.columns)
    writer(event)(trace, *range(1, needed + 1))
    row = event.of(trace.rows()[0])
    assert [getattr(row, column.name) or 0 for column in event.columns] == [
        *range(1, needed + 1), *[0] * (len(event.columns) - needed),
    ]  # fmt: skip
    for wrong in (range(needed - 1), range(len(event.columns) + 1)):
        with pytest.raises(TypeError):
            writer(event)(trace, *wrong)
    with pytest.raises(TypeError):
        writer(event)(trace, *range(needed), nothing=1)


@pytest.mark.parametrize("event", [Ack, Drop])
def test_a_value_that_is_too_wide_leaves_those_beside_it_alone(event):
    trace, needed = KeptRows(), sum(column.default is None for column in event.columns)
    writer(event)(trace, *[0] * needed, consumer=5, delivery_tag=(1 << 32) + 6)
    row = event.of(trace.rows()[0])
    assert (row.consumer, row.delivery_tag) == (5, 6)


@pytest.mark.parametrize("count", [1, 7, 64, 65, 500, 512, 1024, 5000])
def test_a_sixteenth_of_all_messages_are_in_rows_with_a_checksum(count):
    rows = range(0, 1 << 21, count)
    assert 0.05 < sum(is_checked(first, count) for first in rows) / len(rows) < 0.08
    assert is_checked(0, count)


@pytest.mark.parametrize("raises", [True, False])
def test_a_row_that_a_signal_comes_upon_is_there_and_counted_or_not(raises):
    """Also where the slab is full and its rows go to the segment file, and if the handler writes a row as well."""
    write, came, number = writer(Publish), True, 0
    while came:
        number += 1
        sink = MemorySink()
        writing = Recorder(sink, run="r", node="n", clock=SystemClock())
        actor = writing.actor("a", "K")
        numbers = count(1)
        for _ in range(SIZES[0] - 2):
            write(actor, 0, next(numbers), publisher=0, send=0, first_seq_id=0, count=1)

        def act(actor=actor, numbers=numbers):
            write(actor, 0, next(numbers), publisher=0, send=0, first_seq_id=0, count=1)

        def handler(act=act):
            if raises:
                raise KeyboardInterrupt
            act()

        def many(act=act):
            for _ in range(4):
                act()

        came = signalled(number, many, handler)
        many()
        writing.close()
        with open_memory(sink.files()) as trace:
            rows = [row for chunk in trace.catalog.chunks for row in trace.rows(chunk)]
        assert [row[1] for row in rows] == [*range(1, actor.seq + 1)], number
        assert [row[0] for row in rows] == sorted({row[0] for row in rows}), number
        if not raises:
            assert {row[2] for row in rows} == {*range(1, next(numbers))}, number
    assert number > 20
