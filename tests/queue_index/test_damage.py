"""Files with bytes that make no sense: opening them never raises, loses no message that is whole, and changes none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index import index_kit as kit
from warrenmq.message.queue_message import Publication, records_of
from warrenmq.queue_index.record import all_whole, record_problem
from warrenmq.queue_index.v1.reader import read_journal, read_segment
from warrenmq.queue_index.v1.segment import MARK_BYTES, Segment
from warrenmq.queue_index.v1.walk import messages
from warrenmq.seams.disk import SECTOR
from warrenmq.trace.events import Trigger

COUNT = 8
RECORDS = {seq: kit.embedded_record(seq) if seq % 3 else kit.stored_record(seq) for seq in range(COUNT)}


def healthy_files() -> tuple[bytes, bytes]:
    """0.idx holds messages 0 to 5, the journal 6 and 7 and the acks of 1 and 6."""
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(16))
    index.publish_many(0, [RECORDS[seq] for seq in range(6)], persistent=True)
    index.flush()
    index.publish_many(6, [RECORDS[6], RECORDS[7]], persistent=True)
    index.ack([1, 6])
    index.sync(Trigger.CLOSE)
    return kit.read_file(disk, "0.idx") or b"", kit.read_file(disk, "journal.jif") or b""


SEGMENT, JOURNAL = healthy_files()
LIVE = {0, 2, 3, 4, 5, 7}
EVER = LIVE | {1, 6}


def opened(segment: bytes, journal: bytes) -> tuple[dict[int, bytes], int, dict[str, bytes]]:
    """Recover twice; the messages, how often bytes were set aside, and the quarantine."""
    disk = kit.disk()
    kit.put_file(disk, "0.idx", segment)
    kit.put_file(disk, "journal.jif", journal)
    read = messages(disk, kit.DIRECTORY, 16)
    listed = {
        seq: record for seq, record, persistent in read if persistent and record_problem(record, seq) is None
    }
    index, found = kit.recover(disk, kit.settings(16))
    live = kit.everything(index)
    assert live == listed
    again, nothing_more = kit.recover(disk, kit.settings(16))
    assert kit.everything(again) == live
    assert nothing_more.quarantined == 0
    assert nothing_more.next_seq_id == found.next_seq_id
    quarantine = {name: disk.read(f"{kit.QUARANTINE}/{name}") for name in disk.listdir(kit.QUARANTINE)}
    pieces = [each for each in found.damage if "no message is in it" not in each.reason]
    assert bool(quarantine) == bool(pieces)
    return live, len(pieces), quarantine


def unchanged(live: dict[int, bytes]) -> bool:
    return all(RECORDS.get(seq) == record for seq, record in live.items())


def test_the_files_are_healthy_to_begin_with() -> None:
    live, quarantined, _ = opened(SEGMENT, JOURNAL)
    assert live.keys() == LIVE
    assert unchanged(live)
    assert quarantined == 0


def segment_ends() -> dict[int, int]:
    """The end of each message's publish in 0.idx."""
    ends, position = {}, 0
    for seq in sorted(range(6), reverse=True):
        position += 2 + len(RECORDS[seq])
        ends[seq] = position
        position += 2
    return ends


def test_a_segment_cut_anywhere_keeps_what_is_whole() -> None:
    ends = segment_ends()
    boundaries = {0, *ends.values(), *(end + 2 for end in ends.values())}
    for size in range(len(SEGMENT)):
        live, quarantined, _ = opened(SEGMENT[:size], JOURNAL)
        whole = {seq for seq, end in ends.items() if end <= size}
        assert live.keys() == (whole - {1}) | {7}, size
        assert unchanged(live)
        # one byte is the first one of what the journal has as well, which a flush may have begun to append
        assert quarantined == (size not in boundaries and size - 1 not in boundaries), size


def test_a_journal_cut_anywhere_keeps_what_is_whole() -> None:
    first = 8 + len(RECORDS[6])
    second = first + 8 + 8 + len(RECORDS[7])
    acks = second + 8
    boundaries = {0, first, first + 8, second, second + 8, acks + 8}
    for size in range(len(JOURNAL)):
        live, quarantined, _ = opened(SEGMENT, JOURNAL[:size])
        expected = {0, 2, 3, 4, 5} | ({6} if first <= size else set()) | ({7} if second <= size else set())
        if size < acks + 8:
            expected |= {1}
        assert live.keys() == expected, size
        assert unchanged(live)
        tail = JOURNAL[max(each for each in boundaries if each <= size) : size]
        assert quarantined == any(tail), size


