"""RabbitMQ's defects of its queue index and its recovery terms, expressed against ours (docs/defects.md)."""

from __future__ import annotations

import random
import zlib

import msgpack
import pytest

from tests.queue_index import index_kit as kit
from warrenmq.directory.recovery_terms import Terms, paths_to_sync, save_terms
from warrenmq.queue_index.v1.index import QueueIndex
from warrenmq.queue_index.v1.reader import read_journal, read_segment
from warrenmq.trace.events import Trigger


def publish(index: QueueIndex, *numbers: int, persistent: bool = True) -> None:
    for number in numbers:
        index.publish_many(number, [kit.embedded_record(number)], persistent=persistent)


def action(kind: int, seq_id: int) -> bytes:
    return (kind << 62 | seq_id).to_bytes(8, "big")


DELIVER, ACK = 2, 3


# the journal


@pytest.mark.parametrize("actions", [[DELIVER], [ACK], [DELIVER, ACK]])
@pytest.mark.parametrize("seq_id", [0, 7, 9, 4_000])
def test_journal_entries_of_a_deleted_segment_are_ignored(actions: list[int], seq_id: int) -> None:
    disk = kit.disk()
    kit.put_file(disk, "journal.jif", b"".join(action(each, seq_id) for each in actions))
    index, found = kit.recover(disk)
    assert (found.count, found.dropped, found.quarantined, index.unacked) == (0, 0, 0, 0)
    assert found.next_seq_id > seq_id
    assert index._segments == {}
    assert [name for name in disk.listdir(kit.DIRECTORY) if name.endswith(".idx")] == []


@pytest.mark.parametrize("zeros", [1, 7, 8, 16, 39, 40, 41, 80, 512, 5_000])
def test_zeros_behind_the_journal_are_no_message(zeros: int) -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    publish(index, 0, 1)
    index.sync(Trigger.CLOSE)
    whole = kit.read_file(disk, "journal.jif")
    assert whole is not None
    kit.put_file(disk, "journal.jif", whole + bytes(zeros))
    index, found = kit.recover(disk)
    assert kit.everything(index) == {0: kit.embedded_record(0), 1: kit.embedded_record(1)}
    assert (found.count, found.quarantined) == (2, 0)


def test_garbage_in_the_journal_makes_no_message_and_no_crash() -> None:
    rng = random.Random(1)
    disk = kit.disk()
    index, _ = kit.recover(disk)
    publish(index, *range(6))
    index.sync(Trigger.CLOSE)
    whole = kit.read_file(disk, "journal.jif")
    assert whole is not None
    one = len(whole) // 6
    for _ in range(200):
        damaged = bytearray(whole)
        place = 2 * one + rng.randrange(one)
        damaged[place : place + 3] = rng.randbytes(3)
        found = read_journal(bytes(damaged), 1 << 14)
        published = found.facts[0].published
        for number in (0, 1, 4, 5):
            assert published[number] == kit.embedded_record(number)
        assert len(published) <= 6


def test_a_deliver_is_never_written_before_its_publish() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    for first, count in ((0, 1), (1, 5), (6, 64)):
        index.publish_many(
            first, [kit.embedded_record(n) for n in range(first, first + count)], persistent=True
        )
    index.sync(Trigger.CLOSE)
    data = kit.read_file(disk, "journal.jif")
    assert data is not None
    for cut in range(len(data)):
        facts = read_journal(data[:cut], 1 << 14).facts.get(0)
        if facts is not None:
            assert facts.delivered <= facts.published.keys()


def test_a_queue_whose_messages_are_all_in_its_journal_is_not_forgotten() -> None:
    """Neither by its own recovery nor by the count of references for the store."""
    disk = kit.disk()
    index, _ = kit.recover(disk)
    records = [kit.stored_record(n) for n in range(3)]
    index.publish_many(0, records, persistent=True)
    index.sync(Trigger.CLOSE)
    assert not [name for name in disk.listdir(kit.DIRECTORY) if name.endswith(".idx")]
    assert kit.store_message_ids(disk, kit.settings(4)) == [each[:16] for each in records]
    index, found = kit.recover(disk)
    assert found.count == 3


