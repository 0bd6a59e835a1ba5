"""The index of version 2: what it writes when, and to which bytes."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index import index_kit as kit
from tests.support.kept_rows import KeptRows
from tests.support.own_directories import listed_version_2
from warrenmq.directory.recovery_terms import Terms
from warrenmq.message.queue_message import FEW, Publication, records_of
from warrenmq.message.stored import encode_head
from warrenmq.queue_index.record import embedded
from warrenmq.queue_index.record import pack as pack_record
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.derived_crc import WORTH
from warrenmq.queue_index.v2.pack import (
    adjacent,
    by_segment,
    newest_that_fit,
    pack,
    pack_alike,
)
from warrenmq.queue_index.v2.segment_files import MOST_OPEN, SegmentFiles, to_close
from warrenmq.testing import SimulatedDisk
from warrenmq.trace import events as e
from warrenmq.trace.events import Trigger

N = 4_096


def v2(entry_count: int = N, **more: Any) -> Any:
    return kit.settings(entry_count, version=2, **more)


def records(count: int, first: int = 0) -> list[bytes]:
    return [kit.embedded_record(first + each) for each in range(count)]


def watch(disk: SimulatedDisk) -> list[str]:
    operations: list[str] = []
    disk.before_op = lambda op, path: operations.append(f"{op} {path.rpartition('/')[2]}")
    return operations


def files(disk: SimulatedDisk) -> list[str]:
    return disk.listdir(kit.DIRECTORY)


def seqs(found: list[tuple[int, bytes, bool]]) -> list[int]:
    return [seq_id for seq_id, _, _ in found]


# worked traces (docs/reference/classic-queue.md#worked-traces)


def test_trace_5_a_segment_goes_when_its_last_message_is_acked_and_what_was_acked_in_time_was_never_written() -> (
    None
):
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(1, records(2, first=1), persistent=False)
    assert [record for _, record, _ in index.read(1, 2)] == records(1, first=1)
    index.ack([1, 2])
    index.begin_flush()
    assert files(disk) == []
    # the same, but flushed in between
    index.publish_many(1, records(2, first=1), persistent=False)
    index.flush_buffer(Trigger.TIMER)
    stored = len(records(1)[0]) - 32
    entries = qi.parse(kit.read_file(disk, "0.qi") or b"").entries
    assert [(position, entry.offset) for position, entry in entries] == [(1, 64), (2, 64 + 8 + stored)]
    index.ack([1, 2])
    index.begin_flush()
    assert files(disk) == []


def test_trace_6_acks_are_collected_until_half_a_segment_waits() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(3_000), persistent=True)
    index.sync(Trigger.TIMER)
    index.publish_many(3_000, records(10, first=3_000), persistent=True)
    operations = watch(disk)
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
    assert seqs(index.read(2_040, 3_010)) == list(range(2_048, 3_010))


def test_trace_7_a_crash_keeps_what_is_whole() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(2), persistent=True)
    index.publish_many(2, records(1, first=2), persistent=False)
    index.sync(Trigger.TIMER)
    entries = (kit.read_file(disk, "0.qi") or b"") + qi.ACKED
    bodies = kit.read_file(disk, "0.qs") or b""
    second = 64 + 8 + len(records(1)[0]) - 32
    kit.put_file(disk, "0.qi", entries)
    kit.put_file(disk, "0.qs", bodies[: second + 20])
    index, found = kit.recover(disk, v2())
    assert (found.count, found.dropped, found.quarantined, found.next_seq_id) == (2, 1, 0, N)
    expected = bytearray(entries)
    expected[64 + 64] = 0
    assert kit.read_file(disk, "0.qi") == bytes(expected)
    assert kit.read_all(index, found) == kit.messages({0: records(1)[0]})
    assert (index.unacked, found.dropped, found.quarantined) == (1, 2, 1)
    expected[64 + 32 : 64 + 64] = qi.ACKED
    assert kit.read_file(disk, "0.qi") == bytes(expected)


# what is written


def test_the_bytes_are_those_of_the_formats() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
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
    assert kit.read_file(disk, "0.qi") == qi.pack_header(qi.MAGIC, 0, N) + b"".join(
        qi.ACKED if entry is None else qi.pack_entry(entry) for entry in entries
    )
    assert kit.read_file(disk, "0.qs") == b"".join(
        (qi.pack_header(qs.MAGIC, 0, N), qs.pack_entry_header(body), body, qs.pack_entry_header(third), third)
    )


def test_bodies_are_written_before_entries_and_both_are_synced_and_the_folder_when_a_file_is_new() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    operations = watch(disk)
    index.publish_many(0, records(3), persistent=True)
    assert operations == []
    index.sync(Trigger.TIMER)
    new = ["create 0.qs", "create 0.qi", "append 0.qi", "append 0.qs", "pwrite 0.qi"]
    assert operations == [*new, "datasync 0.qs", "datasync 0.qi", "sync_dir Q"]
    operations.clear()
    index.publish_many(3, [*records(1, first=3), kit.stored_record(4)], persistent=True)
    index.sync(Trigger.TIMER)
    assert operations == ["append 0.qs", "pwrite 0.qi", "datasync 0.qs", "datasync 0.qi"]
    operations.clear()
    index.publish_many(5, [kit.stored_record(5)], persistent=True)
    index.sync(Trigger.TIMER)
    index.sync(Trigger.TIMER)
    assert operations == ["pwrite 0.qi", "datasync 0.qi"]


def test_a_segment_without_small_messages_has_no_body_file() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, [kit.stored_record(0)], persistent=True)
    index.sync(Trigger.TIMER)
    assert files(disk) == ["0.qi"]
    index, found = kit.recover(disk, v2())
    assert (found.count, found.damage) == (1, [])


def test_neighbours_are_one_write_acks_and_entries_alike() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(10), persistent=True)
    index.sync(Trigger.TIMER)
    index.ack([2, 3, 7, 8, 9])
    index.publish_many(10, records(2, first=10), persistent=True)
    operations = watch(disk)
    index.flush_buffer(Trigger.TIMER)
    assert operations == ["append 0.qs", "pwrite 0.qi", "pwrite 0.qi"]
    assert list(index.live_runs()) == [(0, 2), (4, 3), (10, 2)]


@pytest.mark.parametrize(
    ("published", "acked", "writes"),
    [
        ([8, 9], [], [(0, 2)]),
        ([8, 10], [], [(0, 1), (2, 1)]),
        ([], [9, 10, 12], [(1, 2), (4, 1)]),
        ([10, 11], [8, 9], [(0, 4)]),
        ([11], [8, 9], [(0, 2), (3, 1)]),
    ],
)
def test_adjacent_entries_join(published: list[int], acked: list[int], writes: list[tuple[int, int]]) -> None:
    entries = b"".join(bytes([seq_id]) * 32 for seq_id in published)
    found = adjacent(8, published, entries, acked)
    assert [(position, len(data) // 32) for position, data in found] == writes
    for position, data in found:
        for each in range(len(data) // 32):
            seq_id = 8 + position + each
            assert data[32 * each : 32 * each + 32] == (
                bytes([seq_id]) * 32 if seq_id in published else qi.ACKED
            )


def test_sequence_ids_are_cut_where_a_segment_ends() -> None:
    assert by_segment([3, 4, 8], [1, 5, 90], 4) == [
        (0, [3], [1]),
        (1, [4], [5]),
        (2, [8], []),
        (22, [], [90]),
    ]
    assert by_segment([4, 7], [], 4) == [(1, [4, 7], [])]
    assert by_segment([3, 4], [], 4) == [(0, [3], []), (1, [4], [])]
    assert by_segment([], [], 4) == []


def one_by_one(first: int, records: list[bytes], flags: list[int], offset: int) -> tuple[bytes, bytes]:
    bodies, entries = b"", b""
    for seq_id, (record, persistent) in enumerate(zip(records, flags, strict=True), first):
        body, entry = pack([seq_id], [record], [persistent], offset + len(bodies))
        bodies, entries = bodies + body, entries + entry
    return bodies, entries


@given(
    st.lists(st.binary(min_size=7, max_size=7), min_size=1, max_size=20),
    st.sampled_from([0, qi.PERSISTENT]),
    st.sampled_from([0, 1 << 50]),
    st.sampled_from([64, 5_000, (1 << 32) - 100]),
)
def test_messages_that_are_alike_are_packed_to_the_same_bytes_as_one_by_one(
    bodies: list[bytes], flags: int, expiry: int, offset: int
) -> None:
    alike = [pack_record(bytes(16), expiry, 3, body) for body in bodies]
    seq_ids = [*range(7, 7 + len(alike))]
    assert pack_alike(seq_ids, alike, flags, offset) == one_by_one(7, alike, [flags] * len(alike), offset)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 5, 9]), st.booleans(), st.sampled_from([0, 1 << 50])),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 4 * FEW),
)
def test_any_messages_are_packed_to_the_same_bytes_as_one_by_one(
    kinds: list[tuple[int, bool, int]], alike: int
) -> None:
    kinds += kinds[-1:] * alike
    several = [pack_record(b"i" * 16, expiry, 3, b"m" * size) for size, _, expiry in kinds]
    flags = [int(persistent) for _, persistent, _ in kinds]
    assert pack([*range(len(several))], several, flags, 64) == one_by_one(0, several, flags, 64)


@pytest.mark.parametrize("size", [0, 1, 250, 1_024, 3_000])
@pytest.mark.parametrize("first", [0, 65_500, (1 << 32) - 7, 1 << 40])
def test_checksums_that_are_derived_from_those_of_the_messages_are_the_same(size: int, first: int) -> None:
    bodies = [random.Random(number).randbytes(size) for number in range(2 * WORTH)]
    messages = Publication(b"warrenmq", 1, encode_head("", ["q"], None), 0, bodies, persistent=True)
    several, _ = records_of([messages], first, 4_096)
    seq_ids, flags = [*range(first, first + len(bodies))], [qi.PERSISTENT] * len(bodies)
    assert pack(seq_ids, several, flags, 64) == one_by_one(first, several, flags, 64)


def test_no_checksum_is_derived_for_a_message_that_has_none() -> None:
    several = [kit.embedded_record(1)] * (2 * WORTH)
    seq_ids, flags = [*range(len(several))], [qi.PERSISTENT] * len(several)
    assert pack(seq_ids, several, flags, 64) == one_by_one(0, several, flags, 64)


@pytest.mark.parametrize(("limit", "flushed"), [({"classic_queue_store_v2_max_cache_size": 200}, 4), ({}, 8)])
def test_a_full_buffer_is_flushed_without_a_sync(limit: dict[str, int], flushed: int) -> None:
    """By bytes (each record has 46), or by messages (a segment's worth)."""
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(8, **limit))
    assert len(records(1)[0]) == 46
    operations = watch(disk)
    for seq in range(10):
        index.publish_many(seq, records(1, first=seq), persistent=True)
    assert [each for each in operations if each.startswith("append 0.qs")] == ["append 0.qs"] * (8 // flushed)
    assert not [each for each in operations if "sync" in each]
    assert index.needs_sync


def test_the_segment_in_use_stays_while_it_is_empty_and_goes_when_the_queue_moves_on_or_is_idle() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(4))
    for seq in range(3):
        index.publish_many(seq, records(1, first=seq), persistent=True)
        index.sync(Trigger.TIMER)
        index.ack([seq])
    assert files(disk) == ["0.qi", "0.qs"]
    index.publish_many(3, records(2, first=3), persistent=True)
    index.ack([3])
    index.sync(Trigger.TIMER)
    assert files(disk) == ["1.qi", "1.qs"]
    index.ack([4])
    assert files(disk) == ["1.qi", "1.qs"]
    assert index.dirty_count
    index.begin_flush()
    assert (files(disk), index.dirty_count, index.needs_sync) == ([], 0, True)
    index.sync(Trigger.TIMER)
    assert not index.needs_sync


