"""The message records of 2.x to 3.12: every shape, fragments, padding, and names that are no text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.erlang.terms import basic_message, encode
from warrenmq.erlang import rabbit_message
from warrenmq.erlang.amqp_table import table_of_bytes
from warrenmq.erlang.term import BadTerm
from warrenmq.erlang.values import Atom

NO_PROPERTIES = b"\0\0"
ID = bytes(range(16))


def decode(term, **options):
    return rabbit_message.decode(encode(term), **options)


@given(
    exchange=st.text(max_size=20),
    routing_keys=st.lists(st.text(max_size=20), max_size=3),
    fragments=st.lists(st.binary(min_size=1, max_size=20), max_size=4),
    persistent=st.booleans(),
    padding=st.integers(0, 20),
)
def test_a_record_is_read_as_it_was_written(exchange, routing_keys, fragments, persistent, padding):
    term = basic_message(exchange, routing_keys, NO_PROPERTIES, fragments, msg_id=ID, persistent=persistent)
    found = rabbit_message.decode(encode(term) + bytes(padding), zero_padded=True)
    assert found == rabbit_message.RabbitMessage(
        exchange=exchange,
        routing_keys=routing_keys,
        properties={},
        body=b"".join(fragments),
        fragments=len(fragments),
        persistent=persistent,
        msg_id=ID,
        stored_properties=None,
    )


def test_old_records_have_one_routing_key_and_no_protocol():
    tag, exchange, _, content, msg_id, persistent = basic_message("ex", [], NO_PROPERTIES, b"body")
    old = (tag, exchange, b"key", (*content[:4], content[5]), msg_id, persistent)
    found = decode(old)
    assert (found.exchange, found.routing_keys, found.body) == ("ex", ["key"], b"body")


def test_properties_that_the_broker_changed_are_a_record():
    undefined = Atom("undefined")
    headers = [(b"h", Atom("long"), 5)]
    record = (Atom("P_basic"), b"text", undefined, headers, 2, *[undefined] * 10)
    found = decode(basic_message("", [], record, b""))
    assert found.stored_properties == "record"
    assert found.properties == {"content_type": "text", "headers": [["h", "l", 5]], "delivery_mode": 2}


def test_where_both_forms_are_there_the_publisher_s_bytes_count():
    tag, exchange, keys, content, msg_id, persistent = basic_message("", [], b"\x80\0\4text", b"")
    both = (*content[:2], (Atom("P_basic"), *[Atom("undefined")] * 14), *content[3:])
    found = decode((tag, exchange, keys, both, msg_id, persistent))
    assert (found.properties, found.stored_properties) == ({"content_type": "text"}, None)


def test_a_message_without_an_id_or_a_flag_has_none():
    term = (*basic_message("", [], NO_PROPERTIES, b"")[:4], Atom("undefined"), 0)
    assert (decode(term).msg_id, decode(term).persistent) == (None, None)


def test_names_that_are_no_utf_8_can_be_had_back():
    term = basic_message("", [], NO_PROPERTIES, b"")
    found = decode((*term[:2], [b"\xff\xc3\xa9"], *term[3:]))
    assert found.routing_keys[0].encode("utf-8", "surrogateescape") == b"\xff\xc3\xa9"


def test_a_message_of_another_class_is_refused():
    tag, exchange, keys, content, *rest = basic_message("", [], NO_PROPERTIES, b"")
    with pytest.raises(
        BadTerm, match=r"^0\.idx is damaged at byte 34: .*its content is of class 50, not of class basic"
    ):
        decode((tag, exchange, keys, (content[0], 50, *content[2:]), *rest), path="0.idx", offset=34)


def test_a_body_that_is_no_list_of_bytes_is_refused():
    tag, exchange, keys, content, *rest = basic_message("", [], NO_PROPERTIES, b"")
    with pytest.raises(BadTerm, match="its body is not a list of fragments"):
        decode((tag, exchange, keys, (*content[:5], [5]), *rest))


def nested(depth):
    """{<<>>, table, [...]}, in each other so many times, as bytes: encoding terms takes a stack."""
    one = b"h\3m\0\0\0\0" + encode(Atom("table"))[1:]
    return b"l\0\0\0\1" + (one + b"l\0\0\0\1") * (depth - 1) + one + b"j" + b"j" * depth


@pytest.mark.parametrize("depth", [1, 50, 126, 127, 18_000])
def test_headers_that_the_broker_changed_may_be_nested_as_deep_as_a_frame_has_room_for(depth):
    record = (Atom("P_basic"), *[Atom("undefined")] * 2, Atom("headers"), *[Atom("undefined")] * 11)
    term = encode(basic_message("", ["key"], record, b"body"))
    message = rabbit_message.decode(term.replace(encode(Atom("headers"))[1:], nested(depth)))
    table = b""
    for _ in range(depth):
        table = b"\0F" + len(table).to_bytes(4, "big") + table
    assert message.body == b"body"
    assert message.properties == {"headers": table_of_bytes(table)}
    assert json.dumps(message.properties)


@pytest.mark.parametrize(
    "hostile",
    [b"h\1" * 60_000 + b"a\1", b"l\0\0\0\1" * 60_000 + b"a\1" + b"j" * 60_000, b"t\0\0\0\1" * 60_000],
)
def test_terms_that_are_nested_elsewhere_are_refused_and_not_printed_compared_or_hashed(hostile):
    term = encode((Atom("basic_message"), Atom("here"), [b"key"], Atom("and here"), bytes(16), Atom("true")))
    for place in ("here", "and here"):
        with pytest.raises(BadTerm):
            rabbit_message.decode(term.replace(encode(Atom(place))[1:], hostile))
