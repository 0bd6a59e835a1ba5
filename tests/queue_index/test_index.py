from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest

from tests.queue_index import index_kit as kit
from tests.support.kept_rows import KeptRows
from warrenmq.directory.recovery_terms import Terms
from warrenmq.queue_index.v1.index import QueueIndex
from warrenmq.queue_index.v1.journal import WRITE_BUFFER, Journal
from warrenmq.queue_index.v1.walk import messages
from warrenmq.trace import events as e
from warrenmq.trace.events import Trigger

PUBLISH_BYTES = 34 + 2
"""A publish and its deliver mark in a segment file, body in the store."""


def store_records(count: int, first: int = 0) -> list[bytes]:
    return [kit.stored_record(first + each) for each in range(count)]


# worked traces (docs/reference/classic-queue.md#worked-traces)


def test_trace_1_only_what_is_not_acked_reaches_the_segment_file() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(2_048, max_journal_entries=4))
    index.publish_many(0, store_records(2), persistent=True)  # each a publish and a deliver
    assert index.dirty_count == 4
    assert not index.flushing
    index.ack([0])
    assert index.dirty_count == 5
    assert index.flushing
    assert not index.flush_step()
    golden = bytes.fromhex("c001") + kit.stored_record(1) + bytes.fromhex("4001")
    assert kit.read_file(disk, "0.idx") == golden
    assert kit.read_file(disk, "journal.jif") == b""
    assert (index.dirty_count, index.unacked) == (0, 1)


def test_trace_2_a_publish_in_both_files_is_one_message() -> None:
    disk = kit.disk()
    record = kit.stored_record(1)
    publish = bytes.fromhex("c001") + record
    kit.put_file(disk, "0.idx", publish)
    kit.put_file(disk, "journal.jif", bytes(7) + b"\x01" + record + bytes.fromhex("8000000000000001"))
    index, found = kit.recover(disk, kit.settings(2_048))
    assert (found.count, found.low, found.next_seq_id, found.quarantined) == (1, 1, 2_048, 0)
    assert kit.everything(index) == {1: record}
    assert kit.read_file(disk, "0.idx") == publish + bytes.fromhex("4001")
    assert kit.read_file(disk, "journal.jif") == b""


def test_trace_3_acks_for_a_deleted_segment_are_nothing() -> None:
    disk = kit.disk()
    kit.put_file(disk, "journal.jif", bytes.fromhex("8000000000000007 c000000000000007"))
    index, found = kit.recover(disk, kit.settings(2_048))
    assert (found.count, found.dropped, found.quarantined, index.unacked) == (0, 0, 0, 0)
    assert disk.listdir(kit.DIRECTORY) == ["journal.jif"]
    assert index.bounds() == (0, 0)


def test_trace_4_after_a_clean_stop_a_transient_message_in_the_index_is_dropped() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(2_048))
    index.publish_many(0, store_records(1), persistent=False)
    index.publish_many(1, store_records(2, first=1), persistent=True)
    index.ack([1])
    terms = index.terminate(next_seq_id=3, next_deliver_seq_id=2)
    assert index.unacked == 2
    index, found = kit.recover(disk, kit.settings(2_048), terms)
    assert (found.count, found.dropped, found.low, found.next_seq_id) == (1, 1, 2, 3)
    assert (index.unacked, kit.seqs(index.read(0, 3))) == (1, [2])


# publish, ack, read


def test_messages_that_are_not_acked_are_read_in_order_over_segment_boundaries() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    records = store_records(11)
    index.publish_many(0, records[:3], persistent=True)
    index.publish_many(3, records[3:], persistent=True)
    index.ack([1, 6])
    expected = [(seq, records[seq], True) for seq in range(2, 10) if seq != 6]
    assert index.read(2, 10) == expected
    index.flush()
    assert index.read(2, 10) == expected
    index.ack_range(2, 3)
    assert kit.seqs(index.read(0, 100)) == [0, 5, 7, 8, 9, 10]
    assert index.bounds() == (0, 12)
    assert list(index.live_runs()) == [(0, 1), (5, 1), (7, 4)]


