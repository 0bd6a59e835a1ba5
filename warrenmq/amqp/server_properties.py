"""What the server says about itself in connection.start (rabbit_reader:server_properties).

Clients switch features on by the capabilities.  Product and version are our own.
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


def server_properties() -> dict[str, Any]:
    """A table for connection.start."""
    return {
        "capabilities": dict.fromkeys(CAPABILITIES, True),
        "cluster_name": f"warrenmq@{platform.node()}",
        "copyright": "The authors of warrenmq",
        "information": "Licensed under the Apache License 2.0",
        "platform": f"{platform.python_implementation()} {platform.python_version()}",
        "product": "warrenmq",
        "version": _version(),
    }


def _version() -> str:
    try:
        return version("warrenmq")
    except PackageNotFoundError:  # run from a checkout
        return "0.1.0"
