from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.errors import CorruptFile, PreconditionFailed
from warrenmq.message.properties import Properties
from warrenmq.message.stored import (
    bin_header,
    body_of,
    body_size,
    decode,
    encode,
    encode_head,
    encode_raw_head,
    head_of,
    problem_of,
    seal,
)

TIMES = st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1), max_value=datetime(9999, 1, 1))  # noqa: DTZ001
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
    | st.binary() | TIMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "headers": st.dictionaries(st.text(), VALUES, max_size=4),
    "delivery_mode": st.integers(1, 2),
    "priority": st.integers(0, 255),
    "timestamp": TIMES,
}
PROPERTIES = st.builds(
    Properties,
    **{each.name: st.none() | KINDS.get(each.name, st.text(max_size=20)) for each in fields(Properties)},
)


def test_the_properties_are_amqps_fourteen_in_its_order() -> None:
    assert [each.name for each in fields(Properties)] == [
        "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
        "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
    ]  # fmt: skip


def test_the_bytes_are_a_msgpack_array_with_the_body_last() -> None:
    stored = encode(encode_head("logs", ["a.b"], Properties(delivery_mode=2)), b"hello")
    assert stored == bytes.fromhex("95 01 a4 6c6f6773 91a3 612e62 94 c0c0c0 02 c405 68656c6c6f")
    assert msgpack.unpackb(stored) == [1, "logs", ["a.b"], [None, None, None, 2], b"hello"]


def test_no_properties_are_nil() -> None:
    head = bytes.fromhex("95 01 a0 91a1 71 c0")
    assert encode_head("", ["q"], None) == encode_head("", ["q"], Properties()) == head


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
def test_every_body_size_takes_msgpacks_shortest_header(size: int) -> None:
    body = b"x" * size
    stored = encode(encode_head("", ["q"], None), body)
    assert stored == msgpack.packb([1, "", ["q"], None, body])
    assert body_of(stored, size) == decode(stored).body == body


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=3), PROPERTIES, st.binary(max_size=300))
def test_encoded_messages_are_decoded(
    exchange: str, keys: list[str], properties: Properties, body: bytes
) -> None:
    stored = encode(encode_head(exchange, keys, properties), body)
    message = decode(stored)
    assert (message.exchange, message.routing_keys, message.properties) == (exchange, keys, properties)
    assert message.body == body_of(stored, len(body)) == body
    assert stored[0] != 131


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        (Properties(priority="high"), "property priority is str, not int"),  # type: ignore[arg-type]
        (Properties(delivery_mode=True), "property delivery_mode is bool, not int"),
        (Properties(expiration=100), "property expiration is int, not str"),  # type: ignore[arg-type]
        (Properties(headers={"set": {1}}), "can not serialize 'set' object"),
        (Properties(headers={"deep": {1: "key"}}), "int is not allowed for map key"),
        (Properties(headers={"deep": {(1, 2): "key"}}), "not allowed for map key"),
        (Properties(headers={"big": 2**64}), "Integer value out of range"),
        (Properties(headers={"half": "\ud800"}), "surrogates not allowed"),
        (Properties(timestamp=datetime(2026, 1, 1)), "tzinfo=None"),  # noqa: DTZ001
    ],
)
def test_properties_that_could_not_be_read_back_are_refused(properties: Properties, problem: str) -> None:
    with pytest.raises(PreconditionFailed, match=problem):
        encode_head("", ["q"], properties)


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (b"", "not msgpack"),
        (b"\x83h\x02", "Erlang term"),
        (b"\xc1", "not msgpack"),
        (msgpack.packb([2, "new", {}]), "version is 2"),
        (msgpack.packb([1, "", ["q"], None]), "not an array of version"),
        (msgpack.packb([1, "", ["q"], None, "text"]), "not an array of version"),
        (msgpack.packb([1, "", [7], None, b""]), "not an array of version"),
        (msgpack.packb([1, "", ["q"], [7], b""]), "content_type is int"),
        (msgpack.packb([1, "", ["q"], [None] * 15, b""]), "AMQP has 14"),
        (msgpack.packb([1, "", ["q"], None, b""]) + b"\x00", "extra data"),
        (b"\x95\x01\xa0\x90\x91\xd6\xff\xff\xff", "not msgpack"),
    ],
)
def test_other_bytes_are_a_corrupt_file(stored: bytes, problem: str) -> None:
    with pytest.raises(CorruptFile, match=problem) as damaged:
        decode(stored, "7.rdq", 96)
    assert (damaged.value.path, damaged.value.offset) == ("7.rdq", 96)


