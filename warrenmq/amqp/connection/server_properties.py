"""The server's properties in connection.start (rabbit_reader:server_properties).

Clients switch features on by the capabilities, and some by product and version as well: kombu takes any product but
RabbitMQ for a broker whose basic.qos has the specification's per-channel meaning, and then never raises the prefetch count
of a Celery worker that holds more countdown tasks than that.  So product and version name the broker whose behaviour this
server has; `platform` and `information` say what it is.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
COMPATIBLE_WITH = ("RabbitMQ", "3.10.8")
"""The product and version whose protocol behaviour is served."""


def server_properties(product: str) -> dict[str, Any]:
    """The table of connection.start; `product` is the setting server_product.

    | server_product | product  | version       |
    | -------------- | -------- | ------------- |
    | RabbitMQ       | RabbitMQ | 3.10.8        |
    | warrenmq       | warrenmq | warrenmq's    |
    """
    ours = f"warrenmq {_version()}"
    served, served_version = COMPATIBLE_WITH if product == COMPATIBLE_WITH[0] else ("warrenmq", _version())
    return {
        "capabilities": dict.fromkeys(CAPABILITIES, True),
        "cluster_name": f"warrenmq@{platform.node()}",
        "copyright": "The authors of warrenmq",
        "information": f"{ours}, compatible with {' '.join(COMPATIBLE_WITH)}. Licensed under the Apache License 2.0",
        "platform": f"{ours} on {platform.python_implementation()} {platform.python_version()}",
        "product": served,
        "version": served_version,
    }


def _version() -> str:
    try:
        return version("warrenmq")
    except PackageNotFoundError:  # run from a checkout
        return "0.1.0"
