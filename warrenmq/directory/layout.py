"""The layout of a data directory, which is a RabbitMQ node's.

    warrenmq.owner                              who has it open (owner_lock.py)
    rabbit_serial                               how often it was opened
    warrenmq.id                                 what its traces call it
    warrenmq.traced                             the last run of it that was traced, and if others were not since
    warrenmq.log.0, .1, warrenmq.committed      the commit log, and the note which of its records is the last one (commit_log/)
    msg_stores/vhosts/<V>/.vhost                the vhost's name
                          .config               its segment_entry_count
                          definitions.log       what is declared (definitions.py)
                          msg_store_persistent/N.rdq
                          msg_store_transient/N.rdq
                          queues/<Q>/.queue_name, .definition           whose it is (queue_folders.py)
                                     journal.jif, k.idx, k.qi, k.qs
    quarantine/<V>/                             bytes that made no sense

<V> is base36(md5(vhost)), <Q> is base36(md5("queue" + vhost + queue)).

Source: rabbit_vhost:dir, rabbit_queue_index:queue_dir, rabbit_guid;
docs/reference/classic-queue.md#directories-and-file-names and #message-ids.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from posixpath import dirname

from warrenmq.commit_log.contents import FILE_NAMES, Contents
from warrenmq.commit_log.disk import LoggedDisk, open_logged, remove_log
from warrenmq.commit_log.log import LogSeams
from warrenmq.directory.foreign import refuse_rabbitmqs
from warrenmq.directory.owner_lock import OwnerLock
from warrenmq.directory.quarantine import set_aside
from warrenmq.errors import CorruptFile
from warrenmq.log import Log
from warrenmq.seams.disk import Disk
from warrenmq.seams.real_disk import RealDisk
from warrenmq.seams.salvage import Salvage
from warrenmq.settings import MAX_SEGMENT_ENTRIES, Settings

log = Log("warrenmq.directory")

VHOSTS = "msg_stores/vhosts"
USERS = "users.json"
"""The users that were changed over the management API, beside the vhosts (amqp/access/users_file.py)."""
QUEUE_NAME = ".queue_name"
"""The file in a durable queue's folder that names its queue."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
"""Two digits a division: a start names each queue's folder several times."""
SERIAL = "rabbit_serial"
_ID_NAME = "warrenmq.id"
_LAST_TRACED = "warrenmq.traced"
_BEYOND_ANY_BOOT = 1 << 20
"""The serial to go on from when the stored one cannot be read: boot numbers must not be used twice."""


def base36_md5(text: str) -> str:
    """The MD5 of a name as a base-36 number, as RabbitMQ names folders: no leading zeros, so up to 25 digits."""
    return base36_md5_of(text.encode())


@lru_cache(maxsize=1024)
def base36_md5_of(data: bytes) -> str:
    """`base36_md5` of bytes: the name of a priority's folder ends in a byte that is no text."""
    number = int.from_bytes(hashlib.md5(data, usedforsecurity=False).digest(), "big")
    pairs: list[str] = []
    while number:
        number, pair = divmod(number, len(_PAIRS))
        pairs.append(_PAIRS[pair])
    return "".join(reversed(pairs)).lstrip("0") or "0"


def vhost_folder(vhost: str) -> str:
    """The name of a virtual host's folder (<V> above)."""
    return base36_md5(vhost)


def queue_folder(vhost: str, queue: str | bytes, priority: int | None = None) -> str:
    """<Q>; a RabbitMQ queue with x-max-priority has a folder for each priority."""
    return base36_md5_of(b"queue" + vhost.encode() + _queue_name(queue, priority))


def queue_folder_of_3_6(vhost: str, queue: str | bytes, priority: int | None = None) -> str:
    """The folder name of a queue up to RabbitMQ 3.6: the MD5 of the term {resource, VHost, queue, Queue}.

    Its atoms are encoded as 3.6.11 fixed them.
    """
    host, name = vhost.encode(), _queue_name(queue, priority)
    return base36_md5_of(
        b"\x83h\x04d\x00\x08resourcem%bd\x00\x05queuem%b"
        % (len(host).to_bytes(4, "big") + host, len(name).to_bytes(4, "big") + name)
    )


def check_parent(disk: Disk, path: str) -> None:
    """Raise FileNotFoundError if the folder is gone in which a queue or store is to have its own."""
    parent = dirname(path)
    # made anew it would be another directory, beside that of the open files
    if not disk.is_dir(parent):
        disk.listdir(parent)  # raises what else there may be: that it cannot be entered
        raise FileNotFoundError(errno.ENOENT, "the data directory was moved or deleted", parent)


def _queue_name(queue: str | bytes, priority: int | None) -> bytes:
    name = queue.encode() if isinstance(queue, str) else queue
    return name if priority is None else name + bytes((0, priority))


def _tell_unreadable(path: str, offset: int, size: int, error: OSError) -> None:
    what = {"path": path, "offset": offset, "bytes": size, "error": str(error)}
    log.warning("bytes cannot be read and are taken for damaged", **what)


