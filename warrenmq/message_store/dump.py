"""The dumps of a clean stop, which spare the next start reading the store's files.

    file_summary.ets        the rows of the file summary
    msg_store_index.ets     the index, each queue's references, and the queues of which they may be too many
    clean.dot               written last: the checksums of the other two

RabbitMQ's names, our bytes: a checksum (u32 CRC-32 of what follows, big endian), then msgpack.  A start consumes them
before it changes anything, so a crash at any later time finds none of them and reads the files.  They are believed
only together and only if the files are as they say: there, none beside them, and of the same sizes.

Inside, an entry is id, references, file, offset and total size in one packed row, and an owner's references are its
ids one behind the other: 44 and 16 bytes a message, a million of which are written and read in about a second each.
Entries without references are left out, as a start that reads the files does not find them either.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any
from zlib import crc32

import msgpack  # type: ignore[import-untyped]

from warrenmq.errors import CorruptFile
from warrenmq.message_store import rdq
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.message_index import MessageIndex
from warrenmq.message_store.owner_refs import OwnerRefs
from warrenmq.seams.disk import Disk

SUMMARY = "file_summary.ets"
INDEX = "msg_store_index.ets"
CLEAN = "clean.dot"
VERSION = 1

_MESSAGE_FILES = (rdq.EXTENSION, rdq.RABBITMQ_TEMPORARY)
_CHECKSUM = Struct(">I")
_ENTRY = Struct(">16sIQQQ")
_ROW = Struct(">QQQ")


class UnusableDump(Exception):
    """The dumps cannot be used: read the files.  `damage` describes the reason, if it is damage."""

    def __init__(self, reason: str, damage: Sequence[CorruptFile] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.damage = damage


def save(disk: Disk, directory: str, index: MessageIndex, files: FileSummary, owners: OwnerRefs) -> None:
    """Write the three files.  No file may be at the garbage collector."""
    rows = b"".join(_ROW.pack(n, row.valid_total_size, row.file_size) for n, row in files.rows.items())
    entries = b"".join(_ENTRY.pack(msg_id, *entry) for msg_id, entry in index.items() if entry[0])
    held = [(owner, b"".join(owners.all_of(owner))) for owner in owners.owners()]
    doubtful = sorted(each for each in owners.doubtful if owners.held(each))
    summary_checksum = _write(disk, f"{directory}/{SUMMARY}", rows)
    index_checksum = _write(disk, f"{directory}/{INDEX}", [entries, held, doubtful])
    _write(disk, f"{directory}/{CLEAN}", [VERSION, summary_checksum, index_checksum])


def load(disk: Disk, directory: str) -> tuple[MessageIndex, FileSummary, OwnerRefs]:
    """Read the three files and delete them, whatever they hold.  `UnusableDump` if they cannot be believed."""
    try:
        return _load(disk, directory)
    except (AttributeError, KeyError, TypeError, ValueError, struct.error) as error:
        raise UnusableDump("the dumps hold something else than a store's tables") from error
    finally:
        for name in (CLEAN, INDEX, SUMMARY):  # the one that says the others are good goes first
            disk.unlink(f"{directory}/{name}")
        disk.sync_dir(directory)


def _load(disk: Disk, directory: str) -> tuple[MessageIndex, FileSummary, OwnerRefs]:
    (version, *checksums), _ = _read(disk, f"{directory}/{CLEAN}")
    if version != VERSION:
        raise UnusableDump(f"{CLEAN} is of version {version}")
    packed_rows, summary_checksum = _read(disk, f"{directory}/{SUMMARY}")
    (packed_entries, held, *rest), index_checksum = _read(disk, f"{directory}/{INDEX}")
    if checksums != [summary_checksum, index_checksum]:
        raise UnusableDump("the dumps are not of the same stop")
    files = FileSummary()
    for number, valid, size in _ROW.iter_unpack(packed_rows):
        files.add(number)
        files.resize(number, valid=valid, size=size)
    names = disk.listdir(directory)
    sizes = {name: disk.size(f"{directory}/{name}") for name in names if name.endswith(_MESSAGE_FILES)}
    saved = {rdq.file_name(number): row.file_size for number, row in files.rows.items()}
    if changed := [
        CorruptFile(f"{directory}/{name}", at, reason) for name, at, reason in changes_since(saved, sizes)
    ]:
        raise UnusableDump("files are not as they were when the store was stopped", changed)
    entries = {row[0]: row[1:] for row in _ENTRY.iter_unpack(packed_entries)}
    for _, file, msg_id in sorted((entry[2], entry[1], msg_id) for msg_id, entry in entries.items()):
        files.rows[file].ids.append(msg_id)
    owners = OwnerRefs()
    for owner, msg_ids in held:
        for msg_id in _split(msg_ids):
            owners.add(owner, msg_id)
    owners.doubtful.update(*rest)  # older dumps do not tell them
    return MessageIndex(entries), files, owners


def saved_sizes(clean: bytes, summary: bytes) -> dict[str, int]:
    """The bytes of each message file when the store was stopped, from two dumps; `UnusableDump` if they
    cannot be believed.
    """
    try:
        (version, checksum, _), _ = _unpack(CLEAN, clean)
        rows, found = _unpack(SUMMARY, summary)
        if version != VERSION or checksum != found:
            raise UnusableDump("the dumps are not of the same stop")
        return {rdq.file_name(number): size for number, _, size in _ROW.iter_unpack(rows)}
    except (TypeError, ValueError, struct.error) as error:
        raise UnusableDump("the dumps hold something else than a store's tables") from error


def changes_since(saved: Mapping[str, int], sizes: Mapping[str, int]) -> Iterator[tuple[str, int, str]]:
    """(name, offset, what is wrong) of each message file whose size is not the saved one, or that was not there."""
    for name in sorted({*saved, *sizes}):
        before, now = saved.get(name), sizes.get(name)
        if before is None:
            yield name, 0, "it was not there when the store was stopped in order"
        elif now is None:
            yield name, 0, f"it had {before} bytes when the store was stopped in order, and is gone"
        elif now != before:
            yield (
                name,
                min(before, now),
                f"it had {before} bytes when the store was stopped in order, now it has {now}",
            )


def _split(msg_ids: bytes) -> Iterator[bytes]:
    return (msg_ids[at : at + rdq.ID_SIZE] for at in range(0, len(msg_ids), rdq.ID_SIZE))


def _write(disk: Disk, path: str, content: Any) -> int:
    packed: bytes = msgpack.packb(content)
    checksum = crc32(packed)
    disk.replace(path, _CHECKSUM.pack(checksum) + packed)
    return checksum


def _read(disk: Disk, path: str) -> tuple[Any, int]:
    if not disk.exists(path):
        raise UnusableDump(f"there is no {path}")
    return _unpack(path, disk.read(path))


def _unpack(path: str, data: bytes) -> tuple[Any, int]:
    packed = data[_CHECKSUM.size :]
    if len(data) < _CHECKSUM.size or _CHECKSUM.unpack_from(data)[0] != crc32(packed):
        reason = "it is damaged: the checksum of what a clean stop left is wrong"
        raise UnusableDump(reason, [CorruptFile(path, 0, reason)])
    return msgpack.unpackb(packed), crc32(packed)
