"""Recognises a RabbitMQ node's data directory, which a broker of ours must not open: the layout is the same, but its queues
are not declared here, so every one would go to the quarantine.

Looks only, and only at names:

| in a vhost's folder (3.6: in the node's)  | the directory was counted or owned by us | it is         |
| ----------------------------------------- | ---------------------------------------- | ------------- |
| definitions.log                           | any                                      | ours          |
| recovery.dets                             | any                                      | RabbitMQ's    |
| message files or folders of queues        | no                                       | RabbitMQ's    |
| message files or folders of queues        | yes                                      | ours, damaged |
| nothing of these                          | any                                      | nobody's yet  |

RabbitMQ makes recovery.dets at every start; only parts of its directories have none, and they have no rabbit_serial either.
"""

from __future__ import annotations

from warrenmq.directory.owner_lock import FILE_NAME
from warrenmq.errors import PreconditionFailed
from warrenmq.seams.disk import Disk

_MESSAGE_FILES = (".rdq", ".rdt")
"""Endings of a message store's files: those in use, and RabbitMQ's temporary ones (message_store/rdq.py)."""


def refuse_rabbitmqs(disk: Disk, path: str) -> None:
    """Raise PreconditionFailed for a directory that a RabbitMQ wrote, before anything in it is touched."""
    if not disk.is_dir(path):
        return
    owned = disk.exists(f"{path}/{FILE_NAME}") or disk.exists(f"{path}/rabbit_serial")
    vhosts = f"{path}/msg_stores/vhosts"
    for folder in (path, *(f"{vhosts}/{name}" for name in disk.listdir(vhosts))):
        if disk.is_dir(folder) and is_rabbitmqs(disk, folder, owned=owned):
            msg = (
                f"{path} was written by RabbitMQ, so it was not opened and nothing in it was changed; "
                f"move its messages with: warrenmq recover {path} --to DIR"
            )
            raise PreconditionFailed(msg)


def is_rabbitmqs(disk: Disk, folder: str, *, owned: bool) -> bool:
    """One row of the table for a vhost's folder; `owned`: the data directory has been one of ours."""
    names = disk.listdir(folder)
    if "definitions.log" in names:
        return False
    if "recovery.dets" in names:
        return True
    if owned:
        return False
    queues = f"{folder}/queues"
    stored = (
        name
        for store in ("msg_store_persistent", "msg_store_transient")
        if store in names
        for name in disk.listdir(f"{folder}/{store}")
    )
    return any(disk.is_dir(f"{queues}/{name}") for name in disk.listdir(queues)) or any(
        name.endswith(_MESSAGE_FILES) for name in stored
    )