class DataDirectory:
    """An open data directory, locked for others until `close`.

    disk    what its files are to be reached through: with the setting `commit_log` their syncs go through the log
    """

    def __init__(self, disk: Disk, path: str, settings: Settings, lock: OwnerLock | None) -> None:
        """Use `open`, or `shared` for another of its virtual hosts."""
        self.path = path
        self.disk = disk
        self._settings = settings
        self._lock = lock
        self._logged: LoggedDisk | None = None
        """Set in the one that is to close the log."""
        self._damage: list[CorruptFile] = []
        """Of the commit log, until a virtual host tells it."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        settings: Settings,
        runtime: LogSeams | None = None,
        *,
        shares: bool = False,
    ) -> DataDirectory:
        """Own the directory, which is made when it is not there; raises DirectoryInUse.

        `shares`: its socket will be served to other processes (owner_lock.py).
        PreconditionFailed for a RabbitMQ's, which is left as it is.  Writes that a crash left in the commit
        log are in the files afterwards.  Without a `runtime` the directory goes on without a log, whatever
        the settings say.
        """
        refuse_rabbitmqs(disk, path)
        disk.mkdir(path)
        lock: OwnerLock | None = None
        # a simulated disk belongs to the test that made it, and its folders are safe when they are made
        if isinstance(disk, RealDisk):
            lock = OwnerLock(path, shares=shares)
            disk.sync_name(path, is_new=not disk.exists(f"{path}/{SERIAL}"))
        directory = cls(disk, path, settings, lock)
        disk.salvage = Salvage(disk, f"{path}/quarantine", _tell_unreadable)
        try:
            directory._replay(runtime)
        except BaseException:
            directory.close()
            raise
        return directory

    def _replay(self, runtime: LogSeams | None) -> None:
        found: Contents | None
        if runtime is not None and self._settings.commit_log and self._settings.durability == "fsync":
            log_id = int(self.id(runtime.token_bytes)[:16], 16)
            self._logged, found = open_logged(self.disk, self.path, log_id, runtime.lock)
            self.disk = self._logged
        else:
            found = remove_log(self.disk, self.path)
        if found is not None and found.writes:
            log.info("commit log replayed", path=self.path, files=len(found.writes))
        if found is not None:
            path = f"{self.path}/{FILE_NAMES[found.file]}"
            self._damage += [
                CorruptFile(path, 0, f"{each}; it was copied to the quarantine") for each in found.damage
            ]

    def shared(self) -> DataDirectory:
        """Share the directory with another of its virtual hosts; closing the returned object closes nothing."""
        return DataDirectory(self.disk, self.path, self._settings, None)

    def vhost(self, name: str) -> VhostDirectory:
        """The folder of a vhost, made when it is not there."""
        folder = VhostDirectory(self.disk, self.path, name, self._settings)
        folder.damage += self._damage
        self._damage = []
        return folder

    def next_boot(self) -> int:
        """Count this opening, durably: no number comes twice."""
        path = f"{self.path}/{SERIAL}"
        boot = 1
        if self.disk.exists(path):
            match = re.fullmatch(rb"(\d{1,12})\.\s*", self.disk.read(path))
            boot = int(match[1]) + 1 if match else _BEYOND_ANY_BOOT
        self.disk.replace(path, f"{boot}.\n".encode())
        return boot

    def id(self, token_bytes: Callable[[int], bytes]) -> str:
        """The directory's random id, drawn once and kept, so that a trace names the directory it belongs to.

        A directory that has none, or a damaged one, gets one now; one that is copied takes its id along.
        """
        path = f"{self.path}/{_ID_NAME}"
        if self.disk.exists(path) and (match := re.fullmatch(rb"([0-9a-f]{32})\s*", self.disk.read(path))):
            return match[1].decode()
        drawn = token_bytes(16).hex()
        self.disk.replace(path, f"{drawn}\n".encode())
        return drawn

    def begin_trace(self, run: str) -> None:
        """Note the name of the run that is traced now: when its files are there, since it is looked for from then on."""
        self.disk.replace(f"{self.path}/{_LAST_TRACED}", f"{run}\n".encode())

    def begin_untraced(self) -> None:
        """Note that the directory is open without a trace now, if it was ever traced."""
        last, noted = self.last_traced()
        if last and not noted:
            self.disk.replace(f"{self.path}/{_LAST_TRACED}", f"{last} untraced\n".encode())

    def last_traced(self) -> tuple[str, bool]:
        """The name of the last run that was traced, "" if there was none, and whether the directory was open
        without a trace since.

        A directory that was restored from a backup counts boots that a trace has already; by this name a
        reader notices.  And boots that are missing from a trace changed nothing if none of them was untraced:
        they were killed as they began.
        """
        path = f"{self.path}/{_LAST_TRACED}"
        if not self.disk.exists(path):
            return "", False
        match = re.fullmatch(rb"([0-9]+-[0-9a-f]+)( untraced)?\s*", self.disk.read(path))
        return (match[1].decode(), match[2] is not None) if match else ("", False)

    def close(self) -> None:
        """Sync all files, and release the directory."""
        if self._logged is not None:
            try:
                self._logged.close_log()
            except OSError as error:
                log.warning(
                    "the commit log stays: the next start replays it", path=self.path, error=str(error)
                )
        if self._lock is not None:
            self._lock.release()


class VhostDirectory:
    """The folder of one vhost.

    path         <data>/msg_stores/vhosts/<V>
    definitions  the file of its definitions
    queues       the folder of its queues' folders
    quarantine   where its damaged bytes go
    damage       which of its own small files made no sense, and what the first one tells of the commit log
    settings     the broker's, with the segment size that this vhost was made with
    """

    def __init__(self, disk: Disk, data: str, vhost: str, settings: Settings) -> None:
        self.name = vhost
        self.path = f"{data}/{VHOSTS}/{vhost_folder(vhost)}"
        self.definitions = f"{self.path}/definitions.log"
        self.quarantine = f"{data}/quarantine/{vhost_folder(vhost)}"
        self.queues = f"{self.path}/queues"
        disk.mkdir(self.queues)
        for depth in range(3):  # a crash may have come between making a folder and syncing its entry
            disk.sync_dir(self.path.rsplit("/", depth)[0])
        disk.sync_dir(data)
        self.damage: list[CorruptFile] = []
        self._have_name(disk)
        self.settings = self._with_own_segment_size(disk, settings)

    def _have_name(self, disk: Disk) -> None:
        path, name = f"{self.path}/.vhost", self.name.encode()
        if disk.exists(path) and (found := disk.read(path)) != name:
            self._note(
                disk, ".vhost", found, "it does not tell the name of the virtual host whose folder this is"
            )
            disk.replace(path, name)
        elif not disk.exists(path):
            disk.replace(path, name)

    def _note(self, disk: Disk, name: str, data: bytes, reason: str) -> None:
        """Tell that a small file is damaged, and keep what it was."""
        self.damage.append(CorruptFile(f"{self.path}/{name}", 0, f"{reason}; it was written anew"))
        if data:
            set_aside(disk, self.quarantine, name, data, [(0, len(data))])

    def _with_own_segment_size(self, disk: Disk, settings: Settings) -> Settings:
        """Sequence ids are made of it, so it is fixed when the vhost is made (9063bcbd5c).

        When .config is damaged, the settings of today are the best guess at those of that day.
        """
        path = f"{self.path}/.config"
        if disk.exists(path):
            config = disk.read(path)
            entry_count = read_segment_entry_count(config)
            if entry_count == settings.queue_index_segment_entry_count:
                return settings
            if entry_count is not None:
                return replace(settings, queue_index_segment_entry_count=entry_count)
            self._note(disk, ".config", config, "it does not tell the segment_entry_count")
        comment = "%% This file is auto-generated! Edit at your own risk!"
        term = f"{{segment_entry_count, {settings.queue_index_segment_entry_count}}}."
        disk.replace(path, f"{comment}\n{term}\n".encode())
        return settings

    def store(self, kind: str) -> str:
        """The folder of msg_store_persistent or msg_store_transient."""
        return f"{self.path}/{kind}"

    def folders(self, queue: str, max_priority: int | None) -> tuple[str, ...]:
        """The folder of a queue, or with x-max-priority those of its priorities from 0."""
        priorities = [None] if max_priority is None else range(max_priority + 1)
        return tuple(f"{self.queues}/{queue_folder(self.name, queue, each)}" for each in priorities)

    def make_queue(self, disk: Disk, name: str, max_priority: int | None, version: int) -> None:
        """Make the folders of a durable queue and write into them whose they are, and that the index is of version 2."""
        index = b"INDEX: v2\n" if version == 2 else b""
        for priority, folder in enumerate(self.folders(name, max_priority)):
            queue = _queue_name(name, None if max_priority is None else priority)
            text = b"VHOST: %b\nQUEUE: %b\n%b" % (self.name.encode(), queue, index)
            path = f"{folder}/{QUEUE_NAME}"
            if not disk.exists(path):
                check_parent(disk, folder)
                disk.mkdir(folder)
                disk.sync_dir(self.queues)  # it may be there since a crash, and not synced
                disk.replace(path, text)
            elif disk.read(path) != text:
                disk.replace(path, text)

    def queue_folders(self, disk: Disk, known: Iterable[str]) -> list[str]:
        """The paths of all folders of queues but the known ones."""
        paths = {*(f"{self.queues}/{name}" for name in disk.listdir(self.queues))} - {*known}
        return [path for path in sorted(paths) if disk.is_dir(path)]


def read_segment_entry_count(config: bytes) -> int | None:
    """The segment size in a vhost's .config."""
    match = re.search(rb"^\s*\{\s*segment_entry_count\s*,\s*(\d{1,5})\s*\}", config, re.MULTILINE)
    return int(match[1]) if match and 0 < int(match[1]) <= MAX_SEGMENT_ENTRIES else None
