"""What a connection and its channels know of a socket.

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

    def __str__(self) -> str:
        return f"{self.host}:{self.port} -> {self.local_host}:{self.local_port}"


class Transport(Protocol):
    """One socket."""

    peer: Peer
    written: int
    """Bytes given to `write` so far."""

    def write(self, data: bytes) -> None:
        """Have bytes sent after all that was written before; nothing happens once it is closed."""

    def writable(self) -> bool:
        """Whether less waits to be sent than the high-water mark.

        Who sees False, and has more to send than answers, waits for the connection's Writable.
        """

    def overfull(self) -> bool:
        """Whether so much waits to be sent that nothing more should be asked for: the peer does not read its answers.

        Who sees True waits for the connection's Writable.
        """

    def pause_reading(self) -> None:
        """Let TCP hold the peer up."""

    def resume_reading(self) -> None:
        """Read again."""

    def handled(self, size: int) -> None:
        """So many bytes of what was received have been dealt with: there is room for more."""

    def close(self) -> None:
        """Close once everything that was written is sent, or has not been for some seconds."""

    def abort(self) -> None:
        """Close at once."""
