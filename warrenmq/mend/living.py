"""Refuse to move or mend a directory that a broker is using.

Ours are asked for by the owner's lock.  RabbitMQ locks nothing, but leaves its process id beside the node's directory or
in it (RABBITMQ_PID_FILE: <node>.pid), and that process is an Erlang virtual machine.  Other commands are kept out of
its directory by a lock on the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from warrenmq.commit_log.disk import EXTENSIONS as LOGGED
from warrenmq.commit_log.disk import remove_log
from warrenmq.directory.owner_lock import FILE_NAME as OWNER
from warrenmq.directory.owner_lock import FolderLock, OwnerLock, ReaderLock
from warrenmq.errors import PreconditionFailed
from warrenmq.message_store.rdq import RABBITMQ_TEMPORARY
from warrenmq.queue_index.v1.segment import EXTENSION as SEGMENT
from warrenmq.seams.disk import Disk


def node_of(path: str) -> str:
    """The data directory that a vhost's, queue's or store's folder, or one between, belongs to; the path itself when it
    has none above.

    A part of it may be elsewhere, behind a symbolic link: then it is the directory with an owner that the path goes through.
    """
    real, named = _node_above(os.path.realpath(path)), _node_above(os.path.abspath(path))
    owned = os.path.exists(f"{named}/{OWNER}") and not os.path.exists(f"{real}/{OWNER}")
    return os.path.realpath(named) if owned else real


def _node_above(path: str) -> str:
    head, vhosts, _ = f"{path}/".rpartition("/msg_stores/vhosts/")
    if vhosts:
        return head
    parent, folder = os.path.split(path)
    if folder == "msg_stores":
        return parent
    if os.path.basename(parent) == "queues":  # 3.6
        return os.path.dirname(parent)
    return parent if folder in {"msg_store_persistent", "msg_store_transient"} else path


@contextmanager
def held(node: str, disk: Disk, *, changes: bool) -> Iterator[bool]:
    """Hold a directory whose broker does not run; yields whether it is a broker's of ours.  DirectoryInUse,
    PreconditionFailed.

    If it is to be changed, what its log holds is in its files then; who only reads applies the log while reading.
    """
    owned = os.path.exists(f"{node}/{OWNER}")
    lock: OwnerLock | ReaderLock | FolderLock
    if not owned and os.path.isdir(node):
        lock = FolderLock(node, changes=changes)
    else:
        lock = OwnerLock(node) if owned and changes else ReaderLock(node)
    try:
        refuse_living_rabbitmq(node)
        if owned and changes:
            remove_log(disk, node)
        yield owned
    finally:
        lock.release()


def make_safe(disk: Disk, node: str) -> None:
    """Sync what is found in a directory before it is relied on: a broker, or a verb, may have been killed
    between a rename and its sync.
    """
    disk.sync_many([*_to_make_safe(disk, node)])


def _to_make_safe(disk: Disk, folder: str) -> Iterator[str]:
    """All folders, and the files that messages are in."""
    yield folder
    for name in disk.listdir(folder):
        path = f"{folder}/{name}"
        if name.endswith((*LOGGED, RABBITMQ_TEMPORARY, SEGMENT)):
            yield path
        elif disk.is_dir(path):
            yield from _to_make_safe(disk, path)


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
