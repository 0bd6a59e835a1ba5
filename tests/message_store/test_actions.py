"""The decision tables of the store, row by row.

Source: docs/reference/message-store.md#the-end-of-a-client, #write-action, #remove-action and
#when-a-combine-is-due.
"""

from __future__ import annotations

import pytest

from warrenmq.message_store.actions import (
    FileState,
    Mask,
    Place,
    RemoveAction,
    WriteAction,
    mask,
    remove_action,
    write_action,
)
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.gc_plan import (
    find_file_to_compact,
    find_files_to_combine,
    find_files_to_reclaim,
    garbage_is_due,
    is_mostly_garbage,
)

ANY_FILE = list(FileState)
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
def test_what_a_dying_client_may_still_do(died_at, entry, expected) -> None:
    assert mask(died_at, entry) is expected


@pytest.mark.parametrize(
    ("masked", "refs", "files", "expected"),
    [
        (Mask.ALL, None, ANY_FILE, WriteAction.IGNORE),
        (Mask.ALL, 0, ANY_FILE, WriteAction.IGNORE),
        (Mask.ALL, 2, ANY_FILE, WriteAction.IGNORE),
        (Mask.NONE, None, ANY_FILE, WriteAction.WRITE),
        (Mask.NONE, 0, [FileState.LOCKED], WriteAction.REWRITE),
        (Mask.IF_INCREMENT, 0, [FileState.LOCKED], WriteAction.IGNORE),
        (Mask.NONE, 0, [FileState.UNLOCKED], WriteAction.REVIVE),
        (Mask.IF_INCREMENT, 0, [FileState.UNLOCKED], WriteAction.REVIVE),
        (Mask.NONE, 0, [FileState.GONE], WriteAction.REWRITE),
        (Mask.IF_INCREMENT, 0, [FileState.GONE], WriteAction.IGNORE),
        (Mask.NONE, 1, ANY_FILE, WriteAction.COUNT),
        (Mask.NONE, 7, ANY_FILE, WriteAction.COUNT),
        (Mask.IF_INCREMENT, 1, ANY_FILE, WriteAction.COUNT),
    ],
)
def test_the_write_action_table(masked, refs, files, expected) -> None:
    for file in files:
        assert write_action(masked, refs, file) is expected


@pytest.mark.parametrize(
    ("masked", "refs", "files", "expected"),
    [
        (Mask.ALL, None, ANY_FILE, RemoveAction.IGNORE),
        (Mask.ALL, 0, ANY_FILE, RemoveAction.IGNORE),
        (Mask.ALL, 1, ANY_FILE, RemoveAction.IGNORE),
        (Mask.IF_INCREMENT, 0, ANY_FILE, RemoveAction.IGNORE),
        (Mask.NONE, 2, ANY_FILE, RemoveAction.COUNT),
        (Mask.IF_INCREMENT, 3, ANY_FILE, RemoveAction.COUNT),
        (Mask.NONE, 1, [FileState.LOCKED], RemoveAction.DEFER),
        (Mask.NONE, 1, [FileState.UNLOCKED], RemoveAction.LAST),
        (Mask.IF_INCREMENT, 1, [FileState.UNLOCKED], RemoveAction.LAST),
    ],
)
def test_the_remove_action_table(masked, refs, files, expected) -> None:
    for file in files:
        assert remove_action(masked, refs, file) is expected


@pytest.mark.parametrize("refs", [None, 0])
def test_removing_what_nobody_holds_is_the_callers_error(refs) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        remove_action(Mask.NONE, refs, FileState.UNLOCKED)


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
def test_what_is_mostly_garbage(valid, size, mostly) -> None:
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
def test_what_is_combined_when_the_clock_says_so(files, chosen) -> None:
    assert find_files_to_reclaim(files, 100) == chosen
