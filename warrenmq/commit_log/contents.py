"""Read a commit log after a crash or a clean close: the writes that its data files may lack.

Two files take turns, and each record says which is the oldest that is still needed.  So what counts is every
record from that one to the newest, in whichever file it stands.  The newest may be torn: no caller was told
that it is durable.  One that is missing before it was durable once: that is damage.

The note beside the log (note.py) names a record that was durable.  What the log's newest record says against it:

| the newest is                | the log is                                | its writes              |
| ---------------------------- | ----------------------------------------- | ----------------------- |
| that one, or a later one     | as it was left                            | are replayed            |
| earlier, and the note clean  | not needed: every file was synced         | are not                 |
| the one before it            | damaged at its end                        | are replayed            |
| earlier, or of another log   | an older copy, or another directory's     | are not: files are newer |
| none                         | gone                                      |                         |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warrenmq.commit_log import note
from warrenmq.commit_log.note import Note
from warrenmq.commit_log.record import Forget, Record, id_of, read_all
from warrenmq.errors import CorruptFile
from warrenmq.seams.disk import Disk

FILE_NAMES = ("warrenmq.log.0", "warrenmq.log.1")
"""Names of the log's files in the data directory."""

Extents = list[tuple[int, bytes]]
"""(offset, bytes), in the order in which they were written."""


class Contents(NamedTuple):
    """The parsed content of a commit log."""

    id: int
    """The log's id; 0 = there is no record."""
    newest: int
    """The number of the newest record; 0 = there is no record."""
    file: int
    """Which file that stands in."""
    end: int
    """The offset at which the log's records end."""
    clean: bool
    """True if the log was closed after every file had been synced."""
    writes: dict[str, Extents]
    """The bytes to write, by path relative to the directory."""
    damage: list[str]
    """The damage in the log, a sentence each."""


def contents_of(files: Sequence[bytes], noted: bytes = b"") -> Contents:
    """Parse the bytes of the log files, and of the note beside them."""
    found, last = _parsed(files), note.committed(noted)
    return found if last is None else _as_noted(found, last)


def _as_noted(found: Contents, last: Note) -> Contents:
    """The content of a log of which the note says that its newest record was `last`."""
    same = found.id == last.id
    if same and found.newest >= last.number:
        return found
    if same and found.newest == last.number - 1 and not last.clean:
        damage = [
            *found.damage,
            f"record {last.number} of the commit log, its last one, is missing or cannot be read",
        ]
        return found._replace(newest=last.number, clean=False, damage=damage)
    damage = []
    if not last.clean:
        what = "gone" if not found.newest else "an older copy" if same else "of another directory"
        damage = [
            f"the commit log is {what}: record {last.number} was written to it, and its last one is {found.newest or 'none'}; nothing of it "
            "was replayed, as the files are newer, and if the power failed what was confirmed last may be missing; "
            "put back directories whole"
        ]
    return Contents(last.id, last.number, 0, 0, last.clean, {}, damage)


def _parsed(files: Sequence[bytes]) -> Contents:
    log = id_of(files)
    if log is None:  # never written to, or the first record of all is torn
        return Contents(0, 0, 0, 0, False, {}, [])
    found = [(record, file) for file, data in enumerate(files) for record in read_all(data, log)]
    found.sort(key=lambda each: each[0].number)
    last, file = found[-1]
    needed = [record for record, _ in found if record.number >= last.first]
    damage = _missing(last.first, needed)
    writes = _redo(needed, damage)
    return Contents(log, last.number, file, last.end, last.clean, writes, damage)


def _missing(first: int, needed: list[Record]) -> list[str]:
    damage = []
    expected = first
    for record in needed:
        if record.number != expected:
            lost = f"record {expected}"
            if record.number - expected > 1:
                lost = f"records {expected} to {record.number - 1}"
            damage.append(f"{lost} of the commit log cannot be read, and record {record.number} can")
        expected = record.number + 1
    return damage


def _redo(records: list[Record], damage: list[str]) -> dict[str, Extents]:
    writes: dict[str, Extents] = {}
    for record in records:
        try:
            entries = list(record.entries())
        except CorruptFile as error:
            damage.append(f"record {record.number} of the commit log makes no sense: {error.reason}")
            continue
        for entry in entries:
            if isinstance(entry, Forget):
                writes.pop(entry.path, None)
            else:
                writes.setdefault(entry.path, []).append((entry.offset, entry.data))
    return writes


def read(disk: Disk, root: str) -> Contents:
    """Read the log of a data directory."""
    paths = [f"{root}/{name}" for name in (*FILE_NAMES, note.NAME)]
    *files, noted = [disk.read(path) if disk.exists(path) else b"" for path in paths]
    return contents_of(files, noted)


def patched(data: bytes, extents: Extents) -> bytes:
    """Apply writes to a file's bytes; returns the new bytes."""
    content = bytearray(data)
    for offset, each in extents:
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(each)] = each
    return bytes(content)


def write_back(disk: Disk, root: str, writes: dict[str, Extents]) -> list[str]:
    """Write the logged bytes to the files that exist, without a sync; returns their paths.

    A file that is not there was deleted, or its folder was not synced: then nobody was told that its bytes are durable.
    """
    paths = []
    for relative, extents in sorted(writes.items()):
        path = f"{root}/{relative}"
        if not disk.exists(path):
            continue
        file = disk.open(path)
        try:
            for offset, data in joined(extents):
                file.pwrite(data, offset)
        finally:
            file.close()
        paths.append(path)
    return paths


def joined(extents: Extents) -> Extents:
    """Merge adjacent writes into one; the bytes stay the same."""
    found: Extents = []
    together: list[bytes] = []
    start = end = 0
    for offset, data in extents:
        if together and offset != end:
            found.append((start, b"".join(together)))
            together = []
        if not together:
            start = offset
        together.append(data)
        end = offset + len(data)
    if together:
        found.append((start, b"".join(together)))
    return found
