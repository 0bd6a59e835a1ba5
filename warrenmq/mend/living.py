"""Refuse to move or mend a directory that a broker is using.

Ours are asked for by the owner's lock.  RabbitMQ locks nothing, but leaves its process id beside the node's directory or
in it (RABBITMQ_PID_FILE: <node>.pid), and that process is an Erlang virtual machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from warrenmq.errors import PreconditionFailed


def node_of(path: str) -> str:
    """The data directory that a vhost's, queue's or store's folder belongs to; the path itself when it has none above."""
    path = os.path.realpath(path)
    head, vhosts, _ = path.rpartition("/msg_stores/vhosts/")
    if vhosts:
        return head
    parent, folder = os.path.split(path)
    if os.path.basename(parent) == "queues":  # 3.6
        return os.path.dirname(parent)
    return parent if folder in {"msg_store_persistent", "msg_store_transient"} else path


def refuse_living_rabbitmq(node: str) -> None:
    """Raise PreconditionFailed if the node of this directory still runs, as far as that can be seen."""
    for path in _pid_files(node):
        pid = _pid(path)
        if pid is not None and _is_erlang(pid):
            msg = f"{node} is in use by RabbitMQ, process {pid} ({path}); stop that broker first"
            raise PreconditionFailed(msg)


def _pid_files(node: str) -> Iterator[str]:
    yield f"{node}.pid"
    try:
        names = os.listdir(node)
    except OSError:
        return
    yield from (f"{node}/{name}" for name in sorted(names) if name.endswith(".pid"))


def _pid(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            match = re.match(r"\s*(\d+)", file.read(40))
    except OSError:
        return None
    return int(match[1]) if match else None


def _is_erlang(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return "beam" in file.read(40)
    except OSError:
        return False