def test_a_message_that_the_queue_holds_twice_is_counted_twice_for_the_store() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    for seq_id, number in enumerate((1, 2, 1)):
        index.publish_many(seq_id, [kit.stored_record(number)], persistent=True)
    index.ack([1])
    index.sync(Trigger.CLOSE)
    assert kit.store_message_ids(disk, kit.settings(4)) == [kit.stored_record(1)[:16]] * 2


# recovery


def test_messages_dropped_by_a_dirty_recovery_stay_dropped_wherever_the_next_crash_comes() -> None:
    """The acks of a recovery must reach the segment files before anything else does."""
    for cut in range(1, 60):
        disk = kit.disk(cut)
        index, _ = kit.recover(disk)
        publish(index, 0, 1, 4, 5)
        publish(index, 2, 6, persistent=False)
        index.publish_many(7, [kit.stored_record(7)], persistent=True)
        index.flush()
        index.sync(Trigger.CLOSE)
        with disk.power_fails_at(cut) as outage:
            index, found = kit.recover(disk, in_store=lambda _msg_id: False)
            publish(index, found.next_seq_id)
            index.sync(Trigger.CLOSE)
        disk.power_cut()
        index, found = kit.recover(disk, in_store=lambda _msg_id: True)
        assert {0, 1, 4, 5} <= kit.everything(index).keys()
        assert not {2, 6} & kit.everything(index).keys()
        if not outage.came:
            assert 7 not in kit.everything(index)


def test_a_recovery_counts_the_bytes_of_what_it_keeps_only() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    publish(index, 0)
    index.publish_many(1, [kit.stored_record(1, 5_000), kit.stored_record(2, 7_000)], persistent=True)
    publish(index, 3, persistent=False)
    index.sync(Trigger.CLOSE)
    _, found = kit.recover(disk, in_store=lambda msg_id: msg_id == kit.stored_record(1)[:16])
    assert (found.count, found.dropped) == (2, 2)


def test_the_counts_of_a_clean_stop_are_not_used_when_the_store_lost_bodies() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    index.publish_many(0, [kit.stored_record(n) for n in range(10)], persistent=True)
    terms = index.terminate(next_seq_id=10, next_deliver_seq_id=0)
    there = {kit.stored_record(n)[:16] for n in (1, 8)}
    index, found = kit.recover(disk, terms=terms, in_store=there.__contains__)
    assert (found.count, found.low, index.unacked) == (2, 1, 2)
    assert sorted(kit.everything(index)) == [1, 8]


def test_an_empty_queue_that_had_many_messages_opens_without_looking_for_them() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk)
    terms = index.terminate(next_seq_id=1 << 40, next_deliver_seq_id=1 << 40)
    operations: list[tuple[str, str]] = []
    disk.before_op = lambda op, path: operations.append((op, path))
    index, found = kit.recover(disk, terms=terms)
    assert (found.next_seq_id, found.low) == (1 << 40, 1 << 40)
    assert index.read(found.low, found.next_seq_id) == []
    assert index.next_live(0) == 1 << 40
    assert len(operations) < 10


def test_a_segment_that_was_half_published_dies_with_its_last_message() -> None:
    """A count of messages that assumes a full segment never comes to 0."""
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    publish(index, 0, 1)
    publish(index, 9, 10, 11)  # 2, 3 and 8 never were, nor segment 1
    index.flush()
    assert [name for name in disk.listdir(kit.DIRECTORY) if name.endswith(".idx")] == ["0.idx", "2.idx"]
    index.ack([0, 1])
    index.flush()
    assert [name for name in disk.listdir(kit.DIRECTORY) if name.endswith(".idx")] == ["2.idx"]
    index.sync(Trigger.CLOSE)
    index, _ = kit.recover(disk, kit.settings(4))
    index.ack([9, 10, 11])
    index.flush()
    assert [name for name in disk.listdir(kit.DIRECTORY) if name.endswith(".idx")] == []


def test_a_read_over_segment_boundaries_gives_every_message_its_own_sequence_id() -> None:
    """RabbitMQ's reads add up the positions of all segments to the first one's number."""
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    publish(index, *range(11))
    index.flush()
    publish(index, 11, 12)
    assert {seq_id: record for seq_id, record, _ in index.read(2, 13)} == {
        seq_id: kit.embedded_record(seq_id) for seq_id in range(2, 13)
    }