@pytest.mark.parametrize("zeros", [1, 7, 8, 39, 40, 41, 4_096])
def test_zeros_behind_the_journal_are_no_damage(zeros: int) -> None:
    live, quarantined, _ = opened(SEGMENT, JOURNAL + bytes(zeros))
    assert live.keys() == LIVE
    assert quarantined == 0


def test_after_zeros_new_actions_are_not_lost_behind_them() -> None:
    disk = kit.disk()
    kit.put_file(disk, "journal.jif", JOURNAL + bytes(100))
    index, found = kit.recover(disk, kit.settings(16))
    index.publish_many(found.next_seq_id, [kit.embedded_record(99)], persistent=True)
    index.sync(Trigger.CLOSE)
    assert kit.embedded_record(99) in kit.everything(kit.recover(disk, kit.settings(16))[0]).values()


def test_a_segment_of_zeros_is_set_aside() -> None:
    live, quarantined, quarantine = opened(bytes(len(SEGMENT)), JOURNAL)
    assert live.keys() == {7}
    assert quarantined == 1
    assert quarantine == {"Q-0.idx-0": bytes(len(SEGMENT))}


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_a_segment_costs_the_message_that_it_is_in(bit: int) -> None:
    """And the one that it takes the place of, when the bit is in a position: no check can tell them apart."""
    ends = segment_ends()
    for offset in range(len(SEGMENT)):
        hit = {seq for seq, end in ends.items() if end - 2 - len(RECORDS[seq]) <= offset < end + 2}
        in_position = any(
            end - 1 - len(RECORDS[seq]) == offset or offset == end + 1 for seq, end in ends.items()
        )
        if in_position:
            hit |= {seq ^ 1 << bit for seq in hit}
        damaged = bytearray(SEGMENT)
        damaged[offset] ^= 1 << bit
        live, _, _ = opened(bytes(damaged), JOURNAL)
        assert unchanged({seq: record for seq, record in live.items() if seq not in hit})
        assert live.keys() >= LIVE - hit


def test_a_flipped_length_is_noticed_and_the_messages_behind_it_are_found() -> None:
    start = segment_ends()[4] - len(RECORDS[4])  # message 4 is the second in the file
    for offset in range(24, 32):  # size and embedded size
        for bit in range(8):
            damaged = bytearray(SEGMENT)
            damaged[start + offset] ^= 1 << bit
            live, quarantined, quarantine = opened(bytes(damaged), JOURNAL)
            assert live.keys() == LIVE - {4}
            assert unchanged(live)
            assert quarantined == 1
            (pieces,) = quarantine.values()
            frame_is_right = offset < 28  # only the size of the body is wrong, which no frame needs
            assert (
                pieces
                == damaged[start - 2 * (not frame_is_right) : segment_ends()[4] + 2 * (not frame_is_right)]
            )


def test_a_flipped_length_in_the_journal_is_noticed_and_what_is_behind_it_is_found() -> None:
    disk = kit.disk()
    index, _ = kit.recover(disk, kit.settings(16))
    index.publish_many(0, [kit.embedded_record(seq) for seq in range(4)], persistent=True)
    index.ack([0])
    index.sync(Trigger.CLOSE)
    journal = bytearray(kit.read_file(disk, "journal.jif") or b"")
    length = len(kit.embedded_record(0)) + 16
    journal[length + 8 + 30] ^= 0x70
    kit.put_file(disk, "journal.jif", bytes(journal))
    index, found = kit.recover(disk, kit.settings(16))
    assert list(kit.everything(index)) == [2, 3]
    assert [str(each) for each in found.damage] == [
        f"{kit.DIRECTORY}/journal.jif is damaged at byte {length}: "
        "a publish is cut off, or one of its lengths is wrong."
    ]
    quarantine = disk.read(f"{kit.QUARANTINE}/Q-journal.jif-{length}")
    assert quarantine == journal[length : 2 * length]


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_the_journal_harms_no_message_of_the_segment(bit: int) -> None:
    for position in range(len(JOURNAL)):
        damaged = bytearray(JOURNAL)
        damaged[position] ^= 1 << bit
        live, _, _ = opened(SEGMENT, bytes(damaged))
        # one flipped bit of an ack's sequence id acks another message; nobody can tell
        assert len(LIVE - {7} - live.keys()) <= 1
        assert unchanged({seq: record for seq, record in live.items() if seq < 6})


