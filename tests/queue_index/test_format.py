"""The bytes of journal and segment files, as RabbitMQ 3.10.8 writes them."""

from __future__ import annotations

from struct import pack as struct_pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index import index_kit as kit
from warrenmq.message.stored import encode
from warrenmq.queue_index.record import HEADER_BYTES, body_size, embedded, lengths_agree, pack
from warrenmq.queue_index.v1 import reader
from warrenmq.queue_index.v1.reader import read_journal, read_segment
from warrenmq.queue_index.v1.segment import Facts, Segment
from warrenmq.trace.events import Trigger

MSG_ID = bytes(range(16))
RECORD = pack(MSG_ID, 0, 5)
GOLDEN_RECORD = "000102030405060708090a0b0c0d0e0f 0000000000000000 00000005 00000000"
MESSAGE = encode(kit.HEAD, b"hello")


def journal_of(seq_id: int, record: bytes, *, persistent: bool, acked: bool = False) -> bytes:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(16_384))
    index.publish_many(seq_id, [record], persistent)
    if acked:
        index.flush_buffer(Trigger.BUFFER_FULL)  # an ack before that would leave nothing to write
        index.ack([seq_id])
    index.sync(Trigger.CLOSE)
    return kit.read_file(disk, "journal.jif") or b""


def test_a_record_is_id_expiry_size_and_embedded_size() -> None:
    assert bytes.fromhex(GOLDEN_RECORD) == RECORD
    assert len(RECORD) == HEADER_BYTES == 32
    assert not embedded(RECORD)
    assert body_size(RECORD) == 5
    with_message = pack(MSG_ID, 1_700_000_000_000_000, 5, MESSAGE)
    assert (
        with_message
        == MSG_ID + bytes.fromhex("00060a24181e4000 00000005") + struct_pack(">I", len(MESSAGE)) + MESSAGE
    )
    assert embedded(with_message)


@pytest.mark.parametrize(("persistent", "first"), [(True, "0000000000004001"), (False, "4000000000004001")])
def test_the_journal_holds_publish_deliver_and_ack(persistent: bool, first: str) -> None:
    golden = bytes.fromhex(f"{first} {GOLDEN_RECORD} 8000000000004001")
    assert journal_of(16_385, RECORD, persistent=persistent) == golden
    assert len(golden) == 48
    acked = journal_of(16_385, RECORD, persistent=persistent, acked=True)
    assert acked == golden + bytes.fromhex("c000000000004001")


@pytest.mark.parametrize("acked", [False, True])
def test_an_ack_at_the_beginning_of_a_journal_is_none_of_a_message_that_is_published_behind_it(
    acked: bool,
) -> None:
    """So was the last message of a queue that was converted from version 2, whose journal had been begun anew meanwhile."""
    ack = bytes.fromhex("c000000000004001")
    journal = (
        ack
        + journal_of(16_384, RECORD, persistent=True)
        + journal_of(16_385, RECORD, persistent=True, acked=acked)
    )
    reading = read_journal(journal, 16_384)
    assert (reading.damage, reading.next_seq_id) == ([], 16_386)
    assert [*reading.facts[1].published] == [0, 1]
    assert reading.facts[1].acked == ({1} if acked else set())


def test_an_embedded_message_follows_its_record_in_the_journal() -> None:
    record = pack(MSG_ID, 0, 5, MESSAGE)
    written = journal_of(0, record, persistent=True)
    assert written == bytes(8) + record + bytes.fromhex("8000000000000000")
    assert len(written) == 40 + len(MESSAGE) + 8


@pytest.mark.parametrize(("transient", "first"), [(set(), "c001"), ({1}, "8001")])
def test_a_segment_holds_publish_and_marks(transient: set[int], first: str) -> None:
    segment = Segment(0, published={1: RECORD}, transient=transient)
    assert kit.entries(segment) == bytes.fromhex(f"{first} {GOLDEN_RECORD} 4001")
    assert len(kit.entries(segment)) == 34 + 2


def test_deliver_and_ack_of_an_older_message_are_two_equal_marks() -> None:
    assert kit.entries(Segment(0, delivered={1})) == bytes.fromhex("4001")
    assert kit.entries(Segment(0, acked={1})) == bytes.fromhex("4001")
    assert kit.entries(Segment(0, delivered={1}, acked={1})) == bytes.fromhex("4001 4001")


def test_a_flush_writes_entries_in_descending_order() -> None:
    segment = Segment(0, published={1: RECORD, 16_383: RECORD}, acked={2})
    assert kit.entries(segment) == b"".join(
        (bytes.fromhex("ffff"), RECORD, bytes.fromhex("7fff 4002 c001"), RECORD, bytes.fromhex("4001"))
    )


