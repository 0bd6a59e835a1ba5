"""RabbitMQ's management HTTP API and Prometheus page of an AMQP server (rabbitmq_management, rabbitmq_prometheus).

`manage` of server.py needs uvicorn (the extra `management`); definitions and policies are read without it.
"""

from __future__ import annotations

from typing import Any

from warrenmq.management.server import ManagementServer, manage

__all__ = ["ManagementServer", "manage"]


def __getattr__(name: str) -> Any:
    """Import the HTTP server when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from warrenmq.management import server  # noqa: PLC0415

    return getattr(server, name)
