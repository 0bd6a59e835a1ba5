"""Real sockets on a free port: bad input, slow readers, many connections, TLS, and an end in good order."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

import pika
import pika.exceptions
import pytest
from pamqp import body, header
from pamqp import frame as pamqp_frame
from pamqp.commands import Basic, Confirm, Connection, Queue

import warrenmq
from tests.amqp.raw_client import RawClient
from tests.support.limits import LIMIT
from warrenmq.amqp import AmqpServer, serve
from warrenmq.amqp.access.permissions import AuthenticatedUser
from warrenmq.amqp.channel.context import ConnectionContext
from warrenmq.amqp.channel.credit import ChannelFlow
from warrenmq.amqp.channel.process import ChannelProcess
from warrenmq.amqp.connection import channels as connection_channels
from warrenmq.amqp.net import io
from warrenmq.amqp.wire.codec import decode_method
from warrenmq.amqp.wire.frames import BODY, HEADER, HEARTBEAT, METHOD
from warrenmq.broker.handles import QueueHandle
from warrenmq.errors import BrokerClosed, CallerError
from warrenmq.seams import real_disk


def eventually(condition: Callable[[], bool], seconds: float = LIMIT) -> bool:
    """Look until it is so."""
    never = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return True
        never.wait(0.01)
    return False


@pytest.fixture
def broker(tmp_path) -> Iterator[warrenmq.Broker]:
    with warrenmq.open(tmp_path / "data", settings={"durability": "os"}) as broker:
        yield broker


@pytest.fixture
def server(broker) -> Iterator[AmqpServer]:
    with serve(broker, port=0) as server:
        yield server


def connect(server: AmqpServer, **more) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port, **more))


def messages(queue: str, count: int, size: int, **properties: int) -> bytes:
    head = header.ContentHeader(0, size, Basic.Properties(**properties))
    one = [Basic.Publish(routing_key=queue), head, body.ContentBody(bytes(size))]
    return b"".join(pamqp_frame.marshal(each, 1) for each in one) * count


def fill(server: AmqpServer, broker: warrenmq.Broker, count: int, size: int) -> QueueHandle:
    queue = broker.declare_queue("q")
    with RawClient(server.port).open(1) as client:
        client.send(messages("q", count, size))
        assert eventually(lambda: queue.info().ready == count)
    return queue


def test_a_client_of_rabbitmq_is_at_home(server):
    connection = connect(server)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"hello" * 50_000)
    method, _, content = channel.basic_get("q", auto_ack=True)
    assert content == b"hello" * 50_000
    assert method.message_count == 0
    connection.update_secret("new", "because")
    connection.close()
    assert eventually(lambda: server.connections == 0)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"credentials": pika.PlainCredentials("guest", "no")}, pika.exceptions.ProbableAuthenticationError),
        ({"virtual_host": "nope"}, pika.exceptions.ProbableAccessDeniedError),
    ],
)
def test_a_refused_login_is_answered(server, more, error):
    with pytest.raises(error):
        connect(server, **more)
    assert eventually(lambda: server.connections == 0)


def test_a_connection_that_says_nothing_is_dropped(tmp_path):
    with (
        warrenmq.open(tmp_path, settings={"handshake_timeout": 300}) as broker,
        serve(broker, port=0) as server,
    ):
        with RawClient(server.port) as silent, RawClient(server.port) as half:
            half.send(b"AMQP\0\0\x09\x01")
            assert silent.at_end()
            assert half.at_end()
        assert eventually(lambda: server.connections == 0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\0\0\x09\x01" + b"\xff" * 5000,
        b"AMQP\0\0\x09\x01\1\0\0\xff\xff\xff\xff",
    ],
)
def test_garbage_closes_its_own_socket_and_no_other(server, garbage):
    with RawClient(server.port).open(1) as other, RawClient(server.port) as bad:
        bad.send(garbage)
        assert bad.at_end()
        other.method(Queue.Declare(queue="q"), 1)
        other.next(Queue.DeclareOk)


def test_an_oversized_frame_is_refused_before_it_comes(server):
    with RawClient(server.port).open(1) as client:
        client.send(struct.pack(">BHI", 3, 1, 1 << 31))
        assert client.next(Connection.Close).reply_code == 501


def test_a_slow_reader_gets_everything_and_costs_little(server, broker):
    queue = fill(server, broker, 3000, 10_000)
    with RawClient(server.port, receive_buffer=1 << 16).open(1) as slow:
        slow.method(Basic.Consume(queue="q", consumer_tag="c", no_ack=True), 1)
        assert eventually(lambda: queue.info().ready < 3000)
        before = queue.info().ready
        assert not eventually(lambda: queue.info().ready == 0, 0.5)
        assert before - queue.info().ready < 2000
        [transport] = server._io.open
        assert transport._waiting + transport._socket.get_write_buffer_size() < io.WRITE_HIGH + 400 * 11_000
        got = 0
        while got < 3000:
            frame = slow.frame()
            got += frame.type == 3
    assert queue.info().ready == 0


def test_a_client_that_stops_reading_is_no_longer_read_from(server, broker, monkeypatch):
    monkeypatch.setattr(io, "WRITE_LIMIT", 1 << 20)
    monkeypatch.setattr(io, "WRITE_HIGH", 1 << 19)
    monkeypatch.setattr(connection_channels, "FRAMES_PER_CAST", 16)
    queue = fill(server, broker, 400, 100_000)
    with RawClient(server.port, receive_buffer=1 << 16).open(1) as greedy:
        asking = threading.Thread(
            target=lambda: [greedy.method(Basic.Get(queue="q", no_ack=True), 1) for _ in range(400)]
        )
        asking.start()
        assert not eventually(lambda: queue.info().ready == 0, 0.5)
        got = 0
        while got < 400 * 100_000:
            frame = greedy.frame()
            got += len(frame.payload) * (frame.type == 3)
        asking.join()


def threads_of_connections() -> int:
    """The number of threads, without those of the pool: a worker stays for some seconds, to be used again."""
    return sum(thread.name != "actors" for thread in threading.enumerate())


def test_a_thousand_connections_come_and_go_and_leave_nothing(server):
    connect(server).close()  # makes the second thread of the loop
    threads = threads_of_connections()
    for number in range(1000):
        with socket.create_connection(("127.0.0.1", server.port)) as dropped:
            if number % 3 == 1:
                dropped.sendall(b"AMQP\0\0\x09\x01")
            if number % 3 == 2:
                dropped.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    assert eventually(lambda: server.connections == 0 and not server._io.open)
    assert eventually(lambda: threads_of_connections() <= threads)
    connect(server).close()


def test_a_connection_that_is_lost_gives_back_what_it_held(server, broker):
    queue = fill(server, broker, 10, 10)
    with RawClient(server.port).open(1) as client:
        client.method(Basic.Consume(queue="q", consumer_tag="c"), 1)
        assert eventually(lambda: queue.info().ready == 0)
    assert eventually(lambda: queue.info().ready == 10)


def test_a_server_that_ends_tells_its_clients(broker):
    server = serve(broker, port=0)
    connection = connect(server)
    with RawClient(server.port).open():  # and this one does not answer
        ending = threading.Thread(target=lambda: server.close(patience=0.3))
        ending.start()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as raised:
            connection.process_data_events(LIMIT)
        ending.join()
    assert raised.value.reply_code == 320
    assert (
        raised.value.reply_text
        == "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    )
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
    assert broker.is_open


def test_an_address_in_use_is_said_in_a_sentence(server, broker):
    other = broker.path + "-2"
    with (
        warrenmq.open(other) as second,
        pytest.raises(CallerError, match=r"cannot listen on 127.0.0.1:\d+: Address already"),
    ):
        serve(second, port=server.port)


def test_a_broker_that_is_closed_or_served_already_is_not_served(server, broker):
    with pytest.raises(CallerError, match=r"is served already; close that server"):
        serve(broker, port=0)
    with warrenmq.open(broker.path + "-2") as closed:
        pass
    with pytest.raises(warrenmq.BrokerClosed):
        serve(closed, port=0)


# -- TLS


def test_tls(broker, certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    with serve(broker, port=0, tls=context) as server:
        assert server.url == f"amqps://127.0.0.1:{server.port}"
        trusting = ssl.create_default_context(cafile=certificate[0])
        with RawClient(server.port, tls=trusting).open(1) as client:
            client.method(Queue.Declare(queue="q"), 1)
            client.next(Queue.DeclareOk)
        with RawClient(server.port) as plain:  # who speaks no TLS gets nothing
            plain.send(b"AMQP\0\0\x09\x01")
            assert plain.at_end()
        assert eventually(lambda: server.connections == 0)


def test_a_handshake_that_fails_is_one_line(broker, certificate, logs):
    """Of who speaks no TLS, of who does not trust this server, and of who asks whether the port is open."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    with serve(broker, port=0, tls=context) as server:
        logs.clear()
        with RawClient(server.port) as plain:
            plain.send(b"AMQP\0\0\x09\x01")
            assert plain.at_end()
        with socket.create_connection(("127.0.0.1", server.port)) as raw, pytest.raises(ssl.SSLError):
            ssl.create_default_context().wrap_socket(raw, server_hostname="localhost")
        socket.create_connection(("127.0.0.1", server.port)).close()
        assert eventually(lambda: len(logs) == 3)
        assert {each["event"] for each in logs} == {"the TLS handshake failed"}
        assert [(each["log_level"], each["reason"].partition(";")[0]) for each in logs] == [
            ("warning", "the client does not speak TLS"),
            ("warning", "the client does not trust the authority that signed this server's certificate"),
            ("info", "the client closed the socket"),
        ]


