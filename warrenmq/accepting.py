"""Listening sockets of asyncio that accept one connection in a turn of the loop.

asyncio accepts as many in a turn as may wait for it, and where descriptors or memory have run out it fails,
complains, and sets a timer to try again as many times: with 1,024 that fills a log at 20,000 lines a second,
and takes the processor.  So it is told of one, and the system of all: then there is one complaint a second,
until there is room.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from typing import Any

from warrenmq.log import Log

log = Log("warrenmq.amqp")

ONE = 1
"""The backlog for asyncio, in place of the one that `may_wait` gives to the system."""


async def may_wait(made: Coroutine[Any, Any, asyncio.Server], backlog: int) -> asyncio.Server:
    """Make a server whose backlog is ONE, and let so many connections wait to be accepted by it."""
    server = await made
    try:
        for each in server.sockets:
            with socket.socket(fileno=os.dup(each.fileno())) as same:
                same.listen(backlog)
    except OSError:
        server.close()
        raise
    return server


def complain(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that a socket loop reports, in one line (its exception handler)."""
    log.warning("socket trouble", what=context.get("message", ""), reason=repr(context.get("exception")))
