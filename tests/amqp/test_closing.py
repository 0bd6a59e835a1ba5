"""After a received close only close-ok is sent: no delivery, confirm, return or cancel that was on its way.

In simulation, with queues that go with their consumers and messages under way everywhere; a seed decides who runs when.
"""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any

import pytest
from pamqp import body, header
from pamqp import frame as pamqp_frame
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue

from tests.amqp.connections import SimulatedNode
from warrenmq.amqp.channel.process import ChannelProcess
from warrenmq.amqp.connection.channels import Channels

CHANNELS = (1, 2, 3)


def publish(channel: int, queue: str, *, mandatory: bool = False) -> bytes:
    parts: list[Any] = [
        Basic.Publish(routing_key=queue, mandatory=mandatory),
        header.ContentHeader(0, 1),
        body.ContentBody(b"x"),
    ]
    return b"".join(pamqp_frame.marshal(each, channel) for each in parts)


def busy(node: SimulatedNode, chance: random.Random) -> Any:
    """A client whose channels consume from all queues, and publish to them; nothing is waited for after that."""
    client = node.opened()
    for channel in CHANNELS:
        client.channel(channel)
        client.method(
            Queue.Declare(queue=f"q{channel}", exclusive=chance.random() < 0.5, auto_delete=True), channel
        )
        client.next(Queue.DeclareOk)
        client.call(Confirm.Select(), Confirm.SelectOk, channel)
    for channel in CHANNELS:
        for _ in range(2):
            client.method(
                Basic.Consume(queue=f"q{chance.choice(CHANNELS)}", no_ack=chance.random() < 0.3), channel
            )
            client.next(Basic.ConsumeOk)
    for _ in range(chance.randrange(8)):
        number = chance.choice(CHANNELS)
        client.send(b"".join(publish(number, f"q{chance.choice((*CHANNELS, 9))}", mandatory=True)
                             for _ in range(chance.randrange(1, 90))))  # fmt: skip
    # in the middle of the publishes, or when the last is being answered
    wanted = chance.choice((0, client.sent))
    node.host.wait_until(lambda: client.transport.handled_bytes >= wanted)
    return client


def after(client: Any, seen: int) -> list[tuple[int, str]]:
    """All that was written behind the first `seen` pieces."""
    client.node.host.sleep(2.0)
    rest = b"".join(client.transport.pieces[seen:])
    found = []
    while rest:
        size, number, method = pamqp_frame.unmarshal(rest)
        rest = rest[size:]
        found.append((number, getattr(method, "name", "content")))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_connection_that_closes_hears_of_nothing_but_its_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SimulatedNode(seed)) as node:
        seen: list[int] = []

        def close_all(channels: Channels) -> None:
            seen.append(len(client.transport.pieces))
            original(channels)

        original = Channels.close_all
        monkeypatch.setattr(Channels, "close_all", close_all)
        client = busy(node, random.Random(seed))
        # what was sent before is answered
        node.host.wait_until(lambda: client.transport.handled_bytes >= client.sent)
        client.method(Connection.Close(200, "bye", 0, 0))
        node.host.wait_until(lambda: bool(seen))
        assert after(client, seen[0]) == [(0, "Connection.CloseOk")]


@pytest.mark.parametrize("seed", range(10))
def test_a_channel_that_closes_hears_of_nothing_but_its_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SimulatedNode(seed)) as node:
        seen: list[int] = []

        def close(channel: ChannelProcess) -> None:
            channel._answer_publishers()
            channel._writer.flush()
            seen.append(len(client.transport.pieces))
            original(channel)

        original = ChannelProcess._close
        monkeypatch.setattr(ChannelProcess, "_close", close)
        client = busy(node, random.Random(seed))
        client.method(Channel.Close(200, "bye", 0, 0), 1)
        node.host.wait_until(lambda: bool(seen))
        assert [name for number, name in after(client, seen[0]) if number == 1] == ["Channel.CloseOk"]