def test_messages_acked_in_the_same_turn_leave_no_bytes() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    operations = watch(disk)
    index.publish_many(0, records(100), persistent=True)
    index.ack_range(0, 100)
    index.sync(Trigger.TIMER)
    assert operations == []


# reading


def test_reading_does_not_depend_on_what_was_flushed() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(4, classic_queue_store_v2_max_cache_size=100))
    for seq in range(10):
        record = kit.stored_record(seq) if seq % 4 == 3 else kit.embedded_record(seq)
        index.publish_many(seq, [record], persistent=seq % 3 != 0)
        if seq % 2:
            index.ack([seq - 1])
        if seq % 5 == 4:
            index.sync(Trigger.TIMER)
        found = index.read(0, 12)
        live = [each for each in range(seq + 1) if each % 2 or each == seq]
        assert [(each, persistent) for each, _, persistent in found] == [
            (each, each % 3 != 0) for each in live
        ]
        for each, got, _ in found:
            expected = kit.stored_record(each) if each % 4 == 3 else kit.embedded_record(each)
            assert kit.message(got) == kit.message(expected)


def test_an_empty_range_has_no_messages() -> None:
    index, _ = kit.recover(kit.disk(), v2(4))
    index.publish_many(0, records(6), persistent=True)
    index.sync(Trigger.TIMER)
    for place in (0, 3, 4, 5, 8):
        assert index.read(place, place) == []
    assert (index.read(5, 3), index.unacked) == ([], 6)


