"""A file in memory for the readers of warrenmq/inspect."""

from __future__ import annotations


class Bytes:
    """Bytes with the interface of inspect/reading.File."""

    path = "made/0"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.notes: list[tuple[int, str]] = []

    def size(self) -> int:
        return len(self.data)

    def pread(self, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size] if size > 0 else b""

    def note(self, offset: int, reason: str) -> None:
        self.notes.append((offset, reason))