def test_reading_does_not_depend_on_when_the_journal_was_flushed() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4, max_journal_entries=1))
    for seq in range(10):
        index.publish_many(seq, [kit.embedded_record(seq)], persistent=seq % 3 != 0)
        if seq % 2:
            index.ack([seq - 1])
        index.flush_step()
        expected = [
            (each, kit.embedded_record(each), each % 3 != 0)
            for each in range(seq + 1)
            if each % 2 or each == seq
        ]
        assert index.read(0, 12) == expected


def test_an_ack_of_a_message_in_the_journal_leaves_nothing_to_flush() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4, max_journal_entries=3))
    index.publish_many(0, store_records(8), persistent=True)
    index.flush_buffer(Trigger.BUFFER_FULL)
    index.ack_range(0, 8)
    operations = kit.watch(disk)
    while index.flush_step():
        pass
    assert operations == ["append journal.jif", "truncate journal.jif", "append journal.jif"]
    assert disk.listdir(kit.DIRECTORY) == ["journal.jif"]


@pytest.mark.parametrize("at_once", [True, False])
def test_messages_that_are_acked_before_they_are_written_are_written_no_more(at_once: bool) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    operations = kit.watch(disk)
    for seq in range(0, 9, 3):
        index.publish_many(seq, store_records(3, seq), persistent=True)
        if at_once:
            index.ack_range(seq, 3)
        else:
            index.ack([seq + 2])
            index.ack([seq, seq + 1])
        assert index.sync(Trigger.TIMER) == (0, 0)  # so that their confirms go out
        assert index.sync(Trigger.TIMER) is None
    assert operations == []
    assert (index.dirty_count, index.unacked) == (0, 0)
    index.publish_many(9, store_records(1, 9), persistent=True)
    index.sync(Trigger.TIMER)
    again, found = kit.recover(disk, kit.settings(4))
    assert found.next_seq_id > 9
    assert list(kit.everything(again)) == [9]


def test_an_unwritten_message_stays_with_one_that_is_not_acked_or_with_another_ack() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(2), persistent=True)
    index.sync(Trigger.TIMER)
    index.publish_many(2, store_records(2, 2), persistent=True)
    index.ack([3])
    size, actions = index.sync(Trigger.TIMER)
    assert (size, actions) == (2 * (8 + 32 + 8) + 8, 5)
    index.publish_many(4, store_records(1, 4), persistent=True)
    index.ack([0, 4])
    assert index.sync(Trigger.TIMER) == (8 + 32 + 8 + 2 * 8, 4)
    disk.power_cut()
    again, _ = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [1, 2]


def test_a_segment_file_is_deleted_by_the_flush_that_finds_nothing_unacked_in_it() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(6), persistent=True)
    index.flush()
    assert disk.listdir(kit.DIRECTORY) == ["0.idx", "1.idx", "journal.jif"]
    index.ack_range(0, 4)
    assert disk.exists(f"{kit.DIRECTORY}/0.idx")
    index.flush()
    assert disk.listdir(kit.DIRECTORY) == ["1.idx", "journal.jif"]


def test_acks_of_flushed_messages_are_appended_as_marks() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(2), persistent=True)
    index.flush()
    index.ack([1])
    index.flush()
    data = kit.read_file(disk, "0.idx")
    assert data is not None
    assert data[2 * PUBLISH_BYTES :] == bytes.fromhex("4001")
    assert kit.seqs(index.read(0, 4)) == [0]


def test_an_ack_of_a_segment_that_was_never_published_to_is_a_mistake() -> None:
    index, _ = kit.recover(kit.disk())
    with pytest.raises(KeyError):
        index.ack([3])
    with pytest.raises(KeyError):
        index.ack_range(3, 1)


