"""The current file: the one that is appended to, and its write buffer (rabbit_msg_store: current_file_handle).

A record is buffered as its parts; `flush` joins them and hands them to the kernel in one write.  It then survives a
crash of ours, and after `sync` one of the machine.  When the disk is full a flush raises and leaves everything as it
was: buffer and file, so that it can be tried again.

Trace: FILE_WRITE for each flush, FILE_SYNC for each sync, with the reason that the caller names.
"""

from __future__ import annotations

from warrenmq.message_store import rdq
from warrenmq.seams.disk import Disk
from warrenmq.trace.events import FileSync, FileWrite, Trigger
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_written, _write_synced = writer(FileWrite), writer(FileSync)


class CurrentFile:
    """One file while it is the current one.  Belongs to the store's process."""

    def __init__(self, disk: Disk, directory: str, number: int, trace: ActorTrace | None) -> None:
        """Open the file or create it, durably."""
        self._file = disk.open(f"{directory}/{rdq.file_name(number)}", create=True)
        if not self._file.size():
            disk.sync_dir(directory)
        self.number = number
        self.offset = self._file.size()
        """The offset of the next record: the end of file and buffer together."""
        self.buffered = 0
        """Bytes in the buffer."""
        self._parts: list[bytes] = []
        self._synced = self.offset
        self._trace = trace

    def append(self, msg_id: bytes, body: bytes) -> int:
        """Buffer a record and return its offset."""
        offset = self.offset
        size = len(body)
        self._parts += (rdq.HEAD.pack(16 + size, msg_id), body, rdq.MARKER)
        self.buffered += size + 25
        self.offset = offset + size + 25
        return offset

    def flush(self, trigger: Trigger) -> None:
        """Hand the buffer to the kernel."""
        if not self.buffered:
            return
        data = b"".join(self._parts)
        self._file.append(data)
        self._parts.clear()
        self.buffered = 0
        if self._trace is not None:
            _write_written(self._trace, trigger, self.number, self.offset - len(data), len(data))

    def sync(self, trigger: Trigger) -> None:
        """Return when every record survives a power cut.  After an `OSError` of the sync nothing may be assumed."""
        self.flush(trigger)
        since = self.offset - self._synced
        if since:
            self._file.datasync()
            self._synced = self.offset
            if self._trace is not None:
                _write_synced(self._trace, trigger, self.number, synced_to=self.offset, size=since)

    def pread(self, size: int, offset: int) -> bytes:
        """Read a record back."""
        if offset + size > self.offset - self.buffered:
            self.flush(Trigger.READ)
        return self._file.pread(size, offset)

    def close(self) -> None:
        """Give the descriptor back; what is still buffered is lost."""
        self._file.close()
