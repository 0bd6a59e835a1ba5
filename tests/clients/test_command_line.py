"""`warrenmq publish`, `consume` and `recover` with a server at the other end."""

import hashlib
import io
import json
import sys

import pytest

pika = pytest.importorskip("pika")

import warrenmq  # noqa: E402
from tests.support import golden  # noqa: E402
from tests.support.directories import contents  # noqa: E402
from tests.support.golden import manifest  # noqa: E402
from warrenmq.cli import main  # noqa: E402
from warrenmq.message.properties import Properties  # noqa: E402

CASE = "c03-v1-sigkill-a"


class Stdin:
    def __init__(self, data):
        self.buffer = io.BytesIO(data)


@pytest.fixture
def url(server):
    return server.url.replace("://", "://guest:guest@")


@pytest.fixture
def channel(url):
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        yield connection.channel()


@pytest.fixture
def publish(monkeypatch, url):
    def run(data, queue):
        monkeypatch.setattr(sys, "stdin", Stdin(data))
        return main(["publish", queue, "--url", url])

    return run


def drained(channel, queue):
    """(body, properties, redelivered) of all messages of a queue, which is deleted."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append((got[2], got[1], got[0].redelivered))
    channel.queue_delete(queue)
    return found


def test_lines_go_in_persistent_and_come_out_in_order(publish, url, channel, capfdbinary):
    lines = b"".join(b"%d\n" % number for number in range(1500))
    assert publish(lines, "lines") == 0
    method, properties, _ = channel.basic_get("lines")
    channel.basic_nack(method.delivery_tag)
    channel.queue_declare("lines", passive=True)  # the queue has taken the nack before it answers
    assert properties.delivery_mode == 2
    capfdbinary.readouterr()
    assert main(["consume", "lines", "--url", url, "--count", "3"]) == 0
    assert capfdbinary.readouterr().out == b"0\n1\n2\n"
    assert main(["consume", "lines", "--url", url]) == 0
    assert capfdbinary.readouterr().out == lines[6:]
    assert channel.queue_delete("lines").method.message_count == 0


def test_lines_that_the_broker_refuses_are_a_problem(publish, channel, capsys):
    channel.queue_declare("full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    assert publish(b"a\nb\nc\n", "full") == 1
    assert "refused 1 messages" in capsys.readouterr().err
    assert [body for body, *_ in drained(channel, "full")] == [b"a", b"b"]


def test_a_queue_that_is_not_there_has_nothing_to_consume(url, capsys):
    assert main(["consume", "nothing", "--url", url]) == 2
    assert "no queue 'nothing' in vhost '/'" in capsys.readouterr().err


def test_messages_of_a_dead_rabbitmq_go_to_a_running_broker_once(url, channel, tmp_path, capsys):
    node = golden.lay_out(CASE, tmp_path / "node")
    before = contents(node)
    for already in (False, True):
        assert (
            main(
                [
                    "recover",
                    str(node),
                    "--to",
                    url,
                    "--now",
                    str(manifest(CASE)["ended_us"] // 10**6),
                    "--json",
                ]
            )
            == 0
        )
        said = json.loads(capsys.readouterr().out)
        assert "guest" not in said["to"]
        wanted = {queue["name"]: len(queue["messages"]) for queue in manifest(CASE)["queues"]}
        assert {each["name"]: each["already" if already else "moved"] for each in said["queues"]} == wanted
    assert contents(node) == before
    for queue in manifest(CASE)["queues"]:
        messages = drained(channel, queue["name"])
        assert [hashlib.sha256(body).hexdigest() for body, *_ in messages] == [
            each["sha256"] for each in golden.as_drained(queue)
        ]


def test_definitions_come_along(url, channel, tmp_path, capsys):
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_exchange("moved-logs", "topic")
        broker.declare_queue("moved", arguments={"x-max-length": 10})
        broker.bind("moved", "moved-logs", "#.error")
        headers = {"n": 1, "text": "ü", "CC": ["moved-elsewhere"]}
        properties = Properties(priority=3, headers=headers, content_type="text/plain", user_id="somebody")
        broker.publish("moved-logs", "disk.error", b"full", properties=properties).result()
    assert main(["recover", str(tmp_path / "data"), "--to", url]) == 0
    channel.basic_publish("moved-logs", "net.error", b"down")
    channel.queue_declare("moved", durable=True, arguments={"x-max-length": 10})
    (body, properties, _), (later, *_) = drained(channel, "moved")
    assert (body, later) == (b"full", b"down")
    assert properties == pika.BasicProperties(
        priority=3, headers={"n": 1, "text": "ü"}, content_type="text/plain", delivery_mode=2
    )
    assert "an earlier run" not in capsys.readouterr().out
    for _ in range(2):  # for what is the same broker here may be another one
        assert main(["recover", str(tmp_path / "data"), "--to", url.replace("127.0.0.1", "localhost")]) == 0
        assert "an earlier run moved messages to amqp://127.0.0.1:" in capsys.readouterr().out
    channel.exchange_delete("moved-logs")


def test_after_a_killed_run_a_batch_may_come_twice_and_a_note_says_so(
    url, channel, tmp_path, capsys, monkeypatch
):
    with warrenmq.open(tmp_path / "data") as broker:
        broker.declare_queue("twice")
        broker.queue("twice").publish_many([b"%d" % number for number in range(700)]).result()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # between the confirms of the first batch and the ledger's cross
        patch.setattr("warrenmq.mend.ledger.Ledger.done", killed)
        assert main(["recover", str(tmp_path / "data"), "--to", url]) == 130
    assert main(["recover", str(tmp_path / "data"), "--to", url]) == 0
    assert "512 altered: it may have been moved by an earlier run already" in capsys.readouterr().out
    numbers = [int(body) for body, *_ in drained(channel, "twice")]
    assert numbers == [*range(512), *range(700)]
