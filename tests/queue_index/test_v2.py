"""The index of version 2: what it writes when, and to which bytes."""

from __future__ import annotations

import errno

import pytest

from tests.queue_index import index_kit as kit
from tests.support.kept_rows import KeptRows
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.segment_files import MOST_OPEN, SegmentFiles
from warrenmq.testing import SimulatedDisk
from warrenmq.trace import events as e
from warrenmq.trace.events import Trigger


def files(disk: SimulatedDisk) -> list[str]:
    return disk.listdir(kit.DIRECTORY)


# worked traces (docs/reference/classic-queue.md#worked-traces)


def test_trace_5_a_segment_goes_when_its_last_message_is_acked_and_what_was_acked_in_time_was_never_written() -> (
    None
):
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(1, kit.records(2, first=1), persistent=False)
    assert [record for _, record, _ in index.read(1, 2)] == kit.records(1, first=1)
    index.ack([1, 2])
    index.begin_flush()
    assert files(disk) == []
    # the same, but flushed in between
    index.publish_many(1, kit.records(2, first=1), persistent=False)
    index.flush_buffer(Trigger.TIMER)
    stored = len(kit.records(1)[0]) - 32
    entries = qi.parse(kit.read_file(disk, "0.qi") or b"").entries
    assert [(position, entry.offset) for position, entry in entries] == [(1, 64), (2, 64 + 8 + stored)]
    index.ack([1, 2])
    index.begin_flush()
    assert files(disk) == []


def test_trace_6_acks_are_collected_until_half_a_segment_waits() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(3_000), persistent=True)
    index.sync(Trigger.TIMER)
    index.publish_many(3_000, kit.records(10, first=3_000), persistent=True)
    operations = kit.watch(disk)
    index.ack_range(0, 2_000)
    index.ack(list(range(2_000, 2_047)))
    assert not index.flushing
    index.ack([2_047])
    assert index.flushing
    assert operations == []
    assert not index.flush_step()
    assert operations == ["pwrite 0.qi"]
    assert not index.flushing
    data = kit.read_file(disk, "0.qi") or b""
    assert not any(data[64 : 64 + 32 * 2_048])
    assert len(data) == 64 + 32 * 3_000  # what is not flushed yet is still in the buffer
    assert kit.seqs(index.read(2_040, 3_010)) == list(range(2_048, 3_010))


def test_trace_7_a_crash_keeps_what_is_whole() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(2), persistent=True)
    index.publish_many(2, kit.records(1, first=2), persistent=False)
    index.sync(Trigger.TIMER)
    entries = (kit.read_file(disk, "0.qi") or b"") + qi.ACKED
    bodies = kit.read_file(disk, "0.qs") or b""
    second = 64 + 8 + len(kit.records(1)[0]) - 32
    kit.put_file(disk, "0.qi", entries)
    kit.put_file(disk, "0.qs", bodies[: second + 20])
    index, found = kit.recover(disk, kit.v2())
    assert (found.count, found.dropped, found.quarantined, found.next_seq_id) == (2, 1, 0, kit.N)
    expected = bytearray(entries)
    expected[64 + 64] = 0
    assert kit.read_file(disk, "0.qi") == bytes(expected)
    assert kit.read_all(index, found) == kit.messages({0: kit.records(1)[0]})
    assert (index.unacked, found.dropped, found.quarantined) == (1, 2, 1)
    expected[64 + 32 : 64 + 64] = qi.ACKED
    assert kit.read_file(disk, "0.qi") == bytes(expected)


# what is written


def test_the_bytes_are_those_of_the_formats() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, [kit.embedded_record(0), kit.stored_record(1)], persistent=True)
    index.publish_many(3, [kit.embedded_record(3)], persistent=False)
    index.sync(Trigger.TIMER)
    body, third = kit.embedded_record(0)[32:], kit.embedded_record(3)[32:]
    entries = [
        qi.Entry(True, qi.Location.QUEUE_STORE, b"", 64, len(body), 5, 0),
        qi.Entry(True, qi.Location.STORE, kit.stored_record(1)[:16], 0, 0, 5_000, 0),
        None,
        qi.Entry(False, qi.Location.QUEUE_STORE, b"", 64 + 8 + len(body), len(third), 5, 0),
    ]
    assert kit.read_file(disk, "0.qi") == qi.pack_header(qi.MAGIC, 0, kit.N) + b"".join(
        qi.ACKED if entry is None else qi.pack_entry(entry) for entry in entries
    )
    assert kit.read_file(disk, "0.qs") == b"".join(
        (
            qi.pack_header(qs.MAGIC, 0, kit.N),
            qs.pack_entry_header(body),
            body,
            qs.pack_entry_header(third),
            third,
        )
    )


