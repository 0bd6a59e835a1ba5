"""References lost between a clean stop and the next start: messages that a queue held and no longer names.

Its index was damaged meanwhile.

After a crash, of the broker or of the queue, a queue may hold fewer messages than its store knows of, as acks reached the
index and not the store.  After a clean stop of both they say the same, so what is missing in the index is a reference that
damage took away.  The message is about to be garbage; its record is copied to the quarantine first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from warrenmq.directory.quarantine import set_aside
from warrenmq.errors import CorruptFile
from warrenmq.message_store import rdq
from warrenmq.message_store.recovery import Recovered
from warrenmq.seams.disk import Disk


class LostReferences:
    """References that no queue has claimed since a start after a clean stop.  Used by the store's process only.

    _waiting   owners that have not registered since
    """

    def __init__(self, disk: Disk, directory: str, quarantine: str, kind: str, recovered: Recovered) -> None:
        self._disk = disk
        self._directory = directory
        self._quarantine = quarantine
        self._kind = kind
        self._index, self._owners = recovered.index, recovered.owners
        self._waiting = (
            {*recovered.owners.owners()} - recovered.owners.doubtful if recovered.clean else set[str]()
        )

    def claimed(self, owner: str, holds: Sequence[bytes]) -> list[CorruptFile]:
        """An owner registers: set aside the messages that it held at the stop and holds no more; returns the
        damage to report.
        """
        if owner not in self._waiting:
            return []
        self._waiting.discard(owner)
        found: list[CorruptFile] = []
        for msg_id, count in Counter(self._owners.reconcile(owner, holds)).items():
            entry = self._index.lookup(msg_id)
            if entry is None or entry[0] > count:
                continue  # another queue has it
            _, number, offset, total = entry
            name = rdq.file_name(number)
            file = self._disk.open_read(f"{self._directory}/{name}")
            try:
                record = file.pread(total, offset)
            finally:
                file.close()
            # a full disk, say: the bytes stay where they are until the file is collected
            with suppress(OSError):
                set_aside(self._disk, self._quarantine, f"{self._kind}-{name}-{offset}", record, [(0, total)])
            reason = f"queue {owner!r} held message {msg_id.hex()} when it was stopped, and its index does not name it any more"
            found.append(
                CorruptFile(f"{self._directory}/{name}", offset, f"{reason}; it was copied to the quarantine")
            )
        return found
