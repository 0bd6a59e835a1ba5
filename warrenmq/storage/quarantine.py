"""Where bytes go that make no sense: copied, one file for each damaged file, never thrown away.

They lie in the quarantine of their vhost:

    quarantine/<file>-<offset of the first piece>        the damaged pieces, one after the other
    quarantine/<file>-<offset>.2                         other damage at the same place, another day
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warrenmq.storage.disk import Disk


def set_aside(disk: Disk, quarantine: str, name: str, data: bytes, pieces: Sequence[tuple[int, int]]) -> None:
    """Copy the pieces (offset, length) of `data`; a recovery that was cut short may do so again."""
    damaged = b"".join(data[offset : offset + length] for offset, length in pieces)
    first = path = f"{quarantine}/{name}-{pieces[0][0]}"
    copy = 1
    while disk.exists(path):
        if disk.read(path) == damaged:
            return
        copy += 1
        path = f"{first}.{copy}"
    disk.mkdir(quarantine)
    disk.replace(path, damaged)
