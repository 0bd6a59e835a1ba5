"""Many publishes in one message, as bytes and at a server."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from warrenmq.amqp.wire import batch
from warrenmq.amqp.wire.codec import PUBLISH_START, encode_method, make
from warrenmq.amqp.wire.errors import AmqpError
from warrenmq.amqp.wire.frames import BODY, HEADER, METHOD, FrameCutter
from warrenmq.shared.publishing import _encoded

PUBLISH_FRAME = encode_method(1, make(Basic.Publish, exchange="", routing_key="q"))
bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=20)


@given(st.binary(max_size=20), st.binary(max_size=20), bodies)
def test_what_is_joined_is_split_again(method: bytes, raw: bytes, many: list[bytes]) -> None:
    given_batch = batch.Batch(PUBLISH_START + method, raw, many)
    assert batch.split(batch.joined(given_batch)) == given_batch


@given(st.binary(max_size=60), st.integers(0, 60), bodies)
def test_other_bytes_are_a_batch_or_an_error(noise: bytes, cut: int, many: list[bytes]) -> None:
    whole = batch.joined(batch.Batch(PUBLISH_START, b"", many))
    for data in (noise, whole[:cut], whole + noise, whole[:cut] + noise):
        try:
            found = batch.split(data)
        except AmqpError as error:
            assert error.code == 502  # noqa: PT017
        else:
            assert batch.joined(found) == data
            assert found.bodies


def test_a_batch_in_a_batch_is_none() -> None:
    with pytest.raises(AmqpError):
        batch.split(batch.joined(batch.Batch(batch.METHOD, b"", [b"x"])))


@given(bodies, st.integers(1, 100))
def test_pieces_keep_the_order_and_have_room(many: list[bytes], room: int) -> None:
    found = batch.pieces(many, room)
    assert [body for piece in found for body in piece] == many
    for piece in found:
        assert len(piece) == 1 or sum(4 + len(body) for body in piece) <= room


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from([b"", b"p"]), bodies), max_size=8))
def test_runs_are_the_same_publishes_in_fewer_batches(
    given_batches: list[tuple[bytes, bytes, list[bytes]]],
) -> None:
    def publishes(batches: list[batch.Batch]) -> list[tuple[bytes, bytes, bytes]]:
        return [(each.method, each.raw_properties, body) for each in batches for body in each.bodies]

    before = publishes([batch.Batch(*each) for each in given_batches])
    found = list(batch.runs(batch.Batch(method, raw, list(many)) for method, raw, many in given_batches))
    assert publishes(found) == before
    assert all(one[:2] != other[:2] for one, other in pairwise(found))


@given(bodies, st.integers(4096, 5000))
def test_a_batch_of_an_attached_process_is_one_body_frame(many: list[bytes], frame_max: int) -> None:
    """A body in several frames is cut and joined again, which costs both sides a copy each."""
    cutter = FrameCutter(frame_max)
    frames = cutter.feed(_encoded(1, PUBLISH_FRAME, b"\0\0", [b"x" + each * 100 for each in many], frame_max))
    assert cutter.error is None
    assert not cutter.pending
    assert [each.type for each in frames] == [METHOD, HEADER, BODY] * (len(frames) // 3)
