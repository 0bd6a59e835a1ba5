"""The index of version 2: what is read from it, and what a start finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue_index import index_kit as kit
from tests.support.own_directories import listed_version_2
from warrenmq.directory.recovery_terms import Terms
from warrenmq.queue_index.record import embedded
from warrenmq.queue_index.v2 import qs
from warrenmq.trace.events import Trigger


def test_reading_does_not_depend_on_what_was_flushed() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(4, classic_queue_store_v2_max_cache_size=100))
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
    index, _ = kit.recover(kit.disk(), kit.v2(4))
    index.publish_many(0, kit.records(6), persistent=True)
    index.sync(Trigger.TIMER)
    for place in (0, 3, 4, 5, 8):
        assert index.read(place, place) == []
    assert (index.read(5, 3), index.unacked) == ([], 6)


def test_entries_of_the_last_flush_are_read_from_the_cache_until_they_are_acked() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(4), persistent=False)
    index.sync(Trigger.TIMER)
    operations = kit.watch(disk)
    assert index.read(0, 4) == [(seq, record, False) for seq, record in enumerate(kit.records(4))]
    assert "pread 0.qs" not in operations
    index.ack([1])
    assert kit.seqs(index.read(0, 4)) == [0, 2, 3]
    index.publish_many(4, kit.records(1, first=4), persistent=True)
    index.sync(Trigger.TIMER)  # now the cache has message 4 only
    operations.clear()
    assert kit.seqs(index.read(0, 5)) == [0, 2, 3, 4]
    assert operations.count("pread 0.qs") == 2  # 1 lies between 0 and 2


def test_a_damaged_body_is_left_out_when_it_is_read_and_the_messages_behind_it_are_not() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(4), persistent=True)
    terms = index.terminate(next_seq_id=4, next_deliver_seq_id=0)
    bodies = bytearray(kit.read_file(disk, "0.qs") or b"")
    bodies[64 + 8 + 10] ^= 1
    kit.put_file(disk, "0.qs", bytes(bodies))
    index, found = kit.recover(disk, kit.v2(), terms)
    assert (found.count, found.damage) == (4, [])
    assert index.take_lost() == []
    assert kit.seqs(index.read(0, 4)) == [1, 2, 3]
    assert index.take_lost() == [0]
    assert index.take_lost() == []
    assert (index.unacked, kit.seqs(index.read(0, 4))) == (3, [1, 2, 3])
    assert disk.listdir(kit.QUARANTINE) == ["Q-0.qs-64"]
    trusting = kit.v2(classic_queue_store_v2_check_crc32=False)
    index, found = kit.recover(disk, trusting)
    assert found.count == 4
    assert kit.seqs(index.read(0, 4)) == [0, 1, 2, 3]


# starting again


def test_a_clean_stop_keeps_the_next_sequence_id_and_the_next_message_goes_behind_the_last() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(3), persistent=True)
    index.ack([1])
    terms = index.terminate(next_seq_id=7, next_deliver_seq_id=2)
    assert terms == Terms(7, 2, ((0, 2),))
    operations = kit.watch(disk)
    index, found = kit.recover(disk, kit.v2(), terms)
    assert [each for each in operations if not each.startswith(("pread", "mkdir"))] == []
    assert (found.count, found.low, found.next_seq_id, found.dropped, found.damage) == (2, 0, 7, 0, [])
    index.publish_many(7, kit.records(1, first=7), persistent=True)
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
    index, _ = kit.recover(disk, kit.v2(4))
    index.publish_many(0, kit.records(6), persistent=True)
    terms = index.terminate(next_seq_id=6, next_deliver_seq_id=0)
    if change is None:
        disk.unlink(f"{kit.DIRECTORY}/{name}")
    else:
        kit.put_file(disk, name, change(kit.read_file(disk, name)))
    index, found = kit.recover(disk, kit.v2(4), terms)
    assert reason in [each.reason for each in found.damage]
    assert found.next_seq_id == 6
    assert index.unacked == found.count == len(kit.everything(index))


def test_transient_messages_and_those_missing_in_the_store_are_dropped() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(4))
    index.publish_many(0, [kit.embedded_record(0), kit.stored_record(1)], persistent=False)
    index.publish_many(
        2, [kit.embedded_record(2), kit.stored_record(3), kit.stored_record(4)], persistent=True
    )
    index.sync(Trigger.TIMER)
    in_store = {kit.stored_record(4)[:16], kit.stored_record(1)[:16]}
    ids = kit.store_message_ids(disk, kit.v2())
    assert ids == [kit.stored_record(3)[:16], kit.stored_record(4)[:16]]
    index, found = kit.recover(disk, kit.v2(4), in_store=in_store.__contains__)
    assert (found.count, found.dropped, found.low, found.damage) == (2, 3, 2, [])
    assert list(kit.everything(index)) == [2, 4]


def test_messages_are_listed_without_a_change_to_the_files() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(4))
    kinds = [kit.embedded_record(seq) if seq % 2 else kit.stored_record(seq) for seq in range(6)]
    index.publish_many(0, kinds, persistent=True)
    index.ack([2])
    index.sync(Trigger.TIMER)
    operations = kit.watch(disk)
    listed = list(listed_version_2(disk, kit.DIRECTORY, kit.v2(4)))
    assert {each.partition(" ")[0] for each in operations} == {"pread"}
    assert listed == [(seq, kit.message(kinds[seq]), True) for seq in (0, 1, 3, 4, 5)]
    assert [embedded(record) for _, record, _ in listed] == [False, True, True, False, True]


def test_a_body_that_is_not_at_its_place_is_a_sentence() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2())
    index.publish_many(0, kit.records(1), persistent=True)
    index.sync(Trigger.TIMER)
    file = disk.open_read(f"{kit.DIRECTORY}/0.qs")
    size = len(kit.records(1)[0]) - 32
    places = [(64, size), (1 << 62, 6), (64, 1 << 31), (65, 5)]
    assert qs.read_bodies(file, places, check_crc=True) == [
        kit.records(1)[0][32:],
        "a body is cut off",
        "a body is cut off",
        "a body of 5 bytes should begin here",
    ]


def test_headers_are_read_without_the_body_files() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.v2(8))
    index.publish_many(0, kit.records(20), persistent=True)
    index.sync(Trigger.TIMER)
    index, _ = kit.recover(disk, kit.v2(8))
    operations = kit.watch(disk)
    assert kit.seqs(index.read_headers(0, 20)) == list(range(20))
    assert operations
    assert not [each for each in operations if each.endswith(qs.EXTENSION)]