def test_a_record_that_is_cut_off_behind_a_publish_without_a_mark_is_told_as_such() -> None:
    unmarked = Segment(0, published={3: RECORDS[4]}).entries([3], 1)[0][:-MARK_BYTES]
    facts, damage = read_segment(unmarked + b"\x40", 16)
    assert facts.published == {3: RECORDS[4]}
    assert [(each.offset, each.reason) for each in damage] == [(len(unmarked), "a record is cut off")]


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_garbage_is_opened(segment: bytes, journal: bytes) -> None:
    opened(segment, journal)


@given(
    st.integers(0, len(SEGMENT)), st.integers(0, len(JOURNAL)), st.binary(max_size=60), st.binary(max_size=60)
)
def test_garbage_inside_files_changes_no_message_before_it(a: int, b: int, one: bytes, two: bytes) -> None:
    live, _, _ = opened(SEGMENT[:a] + one + SEGMENT[a:], JOURNAL[:b] + two + JOURNAL[b:])
    assert all(
        RECORDS[seq] == live[seq] for seq in EVER & live.keys() if segment_ends().get(seq, 1 << 30) <= a
    )


@given(
    st.integers(0, len(SEGMENT) - 1), st.integers(0, 80), st.integers(0, len(JOURNAL) - 1), st.integers(0, 80)
)
def test_runs_of_zeros_inside_files_are_opened(a: int, many: int, b: int, few: int) -> None:
    segment = SEGMENT[:a] + bytes(many) + SEGMENT[a + many :]
    journal = JOURNAL[:b] + bytes(few) + JOURNAL[b + few :]
    opened(segment, journal)


def test_damage_of_another_day_does_not_overwrite_the_quarantine() -> None:
    disk = kit.disk()
    for garbage in (b"\x00one", b"\x00two", b"\x00two"):
        kit.put_file(disk, "0.idx", garbage)
        kit.recover(disk, kit.settings(16))
    assert {name: disk.read(f"{kit.QUARANTINE}/{name}") for name in disk.listdir(kit.QUARANTINE)} == {
        "Q-0.idx-0": b"\x00one",
        "Q-0.idx-0.2": b"\x00two",
    }


# the end that a kill left of a flush


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_flush_that_a_kill_cut_off_is_no_damage_if_the_journal_has_it(is_noted: bool) -> None:
    flush = b"\xc0\x07" + RECORDS[7] + b"\x40\x07" + b"\x40\x01"
    whole = {0, 2 + len(RECORDS[7]), 4 + len(RECORDS[7]), len(flush)}
    for written in range(len(flush) + 1):
        live, quarantined, _ = opened(SEGMENT + flush[:written], JOURNAL if is_noted else b"")
        assert quarantined == (written not in whole and not is_noted), written
        assert not is_noted or live.keys() == LIVE


def test_an_end_that_is_no_beginning_of_what_the_journal_has_is_damage() -> None:
    for end in (b"\xc0\x07" + RECORDS[6][:20], b"\xc0\x06" + RECORDS[7][:20], b"\xc1"):
        assert opened(SEGMENT + end, JOURNAL)[1] == 1


# tails that a power cut left: the file has its new length, but not all of its bytes


def test_a_publish_that_zeros_follow_is_torn() -> None:
    """Its lengths may agree, and its body may still be zeros."""
    record = kit.embedded_record(8, 100)
    for name, entry in (
        ("segment", b"\xc0\x08" + record + b"\x40\x08"),
        ("journal", bytes(7) + b"\x08" + record),
    ):
        for arrived in range(len(record) - 98, len(record)):  # from the first byte of the body on
            torn = entry[:arrived] + bytes(len(entry) - arrived + 20)
            files = (SEGMENT + torn, JOURNAL) if name == "segment" else (SEGMENT, JOURNAL + torn)
            live, quarantined, _ = opened(*files)
            assert live.keys() == LIVE, (name, arrived)
            assert quarantined == 1


@pytest.mark.parametrize("name", ["journal", "segment"])
def test_no_end_of_a_publish_that_is_cut_off_is_an_ack(name: str) -> None:
    """The message id and the zeros behind it may read as one."""
    record = kit.embedded_record(8, 100)
    half, mark = record[:8], b"\x40\x00"
    for msg_id in (half + b"\x01\x00\x00\x00\xc0\x00\x00\x00", mark + half + b"\x01\x00\x00\x00\xc0\x00"):
        for arrived in range(1, 8 + len(record)):
            if name == "segment":
                torn = (b"\xc0\x08" + msg_id + record[16:])[:arrived]
                files = b"\xc0\x00" + RECORDS[0] + mark + torn, b""
            else:
                torn = (bytes(7) + b"\x08" + msg_id + record[16:])[:arrived]
                files = b"", bytes(8) + RECORDS[0] + (2 << 62).to_bytes(8, "big") + torn
            assert 0 in opened(*files)[0], arrived


