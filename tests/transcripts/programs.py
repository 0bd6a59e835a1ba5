"""Programs of raw frames for behaviour that clients rely on (tests/transcripts/wire.py); each has queues of its own.

A program waits for what must come, and ends a step with an answer that the server can give only after everything before it,
so that what must not come would be seen.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from pamqp.commands import Basic, Channel, Confirm, Connection, Queue, Tx

from tests.transcripts.wire import Transcript, identity, published
from warrenmq.amqp.channel.access_methods import AccessRequest
from warrenmq.amqp.wire.codec import decode_table, make

Program = Callable[[Transcript], None]

DEEP = 18_000
"""Levels of nesting that fit into one frame."""
DEEP_FOR_DEAD_LETTERS = 1_500
"""RabbitMQ's time for encoding headers that it has changed grows with the square of their depth."""


def what_it_says_about_itself(t: Transcript) -> None:
    with t.connection() as wire:
        t.lines += [f"= {line}" for line in identity(wire)]


def a_get_beside_a_consumer(t: Transcript) -> None:
    """The consumer has room, so that each message is its own before the get is handled."""
    with t.connection(1, 2) as wire:
        wire.declare(1, "get", auto_delete=True)
        wire.call(1, make(Basic.Consume, queue="get", consumer_tag="c", no_ack=True), "basic.consume-ok")
        for channel in (1, 2) * 5:
            wire.send_all(
                (channel, published(channel, "get")), (channel, make(Basic.Get, queue="get", no_ack=True))
            )
            wire.until("1 basic.deliver", f"{channel} basic.get-empty", ordered=False)
        t.comment("a consumer with a prefetch count: the third message is for the get")
        wire.declare(2, "get-2", auto_delete=True)
        wire.call(2, make(Basic.Qos, prefetch_count=2), "basic.qos-ok")
        wire.call(2, make(Basic.Consume, queue="get-2", consumer_tag="c"), "basic.consume-ok")
        wire.send(
            1, *(published(1, "get-2", b"%d" % number) for number in range(3)), make(Basic.Get, queue="get-2")
        )
        wire.until("2 basic.deliver", "2 basic.deliver", "1 basic.get-ok")


def counts_beside_a_consumer(t: Transcript) -> None:
    """Declare, purge and delete count what the consumer has no room for."""
    with t.connection(1, 2) as wire:
        wire.declare(1, "counts")
        wire.call(2, make(Basic.Qos, prefetch_count=2), "basic.qos-ok")
        wire.call(2, make(Basic.Consume, queue="counts", consumer_tag="c"), "basic.consume-ok")
        messages = [published(1, "counts", b"%d" % number) for number in range(5)]
        wire.send(1, *messages, make(Basic.Get, queue="counts", no_ack=True))
        wire.until("1 basic.get-ok", "2 basic.deliver", "2 basic.deliver")
        wire.declare(1, "counts", passive=True)
        wire.call(1, make(Queue.Purge, queue="counts"), "queue.purge-ok")
        wire.send(1, published(1, "counts", b"5"), make(Queue.Delete, queue="counts", if_empty=True))
        wire.until("1 channel.close")
        wire.send(1, Channel.CloseOk(), Channel.Open())
        wire.until("1 channel.open-ok")
        wire.send(1, make(Queue.Delete, queue="counts"))
        wire.until("1 queue.delete-ok", "2 basic.cancel")


def what_leaves_by_itself_beside_a_consumer(t: Transcript) -> None:
    """A message that lives for 0 ms, and one that is too much, go only where the consumer has no room."""
    with t.connection(1, 2) as wire:
        wire.declare(1, "dead", exclusive=True)
        limits = {"ttl": {"x-message-ttl": 0}, "length": {"x-max-length": 1}}
        wire.call(2, make(Basic.Qos, prefetch_count=1), "basic.qos-ok")
        for name, limit in limits.items():
            wire.declare(1, name, exclusive=True,
                         arguments=limit | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})  # fmt: skip
            wire.call(2, make(Basic.Consume, queue=name, consumer_tag=name), "basic.consume-ok")
            messages = [published(1, name, b"%d" % number) for number in range(4)]
            wire.send(1, *messages, make(Queue.Purge, queue=name))
            wire.until("1 queue.purge-ok", "2 basic.deliver")
        for _ in range(5):
            wire.call(1, make(Basic.Get, queue="dead", no_ack=True), "basic.get-ok")
        wire.call(1, make(Basic.Get, queue="dead", no_ack=True), "basic.get-empty")


def a_connection_closes_whose_queues_go_with_it(t: Transcript) -> None:
    """Each channel consumes from the queues of all: no basic.cancel, only close-ok."""
    with t.connection(1, 2, 3) as wire:
        for channel, how in enumerate(
            ({"exclusive": True}, {"auto_delete": True}, {"exclusive": True, "auto_delete": True}), 1
        ):
            wire.declare(channel, f"closing-{channel}", **how)
        for channel in (1, 2, 3):
            for number in (1, 2, 3):
                consume = make(Basic.Consume, queue=f"closing-{number}", consumer_tag=f"c{channel}{number}")
                wire.call(channel, consume, "basic.consume-ok")
        wire.call(0, Connection.Close(200, "bye", 0, 0), "connection.close-ok")


def a_queue_is_deleted_under_its_consumer(t: Transcript) -> None:
    """The server sends basic.cancel."""
    with t.connection(1, 2) as wire:
        wire.declare(1, "deleted")
        wire.call(2, make(Basic.Consume, queue="deleted", consumer_tag="c"), "basic.consume-ok")
        wire.send(1, make(Queue.Delete, queue="deleted"))
        wire.until("1 queue.delete-ok", "2 basic.cancel")


