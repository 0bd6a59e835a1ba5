"""Open files of a store, shared by its process and its clients (RabbitMQ: file_handle_cache).

An Erlang descriptor belongs to its process, so RabbitMQ's clients have handles of their own, and a handshake to have
them closed before a file may go (docs/reference/message-store.md#closing-handles).  Here a file is read by position
from any thread:
one handle a file does for all, and the store drops it when the file was replaced or deleted.  (One that is compacted in
place stays the same file.)

A handle that is being read with stays open until that is over: a descriptor number that was given
back could be another file's.
"""

from __future__ import annotations

from threading import Lock

from warrenmq.message_store import rdq
from warrenmq.seams.disk import Disk, File


class _Handle:
    __slots__ = ("dropped", "file", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.dropped = False


class FileHandles:
    """File number -> open file, least recently used first.

    No more than the high watermark are kept for the next reader; those in use beyond that are closed by their last user.
    """

    def __init__(self, disk: Disk, directory: str, high_watermark: int) -> None:
        self._disk = disk
        self._directory = directory
        self._high_watermark = high_watermark
        self._handles: dict[int, _Handle] = {}
        self._lock = Lock()

    def path(self, number: int) -> str:
        return f"{self._directory}/{rdq.file_name(number)}"

    def pread(self, number: int, size: int, offset: int) -> bytes:
        """Read from a file, which must not be deleted meanwhile."""
        handle = self._begin_use(number)
        try:
            return handle.file.pread(size, offset)
        finally:
            self._end_use(handle)

    def drop(self, number: int) -> None:
        """The file was rewritten or deleted: the next reader opens it anew."""
        with self._lock:
            handle = self._handles.pop(number, None)
            if handle is not None:
                self._discard(handle)

    def close(self) -> None:
        """Give every descriptor back."""
        for number in list(self._handles):
            self.drop(number)

    def _begin_use(self, number: int) -> _Handle:
        with self._lock:
            handle = self._handles.pop(number, None)
            if handle is None:
                handle = _Handle(self._disk.open_read(self.path(number)))
            self._handles[number] = handle  # the most recently used now
            handle.users += 1
            if len(self._handles) > self._high_watermark:
                self._discard(self._handles.pop(next(iter(self._handles))))
        return handle

    def _end_use(self, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            if handle.dropped and not handle.users:
                handle.file.close()

    @staticmethod
    def _discard(handle: _Handle) -> None:
        handle.dropped = True
        if not handle.users:
            handle.file.close()
