"""One connection, in virtual time: the handshake, channels, errors, the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import frame as pamqp_frame
from pamqp import heartbeat
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue

from tests.amqp.connections import EVERYTHING, SimulatedClient, SimulatedNode, published
from tests.support.simulated import SMALL
from warrenmq.amqp.access.passwords import hash_password
from warrenmq.amqp.access.users import Users
from warrenmq.amqp.channel.methods import ChannelMethods
from warrenmq.amqp.connection.handshake import PROTOCOL_HEADER
from warrenmq.amqp.connection.messages import ForceClose
from warrenmq.amqp.connection.server_properties import server_properties
from warrenmq.amqp.wire.frames import HEARTBEAT_FRAME


@pytest.fixture
def client(node: SimulatedNode) -> SimulatedClient:
    return node.opened()


# -- the handshake


def test_it_says_what_it_can(node):
    client = node.connect()
    client.send(PROTOCOL_HEADER)
    _, start = client.next(Connection.Start)
    assert (start.version_major, start.version_minor, start.mechanisms, start.locales) == (
        0,
        9,
        "PLAIN AMQPLAIN",
        "en_US",
    )
    about = start.server_properties
    assert (about["product"], about["version"]) == ("RabbitMQ", "3.10.8")
    assert "warrenmq" in about["platform"]
    assert "warrenmq" in about["information"]
    assert set(start.server_properties["capabilities"].values()) == {True}
    _, tune = client.call(Connection.StartOk(EVERYTHING, "PLAIN", "\0guest\0guest", "en_US"), Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


def test_a_setting_has_it_give_its_own_name():
    about = server_properties("warrenmq")
    assert about["product"] == "warrenmq"
    assert f"warrenmq {about['version']} on " in about["platform"]


def test_the_handshake_may_come_byte_by_byte(node):
    client = node.connect()
    for byte in PROTOCOL_HEADER:
        client.send(bytes([byte]))
    client.next(Connection.Start)
    for byte in pamqp_frame.marshal(Connection.StartOk(EVERYTHING, "PLAIN", "\0guest\0guest", "en_US"), 0):
        client.send(bytes([byte]))
    client.next(Connection.Tune)


@pytest.mark.parametrize(
    "sent",
    [b"AMQP\0\1\0\0", b"AMQP\3\1\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"],
)
def test_another_protocol_is_answered_with_our_header(node, sent):
    client = node.connect()
    client.send(sent)
    client.next(str)
    client.sleep(0.1)
    assert client.transport.pieces == [PROTOCOL_HEADER]
    assert client.over


def test_amqplain_will_do(node):
    client = node.connect()
    client.start("AMQPLAIN", "\5LOGINS\0\0\0\5guest\x08PASSWORDS\0\0\0\5guest")
    client.next(Connection.Tune)


def refusals(client: SimulatedClient) -> list[Any]:
    client.sleep(1)
    return [each.reply_text for _, each in client.received()]


LOGIN_REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."


def test_a_failed_login_is_answered_after_a_delay(node):
    client = node.connect()
    client.start(response="\0guest\0wrong")
    client.sleep(0.1)
    assert client.received() == []
    assert refusals(client) == [LOGIN_REFUSED]
    client.method(Connection.CloseOk())
    client.sleep(0.1)
    assert client.over


def test_a_client_without_the_capability_gets_no_explanation_of_a_failed_login(node):
    client = node.connect()
    client.start(response="\0guest\0wrong", properties={})
    assert refusals(client) == []
    client.sleep(3)
    assert client.over


def test_guest_comes_from_this_machine_only(node):
    client = node.connect(loopback=False)
    client.start()
    assert refusals(client) == [LOGIN_REFUSED]


@pytest.mark.parametrize(
    "sent",
    [
        Connection.TuneOk(2047, 131072, 0),
        Connection.Open("/"),
        Connection.StartOk({}, "SCRAM", "", "en_US"),
        Connection.StartOk({}, "PLAIN", "no nulls", "en_US"),
        Connection.Close(200, "", 0, 0),
    ],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_a_wrong_method_before_tuning_drops_the_connection_silently_after_a_while(node, sent):
    client = node.connect()
    client.send(PROTOCOL_HEADER)
    client.next(Connection.Start)
    client.method(sent)
    client.sleep(2)
    assert (client.received(), client.over) == ([], False)
    client.sleep(2)
    assert (client.received(), client.over) == ([], True)


def test_a_silent_client_is_dropped(node):
    client = node.connect()
    client.sleep(9.9)
    assert not client.over
    client.sleep(0.2)
    assert client.over


def test_a_client_that_stops_in_the_middle_of_the_handshake_is_dropped(node):
    client = node.connect()
    client.start()
    client.next(Connection.Tune)
    client.sleep(10.1)
    assert client.over


def two_users() -> Users:
    users = [{"name": name, "password_hash": hash_password("p"), "tags": []} for name in ("a", "b")]
    return Users.of_definitions({
        "users": users,
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "a", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("user", "vhost", "said"),
    [
        ("a", "nope", "NOT_ALLOWED - vhost nope not found"),
        ("b", "/", "NOT_ALLOWED - access to vhost '/' refused for user 'b'"),
    ],
)
def test_a_virtual_host_must_be_there_and_allowed(user, vhost, said):
    node = SimulatedNode(users=two_users())
    client = node.connect()
    client.start(response=f"\0{user}\0p")
    client.tune()
    client.method(Connection.Open(vhost))
    assert client.closed() == (530, said)
    node.close()


# -- channels


def test_channels_come_and_go(client):
    for number in (1, 2, 65535):
        client.channel(number)
    assert client.call(Channel.Close(200, "", 0, 0), Channel.CloseOk, 2)[0] == 2
    client.channel(2)


def test_a_number_is_free_again_when_close_ok_was_sent(client):
    client.channel(1)
    number, close = client.call(Queue.Declare(queue="missing", passive=True), Channel.Close, 1)
    assert (number, close.reply_code) == (1, 404)
    client.send(pamqp_frame.marshal(Channel.CloseOk(), 1) + pamqp_frame.marshal(Channel.Open(), 1))
    assert client.next(Channel.OpenOk)[0] == 1
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)


def test_a_number_is_free_again_as_soon_as_its_client_can_know(client):
    client.channel(1)
    for _ in range(5):
        client.send(pamqp_frame.marshal(Channel.Close(200, "", 0, 0), 1))
        client.next(Channel.CloseOk)
        client.channel(1)


def test_there_are_as_many_channels_as_was_agreed(node):
    client = node.opened(channel_max=2)
    client.channel(1)
    client.channel(7)
    client.method(Channel.Open(), 2)
    said = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    assert client.closed() == (530, said)


def test_a_crashing_channel_takes_down_only_itself(node, client):
    other = node.opened()
    for connection, number in ((other, 1), (client, 1), (client, 2)):
        connection.channel(number)
    client.call(Queue.Declare(queue="q", exclusive=True), Queue.DeclareOk, 1)
    client.send(published(channel=1))
    client.sleep(0.1)  # another channel may be quicker
    client.call(Basic.Get(queue="q"), Basic.GetOk, 2)
    client.sleep(0.1)
    client.received().clear()  # its content
    node.sim.kill(living(node, "ChannelProcess")[2])
    number, close = client.next(Channel.Close)
    assert (number, close.reply_code, close.reply_text) == (2, 541, "INTERNAL_ERROR")

    client.send(published(channel=2))  # the client did not know yet
    assert client.call(Channel.Close(200, "", 0, 0), Channel.CloseOk, 2)[0] == 2
    client.method(Channel.CloseOk(), 2)
    client.channel(2)
    client.sleep(0.1)  # the queue hears of the end on a way of its own
    _, got = client.call(Basic.Get(queue="q"), Basic.GetOk, 2)
    assert got.redelivered
    client.sleep(0.1)
    client.received().clear()
    for connection in (client, other):
        connection.call(Queue.Declare(queue=""), Queue.DeclareOk, 1)


def test_a_mistake_in_a_channel_s_code_takes_down_only_that_channel(client, monkeypatch):
    client.channel(1)
    client.channel(2)
    before = client.transport.handled_bytes
    with monkeypatch.context() as broken:
        broken.setattr(ChannelMethods, "handle", lambda *_: 1 / 0)
        declare = pamqp_frame.marshal(Queue.Declare(queue="q"), 1)
        client.send(declare * 300)  # more than are handed on at a time
        number, close = client.next(Channel.Close)
    assert (number, close.reply_code) == (1, 541)
    assert client.transport.handled_bytes - before == 300 * len(declare)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 2)


def test_a_crashed_channel_counts_until_its_client_has_understood(node):
    client = node.opened(channel_max=1)
    client.channel(1)
    node.sim.kill(living(node, "ChannelProcess")[0])
    client.next(Channel.Close)
    client.method(Channel.Open(), 2)
    assert client.closed()[0] == 530


def living(node: SimulatedNode, kind: str) -> list[Any]:
    return [ref for ref in node.sim._living if ref.actor_class.__name__ == kind]


def test_a_crashing_connection_takes_its_channels_and_gives_back_what_they_held(node, client):
    other = node.opened()
    other.channel(1)
    other.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    client.channel(1)
    client.send(published())
    client.call(Basic.Get(queue="q"), Basic.GetOk, 1)
    node.sim.kill(client.ref)
    client.sleep(1)
    assert len(living(node, "ChannelProcess")) == 1
    _, got = other.call(Basic.Get(queue="q"), Basic.GetOk, 1)
    assert got.redelivered


def test_every_received_byte_is_counted_as_handled(client):
    client.channel(1)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    sent = [published(50), HEARTBEAT_FRAME, published(3) + published(5, key="none")]
    before = client.transport.handled_bytes
    for each in sent:
        client.send(each)
    client.call(Connection.Close(200, "", 0, 0), Connection.CloseOk)
    close = pamqp_frame.marshal(Connection.Close(200, "", 0, 0), 0)
    assert client.transport.handled_bytes - before == sum(map(len, sent)) + len(close)


# -- errors


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (b"\5\0\0\0\0\0\0\xce", 501, "FRAME_ERROR - type 5, all octets = <<>>: unknown_frame"),
        (b"\1\0\0\0\0\0\2ab\xce", 501, 'FRAME_ERROR - type 1, all octets = <<"ab">>: unknown_frame'),
        (b"\x08\0\1\0\0\0\0\xce", 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>"),
        (b"\3\0\0\0\0\0\1x\xce", 505, 'UNEXPECTED_FRAME - type 3, all octets = <<"x">>'),
        (b"\3\0\7\0\0\0\1x\xce", 505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead"),
        (b"\1\0\0\0\2\0\1", 501, "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,131073,131064}"),
        (b"\1\0\0\0\0\0\1x\0", 501, 'FRAME_ERROR - type 1, all octets = <<"x">>: {invalid_frame_end_marker,0}'),
        (pamqp_frame.marshal(Queue.Declare(), 3), 504, "CHANNEL_ERROR - expected 'channel.open'"),
        (pamqp_frame.marshal(Queue.Declare(), 0), 504, "CHANNEL_ERROR - unexpected method in connection state running"),
        (pamqp_frame.marshal(Connection.CloseOk(), 0), 504,
         "CHANNEL_ERROR - unexpected method in connection state running"),
    ],
)  # fmt: skip
def test_errors_close_the_connection_and_say_why(client, sent, code, said):
    client.channel(1)
    client.send(sent)
    assert client.closed() == (code, said)
    client.method(Queue.Declare(queue="q"), 1)  # nothing but close-ok is listened to
    client.method(Connection.CloseOk())
    client.sleep(0.1)
    assert client.received() == []
    assert client.over is not said.endswith(("131064}", "marker,0}"))  # after these nothing can be read


def test_methods_before_an_error_are_done(node, client):
    client.channel(1)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    client.send(published() + b"\1\0\0\0\0\0\1x\0")
    client.closed()
    other = node.opened()
    other.channel(1)
    other.call(Basic.Get(queue="q"), Basic.GetOk, 1)


@pytest.mark.parametrize("seed", range(6))
def test_an_error_of_a_channel_is_said_whatever_comes_on_that_channel(seed):
    node = SimulatedNode(seed)
    client = node.opened()
    client.channel(1)
    for _ in range(30):
        client.method(Channel.Flow(False), 1)
    assert client.closed() == (540, "NOT_IMPLEMENTED - active=false")
    node.close()


def test_a_client_that_does_not_answer_close_is_dropped(client):
    client.send(b"\5\0\0\0\0\0\0\xce")
    client.closed()
    client.sleep(29)
    assert not client.over
    client.sleep(2)
    assert client.over


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=80), max_size=6), st.sampled_from(["socket", "handshake", "running"]))
def test_garbage_ends_in_a_close_or_a_wait_and_harms_no_other_connection(pieces, when):
    node = SimulatedNode()
    client = node.connect()
    if when == "handshake":
        client.start()
    elif when == "running":
        client.open()
        client.channel(1)
    for piece in pieces:
        client.send(piece)
    client.sleep(60)
    if when != "running":
        assert client.over
    other = node.opened()
    other.channel(1)
    node.close()


# -- the end


def test_a_connection_that_is_closed_has_given_everything_back(node, client):
    client.channel(1)
    for queue in (Queue.Declare(queue="mine", exclusive=True), Queue.Declare(queue="q")):
        client.call(queue, Queue.DeclareOk, 1)
    client.send(published())
    client.call(Basic.Get(queue="q"), Basic.GetOk, 1)
    client.sleep(0.1)
    client.received().clear()  # its content
    client.call(Connection.Close(200, "bye", 0, 0), Connection.CloseOk)
    assert node.broker.inside.vhost.queue("mine") is None
    assert node.broker.queue("q").info().ready == 1
    client.disconnect()
    client.sleep(0.1)
    assert client.over
    assert living(node, "ChannelProcess") == []


def test_messages_requeued_by_one_channel_go_to_no_other_channel_of_a_closing_connection(node, client):
    client.channel(1)
    client.channel(2)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    client.send(published())
    client.call(Basic.Get(queue="q"), Basic.GetOk, 1)
    client.method(Basic.Consume(queue="q", consumer_tag="c", no_ack=True), 2)
    client.sleep(0.1)
    client.received().clear()
    client.call(Connection.Close(200, "bye", 0, 0), Connection.CloseOk)
    assert node.broker.queue("q").info().ready == 1


def test_a_connection_that_is_lost_has_given_everything_back(node, client):
    client.channel(1)
    client.call(Queue.Declare(queue="mine", exclusive=True), Queue.DeclareOk, 1)
    client.disconnect()
    client.sleep(1)
    assert node.broker.inside.vhost.queue("mine") is None
    assert client.over
    assert living(node, "ChannelProcess") == []


@pytest.mark.parametrize("seed", range(3))
def test_what_came_before_the_end_of_a_socket_is_done(seed):
    """Programs that end without connection.close are not rare."""
    node = SimulatedNode(seed)
    client = node.opened()
    client.channel(1)
    client.call(Queue.Declare(queue="q"), Queue.DeclareOk, 1)
    for _ in range(10):
        client.send(published() * 3)
    client.disconnect()
    node.host.wait_until(lambda: client.transport.closed)
    assert node.broker.queue("q").info().ready == 30
    node.close()


def test_what_came_before_the_end_of_a_socket_waits_for_credit(node, client):
    held, go_on = node.sim.event(), node.sim.event()

    def hold(_op: str, _path: str) -> None:
        if not held.is_set():
            held.set()
            go_on.wait()

    client.channel(1)
    client.call(Queue.Declare(queue="q", durable=True), Queue.DeclareOk, 1)
    node.broker.inside.client.calls.address("q")  # its process starts
    node.broker.inside.vhost.disk.before_op = hold
    node.broker.queue("q").publish(b"held up by the disk")
    held.wait()
    for _ in range(10):
        client.send(published() * 200)
        client.sleep(0.01)
    assert not client.transport.reading
    client.disconnect()
    client.sleep(1)
    assert not client.over
    go_on.set()
    node.host.wait_until(lambda: client.transport.closed)
    assert node.broker.queue("q").info().ready == 2001


@pytest.mark.parametrize("seed", range(3))
def test_a_channel_that_closes_while_it_waits_for_credit_blocks_no_other(seed):
    """Its exit signal may overtake what it said before, and another channel may have its number by then."""
    node = SimulatedNode(seed, limits=replace(SMALL, credit_flow_default_credit=(2, 1)))
    client = node.opened()
    client.channel(1)
    client.call(Queue.Declare(queue="q", durable=True), Queue.DeclareOk, 1)
    for _ in range(20):
        client.send(published() * 3)
        client.call(Channel.Close(200, "", 0, 0), Channel.CloseOk, 1)
        client.channel(1)
        client.send(published())
        client.call(Queue.Declare(queue="q", passive=True), Queue.DeclareOk, 1)
    node.close()


@pytest.mark.parametrize("seed", range(10))
def test_a_declared_queue_is_there_though_its_last_consumer_goes(seed):
    node = SimulatedNode(seed)
    client, other = node.opened(), node.opened()
    declare = Queue.Declare(queue="q", auto_delete=True)
    for each in (client, other):
        each.channel(1)
    client.call(declare, Queue.DeclareOk, 1)
    client.call(Basic.Consume(queue="q"), Basic.ConsumeOk, 1)
    client.method(Channel.Close(200, "", 0, 0), 1)
    _, declared = other.call(declare, Queue.DeclareOk, 1)
    client.sleep(0.1)
    assert declared.consumer_count or node.broker.inside.vhost.queue("q") is not None
    node.close()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("method", "answer", "number"),
    [
        (Channel.Close(200, "", 0, 0), Channel.CloseOk, 1),
        (Queue.Declare(queue="no", passive=True), Channel.Close, 1),
        (Connection.Close(200, "", 0, 0), Connection.CloseOk, 0),
    ],
    ids=["channel", "error", "connection"],
)
def test_an_auto_delete_queue_is_gone_when_its_consumer_is_known_to_be(seed, method, answer, number):
    node = SimulatedNode(seed)
    client = node.opened()
    client.channel(1)
    client.call(Queue.Declare(queue="q", auto_delete=True), Queue.DeclareOk, 1)
    client.call(Basic.Consume(queue="q"), Basic.ConsumeOk, 1)
    client.call(method, answer, number)
    assert node.broker.inside.vhost.queue("q") is None
    node.close()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_that_is_being_deleted_nacks_nothing(seed, durable):
    node = SimulatedNode(seed)
    client, publisher = node.opened(), node.opened()
    for each in (client, publisher):
        each.channel(1)
    client.call(Queue.Declare(queue="q", durable=durable), Queue.DeclareOk, 1)
    publisher.call(Confirm.Select(), Confirm.SelectOk, 1)
    client.method(Queue.Delete(queue="q"), 1)
    for _ in range(12):
        publisher.send(published())
    publisher.sleep(0.5)
    assert {type(answer) for _, answer in publisher.received()} == {Basic.Ack}
    node.close()


def test_a_server_that_ends_says_so(node, client):
    client.channel(1)
    node.sim.cast(client.ref, ForceClose("broker forced connection closure with reason 'shutdown'"))
    said = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    assert client.closed() == (320, said)
    client.method(Connection.CloseOk())
    client.sleep(0.1)
    assert client.over


def test_a_secret_may_be_updated(client):
    client.call(Connection.UpdateSecret("new", "because"), Connection.UpdateSecretOk)


def test_heartbeats_of_the_client_are_not_answered(client):
    client.send(HEARTBEAT_FRAME * 3)
    client.sleep(1)
    assert client.received() == []
    assert pamqp_frame.marshal(heartbeat.Heartbeat(), 0) == HEARTBEAT_FRAME
