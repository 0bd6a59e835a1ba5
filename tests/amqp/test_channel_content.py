"""Frames of a channel become the same methods and publishes, however they are cut into bodies and batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from warrenmq.amqp.channel.content import ContentAssembler
from warrenmq.amqp.wire.codec import decode_method, decode_properties
from warrenmq.amqp.wire.errors import AmqpError
from warrenmq.amqp.wire.frames import Frame, FrameCutter


class Kept:
    """A sink that keeps what it is handed; a run as its messages."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.runs = 0

    def method(self, method: Any) -> None:
        self.found.append((method.name, method.delivery_tag))

    def publish(self, method: bytes, raw_properties: bytes, bodies: list[bytes]) -> None:
        self.runs += 1
        decoded: Any = decode_method(method)
        properties = decode_properties(raw_properties)
        self.found += [(decoded.routing_key, properties.message_id, each) for each in bodies]


def frames_of(routing_key: str, message_id: str | None, content: bytes, piece: int) -> bytes:
    properties = commands.Basic.Properties(message_id=message_id)
    pieces = [content[at : at + piece] for at in range(0, len(content), piece)]
    return b"".join(
        frame.marshal(each, 1)
        for each in (
            commands.Basic.Publish(routing_key=routing_key),
            header.ContentHeader(0, len(content), properties),
            *map(body.ContentBody, pieces),
        )
    )


publishes = st.tuples(
    st.sampled_from("ab"), st.sampled_from([None, "m", "n"]), st.binary(max_size=12), st.integers(1, 12)
)


@given(st.lists(st.one_of(publishes, st.integers(1, 9)), max_size=12), st.data())
def test_how_frames_are_cut_does_not_matter(sent: list[Any], data: st.DataObject) -> None:
    frames: list[Frame] = []
    expected: list[Any] = []
    for each in sent:
        if isinstance(each, int):
            frames += FrameCutter().feed(frame.marshal(commands.Basic.Ack(each), 1))
            expected.append(("Basic.Ack", each))
        else:
            frames += FrameCutter().feed(frames_of(*each))
            expected.append(each[:3])
    kept = Kept()
    assembler = ContentAssembler(kept, 1000)
    while frames:
        count = data.draw(st.integers(1, len(frames)))
        assembler.take(iter(frames[:count]))
        frames = frames[count:]
    assert kept.found == expected


def test_equal_publishes_of_one_batch_are_one_run():
    kept = Kept()
    data = b"".join(frames_of("a", "m", b"x" * size, 9) for size in (0, 3, 30, 3)) + frames_of(
        "b", "m", b"", 9
    )
    ContentAssembler(kept, 1000).take(iter(FrameCutter().feed(data)))
    assert (kept.runs, len(kept.found)) == (2, 5)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (["header"], "expected method frame, got non method frame instead"),
        (["body"], "expected method frame, got non method frame instead"),
        (["publish", "body"], "expected content header for class 60, got non content header frame instead"),
        (
            ["publish", "publish"],
            "expected content header for class 60, got non content header frame instead",
        ),
        (["publish", "header", "publish"], "expected content body, got non content body frame instead"),
        (["publish", "header", "header"], "expected content body, got non content body frame instead"),
        (["publish", "header", "body", "body"], "expected method frame, got non method frame instead"),
        (["publish", "header", "long"], "the body of a message is longer than its header says"),
    ],
)
def test_frames_out_of_turn_are_refused_in_rabbitmqs_words(wrong: list[str], text: str) -> None:
    parts = {
        "publish": commands.Basic.Publish(routing_key="q"),
        "header": header.ContentHeader(0, 3, commands.Basic.Properties()),
        "body": body.ContentBody(b"abc"),
        "long": body.ContentBody(b"abcd"),
    }
    data = b"".join(frame.marshal(parts[each], 1) for each in wrong)
    kept = Kept()
    with pytest.raises(AmqpError) as caught:
        ContentAssembler(kept, 1000).take(iter(FrameCutter().feed(data)))
    assert (caught.value.code, caught.value.text) == (505, text)
    assert len(kept.found) == (wrong[2:] == ["body", "body"])


def test_a_message_that_is_too_large_is_refused_before_it_has_come():
    kept = Kept()
    data = frames_of("q", None, b"x" * 11, 4)
    frames = iter(FrameCutter().feed(data))
    with pytest.raises(AmqpError, match="message size 11 is larger than configured max size 10"):
        ContentAssembler(kept, 10).take(frames)
    assert len(list(frames)) == 3
