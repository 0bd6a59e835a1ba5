"""Folders of queues: whose they are, and what becomes of one whose queue is not declared.

A folder tells its queue when one of these files names a queue, and the folder's own name is the hash of that, or when it is
the hash of another priority of a queue that such a folder tells:

    .queue_name    VHOST: /
                   QUEUE: orders       a priority queue has a folder a priority; its name then ends in 00 and the priority
                   INDEX: v2           version 2 only
    .definition    the frame that declares the queue in definitions.log; a priority queue has it in its first folder

The second one is not RabbitMQ's: a queue that is declared again from it has its arguments.

That a log does not name a queue proves nothing: the log may be cut, and a cut at the end of a frame leaves no trace.  So a
folder goes only when something else proves that it is not needed:

    | a folder of no declared queue                                                | what becomes of it             |
    | ---------------------------------------------------------------------------- | ------------------------------ |
    | a frame of a log without damage says that its queue was deleted              | removed                        |
    | it tells its queue, and has anything but the queue's name, or the log is     | its queue is declared again    |
    | damaged                                                                      |                                |
    | it has nothing but the queue's name                                          | removed: it was being declared |
    | it tells no queue, and persistent messages are in it                         | it stays, and bodies that it   |
    |                                                                              | refers to stay                 |
    | it tells no queue, and bytes of its index make no sense                      | moved to the quarantine        |
    | it tells no queue, and nothing that outlives a start is in it                | removed: a transient queue's   |

A frame that a power cut tore at the log's end is no damage here: its change was not answered.  A queue that
was declared again has the next generation in its folder, too, so no cut of the log takes that for the deleted
one's.

Source: rabbit_queue_index:queue_dir, rabbit_priority_queue;
docs/reference/classic-queue.md#directories-and-file-names and #priority-queues.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple

from warrenmq.directory.definitions import Declared, QueueRecord, queue_frame
from warrenmq.directory.layout import QUEUE_NAME, queue_folder
from warrenmq.queue.arguments import MAX_PRIORITY
from warrenmq.seams.disk import Disk

DEFINITION = ".definition"
NAMING_FILES = (QUEUE_NAME, DEFINITION)
_OF_A_NAME = (QUEUE_NAME, QUEUE_NAME + ".tmp")
"""The second is what a process leaves that ends while it writes the first (`Disk.replace`)."""
_TEXT = re.compile(rb"VHOST: (.*)\nQUEUE: (.*?)\n(?:INDEX: v(\d)\n)?", re.DOTALL)


class QueueName(NamedTuple):
    """A queue, or one priority of it."""

    vhost: str
    name: str
    priority: int | None = None
    version: int | None = None
    """The version of the queue's index, where that is written down."""
    record: QueueRecord | None = None
    """The queue's declaration, where that is written down."""


def parse(text: bytes) -> QueueName | None:
    """The queue that the bytes of a `.queue_name` name; None if they make no sense."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    vhost, name, version = match.groups()
    priority = None
    if len(name) > 1 and name[-2] == 0:
        name, priority = name[:-2], name[-1]
    return QueueName(_text(vhost), _text(name), priority, int(version) if version else None)


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def name_of_folder(folder: str, vhost: str, text: bytes | None, definition: bytes | None) -> QueueName | None:
    """The name of a folder's queue, from the folder's `.queue_name` and `.definition`."""
    found = parse(text) if text is not None else None
    if found is not None and (
        found.vhost != vhost or queue_folder(vhost, found.name, found.priority) != folder
    ):
        found = None
    declared = Declared()
    declared.replay(definition or b"")
    for name, record in declared.queues.items():
        for priority in (None, 0):
            if queue_folder(vhost, name, priority) == folder:
                return (found or QueueName(vhost, name, priority))._replace(record=record)
    return found


def names_of_folders(
    vhost: str, files: Mapping[str, tuple[bytes | None, bytes | None]]
) -> dict[str, QueueName]:
    """The queues that folders of a vhost tell: their own names -> (`.queue_name`, `.definition`) of each.

    A folder that does not may belong to a priority of a queue that another one tells.
    """
    found = {
        folder: name
        for folder, texts in files.items()
        if (name := name_of_folder(folder, vhost, *texts)) is not None
    }
    if len(found) < len(files):
        for queue in {each.name for each in found.values() if each.priority is not None}:
            for priority in range(MAX_PRIORITY + 1):
                folder = queue_folder(vhost, queue, priority)
                if folder in files:
                    found.setdefault(folder, QueueName(vhost, queue, priority))
    return found


def folders_of(vhost: str, queues: Iterable[str]) -> set[str]:
    """The names of all folders that queues may have, with priorities and without."""
    priorities = (None, *range(MAX_PRIORITY + 1))
    return {queue_folder(vhost, queue, each) for queue in queues for each in priorities}


def keep_definition(disk: Disk, folder: str, record: QueueRecord) -> None:
    """Write a queue's declaration to its (first) folder as well.

    It matters only when definitions.log is damaged.  That of a queue whose name the log says is gone is
    synced: a log that is cut behind that would have its folder removed.
    """
    path, data = f"{folder}/{DEFINITION}", queue_frame(record)
    if disk.exists(path) and disk.read(path) == data:
        return
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append(data)
        if record.generation:
            file.datasync()
    finally:
        file.close()


def records_of(names: Iterable[QueueName]) -> list[QueueRecord]:
    """Declarations of the queues that folders tell, with no fewer priorities than there are folders for."""
    found: dict[str, QueueRecord] = {}
    for each in names:
        record = each.record or found.get(each.name) or QueueRecord(each.name)
        if each.priority is not None and each.priority >= record.arguments.get("x-max-priority", 0):
            record = replace(record, arguments={**record.arguments, "x-max-priority": each.priority})
        found[each.name] = record
    return list(found.values())


class Fate(Enum):
    """The decision on a folder of no declared queue."""

    REMOVED = auto()
    DECLARED_AGAIN = auto()
    KEPT = auto()
    SET_ASIDE = auto()


def fate_of_named(*, deleted: bool, only_a_name: bool, log_is_whole: bool) -> Fate:
    """The rows of the table for a folder with the name of its queue; `deleted`: a frame of the log says so."""
    return Fate.REMOVED if log_is_whole and (deleted or only_a_name) else Fate.DECLARED_AGAIN


def fate_of_nameless(*, deleted: bool, persistent: bool, damaged: bool, log_is_whole: bool) -> Fate:
    """The rows for one that does not; `deleted`: its name is the hash of a deleted queue's."""
    if deleted and log_is_whole:
        return Fate.REMOVED
    if persistent:
        return Fate.KEPT
    return Fate.SET_ASIDE if damaged else Fate.REMOVED


def only_a_name(sizes: Mapping[str, int], told: QueueName) -> bool:
    """True if a queue's folder (file name -> bytes) has nothing in it but the queue's name, perhaps half written.

    A `.definition` that makes no sense, so that `told` has no record, was being written as well.
    """
    half = _OF_A_NAME if told.record is not None else (*_OF_A_NAME, DEFINITION)
    return not any(size for name, size in sizes.items() if name not in half)


def never_used(sizes: Mapping[str, int]) -> bool:
    """True if it has nothing in it but what names the queue: there never was a message in it, nor a clean stop."""
    return not any(size for name, size in sizes.items() if name not in NAMING_FILES)
