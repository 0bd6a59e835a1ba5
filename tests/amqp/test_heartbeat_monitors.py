"""Heartbeats that are due, and peers that are gone."""

from warrenmq.amqp.net.heartbeat import ReceiverMonitor, SenderMonitor


def test_a_sender_sends_only_when_nothing_else_was_sent():
    sender = SenderMonitor()
    assert sender.look(0)
    sender.sent(8)
    assert sender.look(8)
    sender.sent(16)
    assert not sender.look(100)
    assert sender.look(100)


def test_a_receiver_gives_up_at_the_second_silent_look():
    receiver = ReceiverMonitor()
    assert [receiver.look(count) for count in (5, 5, 6, 6, 6)] == [False, False, False, False, True]


def test_a_receiver_begins_anew_after_a_pause():
    receiver = ReceiverMonitor()
    assert [receiver.look(5) for _ in range(2)] == [False, False]
    receiver.restart()
    assert [receiver.look(5) for _ in range(3)] == [False, False, True]