@pytest.mark.parametrize("acked_before", [False, True])
def test_an_ack_cut_at_a_sector_boundary_acks_nothing(acked_before: bool) -> None:
    journal = JOURNAL + (3 << 62).to_bytes(8, "big") * acked_before
    while len(journal) % SECTOR <= SECTOR - 8:
        journal += (2 << 62 | 9).to_bytes(8, "big")  # delivers of nobody
    arrived = SECTOR - len(journal) % SECTOR
    torn = (3 << 62 | 3).to_bytes(8, "big")[:arrived] + bytes(100)  # reads as an ack of message 0
    live, quarantined, _ = opened(SEGMENT, journal + torn)
    assert live.keys() == (LIVE - {0} if acked_before else LIVE)
    assert quarantined == (not acked_before)


def test_no_write_ends_in_an_ack_that_zeros_behind_it_would_put_in_doubt() -> None:
    for size in range(1, 2 * SECTOR):
        disk = kit.disk()
        index, _ = kit.recover(disk, kit.settings(16))
        index.publish_many(0, [kit.embedded_record(0, size)], persistent=True)
        index.ack([0])
        index.sync(Trigger.CLOSE)
        journal = kit.read_file(disk, "journal.jif") or b""
        kit.put_file(disk, "journal.jif", journal + bytes(100))
        assert kit.everything(kit.recover(disk, kit.settings(16))[0]) == {}, size
        whole = kit.entries(Segment(0, acked={0}), size)
        assert whole == bytes.fromhex("4000") * (2 if size % SECTOR == SECTOR - 1 else 1)


def test_a_mark_cut_at_a_sector_boundary_marks_nothing() -> None:
    record = kit.stored_record(300)
    for filler in range(SECTOR):
        file = kit.entries(Segment(0, published={0: record, 300: kit.embedded_record(300, filler + 2)}))
        if len(file) % SECTOR == SECTOR - 1:
            break
    torn = file + b"\x41" + bytes(9)  # the ack of 300, but it reads as one of 256
    facts, damage = read_segment(torn, 16_384)
    assert facts.acked == set()
    assert [(each.offset, each.length) for each in damage] == [(len(file), 10)]
    complete, _ = read_segment(file + b"\x41\x2c", 16_384)
    assert complete.acked == {300}


def test_a_replay_goes_on_behind_garbage_at_the_next_whole_publish() -> None:
    one, two = kit.embedded_record(1), kit.embedded_record(2)
    publish = [
        bytes(7) + bytes([seq]) + record + b"\x80" + bytes(6) + bytes([seq])
        for seq, record in ((1, one), (2, two))
    ]
    replay = read_journal(publish[0] + b"\xff\xff garbage" + publish[1] + b"\xc0" + bytes(6) + b"\x01", 16)
    assert replay.facts[0].published == {1: one, 2: two}
    assert replay.facts[0].acked == {1}
    assert [(each.offset, each.length) for each in replay.damage] == [(len(publish[0]), 10)]


@given(
    sizes=st.lists(st.sampled_from([0, 1, 30, 5_000]), max_size=4),
    flip=st.none() | st.tuples(st.integers(0, 5_100), st.integers(0, 7)),
)
def test_records_are_whole_together_when_each_of_them_is(
    sizes: list[int], flip: tuple[int, int] | None
) -> None:
    """One flipped bit in any of them, or a message in a store, has them looked at one by one."""
    publication = Publication(bytes(8), 1, kit.HEAD, 0, [bytes(size) for size in sizes], persistent=True)
    records, in_store = records_of([publication], 7, 4_096)
    if flip is not None and records:
        broken = bytearray(records[-1])
        broken[flip[0] % len(broken)] ^= 1 << flip[1]
        records[-1] = bytes(broken)
    seq_ids = [*range(7, 7 + len(records))]
    whole = all_whole(records, seq_ids)
    found = [record_problem(record, seq_id) for record, seq_id in zip(records, seq_ids, strict=True)]
    assert not whole or not any(found)
    if records and not in_store and flip is None:
        assert whole
        assert not all_whole(records, [seq_id + 1 for seq_id in seq_ids]), "each is bound to its place"