def test_bodies_are_written_before_entries_and_both_are_synced_and_the_folder_when_a_file_is_new() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    operations = kit.watch(disk)
    index.publish_many(0, kit.records(3), persistent=True)
    assert operations == []
    index.sync(Trigger.TIMER)
    new = ["create 0.qs", "create 0.qi", "append 0.qi", "append 0.qs", "pwrite 0.qi"]
    assert operations == [*new, "datasync 0.qs", "datasync 0.qi", "sync_dir Q"]
    operations.clear()
    index.publish_many(3, [*kit.records(1, first=3), kit.stored_record(4)], persistent=True)
    index.sync(Trigger.TIMER)
    assert operations == ["append 0.qs", "pwrite 0.qi", "datasync 0.qs", "datasync 0.qi"]
    operations.clear()
    index.publish_many(5, [kit.stored_record(5)], persistent=True)
    index.sync(Trigger.TIMER)
    index.sync(Trigger.TIMER)
    assert operations == ["pwrite 0.qi", "datasync 0.qi"]


def test_a_segment_without_small_messages_has_no_body_file() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, [kit.stored_record(0)], persistent=True)
    index.sync(Trigger.TIMER)
    assert files(disk) == ["0.qi"]
    index, found = kit.recover(disk, kit.v2())
    assert (found.count, found.damage) == (1, [])


def test_neighbours_are_one_write_acks_and_entries_alike() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(10), persistent=True)
    index.sync(Trigger.TIMER)
    index.ack([2, 3, 7, 8, 9])
    index.publish_many(10, kit.records(2, first=10), persistent=True)
    operations = kit.watch(disk)
    index.flush_buffer(Trigger.TIMER)
    assert operations == ["append 0.qs", "pwrite 0.qi", "pwrite 0.qi"]
    assert list(index.live_runs()) == [(0, 2), (4, 3), (10, 2)]


@pytest.mark.parametrize(("limit", "flushed"), [({"classic_queue_store_v2_max_cache_size": 200}, 4), ({}, 8)])
def test_a_full_buffer_is_flushed_without_a_sync(limit: dict[str, int], flushed: int) -> None:
    """By bytes (each record has 46), or by messages (a segment's worth)."""
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(8, **limit))
    assert len(kit.records(1)[0]) == 46
    operations = kit.watch(disk)
    for seq in range(10):
        index.publish_many(seq, kit.records(1, first=seq), persistent=True)
    assert [each for each in operations if each.startswith("append 0.qs")] == ["append 0.qs"] * (8 // flushed)
    assert not [each for each in operations if "sync" in each]
    assert index.needs_sync


def test_the_segment_in_use_stays_while_it_is_empty_and_goes_when_the_queue_moves_on_or_is_idle() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(4))
    for seq in range(3):
        index.publish_many(seq, kit.records(1, first=seq), persistent=True)
        index.sync(Trigger.TIMER)
        index.ack([seq])
    assert files(disk) == ["0.qi", "0.qs"]
    index.publish_many(3, kit.records(2, first=3), persistent=True)
    index.ack([3])
    index.sync(Trigger.TIMER)
    assert files(disk) == ["1.qi", "1.qs"]
    index.ack([4])
    assert files(disk) == ["1.qi", "1.qs"]
    assert index.dirty_bytes
    index.begin_flush()
    assert (files(disk), index.dirty_bytes, index.needs_sync) == ([], 0, True)
    index.sync(Trigger.TIMER)
    assert not index.needs_sync


