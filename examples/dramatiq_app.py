"""A small Dramatiq app, unchanged: its queues, delays and retries are those of `warrenmq serve`.

    warrenmq serve --data data                                        # any RabbitMQ will do as well
    dramatiq dramatiq_app                                             # in examples/, in another terminal
    python examples/dramatiq_app.py                                   # gives the worker something to do

BROKER_URL names another broker than amqp://guest:guest@localhost:5672.
"""

from __future__ import annotations

import os
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

dramatiq.set_broker(
    RabbitmqBroker(
        url=os.environ.get("BROKER_URL", "amqp://guest:guest@localhost:5672"), confirm_delivery=True
    )
)


@dramatiq.actor(queue_name="dramatiq-pictures", max_retries=2, min_backoff=50)
def resize(name: str, to: str) -> None:
    """Make a picture small; the first try fails, as the disk does, and Dramatiq tries again after a delay."""
    tried = Path(f"{to}.tried")
    if not tried.exists():
        tried.touch()
        raise OSError(name)
    Path(to).write_text(f"small {name}", encoding="utf-8")


if __name__ == "__main__":
    resize.send("cat.jpg", "cat-small.txt")
    resize.send_with_options(args=("dog.jpg", "dog-small.txt"), delay=200)
    print("sent two pictures")
