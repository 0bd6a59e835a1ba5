"""Many publishes in one message, as bytes and at a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.amqp.wire import batch
from warrenmq.amqp.wire.codec import PUBLISH_START
from warrenmq.amqp.wire.errors import AmqpError

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
