"""Celery and kombu: examples/celery_app.py with a worker that is a process of its own, and what Celery itself uses queues for."""

import os
import signal
import subprocess
import sys
import time

import pytest

celery = pytest.importorskip("celery")
kombu = pytest.importorskip("kombu")

from tests.support.limits import LIMIT  # noqa: E402
from tests.support.source_tree import ROOT  # noqa: E402

EXAMPLES = os.path.join(ROOT, "examples")
NAME = "worker@test"

_COUNTDOWN = """
from celery import group
from celery_app import resize

def countdown(seconds):
    return group(resize.signature(("cat.jpg", number), countdown=seconds) for number in range(6)).apply_async()

countdown(3600)
print(*countdown(0.5).get(timeout=120))
"""
"""The worker's prefetch count is 1."""


class Worker:
    """`celery worker` with the example's app; its log tells when it is ready."""

    def __init__(self, url, log):
        self.environment = os.environ | {
            "BROKER_URL": f"{url}//",
            "PYTHONPATH": EXAMPLES,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.log = log
        command = [
            sys.executable,
            "-m",
            "celery",
            "--app",
            "celery_app",
            "worker",
            "--pool",
            "solo",
            "--loglevel",
            "INFO",
        ]
        command += ["--concurrency", "1", "--hostname", NAME]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=file, stderr=file, cwd=log.parent
            )
        end = time.monotonic() + LIMIT
        while " ready." not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)  # another process; it has no other sign than its log

    def run(self, *command):
        done = subprocess.run(
            [sys.executable, *command], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr + self.log.read_text()
        return done.stdout

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait() == 0, self.log.read_text()


@pytest.fixture(scope="module")
def worker(shared_server, tmp_path_factory):
    worker = Worker(shared_server.url, tmp_path_factory.mktemp("celery") / "worker.log")
    yield worker
    worker.stop()


@pytest.fixture
def connection(server):
    with kombu.Connection(f"{server.url}//") as connection:
        yield connection


def test_the_example_runs_chains_groups_and_retries(worker):
    assert worker.run(os.path.join(EXAMPLES, "celery_app.py")).splitlines() == [
        "fetched and resized: 320/cat.jpg",
        "resized: 320/dog.jpg, 640/dog.jpg, 1280/dog.jpg",
    ]


def test_more_countdown_tasks_than_the_prefetch_count_all_run(worker):
    """Celery raises its prefetch count for each task that it holds until its time."""
    assert worker.run("-c", _COUNTDOWN).split() == [f"{number}/cat.jpg" for number in range(6)]


def test_remote_control_reaches_the_worker_and_its_answer_comes_back(worker):
    out = worker.run(
        "-m",
        "celery",
        "--app",
        "celery_app",
        "inspect",
        "ping",
        "--destination",
        NAME,
        "--timeout",
        f"{LIMIT}",
    )
    assert "pong" in out
    assert "1 node online." in out


def test_simple_queues_of_kombu(connection):
    with connection.SimpleQueue("kombu-simple") as queue:
        for number in range(5):
            queue.put({"n": number}, serializer="json", compression="zlib")
        assert queue.qsize() == 5
        for number in range(5):
            message = queue.get(timeout=LIMIT)
            assert message.payload == {"n": number}
            message.ack()
        with pytest.raises(queue.Empty):
            queue.get_nowait()


def test_high_priorities_come_first_and_requeued_messages_keep_their_place(connection):
    channel = connection.channel()
    queue = kombu.Queue("kombu-priorities", channel=channel, max_priority=9, exclusive=True)
    queue.declare()
    producer = kombu.Producer(channel)
    for number, priority in enumerate((0, 9, 5, 9)):
        producer.publish(str(number), routing_key=queue.name, priority=priority, retry=False)
    first = queue.get()
    first.requeue()
    order = []
    while message := queue.get():
        order.append((message.body, message.delivery_info["redelivered"]))
        message.ack()
    assert order == [("1", True), ("3", False), ("2", False), ("0", False)]


def test_a_fanout_exchange_reaches_every_consumer(connection):
    news = kombu.Exchange("kombu-news", type="fanout", durable=False, auto_delete=True)
    queues = [kombu.Queue(f"kombu-news-{number}", news, exclusive=True) for number in range(3)]
    seen = []
    with connection.Consumer(queues, callbacks=[lambda body, message: (seen.append(body), message.ack())]):
        connection.Producer().publish("extra", exchange=news)
        while len(seen) < 3:
            connection.drain_events(timeout=LIMIT)
    assert seen == ["extra"] * 3
