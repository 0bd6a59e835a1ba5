from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import CorruptFile
from warrenmq.message.properties import Properties
from warrenmq.message.stored import decode, encode, encode_head
from warrenmq.message.typed_headers import TypedHeaders

FLAT = st.one_of(
    st.tuples(st.sampled_from("bBsuIilL"), st.integers(-(2**63), 2**64 - 1)),
    st.tuples(st.sampled_from("fd"), st.floats()),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)).map(list)),
    st.tuples(st.just("T"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("t"), st.booleans()),
    st.just(("V", None)),
    st.tuples(st.just("S"), st.text(max_size=5) | st.binary(max_size=5)),
    st.tuples(st.just("x"), st.binary(max_size=5)),
)
ELEMENTS = st.recursive(
    FLAT.map(list),
    lambda inner: (
        st.tuples(st.just("A"), st.lists(inner, max_size=3)).map(list)
        | st.tuples(
            st.just("F"), st.lists(st.builds(lambda n, e: [n, *e], st.text(max_size=3), inner), max_size=3)
        ).map(list)
    ),
    max_leaves=8,
)
HEADERS = st.lists(
    st.builds(lambda name, element: [name, *element], st.text(max_size=3), ELEMENTS), max_size=5
)


@given(HEADERS)
def test_types_order_and_names_that_come_twice_survive_the_disk(typed: list[Any]) -> None:
    stored = encode(encode_head("x", ["k"], Properties(headers=TypedHeaders(typed), priority=3)), b"body")
    properties = decode(stored).properties
    assert isinstance(properties.headers, TypedHeaders)
    assert repr(properties.headers.typed) == repr(typed)  # as text: not a number is not equal to itself
    assert repr(properties.headers) == repr(dict(TypedHeaders(typed)))
    assert properties.priority == 3


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        (["I", -5], -5),
        (["d", 0.5], 0.5),
        (["D", [2, 150]], Decimal("1.50")),
        (["T", 0], datetime(1970, 1, 1, tzinfo=UTC)),
        (["T", 2**63], 2**63),
        (["t", True], True),
        (["V", None], None),
        (["S", "text"], "text"),
        (["S", b"\xff"], b"\xff"),
        (["x", b"bytes"], b"bytes"),
        (["A", [["b", 1], ["S", "two"]]], [1, "two"]),
        (["F", [["k", "S", "v"], ["k", "S", "w"]]], {"k": "w"}),
    ],
)
def test_each_type_as_the_application_sees_it(typed: list[Any], seen: Any) -> None:
    assert TypedHeaders([["name", *typed]]) == {"name": seen}


@pytest.mark.parametrize(
    "typed",
    [
        5, [5], [["name"]], [[1, "S", "text"]], [["n", "S", 1]], [["n", "t", 1]], [["n", "I", True]], [["n", "?", 1]],
        [["n", "D", [1]]], [["n", "D", [1 << 60, 1]]], [["n", "A", ["S"]]], [["n", "F", 1]], [["n", ["S"], "x"]],
    ],
)  # fmt: skip
def test_an_invalid_list_is_a_value_error_and_in_a_file_damage(typed: Any) -> None:
    with pytest.raises(ValueError, match=r"typed header|nested|element"):
        TypedHeaders(typed)
    if isinstance(typed, list):
        headers = TypedHeaders([])
        headers.typed = typed
        with pytest.raises(ValueError, match=r"typed header|nested|element"):
            headers.to_store()


def test_changed_headers_are_stored_as_changed() -> None:
    headers = TypedHeaders([["a", "b", 1], ["b", "S", "x"]])
    headers["a"] = 7
    found = decode(encode(encode_head("", ["q"], Properties(headers=headers)), b"")).properties.headers
    assert type(found) is dict
    assert found == {"a": 7, "b": "x"}


def test_damaged_typed_headers_are_a_corrupt_file() -> None:
    stored = encode(encode_head("", ["q"], Properties(headers=TypedHeaders([["a", "b", 1]]))), b"")
    with pytest.raises(CorruptFile, match="typed header"):
        decode(stored.replace(b"\xa1b\x01", b"\xa1?\x01"))


def test_tables_within_tables_have_a_limit() -> None:
    element: list[Any] = ["b", 1]
    for _ in range(200):
        element = ["A", [element]]
    with pytest.raises(ValueError, match="nested"):
        TypedHeaders([["deep", *element]])
