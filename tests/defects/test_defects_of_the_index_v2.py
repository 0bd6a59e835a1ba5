"""RabbitMQ's defects of its queue index and queue store of version 2, expressed against ours (docs/defects.md)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queue_index import index_kit as kit
from warrenmq.message.stored import encode
from warrenmq.queue_index.record import pack
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.trace.events import Trigger

SETTINGS = kit.settings(4, version=2)


def index_of(disk: Any, first: int = 0, count: int = 0, **more: Any) -> Any:
    index, _ = kit.recover(disk, SETTINGS, **more)
    if count:
        index.publish_many(first, [kit.embedded_record(n) for n in range(first, first + count)], True)
    return index


def names(disk: Any) -> list[str]:
    found: list[str] = disk.listdir(kit.DIRECTORY)
    return found


def bodies(index: Any, start: int, end: int) -> list[bytes]:
    return [record[32:] for _, record, _ in index.read(start, end)]


def body(number: int) -> bytes:
    return kit.embedded_record(number)[32:]


def test_a_confirm_of_version_2_waits_for_both_files_to_be_on_the_disk() -> None:
    """RabbitMQ's version 2 writes and does not sync."""
    disk = kit.disk()
    index = index_of(disk, 0, 2)
    syncs: list[str] = []
    disk.before_op = lambda op, path: syncs.append(path.rpartition("/")[2]) if op == "datasync" else None
    index.sync(Trigger.MAILBOX_EMPTY)
    assert syncs == ["0.qs", "0.qi"]
    disk.before_op = None
    disk.power_cut()
    assert bodies(index_of(disk), 0, 4) == [body(0), body(1)]


def test_a_segment_counts_what_was_published_in_it_and_not_its_size() -> None:
    disk = kit.disk()
    index = index_of(disk, 1, 2)
    index.publish_many(9, [kit.embedded_record(9)], True)
    index.sync(Trigger.TIMER)
    index.ack([1, 2])
    index.sync(Trigger.TIMER)
    assert names(disk) == ["2.qi", "2.qs"]
    index = index_of(disk)
    index.ack([9])
    index.begin_flush()
    assert names(disk) == []


@pytest.mark.parametrize("name", ["0.qi", "0.qs"])
@pytest.mark.parametrize("size", [0, 1, 31, 63, 64])
def test_a_file_that_is_empty_or_has_half_a_header_stops_no_start(name: str, size: int) -> None:
    disk = kit.disk()
    magic = qi.MAGIC if name == "0.qi" else qs.MAGIC
    kit.put_file(disk, name, qi.pack_header(magic, 0, 4)[:size])
    index = index_of(disk)
    assert (index.unacked, names(disk)) == (0, [])
    index.publish_many(0, [kit.embedded_record(0)], True)
    index.sync(Trigger.TIMER)
    assert bodies(index_of(disk), 0, 4) == [body(0)]


@pytest.mark.parametrize("size", [1, 8, 63])
def test_a_body_is_never_appended_to_half_a_header(size: int) -> None:
    disk = kit.disk()
    index = index_of(disk)
    kit.put_file(disk, "0.qs", qi.pack_header(qs.MAGIC, 0, 4)[:size])
    index.publish_many(0, [kit.embedded_record(0)], True)
    index.sync(Trigger.TIMER)
    assert bodies(index_of(disk), 0, 4) == [body(0)]


def test_the_rest_of_a_deleted_segment_is_not_taken_for_a_new_one() -> None:
    """Neither its bodies in the cache nor the place where its file ended."""
    disk = kit.disk()
    index = index_of(disk, 0, 3)
    index.sync(Trigger.TIMER)
    index.ack([0, 1, 2])
    index.begin_flush()
    assert names(disk) == []
    index.publish_many(3, [kit.embedded_record(3)], True)
    index.sync(Trigger.TIMER)
    assert index.read(0, 4) == [(3, kit.embedded_record(3), True)]
    assert bodies(index_of(disk), 0, 4) == [body(3)]


def test_no_body_is_written_without_its_entry_or_stays_without_it() -> None:
    disk = kit.disk()
    index = index_of(disk, 0, 3)
    index.ack([1])
    index.sync(Trigger.TIMER)
    size = qi.HEADER_BYTES + 2 * (qs.ENTRY_HEADER_BYTES + len(body(0)))
    assert disk.size(f"{kit.DIRECTORY}/0.qs") == size
    index.ack([0, 2])
    index.begin_flush()
    index.sync(Trigger.TIMER)
    assert names(disk) == []


