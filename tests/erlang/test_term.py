"""Erlang's external terms: each kind is read, every limit holds, and no bytes raise anything but BadTerm."""

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.erlang.terms import compressed, encode
from warrenmq.erlang.term import BadTerm, decode
from warrenmq.erlang.term_reader import MAX_ELEMENTS
from warrenmq.erlang.values import Atom, BitString, ImproperList, Opaque
from warrenmq.errors import CorruptFile

LATIN = st.text(st.characters(max_codepoint=255), max_size=30)
PLAIN = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | LATIN.map(Atom)
    | st.binary(max_size=50)
)
TERMS = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.binary(max_size=5) | LATIN.map(Atom), inner, max_size=4)
    ),
    max_leaves=20,
)

CASES = {
    "61 07": 7,
    "62 ffffffff": -1,
    "6e 08 00 ffffffffffffffff": 2**64 - 1,
    "6e 01 01 05": -5,
    "6f 00000002 00 0001": 256,
    "46 3ff8000000000000": 1.5,
    "63" + b"1.50000000000000000000e+00".ljust(31, b"\0").hex(): 1.5,
    "64 0002 e9e8": Atom("éè"),
    "73 01 e9": Atom("é"),
    "76 0002 c3a9": Atom("é"),
    "77 02 c3a9": Atom("é"),
    "68 02 61 01 6a": (1, []),
    "69 00000001 61 01": (1,),
    "6a": [],
    "6b 0003 010203": [1, 2, 3],
    "6c 00000002 61 01 61 02 6a": [1, 2],
    "6c 00000001 61 01 6b 0002 0203": [1, 2, 3],
    "6c 00000001 61 01 61 02": ImproperList([1], 2),
    "6d 00000003 616263": b"abc",
    "4d 00000002 03 ffe0": BitString(b"\xff\xe0", 3),
    "74 00000001 61 01 61 02": {1: 2},
    "74 00000001 6a 61 02": {Opaque("key", b"\x6a"): 2},
    "74 00000002 68 01 6a 61 02 74 00000000 61 03": {
        Opaque("key", b"\x68\x01\x6a"): 2,
        Opaque("key", b"\x74\0\0\0\0"): 3,
    },
}
"""Bytes behind 131 and the term that they are."""

OPAQUE = {
    "67 77 01 61 00000001 00000002 03": "pid",
    "58 77 01 61 00000001 00000002 00000003": "pid",
    "66 77 01 61 00000001 03": "port",
    "59 77 01 61 00000001 00000003": "port",
    "78 77 01 61 0000000000000001 00000003": "port",
    "65 77 01 61 00000001 03": "reference",
    "72 0002 77 01 61 03 00000001 00000002": "reference",
    "5a 0002 77 01 61 00000003 00000001 00000002": "reference",
    "70 00000006 0102": "fun",
    "71 77 01 61 77 01 62 61 02": "fun",
}

BAD = {
    "": "the term ends too early",
    "82": "a term begins with 131, this with 130",
    "83": "the term ends too early",
    "83 01": "1 is no tag of a term",
    "83 52 00": "82 is no tag of a term",  # an atom of the distribution's cache
    "83 61 01 00": "1 bytes follow the term",
    "83 62 0000": "the term ends too early",
    "83 6d 7fffffff 00": "2147483647 bytes are claimed, 1 follow",
    "83 6c ffffffff 6a": "4294967296 elements are claimed, 1 bytes follow",
    "83 69 ffffffff": "4294967295 elements are claimed, 0 bytes follow",
    "83 74 ffffffff 61 01": "8589934590 elements are claimed, 2 bytes follow",
    "83 74 00000002 61 01 61 02 61 01 61 03": "a map has a key twice",
    "83 6f 00010000 00": "an integer claims 65536 bytes, 1024 are allowed",
    "83 6e 01 02 01": "an integer's sign is 2, not 0 or 1",
    "83 46 7ff0000000000000": "Erlang has no such floating point number",
    "83 63" + b"nan".ljust(31, b"\0").hex(): "a floating point number is not written as one",
    "83 63" + b"1.0e+999".ljust(31, b"\0").hex(): "a floating point number is not written as one",
    "83 77 01 ff": "an atom is not UTF-8",
    "83 64 0100" + "61" * 256: "an atom has 256 characters, Erlang allows 255",
    "83 4d 00000001 09 00": "a bit string of 1 bytes has 9 bits in the last one",
    "83 58 61 01": "a name is not an atom",
    "83 70 00000001": "a fun of 1 bytes cannot be",
    "83 71 77 01 61 77 01 62 77 01 63": "a fun's arity is not a small integer",
    "83 50 7fffffff 00": "a compressed term claims 2147483647 bytes, 67108864 are allowed",
    "83 50 00000005 ffff": "a compressed term cannot be unpacked (Error -3 while decompressing data: incorrect header check)",
    "83 50 00000001"
    + zlib.compress(b"a" * 1000).hex(): "a compressed term is not the 1 bytes long that it claims",
    "83 50 00000002" + zlib.compress(b"a\1").hex() + "00": "1 bytes follow the term",
    "83 50 00000002" + zlib.compress(b"\1\1").hex(): "unpacked, at its byte 0: 1 is no tag of a term",
}


