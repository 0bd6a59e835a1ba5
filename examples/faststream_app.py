"""A small FastStream app, unchanged: its subscribers and publishers use `warrenmq serve`.

    warrenmq serve --data data                                        # any RabbitMQ will do as well
    faststream run faststream_app:app                                 # in examples/, in another terminal

BROKER_URL names another broker than amqp://guest:guest@localhost:5672/.
"""

from __future__ import annotations

import os

from faststream import FastStream
from faststream.rabbit import RabbitBroker, RabbitQueue

broker = RabbitBroker(os.environ.get("BROKER_URL", "amqp://guest:guest@localhost:5672/"))
app = FastStream(broker)

orders = RabbitQueue("orders", durable=True)


@broker.subscriber(orders)
@broker.publisher("bills")
async def bill(order: dict[str, int]) -> dict[str, int]:
    """Add up an order; what is returned goes to the queue `bills`."""
    return {"total": sum(order.values())}
