"""Inspect a directory while its owner runs: the calls of amqp/channel/rpc.py, over the directory's socket."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from warrenmq.amqp.net.local_socket import SOCKET
from warrenmq.directory.layout import VHOSTS
from warrenmq.errors import AccessRefused
from warrenmq.shared.calling import CallChannel
from warrenmq.shared.connection import ClientConnection
from warrenmq.shared.errors import LinkLost


class OwnerConnection:
    """A connection to the owner for one virtual host."""

    def __init__(self, directory: str, vhost: str) -> None:
        """Connect; LinkLost when no owner serves the directory's socket, AccessRefused for another virtual host."""
        self.vhost = vhost
        self._connection = ClientConnection(directory, vhost, lambda _ended: None, lambda _blocked: None)
        self._connection.open()
        self._channel = CallChannel(self._connection).open()

    def ask(self, call: str, **arguments: Any) -> Any:
        """Make a call; raises the error that the owner answers with."""
        return self._channel.ask(call, **arguments)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def looks(directory: str) -> Iterator[list[OwnerConnection]]:
    """The virtual hosts of a directory that its owner serves, by name; none when it has no owner that serves its socket."""
    found: list[OwnerConnection] = []
    try:
        if os.path.exists(os.path.join(directory, SOCKET)):
            for vhost in sorted(vhosts_in(directory)):
                # one that is not served, or a socket that was left over
                with suppress(AccessRefused, LinkLost):
                    found.append(OwnerConnection(directory, vhost))
        yield found
    finally:
        for each in found:
            each.close()


def vhosts_in(directory: str) -> Iterator[str]:
    """The names of the virtual hosts that have a folder in a directory."""
    for path in glob.glob(f"{glob.escape(directory)}/{VHOSTS}/*/.vhost"):
        with open(path, encoding="utf-8", errors="replace") as file:
            yield file.read()