RECORDS = st.one_of(
    st.builds(pack, st.binary(min_size=16, max_size=16), st.integers(0, 2**55), st.integers(0, 2**32 - 1)),
    st.binary(max_size=300).map(lambda body: pack(MSG_ID, 0, len(body), encode(kit.HEAD, body))),
)
POSITIONS = st.integers(0, 63)


@given(st.dictionaries(POSITIONS, RECORDS, max_size=20), st.sets(POSITIONS), st.sets(POSITIONS))
def test_a_segment_that_was_written_is_parsed(
    published: dict[int, bytes], odd: set[int], later: set[int]
) -> None:
    transient, acked = odd & published.keys(), later & published.keys()
    data = kit.entries(Segment(0, published=published, transient=transient)) + kit.entries(
        Segment(0, acked=acked)
    )
    facts, damage = read_segment(data, 64)
    assert not damage
    assert facts == Facts(published, transient, set(published), acked)


def alike(relative: int) -> bytes:
    return kit.embedded_record(relative, 50)


ALIKE = kit.entries(Segment(0, published={relative: alike(relative) for relative in range(60)}))
STORED = kit.entries(
    Segment(0, published={relative: kit.stored_record(relative, 5) for relative in range(60)})
)


@given(st.sampled_from([ALIKE, STORED]), st.lists(st.tuples(st.integers(0, len(STORED) - 1), st.integers(0, 255)), max_size=3),
       st.integers(0, len(ALIKE)))  # fmt: skip
def test_records_taken_by_the_column_are_those_taken_one_by_one(
    data: bytes, changes: list[tuple[int, int]], end: int
) -> None:
    changed = bytearray(data)
    for position, byte in changes:
        changed[position] = byte
    by_column = read_segment(bytes(changed[:end]), 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader._Reader, "_alike", lambda _reader, position, _facts: position)
        assert read_segment(bytes(changed[:end]), 60) == by_column


def test_records_of_one_size_are_taken_by_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    by_column = reader._Reader._alike

    def counted(self: reader._Reader, position: int, facts: Facts) -> int:
        end = by_column(self, position, facts)
        taken.append(end - position)
        return end

    monkeypatch.setattr(reader._Reader, "_alike", counted)
    facts, damage = read_segment(ALIKE, 60)
    assert not damage
    assert facts.published == {relative: alike(relative) for relative in range(60)}
    assert sum(taken) > len(ALIKE) * 5 / 6


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["publish", "transient", "ack"]), st.integers(0, 200), RECORDS), max_size=20
)


@given(ACTIONS)
def test_a_journal_that_was_written_is_replayed(actions: list[tuple[str, int, bytes]]) -> None:
    data, expected, count = b"", {}, 0
    for kind, seq_id, record in actions:
        facts: Any = expected.setdefault(seq_id // 64, Facts())
        if kind == "ack":
            data += struct_pack(">Q", 3 << 62 | seq_id)
            facts.acked.add(seq_id % 64)
            count += 1
        elif (any(record[:16]) or seq_id) and seq_id % 64 not in facts.published:
            data += (
                struct_pack(">Q", (kind == "transient") << 62 | seq_id)
                + record
                + struct_pack(">Q", 2 << 62 | seq_id)
            )
            facts.published[seq_id % 64] = record
            facts.delivered.add(seq_id % 64)
            if kind == "transient":
                facts.transient.add(seq_id % 64)
            count += 2
    replay = read_journal(data, 64)
    assert not replay.damage
    assert replay.end == len(data)
    assert {number: facts for number, facts in replay.facts.items() if facts != Facts()} == {
        number: facts for number, facts in expected.items() if facts != Facts()
    }
    assert replay.actions == count
    assert replay.next_seq_id == max((seq_id + 1 for _, seq_id, _ in actions), default=0) or not count


@pytest.mark.parametrize(
    ("stored", "size", "agree"),
    [
        (b"", 5, True),
        (MESSAGE, 5, True),
        (MESSAGE, 4, False),
        (MESSAGE[:-1], 5, False),
        (MESSAGE + b"x", 5, False),
        (b"\x83h\x02", 5, True),
        (b"\x00" * 20, 5, False),
        (b"\x95", 5, False),
    ],
)
def test_the_lengths_of_a_record_check_each_other(stored: bytes, size: int, agree: bool) -> None:
    assert lengths_agree(b"**" + stored + b"*", 2, 2 + len(stored), size) is agree