# the flush, step by step


def test_each_step_writes_and_syncs_one_segment_and_actions_may_come_between() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4, max_journal_entries=20))
    index.publish_many(0, store_records(12), persistent=True)
    operations = kit.watch(disk)
    assert index.flush_step()
    assert operations == ["append journal.jif", "create 0.idx", "append 0.idx", "datasync 0.idx"]
    index.publish_many(12, store_records(2, 12), persistent=True)
    index.ack([0, 5, 13])  # in a file already, not yet in one, and published since
    assert kit.seqs(index.read(0, 16)) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12]
    operations.clear()
    assert index.flush_step()
    assert operations == ["append journal.jif", "create 1.idx", "append 1.idx", "datasync 1.idx"]
    operations.clear()
    assert not index.flush_step()
    assert operations == [
        "create 2.idx", "append 2.idx", "datasync 2.idx", "sync_dir Q",
        "create journal.jif.tmp", "truncate journal.jif.tmp", "pread journal.jif", "append journal.jif.tmp",
        "datasync journal.jif.tmp",
        "rename journal.jif", "sync_dir Q",
    ]  # fmt: skip
    assert index.dirty_count == 2 * 2 + 3
    again, found = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12]
    assert found.quarantined == 0


def test_the_limit_is_exceeded_not_reached() -> None:
    index, _ = kit.recover(kit.disk(), kit.settings(4, max_journal_entries=4))
    index.publish_many(0, store_records(2), persistent=True)
    assert not index.flushing
    assert not index.flush_step()
    index.publish_many(2, store_records(1, 2), persistent=True)
    assert index.flushing


def test_the_last_sequence_id_survives_a_flush_that_leaves_no_message() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(6), persistent=True)
    index.ack_range(0, 6)
    index.flush()
    assert kit.read_file(disk, "journal.jif") == bytes.fromhex("c000000000000005")
    for _ in range(3):
        index, found = kit.recover(disk, kit.settings(4))
        assert (found.count, found.low, found.next_seq_id) == (0, 8, 8)


# to disk


