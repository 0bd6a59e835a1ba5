"""The scanner finds every whole record, whatever stands around it."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.message_store.kit import msg_id, new_disk, record
from warrenmq.errors import CorruptFile
from warrenmq.message_store import rdq
from warrenmq.message_store import scan as scanner
from warrenmq.message_store.scan import Gap, Record, Trust


class Found(NamedTuple):
    """The outcome of a scan of a file at a start."""

    records: list[Record]
    damaged: list[tuple[int, int]]


def scan(data: bytes, wanted: set[bytes] | frozenset[bytes] = frozenset()) -> Found:
    disk = new_disk()
    disk.replace("/store/0.rdq", data)
    found = Found([], [])
    covered = 0
    for each in scanner.scan(disk.open_read("/store/0.rdq"), wanted):
        pieces = [each[:2]] if isinstance(each, Gap) else [record[1:] for record in each.records]
        for offset, length in pieces:
            assert offset == covered, "every byte once"
            covered += length
        if isinstance(each, Gap):
            assert each.damage or not any(data[each.offset : covered])
            found.damaged.extend(pieces if each.damage else [])
        elif each.trust >= Trust.BAD_MARKER:
            found.damaged.extend(pieces)
        else:
            found.records.extend(each.records)
    assert covered == len(data)
    return found


def ids(found: Found) -> list[bytes]:
    return [each[0] for each in found.records]


def test_the_layout_is_rabbitmqs() -> None:
    """The reference's example: the term <<"hello">> takes 11 bytes, so size is 27 and the record 36."""
    body = b"\x83m\0\0\0\5hello"
    data = rdq.head(b"i" * 16, len(body)) + body + rdq.MARKER
    assert data == b"\0\0\0\0\0\0\0\x1b" + b"i" * 16 + body + b"\xff"
    assert len(data) == 36
    assert scan(data).records == [(b"i" * 16, 0, 36)]
    assert rdq.body_of(data, b"i" * 16, "f", 0) == body


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (record(1)[:10], "only 10 bytes"),
        (record(1)[:-1], "not whole"),
        (record(1)[:-1] + b"\xfe", "not whole"),
        (record(1, b"longer"), "not whole"),
        (record(2), "should be"),
    ],
)
def test_a_record_that_is_not_what_the_index_says_is_refused(damaged: bytes, reason: str) -> None:
    if damaged == record(1, b"longer"):
        damaged = damaged[:-4] + b"\xff"
    with pytest.raises(CorruptFile, match=reason):
        rdq.body_of(damaged, msg_id(1), "f", 0)


def test_file_numbers_are_sorted_as_numbers_and_other_names_ignored() -> None:
    assert rdq.file_numbers(["10.rdq", "9.rdq", "9.rdt", "x.rdq", "8.rdq.tmp", "clean.dot"]) == [9, 10]
    assert rdq.file_name(9) == "9.rdq"


def test_a_chain_of_records_is_read_in_order_with_its_offsets() -> None:
    found = scan(record(1, b"") + record(2, b"abc") + record(3, b"x" * 300))
    assert found.records == [(msg_id(1), 0, 25), (msg_id(2), 25, 28), (msg_id(3), 53, 325)]
    assert found.damaged == []


def test_an_empty_file_and_a_file_of_zeros_hold_nothing() -> None:
    assert scan(b"") == ([], [])
    assert scan(bytes(1000)) == ([], [])


def test_a_file_cut_at_every_byte_gives_the_records_before_the_cut() -> None:
    data = record(1) + record(2, b"more of it") + record(3)
    ends = [29, 29 + 35, 29 + 35 + 29]
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends)
        for wanted in (frozenset(), {msg_id(2)}):
            found = scan(data[:cut], wanted)
            assert ids(found) == [msg_id(n) for n in (1, 2, 3)[:whole]]
            assert sum(length for _, length in found.damaged) <= cut - ([0, *ends][whole])


def test_a_tail_extended_with_zeros_is_no_record() -> None:
    data = record(1) + record(2)[:-3]
    found = scan(data + bytes(3))
    assert ids(found) == [msg_id(1)]
    assert found.damaged == [(29, 29)]


def test_garbage_between_records_is_set_aside_and_the_records_behind_it_are_found() -> None:
    found = scan(record(1) + b"garbage" * 9 + record(2) + record(3))
    assert ids(found) == [msg_id(1), msg_id(2), msg_id(3)]
    assert found.damaged == [(29, 63)]


def test_garbage_is_reported_without_the_zeros_around_it() -> None:
    found = scan(record(1) + bytes(50) + b"ab\0cd" + bytes(50) + record(2))
    assert ids(found) == [msg_id(1), msg_id(2)]
    assert found.damaged == [(76, 8)]


