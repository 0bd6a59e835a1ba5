"""The lens as an ASGI application, and the local server that runs it.

    app = site(feed)                       # GET / the page, /tape its rows, /events what comes, /static/... its modules
    run_site(app, port=0, said=print)      # until Ctrl-C

Only this machine may ask: the `Host` must be a name of it, and so must the `Origin` where a browser sends
one, so that no page of the web can reach it by a name that it points here.  Each answer has a policy under
which no other script runs and no request leaves the page.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warrenmq.accepting import ONE, complain, may_wait
from warrenmq.errors import CallerError
from warrenmq.lens.feed import Feed
from warrenmq.lens.pack import compact
from warrenmq.lens.record_bytes import RecordReader
from warrenmq.lens.saved import MODULES, static

HERE = frozenset({"127.0.0.1", "localhost", "::1"})
TOKEN_HEADER = b"x-lens-token"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_LOOK = 0.1
"""Seconds between two looks for rows that a page lacks."""
_LONGEST = 10.0
"""Seconds of one stream of events."""
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><title>the lens</title><link rel="icon" href="data:,"><link rel="stylesheet" href="static/style.css"></head>'
    '<body><div id="app"><p class="wait">Reading the trace.</p></div><script type="module" src="static/served.js"></script></body></html>'
)
_STATIC = {f"{name}.js": "text/javascript" for name in (*MODULES, "served", "drive", "view")} | {
    f"{name}.css": "text/css" for name in ("style", "drive")
}


class Guard:
    """Middleware that rejects requests from other hosts' pages, and commands without the token."""

    def __init__(self, app: ASGIApp, token: str = "", hosts: frozenset[str] = HERE) -> None:
        """Wrap an application.  Without a token only GET and HEAD are answered."""
        self._app = app
        self._token = token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        answer = self._app if refused is None else PlainTextResponse(refused, status_code=403)
        await answer(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if _host_of("//" + host) not in self._hosts:
            return f"the host {host!r} is not this machine."
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin.decode("latin-1")).netloc != host:
            return "another page asks."
        if scope["method"] not in {"GET", "HEAD"}:
            given = headers.get(TOKEN_HEADER, b"")
            if not self._token or not hmac.compare_digest(given, self._token):
                return "commands need the token that the start printed."
        return None


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def site(feed: Feed, *, reader: RecordReader | None = None, hosts: frozenset[str] = HERE) -> Starlette:
    """Build the ASGI application that shows a feed.

    `reader` reads the bytes of records from a data directory; `hosts` are the names under which it may be asked for.
    """

    async def page(_: Request) -> Response:
        return HTMLResponse(_PAGE)

    async def module(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return PlainTextResponse("there is no such file.", status_code=404)
        return Response(static(name), media_type=_STATIC[name])

    async def tape(_: Request) -> Response:
        text = await asyncio.to_thread(feed.tape, reads_bytes=reader is not None)
        packed = await asyncio.to_thread(gzip.compress, text.encode(), 6)
        return Response(packed, media_type="text/plain", headers={"content-encoding": "gzip"})

    async def events(request: Request) -> Response:
        after = request.headers.get("last-event-id", request.query_params.get("after", ""))
        if not after.isdigit():
            return PlainTextResponse("after = the number of a row.", status_code=400)
        return StreamingResponse(_events(feed, int(after)), media_type="text/event-stream")

    async def read_bytes(request: Request) -> Response:
        if reader is None:
            return PlainTextResponse("no data directory was named.", status_code=404)
        return await answer_bytes(reader, request)

    async def read_index(request: Request) -> Response:
        if reader is None:
            return PlainTextResponse("no data directory was named.", status_code=404)
        return await answer_index(reader, request)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/tape", tape),
            Route("/events", events),
            Route("/bytes", read_bytes),
            Route("/index", read_index),
            Route("/static/{name}", module),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
    )


async def answer_bytes(reader: RecordReader, request: Request) -> Response:
    """Answer a request for the bytes of a record: store, file, offset and size."""
    asked = request.query_params
    numbers = [asked.get(name, "") for name in ("file", "offset", "size")]
    if asked.get("store") not in {"p", "t"} or not all(each.isdigit() and len(each) < 16 for each in numbers):
        return PlainTextResponse("store, file, offset and size are needed.", status_code=400)
    return JSONResponse(await asyncio.to_thread(reader.read, asked["store"], *map(int, numbers)))


async def answer_index(reader: RecordReader, request: Request) -> Response:
    """Answer a request for a message's records in the index: queue, priority and seq."""
    queue, priority, seq = (request.query_params.get(name, "") for name in ("queue", "priority", "seq"))
    if not queue or not all(each.isdigit() and len(each) < 16 for each in (priority, seq)):
        return PlainTextResponse("queue, priority and seq are needed.", status_code=400)
    return JSONResponse(await asyncio.to_thread(reader.index, queue, int(priority), int(seq)))


async def _events(feed: Feed, after: int) -> AsyncIterator[str]:
    """Stream segments as server-sent events; each event's id is its last row, so that a page that reconnects resumes there.

    The stream ends after a while, and the page asks again: a server that is to stop waits for its open answers.
    """
    yield "retry: 300\n\n"
    for _ in range(round(_LONGEST / _LOOK)):
        if feed.last != after:
            for each, last in await asyncio.to_thread(feed.since, after):
                after = last
                yield f"id: {after}\ndata: {compact(each)}\n\n"
        if feed.ended:
            yield f"event: ended\ndata: {compact(feed.ended)}\n\n"
            return
        await asyncio.sleep(_LOOK)


class _Loop(asyncio.SelectorEventLoop):
    """asyncio's loop that accepts one connection in a turn."""

    async def create_server(  # type: ignore[override]  # typeshed has an overload for each kind of address
        self, protocol: Any, *args: Any, backlog: int, **options: Any
    ) -> asyncio.Server:
        return await may_wait(super().create_server(protocol, *args, backlog=ONE, **options), backlog)


class _Server(uvicorn.Server):
    """A uvicorn server that reports when it is ready; from then on a signal stops it cleanly."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()


class Site:
    """A running server of the lens; `close` ends it."""

    def __init__(self, app: ASGIApp, *, port: int = 0, said: Callable[[str], Any] = lambda _: None) -> None:
        """Listen on a loopback port; 0 = any free one.  CallerError if the port is in use.  `said` gets the
        address once it serves.
        """
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen()  # clients that connect before the server runs wait in the backlog, and are not refused
        except OSError as why:
            self._socket.close()
            raise CallerError(
                f"port {port} cannot be used ({why.strerror}); say another with --port, or 0 for any that is free."
            ) from why
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/"
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="off"
        )
        self._server = _Server(config, lambda: said(self.url))

    def run(self) -> None:
        """Serve until `close`, Ctrl-C or SIGTERM."""
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.get_loop().set_exception_handler(complain)
            runner.run(self._server.serve(sockets=[self._socket]))

    def close(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True


def run_site(app: ASGIApp, *, port: int = 0, said: Callable[[str], Any]) -> None:
    """Serve until Ctrl-C; `said` gets the address once Ctrl-C would stop it cleanly."""
    Site(app, port=port, said=said).run()