def test_a_full_buffer_is_written_without_a_sync() -> None:
    disk = kit.disk()
    rows = KeptRows()
    index, _ = kit.recover(disk, kit.settings(2_048), trace=rows)
    index.publish_many(0, [kit.embedded_record(0, WRITE_BUFFER // 2)], persistent=True)
    assert not rows.of(e.QiWrite)
    index.publish_many(1, [kit.embedded_record(1, WRITE_BUFFER // 2)], persistent=True)
    (written,) = rows.of(e.QiWrite)
    assert (written["trigger"], written["records"]) == (Trigger.BUFFER_FULL, 4)
    assert written["size"] == disk.size(f"{kit.DIRECTORY}/journal.jif") > WRITE_BUFFER
    assert not rows.of(e.QiSync)
    assert index.needs_sync


def test_rows_tell_what_was_written_and_synced() -> None:
    rows = KeptRows()
    index, _ = kit.recover(kit.disk(), kit.settings(4), trace=rows)
    index.publish_many(0, store_records(2), persistent=True)
    index.sync(Trigger.MAILBOX_EMPTY)
    assert not index.needs_sync
    index.ack([0, 1])
    index.flush_buffer(Trigger.TIMER)
    assert index.needs_sync
    index.sync(Trigger.TIMER)
    index.sync(Trigger.TIMER)
    assert rows.said()[1:] == [
        (e.QiWrite, {"trigger": Trigger.MAILBOX_EMPTY, "size": 96, "records": 4, "published": 2}),
        (e.QiSync, {"trigger": Trigger.MAILBOX_EMPTY, "size": 96, "records": 4}),
        (
            e.QiWrite,
            {"trigger": Trigger.TIMER, "size": 16, "records": 2, "offset_or_body_bytes": 96, "acked": 2},
        ),
        (e.QiSync, {"trigger": Trigger.TIMER, "size": 16, "records": 2}),
    ]


def test_rows_tell_what_a_flush_did() -> None:
    rows = KeptRows()
    index, _ = kit.recover(kit.disk(), kit.settings(4), trace=rows)
    index.publish_many(0, store_records(5), persistent=True)
    index.flush()
    index.ack_range(0, 4)
    index.flush()
    flushed = [row for row in rows.said()[1:] if row[0] is not e.QiWrite]
    assert flushed == [
        (e.QiFlush, {"segments": 1, "size": 4 * PUBLISH_BYTES}),
        (e.QiFlush, {"segments": 1, "size": PUBLISH_BYTES}),
        (e.QiFlush, {"restarted": 1}),
        (e.SegmentDelete, {}),
        (e.QiFlush, {"restarted": 1}),
    ]


# a disk that fails


def test_a_full_disk_keeps_the_buffer_until_there_is_room() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    disk.free_bytes = 10
    index.publish_many(0, store_records(2), persistent=True)
    for _ in range(2):
        with pytest.raises(OSError, match="No space") as full:
            index.sync(Trigger.TIMER)
        assert full.value.errno == errno.ENOSPC
        assert index.needs_sync
    index.publish_many(2, store_records(1, 2), persistent=True)
    disk.free_bytes = None
    index.sync(Trigger.TIMER)
    assert not index.needs_sync
    again, _ = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [0, 1, 2]


def test_publishing_to_a_full_disk_raises_nothing_and_tries_once() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    disk.free_bytes = 10
    operations = kit.watch(disk)
    for seq in range(5):
        index.publish_many(seq, [kit.embedded_record(seq, WRITE_BUFFER)], persistent=True)
    assert operations == ["append journal.jif"]
    index.ack_range(0, 4)
    with pytest.raises(OSError, match="No space"):
        index.sync(Trigger.TIMER)


@pytest.mark.parametrize("step", ["append 0.idx", "create 0.idx", "create journal.jif.tmp"])
def test_a_flush_that_meets_a_full_disk_once_flushes_all_at_once(step: str) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4, max_journal_entries=6))
    index.publish_many(0, store_records(8), persistent=True)
    disk.fail_next(*step.split(), errno.ENOSPC)
    for round_ in range(4):
        index.flush_step()
        index.ack([round_])
    while index.flush_step():
        pass
    index.sync(Trigger.TIMER)
    again, found = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [4, 5, 6, 7]
    assert not found.damage


def test_a_flush_that_finds_no_room_goes_on_later() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4, max_journal_entries=6))
    index.publish_many(0, store_records(8), persistent=True)
    index.sync(Trigger.TIMER)
    disk.free_bytes = 5 * PUBLISH_BYTES
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            while index.flush_step():
                pass
    index.ack_range(0, 6)  # what is left fits
    while index.flush_step():
        pass
    index.sync(Trigger.TIMER)
    disk.power_cut()
    again, found = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [6, 7]
    assert not found.damage


@pytest.mark.parametrize("left", [0, 1, 3])
def test_acks_for_which_a_full_disk_has_no_room_are_written_without_the_journal(left: int) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4, max_journal_entries=1_000))
    index.publish_many(0, store_records(50), persistent=True)
    index.sync(Trigger.TIMER)
    disk.free_bytes = left * PUBLISH_BYTES
    index.ack_range(0, 50 - left)
    index.sync(Trigger.TIMER)
    assert not index.needs_sync
    assert index.dirty_count == 0
    index.publish_many(50, store_records(2, 50), persistent=True)  # there is room again
    index.sync(Trigger.TIMER)
    disk.power_cut()
    again, found = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [*range(50 - left, 52)]
    assert found.next_seq_id > 51
    assert not found.damage


