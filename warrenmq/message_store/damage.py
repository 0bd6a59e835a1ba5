"""Records of a store that turned out to be damaged when they were read: copied to the quarantine, counted, logged.

Concurrency: the store's process and its clients read, each in its own thread; a damaged message is reported once.
"""

from __future__ import annotations

from contextlib import suppress

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.quarantine import keep
from warrenmq.errors import CorruptFile
from warrenmq.message_store import rdq
from warrenmq.seams.disk import Disk


class StoreDamage:
    """Damage found in the files of one store since it was opened."""

    def __init__(self, disk: Disk, directory: str, quarantine: str, kind: str, found: DamageLog) -> None:
        self._disk = disk
        self._directory = directory
        self._quarantine = quarantine
        self._kind = kind
        self._found = found
        self._messages: dict[bytes, None] = {}
        self.at_recovery = 0
        """Messages and other pieces of files that the recovery set aside."""

    @property
    def count(self) -> int:
        """Messages and other pieces of files that were set aside."""
        return self.at_recovery + len(self._messages)

    def body_of(self, record: bytes, msg_id: bytes, file: int, offset: int) -> bytes | None:
        """The body of a message whose record was read from this place; None, and set aside, if it is damaged."""
        try:
            return rdq.body_of(record, msg_id, f"{self._directory}/{rdq.file_name(file)}", offset)
        except CorruptFile as error:
            self.set_aside(record, msg_id, file, error)
            return None

    def set_aside(self, record: bytes, msg_id: bytes, file: int, error: CorruptFile) -> None:
        """Set aside the bytes of a damaged record, count and report it; once for each message."""
        if msg_id in self._messages:
            return
        self._messages[msg_id] = None
        keep_record(self._disk, self._quarantine, self._kind, file, error.offset, record)
        self._found.add([error])


def keep_record(disk: Disk, quarantine: str, kind: str, file: int, offset: int, record: bytes) -> None:
    """Copy the bytes of a damaged record to the quarantine."""
    with suppress(OSError):  # a full disk, say: the bytes stay where they are until the file is collected
        keep(disk, quarantine, f"{kind}-{rdq.file_name(file)}-{offset}", record)
