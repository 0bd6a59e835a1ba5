"""The server of one lesson: its page, the lens on its trace, and the drive behind it.

    with Driven(played.lesson.folder) as driven:
        run_site(lesson_site(played, driven, token), port=0, said=print)

    GET  /                   the lesson
    GET  /lens/              the lens on its trace
    GET  /drive/             the lens on the drive's run, with its buttons
    POST /drive              a command of the drive (drive_commands.py), as JSON; the answer has the link of the run, too
    POST /drive/again        {"link": ...}: that run is made again, in the place of this one
    POST /drive/fork         {"row": ...}: another run that went the same way to this row, in the place of this one
    GET  /drive/tape         the rows of the drive's run, as the lens reads them

Commands need the token (header X-Lens-Token).  The drive's actors live in one thread of their own.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from warrenmq.errors import CallerError
from warrenmq.lens.drive import Drive
from warrenmq.lens.feed import Feed
from warrenmq.lens.lesson import Played
from warrenmq.lens.lesson_page import STYLE, page
from warrenmq.lens.saved import packed, static
from warrenmq.lens.server import Guard, site
from warrenmq.replay.export.selection import rows_in_order
from warrenmq.trace.reader import open_memory

T = TypeVar("T")
_DRIVE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><title>the drive</title><link rel="icon" href="data:,">'
    '<link rel="stylesheet" href="../lens/static/style.css"><link rel="stylesheet" href="../lens/static/drive.css"></head>'
    '<body><div id="app"><p class="wait">The actors start.</p></div><script type="module" src="../lens/static/drive.js"></script></body></html>'
)
_KINDS = {"js": "text/javascript", "css": "text/css"}
LARGEST_COMMAND = 1 << 16
"""Bytes of a command."""


class Driven:
    """A Drive in a thread of its own, started on first use."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._thread = ThreadPoolExecutor(1, "drive")
        self._drive: Drive | None = None

    async def ask(self, question: Callable[[Drive], T]) -> T:
        """Call `question` with the drive, in the drive's thread; returns its result."""

        def asked() -> T:
            if self._drive is None:
                self._drive = Drive(self._script)
            return question(self._drive)

        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    async def replace(self, other: Callable[[Drive], Drive]) -> None:
        """Replace the drive with another run."""

        def replaced(drive: Drive) -> None:
            self._drive = other(drive)
            drive.close()

        await self.ask(replaced)

    def close(self) -> None:
        """End the run and the thread."""

        def close() -> None:
            if self._drive is not None:
                self._drive.close()

        self._thread.submit(close).result()
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lesson_site(played: Played, driven: Driven, token: str = "") -> Starlette:
    """Build the ASGI application; without a token the drive takes no commands."""
    lesson = played.lesson
    with open_memory(played.files) as trace:
        text = page(played, trace, lens="lens/", home="")
        feed = Feed(trace.catalog.runs, lesson.title)
        feed.add(rows_in_order(trace))

    async def show(_: Request) -> Response:
        return HTMLResponse(text)

    async def style(_: Request) -> Response:
        return Response(static(STYLE), media_type="text/css")

    async def steer(_: Request) -> Response:
        return HTMLResponse(_DRIVE)

    async def asset(request: Request) -> Response:
        kind = _KINDS.get(request.path_params["name"])
        if kind is None:
            return Response("there is no such file.", status_code=404)
        return Response(static(f"drive.{request.path_params['name']}"), media_type=kind)

    async def drive(request: Request) -> Response:
        command = await _asked(request)
        return await _answer(lambda: driven.ask(lambda drive: _done(drive, command)))

    async def again(request: Request) -> Response:
        link = (await _asked(request)).get("link")

        async def do() -> dict[str, Any]:
            await driven.replace(lambda _: Drive.of_link(str(link)))
            return await driven.ask(_standing)

        return await _answer(do)

    async def fork(request: Request) -> Response:
        row = (await _asked(request)).get("row")

        async def do() -> dict[str, Any]:
            if type(row) is not int:
                raise CallerError("row is the number of a row.")
            await driven.replace(lambda drive: drive.fork(row))
            return await driven.ask(_standing)

        return await _answer(do)

    async def tape(_: Request) -> Response:
        files = await driven.ask(lambda drive: drive.files())

        def rows() -> bytes:
            with open_memory(files) as trace:
                return gzip.compress(packed(trace, lesson.title).encode(), 6)

        body = await asyncio.to_thread(rows)
        return Response(body, media_type="text/plain", headers={"content-encoding": "gzip"})

    return Starlette(
        routes=[
            Route("/", show),
            Route(f"/{STYLE}", style),
            Route("/drive/", steer),
            Route("/lens/static/drive.{name:str}", asset),
            Route("/drive", drive, methods=["POST"]),
            Route("/drive/again", again, methods=["POST"]),
            Route("/drive/fork", fork, methods=["POST"]),
            Route("/drive/tape", tape),
            Mount("/lens", site(feed)),
        ],
        middleware=[Middleware(Guard, token=token)],
    )


def _done(drive: Drive, command: Mapping[str, Any]) -> dict[str, Any]:
    answer = drive.do(command)
    return {**answer, "link": drive.link()}


def _standing(drive: Drive) -> dict[str, Any]:
    return {**drive.now(), "link": drive.link()}


async def _asked(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_COMMAND:
            return {}
    try:
        asked = json.loads(body)
    except ValueError:
        return {}
    return asked if isinstance(asked, dict) else {}


async def _answer(do: Callable[[], Any]) -> Response:
    try:
        return JSONResponse(await do())
    except CallerError as error:
        return JSONResponse({"error": str(error)}, status_code=400)
