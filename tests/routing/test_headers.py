"""Headers exchanges: what a binding's arguments ask of a message's headers."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.routing.headers import MODES, HeadersMatch, comparable

VOID = None
SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({}, {}, True),
        ({}, {"a": 1}, True),
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": True}, {"a": True}, True),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": "b"}, {"a": b"b"}, True),
        ({"a": 1}, {"a": SECOND}, True),
        ({"a": 1}, {"a": Decimal(1)}, False),
        ({"a": VOID}, {"a": "whatever"}, True),
        ({"a": VOID}, {"a": VOID}, True),
        ({"a": VOID}, {}, False),
        ({"a": 1}, {"a": VOID}, False),
        ({"a": [1, True]}, {"a": [1, True]}, True),
        ({"a": [1, True]}, {"a": [1.0, True]}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, False),
        ({"a": {"b": [SECOND]}}, {"a": {"b": [1]}}, False),
        ({"a": [1, True]}, {"a": [1, 1]}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, True),
        ({"a": {"b": "c"}}, {"a": ["b", "c"]}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2, "x-match": "any"}, {"a": 1}, True),
        ({"a": 1, "b": 2, "x-match": "any"}, {"a": 2, "b": 1}, False),
        ({"x-foo": 1}, {}, True),
        ({"x-foo": 1, "x-match": "any"}, {"x-foo": 1}, False),
        ({"x-foo": 1, "x-match": "all-with-x"}, {}, False),
        ({"x-foo": 1, "x-match": "all-with-x"}, {"x-foo": 1}, True),
        ({"x-foo": 1, "x-match": "any-with-x"}, {"x-foo": 1}, True),
        ({"x-foo": 1, "a": 1, "x-match": "any-with-x"}, {"x-foo": 2, "a": 2}, False),
    ],
)
def test_headers_match_as_in_rabbitmq(
    arguments: dict[str, Any], headers: dict[str, Any], matches: bool
) -> None:
    assert HeadersMatch(arguments)(comparable(headers)) is matches


names = st.sampled_from(["a", "b", "x-c", "x-match"])
values = st.sampled_from([None, 0, 1, 1.0, "1", "", b"1", True, False])
tables = st.dictionaries(names, values)


def same(wanted: Any, value: Any) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, bool) or isinstance(value, bool) or value is None:
        return wanted is value
    text = [each.encode() if isinstance(each, str) else each for each in (wanted, value)]
    return text[0] == text[1]


@given(tables, st.sampled_from([None, *MODES]), tables)
def test_matches_equal_those_of_a_search_name_by_name(
    arguments: dict[str, Any], mode: str | None, headers: dict[str, Any]
) -> None:
    arguments.pop("x-match", None)
    with_x = mode is not None and mode.endswith("-with-x")
    compared = [
        name in headers and same(wanted, headers[name])
        for name, wanted in arguments.items()
        if with_x or not name.startswith("x-")
    ]
    expected = any(compared) if mode is not None and mode.startswith("any") else all(compared)
    given_mode = {} if mode is None else {"x-match": mode}
    assert HeadersMatch({**arguments, **given_mode})(comparable(headers)) is expected
