"""A client over AMQP in a simulated run: one connection with one channel, served by the broker's connection
and channel processes.

Bytes that a client would send go to a ConnectionProcess, in pieces as a network may cut them; what it writes
is decoded by pamqp.  The channel is in confirm mode.  No thread reads for the client: it looks at what has
come whenever it is asked for something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from queue import Empty
from random import Random
from typing import Any

from pamqp import body, frame, header
from pamqp.commands import Basic, Channel, Connection, Queue, Tx
from pamqp.commands import Confirm as ConfirmClass

from warrenmq.amqp.access.users import Users
from warrenmq.amqp.amqp_sup import ChannelSup
from warrenmq.amqp.connection.messages import Disconnected, Received
from warrenmq.amqp.connection.process import ConnectionProcess
from warrenmq.amqp.net.transport import Peer
from warrenmq.amqp.node import Node, ServedVhost
from warrenmq.broker.broker import Broker
from warrenmq.errors import Error, Nacked
from warrenmq.message.properties import Properties
from warrenmq.runtime import Channel as Mail

PATIENCE = 60.0
"""Seconds of virtual time in which a method must be answered."""
_HEADER = b"AMQP\0\0\x09\x01"
_FRAME_MAX = 4096
_NUMBER = 1
"""The channel's number."""
_OTHER = 2
"""The number of a second channel, for transactions."""
_CUT = 0.3
"""The probability that what is sent arrives in two pieces."""


class ConnectionLost(Error):
    """Raised for a publish whose connection or channel ended before an answer came: it may have been taken or not."""


class ClosedByServer(Exception):
    """Raised when the server closes the channel or the connection, which has to have a reason."""


