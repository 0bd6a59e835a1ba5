"""Delayed messages in a directory: they are listed, none has expired, and a recovery keeps their times."""

import subprocess
import sys
import time

import warrenmq
from tests.support.directories import check
from tests.support.limits import LIMIT
from warrenmq.mend.recover import recover

AN_HOUR = 3_600


def filled(path):
    """A directory with messages that wait, some of which are due now."""
    with warrenmq.open(path) as broker:
        queue = broker.declare_queue("q")
        broker.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": "direct"})
        broker.bind("q", "x", "k")
        queue.publish(b"in an hour", delay=AN_HOUR).result(LIMIT)
        broker.publish("x", "k", b"x in an hour", headers={"x-delay": AN_HOUR * 1_000}).result(LIMIT)
        queue.publish(b"at once").result(LIMIT)
        broker.inside.local_client.hold_delayed()
        queue.publish(b"due", delay=0.001).result(LIMIT)
        broker.publish("x", "k", b"x due", headers={"x-delay": 1}).result(LIMIT)


def test_all_of_them_are_there_and_none_has_expired(tmp_path):
    filled(tmp_path / "data")
    found = {queue["name"]: queue for queue in check(tmp_path / "data")[1]["queues"]}
    counts = {name: (len(queue["messages"]), queue["not_recovered"]) for name, queue in found.items()}
    assert counts == {"amq.delayed": (2, []), "amq.delayed.x": (2, []), "q": (1, [])}


def test_what_waits_has_not_been_delivered_though_a_later_message_has(tmp_path):
    with warrenmq.open(tmp_path / "data") as broker:
        queue = broker.declare_queue("q")
        queue.publish(b"in an hour", delay=AN_HOUR).result(LIMIT)
        queue.publish(b"soon", delay=0.01).result(LIMIT)
        queue.get(timeout=LIMIT).ack()
    found = {queue["name"]: queue["messages"] for queue in check(tmp_path / "data")[1]["queues"]}
    assert [message["redelivered"] for message in found["amq.delayed"]] == [False]


def test_a_recovery_keeps_their_times(tmp_path):
    filled(tmp_path / "data")
    report = recover(str(tmp_path / "data"), str(tmp_path / "new"), time.time_ns() // 1_000)
    assert report.fine
    assert {queue.name: queue.moved for queue in report.queues} == {
        "amq.delayed": 2,
        "amq.delayed.x": 2,
        "q": 1,
    }
    again = recover(str(tmp_path / "data"), str(tmp_path / "new"), time.time_ns() // 1_000)
    assert {queue.name: (queue.moved, queue.already) for queue in again.queues} == {
        "amq.delayed": (0, 2), "amq.delayed.x": (0, 2), "q": (0, 1),
    }  # fmt: skip
    with warrenmq.open(tmp_path / "new") as broker:
        queue = broker.queue("q")
        bodies = []
        for _ in range(3):
            delivery = queue.get(timeout=LIMIT)
            bodies.append(delivery.body)
            delivery.ack()
        assert sorted(bodies) == [b"at once", b"due", b"x due"]
        assert {(each.exchange, each.waiting) for each in broker.stats().delayed} == {(None, 1), ("x", 1)}


def test_the_command_line_publishes_with_a_delay(tmp_path):
    data = str(tmp_path / "data")
    command = [sys.executable, "-m", "warrenmq", "publish", "q", "--data", data, "--delay"]
    subprocess.run([*command, "3600"], input=b"one\ntwo\n", check=True, capture_output=True)
    wrong = subprocess.run([*command, "-1"], input=b"one\n", check=False, capture_output=True)
    assert wrong.returncode == 2
    assert b"delay" in wrong.stderr
    with warrenmq.open(data) as broker:
        assert [(each.exchange, each.waiting) for each in broker.stats().delayed] == [(None, 2)]
