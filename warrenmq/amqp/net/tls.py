"""The TLS handshake of an accepted socket: it ends with the protocol that is served, or with one line in the log.

asyncio's own (`create_server(ssl=...)`) says nothing of a handshake that fails, so that who gave a client the
wrong authority finds no trace of it at the server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from warrenmq.log import Log

TLS_HANDSHAKE = 10.0
"""Seconds that a client has for its handshake."""


class Handshake(asyncio.Protocol):
    """Protocol of a socket whose handshake is under way: first of the plain one, then of what it carries,
    until `served` takes over.
    """

    def __init__(self, context: ssl.SSLContext, served: Callable[[], asyncio.BaseProtocol], log: Log) -> None:
        """`served` makes the protocol of a socket that is secured; `log` takes the line of a handshake that failed."""
        self._context = context
        self._served = served
        self._log = log
        self._early: list[bytes] = []
        """Bytes that the client sent right behind its handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        plain.pause_reading()  # what comes is TLS's
        # The loop keeps tasks by weak references: this one is kept by the protocol, and that by its transport.
        self._task = asyncio.get_running_loop().create_task(self._secure(plain))

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    async def _secure(self, plain: asyncio.Transport) -> None:
        address: Any = plain.get_extra_info("peername")
        try:
            transport = await asyncio.get_running_loop().start_tls(
                plain, self, self._context, server_side=True, ssl_handshake_timeout=TLS_HANDSHAKE
            )
        except OSError as why:
            peer = f"{address[0]}:{address[1]}" if address else "unknown"
            # a probe of the port is no one's mistake
            tell = self._log.info if isinstance(why, ConnectionResetError) else self._log.warning
            tell("the TLS handshake failed", peer=peer, reason=_reason(why))
            return
        if transport is None:  # the client has gone already
            return
        protocol = cast("asyncio.Protocol", self._served())
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        for data in self._early:
            protocol.data_received(data)


def _reason(why: OSError) -> str:
    """A sentence of what went wrong, without the file of OpenSSL that found it."""
    if isinstance(why, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {why.verify_message}"
    if isinstance(why, ssl.SSLError) and why.reason:
        return _MEANINGS.get(why.reason, why.reason.replace("_", " ").lower())
    if isinstance(why, ConnectionAbortedError):
        return f"it was not over after {TLS_HANDSHAKE:.0f} s"
    return "the client closed the socket"


NO_TLS = "the client does not speak TLS; is this the port that it means?"
_MEANINGS = {
    "WRONG_VERSION_NUMBER": NO_TLS,
    "HTTP_REQUEST": NO_TLS,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, which this listener demands",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority that signed this server's certificate",
}
"""The commonest reasons of OpenSSL, in words that say whose they are."""
