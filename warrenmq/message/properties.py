"""AMQP 0-9-1's basic properties (class 60), as an application gives and gets them.

RabbitMQ has them as a `P_basic` record (rabbit_framing).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

TRANSIENT, PERSISTENT = 1, 2
"""Values of delivery_mode."""


@dataclass(frozen=True, slots=True)
class Properties:
    """AMQP 0-9-1's basic properties, in the order in which they are stored."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    """1 transient, 2 persistent."""
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    """Time to live in milliseconds, as a decimal string."""
    message_id: str | None = None
    timestamp: datetime | int | None = None
    """Seconds since 1970 where Python has no such date: beyond the year 9999."""
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None
