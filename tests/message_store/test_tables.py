"""The tables that the store shares with its clients."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.message_store.kit import FOLDER, msg_id, new_disk
from warrenmq.message_store.cur_file_cache import CurFileCache
from warrenmq.message_store.file_handles import FileHandles
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.flying import FlyingTable, processes_remove, processes_write
from warrenmq.message_store.message_index import MessageIndex
from warrenmq.message_store.owner_refs import OwnerRefs

ONE, TWO, THREE = msg_id(1), msg_id(2), msg_id(3)


class TestFlying:
    @pytest.mark.parametrize(
        ("seen", "write", "remove"),
        [
            (None, False, False),
            (0, False, False),
            (1, True, False),
            (-1, False, True),
            (2, True, False),
            (-2, False, True),
        ],
    )
    def test_the_decision_table(self, seen, write, remove) -> None:
        assert processes_write(seen) is write
        assert processes_remove(seen) is remove

    @pytest.mark.parametrize(
        ("seen", "after_write", "after_remove"),
        [(None, None, None), (0, None, None), (1, None, 1), (-1, -1, None), (2, 1, 2), (-2, -2, -1)],
    )
    def test_the_row_afterwards(self, seen, after_write, after_remove) -> None:
        for handle, after in (("handle_writes", after_write), ("handle_removes", after_remove)):
            table = FlyingTable()
            if seen is not None:
                table.written(b"c", [ONE])
                table.removed(b"c", [ONE])
                for _ in range(abs(seen)):
                    (table.written if seen > 0 else table.removed)(b"c", [ONE])
            assert getattr(table, handle)(b"c", [ONE]) == [seen]
            assert table._rows.get(b"c", {}).get(ONE) == after

    @pytest.mark.parametrize(
        ("held", "history", "verdicts"),
        [
            (0, "W|w", "P"),
            (0, "WR|wr", "II"),
            (1, "RW|rw", "II"),
            (0, "WR|w|W|rw", "IIP"),  # removed while the remove of an ignored write is still on its way
            (1, "RW|r|R|wr", "IIP"),
            (0, "W|w|R|r", "PP"),
            (0, "WRWRW|wrwrw", "PIIII"),
        ],
    )
    def test_the_histories_of_the_reference(self, held, history, verdicts) -> None:
        """Capitals are sent by the client, small letters handled by the store."""
        table, refs, found = FlyingTable(), held, ""
        for step in history.replace("|", ""):
            match step:
                case "W":
                    table.written(b"c", [ONE])
                case "R":
                    table.removed(b"c", [ONE])
                case "w":
                    processed = processes_write(table.handle_writes(b"c", [ONE])[0])
                    refs += processed
                    found += "P" if processed else "I"
                case "r":
                    processed = processes_remove(table.handle_removes(b"c", [ONE])[0])
                    refs -= processed
                    found += "P" if processed else "I"
            assert refs >= 0
        assert refs == held + history.count("W") - history.count("R")
        assert found == verdicts
        assert len(table) == 0

    @given(st.lists(st.sampled_from("WRh"), max_size=40), st.integers(0, 2))
    def test_ignored_writes_and_removes_cancel_out_even_with_one_message_twice_in_a_queue(
        self, steps, held
    ) -> None:
        """No count falls below zero on the way, the sum is right at the end, and no row is left."""
        table, refs, mail, should_hold = FlyingTable(), held, [], held

        def handle() -> None:
            nonlocal refs
            if mail.pop(0) == "W":
                refs += processes_write(table.handle_writes(b"c", [ONE])[0])
            else:
                refs -= processes_remove(table.handle_removes(b"c", [ONE])[0])
            assert refs >= 0

        for step in steps:
            if step == "W":
                table.written(b"c", [ONE])
                mail.append("W")
                should_hold += 1
            elif step == "R" and should_hold:
                table.removed(b"c", [ONE])
                mail.append("R")
                should_hold -= 1
            elif mail:
                handle()
        while mail:
            handle()
        assert refs == should_hold
        assert len(table) == 0

    def test_clients_do_not_see_each_other_and_a_dead_one_is_forgotten(self) -> None:
        table = FlyingTable()
        table.written(b"c", [ONE, TWO])
        table.removed(b"d", [ONE])
        assert table.handle_writes(b"c", [ONE]) == [1]
        table.forget(b"c")
        assert table.handle_writes(b"c", [TWO]) == [None]
        assert table.handle_removes(b"d", [ONE]) == [-1]


class TestCurFileCache:
    def test_a_body_is_there_from_entering_until_its_file_is_left(self) -> None:
        cache = CurFileCache()
        cache.enter(b"c", [(ONE, b"1"), (TWO, b"2")])
        cache.handled(b"c", [])
        assert cache.get(ONE) == b"1"
        cache.enter(b"c", [(THREE, b"3")])
        cache.roll_over()
        assert cache.get(ONE) is None
        assert cache.get(THREE) == b"3"

    def test_a_message_elsewhere_is_dropped_once_no_write_of_it_is_unhandled(self) -> None:
        cache = CurFileCache()
        cache.enter(b"c", [(ONE, b"1")])
        cache.enter(b"d", [(ONE, b"1")])
        cache.handled(b"c", [ONE])
        assert cache.get(ONE) == b"1"
        cache.handled(b"d", [ONE])
        assert len(cache) == 0

    def test_entries_of_a_dead_client_go_and_those_that_others_need_stay(self) -> None:
        cache = CurFileCache()
        cache.enter(b"c", [(ONE, b"1"), (TWO, b"2"), (THREE, b"3")])
        cache.enter(b"d", [(TWO, b"2")])
        cache.abandon(b"c", lambda found: found == THREE)
        assert cache.get(ONE) is None
        assert cache.get(TWO) == b"2"
        assert cache.get(THREE) == b"3"
        cache.roll_over()
        assert len(cache) == 1
        cache.handled(b"d", [TWO])
        assert len(cache) == 0


class TestFileSummary:
    def test_files_form_a_row_and_neighbours_close_a_gap(self) -> None:
        files = FileSummary()
        for number in (0, 1, 5):
            files.add(number)
        assert [(row.left, row.right) for row in files.rows.values()] == [(None, 1), (0, 5), (1, None)]
        files.remove(1)
        assert [(row.left, row.right) for row in files.rows.values()] == [(None, 5), (0, None)]
        files.remove(0)
        assert files.rows[5].left is None
        assert files.current == 5

    def test_sums_follow_every_change(self) -> None:
        files = FileSummary()
        files.add(0)
        files.appended(ONE, 30)
        files.appended(TWO, 50)
        files.add(1)
        files.appended(THREE, 40)
        files.add_valid(0, -30)
        assert (files.sum_valid_data, files.sum_file_size) == (90, 120)
        files.resize(0, valid=50, size=50)
        assert (files.sum_valid_data, files.sum_file_size) == (90, 90)
        files.remove(0)
        assert (files.sum_valid_data, files.sum_file_size) == (40, 40)

    def test_no_direct_read_begins_in_a_locked_a_missing_or_the_current_file(self) -> None:
        files = three_files(b"c")
        assert files.begin_read(0, b"c")
        assert not files.begin_read(2, b"c")
        assert not files.begin_read(7, b"c")
        files.lock_file(0)
        assert not files.begin_read(0, b"c")
        assert files.await_readers([1, 0], None) == 0

    def test_files_that_are_compacted_in_place_are_read_whatever_happens_to_them(self) -> None:
        files = three_files(b"c")
        files.in_place = True
        files.lock_file(0)
        assert [files.begin_read(number, b"c") for number in (0, 2, 7)] == [1, 2, 0]

    def test_the_last_reader_that_the_collector_waits_for_tells_it(self) -> None:
        files = three_files(b"c", b"d")
        for reader in (b"c", b"c", b"d"):
            files.begin_read(0, reader)
        assert not files.end_read(0, b"c")
        files.lock_file(0)
        assert files.await_readers([0, 1], None) == 0
        assert not files.end_read(0, b"c")
        assert files.end_read(0, b"d")
        assert files.await_readers([0, 1], None) is None
        files.unlock_file(0)
        files.begin_read(0, b"c")
        assert not files.end_read(0, b"c")

    def test_only_readers_up_to_the_threshold_are_waited_for(self) -> None:
        files = three_files(b"c", b"d", b"e")
        files.in_place = True
        files.begin_read(0, b"c")
        threshold = files.last_mark()
        files.begin_read(0, b"d")
        files.begin_read(1, b"e")
        assert files.await_readers([0], threshold) == 0
        assert not files.end_read(0, b"d")
        assert not files.end_read(1, b"e")
        files.begin_read(0, b"d")
        assert files.end_read(0, b"c")
        assert files.await_readers([0], threshold) is None

    def test_readers_of_a_dead_client_are_released_and_it_never_reads_again(self) -> None:
        files = three_files(b"c", b"d")
        for number, reader in ((0, b"c"), (0, b"c"), (1, b"c"), (1, b"d")):
            files.begin_read(number, reader)
        assert files.await_readers([0], None) == 0
        assert files.await_readers([1], None) == 1
        assert files.release_reader(b"c") == [0]
        assert not files.end_read(0, b"c")
        assert not files.begin_read(0, b"c")
        assert files.await_readers([0, 1], None) == 1

    def test_release_reader_names_the_files_that_a_dead_client_read_last(self) -> None:
        files = three_files(b"c")
        files.begin_read(0, b"c")
        assert files.await_readers([0], None) == 0
        assert files.end_read(0, b"c")
        assert files.release_reader(b"c") == [0]


def three_files(*readers: bytes) -> FileSummary:
    files = FileSummary()
    for number in range(3):
        files.add(number)
    for reader in readers:
        files.admit(reader)
    return files


class TestMessageIndex:
    def test_only_unreferenced_entries_of_the_file_are_vacuumed(self) -> None:
        index = MessageIndex({ONE: (0, 4, 0, 30), TWO: (1, 4, 30, 30), THREE: (0, 5, 0, 30)})
        index.vacuum(4, [ONE, TWO, THREE, msg_id(9)])
        assert dict(index.items()) == {TWO: (1, 4, 30, 30), THREE: (0, 5, 0, 30)}

    def test_the_living_of_a_file_come_in_order_of_offset_and_once(self) -> None:
        index = MessageIndex({ONE: (2, 4, 60, 30), TWO: (1, 4, 0, 40), THREE: (0, 4, 90, 30)})
        assert index.living(4, [ONE, TWO, ONE, THREE, msg_id(9)]) == [(TWO, 0, 40), (ONE, 60, 30)]

    def test_counting_and_moving_leave_the_rest_of_an_entry(self) -> None:
        index = MessageIndex({})
        index.insert(ONE, (1, 0, 0, 30))
        assert index.count(ONE, 1) == 2
        index.move(ONE, 7, 90)
        assert index.lookup(ONE) == (2, 7, 90, 30)
        with pytest.raises(AssertionError):
            index.insert(ONE, (1, 0, 0, 30))
        with pytest.raises(AssertionError):
            index.count(ONE, -3)


class TestOwnerRefs:
    def test_an_owner_gives_up_only_what_it_holds(self) -> None:
        owners = OwnerRefs()
        owners.add("q", ONE)
        with pytest.raises(ValueError, match="'p' removes"):
            owners.drop("p", ONE)
        owners.drop("q", ONE)
        with pytest.raises(ValueError, match="'q' removes"):
            owners.drop("q", ONE)

    def test_a_new_incarnation_names_what_it_wants_and_the_rest_is_surplus(self) -> None:
        owners = OwnerRefs()
        for held in (ONE, ONE, TWO, THREE):
            owners.add("q", held)
        assert owners.reconcile("q", [ONE, THREE, msg_id(9)]) == [ONE, TWO]
        assert owners.all_of("q") == [ONE, ONE, TWO, THREE]
        assert owners.reconcile("p", [ONE]) == []

    def test_counts_are_the_sums_over_owners(self) -> None:
        owners = OwnerRefs()
        for owner, held in itertools.product("qp", (ONE, TWO)):
            owners.add(owner, held)
        owners.add("q", ONE)
        assert owners.counts() == {ONE: 3, TWO: 2}
        owners.forget({ONE})
        assert owners.counts() == Counter({TWO: 2})


class TestFileHandles:
    def test_a_file_is_opened_once_and_anew_after_it_was_rewritten(self) -> None:
        disk = new_disk()
        disk.replace(f"{FOLDER}/0.rdq", b"old bytes")
        handles = FileHandles(disk, FOLDER, 64)
        assert handles.pread(0, 3, 0) == b"old"
        disk.replace(f"{FOLDER}/0.rdq", b"new bytes")
        assert handles.pread(0, 3, 0) == b"old"
        handles.drop(0)
        assert handles.pread(0, 3, 0) == b"new"
        handles.close()
        handles.drop(7)

    def test_the_least_recently_used_is_closed_when_there_are_too_many(self) -> None:
        disk = new_disk()
        for number in range(3):
            disk.replace(f"{FOLDER}/{number}.rdq", b"%d" % number)
        handles = FileHandles(disk, FOLDER, 2)
        for number in (0, 1, 0, 2):
            handles.pread(number, 1, 0)
        assert list(handles._handles) == [0, 2]

    def test_a_handle_in_use_is_closed_when_its_last_user_leaves(self) -> None:
        disk = new_disk()
        disk.replace(f"{FOLDER}/0.rdq", b"0")
        handles = FileHandles(disk, FOLDER, 64)
        handle = handles._begin_use(0)
        closed = []
        handle.file.close = lambda: closed.append(1)
        handles.drop(0)
        assert not closed
        handles._end_use(handle)
        assert closed
