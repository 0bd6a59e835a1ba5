"""Methods, headers and properties, against pamqp's own and against garbage."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp.header import ContentHeader

from warrenmq.amqp.wire.codec import (
    DeliverTemplate,
    decode_header,
    decode_method,
    decode_properties,
    decode_table,
    encode_content,
    encode_method,
    encode_table,
    make,
    raw_properties,
)
from warrenmq.amqp.wire.errors import AmqpError
from warrenmq.amqp.wire.frames import FrameCutter, frame
from warrenmq.message.properties import Properties
from warrenmq.message.typed_headers import TypedHeaders

names = st.text(max_size=40)
VALUES = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 65535),
    "long": st.integers(0, (1 << 32) - 1),
    "longlong": st.integers(0, (1 << 64) - 1),
    "shortstr": names,
    "longstr": st.binary(max_size=80),
    "table": st.dictionaries(
        st.text("abc", max_size=4),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(1 << 63), (1 << 63) - 1)
            | names
            | st.floats(allow_nan=False),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=4), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    ),
}


@st.composite
def methods(draw):
    kind = draw(st.sampled_from(sorted(commands.INDEX_MAPPING.values(), key=lambda kind: kind.index)))
    return make(kind, **{name: draw(VALUES[kind.amqp_type(name)]) for name in kind.__slots__})


def fields(method):
    return type(method), dict(method)


def payload_of(data):
    [got] = FrameCutter().feed(data)
    return got.payload


@given(methods())
def test_every_method_comes_back_as_it_was(method):
    assert fields(decode_method(payload_of(encode_method(3, method)))) == fields(method)


@pytest.mark.parametrize("kind", commands.INDEX_MAPPING.values(), ids=lambda kind: kind.name)
def test_every_method_of_pamqp_is_read_and_written_as_pamqp_does(kind):
    # bytes are none to pamqp
    texts = {name: "0" for name in kind.__slots__ if kind.amqp_type(name) == "longstr"}
    theirs = make(kind, **texts | {"out_of_band": "0"} if kind is commands.Channel.Open else texts)
    data = pamqp_frame.marshal(theirs, 1)
    assert encode_method(1, decode_method(payload_of(data))) == data


def error_of(function, data):
    try:
        function(data)
    except AmqpError as error:
        return error
    return None


@given(
    st.binary(max_size=100), st.sampled_from(sorted(commands.INDEX_MAPPING)) | st.integers(0, (1 << 32) - 1)
)
def test_garbage_is_a_protocol_error_and_nothing_else(data, index):
    error = error_of(decode_method, index.to_bytes(4, "big") + data)
    assert error is None or (error.code in {501, 502, 503} and len(error.reply_text.encode()) <= 255)


@given(st.binary(max_size=60))
def test_garbage_of_properties_is_a_protocol_error_and_nothing_else(data):
    error = error_of(decode_properties, data)
    assert error is None or error.code == 502


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\0\x32\0\x0a\0\0\x20abc", "501 FRAME_ERROR - cannot decode <<0,0,32,97,98,99>>"),
        (b"\0\x32\0\x0b\1q\0\0\0\0\0\0\0\0!", "501 FRAME_ERROR - cannot decode <<1,113,0,0,0,0,0,0,0,0,33>>"),
        (b"\0\x32\0\x0a\0\0\1\xff\0\0\0\0\0", "501 FRAME_ERROR - Malformed UTF-8 in shortstr"),
        (
            b"\0\x32\0\x0a\0\0\1q\0\0\0\0\5\1a?xx",
            "502 SYNTAX_ERROR - queue.declare has a table that cannot be read",
        ),
        (b"\0\x0a\0\x63", "503 COMMAND_INVALID - unimplemented method 99 of class 10"),
        (b"\0\x0a", "503 COMMAND_INVALID - unimplemented method of less than four bytes"),
    ],
)
def test_errors_are_worded_as_in_rabbitmq(payload, said):
    with pytest.raises(AmqpError) as raised:
        decode_method(payload)
    assert str(raised.value) == said


def test_deep_arguments_are_read_and_written_as_they_came():
    table = b""
    for _ in range(18_000):
        table = b"\1aF" + len(table).to_bytes(4, "big") + table
    payload = b"\0\x32\0\x0a\0\0\1q\0" + len(table).to_bytes(4, "big") + table
    method = decode_method(payload)
    assert encode_method(1, method)[7:-1] == payload
    assert decode_method(payload).arguments == method.arguments
    with pytest.raises(AmqpError, match="cannot be read"):
        decode_method(payload.replace(b"\1aF\0\0\0\0", b"\1aQ\0\0\0\0"))


def test_arguments_know_the_types_that_they_came_with():
    table = b"\1aI\0\0\0\1" + b"\1bb\1" + b"\1cS\0\0\0\1x"
    arguments = decode_table(table)
    assert arguments == {"a": 1, "b": 1, "c": "x"}
    assert isinstance(arguments, TypedHeaders)
    assert [letter for _, letter, _ in arguments.typed] == ["I", "b", "S"]
    assert encode_table(arguments) == table


def test_delivery_tags_are_unsigned():
    method = make(commands.Basic.Ack, delivery_tag=(1 << 64) - 1)
    assert decode_method(payload_of(encode_method(1, method))).delivery_tag == (1 << 64) - 1


# -- content


def header_of(properties, size=5):
    return payload_of(pamqp_frame.marshal(ContentHeader(0, size, properties), 1))


def test_properties_are_those_of_another_implementation():
    theirs = commands.Basic.Properties(
        headers={"a": 1, "b": ["x", {"c": True}]}, expiration="50", delivery_mode=2, priority=3, message_type="t",
        timestamp=datetime(2026, 1, 2, tzinfo=UTC), reply_to="q", message_id="m", user_id="guest",
    )  # fmt: skip
    size, raw = decode_header(header_of(theirs))
    ours = decode_properties(raw)
    assert size == 5
    assert ours == Properties(headers={"a": 1, "b": ["x", {"c": True}]}, expiration="50", delivery_mode=2, priority=3,
                              type="t", timestamp=datetime(2026, 1, 2, tzinfo=UTC), reply_to="q", message_id="m",
                              user_id="guest")  # fmt: skip
    assert raw_properties(ours) == raw


def test_texts_that_are_no_utf8_stay_out_of_the_way():
    assert decode_properties(b"\x04\0\2\xff\xfe").correlation_id == "\\xff\\xfe"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\0\x32" + bytes(10), "expected content header for class 60, got one for class 50 instead"),
        (
            b"\0\x3c\0\1" + bytes(8),
            "expected content header for class 60, got non content header frame instead",
        ),
        (b"\0\x3c", "a content header ends too early"),
    ],
)
def test_headers_are_checked(payload, said):
    with pytest.raises(AmqpError) as raised:
        decode_header(payload)
    assert raised.value.text == said


def test_a_template_gives_what_encoding_gives():
    template = DeliverTemplate(2, "täg", "an exchange", "a.key")
    for tag, redelivered in [(1, False), (1 << 63, True)]:
        whole = make(commands.Basic.Deliver, consumer_tag="täg", delivery_tag=tag, redelivered=redelivered,
                     exchange="an exchange", routing_key="a.key")  # fmt: skip
        assert template.frame(tag, redelivered) == encode_method(2, whole)


@given(st.binary(max_size=100), st.integers(9, 60))
def test_bodies_are_cut_to_the_size_that_was_agreed(body, frame_max):
    pieces = encode_content(1, frame(1, 1, b"abcd"), b"\0\0", body, frame_max)
    method, header, *bodies = FrameCutter().feed(b"".join(pieces))
    assert method.payload == b"abcd"
    assert decode_header(header.payload) == (len(body), b"\0\0")
    assert b"".join(each.payload for each in bodies) == body
    assert all(0 < len(each.payload) <= frame_max - 8 for each in bodies)
