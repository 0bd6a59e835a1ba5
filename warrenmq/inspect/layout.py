"""Recognises a directory: a node's, a vhost's, one queue's or one store's, written by RabbitMQ or by us.

    up to 3.6    <node>/queues/<X>/, <node>/msg_store_persistent/, <node>/recovery.dets
    from 3.7     <node>/msg_stores/vhosts/<V>/{.vhost, .config, recovery.dets, queues/<X>/, msg_store_persistent/, ...}
    ours         as from 3.7, with definitions.log beside .vhost

A node of 3.6 is read as a vhost whose name is unknown: its queues say whose they are, if anything does.  A queue's
directory brings along its vhost's, for the store beside it; so does a store's, for the queues that refer to it.

Source: rabbit_vhost:dir, docs/reference/classic-queue.md#directories-and-file-names,
docs/reference/message-store.md#directories-and-files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from warrenmq.directory.definitions import Declared, QueueRecord
from warrenmq.directory.layout import QUEUE_NAME, VHOSTS, queue_folder, read_segment_entry_count, vhost_folder
from warrenmq.directory.owner_lock import FILE_NAME as OWNER
from warrenmq.errors import CallerError
from warrenmq.inspect import queue_names
from warrenmq.inspect.reading import Findings, file_sizes
from warrenmq.settings import Settings
from warrenmq.vhost.queue_folders import (
    DEFINITION,
    Fate,
    QueueName,
    fate_of_named,
    folders_of,
    name_of_folder,
    names_of_folders,
    never_used,
    only_a_name,
    parse,
    records_of,
)
from warrenmq.vhost.unknown_folders import DECLARED_AGAIN, FOLDER_GONE

STORES = ("msg_store_persistent", "msg_store_transient")
PERSISTENT, TRANSIENT = STORES
_ENTRIES_BEFORE_3_9 = 16384
"""A segment's entries where no .config says otherwise."""
RABBITMQ_TERMS = "recovery.dets"
"""The file of recovery terms, which RabbitMQ makes at every start."""
_INDEX_EXTENSIONS = (".idx", ".qi", ".qs")
_MNESIA_TABLES = (
    "rabbit_durable_queue.DCD",
    "rabbit_durable_queue.DCL",
    "rabbit_durable_queue.DCL.TMP",
    "LATEST.LOG",
)


@dataclass(slots=True)
class QueueFolder:
    """One queue, or one priority of one."""

    path: str
    vhost: str | None = None
    name: str | None = None
    priority: int | None = None
    version: int = 1
    durable: bool | None = None
    """None if it cannot be seen on the disk."""
    arguments: dict[str, Any] = field(default_factory=dict)
    undeclared: QueueName | None = None
    """The queue's name as its folder has it, if definitions.log does not declare it though it should; a start
    declares it again.
    """


@dataclass(slots=True)
class Vhost:
    """One virtual host's folder: queues and the stores that they share."""

    path: str
    name: str | None = None
    entry_count: int = _ENTRIES_BEFORE_3_9
    queues: list[QueueFolder] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    """Paths."""
    ours: bool = False


@dataclass(slots=True)
class Layout:
    """A directory that was recognised."""

    kind: str
    """node, vhost, queue or store."""
    vhosts: list[Vhost]
    only: str | None = None
    """The one queue's or store's path, where not all is asked for."""


def recognise(findings: Findings) -> Layout:
    """Recognise the root of the findings.  Raises CallerError when it is no data directory."""
    root = findings.root
    if not os.path.isdir(root):
        raise CallerError(f"{root} is not a directory.")
    names = findings.names(root)
    for below in (VHOSTS, "vhosts", "."):
        folders = [f"{root}/{below}/{name}" for name in findings.names(f"{root}/{below}")]
        vhosts = [path for path in folders if os.path.basename(below) == "vhosts" and os.path.isdir(path)]
        vhosts = vhosts or [path for path in folders if os.path.exists(f"{path}/.vhost")]
        if vhosts:
            # left behind by an upgrade from 3.6
            old = [root] if below == VHOSTS and "queues" in names else []
            return Layout("node", [_vhost(findings, os.path.normpath(path), root) for path in vhosts + old])
    if _is_queue(names):
        folder = os.path.realpath(root)
        return Layout("queue", [_vhost_of(findings, folder)], only=root)
    if _is_store(root, names):
        folder = os.path.realpath(root)
        return Layout("store", [_vhost_of(findings, folder)], only=root)
    if any(name in names for name in ("queues", ".vhost", *STORES)):
        kind = "vhost" if ".vhost" in names else "node"
        return Layout(kind, [_vhost(findings, root, _node_of(root))])
    if any(name in names for name in ("warrenmq.owner", "rabbit_serial", "msg_stores")):
        return Layout("node", [])
    os.listdir(root)  # raises why there are no names, if it may not be looked into
    raise CallerError(
        f"{root} is no data directory: it has neither msg_stores nor queues, and is no queue's or store's own directory."
    )


