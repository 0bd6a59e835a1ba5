"""systemd's two protocols for services: socket activation, and notifications (sd_notify).

sd_listen_fds(3)   LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES: open descriptors from 3 on, each with a name
sd_notify(3)       NOTIFY_SOCKET: datagrams such as READY=1 and STOPPING=1
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from warrenmq.errors import CallerError

FIRST = 3
"""The first descriptor that is handed over."""
NAMES = ("amqp", "amqps", "management")
"""FileDescriptorName= of a socket unit; a socket without one of ours is for AMQP."""


def inherited(environ: MutableMapping[str, str]) -> dict[str, list[socket.socket]]:
    """The listening sockets that systemd opened for this process, by name; the variables are taken out, so
    that no child takes them for its own.  CallerError for a descriptor that is no listening TCP socket.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdigit():
        return {}
    found: dict[str, list[socket.socket]] = {}
    for place in range(int(count)):
        name = names[place] if place < len(names) and names[place] in NAMES else NAMES[0]
        try:
            sock = socket.socket(fileno=FIRST + place)
            listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as why:
            msg = f"descriptor {FIRST + place}, which LISTEN_FDS names, is no socket: {why.strerror}."
            raise CallerError(msg) from why
        if not listening or sock.family not in (socket.AF_INET, socket.AF_INET6):
            sock.close()
            msg = f"descriptor {FIRST + place}, which LISTEN_FDS names, is no listening TCP socket; use ListenStream=."
            raise CallerError(msg)
        sock.set_inheritable(False)
        found.setdefault(name, []).append(sock)
    return found


def notify(state: str, address: str | None) -> None:
    """Tell the service manager at NOTIFY_SOCKET, if there is one; that it does not listen is no error."""
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.connect("\0" + address[1:] if address.startswith("@") else address)
            sock.sendall(state.encode())
        except OSError:
            return
