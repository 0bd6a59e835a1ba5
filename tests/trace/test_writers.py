"""A writer writes the row that its event's columns make, however its arguments are given."""

from __future__ import annotations

import inspect
import traceback
from random import Random

import pytest

from tests.support.kept_rows import KeptRows
from warrenmq.trace.events import Ack, Confirm, Drop, is_checked
from warrenmq.trace.schema import EVENTS, STORED, Column, row_of
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


@pytest.mark.parametrize(("event", "values", "left_out"), [(Confirm, 4, 0), (Ack, 5, 2), (Drop, 3, 5)])
def test_columns_with_a_default_may_be_left_out(event, values, left_out):
    trace = KeptRows()
    writer(event)(trace, *range(1, values + 1))
    assert [getattr(event.of(trace.rows()[0]), each.name) for each in event.columns] == [
        *range(1, values + 1), *[0] * left_out,
    ]  # fmt: skip
    for wrong in ((1,), (*range(len(event.columns) + 1),)):
        with pytest.raises(TypeError):
            writer(event)(trace, *wrong)
    with pytest.raises(TypeError):
        writer(event)(trace, *range(values), nothing=1)


def test_a_writer_tells_what_it_takes():
    assert [*inspect.signature(writer(Ack)).parameters] == ["trace", *(column.name for column in Ack.columns)]


def test_a_value_that_is_too_wide_leaves_those_beside_it_alone():
    trace = KeptRows()
    writer(Ack)(trace, 0, 1, 2, 3, 4, consumer=5, delivery_tag=(1 << 32) + 6)
    ack = Ack.of(trace.rows()[0])
    assert (ack.consumer, ack.delivery_tag) == (5, 6)


def test_a_traceback_shows_the_text_of_a_writer():
    with pytest.raises(TypeError) as raised:
        writer(Confirm)(KeptRows(), 0, 1, 2, "three")
    assert any(
        frame.filename == "<writer of CONFIRM>" and "trace.write_unsigned(" in (frame.line or "")
        for frame in traceback.extract_tb(raised.value.__traceback__)
    )


@pytest.mark.parametrize("count", [1, 7, 64, 65, 500, 512, 1024, 5000])
def test_a_sixteenth_of_all_messages_are_in_rows_with_a_checksum(count):
    rows = range(0, 1 << 21, count)
    assert 0.05 < sum(is_checked(first, count) for first in rows) / len(rows) < 0.08
    assert is_checked(0, count)
