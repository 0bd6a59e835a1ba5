"""The same broker for asyncio: producers and a consumer as tasks; nothing blocks the event loop.

python examples/asyncio_app.py [DIRECTORY]
"""

from __future__ import annotations

import asyncio
import sys

import warrenmq.aio

PRODUCERS, EACH = 3, 5


async def produce(jobs: warrenmq.aio.Queue, name: int) -> None:
    for number in range(EACH):
        await jobs.publish(f"job {number} of producer {name}".encode())  # returns when it is on disk


async def consume(jobs: warrenmq.aio.Queue) -> int:
    done = 0
    async with jobs.consume(prefetch=10) as consumer:
        async for delivery in consumer:
            delivery.ack()
            done += 1
            if done == PRODUCERS * EACH:
                break
    return done


async def main(directory: str) -> None:
    async with warrenmq.aio.open(directory) as broker:
        jobs = await broker.declare_queue("jobs")
        consumer = asyncio.create_task(consume(jobs))
        await asyncio.gather(*(produce(jobs, name) for name in range(PRODUCERS)))
        print(f"done: {await consumer} jobs")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "data"))
