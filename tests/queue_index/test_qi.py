"""The bytes of .qi files, whole and damaged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import golden
from warrenmq.errors import CorruptFile
from warrenmq.queue_index.v2 import qi
from warrenmq.queue_index.v2.qi import Entry, Location
from warrenmq.queue_index.v2.reader import live_entries, summary, summary_of

HEADER = bytes.fromhex("5243514902 0000000000003000 0000000000004000") + bytes(43)
IN_QS = bytes.fromhex("01010002 0000000000000040 000004d2 00000000 000003e8 0000000000000000")
IN_STORE = bytes.fromhex("01010001 000102030405060708090a0b0c0d0e0f 00001388 00060a24181e4000")


def test_a_header_is_magic_version_and_the_sequence_ids() -> None:
    assert qi.pack_header(qi.MAGIC, 3 * 4_096, 4 * 4_096) == HEADER
    assert qi.unpack_header(qi.MAGIC, HEADER) == (3 * 4_096, 4 * 4_096)
    assert len(HEADER) == qi.HEADER_BYTES


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "a header has 64 bytes, here are 0"),
        (HEADER[:63], "a header has 64 bytes, here are 63"),
        (b"RCQS" + HEADER[4:], "it does not begin with RCQI"),
        (HEADER[:4] + b"\x03" + HEADER[5:], "its version is 3, only 2 is known"),
        (HEADER[:13] + HEADER[5:13] + HEADER[21:], "its header makes no sense"),
        (HEADER[:-1] + b"x", "its header makes no sense"),
    ],
)
def test_an_invalid_header_is_reported(data: bytes, problem: str) -> None:
    assert qi.unpack_header(qi.MAGIC, data) == problem
    assert qi.parse(data) == (None, [], [(0, len(data), problem)])


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        (Entry(True, Location.QUEUE_STORE, b"", 64, 1_234, 1_000, 0), IN_QS),
        (Entry(True, Location.STORE, bytes(range(16)), 0, 0, 5_000, 1_700_000_000_000_000), IN_STORE),
        (Entry(False, Location.QUEUE_STORE, b"", 64, 1_234, 1_000, 0), IN_QS[:1] + b"\0" + IN_QS[2:]),
        (None, qi.ACKED),
        (None, b"\0" + IN_QS[1:]),  # as a recovery acks
    ],
)
def test_an_entry_is_32_bytes(entry: Entry | None, data: bytes) -> None:
    assert qi.unpack_entry(data) == entry
    if entry is not None:
        assert qi.pack_entry(entry) == data


@pytest.mark.parametrize(
    ("offset", "byte", "problem"),
    [
        (0, 2, "first bytes"),
        (1, 2, "first bytes"),
        (1, 0x81, "first bytes"),
        (2, 1, "first bytes"),
        (24, 1, "expiry"),
        (3, 0, "location is 0"),
        (3, 3, "location is 3"),
        (19, 1, "location makes no sense"),
        (11, 63, "location makes no sense"),  # inside the .qs file's header
    ],
)
def test_an_invalid_entry_is_reported(offset: int, byte: int, problem: str) -> None:
    data = bytearray(IN_QS)
    data[offset] = byte
    with pytest.raises(CorruptFile, match=problem):
        qi.unpack_entry(bytes(data))
    later = IN_STORE
    header = qi.pack_header(qi.MAGIC, 0, 4)
    parsed = qi.parse(header + bytes(data) + later)
    assert [position for position, _ in parsed.entries] == [1]
    assert [(each.offset, each.length) for each in parsed.damage] == [(64, 32)]


def test_an_entry_without_a_place_for_its_body_is_invalid() -> None:
    for nowhere in (IN_QS[:12] + bytes(4) + IN_QS[16:], IN_STORE[:4] + bytes(16) + IN_STORE[20:]):
        assert qi.entry_problem(nowhere) == "an entry's location makes no sense"


def test_a_file_is_read_up_to_the_end_that_its_header_tells() -> None:
    parsed = qi.parse(qi.pack_header(qi.MAGIC, 4, 6) + qi.ACKED + IN_QS + IN_STORE)
    assert parsed.entries == [(1, qi.unpack_entry(IN_QS))]
    assert [(each.offset, each.length) for each in parsed.damage] == [(128, 32)]
    assert qi.parse(qi.pack_header(qi.MAGIC, 4, 6)).damage == []


def test_a_torn_entry_is_damage_unless_nothing_of_it_is_there() -> None:
    whole = qi.pack_header(qi.MAGIC, 0, 4) + IN_QS
    for length in range(1, 32):
        parsed = qi.parse(whole + IN_STORE[:length])
        assert len(parsed.entries) == 1
        assert [(each.offset, each.length) for each in parsed.damage] == [(96, length)]
        assert qi.parse(whole + bytes(length)).damage == []


ENTRIES = st.one_of(
    st.builds(
        Entry, st.booleans(), st.just(int(Location.STORE)), st.binary(min_size=16, max_size=16).filter(any),
        st.just(0), st.just(0), st.integers(0, 2**32 - 1), st.integers(0, 2**55),
    ),
    st.builds(
        Entry, st.booleans(), st.just(int(Location.QUEUE_STORE)), st.just(b""), st.integers(64, 2**64 - 1),
        st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**55),
    ),
)  # fmt: skip


@given(st.lists(st.none() | ENTRIES, max_size=10))
def test_written_entries_are_read(entries: list[Entry | None]) -> None:
    data = qi.pack_header(qi.MAGIC, 0, 10) + b"".join(
        qi.ACKED if entry is None else qi.pack_entry(entry) for entry in entries
    )
    parsed = qi.parse(data)
    assert parsed.damage == []
    assert dict(parsed.entries) == {i: entry for i, entry in enumerate(entries) if entry is not None}


@given(
    st.lists(st.none() | ENTRIES, max_size=12),
    st.lists(st.tuples(st.integers(0, 511), st.sampled_from([0, 1, 2, 3, 64, 255])), max_size=3),
    st.integers(0, 512),
)
def test_columns_say_what_a_loop_over_the_entries_says(
    entries: list[Entry | None], changes: list[tuple[int, int]], size: int
) -> None:
    number, count = 3, 8
    packed = b"".join(bytes(32) if entry is None else qi.pack_entry(entry) for entry in entries)
    data = bytearray(qi.pack_header(qi.MAGIC, number * count, (number + 1) * count) + packed)
    for place, byte in changes:
        if place < len(data):
            data[place] = byte
    cut = bytes(data[: qi.HEADER_BYTES + size])
    by_column, by_entry = (summary(cut, number, count), summary_of(*live_entries(cut, number, count)))
    assert by_column.expires >= by_entry.expires  # a dropped entry keeps its expiry
    assert by_column._replace(expires=True) == by_entry._replace(expires=True)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    qi.parse(data)
    qi.parse(HEADER + data)


@pytest.mark.parametrize("case", golden.CASES)
def test_every_index_file_of_rabbitmq_is_read_and_written_again_byte_for_byte(case: str) -> None:
    for path, data in golden.files(case).items():
        if path.endswith(qi.EXTENSION):
            parsed = qi.parse(data)
            assert parsed.header is not None
            assert not parsed.damage
            again = bytearray(qi.pack_header(qi.MAGIC, *parsed.header).ljust(len(data), b"\0"))
            for position, entry in parsed.entries:
                start = qi.HEADER_BYTES + qi.ENTRY_BYTES * position
                again[start : start + qi.ENTRY_BYTES] = qi.pack_entry(entry)
            assert bytes(again) == data


def queues_of_version_2() -> list[Any]:
    return [
        pytest.param(case, queue, id=f"{case} {queue['name']}")
        for case in golden.CASES
        for queue in golden.manifest(case)["queues"]
        if queue["version"] == 2
    ]


@pytest.mark.parametrize(("case", "queue"), queues_of_version_2())
def test_an_index_file_of_rabbitmq_has_the_messages_that_it_gives_back(
    case: str, queue: dict[str, Any]
) -> None:
    found = {}
    for each in queue["dirs"]:
        for name, data in golden.folder(case, each["dir"].rpartition("/")[2]).items():
            if name.endswith(qi.EXTENSION):
                header, entries, _ = qi.parse(data)
                assert header is not None
                found |= {header.first + position: entry for position, entry in entries}
    assert sorted(found) == sorted(
        each["seq_id"] for each in [*queue["messages"], *queue["not_recovered"]] if "seq_id" in each
    )
    for message in queue["messages"]:
        full = {**queue["message_defaults"], **message}
        entry = found[full["seq_id"]]
        assert entry.size == full["body_size"]
        assert entry.expiry == full["expiry_us"]
        if full["where"] == "store":
            assert entry.msg_id.hex() == full["msg_id"]
        else:
            assert [entry.offset, entry.stored_size + 8] == full["at"][1:]
