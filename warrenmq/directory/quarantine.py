"""The quarantine folder: undecodable bytes are copied there, one file for each damaged file, and never deleted.

They lie in the quarantine of their vhost:

    quarantine/<file>-<offset of the first piece>        the damaged pieces, one after the other
    quarantine/<file>-<offset>.2                         other damage at the same place, another day
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.torn import Damage
from warrenmq.errors import CorruptFile
from warrenmq.seams.disk import Disk


def set_aside(disk: Disk, quarantine: str, name: str, data: bytes, pieces: Sequence[tuple[int, int]]) -> None:
    """Copy the pieces (offset, length) of `data`; a recovery that was cut short may do so again."""
    damaged = b"".join(data[offset : offset + length] for offset, length in pieces)
    keep(disk, quarantine, f"{name}-{pieces[0][0]}", damaged)


def keep(disk: Disk, quarantine: str, name: str, damaged: bytes) -> None:
    """Put these bytes into the quarantine, unless they are there."""
    path = f"{quarantine}/{name}"
    copy = 1
    while disk.exists(path):
        if disk.read(path) == damaged:
            disk.sync_dir(quarantine)  # a start that was killed may have written it, and not come to this
            return
        copy += 1
        path = f"{quarantine}/{name}.{copy}"
    disk.mkdir(quarantine)
    disk.replace(path, damaged)


def set_aside_lost(
    disk: Disk, quarantine: str, directory: str, lost: Iterable[tuple[str, Damage]], found: DamageLog
) -> None:
    """Copy and tell the damaged bytes of messages that a queue's folder had: (name of the file, where in it).

    A disk that is too full for the copies is no error: the bytes stay in the file until that is deleted.
    """
    by_file: dict[str, list[Damage]] = {}
    for name, damage in lost:
        by_file.setdefault(name, []).append(damage)
    for name, all_damage in by_file.items():
        path = f"{directory}/{name}"
        with suppress(OSError):
            pieces = [each[:2] for each in sorted(all_damage)]
            set_aside(disk, quarantine, f"{directory.rpartition('/')[2]}-{name}", disk.read(path), pieces)
        found.add(CorruptFile(path, each.offset, each.reason) for each in all_damage)
