"""Libraries above the clients, with the real packages: Dramatiq, FastStream, Taskiq, and Flower's look into the HTTP API."""

import asyncio
import importlib.util
import os
import sys

import pytest

from tests.support.limits import LIMIT
from tests.support.served import Served
from tests.support.source_tree import ROOT


def example(name, url, monkeypatch):
    """A module of examples/, made anew with this broker."""
    monkeypatch.setenv("BROKER_URL", url)
    spec = importlib.util.spec_from_file_location(name, os.path.join(ROOT, "examples", f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("default")
def test_dramatiq_retries_and_delays(server, monkeypatch, tmp_path):
    dramatiq = pytest.importorskip("dramatiq")
    app = example("dramatiq_app", server.url, monkeypatch)
    broker = dramatiq.get_broker()
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=2)
    worker.start()
    try:
        app.resize.send("cat.jpg", str(tmp_path / "cat"))
        app.resize.send_with_options(args=("dog.jpg", str(tmp_path / "dog")), delay=100)
        for name in ("cat", "dog"):
            waited = 0
            while not (tmp_path / name).exists():
                asyncio.run(asyncio.sleep(0.05))  # another thread's file has no other sign
                waited += 0.05
                assert waited < LIMIT
        broker.join("dramatiq-pictures", timeout=LIMIT * 1000)
    finally:
        worker.stop()
        broker.close()
    assert (tmp_path / "dog").read_text() == "small dog.jpg"


@pytest.mark.filterwarnings("default")
def test_faststream_answers_into_another_queue(server, monkeypatch):
    pytest.importorskip("faststream")
    app = example("faststream_app", f"{server.url}/", monkeypatch)
    bills = asyncio.Queue()

    async def run():
        @app.broker.subscriber("bills")
        async def take(bill: dict[str, int]) -> None:
            await bills.put(bill)

        async with app.broker:
            await app.broker.start()
            await app.broker.publish({"cat food": 3, "lamp": 20}, app.orders)
            return await asyncio.wait_for(bills.get(), LIMIT)

    assert asyncio.run(run()) == {"total": 23}


@pytest.mark.filterwarnings("default")
def test_taskiq_retries_and_delays(server, monkeypatch, tmp_path):
    pytest.importorskip("taskiq_aio_pika")
    from taskiq.api import run_receiver_task

    app = example("taskiq_app", server.url, monkeypatch)

    async def run():
        await app.broker.startup()  # as the worker: it consumes, too
        worker = asyncio.create_task(run_receiver_task(app.broker))
        await app.resize.kiq("cat.jpg", str(tmp_path / "cat"))
        await app.resize.kicker().with_labels(delay=0.1).kiq("dog.jpg", str(tmp_path / "dog"))
        async with asyncio.timeout(LIMIT):
            while not all((tmp_path / name).exists() for name in ("cat", "dog")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # a thread's file has no other sign
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await app.broker.shutdown()

    app.broker.is_worker_process = True
    asyncio.run(run())
    assert [(tmp_path / name).read_text() for name in ("cat", "dog")] == ["small cat.jpg", "small dog.jpg"]


@pytest.mark.filterwarnings("default")
def test_flower_sees_the_queues(tmp_path):
    broker = pytest.importorskip("flower.utils.broker")
    served = Served(tmp_path / "data", "--management", "0")
    try:
        api = served.management.replace("http://", "http://guest:guest@") + "/api/"
        seen = broker.RabbitMQ(f"{served.url}//".replace("amqp://", "amqp://guest:guest@"), api)
        from kombu import Connection

        with Connection(f"{served.url}//") as connection:
            connection.SimpleQueue("celery").put("x")
        (queue,) = asyncio.run(seen.queues(["celery", "nope"]))
        assert (queue["name"], queue["messages"], queue["consumers"]) == ("celery", 1, 0)
    finally:
        assert served.stop() == 0