def test_messages_acked_in_the_same_turn_leave_no_bytes() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    operations = kit.watch(disk)
    index.publish_many(0, kit.records(100), persistent=True)
    index.ack_range(0, 100)
    index.sync(Trigger.TIMER)
    assert operations == []


# files


def test_the_files_of_no_more_than_four_segments_are_open_and_closed_ones_are_synced_too() -> None:
    disk = kit.disk()
    opened: list[str] = []
    index, _ = kit.recover(disk, kit.v2(4))
    index.publish_many(0, kit.records(40), persistent=True)
    index.flush_buffer(Trigger.TIMER)
    files_of: SegmentFiles = index._files
    assert len(files_of._open) == MOST_OPEN
    disk.before_op = lambda op, path: opened.append(path) if op == "datasync" else None
    index.sync(Trigger.TIMER)
    assert sorted(opened) == sorted(
        f"{kit.DIRECTORY}/{number}{kind}" for number in range(10) for kind in (".qi", ".qs")
    )
    for start in (0, 36, 12, 24, 8, 20):
        assert kit.seqs(index.read(start, start + 4)) == list(range(start, start + 4))
        assert len(files_of._open) <= MOST_OPEN


def test_a_directory_keeps_the_segment_size_that_it_was_made_with() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(4))
    index.publish_many(0, kit.records(6), persistent=True)
    index.sync(Trigger.TIMER)
    index, found = kit.recover(disk, kit.v2(8))
    assert found.next_seq_id == 8
    index.publish_many(8, kit.records(1, first=8), persistent=True)
    index.sync(Trigger.TIMER)
    assert files(disk) == ["0.qi", "0.qs", "1.qi", "1.qs", "2.qi", "2.qs"]
    assert list(kit.everything(index)) == [*range(6), 8]


# a full disk, and failures


def test_a_full_disk_keeps_messages_until_there_is_room() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(3), persistent=True)
    index.sync(Trigger.TIMER)
    for room in (0, 100, 163, 180, 300):
        disk.free_bytes = room
        index.publish_many(index.next_seq_id, [kit.embedded_record(index.next_seq_id, 300)], persistent=True)
        with pytest.raises(OSError, match="No space") as error:
            index.sync(Trigger.TIMER)
        assert error.value.errno == errno.ENOSPC
        assert kit.seqs(index.read(0, 100)) == list(range(index.next_seq_id))
    disk.free_bytes = None
    index.ack([4])
    index.sync(Trigger.TIMER)
    bodies, damage = qs.scan(kit.read_file(disk, "0.qs") or b"")
    assert (len(bodies), damage) == (7, [])
    index, found = kit.recover(disk, kit.v2())
    assert (kit.seqs(index.read(0, 100)), found.damage) == ([0, 1, 2, 3, 5, 6, 7], [])


def test_publishing_to_a_full_disk_raises_nothing_and_tries_once() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(4))
    disk.free_bytes = 0
    operations = kit.watch(disk)
    for seq in range(12):
        index.publish_many(seq, kit.records(1, first=seq), persistent=True)
    index.ack_range(0, 8)
    assert operations == ["create 0.qs", "create 0.qi", "append 0.qi"]
    disk.free_bytes = None
    index.sync(Trigger.TIMER)
    assert kit.seqs(index.read(0, 12)) == [8, 9, 10, 11]


def test_rows_tell_what_was_written_synced_and_deleted() -> None:
    disk, rows = kit.disk(), KeptRows()
    index, _ = kit.recover(disk, kit.v2(4), trace=rows)
    index.publish_many(0, kit.records(5), persistent=True)
    index.sync(Trigger.TIMER)
    index.ack_range(0, 4)
    assert index.flushing
    index.flush_step()
    stored = [64 + 4 * (8 + 14), 64 + 8 + 14]
    assert rows.of(e.QiWrite) == [
        {
            "trigger": Trigger.BUFFER_FULL,
            "size": stored[0] + 4 * 32,
            "records": 4,
            "offset_or_body_bytes": stored[0],
            "published": 4,
        },
        {
            "trigger": Trigger.BUFFER_FULL,
            "size": stored[1] + 32,
            "records": 1,
            "offset_or_body_bytes": stored[1],
            "first": 4,
            "published": 1,
        },
    ]
    assert rows.of(e.QiSync) == [{"trigger": Trigger.TIMER, "size": sum(stored) + 5 * 32, "records": 5}]
    assert rows.of(e.SegmentDelete) == [{}]