def _is_queue(names: list[str]) -> bool:
    return any(name in {QUEUE_NAME, "journal.jif"} or name.endswith(_INDEX_EXTENSIONS) for name in names)


def _is_store(path: str, names: list[str]) -> bool:
    return os.path.basename(os.path.realpath(path)) in STORES or any(
        name.endswith((".rdq", ".rdt")) for name in names
    )


def _node_of(vhost: str) -> str:
    """<node>/msg_stores/vhosts/<V> -> <node>."""
    path = os.path.realpath(vhost)
    above = os.path.dirname(path)
    return os.path.dirname(os.path.dirname(above)) if above.endswith(VHOSTS) else path


def _vhost_of(findings: Findings, folder: str) -> Vhost:
    """The vhost that one queue or one store lies in, with only itself where nothing is around it."""
    root = findings.root
    parent = os.path.dirname(folder)
    inside = os.path.dirname(parent) if os.path.basename(parent) == "queues" else parent
    names = findings.names(inside)
    if "queues" in names or any(name in names for name in STORES):
        found = _vhost(findings, inside, _node_of(inside))
    else:
        found = Vhost(inside)
    if _is_store(folder, findings.names(folder)):
        found.stores = [
            root if os.path.basename(path) == os.path.basename(folder) else path for path in found.stores
        ]
        if root not in found.stores:
            found.stores.append(root)
        return found
    mine = [each for each in found.queues if os.path.basename(each.path) == os.path.basename(folder)]
    if mine:
        mine[0].path = root
    else:
        found.queues.append(_queue(findings, root, found.name, []))
    return found


def _vhost(findings: Findings, path: str, node: str) -> Vhost:
    found = Vhost(path, _vhost_name(findings, path))
    config = findings.read(f"{path}/.config")
    if config is not None:
        entry_count = read_segment_entry_count(config)
        if entry_count is None:
            findings.note(f"{path}/.config", 0, "it does not tell the segment_entry_count")
        found.entry_count = entry_count or Settings().queue_index_segment_entry_count
    found.stores = [f"{path}/{name}" for name in STORES if os.path.isdir(f"{path}/{name}")]
    definitions = findings.read(f"{path}/definitions.log")
    found.ours = definitions is not None or _was_ours(findings, path, node)
    declared = Declared()
    damaged = declared.replay(definitions or b"")
    for damage in damaged:
        findings.note(f"{path}/definitions.log", damage.offset, damage.reason)
    if found.ours and definitions is None:
        findings.note(f"{path}/definitions.log", 0, "it is gone")
    queues = declared.queues
    tables = [findings.read(f"{node}/{name}") or b"" for name in _MNESIA_TABLES]
    known = [each for table in tables for each in queue_names.known_to_mnesia(table)]
    known += [(found.name or "/", name) for name in queues]
    # the same name may be known to vhosts of other nodes; only the hash decides
    folders = [
        f"{path}/queues/{each}"
        for each in findings.names(f"{path}/queues")
        if os.path.isdir(f"{path}/queues/{each}")
    ]
    found.queues = [_queue(findings, each, found.name, list(dict.fromkeys(known))) for each in folders]
    if found.ours:
        whole = definitions is not None and not damaged
        _name_undeclared(findings, found, declared)
        found.queues = [
            each for each in found.queues if _is_kept(findings, found, each, declared, whole=whole)
        ]
        for name in queues.keys() - {each.name for each in found.queues}:
            if name in declared.with_folder:
                findings.note(f"{path}/definitions.log", 0, FOLDER_GONE.format(name))
            else:
                found.queues += _never_used(path, found.name or "/", queues[name])
    if any(tables):
        for queue in found.queues:
            queue.durable = (queue.vhost, queue.name) in known if queue.name is not None else None
    found.queues.sort(key=_order_of_delivery)
    return found


def _was_ours(findings: Findings, path: str, node: str) -> bool:
    """True if a virtual host without definitions.log is one of ours that lost it."""
    if RABBITMQ_TERMS in findings.names(path):
        return False
    queues = f"{path}/queues"
    return os.path.exists(f"{node}/{OWNER}") or any(
        os.path.exists(f"{queues}/{each}/{DEFINITION}") for each in findings.names(queues)
    )