def test_entries_of_the_last_flush_are_read_from_the_cache_until_they_are_acked() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(4), persistent=False)
    index.sync(Trigger.TIMER)
    operations = watch(disk)
    assert index.read(0, 4) == [(seq, record, False) for seq, record in enumerate(records(4))]
    assert "pread 0.qs" not in operations
    index.ack([1])
    assert seqs(index.read(0, 4)) == [0, 2, 3]
    index.publish_many(4, records(1, first=4), persistent=True)
    index.sync(Trigger.TIMER)  # now the cache has message 4 only
    operations.clear()
    assert seqs(index.read(0, 5)) == [0, 2, 3, 4]
    assert operations.count("pread 0.qs") == 2  # 1 lies between 0 and 2


@pytest.mark.parametrize(("most", "kept"), [(0, []), (9, []), (10, [3]), (25, [2, 3]), (30, [1, 2, 3])])
def test_the_cache_has_the_newest_that_fit(most: int, kept: list[int]) -> None:
    assert list(newest_that_fit(dict.fromkeys((1, 2, 3), b"0123456789"), most)) == kept


@pytest.mark.parametrize(
    ("places", "most", "groups"),
    [
        ([], 100, []),
        ([(64, 2), (74, 2), (84, 1)], 100, [(64, 29, 3)]),
        ([(64, 2), (75, 2), (85, 1)], 100, [(64, 10, 1), (75, 19, 2)]),
        ([(64, 2), (74, 2), (84, 1)], 20, [(64, 20, 2), (84, 9, 1)]),
        ([(64, 50), (122, 2)], 20, [(64, 58, 1), (122, 10, 1)]),
    ],
)
def test_bodies_side_by_side_are_read_together(
    places: list[tuple[int, int]], most: int, groups: list[tuple[int, int, int]]
) -> None:
    assert qs.together(places, most) == groups