WHOLE = encode(
    encode_head("e", ["k"], Properties(headers={"h": [1, None]}, timestamp=datetime(2026, 1, 1, tzinfo=UTC))),
    b"body",
)


@given(st.binary(max_size=60) | st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)).map(
    lambda flip: WHOLE[: flip[0]] + bytes([flip[1]]) + WHOLE[flip[0] + 1 :]))  # fmt: skip
def test_damaged_bytes_decode_or_are_a_corrupt_file(stored: bytes) -> None:
    with suppress(CorruptFile):
        assert decode(stored).properties is not None


def test_times_keep_their_moment_and_become_utc() -> None:
    moment = datetime(2026, 5, 1, 12, 30, 15, 123456, UTC)
    local = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert (
        decode(encode(encode_head("", [], Properties(timestamp=local)), b"")).properties.timestamp == moment
    )


def test_properties_of_an_amqp_client_are_stored_as_they_came():
    # content_type, headers, delivery_mode
    raw = bytes.fromhex("b000") + b"\x0atext/plain" + bytes(4) + b"\x02"
    stored = encode(encode_raw_head("amq.topic", ["a.b", "c"], raw), b"body")
    message = decode(stored)
    assert message.stored_properties == raw
    assert message.properties == Properties(content_type="text/plain", headers={}, delivery_mode=2)
    assert (message.exchange, message.routing_keys, message.body) == ("amq.topic", ["a.b", "c"], b"body")


def test_properties_of_an_amqp_client_that_make_no_sense_are_damage():
    with pytest.raises(CorruptFile, match="properties make no sense"):
        decode(encode(encode_raw_head("", ["q"], b"\xff\xff"), b"body"))


SEALED = st.builds(
    lambda exchange, keys, properties, body, bound: (seal(encode_head(exchange, keys, properties), body, bound), bound, body),
    st.text(max_size=20), st.lists(st.text(max_size=20), min_size=1, max_size=3), PROPERTIES, st.binary(max_size=300),
    st.integers(0, 2**64),
)  # fmt: skip


@given(SEALED)
def test_a_sealed_message_is_msgpack_with_the_body_last_and_decodes_like_one_without_a_checksum(
    sealed: tuple[bytes, int, bytes],
) -> None:
    stored, bound, body = sealed
    version, exchange, keys, _, last = msgpack.unpackb(stored, timestamp=3)
    assert (version.code, len(version.data)) == (2, 8)
    message = decode(stored)
    assert (message.exchange, message.routing_keys, message.body, last) == (exchange, keys, body, body)
    assert body_of(stored, len(body)) == body
    assert body_size(stored, 999) == len(body)
    assert problem_of(stored, bound, len(body)) is None
    before_body = stored[: len(stored) - len(body) - len(bin_header(len(body)))]
    assert encode(head_of(before_body), body) == encode(encode_head(exchange, keys, message.properties), body)


@given(SEALED, st.data())
def test_no_changed_bytes_and_no_other_place_pass_for_a_sealed_message(
    sealed: tuple[bytes, int, bytes], data: st.DataObject
) -> None:
    stored, bound, body = sealed
    at = data.draw(st.integers(0, len(stored) - 1))
    for place in {0, 1, 2, at}:
        for change in range(1, 256):
            changed = stored[:place] + bytes((stored[place] ^ change,)) + stored[place + 1 :]
            assert problem_of(changed, bound) is not None
    assert problem_of(stored[:at], bound) is not None
    assert problem_of(stored + b"\0", bound) is not None
    assert problem_of(stored, bound ^ 1 << data.draw(st.integers(0, 31))) is not None
    assert problem_of(stored, bound, len(body) + 1) is not None
    zeros = stored[:at] + bytes(len(stored) - at)
    assert zeros == stored or problem_of(zeros, bound) is not None
