"""A small Taskiq app, unchanged but for one thing: its queues are classic ones, where Taskiq would declare quorum queues.

    warrenmq serve --data data                                        # any RabbitMQ with the plugin for delays will do as well
    taskiq worker taskiq_app:broker                                   # in examples/, in another terminal
    python examples/taskiq_app.py                                     # gives the worker something to do

BROKER_URL names another broker than amqp://guest:guest@localhost:5672.  A program that cannot be changed gets its quorum
queues as classic ones from `warrenmq serve --setting quorum_as_classic=true`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from taskiq import SmartRetryMiddleware
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue, QueueType

broker = AioPikaBroker(
    os.environ.get("BROKER_URL", "amqp://guest:guest@localhost:5672"),
    exchange=Exchange(name="taskiq-pictures"),
    task_queues=[Queue(name="taskiq-pictures", type=QueueType.CLASSIC)],
    dead_letter_queue=Queue(name="taskiq-pictures-failed", type=QueueType.CLASSIC),
    delayed_message_exchange_plugin=True,  # x-delayed-message is always there
).with_middlewares(SmartRetryMiddleware(default_delay=0.05))


@broker.task("resize", retry_on_error=True, max_retries=2)
def resize(name: str, to: str) -> None:
    """Make a picture small; the first try fails, as the disk does, and Taskiq tries again after a delay."""
    tried = Path(f"{to}.tried")
    if not tried.exists():
        tried.touch()
        raise OSError(name)
    Path(to).write_text(f"small {name}", encoding="utf-8")


async def main() -> None:
    await broker.startup()
    await resize.kiq("cat.jpg", "cat-small.txt")
    await resize.kicker().with_labels(delay=0.2).kiq("dog.jpg", "dog-small.txt")
    await broker.shutdown()
    print("sent two pictures")


if __name__ == "__main__":
    asyncio.run(main())