def test_a_damaged_body_is_left_out_when_it_is_read_and_the_messages_behind_it_are_not() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(4), persistent=True)
    terms = index.terminate(next_seq_id=4, next_deliver_seq_id=0)
    bodies = bytearray(kit.read_file(disk, "0.qs") or b"")
    bodies[64 + 8 + 10] ^= 1
    kit.put_file(disk, "0.qs", bytes(bodies))
    index, found = kit.recover(disk, v2(), terms)
    assert (found.count, found.damage) == (4, [])
    assert index.take_lost() == []
    assert seqs(index.read(0, 4)) == [1, 2, 3]
    assert index.take_lost() == [0]
    assert index.take_lost() == []
    assert (index.unacked, seqs(index.read(0, 4))) == (3, [1, 2, 3])
    assert disk.listdir(kit.QUARANTINE) == ["Q-0.qs-64"]
    trusting = v2(classic_queue_store_v2_check_crc32=False)
    index, found = kit.recover(disk, trusting)
    assert found.count == 4
    assert seqs(index.read(0, 4)) == [0, 1, 2, 3]


# files


@pytest.mark.parametrize(("opening", "closed"), [(9, 6), (7, 6), (1, 4), (0, 4), (5, 4), (3, 4)])
def test_the_fifth_file_closes_one_in_the_middle(opening: int, closed: int) -> None:
    assert to_close([8, 2, 6, 4], opening) == closed


def test_the_files_of_no_more_than_four_segments_are_open_and_closed_ones_are_synced_too() -> None:
    disk = kit.disk()
    opened: list[str] = []
    index, _ = kit.recover(disk, v2(4))
    index.publish_many(0, records(40), persistent=True)
    index.flush_buffer(Trigger.TIMER)
    files_of: SegmentFiles = index._files
    assert len(files_of._open) == MOST_OPEN
    disk.before_op = lambda op, path: opened.append(path) if op == "datasync" else None
    index.sync(Trigger.TIMER)
    assert sorted(opened) == sorted(
        f"{kit.DIRECTORY}/{number}{kind}" for number in range(10) for kind in (".qi", ".qs")
    )
    for start in (0, 36, 12, 24, 8, 20):
        assert seqs(index.read(start, start + 4)) == list(range(start, start + 4))
        assert len(files_of._open) <= MOST_OPEN


