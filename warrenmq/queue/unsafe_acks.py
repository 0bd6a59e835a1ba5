"""The note of a queue that its store removes bodies whose acks are not safe: on a full disk, to make room for them.

    .unsafe-acks    an empty file in the queue's (first) folder, from before the first such body goes to the next sync of the index

After a crash in between the index names messages that are in no file, and no loss is behind it (message_store/recovery.py).
"""

from __future__ import annotations

from contextlib import suppress

from warrenmq.seams.disk import Disk

NAME = ".unsafe-acks"


class UnsafeAcks:
    """The file of one queue."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{NAME}"
        self.noted = disk.exists(self._path)
        """Bodies went, and their acks are perhaps not safe."""

    def note(self) -> bool:
        """Note, durably, that bodies go before their acks are safe; False if that cannot be noted."""
        if not self.noted:
            with suppress(OSError):
                self._disk.open(self._path, create=True).close()
                self._disk.sync_dir(self._directory)
                self.noted = True
        return self.noted

    def safe(self) -> None:
        """All acks are safe."""
        if self.noted:
            # noted for longer than it is true it only hides what a crash of that time lost
            with suppress(OSError):
                self._disk.unlink(self._path)
                self.noted = False
