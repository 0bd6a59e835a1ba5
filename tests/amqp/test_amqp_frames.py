"""Cutting frames out of a stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp import frame as pamqp_frame

from warrenmq.amqp.wire.errors import FRAME_ERROR, UNEXPECTED_FRAME, AmqpError
from warrenmq.amqp.wire.frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    Frame,
    FrameCutter,
    check_shape,
    frame,
    snippet,
)

frames = st.lists(
    st.builds(
        Frame,
        st.sampled_from([METHOD, HEADER, BODY, HEARTBEAT, 99]),
        st.integers(0, 65535),
        st.binary(max_size=60),
    )
)


def cut_in(data, places):
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(frames, st.lists(st.integers(0, 10_000), max_size=30))
def test_any_cut_of_the_bytes_gives_the_same_frames(sent, places):
    cutter = FrameCutter()
    got = [
        each
        for piece in cut_in(b"".join(frame(*each) for each in sent), places)
        for each in cutter.feed(piece)
    ]
    assert got == sent
    assert cutter.pending == 0


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_is_cut_or_refused_and_never_piles_up(pieces):
    cutter = FrameCutter()
    for piece in pieces:
        cutter.feed(piece)
        assert cutter.pending <= cutter.frame_max + 8 + len(piece)
    if cutter.error is not None:
        assert cutter.error.code == FRAME_ERROR
        assert cutter.feed(b"more") == []
        assert cutter.pending == 0


@given(frames, st.integers(0, 205))
def test_frames_before_a_wrong_one_are_not_lost(sent, end):
    wrong = frame(METHOD, 0, b"abcd")[:-1] + bytes([end])
    cutter = FrameCutter()
    assert cutter.feed(b"".join(frame(*each) for each in sent) + wrong) == sent
    assert (
        str(cutter.error)
        == f'501 FRAME_ERROR - type 1, all octets = <<"abcd">>: {{invalid_frame_end_marker,{end}}}'
    )


def test_a_size_is_refused_before_its_payload_comes():
    cutter = FrameCutter(131072)
    assert cutter.feed(frame(BODY, 1, bytes(131072))[:7]) == []
    assert cutter.error is None
    cutter = FrameCutter(131072)
    cutter.feed(b"\3\0\1" + (131073).to_bytes(4, "big"))
    assert cutter.error.text == "type 3, all octets = <<>>: {frame_too_large,131073,131064}"


def test_no_limit_is_no_limit():
    cutter = FrameCutter(0)
    assert len(cutter.feed(frame(BODY, 1, bytes(1 << 20)))[0].payload) == 1 << 20


def test_frames_are_those_of_another_implementation():
    sent = commands.Basic.Ack(7, multiple=True)
    data = pamqp_frame.marshal(sent, 5)
    [got] = FrameCutter().feed(data)
    assert frame(*got) == data
    assert pamqp_frame.unmarshal(HEARTBEAT_FRAME)[2].name == "Heartbeat"


@pytest.mark.parametrize(
    ("type", "channel", "payload", "code"),
    [
        (METHOD, 0, b"abcd", None),
        (METHOD, 1, b"abcd", None),
        (METHOD, 1, b"abc", FRAME_ERROR),
        (HEADER, 0, bytes(12), UNEXPECTED_FRAME),
        (HEADER, 1, bytes(12), None),
        (HEADER, 1, bytes(11), FRAME_ERROR),
        (BODY, 0, b"", UNEXPECTED_FRAME),
        (BODY, 1, b"", None),
        (HEARTBEAT, 0, b"", None),
        (HEARTBEAT, 0, b"x", FRAME_ERROR),
        (HEARTBEAT, 1, b"", UNEXPECTED_FRAME),
        (5, 0, b"", FRAME_ERROR),
        (5, 1, b"", FRAME_ERROR),
    ],
)
def test_each_type_has_its_place_and_its_least_size(type, channel, payload, code):
    if code is None:
        check_shape(Frame(type, channel, payload))
        return
    with pytest.raises(AmqpError) as raised:
        check_shape(Frame(type, channel, payload))
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "all octets = <<>>"),
        (b"abc", 'all octets = <<"abc">>'),
        (b'a"\\\n', r'all octets = <<"a\"\\\n">>'),
        (b"a\0", "all octets = <<97,0>>"),
        (b"x" * 16, f'all octets = <<"{"x" * 16}">>'),
        (b"x" * 17, f'first 16 octets = <<"{"x" * 16}">>'),
    ],
)
def test_payloads_are_shown_as_erlang_prints_them(payload, said):
    assert snippet(payload) == said