def test_a_directory_keeps_the_segment_size_that_it_was_made_with() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(4))
    index.publish_many(0, records(6), persistent=True)
    index.sync(Trigger.TIMER)
    index, found = kit.recover(disk, v2(8))
    assert found.next_seq_id == 8
    index.publish_many(8, records(1, first=8), persistent=True)
    index.sync(Trigger.TIMER)
    assert files(disk) == ["0.qi", "0.qs", "1.qi", "1.qs", "2.qi", "2.qs"]
    assert list(kit.everything(index)) == [*range(6), 8]


# a full disk, and failures


def test_a_full_disk_keeps_messages_until_there_is_room() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(3), persistent=True)
    index.sync(Trigger.TIMER)
    for room in (0, 100, 163, 180, 300):
        disk.free_bytes = room
        index.publish_many(index.next_seq_id, [kit.embedded_record(index.next_seq_id, 300)], persistent=True)
        with pytest.raises(OSError, match="No space") as error:
            index.sync(Trigger.TIMER)
        assert error.value.errno == errno.ENOSPC
        assert seqs(index.read(0, 100)) == list(range(index.next_seq_id))
    disk.free_bytes = None
    index.ack([4])
    index.sync(Trigger.TIMER)
    bodies, damage = qs.scan(kit.read_file(disk, "0.qs") or b"")
    assert (len(bodies), damage) == (7, [])
    index, found = kit.recover(disk, v2())
    assert (seqs(index.read(0, 100)), found.damage) == ([0, 1, 2, 3, 5, 6, 7], [])


def test_publishing_to_a_full_disk_raises_nothing_and_tries_once() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(4))
    disk.free_bytes = 0
    operations = watch(disk)
    for seq in range(12):
        index.publish_many(seq, records(1, first=seq), persistent=True)
    index.ack_range(0, 8)
    assert operations == ["create 0.qs", "create 0.qi", "append 0.qi"]
    disk.free_bytes = None
    index.sync(Trigger.TIMER)
    assert seqs(index.read(0, 12)) == [8, 9, 10, 11]


def test_rows_tell_what_was_written_synced_and_deleted() -> None:
    disk, rows = kit.disk(), KeptRows()
    index, _ = kit.recover(disk, v2(4), trace=rows)
    index.publish_many(0, records(5), persistent=True)
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


# starting again


def test_a_clean_stop_keeps_the_next_sequence_id_and_the_next_message_goes_behind_the_last() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(3), persistent=True)
    index.ack([1])
    terms = index.terminate(next_seq_id=7, next_deliver_seq_id=2)
    assert terms == Terms(7, 2, ((0, 2),))
    operations = watch(disk)
    index, found = kit.recover(disk, v2(), terms)
    assert [each for each in operations if not each.startswith(("pread", "mkdir"))] == []
    assert (found.count, found.low, found.next_seq_id, found.dropped, found.damage) == (2, 0, 7, 0, [])
    index.publish_many(7, records(1, first=7), persistent=True)
    index.sync(Trigger.TIMER)
    assert kit.messages(kit.everything(index)) == kit.messages(
        {seq: kit.embedded_record(seq) for seq in (0, 2, 7)}
    )


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("0.qi", lambda data: data[:-32], "4 messages were here at the last stop, now there are 3"),
        ("0.qi", None, "4 messages were here at the last stop, now there are 0"),
        ("1.qi", lambda data: data[:96], "2 messages were here at the last stop, now there are 1"),
    ],
)
def test_what_is_missing_after_a_clean_stop_is_reported(name: str, change: Any, reason: str) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(4))
    index.publish_many(0, records(6), persistent=True)
    terms = index.terminate(next_seq_id=6, next_deliver_seq_id=0)
    if change is None:
        disk.unlink(f"{kit.DIRECTORY}/{name}")
    else:
        kit.put_file(disk, name, change(kit.read_file(disk, name)))
    index, found = kit.recover(disk, v2(4), terms)
    assert reason in [each.reason for each in found.damage]
    assert found.next_seq_id == 6
    assert index.unacked == found.count == len(kit.everything(index))


