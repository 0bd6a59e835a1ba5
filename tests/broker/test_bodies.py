"""Bodies that may be published: bytes, bytearray and memoryview arrive as they were at the call; everything else is
refused in words.
"""

from __future__ import annotations

import array
import mmap
from pathlib import Path
from typing import Any

import pytest

import warrenmq


@pytest.mark.parametrize(
    ("body", "bytes_"),
    [
        (bytearray(b"changed"), b"changed"),
        (memoryview(bytearray(b"changed")), b"changed"),
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abcdef")[::-1], b"fedcba"),
        (memoryview(array.array("H", [1, 2])), array.array("H", [1, 2]).tobytes()),
        (memoryview(bytes(6)).cast("B", (2, 3)), bytes(6)),
        (type("Sub", (bytes,), {"__len__": lambda _self: 1})(b"whole"), b"whole"),
    ],
)
def test_a_body_is_copied_when_it_is_published(tmp_path: Path, body: Any, bytes_: bytes) -> None:
    with warrenmq.open(tmp_path / "data", settings={"durability": "os"}) as broker:
        queue = broker.declare_queue("q")
        with broker.tx() as tx:
            queue.publish(body)
            queue.publish_many([body, b"other"])
            tx.publish("", "q", body)
            if isinstance(body, bytearray):
                body[:] = b"another"
        got = [queue.get(5) for _ in range(4)]
    assert [delivery and delivery.body for delivery in got] == [bytes_, bytes_, b"other", bytes_]


@pytest.mark.parametrize(
    "body",
    ["text", 5, None, [1, 2], array.array("B", b"x"), mmap.mmap(-1, 1), object(), 1.5, True, {b"x": 1}],
)
def test_anything_else_is_no_body(tmp_path: Path, body: Any) -> None:
    with (
        warrenmq.open(tmp_path / "data", settings={"durability": "os"}) as broker,
        warrenmq.Queue(tmp_path / "simple") as simple,
    ):
        queue = broker.declare_queue("q")
        for publish in (
            queue.publish,
            lambda each: queue.publish_many([b"first", each]),
            lambda each: broker.publish("", "q", each),
        ):
            with pytest.raises(
                warrenmq.ArgumentTypeError, match=f"^a message's body is bytes, not {type(body).__name__}; "
            ):
                publish(body)
        with pytest.raises(TypeError, match=f"^this queue holds bytes, not {type(body).__name__}; "):
            simple.put_many([b"first", body])
        assert queue.info().next_seq_id == 0
        assert simple.empty()


def test_a_body_as_bodies_and_a_body_that_is_too_large_are_refused(tmp_path: Path) -> None:
    with warrenmq.open(
        tmp_path / "data", settings={"max_message_size": "4KiB", "msg_store_file_size_limit": "64KiB"}
    ) as broker:
        queue = broker.declare_queue("q")
        for bodies in (b'{"id": 1}', bytearray(b"x"), memoryview(b"x"), "text"):
            with pytest.raises(warrenmq.ArgumentTypeError, match=r"give a list of bodies, as in \[body\]$"):
                queue.publish_many(bodies)  # type: ignore[arg-type]
        for publish in (queue.publish, lambda body: queue.publish_many([b"", body])):
            with pytest.raises(
                warrenmq.PreconditionFailed, match="has 4097 bytes and max_message_size is 4096"
            ) as refused:
                publish(bytes(4097))
        assert refused.value.reply_text == "message size 4097 is larger than configured max size 4096"
        assert queue.info().next_seq_id == 0
        queue.publish(bytes(4096)).result(10)