def test_a_deleted_queue_leaves_no_file() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(2), persistent=True)
    index.sync(Trigger.TIMER)
    index.delete()
    assert not disk.exists(kit.DIRECTORY)


@pytest.mark.parametrize("kept", ["0.qs", "0.qi"])
def test_what_cannot_be_cut_back_after_a_failed_write_is_passed_over(kept: str) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(3), persistent=True)
    index.sync(Trigger.TIMER)
    index.publish_many(3, kit.records(2, first=3), persistent=True)
    disk.fail_next("pwrite", "0.qi", errno.ENOSPC)
    disk.fail_next("truncate", kept, errno.EIO)
    with pytest.raises(OSError, match="No space"):
        index.sync(Trigger.TIMER)
    index.publish_many(5, kit.records(1, first=5), persistent=True)
    index.sync(Trigger.TIMER)
    again, found = kit.recover(disk, kit.v2())
    assert (list(kit.everything(again)), found.damage) == ([0, 1, 2, 3, 4, 5], [])


@pytest.mark.parametrize("operation", range(1, 9))
def test_a_power_cut_brings_no_entries_back_without_their_bodies(operation: int) -> None:
    for seed in range(10):
        disk = kit.disk(seed)
        disk.in_order = False
        index, _ = kit.recover(disk, kit.v2(4))
        index.publish_many(0, kit.records(8), persistent=True)
        index.sync(Trigger.TIMER)
        index.ack_range(0, 8)
        with disk.power_fails_at(operation, reads=False):
            index.begin_flush()
            index.sync(Trigger.TIMER)
        disk.power_cut()
        left = files(disk)
        assert all(name.replace(".qi", ".qs") in left for name in left if name.endswith(".qi"))


def test_a_segment_whose_deletion_could_not_be_finished_goes_later_or_goes_on() -> None:
    for is_used_again in (False, True):
        disk = kit.disk()
        index, _ = kit.recover(disk, kit.v2())
        index.publish_many(0, kit.records(3), persistent=True)
        index.sync(Trigger.TIMER)
        index.ack_range(0, 3)
        disk.fail_next("sync_dir", "", errno.EMFILE)
        with pytest.raises(OSError, match="Too many open files"):
            index.begin_flush()
        assert index.needs_sync
        if is_used_again:
            index.publish_many(3, kit.records(2, first=3), persistent=True)
            assert list(kit.everything(index)) == [3, 4]
        index.sync(Trigger.TIMER)
        assert files(disk) == (["0.qi", "0.qs"] if is_used_again else [])
        disk.power_cut()
        again, found = kit.recover(disk, kit.v2())
        assert (list(kit.everything(again)), found.damage) == ([3, 4] if is_used_again else [], [])


@pytest.mark.parametrize(("at", "first", "end"), [(512, 14, 30), (0, 0, 14)])
def test_entries_that_make_no_sense_and_had_been_acked_take_no_other_message_along(
    at: int, first: int, end: int
) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(64))
    index.publish_many(0, kit.records(64), persistent=True)
    index.sync(Trigger.TIMER)
    index.ack([*range(1, 64, 2)])
    index.sync(Trigger.TIMER)
    again, found = kit.recover(disk, kit.v2(64))
    assert found.count == 32
    file = disk.open(f"{kit.DIRECTORY}/0.qi")
    file.pwrite(b"\xf7" * 512, at)
    left = [seq for seq in range(0, 64, 2) if not first <= seq < end]
    assert [seq for seq, _, _ in again.read(0, 64)] == left
    again.publish_many(64, kit.records(1, first=64), persistent=True)
    again.ack(left[:-2])
    again.sync(Trigger.TIMER)
    again.begin_flush()
    assert [seq for seq, _, _ in again.read(0, 64)] == [60, 62]
    again.ack([60, 62])
    again.begin_flush()
    assert not disk.exists(f"{kit.DIRECTORY}/0.qi")
