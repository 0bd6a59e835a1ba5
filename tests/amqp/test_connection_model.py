"""Connections with several channels each against a plain account of AMQP, in simulation.

Clients publish, get, consume, settle, select transactions, close channels and connections with much on its way, reuse their numbers, or
vanish; queues and channels crash, memory gets short, and credit is scarce.  Actors run in the order that a seed decides.  Throughout:

- every method that has an answer is answered, and the server closes nothing but a channel that crashed
- each publish in confirm mode is answered while its channel is open
- nothing is delivered to two that hold it, nor after it was settled
- in the end what was confirmed and not settled is there, once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from pamqp import body, frame, header
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue, Tx

from tests.amqp.connections import SimulatedNode
from tests.support.simulated import EVERY_KIND
from warrenmq.amqp.statistics import Describe

QUEUES = ("durable", "transient")
CHANNELS = (1, 2, 3)


@dataclass
class Account:
    """The model's state of one channel.

    mode       confirm, tx or plain
    published  what was published, by its number from 1 on
    answered   the numbers of those that were confirmed or nacked
    held       delivery tag -> body
    settled    what was acked, perhaps not handled yet
    consumers  consumer tag -> no_ack
    getting    no_ack of each get that has no answer yet
    replies    answers that nobody has looked at
    content    the parts so far of a message that comes
    closing    channel.close was sent: what comes from now on is not looked at
    """

    number: int
    mode: str
    published: dict[int, bytes] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)
    held: dict[int, bytes] = field(default_factory=dict)
    settled: list[bytes] = field(default_factory=list)
    consumers: dict[str, bool] = field(default_factory=dict)
    getting: list[bool] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)
    content: list[Any] = field(default_factory=list)
    closing: bool = False


class Peer:
    """One connection and its channels; a channel that is not open has no account."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = world.node.opened()
        self.channels: dict[int, Account] = {}

    def open(self, number: int, mode: str) -> Account:
        account = self.channels[number] = Account(number, mode)
        self.call(account, Channel.Open(), Channel.OpenOk)
        if mode == "confirm":
            self.call(account, Confirm.Select(), Confirm.SelectOk)
        elif mode == "tx":
            self.call(account, Tx.Select(), Tx.SelectOk)
        return account

    def call(self, account: Account, method: Any, *answers: type) -> Any:
        """Send a method and wait for its answer; None if the channel crashed meanwhile."""
        self.client.method(method, account.number)
        self.world.wait(lambda: bool(account.replies) or not self.has(account), f"an answer to {method.name}")
        if not account.replies:
            return None
        reply = account.replies.pop(0)
        assert isinstance(reply, answers), reply
        self.world.settled.update(account.settled)  # acks that were sent before have been handled
        account.settled.clear()
        return reply

    def has(self, account: Account) -> bool:
        return self.channels.get(account.number) is account

    def publish(self, account: Account, queue: str, count: int, size: int, *, persistent: bool) -> None:
        data = b""
        for _ in range(count):
            content = self.world.new_body(queue, size, persistent=persistent)
            account.published[len(account.published) + 1] = content
            properties = Basic.Properties(delivery_mode=2 if persistent else 1)
            data += frame.marshal(Basic.Publish(routing_key=queue), account.number)
            data += frame.marshal(header.ContentHeader(0, len(content), properties), account.number)
            data += frame.marshal(body.ContentBody(content), account.number)
        cut = self.world.rng.randrange(1, len(data))
        self.client.send(data[:cut])
        self.client.send(data[cut:])

    def gone(self, account: Account) -> None:
        """The channel is no more."""
        del self.channels[account.number]
        self.world.back(account)

    def pump(self) -> None:
        """Take in what was written."""
        got = [*self.client.received()]
        self.client.received().clear()
        for number, each in got:
            assert not isinstance(each, Connection.Close), each.reply_text
            if (account := self.channels.get(number)) is not None:
                self._take(account, each)

    def _take(self, account: Account, each: Any) -> None:
        if isinstance(each, Channel.Close):
            assert self.world.crashes, each.reply_text
            self.client.method(Channel.CloseOk(), account.number)
            self.gone(account)
        elif isinstance(each, Channel.CloseOk):
            if account.closing:  # else it answers a close that crossed the server's
                account.replies.append(each)
        elif account.closing:
            pass
        elif account.content or isinstance(each, Basic.Deliver | Basic.GetOk):
            account.content.append(each)
            self._complete(account)
        elif isinstance(each, Basic.Ack | Basic.Nack):
            numbers = (
                {n for n in account.published if n <= each.delivery_tag}
                if each.multiple
                else {each.delivery_tag}
            )
            numbers -= account.answered
            assert numbers, "answered twice"
            account.answered |= numbers
            if isinstance(each, Basic.Ack):
                self.world.confirmed.update(map(account.published.__getitem__, numbers))
        elif isinstance(each, Basic.Cancel):
            account.consumers.pop(each.consumer_tag, None)
        else:
            account.replies.append(each)

    def _complete(self, account: Account) -> None:
        """Take a message once all of it has come."""
        method, *rest = account.content
        if not rest or sum(len(each.value) for each in rest[1:]) < rest[0].body_size:
            return
        account.content = []
        data = b"".join(each.value for each in rest[1:])
        self.world.delivered(data)
        if isinstance(method, Basic.GetOk):
            account.replies.append(method)
            no_ack = account.getting.pop(0)
        else:
            no_ack = account.consumers[method.consumer_tag]
        if no_ack:
            self.world.settled.add(data)
        else:
            account.held[method.delivery_tag] = data
            self.world.holders[data] = account


