"""Several channels of two connections against a plain account of AMQP, in simulation.

Channels publish, consume, get, ack, reject, recover, are closed, or die, at any moment; actors run in the order that a seed
decides.  Of everything that a channel sends, in the order in which it is written:

- delivery tags count from 1, one a delivery; a consumer that was cancelled gets nothing
- nobody else holds what is delivered, it was not acked, and it is marked redelivered if anybody was sent it before
- no consumer holds more than its prefetch count
- each publish is answered once, and what comes back is returned before that

In the end what was published and is not settled is there, in each publisher's order, and the trace replays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pamqp.commands import Basic, Confirm, Queue
from pamqp.commands import Channel as ChannelClass

from tests.amqp.channels import Channel, Client, Message
from tests.support.simulated import EVERY_KIND, SimulatedHost
from warrenmq.amqp.channel.process import ChannelProcess
from warrenmq.settings import Settings

QUEUES = ("q", "r")


@dataclass
class Account:
    """The model's state of one channel."""

    channel: Channel
    delivered: int = 0
    consumers: dict[str, tuple[bool, int, bool]] = field(default_factory=dict)
    """Consumer tag -> no_ack, prefetch, whether it is cancelled."""
    cancelling: set[str] = field(default_factory=set)
    prefetch: int = 0
    held: dict[int, tuple[bytes, str]] = field(default_factory=dict)
    """Delivery tag -> body, consumer tag."""
    gets: list[bool] = field(default_factory=list)
    """no_ack of those that have no answer yet."""
    answers: dict[int, str] = field(default_factory=dict)
    published: int = 0
    to_return: dict[bytes, int] = field(default_factory=dict)
    """Body -> sequence number."""
    lossy: bool = False
    """Messages on their way to a consumer without acks would be lost with the channel."""
    recovering: bool = False
    """Deliveries that come before basic.recover-ok are requeued."""
    open: bool = True