def test_no_file_is_longer_than_what_was_written() -> None:
    """RabbitMQ tried to have the file system reserve the whole index file."""
    disk = kit.disk()
    index = index_of(disk, 0, 2)
    index.sync(Trigger.TIMER)
    assert disk.size(f"{kit.DIRECTORY}/0.qi") == qi.HEADER_BYTES + 2 * qi.ENTRY_BYTES


def test_reading_never_finds_what_was_acked_wherever_the_message_is() -> None:
    """In the buffer, acked in the buffer, in the cache, acked on disk."""
    disk = kit.disk()
    index = index_of(disk, 0, 4)
    index.sync(Trigger.TIMER)
    index.ack([1])
    index.publish_many(4, [kit.embedded_record(n) for n in (4, 5)], True)
    index.ack([4])
    assert [seq for seq, _, _ in index.read(0, 8)] == [0, 2, 3, 5]
    index.flush_buffer(Trigger.TIMER)
    index.ack([0])
    assert [seq for seq, _, _ in index.read(0, 8)] == [2, 3, 5]


def test_files_that_only_the_last_flush_opened_are_synced_and_closed_at_the_end() -> None:
    for seed in range(20):
        disk = kit.disk(seed)
        index = index_of(disk, 0, 23)
        index.publish_many(23, [kit.embedded_record(n) for n in (23, 24)], True)
        terms = index.terminate(next_seq_id=25, next_deliver_seq_id=0)
        disk.power_cut()
        index, found = kit.recover(disk, SETTINGS, terms=terms)
        assert (found.count, found.quarantined) == (25, 0)


@pytest.mark.parametrize("cut", range(1, 32))
@pytest.mark.parametrize("persistent", [True, False])
def test_an_entry_that_is_cut_off_is_no_entry_and_no_crash(cut: int, persistent: bool) -> None:
    disk = kit.disk()
    index = index_of(disk, 0, 1)
    index.publish_many(1, [kit.embedded_record(1)], persistent)
    index.sync(Trigger.TIMER)
    whole = kit.read_file(disk, "0.qi")
    kit.put_file(disk, "0.qi", whole[: len(whole) - cut])
    assert [seq for seq, _, _ in index_of(disk).read(0, 4)] == [0]


def test_zeros_behind_a_term_do_not_make_its_checksum_wrong() -> None:
    """RabbitMQ from 3.12 on takes the checksum without the padding, and compares it with one that includes it."""
    term = b"\x83h\x02a\x01a\x02"
    assert qs.entry_problem(qs.pack_entry_header(term) + term, 0, len(term)) is None
    padded = term + bytes(5)
    head = qs.ENTRY_HEADER.pack(
        len(padded), qs.HAS_CRC, qs.ENTRY_HEADER.unpack(qs.pack_entry_header(term))[2], 0
    )
    assert qs.entry_problem(head + padded, 0, len(padded)) is None
    assert qs.entry_problem(head + padded[:-1] + b"x", 0, len(padded)) is not None


def test_a_body_behind_the_end_of_its_file_costs_that_message_only() -> None:
    """RabbitMQ writes the index first: a power cut leaves entries whose bodies are not there."""
    disk = kit.disk()
    index = index_of(disk, 0, 3)
    index.sync(Trigger.TIMER)
    whole = kit.read_file(disk, "0.qs")
    kit.put_file(disk, "0.qs", whole[:-3])
    index, found = kit.recover(disk, SETTINGS)
    assert (found.count, bodies(index, 0, 4), index.unacked) == (3, [body(0), body(1)], 2)


def test_a_queue_whose_messages_are_all_in_its_journal_is_converted_too() -> None:
    disk = kit.disk()
    old, _ = kit.recover(disk, kit.settings(4))
    stored = pack(b"warrenmqwarrenmq", 0, 5_000)
    old.publish_many(0, [kit.embedded_record(0), stored], persistent=True)
    old.sync(Trigger.CLOSE)
    assert names(disk) == ["journal.jif"]
    assert kit.store_message_ids(disk, SETTINGS) == [stored[:16]]
    index, found = kit.recover(disk, SETTINGS)
    assert found.count == 2
    assert [record[32:] for _, record, _ in index.read(0, 4)] == [
        encode(kit.HEAD, (0).to_bytes(4, "big").rjust(5, b"b")),
        b"",
    ]
    assert "journal.jif" not in names(disk)