@pytest.mark.parametrize("room", [3 * PUBLISH_BYTES - 1, 3 * PUBLISH_BYTES])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_segment_that_a_full_disk_and_a_kill_cut_off_is_not_told_as_damage(
    room: int, power_cut: bool
) -> None:
    operation, came = 0, True
    while came:
        operation += 1
        disk = kit.disk(operation)
        index, _ = kit.recover(disk, kit.settings(4))
        index.publish_many(0, store_records(3), persistent=True)
        disk.free_bytes = room  # not enough for the journal, which holds more of each message
        with disk.power_fails_at(operation) as outage, suppress(OSError):
            index.sync(Trigger.TIMER)
        came, disk.free_bytes = outage.came, None
        if power_cut:
            disk.power_cut()
        _, found = kit.recover(disk, kit.settings(4))
        assert not [each for each in found.damage if ".idx" in str(each)]
    assert operation > 4


def test_a_queue_is_recovered_on_a_disk_that_is_full_and_its_acks_make_room() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(30), persistent=True)
    index.sync(Trigger.TIMER)
    disk.power_cut()
    disk.free_bytes = 2 * PUBLISH_BYTES
    index, found = kit.recover(disk, kit.settings(4))
    assert found.count == 30
    index.ack_range(0, 29)
    index.sync(Trigger.TIMER)
    disk.power_cut()
    again, _ = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [29]


def test_a_sync_that_fails_is_raised() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    index.publish_many(0, store_records(1), persistent=True)
    disk.fail_next("datasync", "journal.jif", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        index.sync(Trigger.TIMER)
    assert index.needs_sync


# recovery


def test_a_new_queue_gets_its_directory_and_journal() -> None:
    disk = kit.disk()
    disk.rmtree(kit.DIRECTORY)
    index, found = kit.recover(disk)
    assert (found.count, found.low, found.next_seq_id, found.dropped) == (0, 0, 0, 0)
    disk.power_cut()
    assert disk.listdir(kit.DIRECTORY) == ["journal.jif"]
    assert index.read(0, 10) == []


def reopened(disk: Any, index: QueueIndex, **options: Any) -> tuple[QueueIndex, Any]:
    index.sync(Trigger.CLOSE)
    return kit.recover(disk, kit.settings(4), **options)


def test_transient_messages_and_those_missing_in_the_store_are_dropped() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(
        0, [kit.embedded_record(0), kit.stored_record(1), kit.stored_record(2)], persistent=True
    )
    index.publish_many(3, [kit.embedded_record(3), kit.stored_record(4)], persistent=False)
    missing = kit.stored_record(2)[:16]
    for terms in (None, Terms(5, 5)):
        again, found = reopened(disk, index, in_store=lambda msg_id: msg_id != missing, terms=terms)
        assert list(kit.everything(again)) == [0, 1]
        assert (found.count, found.low) == (2, 0)
        assert found.next_seq_id == 8
        assert found.dropped == (3 if terms is None else 0)
        assert kit.store_message_ids(disk, kit.settings(4)) == [kit.stored_record(1)[:16]]


def test_the_index_knows_transient_from_persistent_messages_wherever_they_are() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, [kit.stored_record(0)], persistent=False)
    index.publish_many(1, [kit.stored_record(1)], persistent=True)
    for _ in range(2):
        assert [persistent for _, _, persistent in index.read(0, 4)] == [False, True]
        index.flush()
    index.ack([0])
    assert kit.seqs(index.read(0, 4)) == [1]


def test_a_clean_stop_keeps_the_next_sequence_id_and_flushes_nothing() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(6), persistent=True)
    index.ack([2])
    terms = index.terminate(next_seq_id=9, next_deliver_seq_id=3)
    assert terms == Terms(9, 3)
    assert disk.listdir(kit.DIRECTORY) == ["journal.jif"]
    disk.power_cut()
    again, found = kit.recover(disk, kit.settings(4), terms=terms)
    assert (found.count, found.low, found.next_seq_id) == (5, 0, 9)
    assert again.dirty_count == 13
    assert disk.listdir(kit.DIRECTORY) == ["journal.jif"]
    again.ack([0, 1])
    again.flush()
    assert list(kit.everything(again)) == [3, 4, 5]
    assert kit.recover(disk, kit.settings(4))[1].count == 3