class World:
    """A node, its peers, and the account of all messages; the methods that begin with `step_` are what may happen.

    bodies     all that was published -> its queue, and whether that keeps it when it crashes
    confirmed  what was confirmed or committed
    settled    what was acked, or sent to one that asked for no acks
    holders    who holds a message
    lost       what may be gone without a broken promise
    crashes    of queues and channels so far
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        limits = replace(
            rng.choice(EVERY_KIND),
            credit_flow_default_credit=rng.choice([(2, 1), (7, 3), (400, 200)]),
            queue_sleep_after=rng.choice([0, 50, 60_000]),
        )
        self.node = SimulatedNode(seed, limits=limits)
        self.bodies: dict[bytes, tuple[str, bool]] = {}
        self.confirmed: set[bytes] = set()
        self.settled: set[bytes] = set()
        self.holders: dict[bytes, Account] = {}
        self.lost: set[bytes] = set()
        self.crashes = self.tags = 0
        self.peers: list[Peer] = []
        peer = self.new_peer()
        account = peer.open(1, "confirm")
        for name in QUEUES:
            self.declare(peer, account, name)

    # -- the account

    def new_body(self, queue: str, size: int, *, persistent: bool) -> bytes:
        data = b"%d-" % len(self.bodies) + b"." * size
        self.bodies[data] = queue, persistent and queue == "durable"
        return data

    def delivered(self, data: bytes) -> None:
        assert data in self.bodies, data[:20]
        if self.crashes:  # what a queue sent before it died may come after what its successor sends
            return
        assert data not in self.holders, (data[:20], "somebody holds it")
        assert data not in self.settled, (data[:20], "it was settled")

    def back(self, account: Account) -> None:
        """A channel ends: what it held goes back."""
        for data in account.held.values():
            self.holders.pop(data, None)
        self.lost.update(account.settled)  # whether these acks were handled is not known
        if any(account.consumers.values()) or any(account.getting):
            self.lost.update(self.bodies)  # what was on its way to it without acks

    def of_queue(self, name: str) -> list[bytes]:
        return [data for data, (queue, _) in self.bodies.items() if queue == name]

    # -- peers

    def new_peer(self) -> Peer:
        peer = Peer(self)
        self.peers.append(peer)
        return peer

    def pump(self) -> None:
        for peer in self.peers:
            peer.pump()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            self.pump()
            return condition()

        try:
            self.node.host.wait_until(holds)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error

    def peer(self) -> Peer:
        return self.rng.choice(self.peers)

    def channel(self) -> tuple[Peer, Account]:
        peer = self.peer()
        number = self.rng.choice(CHANNELS)
        account = peer.channels.get(number)
        if account is None:
            account = peer.open(number, self.rng.choice(["confirm", "confirm", "tx", "plain"]))
        return peer, account

    # -- steps

    def step_publish(self) -> None:
        peer, account = self.channel()
        count, size = self.rng.choice([1, 1, 3, 9, 40]), self.rng.choice([0, 50, 150, 2000])
        peer.publish(account, self.rng.choice(QUEUES), count, size, persistent=self.rng.random() < 0.7)

    def step_publish_and_close(self) -> None:
        peer, account = self.channel()
        peer.publish(account, self.rng.choice(QUEUES), self.rng.choice([1, 4, 30]), 60, persistent=True)
        self.close(peer, account)

    def close(self, peer: Peer, account: Account) -> None:
        account.closing = True
        self.back(account)  # another may be sent it before this one has its answer
        if peer.call(account, Channel.Close(200, "", 0, 0), Channel.CloseOk) is not None:
            del peer.channels[account.number]

    def step_close(self) -> None:
        self.close(*self.channel())

    def step_get(self) -> None:
        peer, account = self.channel()
        no_ack = self.rng.random() < 0.2
        account.getting.append(no_ack)
        reply = peer.call(
            account, Basic.Get(queue=self.rng.choice(QUEUES), no_ack=no_ack), Basic.GetOk, Basic.GetEmpty
        )
        if isinstance(reply, Basic.GetEmpty):
            account.getting.pop()

    def step_consume(self) -> None:
        peer, account = self.channel()
        if peer.call(account, Basic.Qos(prefetch_count=self.rng.choice([0, 1, 3, 20])), Basic.QosOk) is None:
            return
        self.tags += 1
        tag = f"c{self.tags}"
        account.consumers[tag] = self.rng.random() < 0.15
        peer.call(
            account,
            Basic.Consume(queue=self.rng.choice(QUEUES), consumer_tag=tag, no_ack=account.consumers[tag]),
            Basic.ConsumeOk,
        )

    def step_cancel(self) -> None:
        peer, account = self.channel()
        if account.consumers:
            tag = self.rng.choice(list(account.consumers))
            peer.call(account, Basic.Cancel(consumer_tag=tag), Basic.CancelOk)

    def step_settle(self) -> None:
        peer, account = self.channel()
        if not account.held or account.mode == "tx":
            return
        tag = self.rng.choice(list(account.held))
        multiple = self.rng.random() < 0.4
        tags = [each for each in account.held if each == tag or (multiple and each < tag)]
        bodies = [account.held.pop(each) for each in tags]
        for data in bodies:
            self.holders.pop(data, None)
        if self.rng.random() < 0.2:
            peer.client.method(Basic.Nack(tag, multiple=multiple, requeue=True), account.number)
        else:
            account.settled += bodies
            peer.client.method(Basic.Ack(tag, multiple=multiple), account.number)

    def step_commit(self) -> None:
        peer, account = self.channel()
        if account.mode != "tx":
            return
        commits = self.rng.random() < 0.7
        method, answer = (Tx.Commit(), Tx.CommitOk) if commits else (Tx.Rollback(), Tx.RollbackOk)
        numbers = account.published.keys() - account.answered
        if peer.call(account, method, answer) is not None and commits:
            self.confirmed.update(map(account.published.__getitem__, numbers))
        account.answered |= numbers

    def step_hang_up(self) -> None:
        peer = self.peer()
        self.peers.remove(peer)
        for account in list(peer.channels.values()):
            peer.gone(account)
        if self.rng.random() < 0.5:
            peer.client.method(Connection.Close(200, "", 0, 0))
            self.wait(
                lambda: any(isinstance(each, Connection.CloseOk) for _, each in peer.client.received()),
                "close-ok",
            )
        else:
            peer.client.disconnect()
            self.wait(lambda: not peer.client.ref.is_alive(), "the connection's end")
        self.new_peer()

    def step_sleep(self) -> None:
        self.node.host.sleep(self.rng.choice([0.01, 0.2, 3.0]))

    def step_alarm(self) -> None:
        memory = self.node.host.memory
        memory.used_bytes = 1 << 34
        self.node.host.sleep(12)
        for _ in range(3):
            peer = self.peer()
            if peer.channels:
                account = self.rng.choice(list(peer.channels.values()))
                peer.publish(account, self.rng.choice(QUEUES), 3, 20, persistent=True)
        self.node.host.sleep(1)
        memory.used_bytes = 0
        self.node.host.sleep(12)

    def step_queue_dies(self) -> None:
        self.crashes += 1
        name = self.rng.choice(QUEUES)
        self.node.sim.kill(self.node.broker.inside.client.calls.address(name))
        for data in self.of_queue(name):
            self.holders.pop(data, None)
            if not self.bodies[data][1]:
                self.lost.add(data)
        self.node.host.sleep(self.rng.choice([0.0, 1.0]))

    def step_channel_dies(self) -> None:
        refs = self.node.sim.call(self.peer().client.ref, Describe()).channels
        if refs:
            self.crashes += 1
            self.node.sim.kill(self.rng.choice(refs))

    def step_delete(self) -> None:
        name = self.rng.choice(QUEUES)
        peer, account = self.channel()
        if peer.call(account, Queue.Delete(queue=name), Queue.DeleteOk) is None:
            peer, account = self.channel()
        self.declare(peer, account, name)
        for data in self.of_queue(name):
            self.lost.add(data)
            self.holders.pop(data, None)

    def declare(self, peer: Peer, account: Account, name: str) -> None:
        peer.call(account, Queue.Declare(queue=name, durable=name == "durable"), Queue.DeclareOk)

    def step_purge(self) -> None:
        peer, account = self.channel()
        name = self.rng.choice(QUEUES)
        peer.call(account, Queue.Purge(queue=name), Queue.PurgeOk)
        self.lost.update(self.of_queue(name))

    # -- the end

    def finish(self) -> None:
        for peer in self.peers:
            for account in list(peer.channels.values()):
                if account.mode == "confirm":
                    self.wait(
                        lambda p=peer, a=account: len(a.answered) == len(a.published) or not p.has(a),
                        "answers to all publishes",
                    )
                if peer.has(account):
                    self.close(peer, account)
        reader = self.new_peer()
        account = reader.open(1, "plain")
        for name in QUEUES:
            found = True
            while found:
                account.getting.append(False)
                found = isinstance(
                    reader.call(account, Basic.Get(queue=name), Basic.GetOk, Basic.GetEmpty), Basic.GetOk
                )
            account.getting.clear()
        left = Counter(account.held.values())
        assert set(left.values()) <= {1}
        assert not self.confirmed - self.settled - self.lost - left.keys()
        assert self.crashes or not left.keys() & self.settled
        self.node.close()


STEPS = [name for name in dir(World) if name.startswith("step_")]
OFTEN = {"step_publish": 3, "step_settle": 3, "step_consume": 2}


def run(seed: int, steps: int = 40) -> None:
    world = World(seed)
    often = [OFTEN.get(name, 1) for name in STEPS]
    for name in world.rng.choices(STEPS, often, k=steps):
        getattr(world, name)()
        if world.rng.random() < 0.5:
            world.pump()
    world.finish()


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_connections_and_their_channels_keep_the_account(first: int) -> None:
    for seed in range(first, first + 10):
        run(seed)