def _vhost_name(findings: Findings, path: str) -> str | None:
    """The name in `.vhost`, or if the file is damaged the known name whose hash is the folder's name."""
    text = findings.read(f"{path}/.vhost")
    name = text.decode(errors="replace") if text else None
    folder = os.path.realpath(path)
    if text is None or os.path.basename(os.path.dirname(folder)) != "vhosts":
        return name
    if name is not None and vhost_folder(name) == os.path.basename(folder):
        return name
    findings.note(f"{path}/.vhost", 0, "it does not tell the name of the virtual host whose folder this is")
    told = [
        parse(findings.read(f"{path}/queues/{each}/{QUEUE_NAME}") or b"")
        for each in findings.names(f"{path}/queues")
    ]
    candidates = ["/", *(each.vhost for each in told if each is not None)]
    return next((each for each in candidates if vhost_folder(each) == os.path.basename(folder)), None)


def _queue(findings: Findings, path: str, vhost: str | None, known: list[tuple[str, str]]) -> QueueFolder:
    names = findings.names(path)
    folder = os.path.realpath(path)
    text = findings.read(f"{path}/{QUEUE_NAME}")
    name = said = parse(text) if text is not None else None
    wrong = text is not None and said is None
    if os.path.basename(os.path.dirname(folder)) == "queues":  # else its name is unknown
        host = vhost if vhost is not None or said is None else said.vhost
        hashed = os.path.basename(folder)
        name = name_of_folder(hashed, host or "/", text, findings.read(f"{path}/{DEFINITION}"))
        name = name or queue_names.find(hashed, known) or said
        wrong |= said is not None and queue_folder(said.vhost, said.name, said.priority) != hashed
    if wrong:
        findings.note(
            f"{path}/{QUEUE_NAME}", 0, "it does not tell the name of the queue whose folder this is"
        )
    version = 2 if any(each.endswith((".qi", ".qs")) for each in names) else 1
    if name is None:
        return QueueFolder(path, vhost, version=version)
    if name.version is not None and not any(each.endswith(".idx") for each in names):
        version = name.version
    return QueueFolder(path, name.vhost, name.name, name.priority, version)


def _never_used(path: str, vhost: str, record: QueueRecord) -> list[QueueFolder]:
    """The folders that a declared queue gets when it is first used; empty ones are listed, missing ones are no damage."""
    most = record.arguments.get("x-max-priority")
    priorities = [None] if most is None else range(most + 1)
    folders = [f"{path}/queues/{queue_folder(vhost, record.name, each)}" for each in priorities]
    return [
        QueueFolder(folder, vhost, record.name, priority, 2, record.durable, record.arguments)
        for folder, priority in zip(folders, priorities, strict=True)
    ]


def _name_undeclared(findings: Findings, vhost: Vhost, declared: Declared) -> None:
    """Name our own folders of undeclared queues as a start names them."""
    unknown = {
        os.path.basename(os.path.realpath(each.path)): each
        for each in vhost.queues
        if each.name not in declared.queues
    }
    files = {
        folder: (findings.read(f"{queue.path}/{QUEUE_NAME}"), findings.read(f"{queue.path}/{DEFINITION}"))
        for folder, queue in unknown.items()
    }
    for folder, name in names_of_folders(vhost.name or "/", files).items():
        queue = unknown[folder]
        queue.undeclared = name
        queue.vhost, queue.name, queue.priority = name[:3]


def _is_kept(
    findings: Findings, vhost: Vhost, queue: QueueFolder, declared: Declared, *, whole: bool
) -> bool:
    """True if a start keeps a folder of ours; fills in what is declared, and notes a queue that is declared again."""
    folder = os.path.basename(os.path.realpath(queue.path))
    record = declared.queues.get(queue.name) if queue.name is not None else None
    if record is not None:
        queue.durable, queue.arguments = record.durable, record.arguments
        return True
    told = queue.undeclared
    if told is None:
        deleted = whole and folder in folders_of(vhost.name or "/", declared.gone)
        # an empty one was made for a transient queue
        return bool(findings.names(queue.path)) and not deleted
    sizes = file_sizes(findings, queue.path)
    fate = fate_of_named(
        deleted=declared.deletes(told.name, told.record),
        only_a_name=only_a_name(sizes, told),
        log_is_whole=whole,
    )
    if fate is Fate.REMOVED:
        return False
    (again,) = records_of([told])
    queue.durable, queue.arguments = True, again.arguments
    if not whole or not never_used(sizes):
        findings.note(f"{vhost.path}/definitions.log", 0, DECLARED_AGAIN.format(again.name))
    return True


def _order_of_delivery(queue: QueueFolder) -> tuple[bool, str, str, int, str]:
    """The sort key of queue folders: by name, the highest priority first; folders without a name come last."""
    return (queue.name is None, queue.vhost or "", queue.name or "", -(queue.priority or 0), queue.path)
