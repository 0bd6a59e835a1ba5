from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import CASES, manifest
from warrenmq.message.plain_properties import name_of_rabbit, properties_as_plain, properties_of_plain
from warrenmq.message.properties import Properties
from warrenmq.message.stored import decode, encode, encode_head

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
B64 = st.sampled_from(["gA==", "//8="]).map(lambda coded: {"b64": coded})
FLAT = st.one_of(
    st.tuples(st.sampled_from("bBsuIilL"), st.integers(-(2**63), 2**64 - 1)),
    st.tuples(st.just("d"), st.floats(allow_nan=False, allow_infinity=False)),
    st.sampled_from([("f", {"b64": "f4AAAA=="}), ("d", {"b64": "f/AAAAAAAAA="}), ("f", 1.5), ("V", None)]),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)).map(list)),
    st.tuples(st.just("T"), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("t"), st.booleans()),
    st.tuples(st.just("S"), TEXT | B64),
    st.tuples(st.just("x"), B64),
).map(list)
ELEMENTS = st.recursive(
    FLAT,
    lambda inner: (
        st.tuples(st.just("A"), st.lists(inner, max_size=3)).map(list)
        | st.tuples(
            st.just("F"), st.lists(st.builds(lambda n, e: [n, *e], TEXT | B64, inner), max_size=3)
        ).map(list)
    ),
    max_leaves=6,
)
HEADERS = st.lists(st.builds(lambda name, element: [name, *element], TEXT | B64, ELEMENTS), max_size=4)
PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "content_type": TEXT,
        "headers": HEADERS,
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "expiration": st.just("60000"),
        "timestamp": st.integers(0, 2**64 - 1),
        "cluster_id": TEXT,
    },
)


def stored_and_read(properties: Properties | None) -> Properties:
    return decode(encode(encode_head("", ["q"], properties), b"")).properties


@given(PLAIN)
def test_rabbitmqs_properties_survive_the_way_to_our_disk_and_back(plain: dict[str, Any]) -> None:
    converted = properties_of_plain(plain)
    assert converted.altered == []
    assert properties_as_plain(stored_and_read(converted.properties)) == plain


@pytest.mark.parametrize("case", CASES)
def test_so_do_those_of_a_real_broker(case: str) -> None:
    for queue in manifest(case)["queues"]:
        for message in queue["messages"]:
            plain = message.get("properties", {})
            assert properties_as_plain(stored_and_read(properties_of_plain(plain).properties)) == plain


def test_a_short_string_that_is_not_utf_8_is_dropped_and_reported() -> None:
    properties, altered = properties_of_plain({"app_id": {"b64": "/2E="}})
    assert properties == Properties(app_id="\\xffa")
    assert altered == ["its app_id is not UTF-8; the invalid bytes are written as \\xNN"]


def test_a_name_that_is_not_utf_8_is_written_with_backslashes() -> None:
    assert name_of_rabbit("ключ") == ("ключ", False)
    assert name_of_rabbit(b"a\xff".decode(errors="surrogateescape")) == ("a\\xff", True)


@pytest.mark.parametrize(
    ("value", "typed"),
    [
        (True, ["t", True]),
        (5, ["I", 5]),
        (-(1 << 31), ["I", -(1 << 31)]),
        (1 << 31, ["l", 1 << 31]),
        (1 << 63, ["L", 1 << 63]),
        (0.5, ["d", 0.5]),
        (float("inf"), ["d", {"b64": "f/AAAAAAAAA="}]),
        ("text", ["S", "text"]),
        (b"\0", ["x", {"b64": "AA=="}]),
        (datetime(1970, 1, 2, tzinfo=UTC), ["T", 86400]),
        (None, ["V", None]),
        ([1, "a"], ["A", [["I", 1], ["S", "a"]]]),
        ({"k": 1}, ["F", [["k", "I", 1]]]),
    ],
)
def test_headers_of_python_get_the_types_of_the_table(value: Any, typed: list[Any]) -> None:
    assert properties_as_plain(Properties(headers={"h": value})) == {"headers": [["h", *typed]]}
