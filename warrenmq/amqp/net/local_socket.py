"""The socket in a data directory, over which its owner serves other processes of this machine.

A user who may open the directory may connect, and no other: the file has mode 0600 before anything listens on it.  The owner
of the directory's lock owns the socket, too, so a file that is found there when one starts is left over and is replaced.

The path of a Unix domain socket has room for about a hundred bytes.  A longer one is reached through a descriptor of the
directory, as /proc/self/fd/N/warrenmq.sock, where the system has that (Linux).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from warrenmq.errors import CallerError

SOCKET = "warrenmq.sock"
LONGEST_PATH = 103
"""Bytes of sun_path without its NUL on macOS; Linux has four more."""
_MODE = 0o600


@contextmanager
def usable_path(directory: str) -> Iterator[str]:
    """The path of the directory's socket, or another one that leads there and is short enough; usable inside the `with`.

    CallerError if nothing listens there, OSError when there is no such directory.
    """
    path = os.path.join(directory, SOCKET)
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        by_descriptor = f"/proc/self/fd/{descriptor}"
        if not os.path.exists(by_descriptor):
            raise CallerError(
                f"{path} is longer than the {LONGEST_PATH} bytes that a socket's path may have; "
                "use a shorter path, as by a symbolic link to the directory"
            )
        yield f"{by_descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def listen(directory: str, backlog: int) -> socket.socket:
    """A socket that accepts connections; for the owner of the directory.  OSError, CallerError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with usable_path(directory) as path:
            with suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
            os.chmod(path, _MODE)  # before `listen`: until then every connection is refused
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def remove(directory: str) -> None:
    """Remove the socket's file, before the directory's lock is given back."""
    with suppress(OSError):
        os.unlink(os.path.join(directory, SOCKET))


def connect(connection: socket.socket, directory: str) -> None:
    """Connect to the owner.  FileNotFoundError or ConnectionRefusedError when none listens; other OSErrors."""
    with usable_path(directory) as path:
        try:
            connection.connect(path)
        except PermissionError as why:  # the system's own does not say for what
            raise PermissionError(why.errno, why.strerror, os.path.join(directory, SOCKET)) from None


def process_of(connection: socket.socket) -> int:
    """The process at the other end; 0 where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder)
