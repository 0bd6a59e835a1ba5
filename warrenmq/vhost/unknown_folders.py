"""Going through the folders of queues that are not declared, when a vhost is opened and when its process starts again.

queue_folders.py has the table of what becomes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warrenmq.directory.definitions import Definitions, QueueRecord
from warrenmq.directory.layout import QUEUE_NAME, VhostDirectory
from warrenmq.errors import CorruptFile
from warrenmq.log import Log
from warrenmq.queue_index.contents import contents
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings
from warrenmq.vhost.queue_folders import (
    DEFINITION,
    Fate,
    QueueName,
    fate_of_named,
    fate_of_nameless,
    folders_of,
    names_of_folders,
    never_used,
    only_a_name,
    records_of,
)

DECLARED_AGAIN = "queue {0!r} is not declared in it, but has a folder with something in it; a start declares it again, unbound"
FOLDER_GONE = "queue {0!r} is declared in it, and its folder is gone, with its messages"
NO_QUEUE_KNOWN = "no file tells whose queue this is; its messages are kept, and no start gives them back"
_SET_ASIDE = (
    "no file tells whose queue this was, and bytes of its index make no sense; it was moved to the quarantine"
)
_BEFORE_A_TRANSIENT = "a transient queue of its name was declared; what was in it was moved to the quarantine"


@dataclass(slots=True)
class UnknownContents:
    """The contents of folders that the definitions do not name."""

    declared_again: list[QueueRecord] = field(default_factory=list)
    with_folder: list[str] = field(default_factory=list)
    """Declared durable queues whose folders are all there."""
    kept: list[str] = field(default_factory=list)
    """Paths of folders that stay, though no file tells whose they are."""
    damage: list[CorruptFile] = field(default_factory=list)


def sort_out(
    disk: Disk, directory: VhostDirectory, definitions: Definitions, known: Mapping[str, QueueRecord]
) -> UnknownContents:
    """Do what the table says with every folder of a vhost that is not `known` (path -> whose it is).

    A known folder of a durable queue that is not there is reported if it has been there.  Queues to declare
    again are only returned.  Nothing that makes folders of queues may run meanwhile.
    """
    found, again, used = UnknownContents(), list[QueueName](), set[str]()
    whole, gone, deleted_folders = definitions.whole, definitions.gone, set[str]()
    unknown = {path.rpartition("/")[2]: path for path in directory.queue_folders(disk, known)}
    named = names_of_folders(
        directory.name, {folder: _naming_files(disk, path) for folder, path in unknown.items()}
    )
    for folder, path in unknown.items():
        sizes = {name: disk.size(f"{path}/{name}") for name in disk.listdir(path)}
        name = named.get(folder)
        if name is not None:
            fate = fate_of_named(
                deleted=definitions.deletes(name.name, name.record),
                only_a_name=only_a_name(sizes, name),
                log_is_whole=whole,
            )
        else:
            there = contents(disk, path, directory.settings)
            deleted_folders = deleted_folders or folders_of(directory.name, gone)
            deleted = folder in deleted_folders
            fate = fate_of_nameless(
                deleted=deleted, persistent=there.persistent, damaged=there.damaged, log_is_whole=whole
            )
        if fate is Fate.DECLARED_AGAIN and name is not None:
            again.append(name)
            if not never_used(sizes):
                used.add(name.name)
        elif fate is Fate.KEPT:
            found.kept.append(path)
            found.damage.append(CorruptFile(path, 0, NO_QUEUE_KNOWN))
        elif fate is Fate.SET_ASIDE:
            _set_aside(disk, path, directory.quarantine)
            found.damage.append(CorruptFile(path, 0, _SET_ASIDE))
        else:
            disk.rmtree(path)
    disk.sync_dir(directory.queues)
    found.declared_again = records_of(again)
    for each in found.declared_again:
        if each.name in used or not whole:
            found.damage.append(CorruptFile(directory.definitions, 0, DECLARED_AGAIN.format(each.name)))
        else:
            Log("warrenmq.definitions").info(
                "a queue whose declaration was cut off by a crash is declared", queue=each.name
            )
    _look_for_known(disk, directory, definitions, known, found)
    return found


def _look_for_known(
    disk: Disk, directory: VhostDirectory, definitions: Definitions, known: Mapping[str, QueueRecord],
    found: UnknownContents,
) -> None:  # fmt: skip
    """Note which durable queues have their folders, one a priority, and report those that had them all."""
    folders = {*disk.listdir(directory.queues)}
    missing = {
        record.name
        for path, record in known.items()
        if record.durable and path.rpartition("/")[2] not in folders
    }
    for name in dict.fromkeys(record.name for record in known.values() if record.durable):
        if name not in missing:
            found.with_folder.append(name)
        elif name in definitions.with_folder:
            found.damage.append(CorruptFile(directory.definitions, 0, FOLDER_GONE.format(name)))


def clear(disk: Disk, path: str, quarantine: str, settings: Settings) -> list[CorruptFile]:
    """Empty the folder of a transient queue that begins; what may be a durable queue's is moved to the
    quarantine, and told.
    """
    there = contents(disk, path, settings)
    if not (there.persistent or there.damaged):
        disk.rmtree(path)
        return []
    _set_aside(disk, path, quarantine)
    return [CorruptFile(path, 0, _BEFORE_A_TRANSIENT)]


def _naming_files(disk: Disk, path: str) -> tuple[bytes | None, bytes | None]:
    text, definition = (
        disk.read(file) if disk.exists(file) else None
        for file in (f"{path}/{QUEUE_NAME}", f"{path}/{DEFINITION}")
    )
    return text, definition


def _set_aside(disk: Disk, path: str, quarantine: str) -> None:
    first = kept = f"{quarantine}/{path.rpartition('/')[2]}"
    copy = 1
    while disk.is_dir(kept):  # set aside another day, or by a start that was cut short
        copy += 1
        kept = f"{first}.{copy}"
    disk.mkdir(kept)
    for name in disk.listdir(path):
        disk.replace(f"{kept}/{name}", disk.read(f"{path}/{name}"))
    disk.rmtree(path)