# segment files


def test_an_ack_of_a_message_without_a_deliver_mark_is_an_ack() -> None:
    """A lone mark means delivered; RabbitMQ 3.11 and 3.12 crashed, and an ack written as one would not be one."""
    disk = kit.disk()
    publishes = b"".join(bytes((0xC0, n)) + kit.embedded_record(n) for n in range(3))
    kit.put_file(disk, "0.idx", publishes)
    index, found = kit.recover(disk, terms=Terms(3, 0))
    assert (found.count, found.quarantined) == (3, 0)
    index.ack([0, 2])
    index.flush()
    index.sync(Trigger.CLOSE)
    index, _ = kit.recover(disk)
    assert sorted(kit.everything(index)) == [1]


@pytest.mark.parametrize("tail", [b"\0", b"\0\0", b"\0\x01", bytes(34), b"\x40\x03", b"\x40\x03" * 3])
def test_a_tail_that_rabbitmq_crashes_on_costs_nothing(tail: bytes) -> None:
    """Zeros, and marks of a message that was never published (here 3)."""
    disk = kit.disk()
    index, _ = kit.recover(disk)
    publish(index, 0, 1, 2)
    index.flush()
    data = kit.read_file(disk, "0.idx")
    assert data is not None
    kit.put_file(disk, "0.idx", data + tail)
    index, found = kit.recover(disk)
    assert sorted(kit.everything(index)) == [0, 1, 2]
    assert found.count == 3


def test_a_publish_that_is_cut_off_is_not_taken_for_other_records() -> None:
    """RabbitMQ steps over its first two bytes and takes its message id for prefixes."""
    disk = kit.disk()
    index, _ = kit.recover(disk)
    publish(index, 0, 1)
    index.flush()
    data = kit.read_file(disk, "0.idx")
    assert data is not None
    msg_id = b"\x40\x00\x40\x01" * 4  # read as marks they would ack the two messages
    torn = b"\xc0\x02" + msg_id + bytes(8)
    facts, damage = read_segment(data + torn, 4)
    assert sorted(facts.published) == [0, 1]
    assert facts.acked == set()
    assert [(each.offset, each.length) for each in damage] == [(len(data), len(torn))]


# recovery terms


@pytest.mark.parametrize("content", [b"", bytes(3), bytes(4), bytes(40), b"{}"])
def test_terms_that_are_no_terms_are_none(content: bytes) -> None:
    disk = kit.disk()
    kit.put_file(disk, "recovery.terms", content)
    assert kit.take_terms(disk) is None
    assert not disk.exists(f"{kit.DIRECTORY}/recovery.terms")


@pytest.mark.parametrize("content", [None, [], [1], {}, [1, "ten", 4], 0])
def test_terms_that_say_nothing_are_none(content: object) -> None:
    """RabbitMQ took empty terms for those of an empty queue."""
    disk = kit.disk()
    packed = msgpack.packb(content)
    kit.put_file(disk, "recovery.terms", zlib.crc32(packed).to_bytes(4, "big") + packed)
    assert kit.take_terms(disk) is None


def test_terms_are_in_their_file_when_a_queue_has_ended() -> None:
    """RabbitMQ kept them all in memory until the very end, and lost them all when that was cut short."""
    for seed in range(20):
        disk = kit.disk(seed)
        save_terms(disk, kit.DIRECTORY, Terms(10, 4))
        assert kit.take_terms(disk) == Terms(10, 4)
        save_terms(disk, kit.DIRECTORY, Terms(10, 4))
        disk.power_cut()
        assert kit.take_terms(disk) in (None, Terms(10, 4))
        save_terms(disk, kit.DIRECTORY, Terms(10, 4))
        disk.sync_many(paths_to_sync(disk, [kit.DIRECTORY]))
        disk.power_cut()
        assert kit.take_terms(disk) == Terms(10, 4)
        disk.power_cut()
        assert kit.take_terms(disk) is None


def test_terms_without_a_next_sequence_id_do_not_give_one_out_twice() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(4))
    publish(index, *range(6))
    index.sync(Trigger.CLOSE)
    for terms in (None, Terms(0, 0), Terms(3, 3)):
        _, found = kit.recover(disk, kit.settings(4), terms=terms)
        assert found.next_seq_id >= 6
