"""Messages to a connection process from sockets and from its server; those from its channels are in channel/context.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Received:
    """io -> connection: bytes have come."""

    data: bytes


@dataclass(slots=True)
class Disconnected:
    """io -> connection: the socket is closed."""

    reason: str


@dataclass(slots=True)
class ForceClose:
    """Server -> connection: end in good order (rabbit_reader:shutdown)."""

    explanation: str
