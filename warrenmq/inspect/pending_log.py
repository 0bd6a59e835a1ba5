"""The writes of a commit log that a directory's files lack, for read-only readers.

After a crash a start writes the log to the files before it reads them.  Here the same is done in memory, a
file at a time.  While a broker runs its files are whole as the system shows them, and the log has nothing to
add.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from warrenmq.commit_log import note
from warrenmq.commit_log.contents import FILE_NAMES, Extents, contents_of
from warrenmq.directory.owner_lock import owner_of

_LEVELS = 6
"""Folder levels to search: from a queue's folder up to its data directory, and one more."""


class PendingLog(NamedTuple):
    """The pending writes by real path, and the damage of the log."""

    writes: dict[str, Extents]
    damage: list[tuple[str, str]]
    """(path, what)."""


def pending_log(path: str) -> PendingLog:
    """Read the commit log of the data directory that a path is or lies in."""
    node = os.path.realpath(path)
    for _ in range(_LEVELS):
        files = [os.path.join(node, name) for name in (*FILE_NAMES, note.NAME)]
        if any(map(os.path.exists, files)):
            return PendingLog({}, []) if owner_of(node) is not None else _read(node, files)
        node = os.path.dirname(node)
    return PendingLog({}, [])


def _read(node: str, files: list[str]) -> PendingLog:
    data, damage = [], []
    for path in files:
        try:
            with open(path, "rb") as file:
                data.append(file.read())
        except FileNotFoundError:
            data.append(b"")
        except OSError as error:
            data.append(b"")
            damage.append((path, f"it cannot be read ({error.strerror})"))
    *logs, noted = data
    found = contents_of(logs, noted)
    damage += [(files[found.file], each) for each in found.damage]
    # a folder may be elsewhere, behind a symbolic link
    writes = {os.path.realpath(os.path.join(node, name)): extents for name, extents in found.writes.items()}
    return PendingLog(writes, damage)
