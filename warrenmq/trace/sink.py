"""The destination of a recorder's files: a directory, or memory (simulation)."""

from __future__ import annotations

import os
from typing import Any, Protocol

from warrenmq.trace.segment import Output, OutputBytes, OutputFile
from warrenmq.trace.slab import ChunkBytes, ChunkFile, Chunks


class Sink(Protocol):
    """Creates the two kinds of files."""

    def segment(self, name: str, head: bytes) -> Output:
        """Create a segment file that begins with these bytes."""

    def slabs(self, name: str, header: dict[str, Any]) -> Chunks: ...


class DirectorySink:
    """Files in a directory, which is made if need be."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        os.makedirs(self.path, exist_ok=True)

    def segment(self, name: str, head: bytes) -> Output:
        return OutputFile(os.path.join(self.path, name), head)

    def slabs(self, name: str, header: dict[str, Any]) -> Chunks:
        return ChunkFile(os.path.join(self.path, name), header)


class MemorySink:
    """Files in memory: `files()` is what a directory would hold, at any time."""

    def __init__(self) -> None:
        self._segments: dict[str, bytearray] = {}
        self._slabs: dict[str, ChunkBytes] = {}

    def segment(self, name: str, head: bytes) -> Output:
        if name in self._segments:
            raise FileExistsError(name)
        return OutputBytes(self._segments.setdefault(name, bytearray(head)))

    def slabs(self, name: str, header: dict[str, Any]) -> Chunks:
        return self._slabs.setdefault(name, ChunkBytes(header))

    def files(self) -> dict[str, bytes]:
        """Name and content of every file, in the order of names."""
        content = {name: bytes(data) for name, data in self._segments.items()}
        content |= {name: chunks.content() for name, chunks in self._slabs.items() if not chunks.gone}
        return dict(sorted(content.items()))

    def forget(self, run: str) -> None:
        """Delete the files of a run."""
        for files in (self._segments, self._slabs):
            for name in [name for name in files if name.startswith(f"{run}-")]:
                del files[name]
