"""The fixture `server` of warrenmq.testing, as a user's tests use it."""

import subprocess
import sys

import pytest

from tests.support.limits import LIMIT
from warrenmq.testing import server  # noqa: F401 - the fixture that these tests ask for

pika = pytest.importorskip("pika")


@pytest.mark.parametrize("body", [b"one", b"two"])
def test_each_test_has_a_broker_of_its_own(server, body):  # noqa: F811 - by its name
    with pika.BlockingConnection(pika.ConnectionParameters(server.host, server.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declared = channel.queue_declare("jobs", durable=True)
        assert declared.method.message_count == 0, "nothing of another test is there"
        channel.basic_publish("", "jobs", body, mandatory=True)
        _, _, found = channel.basic_get("jobs", auto_ack=True)
        assert found == body
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().basic_publish("", "jobs", body)
    assert server.broker.queue("jobs").get(timeout=LIMIT).body == body


def test_the_simulated_machine_needs_no_pytest():
    code = """
import sys
sys.modules["pytest"] = None
import warrenmq.testing
with warrenmq.testing.SimulatedMachine() as machine:
    machine.open().close()
try:
    warrenmq.testing.server
except ImportError:
    print("no fixture")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "no fixture\n", done.stderr