def test_after_a_crash_sequence_ids_go_on_at_a_segment_boundary() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(6), persistent=True)
    _, found = reopened(disk, index)
    assert found.next_seq_id == 8


def test_leftovers_of_an_unfinished_replace_are_removed() -> None:
    disk = kit.disk()
    kit.put_file(disk, "journal.jif.tmp", b"half a journal")
    kit.put_file(disk, ".queue_name", b"VHOST: /\nQUEUE: q\n")
    kit.recover(disk)
    assert disk.listdir(kit.DIRECTORY) == [".queue_name", "journal.jif"]


def test_entries_of_brokers_that_write_no_deliver_marks_get_them() -> None:
    disk = kit.disk()
    record = kit.stored_record(1)
    kit.put_file(disk, "0.idx", bytes.fromhex("c001") + record)
    kit.put_file(disk, "journal.jif", bytes(7) + b"\x02" + kit.stored_record(2))
    index, found = kit.recover(disk, kit.settings(4))
    assert found.count == 2
    index.ack([1, 2])
    index.publish_many(4, store_records(1, 4), persistent=True)
    again, found = reopened(disk, index)
    assert list(kit.everything(again)) == [4]
    assert not found.damage


def test_messages_are_listed_without_a_change_to_the_files() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, store_records(6), persistent=True)
    index.flush()
    index.ack([1])
    index.publish_many(6, [kit.embedded_record(6)], persistent=False)
    index.sync(Trigger.CLOSE)
    operations = kit.watch(disk)
    listed = list(messages(disk, kit.DIRECTORY, 4))
    assert [(seq, persistent) for seq, _, persistent in listed] == [
        (0, True), (2, True), (3, True), (4, True), (5, True), (6, False),
    ]  # fmt: skip
    assert {operation.split()[0] for operation in operations} == {"pread"}
    assert kit.store_message_ids(disk, kit.settings(4)) == [
        kit.stored_record(seq)[:16] for seq in (0, 2, 3, 4, 5)
    ]


def test_a_deleted_queue_leaves_no_file() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    index.publish_many(0, store_records(1), persistent=True)
    index.delete()
    assert not disk.exists(kit.DIRECTORY)


def test_a_journal_whose_name_could_not_be_synced_is_made_anew() -> None:
    disk = kit.disk()
    disk.mkdir(kit.DIRECTORY)
    disk.fail_next("sync_dir", "", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        Journal(disk, kit.DIRECTORY)
    index, _ = kit.recover(disk)
    index.publish_many(0, kit.records(1), persistent=True)
    index.sync(Trigger.TIMER)
    disk.power_cut()
    again, _ = kit.recover(disk)
    assert list(kit.everything(again)) == [0]


def test_a_journal_that_was_restarted_without_a_descriptor_to_sync_its_name_has_one_before_anything_is_confirmed() -> (
    None
):
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    index.publish_many(0, kit.records(3), persistent=True)
    index.sync(Trigger.TIMER)
    index.begin_flush()
    index.publish_many(3, kit.records(2, first=3), persistent=True)  # so that the journal is copied
    index.flush_buffer(Trigger.TIMER)
    disk.before_op = lambda op, _path: setattr(disk, "no_descriptors", op == "rename" or disk.no_descriptors)
    while index.flushing:
        index.flush_step()
    with pytest.raises(OSError, match="Too many open files"):
        index.sync(Trigger.TIMER)
    disk.before_op, disk.no_descriptors = None, False
    index.sync(Trigger.TIMER)
    disk.power_cut()
    again, _ = kit.recover(disk, kit.settings(4))
    assert list(kit.everything(again)) == [0, 1, 2, 3, 4]
