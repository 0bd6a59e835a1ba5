"""Behaviour that clients rely on: the server here and RabbitMQ send the same frames, those of the recorded transcripts.

The transcripts are what RabbitMQ 3.10.8 sent (record.py), and hold where it is not installed; where it is, they are
compared with it again.
"""

import pytest

from tests.support.served import Served
from tests.transcripts import rabbitmq
from tests.transcripts.programs import PROGRAMS, run
from tests.transcripts.record import RECORDED


@pytest.fixture(scope="module")
def server_port(tmp_path_factory):
    server = Served(tmp_path_factory.mktemp("served") / "data")
    yield server.port
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def rabbitmq_port(tmp_path_factory):
    if (reason := rabbitmq.why_not()) is not None:
        pytest.skip(reason)
    with rabbitmq.running(tmp_path_factory.mktemp("rabbitmq")) as port:
        yield port


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_server_sends_what_rabbitmq_sent(name, server_port):
    assert run(name, server_port) == (RECORDED / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_rabbitmq_sends_what_was_recorded(name, rabbitmq_port):
    assert run(name, rabbitmq_port) == (RECORDED / f"{name}.txt").read_text()


def test_every_transcript_has_its_program():
    assert sorted(path.stem for path in RECORDED.iterdir()) == sorted(PROGRAMS)
