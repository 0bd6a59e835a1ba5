"""Properties of a message that decide its way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import PreconditionFailed
from warrenmq.routing.message_options import HeaderRoutes, header_routes, parse_expiration


@pytest.mark.parametrize(
    ("expiration", "milliseconds"), [(None, None), ("0", 0), ("60000", 60000), ("+5", 5)]
)
def test_an_expiration_is_a_number_of_milliseconds(expiration, milliseconds):
    assert parse_expiration(expiration) == milliseconds


@pytest.mark.parametrize(
    ("expiration", "why"),
    [
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("99999999999999999999", "{value_too_large,99999999999999999999}"),
        ("1.5", '{leftover_string,".5"}'),
        ("12 ", '{leftover_string," "}'),
        ("soon", "no_integer"),
        ("", "no_integer"),
    ],
)
def test_any_other_expiration_is_refused_in_rabbitmqs_words(expiration, why):
    with pytest.raises(PreconditionFailed) as refused:
        parse_expiration(expiration)
    assert refused.value.reply_text == f"invalid expiration '{expiration}': {why}"


@given(st.text())
def test_an_expiration_is_a_number_or_refused(expiration):
    try:
        milliseconds = parse_expiration(expiration)
    except PreconditionFailed:
        return
    assert milliseconds == int(expiration)


@pytest.mark.parametrize(
    ("headers", "routes"),
    [
        (None, ((), ())),
        ({}, ((), ())),
        ({"CC": ["a", "b"], "BCC": ["c"]}, (("a", "b"), ("c",))),
        ({"CC": ["a", 1]}, (("a",), ())),
        ({"cc": ["a"]}, ((), ())),
    ],
)
def test_cc_and_bcc_are_routing_keys(headers, routes):
    assert header_routes(headers) == HeaderRoutes(*routes)


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_cc_and_bcc_are_lists(name):
    with pytest.raises(PreconditionFailed, match=name) as refused:
        header_routes({name: "a"})
    assert refused.value.reply_text == f'invalid message: {{unacceptable_type_in_header,"{name}",longstr}}'