# -- the tree


def test_a_crashed_listener_restarts_without_harm_to_connections(server, broker):
    with RawClient(server.port).open(1) as client:
        for name in ("amqp_listener", "amqp_listener"):
            broker.runtime.kill(broker.runtime.whereis(name))
            assert eventually(lambda: broker.runtime.is_registered("amqp_listener"))
        client.method(Queue.Declare(queue="q"), 1)
        client.next(Queue.DeclareOk)
        connect(server).close()
    server.check_open()


def test_a_listener_that_cannot_be_restarted_is_reported(server, broker):
    broker.runtime.kill(broker.runtime.whereis("amqp_sup"))
    with pytest.raises(BrokerClosed, match="the AMQP listener is down"):
        server.check_open()
    with RawClient(server.port) as client:
        assert client.at_end()


def test_connections_that_published_and_consumed_leave_nothing(server, broker):
    queue = broker.declare_queue("q")
    held = (ChannelProcess, ConnectionContext, ChannelFlow, AuthenticatedUser)

    def come_and_go(count: int) -> int:
        for _ in range(count):
            with RawClient(server.port).open(1) as client:
                client.method(Basic.Consume(queue="q", consumer_tag="c"), 1)
                client.next(Basic.ConsumeOk)
                client.send(messages("q", 1, 10))
                assert client.next(Basic.Deliver).consumer_tag == "c"
        assert eventually(lambda: server.connections == 0)
        assert eventually(lambda: queue.info().unacked == 0)
        gc.collect()
        return sum(isinstance(each, held) for each in gc.get_objects())

    assert come_and_go(20) <= 8  # of the last one, in some thread's last message


