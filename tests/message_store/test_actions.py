"""The decision tables of the store, row by row.

Source: docs/reference/message-store.md#the-end-of-a-client, #write-action, #remove-action and
#when-a-combine-is-due.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.message_store import state as state_module
from warrenmq.message_store.actions import (
    REMOVE_TABLE,
    WRITE_TABLE,
    FileState,
    Mask,
    Place,
    Refs,
    RemoveAction,
    WriteAction,
    mask,
    refs_of,
    remove_action,
    write_action,
)
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.flying import processes_write
from warrenmq.message_store.gc_plan import (
    find_file_to_compact,
    find_files_to_combine,
    find_files_to_reclaim,
    garbage_is_due,
    is_mostly_garbage,
)
from warrenmq.message_store.state import MsgStoreState
from warrenmq.message_store.tables import Client

DEATH = Place(3, 100)


@pytest.mark.parametrize(
    ("died_at", "entry", "expected"),
    [
        (None, None, Mask.NONE),
        (None, (0, 9, 0, 30), Mask.NONE),
        (DEATH, None, Mask.ALL),
        (DEATH, (1, 3, 101, 30), Mask.ALL),
        (DEATH, (1, 4, 0, 30), Mask.ALL),
        (DEATH, (1, 3, 100, 30), Mask.NONE),  # the place itself counts as older (3.6.4 and later)
        (DEATH, (1, 2, 900, 30), Mask.NONE),
        (DEATH, (0, 2, 900, 30), Mask.IF_INCREMENT),
        (DEATH, (0, 3, 100, 30), Mask.IF_INCREMENT),
    ],
)
def test_the_table_of_what_a_dying_client_may_do(died_at, entry, expected) -> None:
    assert mask(died_at, entry) is expected


CASES = list(product(Mask, Refs, FileState))


@pytest.mark.parametrize("table", [WRITE_TABLE, REMOVE_TABLE], ids=["write", "remove"])
def test_a_table_has_one_row_for_every_case(table) -> None:
    for case in CASES:
        rows = [
            row for row in table if all(each in wanted for each, wanted in zip(case, row[:3], strict=True))
        ]
        assert len(rows) == 1, case


def test_decisions_are_the_rows_of_the_tables() -> None:
    for masks, references, files, action in WRITE_TABLE:
        assert {write_action(*case) for case in product(masks, references, files)} == {action}
    for masks, references, files, action in REMOVE_TABLE:
        for case in product(masks, references, files):
            if action is RemoveAction.REFUSE:
                with pytest.raises(ValueError, match="does not hold"):
                    remove_action(*case)
            else:
                assert remove_action(*case) is action


@pytest.mark.parametrize(
    ("entry", "refs"),
    [
        (None, Refs.NO_ENTRY),
        ((0, 1, 0, 30), Refs.ZERO),
        ((1, 1, 0, 30), Refs.ONE),
        ((2, 1, 0, 30), Refs.MORE),
    ],
)
def test_references_are_read_off_an_entry(entry, refs) -> None:
    assert refs_of(entry) is refs


@given(st.none() | st.integers(-5, 5), st.sampled_from([None, DEATH]),
       st.none() | st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 200), st.just(30)), st.sampled_from(FileState))  # fmt: skip
def test_the_inlined_write_follows_the_table(value, died_at, entry, file) -> None:
    """MsgStoreState._write, with everything around its decision left out."""
    by_table = (
        write_action(mask(died_at, entry), refs_of(entry), file)
        if processes_write(value)
        else WriteAction.IGNORE
    )
    state = MagicMock()
    state.writer.disk_full, state.writer.left = False, []
    state.tables.index.lookup.return_value = entry
    state.tables.flying.handle_writes_one_by_one.return_value = [value]
    state.gc.file_state.return_value = file
    state._write_action = partial(MsgStoreState._write_action, state)
    batch = [(b"i" * 16, b"body")]
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_module, "tell_write", lambda *row: told.append(row[4]))
        MsgStoreState._write(state, Client(b"c", "q", wants_confirms=True, died_at=died_at), batch, batch)
    assert told == [by_table]


@pytest.mark.parametrize(
    ("valid", "size", "at_gc", "due"),
    [
        (0, 200, 0, False),  # not more than twice the limit
        (100, 201, 0, True),
        (101, 201, 0, False),  # half and a bit is alive
        (150, 300, 0, False),  # exactly half is garbage: strict
        (149, 300, 0, True),
        (0, 1000, 3, True),
        (0, 1000, 4, False),
        (0, 0, 0, False),
    ],
)
def test_when_a_combine_is_due(valid, size, at_gc, due) -> None:
    assert garbage_is_due(valid, size, 100, at_gc) is due


def summary(*valid: int, locked: tuple[int, ...] = ()) -> FileSummary:
    files = FileSummary()
    for number, bytes_ in enumerate(valid):
        files.add(number)
        files.resize(number, valid=bytes_, size=100)
    for number in locked:
        files.lock_file(number)
    return files


@pytest.mark.parametrize(
    ("files", "pair"),
    [
        (summary(10), None),
        (summary(10, 10), None),  # the second is the current file
        (summary(10, 10, 10), (0, 1)),
        (summary(60, 40, 10), (0, 1)),
        (summary(60, 41, 10), None),
        (summary(60, 41, 10, 10), (1, 2)),
        (summary(0, 10, 10, 10), (1, 2)),
        (summary(10, 0, 10, 10, 10), (2, 3)),  # only neighbours
        (summary(10, 10, 10, 10, locked=(0,)), (1, 2)),
        (summary(10, 10, 10, 10, 10, locked=(1,)), (2, 3)),
    ],
)
def test_which_files_are_combined(files, pair) -> None:
    assert find_files_to_combine(files, 100) == pair


@pytest.mark.parametrize(
    ("valid", "size", "mostly"), [(0, 0, False), (0, 1, True), (50, 100, False), (49, 100, True)]
)
def test_a_file_is_mostly_garbage_when_more_than_half_of_it_is(valid, size, mostly) -> None:
    assert is_mostly_garbage(valid, size) is mostly


@pytest.mark.parametrize(
    ("files", "but", "file"),
    [
        (summary(10), (), None),  # the current file
        (summary(50, 10), (), None),
        (summary(49, 10), (), 0),
        (summary(49, 30, 40, 0), (), 1),  # the one with the most
        (summary(49, 30, 40, 0), (1,), 2),
        (summary(0, 30, 40, 0), (), 1),  # 0 is being deleted
        (summary(20, 30, 40, 0, locked=(0,)), (), 1),
    ],
)
def test_which_file_is_compacted(files, but, file) -> None:
    assert find_file_to_compact(files, but) == file


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (summary(60, 60, 10), None),
        (summary(10, 60, 10), (0, 1)),
        (summary(60, 10, 60, 10), (1, 2)),  # to the right first
        (summary(60, 10, 95, 10), (0, 1)),
        (summary(10, 95, 10), (0,)),  # no neighbour has room, and 2 is the current file
        (summary(95, 10, 95, 10), (1,)),
        (summary(60, 10, 60, 10, locked=(2,)), (0, 1)),
        (summary(60, 10, 60, 10, locked=(0, 2)), (1,)),
        (summary(60, 10, 0, 10), (0, 1)),  # 2 is being deleted
        (summary(40, 10, 10), (0, 1)),
    ],
)
def test_the_timer_chooses_which_files_are_combined(files, chosen) -> None:
    assert find_files_to_reclaim(files, 100) == chosen
