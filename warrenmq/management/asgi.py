"""The ASGI application of the HTTP API: reads requests within limits, authenticates users, and runs handlers in threads.

Mistakes of clients, and the answers to them (one sentence in the body; nothing is changed):

| what comes                                         | answer                                              |
| -------------------------------------------------- | --------------------------------------------------- |
| a Host that is no name of this machine, on loopback| 421: a page in a browser tries to reach us by a name of its own |
| no credentials, wrong ones                         | 401, wrong ones after 0.3 s                         |
| a body above MOST_BODY, announced or not           | 413, and the connection is closed                   |
| a body that does not come within BODY_TIMEOUT      | 408, and the connection is closed                   |
| a path that is no ASCII, or longer than MOST_PATH  | 414                                                 |
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from warrenmq.amqp.access.users import Account
from warrenmq.log import Log
from warrenmq.management.errors import HttpError, not_authorised
from warrenmq.management.http import Reply, Request, Router, answer, error_reply, parse_query
from warrenmq.management.site import Site

MOST_BODY = 64 * 1024 * 1024
"""Bytes of the largest request: definitions of a large broker, or a message that is published."""
BODY_TIMEOUT = 30.0
"""Seconds that a body may take."""
MOST_PATH = 8_192
FAILED_LOGIN = 0.3
"""Seconds before a refused login is answered."""
_WORKERS = 8
LOCAL_NAMES = frozenset(("localhost", "localhost.localdomain", "ip6-localhost"))

log = Log("warrenmq.management")


class Application:
    """An ASGI application; `close` ends its threads."""

    def __init__(self, site: Site, router: Router, *, loopback_only: bool, names: Iterable[str] = ()) -> None:
        """`loopback_only`: accept only host names of the loopback, and `names`."""
        self._site = site
        self._router = router
        self._hosts = LOCAL_NAMES | {name.lower() for name in names} if loopback_only else None
        self._threads = ThreadPoolExecutor(_WORKERS, "warrenmq-http")

    def close(self) -> None:
        """Wait for running handlers."""
        self._threads.shutdown()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        close = False
        try:
            reply = await self._reply(scope, receive)
        except HttpError as error:
            reply = error_reply(error)
            close = error.status in {408, 413, 414}
        except Exception:
            log.exception("an HTTP request failed", method=scope["method"], path=scope["path"])
            reply = error_reply(HttpError(500, "internal_error", "a defect of the server; its log has more"))
        headers = [(b"content-type", reply.content_type.encode()), (b"cache-control", b"no-cache")]
        headers += [(name.encode(), value.encode()) for name, value in reply.headers]
        if reply.status != 204:
            headers.append((b"content-length", str(len(reply.body)).encode()))
        if close:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else reply.body
        await send({"type": "http.response.body", "body": body})

    async def _reply(self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]]) -> Reply:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self._check_host(headers.get("host", ""))
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        if len(raw) > MOST_PATH or not raw.isascii():
            raise HttpError(414, "bad_request", f"a path has up to {MOST_PATH} characters of ASCII")
        path = raw.decode()
        route, at = self._router.find(scope["method"], path)
        user = None
        if route.tag:
            peer = scope.get("client") or ("", 0)
            user = await self._user(headers.get("authorization", ""), str(peer[0]))
        if int(_digits(headers.get("content-length", "0"))) > MOST_BODY:
            raise _too_large()
        body = await _body(receive)
        query = parse_query(scope["query_string"].decode("latin-1"))
        request = Request(scope["method"], path, query, body, user, at)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, answer, self._site, route, request)

    def _check_host(self, host: str) -> None:
        if self._hosts is None:
            return
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]").lower()
        if name in self._hosts or _is_address(name):
            return
        reason = (
            "this server listens on the loopback, and the Host of the request is no name of it; use localhost"
        )
        raise HttpError(421, "bad_request", reason)

    async def _user(self, authorization: str, peer: str) -> Account:
        if not authorization:
            raise not_authorised("Login failed")
        try:
            return self._site.log_in(*credentials(authorization), peer)
        except HttpError:
            await asyncio.sleep(FAILED_LOGIN)
            raise


def credentials(authorization: str) -> tuple[str, bytes]:
    """Parse name and password of a Basic authorization.  HttpError 401 for anything else."""
    scheme, _, token = authorization.partition(" ")
    try:
        if scheme.lower() != "basic":
            raise ValueError(scheme)
        name, colon, password = base64.b64decode(token.strip(), validate=True).partition(b":")
        if not colon:
            raise ValueError(colon)
    except (ValueError, binascii.Error):
        raise not_authorised("Login failed") from None
    return name.decode(errors="replace"), password


async def _body(receive: Callable[[], Awaitable[Any]]) -> bytes:
    """Read the whole request body.  HttpError 413, 408."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpError(400, "bad_request", "the request ended before its body did")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MOST_BODY:
                    raise _too_large()
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise HttpError(
            408, "request_timeout", f"the body did not come within {BODY_TIMEOUT:.0f} s"
        ) from None


def _too_large() -> HttpError:
    return HttpError(413, "bad_request", f"a request has up to {MOST_BODY} bytes")


def _digits(text: str) -> str:
    return text if text.isascii() and text.isdigit() and len(text) < 19 else str(MOST_BODY + 1)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
