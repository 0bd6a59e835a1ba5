"""Arguments that `publish` and `consume` share: the queue, and where it is."""

from __future__ import annotations

from typing import Any


def add_endpoint(parser: Any, *, data: str) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="the name of the queue")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", metavar="DIR", help=f"a data directory that no broker has open; {data}")
    where.add_argument(
        "--url",
        metavar="URL",
        help="a running broker, RabbitMQ or `warrenmq serve`: amqp://USER:PASSWORD@HOST:PORT/VHOST",
    )
