"""The bytes of .qs files, whole and damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import golden
from warrenmq.queue_index.v2 import qi, qs

HEADER = qi.pack_header(qs.MAGIC, 0, 4_096)
HELLO = bytes.fromhex("00000005 01 a686 00 68656c6c6f")


def entry(data: bytes) -> bytes:
    return qs.pack_entry_header(data) + data


def test_a_body_stands_behind_its_size_and_checksum() -> None:
    assert entry(b"hello") == HELLO
    assert qs.entry_problem(HELLO, 0, 5) is None


@pytest.mark.parametrize(
    ("data", "size", "problem"),
    [
        (HELLO[:-1], 5, "a body is cut off"),
        (HELLO[:7], 5, "a body is cut off"),
        (HELLO, 4, "a body of 4 bytes should begin here"),
        (HELLO[:4] + b"\x03" + HELLO[5:], 5, "a body of 5 bytes should begin here"),
        (HELLO[:7] + b"\x01" + HELLO[8:], 5, "a body of 5 bytes should begin here"),
        (HELLO[:-1] + b"p", 5, "a body does not have its checksum"),
        (HELLO[:5] + b"\x00" + HELLO[6:], 5, "a body does not have its checksum"),
    ],
)
def test_an_invalid_body_is_reported(data: bytes, size: int, problem: str) -> None:
    assert qs.entry_problem(data, 0, size) == problem


def test_a_checksum_is_checked_only_when_there_is_one_and_it_is_asked_for() -> None:
    assert qs.entry_problem(HELLO[:-1] + b"p", 0, 5, check_crc=False) is None
    assert qs.entry_problem(HELLO[:4] + bytes(4) + b"hallo", 0, 5) is None


def test_zeros_behind_a_term_do_not_count_for_its_checksum() -> None:
    """RabbitMQ 3.12 and later estimate the size of a term, and fill up with zeros."""
    term = b"\x83m\x00\x00\x00\x03abc"
    padded = len(term + bytes(3)).to_bytes(4, "big") + qs.pack_entry_header(term)[4:] + term + bytes(3)
    assert qs.entry_problem(padded, 0, len(term) + 3) is None
    ours = b"\x95abc"
    padded = len(ours + bytes(3)).to_bytes(4, "big") + qs.pack_entry_header(ours)[4:] + ours + bytes(3)
    assert qs.entry_problem(padded, 0, len(ours) + 3) == "a body does not have its checksum"


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8))
def test_bodies_that_were_written_are_found_without_an_index(bodies: list[bytes]) -> None:
    data = HEADER + b"".join(map(entry, bodies))
    found, damage = qs.scan(data)
    assert damage == []
    assert [data[at + 8 : at + 8 + size] for at, size, _ in found] == bodies


def test_a_scan_tells_what_is_damaged() -> None:
    torn = HEADER + HELLO + HELLO[:-1] + b"p" + HELLO + HELLO[:6]
    found, damage = qs.scan(torn)
    assert found == [(64, 5, True), (77, 5, False), (90, 5, True)]
    assert damage == [(77, 13, "a body does not have its checksum"), (103, 6, "a body is cut off")]
    assert qs.scan(HEADER + HELLO + bytes(20))[1] == [(77, 20, "no body begins here")]
    assert qs.scan(b"RCQI" + HEADER[4:] + HELLO) == (
        [(64, 5, True)],
        [(0, 64, "it does not begin with RCQS")],
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned(data: bytes) -> None:
    qs.scan(data)
    qs.scan(HEADER + data)


@pytest.mark.parametrize("case", golden.CASES)
def test_every_body_file_of_rabbitmq_is_read_and_written_again_byte_for_byte(case: str) -> None:
    for path, data in golden.files(case).items():
        if path.endswith(qs.EXTENSION):
            header = qi.unpack_header(qs.MAGIC, data)
            assert not isinstance(header, str)
            bodies, damage = qs.scan(data)
            assert not damage
            again = qi.pack_header(qs.MAGIC, *header)
            again += b"".join(entry(data[at + 8 : at + 8 + size]) for at, size, _ in bodies)
            assert again == data
