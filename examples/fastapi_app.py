"""A web application that answers at once and works later: jobs are on disk before 202 is sent, and done by a
task of the same process.

uvicorn examples.fastapi_app:app                        # JOBS_DIRECTORY says where; ./jobs unless it is set
curl -X POST http://127.0.0.1:8000/thumbnails/cat.jpg
curl http://127.0.0.1:8000/thumbnails

A job that was accepted is done, also if the process is killed before: the next one finds it in the directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

import warrenmq.aio


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the directory, work in the background while requests are answered, and close it in order."""
    # with several workers (uvicorn --workers 4) they share it, and each works
    async with warrenmq.aio.open(
        os.environ.get("JOBS_DIRECTORY", "jobs"), shared=True, unconfirmed="repeat"
    ) as broker:
        app.state.jobs = await broker.declare_queue("jobs")
        app.state.done = await broker.declare_queue("done")
        async with asyncio.TaskGroup() as background:
            worker = background.create_task(work(app.state.jobs, app.state.done))
            yield
            worker.cancel()  # what it has not acknowledged comes again at the next start


app = FastAPI(lifespan=lifespan)


async def work(jobs: warrenmq.aio.Queue, done: warrenmq.aio.Queue) -> None:
    """Do each job; its result is on disk before it is acknowledged, so a crash between the two does it again."""
    async with jobs.consume(prefetch=10) as consumer:
        async for delivery in consumer:
            await done.publish(b"small " + delivery.body)
            delivery.ack()


@app.post("/thumbnails/{picture}", status_code=202)
async def order(picture: str, request: Request) -> dict[str, str]:
    """Accept a job: it is on disk when this returns."""
    await request.app.state.jobs.publish(picture.encode())
    return {"accepted": picture}


@app.get("/thumbnails")
async def thumbnails(request: Request) -> dict[str, int | list[str]]:
    """Return the finished jobs, and the number of those that wait."""
    done = await request.app.state.done.peek(1_000)
    return {"waiting": await request.app.state.jobs.length(), "done": [each.body.decode() for each in done]}
