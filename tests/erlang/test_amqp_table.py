"""AMQP's properties and tables: bytes and Erlang records say the same, and wrong ones are BadTable."""

import base64
import json
import math
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.erlang import golden_messages
from tests.support import golden
from warrenmq.erlang import amqp_table
from warrenmq.erlang.amqp_table import PROPERTIES, BadTable, properties_of_bytes, table_of_bytes
from warrenmq.erlang.amqp_table_terms import properties_of_record, table_of_term
from warrenmq.erlang.amqp_table_writer import bytes_of_table
from warrenmq.erlang.values import Atom
from warrenmq.message.plain_properties import dict_of_plain, table_of_dict
from warrenmq.message.typed_headers import TypedHeaders

UNDEFINED = Atom("undefined")

KINDS = [
    # letter, bytes, Erlang type and value, value
    ("b", b"\xff", ("byte", -1), -1),
    ("B", b"\xff", ("unsignedbyte", 255), 255),
    ("s", b"\xff\xfe", ("short", -2), -2),
    ("u", b"\xff\xfe", ("unsignedshort", 65534), 65534),
    ("I", b"\xff\xff\xff\xfd", ("signedint", -3), -3),
    ("i", b"\xff\xff\xff\xfd", ("unsignedint", 2**32 - 3), 2**32 - 3),
    ("l", b"\xff" * 8, ("long", -1), -1),
    ("L", b"\xff" * 8, None, 2**64 - 1),
    ("f", struct.pack(">f", 1.5), ("float", 1.5), 1.5),
    ("d", struct.pack(">d", 0.1), ("double", 0.1), 0.1),
    ("d", struct.pack(">d", math.inf), None, {"b64": "f/AAAAAAAAA="}),
    ("D", b"\2\0\0\1\0", ("decimal", (2, 256)), [2, 256]),
    ("T", struct.pack(">Q", 1_600_000_000), ("timestamp", 1_600_000_000), 1_600_000_000),
    ("t", b"\2", ("bool", Atom("true")), True),
    ("t", b"\0", ("bool", Atom("false")), False),
    ("V", b"", ("void", UNDEFINED), None),
    ("S", b"\0\0\0\2\xc3\xa9", ("longstr", b"\xc3\xa9"), "é"),
    ("S", b"\0\0\0\1\xff", ("longstr", b"\xff"), {"b64": "/w=="}),
    ("x", b"\0\0\0\1a", ("binary", b"a"), {"b64": "YQ=="}),
    ("F", b"\0\0\0\3\1aV", ("table", [(b"a", Atom("void"), UNDEFINED)]), [["a", "V", None]]),
    ("A", b"\0\0\0\3b\1V", ("array", [(Atom("byte"), 1), (Atom("void"), UNDEFINED)]), [["b", 1], ["V", None]]),
]  # fmt: skip


def headers(data):
    return properties_of_bytes(b"\x20\0" + struct.pack(">I", len(data)) + data)["headers"]


@pytest.mark.parametrize(("letter", "data", "term", "value"), KINDS)
def test_each_type_is_the_same_from_bytes_and_from_terms(letter, data, term, value):
    assert headers(b"\1k" + letter.encode() + data) == [["k", letter, value]]
    if term is not None:
        kind, erlang = term
        assert table_of_term([(b"k", Atom(kind), erlang)]) == [["k", letter, value]]


def test_every_property_has_its_flag_in_order():
    for place, (name, kind) in enumerate(PROPERTIES):
        data, value = {
            "s": (b"\2ab", "ab"),
            "B": (b"\7", 7),
            "T": (bytes(7) + b"\7", 7),
            "F": (b"\0\0\0\0", []),
        }[kind]
        assert properties_of_bytes(struct.pack(">H", 0x8000 >> place) + data) == {name: value}
        record = [UNDEFINED] * len(PROPERTIES)
        record[place] = value.encode() if isinstance(value, str) else value
        assert properties_of_record((Atom("P_basic"), *record)) == {name: value}


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"", 0, "the flags are missing"),
        (b"\0\0a", 2, "1 bytes follow the last property"),
        (b"\x80\0\5ab", 3, "5 bytes are claimed, 2 follow"),
        (b"\x20\0\xff\xff\xff\xff", 6, "4294967295 bytes are claimed, 0 follow"),
        (b"\x20\0\0\0\0\3\1az", 8, "AMQP has no type 'z'"),
        (b"\x20\0\0\0\0\7\1aS\0\0\0\1", 13, "1 bytes are claimed, 0 follow"),
        (b"\x20\0\0\0\0\7\1aS\0\0\0\1b", 13, "1 bytes are claimed, 0 follow"),
    ],
)
def test_wrong_bytes_say_where_and_why(data, offset, reason):
    with pytest.raises(BadTable) as caught:
        properties_of_bytes(data)
    assert (caught.value.offset, caught.value.reason) == (offset, reason)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (5, "a table is not a list of name, type and value"),
        ([(b"a", Atom("byte"))], "a table is not a list of name, type and value"),
        ([(b"a", Atom("strange"), 1)], "AMQP has no type 'strange'"),
        ([(b"a", b"byte", 1)], "AMQP has no type \"b'byte'\""),
        ([(b"a", Atom("byte"), b"1")], "a value of type byte is something else"),
        ([(b"a", Atom("bool"), Atom("maybe"))], "a bool is 'maybe'"),
        ([(b"a", Atom("void"), Atom("none"))], "a void has the value 'none'"),
        ([(b"a", Atom("decimal"), (1,))], "a decimal is not a scale and a number"),
        ([(b"a", Atom("array"), [1])], "an array is not a list of type and value"),
    ],
)
def test_wrong_terms_say_why(entries, reason):
    with pytest.raises(BadTable) as caught:
        table_of_term(entries)
    assert caught.value.reason == reason