@pytest.mark.parametrize("zeros", range(17))
@pytest.mark.parametrize("body", [4080, 240, 16, 65520, 1])
def test_zeros_before_a_record_with_a_round_size_and_an_id_that_ends_in_ff(zeros: int, body: int) -> None:
    """Read one byte early, a size of 0x1000 is 0x10, and the id's last byte is the marker (defect S25)."""
    tricky = b"t" * 15 + b"\xff"
    for content, wanted in ((b"\0", {tricky}), (b"b", {tricky}), (b"b", frozenset())):
        data = record(1) + bytes(zeros) + rdq.head(tricky, body) + content * body + rdq.MARKER + record(2)
        assert ids(scan(data, wanted)) == [msg_id(1), tricky, msg_id(2)]


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_of_a_size_costs_one_record(bit: int) -> None:
    data = bytearray(record(1) + record(2, b"x" * 100) + b"".join(record(n, b"y" * 40) for n in range(3, 9)))
    data[29 + bit // 8] ^= 1 << bit % 8
    alive = {msg_id(n) for n in range(1, 9)}
    assert ids(scan(bytes(data), alive)) == [msg_id(n) for n in (1, 3, 4, 5, 6, 7, 8)]


def test_a_dead_record_whose_wrong_size_swallows_living_ones_gives_them_back() -> None:
    """The wrong end happens to hold FF, so only the ids know better."""
    swallowed = record(2) + record(3)
    data = rdq.head(msg_id(9), len(swallowed) + 2) + b"ab" + swallowed + b"\xff\xfe" + b"noise" + record(4)
    assert ids(scan(data)) == [msg_id(9), msg_id(4)]
    found = scan(data, {msg_id(2), msg_id(3), msg_id(4)})
    assert ids(found) == [msg_id(2), msg_id(3), msg_id(4)]
    assert found.damaged == [(0, 26), (84, 7)]


@pytest.mark.parametrize("zeros", range(40))
def test_the_last_record_of_a_file_is_found_however_close_to_the_end_the_zeros_before_it_end(
    zeros: int,
) -> None:
    """RabbitMQ asked for nine bytes more than there are, and lost what it held (defect S28)."""
    for wanted in (frozenset(), {msg_id(1), msg_id(2)}):
        for last in (record(2, b""), record(2, b"x" * 9)):
            assert ids(scan(record(1) + bytes(zeros) + last, wanted)) == [msg_id(1), msg_id(2)]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_remains_of_older_records_in_a_hole_hide_nothing_behind_it(cut: int) -> None:
    """A compaction that does not blank copies a record over the first of two dead ones (defect S23)."""
    dead = record(8, b"d" * 90) + record(9, b"e" * 200)
    copy = record(1, b"c" * (20 + cut))
    data = copy + dead[len(copy) :] + record(2) + record(1, b"c" * (20 + cut)) + record(3)
    found = ids(scan(data, {msg_id(1), msg_id(2), msg_id(3)}))
    assert [each for each in found if each != msg_id(9)] == [msg_id(1), msg_id(2), msg_id(1), msg_id(3)]


def test_a_body_that_contains_records_is_one_record() -> None:
    data = record(1, record(2) + record(3)) + record(4)
    assert ids(scan(data)) == [msg_id(1), msg_id(4)]
    assert ids(scan(data, {msg_id(1), msg_id(2)})) == [msg_id(1), msg_id(4)]


def test_zeros_that_happen_to_reach_to_the_end_of_the_file_swallow_no_living_record() -> None:
    """The torn record's id ends in 00 .. 00 63: taken for a size, 99 bytes, it ends where the file does."""
    data = record(99, b"z" * 50)[:28] + record(0, bytes(6)) + bytes(34) + record(1, bytes(6))
    assert ids(scan(data, {msg_id(0), msg_id(1)})) == [msg_id(0), msg_id(1)]


PIECES = st.one_of(
    st.tuples(st.just("record"), st.binary(max_size=300)),
    st.tuples(st.just("zeros"), st.integers(0, 40).map(bytes)),
    st.tuples(st.just("garbage"), st.binary(min_size=1, max_size=30)),
    st.tuples(st.just("torn"), st.integers(1, 60)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=12), st.integers(32, 200))
def test_living_records_are_found_between_any_garbage_and_over_any_block_boundary(
    pieces: list, block: int
) -> None:
    data, written, torn_ends = b"", [], []
    for kind, what in pieces:
        if kind == "record":
            written.append((msg_id(len(written)), len(data), len(what) + 25))
            data += record(len(written) - 1, what)
        elif kind == "torn":
            torn_ends.append(len(data) + 74)
            data += record(99, b"z" * 50)[:what]
        else:
            data += what
    # a torn record that what follows happens to complete is whole, for all that a scanner can know
    assume(not any(data[end : end + 1] == rdq.MARKER for end in torn_ends))
    alive = {each[0] for each in written}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "BLOCK", block)
        found = scan(data, alive)
    assert [each for each in found.records if each[0] in alive] == written


@settings(max_examples=100, deadline=None)
@given(st.integers(), st.integers(0, 3000))
def test_any_bytes_are_survived(seed: int, size: int) -> None:
    rng = random.Random(seed)
    data = bytes(rng.choice((0, 0, 0, 0, 16, 255, rng.randrange(256))) for _ in range(size))
    for _, offset, total in scan(data).records:
        assert data[offset + total - 1] == 255


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.one_of(st.integers(0, 400), st.just(0x4E0B), st.just(0x1115B)),
            st.one_of(st.just(0), st.integers(0, 40), st.just(700)),
        ),
        max_size=8,
    )
)
def test_holes_between_records_that_nobody_wants_are_no_damage(kept: list) -> None:
    """A compaction blanks its holes, and what it left between them may be acked since then."""
    data, written = b"", []
    for number, (wanted, size, zeros) in enumerate(kept):
        data += record(number, b"\x83" * size) + bytes(zeros)
        written += [msg_id(number)] * wanted
    found = scan(data, set(written))
    assert found.damaged == []
    assert [each for each in ids(found) if each in written] == written