@pytest.mark.parametrize(("data", "term"), CASES.items())
def test_each_tag_is_read(data, term):
    found = decode(b"\x83" + bytes.fromhex(data))
    assert found == term
    assert type(found) is type(term)


@pytest.mark.parametrize(("data", "kind"), OPAQUE.items())
def test_terms_that_only_their_node_understands_are_kept_as_they_are(data, kind):
    assert decode(b"\x83" + bytes.fromhex(data)) == Opaque(kind, bytes.fromhex(data))


@pytest.mark.parametrize(("data", "reason"), BAD.items())
def test_each_kind_of_wrong_bytes_has_its_reason(data, reason):
    with pytest.raises(BadTerm) as caught:
        decode(bytes.fromhex(data))
    assert caught.value.reason == reason
    assert isinstance(caught.value, CorruptFile)


def test_an_error_names_the_file_and_the_place_in_it():
    with pytest.raises(BadTerm, match=r"^0\.rdq is damaged at byte 104: 1 is no tag of a term\.$"):
        decode(bytes.fromhex("8368026a01"), path="0.rdq", offset=100)


@given(TERMS)
def test_encoded_terms_are_decoded(term):
    assert decode(encode(term)) == term
    assert decode(encode(term, utf8_atoms=True)) == term
    assert decode(compressed(term)) == term


@given(TERMS, st.integers(1, 64))
def test_a_zero_padded_tail_is_allowed_only_where_it_is_asked_for(term, padding):
    data = encode(term) + bytes(padding)
    assert decode(data, zero_padded=True) == term
    with pytest.raises(BadTerm):
        decode(data)
    with pytest.raises(BadTerm):
        decode(data + b"\1", zero_padded=True)


def refusal(data):
    try:
        decode(data, zero_padded=True)
    except BadTerm as bad:
        return bad
    return None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_term_or_a_bad_term(data):
    for tried in (data, b"\x83" + data):
        bad = refusal(tried)
        assert bad is None or (0 <= bad.offset <= len(tried) and bad.reason)


@given(TERMS, st.data())
def test_a_damaged_term_is_a_term_or_a_bad_term(term, data):
    whole = bytearray(encode(term))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    for tried in (bytes(whole), bytes(whole[:at])):
        bad = refusal(tried)
        assert bad is None or 0 <= bad.offset <= len(tried)


@pytest.mark.parametrize("opens", [b"\x68\x01", b"\x6c\0\0\0\1", b"\x74\0\0\0\1\x61\1", b"\x6c\0\0\0\1\x6a"])
def test_nesting_ends_at_the_limit(opens):
    def nested(depth):
        closes = depth if opens == b"\x6c\0\0\0\1" else 0
        return b"\x83" + opens * depth + b"\x6a" + b"\x6a" * closes

    decode(nested(20), max_depth=20)
    with pytest.raises(BadTerm, match="nested too deeply"):
        decode(nested(21), max_depth=20)
    with pytest.raises(BadTerm, match="nested too deeply"):
        decode(nested(100_000))


def test_a_huge_length_in_a_few_bytes_costs_nothing():
    bomb = b"\x83\x50" + struct.pack(">I", 2**20) + zlib.compress(bytes(2**26))
    tracemalloc.start()
    try:
        for tag, count in (
            (b"\x6c", ">I"),
            (b"\x69", ">I"),
            (b"\x74", ">I"),
            (b"\x6d", ">I"),
            (b"\x6f", ">I"),
        ):
            with pytest.raises(BadTerm):
                decode(b"\x83" + tag + struct.pack(count, 2**32 - 1) + b"\x6a" * 20)
        with pytest.raises(BadTerm):
            decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_term_s_elements_are_counted_together(monkeypatch):
    assert MAX_ELEMENTS == 1_000_000
    monkeypatch.setattr("warrenmq.erlang.term_reader.MAX_ELEMENTS", 100)
    assert len(decode(encode([()] * 99))) == 99  # the tail is an element too
    for term in ([()] * 100, [[()] * 9] * 10, {n: n for n in range(51)}, [[1] * 30] * 4):
        with pytest.raises(BadTerm, match="more than 100 elements"):
            decode(encode(term))


def test_an_atom_is_its_text_and_leaves_no_trace():
    found = decode(encode(Atom("true")))
    assert found == "true"
    assert repr(found) == "Atom('true')"
    assert not hasattr(found, "__dict__")
