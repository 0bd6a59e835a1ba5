"""The protocol of a socket, as connections and channels use it.

The sockets of amqp/net/io.py are one such Transport, tests have others.  `write` and `writable` may be called from any
thread, and nothing here waits.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Peer(NamedTuple):
    """Both ends of a connection."""

    host: str
    port: int
    local_host: str
    local_port: int
    loopback: bool
    """Neither end leaves this machine."""
    tls: str = ""
    """The version of TLS, empty without it."""
    process: int | None = None
    """The client's process id on the directory's own socket, 0 where the system does not tell; None over TCP."""

    def __str__(self) -> str:
        if self.process is not None:
            return f"process {self.process} -> {self.local_host}"
        return f"{self.host}:{self.port} -> {self.local_host}:{self.local_port}"


class Transport(Protocol):
    """One socket."""

    peer: Peer
    written: int
    """Bytes given to `write` so far."""

    def write(self, data: bytes) -> None:
        """Send bytes, behind those written before.  Does nothing once the socket is closed."""

    def writable(self) -> bool:
        """True if fewer bytes than the high-water mark wait to be sent.

        A sender that sees False, and has more to send than answers, waits for the connection's Writable.
        """

    def overfull(self) -> bool:
        """True if so much waits to be sent that no further request should be handled: the peer does not read its answers.

        A channel that sees True waits for the connection's Writable.
        """

    def pause_reading(self) -> None:
        """Stop reading, so that TCP's window slows the peer."""

    def resume_reading(self) -> None:
        """Read the socket again."""

    def handled(self, size: int) -> None:
        """Report that `size` received bytes have been handled, which makes room for more."""

    def close(self) -> None:
        """Close after everything written was sent, or after a few seconds."""

    def abort(self) -> None:
        """Close the socket at once."""
