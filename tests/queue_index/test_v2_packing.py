"""The parts of the index of version 2 that are functions of values: packing entries, and which of them join,
are kept or are read together.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index import index_kit as kit
from warrenmq.message.queue_message import FEW, Publication, records_of
from warrenmq.message.stored import encode_head
from warrenmq.queue_index.record import pack as pack_record
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.derived_crc import WORTH
from warrenmq.queue_index.v2.pack import adjacent, by_segment, leave_out_oldest, pack, pack_alike
from warrenmq.queue_index.v2.segment_files import to_close


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


@pytest.mark.parametrize(("most", "kept"), [(0, []), (9, []), (10, [3]), (25, [2, 3]), (30, [1, 2, 3])])
def test_the_oldest_are_left_out_until_the_others_fit(most: int, kept: list[int]) -> None:
    assert list(leave_out_oldest(dict.fromkeys((1, 2, 3), b"0123456789"), 30 - most)) == kept


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


@pytest.mark.parametrize(("opening", "closed"), [(9, 6), (7, 6), (1, 4), (0, 4), (5, 4), (3, 4)])
def test_the_fifth_file_closes_one_in_the_middle(opening: int, closed: int) -> None:
    assert to_close([8, 2, 6, 4], opening) == closed
