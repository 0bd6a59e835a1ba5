"""The last stops of a vhost's queues and the contents of their folders, read for all of them before any process starts.

    1  the terms of clean stops are taken: from here on every stop is a crash until the next clean one.  They are believed
       only if the files of the index have the sizes and checksums that they had then
    2  one sync for all folders: the terms are gone, and what a crash left is safe before anything is read
    3  each index is walked, once: for its queue, and for the message store, which counts its references after a crash

A queue that is declared, or whose process starts again, has the same done for its folder alone.  Of one that
sleeps nothing is taken before it wakes (`asleep_since`).

Source: rabbit_recovery_terms and rabbit_variable_queue:init; docs/reference/classic-queue.md#start-and-recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.quarantine import set_aside
from warrenmq.directory.recovery_terms import FILE_NAME, Terms, changes_since, parse, twins
from warrenmq.errors import CorruptFile
from warrenmq.queue.return_counts import NAME as RETURN_COUNTS
from warrenmq.queue.unsafe_acks import NAME as UNSAFE_ACKS
from warrenmq.queue_index.protocol import Walked
from warrenmq.queue_index.versions import files_of, to_make_safe, walk
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings
from warrenmq.vhost.queue_folders import NAMING_FILES

_NOT_OF_THE_INDEX = {FILE_NAME, RETURN_COUNTS, UNSAFE_ACKS, *NAMING_FILES}
_NO_STOP = Terms(0, 0)
"""The terms of a queue that was killed before it held anything."""


class LastStop(NamedTuple):
    """One queue's folder as read before the queue starts."""

    terms: Terms | None
    """The terms of a clean stop, if they can be believed."""
    walked: Walked
    only_index: bool = False
    """There are no files in the folder but those that name the queue, and the index's of version 2, each .qs with its .qi."""

    def at_rest(self, version: int) -> tuple[int, int] | None:
        """Messages and next sequence id of a queue that was killed, if its files, of this version of the
        index, say all that opening it would find.

        Else None: something has to be dropped or mended, may expire, or is in a message store.
        """
        entry_count, segments = self.walked.version_2
        if (
            not self.only_index
            or version != 2
            or any(
                each.damage or each.transient or each.in_store or each.expires for each in segments.values()
            )
        ):
            return None
        return sum(each.live for each in segments.values()), (max(segments, default=-1) + 1) * entry_count


class LastStops:
    """The folders of a vhost's durable queues.

    _found   folders that were looked at, and whose queue has not asked for them yet

    Queue processes take theirs each in its own thread: a dict's `pop` is atomic.
    """

    def __init__(self, disk: Disk, settings: Settings, quarantine: str, damage: DamageLog) -> None:
        self._disk = disk
        self._settings = settings
        self._quarantine = quarantine
        self._damage = damage
        self._found: dict[str, LastStop] = {}

    def look(self, folders: Iterable[str]) -> None:
        """Look at many folders, while nothing writes to them."""
        self._found = self._look(folders)

    def walked(self, folder: str) -> Walked:
        """The messages that a folder tells the message store of; it need not be a known queue's."""
        if (found := self._found.get(folder)) is not None:
            return found.walked
        names = self._disk.listdir(folder)
        if names:
            self._disk.sync_many(to_make_safe(folder, names))
        return walk(self._disk, folder, names, self._settings)

    def claims(self, folders: Sequence[str]) -> Iterator[list[bytes]]:
        """The messages of a queue that are in its store, in runs that were appended in their order, and
        removed in it once their acks were safe.
        """
        unsafe = self._disk.exists(f"{folders[0]}/{UNSAFE_ACKS}")
        for folder in folders:
            ids = self.walked(folder).store_message_ids
            if unsafe:  # any of them may have been removed
                yield from ([each] for each in ids)
            else:
                yield ids

    def at_rest(self, folders: Iterable[str], version: int) -> tuple[int, int] | None:
        """`LastStop.at_rest` of a queue whose folders were looked at; the sequence id is that of the first one."""
        each = [self._found[folder].at_rest(version) for folder in folders]
        found = [rest for rest in each if rest is not None]
        return None if len(found) < len(each) else (sum(count for count, _ in found), found[0][1])

    def forget(self, folders: Iterable[str]) -> None:
        """Forget what is in the folders of a queue that sleeps; its start looks again."""
        for folder in folders:
            del self._found[folder]

    def take(self, folder: str) -> LastStop:
        """Hand a starting queue the contents of its folder; once, as the queue will change it."""
        return self._found.pop(folder, None) or self._look([folder])[folder]

    def _look(self, folders: Iterable[str]) -> dict[str, LastStop]:
        disk = self._disk
        seen: list[tuple[str, list[str], Terms | None]] = []
        to_sync: list[str] = []
        for folder in folders:
            names = disk.listdir(folder)
            terms = self._take_terms(folder, names) if FILE_NAME in names else None
            if terms is not None:
                to_sync.append(folder)
            elif names:
                to_sync += to_make_safe(folder, names)
            seen.append((folder, names, terms))
        if to_sync:
            disk.sync_many(to_sync)
        return {
            folder: LastStop(terms, walk(disk, folder, names, self._settings), _only_index(names))
            for folder, names, terms in seen
        }

    def _take_terms(self, folder: str, names: list[str]) -> Terms | None:
        """The terms of a clean stop, if the files of the index are as it left them; removed before the next sync.

        Those that are not are reported, and copied to the quarantine before anything that they do not name any more is
        dropped.
        """
        disk, path = self._disk, f"{folder}/{FILE_NAME}"
        terms = parse(disk.read(path))
        disk.unlink(path)
        if terms is None:
            return None
        sizes = {name: disk.size(f"{folder}/{name}") for name in names if name != FILE_NAME}
        changes = [*changes_since(terms, sizes, lambda name: disk.read(f"{folder}/{name}"))]
        self._damage.add(CorruptFile(f"{folder}/{name}", offset, reason) for name, offset, reason in changes)
        concerned = {
            each for change in changes for each in (change.name, *twins(change.name)) if sizes.get(each)
        }
        for name in sorted(concerned):
            data = disk.read(f"{folder}/{name}")
            # without room for a copy, what makes no sense in the file is still set aside piece by piece
            with suppress(OSError):
                set_aside(
                    disk, self._quarantine, f"{folder.rpartition('/')[2]}-{name}", data, [(0, len(data))]
                )
        return None if changes else terms


def _only_index(names: list[str]) -> bool:
    index = files_of(names, 2)
    return {*names} - {*NAMING_FILES} == {*index} and all(
        each in index for name in index for each in twins(name) if name.endswith("qs")
    )


def asleep_since(disk: Disk, folder: str, version: int) -> Terms | None:
    """The terms of the stop since which a queue sleeps, from its (first) folder; None if the queue has to be opened.

    It may sleep on when its terms say so and its files are as they left them, of this version of the index;
    or when nothing is in them, and nothing was at the stop.
    """
    names = disk.listdir(folder)
    sizes = {name: disk.size(f"{folder}/{name}") for name in names if name not in _NOT_OF_THE_INDEX}
    terms = parse(disk.read(f"{folder}/{FILE_NAME}")) if FILE_NAME in names else _NO_STOP
    if not names or terms is None:
        return None
    if not any(sizes.values()) and not any(size for _, size, _ in terms.files):
        return terms._replace(asleep=(0, None))
    if (
        terms.asleep is None
        or sizes.keys() != {name for name, _, _ in terms.files}
        or (terms.asleep[0] and files_of(names, 3 - version))
        or any(changes_since(terms, sizes, lambda name: disk.read(f"{folder}/{name}")))
    ):
        return None
    return terms