def test_a_sync_that_hangs_holds_up_no_other_client(tmp_path, monkeypatch):
    """The socket loop runs channels and queues, on the pool, but not while they are in the disk; heartbeats go out as well."""
    hangs, gate = threading.Event(), threading.Event()
    sync = real_disk._datasync

    def hang(descriptor: int) -> None:
        if threading.current_thread().name == "amqp-io" and not hangs.is_set():
            hangs.set()
            gate.wait(LIMIT)
        sync(descriptor)

    settings = {"scheduler": "pool", "durability": "fsync"}
    with warrenmq.open(tmp_path / "data", settings=settings) as broker, serve(broker, port=0) as server:
        for name in ("slow", "q"):
            broker.declare_queue(name)
        with RawClient(server.port).open(1, heartbeat=1) as slow, RawClient(server.port).open(1) as other:
            slow.method(Confirm.Select(), 1)
            slow.next(Confirm.SelectOk)
            other.method(Basic.Consume(queue="q", no_ack=True), 1)
            other.next(Basic.ConsumeOk)
            monkeypatch.setattr(real_disk, "_datasync", hang)
            published = 0
            while not hangs.is_set():  # a worker may be the one to sync
                slow.send(messages("slow", 1, 10, delivery_mode=2))
                published += 1
                hangs.wait(0.01)
            for _ in range(50):
                other.send(messages("q", 1, 10))
                other.next(Basic.Deliver)
                assert [other.frame().type, other.frame().type] == [HEADER, BODY]
            while (frame := slow.frame()).type != HEARTBEAT:
                assert isinstance(decode_method(frame.payload), Basic.Ack)
            gate.set()
            confirmed = 0
            while confirmed < published:
                frame = slow.frame()
                if frame.type == METHOD:
                    confirmed = decode_method(frame.payload).delivery_tag


def test_a_listener_without_descriptors_is_told_once_and_accepts_when_there_are_some(
    server, monkeypatch, logs
):
    failed, accept = threading.Event(), socket.socket.accept
    refused: list[int] = []

    def no_descriptor(listener: socket.socket):
        refused.append(listener.fileno())
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", no_descriptor)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        assert failed.wait(LIMIT)
        assert eventually(lambda: any(line["event"] == "socket trouble" for line in logs))
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), server._io.loop).result(LIMIT)
        assert len(refused) < 20  # asyncio tries again every second
        monkeypatch.setattr(socket.socket, "accept", accept)
        client.settimeout(LIMIT)
        client.sendall(b"AMQP\0\0\x09\1")
        assert client.recv(1)