def test_transient_messages_and_those_missing_in_the_store_are_dropped() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(4))
    index.publish_many(0, [kit.embedded_record(0), kit.stored_record(1)], persistent=False)
    index.publish_many(
        2, [kit.embedded_record(2), kit.stored_record(3), kit.stored_record(4)], persistent=True
    )
    index.sync(Trigger.TIMER)
    in_store = {kit.stored_record(4)[:16], kit.stored_record(1)[:16]}
    ids = kit.store_message_ids(disk, v2())
    assert ids == [kit.stored_record(3)[:16], kit.stored_record(4)[:16]]
    index, found = kit.recover(disk, v2(4), in_store=in_store.__contains__)
    assert (found.count, found.dropped, found.low, found.damage) == (2, 3, 2, [])
    assert list(kit.everything(index)) == [2, 4]


def test_messages_are_listed_without_a_change_to_the_files() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(4))
    kinds = [kit.embedded_record(seq) if seq % 2 else kit.stored_record(seq) for seq in range(6)]
    index.publish_many(0, kinds, persistent=True)
    index.ack([2])
    index.sync(Trigger.TIMER)
    operations = watch(disk)
    listed = list(listed_version_2(disk, kit.DIRECTORY, v2(4)))
    assert {each.partition(" ")[0] for each in operations} == {"pread"}
    assert listed == [(seq, kit.message(kinds[seq]), True) for seq in (0, 1, 3, 4, 5)]
    assert [embedded(record) for _, record, _ in listed] == [False, True, True, False, True]


def test_a_deleted_queue_leaves_no_file() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(2), persistent=True)
    index.sync(Trigger.TIMER)
    index.delete()
    assert not disk.exists(kit.DIRECTORY)


def test_a_body_that_is_not_at_its_place_is_a_sentence() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(1), persistent=True)
    index.sync(Trigger.TIMER)
    file = disk.open_read(f"{kit.DIRECTORY}/0.qs")
    size = len(records(1)[0]) - 32
    places = [(64, size), (1 << 62, 6), (64, 1 << 31), (65, 5)]
    assert qs.read_bodies(file, places, check_crc=True) == [
        records(1)[0][32:],
        "a body is cut off",
        "a body is cut off",
        "a body of 5 bytes should begin here",
    ]


def test_headers_are_read_without_the_body_files() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2(8))
    index.publish_many(0, records(20), persistent=True)
    index.sync(Trigger.TIMER)
    index, _ = kit.recover(disk, v2(8))
    operations = watch(disk)
    assert seqs(index.read_headers(0, 20)) == list(range(20))
    assert operations
    assert not [each for each in operations if each.endswith(qs.EXTENSION)]


@pytest.mark.parametrize("kept", ["0.qs", "0.qi"])
def test_what_cannot_be_cut_back_after_a_failed_write_is_passed_over(kept: str) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, v2())
    index.publish_many(0, records(3), persistent=True)
    index.sync(Trigger.TIMER)
    index.publish_many(3, records(2, first=3), persistent=True)
    disk.fail_next("pwrite", "0.qi", errno.ENOSPC)
    disk.fail_next("truncate", kept, errno.EIO)
    with pytest.raises(OSError, match="No space"):
        index.sync(Trigger.TIMER)
    index.publish_many(5, records(1, first=5), persistent=True)
    index.sync(Trigger.TIMER)
    again, found = kit.recover(disk, v2())
    assert (list(kit.everything(again)), found.damage) == ([0, 1, 2, 3, 4, 5], [])


@pytest.mark.parametrize("operation", range(1, 9))
def test_a_power_cut_brings_no_entries_back_without_their_bodies(operation: int) -> None:
    for seed in range(10):
        disk = kit.disk(seed)
        disk.in_order = False
        index, _ = kit.recover(disk, v2(4))
        index.publish_many(0, records(8), persistent=True)
        index.sync(Trigger.TIMER)
        index.ack_range(0, 8)
        with disk.power_fails_at(operation, reads=False):
            index.begin_flush()
            index.sync(Trigger.TIMER)
        disk.power_cut()
        left = files(disk)
        assert all(name.replace(".qi", ".qs") in left for name in left if name.endswith(".qi"))
