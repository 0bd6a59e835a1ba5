"""The HTTP listener of the management API, in a thread of its own (uvicorn).

with serve(brokers) as server, manage(server, port=0) as management:
    print(management.url)                   # http://127.0.0.1:15672
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import threading
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from warrenmq.accepting import ONE, complain, may_wait
from warrenmq.amqp.net.tls import Handshake
from warrenmq.amqp.server import AmqpServer
from warrenmq.errors import CallerError
from warrenmq.log import Log
from warrenmq.management.asgi import Application
from warrenmq.management.http import Router
from warrenmq.management.routes import ROUTES
from warrenmq.management.site import Site
from warrenmq.runtime.thread_start import start_thread

PORT = 15672
HEAD_TIMEOUT = 10.0
"""Seconds until the head of a request must be there, from the beginning of a connection or the end of the last request."""
MOST_CONNECTIONS = 256
"""Connections at a time; what is above is answered with 503."""
MOST_HEAD = 64 * 1024
"""Bytes of a request's head."""

log = Log("warrenmq.management")


class _Protocol(H11Protocol):
    """uvicorn's HTTP protocol with a timeout for request headers."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head = asyncio.get_running_loop().call_later(HEAD_TIMEOUT, self._give_up)

    def _forget_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _give_up(self) -> None:
        self.transport.close()


class _Loop(asyncio.SelectorEventLoop):
    """asyncio's loop that logs a failed TLS handshake."""

    async def create_server(  # type: ignore[override]  # typeshed has an overload for each kind of address
        self, protocol: Any, *args: Any, ssl: Any = None, backlog: int, **options: Any
    ) -> asyncio.Server:
        first = protocol if ssl is None else lambda: Handshake(ssl, protocol, log)
        return await may_wait(super().create_server(first, *args, backlog=ONE, **options), backlog)


class ManagementServer:
    """A running HTTP listener, made by `manage`; a context manager."""

    def __init__(self, server: AmqpServer, host: str, port: int, sock: socket.socket | None,
                 tls: ssl.SSLContext | None, site: Site | None) -> None:  # fmt: skip
        listening = _listen(host, port) if sock is None else sock
        self.host, self.port = listening.getsockname()[:2]
        self._scheme = "http" if tls is None else "https"
        self._begins = site is None
        self.site = Site(server) if site is None else site
        self.site.listeners.append(address := (self._scheme, self.host, self.port))
        if tls is not None:
            self.site.secured[address] = tls
        loopback = ipaddress.ip_address(self.host).is_loopback
        self._application = Application(self.site, Router(ROUTES), loopback_only=loopback, names=(host,))
        config = uvicorn.Config(
            self._application, http=_Protocol, ws="none", lifespan="off", log_config=None, access_log=False,
            server_header=False, limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=int(HEAD_TIMEOUT),
            h11_max_incomplete_event_size=MOST_HEAD, timeout_graceful_shutdown=2,
        )  # fmt: skip
        if tls is not None:
            config.load()
            config.ssl = tls
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="warrenmq-management", daemon=True
        )
        start_thread(self._thread)
        if self._begins:
            self.site.begin()
        log.info("started management listener", address=self.url)

    def _run(self, listening: socket.socket) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.get_loop().set_exception_handler(complain)
            runner.run(self._uvicorn.serve(sockets=[listening]))

    @property
    def url(self) -> str:
        """The base URL, http://HOST:PORT or https."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self._scheme}://{host}:{self.port}"

    def close(self) -> None:
        """Finish running requests and stop listening."""
        if self._uvicorn.should_exit:
            return
        self._uvicorn.should_exit = True
        self._thread.join()
        self._application.close()
        self.site.listeners.remove(address := (self._scheme, self.host, self.port))
        self.site.secured.pop(address, None)
        if self._begins:
            self.site.end()
        log.info("stopped management listener", address=self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def manage(
    server: AmqpServer,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    sock: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
    site: Site | None = None,
) -> ManagementServer:
    """Serve the management API of an AMQP server; port 0 chooses a free one.  CallerError when the address cannot be used.

    With `sock`, a listening socket, host and port are those of it.  `site` is that of another listener of the
    same server, which is to be closed after this one.
    """
    return ManagementServer(server, host, port, sock, tls, site)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family)
    except OSError as why:
        reason = why.strerror if isinstance(why, socket.gaierror) else os.strerror(why.errno or 0)
        raise CallerError(f"cannot listen on {host}:{port}: {reason}.") from why
    except UnicodeError as why:
        raise CallerError(f"cannot listen on {host}:{port}: no host can have this name.") from why