def nested_bytes(depth):
    data = b""
    for _ in range(depth):
        data = b"\0F" + struct.pack(">I", len(data)) + data
    return data


def nested_term(depth):
    term = []
    for _ in range(depth):
        term = [(b"", Atom("table"), term)]
    return term


def array_bytes(depth):
    data = b""
    for _ in range(depth - 1):
        data = b"A" + struct.pack(">I", len(data)) + data
    return b"\0A" + struct.pack(">I", len(data)) + data


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 102, 18_000])
@pytest.mark.parametrize("nested", [nested_bytes, array_bytes])
def test_nesting_of_any_depth_is_kept_and_read_as_far_as_anybody_looks(nested, depth):
    data = nested(depth)
    plain = table_of_bytes(data)
    assert bytes_of_table(plain) == data
    assert json.dumps(plain)
    ours = dict_of_plain(plain)
    assert table_of_dict(ours) == plain
    assert ours == dict_of_plain(table_of_bytes(data))
    assert TypedHeaders(msgpack.unpackb(msgpack.packb(ours.to_store()))) == ours


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 102, 18_000])
def test_terms_of_any_depth_say_what_their_bytes_say(depth):
    assert table_of_term(nested_term(depth)) == table_of_bytes(nested_bytes(depth))


inner_tables = st.recursive(
    st.sampled_from(
        [
            (kind, value)
            for _, _, term, _ in KINDS
            if term is not None
            for kind, value in [term]
            if kind != "table"
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(
            lambda each: ("table", [(b"k", Atom(kind), value) for kind, value in each])
        )
        | st.lists(inner, max_size=3).map(
            lambda each: ("array", [(Atom(kind), value) for kind, value in each])
        )
    ),
    max_leaves=12,
)


@given(inner_tables)
@hypothesis_settings(max_examples=60, deadline=None)
def test_a_table_kept_as_bytes_equals_the_decoded_one(value):
    kind, term = value
    entries = [(b"k", Atom(kind), term)]
    read = table_of_term(entries)
    deep = entries
    for _ in range(amqp_table.MAX_DEPTH):
        deep = [(b"", Atom("table"), deep)]
    plain = table_of_term(deep)
    for _ in range(amqp_table.MAX_DEPTH):
        ((_, letter, plain),) = plain
        assert letter == "F"
    assert table_of_bytes(base64.b64decode(plain["b64"])) == read


@pytest.mark.parametrize("depth", [50, 99, 100, 101, 102, 18_000])
@given(st.data())
@hypothesis_settings(max_examples=15, deadline=None)
def test_bytes_that_are_wrong_are_found_at_any_depth(depth, data):
    whole = bytearray(nested_bytes(depth))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        plain = table_of_bytes(bytes(whole))
    except BadTable as bad:
        assert 0 <= bad.offset <= len(whole)  # noqa: PT017 - some are tables
    else:
        assert bytes_of_table(plain) == whole


@given(st.binary(max_size=200), st.integers(0, 0xFFFF))
def test_any_bytes_are_properties_or_a_bad_table(data, flags):
    for tried in (data, struct.pack(">H", flags) + data, b"\x20\0" + struct.pack(">I", len(data)) + data):
        try:
            properties_of_bytes(tried)
        except BadTable as bad:
            assert 0 <= bad.offset <= len(tried)  # noqa: PT017 - some are properties


def test_the_golden_headers_have_every_letter():
    letters = {
        letter
        for case in golden.CASES
        for _, messages in golden_messages.queues(case)
        for message in messages
        for _, letter, _ in message["properties"].get("headers", ())
    }
    assert set("bBsuIilLfdDTtVSxFA") <= letters
