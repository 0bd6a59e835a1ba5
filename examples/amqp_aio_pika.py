"""aio-pika, unchanged: a topic exchange, two subscribers, and a connection that comes back after the server was restarted.

warrenmq serve --data data            # in another terminal; any RabbitMQ will do as well
python examples/amqp_aio_pika.py [amqp://guest:guest@localhost:5672/%2F]
"""

from __future__ import annotations

import asyncio
import sys

import aio_pika

READINGS = {"kitchen.temperature": 21, "cellar.humidity": 88, "attic.temperature": 35}


async def watch(name: str, queue: aio_pika.abc.AbstractQueue, count: int) -> list[str]:
    """The first messages of a queue; each is acknowledged when its block ends without an exception."""
    seen = []
    async with queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                seen.append(f"{name}: {message.routing_key} {message.body.decode()}")
            if len(seen) == count:
                break
    return seen


async def main(url: str) -> None:
    connection = await aio_pika.connect_robust(url)
    async with connection:
        channel = await connection.channel()
        sensors = await channel.declare_exchange("sensors", aio_pika.ExchangeType.TOPIC, durable=True)
        # the server gives it a name, and it goes with the connection
        heat = await channel.declare_queue(exclusive=True)
        everything = await channel.declare_queue(exclusive=True)
        await heat.bind(sensors, "*.temperature")
        await everything.bind(sensors, "#")

        for key, value in READINGS.items():
            await sensors.publish(aio_pika.Message(str(value).encode()), key)

        for lines in await asyncio.gather(watch("heat", heat, 2), watch("everything", everything, 3)):
            print(*lines, sep="\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://guest:guest@localhost:5672/%2F"))
