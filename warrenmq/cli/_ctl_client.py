"""A client of the management API, of `warrenmq serve` or of RabbitMQ, for `warrenmq ctl`."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from warrenmq.errors import AccessRefused, CallerError, NotFound

TIMEOUT = 60.0
"""Seconds that an answer may take."""
PORTS = {"http": 15672, "https": 15671}


class Api:
    """One API; each call is a connection of its own."""

    def __init__(self, url: str) -> None:
        """`url` is http(s)://USER:PASSWORD@HOST:PORT; CallerError for anything else."""
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS[parts.scheme]
            (parts.hostname or "").encode("idna")
        except (ValueError, KeyError):
            port = 0
        if not port or not parts.hostname:
            shown = re.sub(r"(?<=://)[^@/]*@", "...@", url)  # a password must not be shown
            msg = f"{shown} is no address of a management API; give http://USER:PASSWORD@HOST:PORT."
            raise CallerError(msg)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode(),
            "Content-Type": "application/json",
        }
        self.user = user

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer, decoded.  NotFound, AccessRefused, CallerError for what the server refuses
        or does not answer.
        """
        where = f"{self._host}:{self._port}"
        if self._secure:
            context = ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=TIMEOUT, context=context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, f"/api/{path}", data, self._headers)
            response = connection.getresponse()
            read = response.read()
        except (OSError, http.client.HTTPException) as why:
            reason = getattr(why, "strerror", None) or str(why) or type(why).__name__
            msg = f"there is no management API at {where}: {reason}; start the server with --management."
            raise CallerError(msg) from why
        finally:
            connection.close()
        try:
            value = json.loads(read) if read else None
        except ValueError:
            raise CallerError(f"{where} is no management API: its answer to {path} is no JSON.") from None
        if response.status < 300:
            return value
        reason = value.get("reason", "") if isinstance(value, dict) else ""
        words = f"{reason or response.reason}".strip().replace("\n\n", ": ")
        if response.status == 401:
            raise AccessRefused(f"user {self.user!r} is refused: {words}.")
        if response.status == 404:
            raise NotFound(f"there is no such thing at {where}: {' '.join(map(unquote, path.split('/')))}.")
        raise CallerError(f"refused: {words}.")


def path(*names: str) -> str:
    """Names as a path."""
    return "/".join(quote(name, safe="") for name in names)