class World:
    """Each public method is a step; it takes two numbers that say to whom, and how."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.host = SimulatedHost(seed, settings)
        self.broker = self.host.open()
        first = Client(self.broker)
        second = Client(self.broker)
        # One wire for both, so that what is written has one order.
        second.context = replace(second.context, transport=first.transport, name="another")
        self.clients = (first, second)
        self.accounts: list[Account] = []
        self.bodies: dict[bytes, str] = {}
        """Body that was published -> its queue."""
        self.gone: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.consumer_tags = 0
        for _ in range(4):
            self.open(0, 0)
        for name in QUEUES:
            self.accounts[0].channel.declare(name, durable=True)

    # -- what a client does

    def open(self, a: int, b: int) -> None:
        number = len(self.accounts) + 1
        client = self.clients[(a + number) % 2]
        wire = self.clients[0]
        wire.refs[number] = wire.runtime.start(ChannelProcess, number, client.connection, client.context)
        account = Account(Channel(wire, number))
        self.accounts.append(account)
        account.channel.send(ChannelClass.Open(), Confirm.Select())

    def _one(self, a: int) -> Account | None:
        living = [account for account in self.accounts if account.open]
        return living[a % len(living)] if living else None

    def publish(self, a: int, b: int) -> None:
        if (account := self._one(a)) is None:
            return
        data = b""
        queue = (*QUEUES, "nowhere")[b % 3]
        mandatory = b % 2 == 0
        for _ in range(1 + b % 5):
            account.published += 1
            body = b"%d-%d" % (account.channel.number, account.published) + b"." * (b % 4 * 40)
            if queue in QUEUES:
                self.bodies[body] = queue
            elif mandatory:
                account.to_return[body] = account.published
            data += account.channel.published(queue, body, mandatory=mandatory, delivery_mode=1 + b % 2)
        account.channel.client.send(account.channel.number, data)

    def consume(self, a: int, b: int) -> None:
        if (account := self._one(a)) is None:
            return
        self.consumer_tags += 1
        tag = f"c{self.consumer_tags}"
        no_ack = b % 5 == 0
        account.lossy |= no_ack
        account.consumers[tag] = (no_ack, account.prefetch, False)
        account.channel.send(Basic.Consume(queue=QUEUES[b % 2], consumer_tag=tag, no_ack=no_ack))

    def qos(self, a: int, b: int) -> None:
        if (account := self._one(a)) is not None:
            account.prefetch = b % 4
            account.channel.send(Basic.Qos(prefetch_count=account.prefetch))

    def cancel(self, a: int, b: int) -> None:
        account = self._one(a)
        if account is not None and account.consumers:
            self._cancel(account, list(account.consumers)[b % len(account.consumers)])

    def _cancel(self, account: Account, tag: str) -> None:
        if tag not in account.cancelling:  # a second one would be answered before the first
            account.cancelling.add(tag)
            account.channel.send(Basic.Cancel(consumer_tag=tag))

    def get(self, a: int, b: int) -> None:
        if (account := self._one(a)) is not None:
            account.gets.append(b % 3 == 0)
            account.channel.send(Basic.Get(queue=QUEUES[b % 2], no_ack=b % 3 == 0))

    def settle(self, a: int, b: int) -> None:
        account = self._one(a)
        if account is None or not account.held or account.recovering:
            return
        tag = list(account.held)[b % len(account.held)]
        multiple = b % 4 == 0
        tags = [each for each in account.held if each == tag or (multiple and each < tag)]
        how = b % 7
        methods: list[Any] = [
            Basic.Nack(tag, multiple=multiple, requeue=True)
            if how == 1
            else Basic.Ack(tag, multiple=multiple)
        ]
        if how == 2 and not multiple:
            methods = [Basic.Reject(tag, requeue=False)]
        if how in (4, 5) and not multiple:  # many acks in one go
            tags = list(account.held)[: 1 + b % 6]
            methods = [Basic.Ack(each) for each in reversed(tags)]
        account.channel.send(*methods)
        for each in tags:
            body, _ = account.held.pop(each)
            if how != 1:
                self.gone.add(body)

    def recover(self, a: int, b: int) -> None:
        account = self._one(a)
        if account is not None and not account.recovering and b % 3 == 0:
            account.channel.send(Basic.Recover(requeue=True))
            account.recovering = True
            account.held.clear()

    def close(self, a: int, b: int) -> None:
        account = self._one(a)
        if account is None or account.lossy or account.gets:
            return
        if b % 3 == 0:
            self.quiet(0, 0)
            self.broker.runtime.kill(account.channel.ref)
        else:
            self._close(account)
        account.open = False
        account.held.clear()
        self.open(a, b)

    def _close(self, account: Account) -> None:
        account.channel.send(ChannelClass.Close(200, "", 0, 0))
        account.open = False  # what it holds may be somebody else's from now on
        account.held.clear()

    def quiet(self, _a: int, _b: int) -> None:
        self.host.sleep(1.0)
        self.look()

    # -- what the server does

    def look(self) -> None:
        """Take in what was written."""
        wire = self.clients[0]
        wire.received(0)
        arrivals, wire.arrivals = wire.arrivals, []
        for number, found in arrivals:
            self.take(self.accounts[number - 1], found)

    def take(self, account: Account, found: Any) -> None:
        match found:
            case Message(method=Basic.Deliver() as method):
                no_ack, prefetch, cancelled = account.consumers[method.consumer_tag]
                assert not cancelled
                self.given(account, method, found.body, no_ack=no_ack, consumer_tag=method.consumer_tag)
                mine = [tag for _, tag in account.held.values() if tag == method.consumer_tag]
                assert no_ack or not prefetch or len(mine) <= prefetch
            case Message(method=Basic.GetOk() as method):
                self.given(account, method, found.body, no_ack=account.gets.pop(0), consumer_tag="")
            case Message(method=Basic.Return()):
                seqno = account.to_return.pop(found.body)
                assert seqno not in account.answers
            case Basic.RecoverOk():
                account.recovering = False
            case Basic.GetEmpty():
                account.gets.pop(0)
            case Basic.Ack() | Basic.Nack():
                for seqno in range(1 if found.multiple else found.delivery_tag, found.delivery_tag + 1):
                    if found.multiple and seqno in account.answers:
                        continue
                    assert seqno not in account.answers
                    assert seqno not in account.to_return.values(), "it was to be returned first"
                    assert seqno <= account.published
                    account.answers[seqno] = found.name
            case Basic.CancelOk():
                no_ack, prefetch, _ = account.consumers[found.consumer_tag]
                account.consumers[found.consumer_tag] = (no_ack, prefetch, True)
            case ChannelClass.Close():
                raise AssertionError(found.reply_text)

    def given(self, account: Account, method: Any, body: bytes, *, no_ack: bool, consumer_tag: str) -> None:
        account.delivered += 1
        assert method.delivery_tag == account.delivered
        assert body in self.bodies
        assert body not in self.gone
        assert all(body != held for each in self.accounts for held, _ in each.held.values())
        assert method.redelivered or body not in self.seen
        self.seen.add(body)
        if no_ack:
            self.gone.add(body)
        elif account.open and not account.recovering:
            account.held[method.delivery_tag] = (body, consumer_tag)

    def end(self) -> None:
        for account in self.accounts:
            for tag, (no_ack, _, _) in account.consumers.items():
                if account.open and no_ack:
                    self._cancel(account, tag)
        self.quiet(0, 0)
        for account in self.accounts:
            if account.open:
                assert sorted(account.answers) == list(range(1, account.published + 1))
                assert not account.to_return
                self._close(account)
        self.quiet(0, 0)
        last = Client(self.broker).open(99)
        for queue in QUEUES:
            left = [body for body, where in self.bodies.items() if where == queue and body not in self.gone]
            assert last.call(Queue.Declare(queue=queue, passive=True), Queue.DeclareOk).message_count == len(
                left
            )
            there = last.bodies(queue)
            assert sorted(there) == sorted(left)
            for number in range(1, len(self.accounts) + 1):
                own = b"%d-" % number
                assert [b for b in there if b.startswith(own)] == [b for b in left if b.startswith(own)]
        self.broker.close()
        self.host.check_trace()


STEPS = (
    "publish", "publish", "consume", "qos", "cancel", "get", "settle", "settle", "settle", "recover", "close",
    "quiet",
)  # fmt: skip


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 1 << 16),
    settings=st.sampled_from(EVERY_KIND),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11), st.integers(0, 59)), max_size=40),
)
def test_channels_keep_the_account(seed: int, settings: Settings, steps: list[tuple[str, int, int]]) -> None:
    world = World(seed, settings)
    try:
        for step, a, b in steps:
            getattr(world, step)(a, b)
            world.look()
        world.end()
    finally:
        world.host.close()
