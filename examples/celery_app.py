"""A small Celery app, unchanged: its broker, results and remote control are queues of `warrenmq serve`.

    warrenmq serve --data data                                        # any RabbitMQ will do as well
    celery --app celery_app worker --loglevel INFO                    # in examples/, in another terminal
    python examples/celery_app.py                                     # gives the worker something to do

BROKER_URL names another broker than amqp://guest:guest@localhost:5672//.
"""

from __future__ import annotations

import os

from celery import Celery, Task, chain, group
from kombu import Queue

app = Celery(
    "celery_app", broker=os.environ.get("BROKER_URL", "amqp://guest:guest@localhost:5672//"), backend="rpc://"
)
app.conf.update(
    task_queues=[Queue("pictures", queue_arguments={"x-max-priority": 9})],
    task_default_queue="pictures",
    task_acks_late=True,  # a task whose worker is killed is done by another one
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},  # `delay` returns when the task is on disk
)


@app.task(bind=True, max_retries=2, default_retry_delay=0.1)
def fetch(self: Task, name: str) -> str:
    """Get a picture; the first try fails, as the network does."""
    if not self.request.retries:
        raise self.retry()
    return name


@app.task
def resize(name: str, width: int) -> str:
    return f"{width}/{name}"


def main() -> None:
    small = chain(fetch.s("cat.jpg"), resize.s(320)).apply_async(priority=9)
    print(f"fetched and resized: {small.get(timeout=20)}")
    many = group(resize.s("dog.jpg", width) for width in (320, 640, 1280)).apply_async()
    print(f"resized: {', '.join(many.get(timeout=20))}")


if __name__ == "__main__":
    main()