def what_came_before_a_close_is_answered(t: Transcript) -> None:
    """Sent in one go: declare, a message that comes back, and close."""
    for close in (Channel.Close(200, "bye", 0, 0), Connection.Close(200, "bye", 0, 0)):
        with t.connection(1) as wire:
            wire.call(1, make(Confirm.Select), "confirm.select-ok")
            declare = make(Queue.Declare, queue="", exclusive=True)
            number = int(isinstance(close, Channel.Close))
            wire.send_all((1, declare), (1, published(1, "nowhere", mandatory=True)), (number, close))
            wire.until("1 channel.close-ok" if number else "0 connection.close-ok")
            if number:
                wire.call(1, Channel.Open(), "channel.open-ok")


def nothing_follows_an_error_of_a_channel(t: Transcript) -> None:
    """Frames sent behind the mistake are ignored, and the consumer gets nothing more."""
    with t.connection(1, 2) as wire:
        wire.declare(2, "error", auto_delete=True)
        wire.call(1, make(Confirm.Select), "confirm.select-ok")
        wire.call(1, make(Basic.Consume, queue="error", consumer_tag="c"), "basic.consume-ok")
        wire.call(
            2, make(Basic.Consume, queue="error", consumer_tag="other", no_ack=True), "basic.consume-ok"
        )
        wire.send(1, make(Basic.Ack, delivery_tag=7), published(1, "error"), make(Basic.Get, queue="error"))
        wire.until("1 channel.close")
        wire.send(2, published(2, "error", b"for the other"))
        wire.until("2 basic.deliver")
        wire.fence(2, "error")
        wire.send(1, Channel.CloseOk(), Channel.Open())
        wire.until("1 channel.open-ok")


def a_commit_after_the_queue_was_deleted(t: Transcript) -> None:
    with t.connection(1) as wire:
        wire.call(1, make(Tx.Select), "tx.select-ok")
        for name in ("tx", "tx-kept"):
            wire.declare(1, name, exclusive=True)
            wire.call(1, make(Queue.Bind, queue=name, exchange="amq.fanout"), "queue.bind-ok")
        wire.send(1, published(1, "tx", b"1"), published(1, "tx", b"2", mandatory=True),
                  published(1, "", b"3", exchange="amq.fanout", mandatory=True))  # fmt: skip
        wire.call(1, make(Queue.Delete, queue="tx"), "queue.delete-ok")
        wire.call(1, make(Tx.Commit), "tx.commit-ok")
        wire.fence(1, "tx-kept")
        wire.call(1, make(Tx.Commit), "tx.commit-ok")


def access_is_granted(t: Transcript) -> None:
    with t.connection(1) as wire:
        request = make(AccessRequest, realm="/data", exclusive=True, read=True)
        wire.call(1, request, "access.request-ok")


def tables_nested_as_deep_as_a_frame_has_room_for(t: Transcript) -> None:
    with t.connection(1) as wire:
        wire.declare(1, "deep", exclusive=True)
        cc = b"\x02CCA" + _sized(b"S" + _sized(b"deep"))
        for letter in ("F", "A"):
            t.comment(f"type {letter}: headers, with CC, arguments")
            for routing_key, headers in (
                ("deep", _nested(letter, DEEP)),
                ("nowhere", cc + _nested(letter, DEEP)),
            ):
                wire.send(1, published(1, routing_key, raw_properties=b"\x20\0" + _sized(headers)))
                wire.call(1, make(Basic.Get, queue="deep", no_ack=True), "basic.get-ok")
            arguments = decode_table(_nested(letter, DEEP))
            for _ in range(2):
                wire.declare(1, f"deep-{letter}", exclusive=True, arguments=arguments)
            consume = make(Basic.Consume, queue=f"deep-{letter}", consumer_tag=letter, arguments=arguments)
            wire.call(1, consume, "basic.consume-ok")
        t.comment("headers that the broker changes: BCC is taken out, x-death put in")
        bcc = b"\x03BCCA" + _sized(b"S" + _sized(b"deep"))
        headers = bcc + _nested("F", DEEP_FOR_DEAD_LETTERS)
        wire.send(1, published(1, "nowhere", raw_properties=b"\x20\0" + _sized(headers)))
        wire.call(1, make(Basic.Get, queue="deep", no_ack=True), "basic.get-ok")


PROGRAMS: dict[str, Program] = {
    each.__name__: each
    for each in (
        what_it_says_about_itself,
        a_get_beside_a_consumer,
        counts_beside_a_consumer,
        what_leaves_by_itself_beside_a_consumer,
        a_connection_closes_whose_queues_go_with_it,
        a_queue_is_deleted_under_its_consumer,
        what_came_before_a_close_is_answered,
        nothing_follows_an_error_of_a_channel,
        a_commit_after_the_queue_was_deleted,
        access_is_granted,
        tables_nested_as_deep_as_a_frame_has_room_for,
    )
}


def run(name: str, port: int) -> str:
    """The transcript of a program, as it is committed."""
    program = PROGRAMS[name]
    transcript = Transcript(port)
    program(transcript)
    return "\n".join(transcript.lines) + "\n"


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _nested(letter: str, depth: int) -> bytes:
    """A header without a name that holds tables, or arrays, in each other."""
    data = b""
    name = b"\0" if letter == "F" else b""
    for _ in range(depth):
        data = name + letter.encode() + _sized(data)
    return data if letter == "F" else b"\0" + data