class _Socket:
    """A Transport whose other end is the client's mailbox."""

    def __init__(self, mail: Mail) -> None:
        self.peer = Peer("127.0.0.1", 50_000, "127.0.0.1", 5672, loopback=True)
        self.written = 0
        self.mail = mail
        self.is_closed = False

    def write(self, data: bytes) -> None:
        if not self.is_closed:
            self.written += len(data)
            self.mail.put(data)

    def writable(self) -> bool:
        return True

    def overfull(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Do nothing: what was sent waits in the process."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def handled(self, size: int) -> None:
        """Do nothing: there is always room."""

    def close(self) -> None:
        self.is_closed = True
        self.mail.put(b"")

    abort = close


class AmqpConfirm:
    """The confirms of the messages that were published together: like Confirm, settled when the last one is."""

    def __init__(self, client: AmqpClient, numbers: Iterable[int]) -> None:
        self._client = client
        self._open = set(numbers)
        self._error: Error | None = None

    def settled(self, numbers: Iterable[int], error: Error | None) -> None:
        """The server has answered these, or will answer none any more."""
        for number in numbers:
            if number in self._open:
                self._open.remove(number)
                self._error = self._error or error

    @property
    def is_settled(self) -> bool:
        """True if every answer was read."""
        return not self._open

    def done(self) -> bool:
        if self._open:
            self._client.look()
        return not self._open

    def exception(self) -> Error | None:
        return self._error

    def result(self, timeout: float) -> None:
        """Wait for the answers; raises Nacked, ConnectionLost or TimeoutError."""
        self._client.wait(self.done, timeout)
        if self._error is not None:
            raise self._error


@dataclass(slots=True)
class AmqpDelivery:
    """A message that the channel holds until it is settled."""

    client: AmqpClient
    tag: int
    body: bytes
    redelivered: bool
    exchange: str
    routing_key: str
    properties: Basic.Properties
    consumer: str = ""

    def ack(self, *, multiple: bool = False) -> None:
        self.client.send(Basic.Ack(self.tag, multiple))

    def nack(self, *, requeue: bool = True, multiple: bool = False) -> None:
        self.client.send(Basic.Nack(self.tag, multiple, requeue))
        self.client.synchronise()

    def reject(self, *, requeue: bool) -> None:
        self.client.send(Basic.Reject(self.tag, requeue))
        self.client.synchronise()


class AmqpClient:
    """An open connection with an open channel."""

    def __init__(self, broker: Broker, publisher: int, rng: Random) -> None:
        """`publisher` is its number in the model: messages of one channel come in their order."""
        self.publisher = publisher
        self.answered = 0
        """Methods that were answered: what was sent before the last of them is handled by now."""
        self._sim = sim = broker.runtime
        self._rng = rng
        self._socket = _Socket(sim.channel())
        self._replies: deque[Any] = deque()
        self._deliveries: deque[AmqpDelivery] = deque()
        self._rest = b""
        """Bytes of a frame of which not all has come."""
        self._content: list[Any] = []
        """A method with content, of which not all has come: the method, the header, the bodies."""
        self._next = 0
        """The number of the channel's last publish."""
        self._confirms: list[AmqpConfirm] = []
        self._unanswered: set[int] = set()
        """Numbers of publishes without an answer."""
        self._ended: ClosedByServer | None = None
        channels = sim.start(ChannelSup)
        self._channels = channels
        node = Node(_users(), broker.settings, {broker.inside.vhost.name: ServedVhost(broker, channels)})
        self._process = sim.start(ConnectionProcess, self._socket, node)
        self._bytes(_HEADER)
        self._reply(Connection.Start)
        self.send(Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
        self._reply(Connection.Tune)
        self.send(Connection.TuneOk(2047, _FRAME_MAX, 0), 0)
        self.call(Connection.Open(broker.inside.vhost.name), Connection.OpenOk, 0)
        self._begin()

    def _begin(self) -> None:
        self._next = 0
        self.call(Channel.Open(), Channel.OpenOk)
        self.call(ConfirmClass.Select(), ConfirmClass.SelectOk)

    # -- what a client does

    def publish(self, exchange: str, key: str, bodies: list[bytes], *, persistent: bool, properties: Properties | None) -> AmqpConfirm:  # fmt: skip
        """Publish messages, which the server reads together."""
        given = Basic.Properties(
            delivery_mode=2 if persistent else 1,
            priority=None if properties is None else properties.priority,
            headers=None if properties is None else properties.headers,
        )
        numbers = range(self._next + 1, self._next + 1 + len(bodies))
        self._next = numbers[-1]
        self._unanswered.update(numbers)
        confirm = AmqpConfirm(self, numbers)
        self._confirms.append(confirm)
        self._contents(exchange, key, bodies, given, _NUMBER)
        return confirm

    def _contents(
        self, exchange: str, key: str, bodies: list[bytes], given: Basic.Properties, channel: int
    ) -> None:
        size = _FRAME_MAX - 8
        parts: list[Any] = []
        for content in bodies:
            parts += [
                Basic.Publish(exchange=exchange, routing_key=key),
                header.ContentHeader(0, len(content), given),
            ]
            parts += [body.ContentBody(content[at : at + size]) for at in range(0, len(content), size)]
        self._bytes(b"".join(frame.marshal(each, channel) for each in parts))

    def begin_transaction(self) -> None:
        """Open a second channel, and tx.select there."""
        self.call(Channel.Open(), Channel.OpenOk, _OTHER)
        self.call(Tx.Select(), Tx.SelectOk, _OTHER)

    def publish_in_transaction(self, exchange: str, key: str, bodies: list[bytes]) -> None:
        """Publish persistent messages on the second channel."""
        self._contents(exchange, key, bodies, Basic.Properties(delivery_mode=2), _OTHER)

    def get_in_transaction(self, queue: str) -> AmqpDelivery | None:
        """Get a message on the second channel, and ack it; it is not to be settled in any other way."""
        if (delivery := self.get(queue, channel=_OTHER)) is not None:
            self.send(Basic.Ack(delivery.tag), _OTHER)
        return delivery

    def end_transaction(self, *, commit: bool) -> None:
        """Commit it or roll it back, and close the second channel, to which what is not acked then goes back."""
        if commit:
            self.call(Tx.Commit(), Tx.CommitOk, _OTHER)
        else:
            self.call(Tx.Rollback(), Tx.RollbackOk, _OTHER)
        self.call(Channel.Close(200, "", 0, 0), Channel.CloseOk, _OTHER)

    def recover(self) -> None:
        """basic.recover: all that the channel holds goes back."""
        self.call(Basic.Recover(requeue=True), Basic.RecoverOk)

    def declare(
        self, queue: str, *, durable: bool, arguments: dict[str, Any], exclusive: bool = False
    ) -> None:
        """queue.declare."""
        declare = Queue.Declare(queue=queue, durable=durable, exclusive=exclusive, arguments=arguments)
        self.call(declare, Queue.DeclareOk)

    def get(self, queue: str, *, no_ack: bool = False, channel: int = _NUMBER) -> AmqpDelivery | None:
        """basic.get."""
        reply = self.call(Basic.Get(queue=queue, no_ack=no_ack), (AmqpDelivery, Basic.GetEmpty), channel)
        return reply if isinstance(reply, AmqpDelivery) else None

    def subscribe(self, queue: str, prefetch: int, *, no_ack: bool = False) -> str:
        """basic.qos and basic.consume; returns the consumer's tag."""
        self.call(Basic.Qos(prefetch_count=prefetch), Basic.QosOk)
        return str(self.call(Basic.Consume(queue=queue, no_ack=no_ack), Basic.ConsumeOk).consumer_tag)

    def next(self, timeout: float = 0.0) -> AmqpDelivery | None:
        """The next delivery to a consumer; None if there is none within `timeout` seconds."""
        self.wait(lambda: bool(self._deliveries), timeout, raises=False)
        return self._deliveries.popleft() if self._deliveries else None

    def cancel(self, consumer: str) -> None:
        """basic.cancel; what was delivered before is still in `next`."""
        self.call(Basic.Cancel(consumer), Basic.CancelOk)

    def synchronise(self) -> None:
        """Return when the channel has done what was sent before."""
        self.call(Basic.Qos(prefetch_count=0), Basic.QosOk)

    def hang_up(self, how: str) -> None:
        """Close the channel and open another, close the connection, or cut it; only after the first the
        client is of use again.
        """
        if how == "channel":
            self.call(Channel.Close(200, "", 0, 0), Channel.CloseOk)
            self._forget()
            self._begin()
            return
        if how == "connection":
            self.call(Connection.Close(200, "", 0, 0), Connection.CloseOk, 0)
        self._sim.cast(self._process, Disconnected("end of file"))
        self.wait(lambda: not self._process.is_alive(), PATIENCE)
        self._sim.stop_actor(self._channels)
        self._forget()

    # -- what is sent

    def send(self, method: Any, channel: int = _NUMBER) -> None:
        """Send a method."""
        self._bytes(frame.marshal(method, channel))

    def _bytes(self, data: bytes) -> None:
        cut = self._rng.randrange(len(data)) if self._rng.random() < _CUT else 0
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._sim.cast(self._process, Received(piece))

    def call(self, method: Any, reply: Any, channel: int = _NUMBER) -> Any:
        """Send a method and wait for its answer."""
        self.send(method, channel)
        answer = self._reply(reply)
        self.answered += 1
        return answer

    # -- what is received

    def _reply(self, kind: Any) -> Any:
        self.wait(lambda: bool(self._replies), PATIENCE)
        reply = self._replies.popleft()
        if not isinstance(reply, kind):
            raise ClosedByServer(f"the server answered {reply!r}")
        return reply

    def wait(self, condition: Any, timeout: float, *, raises: bool = True) -> None:
        """Wait until a condition holds, which what comes may change; else TimeoutError, or with `raises` false nothing."""
        deadline = self._sim.monotonic_ns() + round(timeout * 1e9)
        self.look()
        while not condition():
            left = (deadline - self._sim.monotonic_ns()) / 1e9
            if left <= 0:
                if raises:
                    raise TimeoutError(f"no answer over AMQP within {timeout:g} s")
                return
            try:
                self._take(self._socket.mail.get(timeout=left))
            except Empty:
                continue

    def look(self) -> None:
        """Take what has come."""
        while not self._socket.mail.empty():
            self._take(self._socket.mail.get_nowait())
        if self._ended is not None:
            raise self._ended

    def _take(self, data: bytes) -> None:
        self._rest += data
        while self._rest:
            size, _, each = frame.unmarshal(self._rest)
            self._rest = self._rest[size:]
            self._frame(each)

    def _frame(self, each: Any) -> None:
        if self._content or isinstance(each, Basic.Deliver | Basic.GetOk):
            self._content.append(each)
            self._complete()
        elif isinstance(each, Basic.Ack | Basic.Nack):
            error = Nacked("nacked over AMQP") if isinstance(each, Basic.Nack) else None
            self._answer({n for n in self._unanswered if n <= each.delivery_tag} if each.multiple else {each.delivery_tag}, error)  # fmt: skip
        elif isinstance(each, Channel.Close | Connection.Close):
            self._ended = ClosedByServer(f"{each.name}: {each.reply_code} {each.reply_text}")
        elif not isinstance(each, Basic.Cancel):
            self._replies.append(each)

    def _complete(self) -> None:
        if (
            len(self._content) < 2
            or sum(len(each.value) for each in self._content[2:]) < self._content[1].body_size
        ):
            return
        (method, head, *bodies), self._content = self._content, []
        delivery = AmqpDelivery(
            self, method.delivery_tag, b"".join(each.value for each in bodies), method.redelivered,
            method.exchange, method.routing_key, head.properties,
        )  # fmt: skip
        if isinstance(method, Basic.Deliver):
            delivery.consumer = str(method.consumer_tag)
            self._deliveries.append(delivery)
        else:
            self._replies.append(delivery)

    def _answer(self, numbers: set[int], error: Error | None) -> None:
        if not numbers <= self._unanswered:
            raise ClosedByServer(
                f"the server confirmed {sorted(numbers - self._unanswered)}, which it had no reason to"
            )
        self._unanswered -= numbers
        for confirm in self._confirms:
            confirm.settled(numbers, error)
        self._confirms = [each for each in self._confirms if not each.is_settled]

    def _forget(self) -> None:
        """Nothing more is answered, or delivered, on this channel."""
        self._answer(set(self._unanswered), ConnectionLost("the channel ended before an answer came"))
        self._deliveries.clear()
        self._replies.clear()


@cache
def _users() -> Users:
    return Users.default()
