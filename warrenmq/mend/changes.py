"""The changes of files that `repair` and `compact` make: each is reported, and safe against a crash at any point.

A file gets new contents by being written anew beside the old one, synced and renamed over it.  With a backup, the old
file is copied before, under the same relative path, and stands in the backup's manifest:

    DIR/repair-backup-<n>/manifest.json        {"verb": ..., "files": [{"file", "done"}, ...]}
                          msg_stores/...       as they were

A dry run goes through all the same decisions and writes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from warrenmq.seams.disk import Disk, Readable

TEMPORARY = ".mending"
"""The end of a name of a file that is not finished: a run that fails removes it, or the next one; no broker looks at it."""
BACKUP = "repair-backup-"
_PIECE = 1 << 20


class Change(NamedTuple):
    """One thing that was done, or would be."""

    file: str
    """Relative to the directory."""
    done: str


class Changes:
    """All changes of one run."""

    def __init__(
        self, disk: Disk, root: str, verb: str, *, backup: bool = True, dry_run: bool = False
    ) -> None:
        self.made: list[Change] = []
        self.backup: str | None = None
        """The folder of the backup, once there is one."""
        self._disk = disk
        self._root = root
        self._verb = verb
        self._backup = backup
        self._dry_run = dry_run
        self._kept: set[str] = set()

    def replace(self, path: str, pieces: Iterable[bytes], done: str) -> None:
        """Give a file, new or not, these contents."""
        self._note(path, done)
        if self._dry_run:
            return
        self._keep(path)
        self._write(path, pieces)

    def remove(self, path: str, done: str) -> None:
        """Remove a file."""
        self._note(path, done)
        if self._dry_run:
            return
        self._keep(path)
        self._disk.unlink(path)
        self._disk.sync_dir(os.path.dirname(path))

    def tidy(self, folder: str) -> None:
        """Remove what an interrupted run left in a folder."""
        for name in self._disk.listdir(folder):
            if name.endswith(TEMPORARY) and not self._dry_run:
                self._disk.unlink(f"{folder}/{name}")

    def _note(self, path: str, done: str) -> None:
        self.made.append(Change(os.path.relpath(path, self._root), done))

    def _write(self, path: str, pieces: Iterable[bytes]) -> None:
        folder = os.path.dirname(path)
        temporary = path + TEMPORARY
        self._disk.mkdir(folder)
        file = self._disk.open(temporary, create=True)
        try:
            try:
                file.truncate(0)
                for piece in pieces:
                    file.append(piece)
                file.datasync()
            finally:
                file.close()
            self._disk.rename(temporary, path)
        except BaseException:
            # on a full disk half a file is room that its user has not, and there may be no next run
            with suppress(OSError):
                self._disk.unlink(temporary)
            raise
        self._disk.sync_dir(folder)

    def _keep(self, path: str) -> None:
        """Copy a file as it was before this run, and note the copy in the manifest, before the file is changed."""
        if not self._backup:
            return
        if self.backup is None:
            taken = [name for name in self._disk.listdir(self._root) if name.startswith(BACKUP)]
            numbers = [
                int(name.removeprefix(BACKUP)) for name in taken if name.removeprefix(BACKUP).isdecimal()
            ]
            self.backup = f"{self._root}/{BACKUP}{max(numbers, default=0) + 1}"
        if path not in self._kept and self._disk.exists(path):
            # `..`: one queue's directory was named, its store lies beside it
            parts = os.path.relpath(path, self._root).split("/")
            copy = "/".join([self.backup, *("up" if part == ".." else part for part in parts)])
            source = self._disk.open_read(path)
            try:
                self._write(copy, pieces_of(source, [(0, source.size())]))
            finally:
                source.close()
        self._kept.add(path)
        manifest = {"verb": self._verb, "files": [change._asdict() for change in self.made]}
        self._disk.mkdir(self.backup)
        self._disk.replace(f"{self.backup}/manifest.json", json.dumps(manifest, indent=1).encode())


def pieces_of(file: Readable, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The bytes of (offset, length) spans, a piece at a time."""
    for offset, length in spans:
        for at in range(offset, offset + length, _PIECE):
            yield file.pread(min(_PIECE, offset + length - at), at)
