"""Where messages lie in the files of a directory, found by their bytes and not by our readers of them.

A message's places are all copies of its index record (with the mark behind it) and of its stored body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.support.damage import Files, Place, changed, untouched

_HEAD = 32
"""Bytes of an index record of version 1 before an embedded message: id, expiry, two sizes."""


class Message(NamedTuple):
    """One message of a queue folder, by its index entry."""

    seq_id: int
    sha256: str
    msg_id: bytes
    """Empty where nothing outside of a body file has it."""
    places: tuple[Place, ...]


class Queue(NamedTuple):
    """What a folder of an undamaged directory gives back, in order."""

    folder: str
    messages: list[Message]
    entry_count: int
    """Of a segment of version 1."""


def occurrences(data: bytes, what: bytes) -> Iterator[int]:
    at = data.find(what)
    while at >= 0:
        yield at
        at = data.find(what, at + 1)


def in_version_1(files: Files, folder: str, msg_id: bytes) -> Iterator[Place]:
    """Index records with this id in a queue's folder."""
    for path, data in files.items():
        width = 8 if path.endswith(".jif") else 2
        if path.startswith(f"{folder}/") and path.endswith((".jif", ".idx")):
            for at in occurrences(data, msg_id):
                embedded = int.from_bytes(data[at + 28 : at + 32], "big")
                if at >= width and at + _HEAD + embedded <= len(data):
                    yield Place(path, at - width, min(len(data), at + _HEAD + embedded + width))


def in_version_2(files: Files, folder: str, seq_id: int) -> Iterator[Place]:
    """The index entry of a sequence id in a queue's folder, and its body if that is beside it."""
    for path, data in files.items():
        if not path.startswith(f"{folder}/") or not path.endswith(".qi") or len(data) < 64:
            continue
        first, end = (int.from_bytes(data[at : at + 8], "big") for at in (5, 13))
        at = 64 + 32 * (seq_id - first)
        if not first <= seq_id < end or data[at : at + 1] != b"\x01":
            continue
        yield Place(path, at, at + 32)
        if data[at + 3] == 2:
            offset, size = (
                int.from_bytes(data[at + 4 : at + 12], "big"),
                int.from_bytes(data[at + 12 : at + 16], "big"),
            )
            yield Place(path[:-1] + "s", offset, offset + 8 + size)


def in_stores(files: Files, vhost: str, msg_id: bytes) -> Iterator[Place]:
    """Records with this id in the persistent store of a vhost."""
    for path, data in files.items():
        if path.startswith(f"{vhost}/msg_store_persistent/") and path.endswith((".rdq", ".rdt")):
            for at in occurrences(data, msg_id):
                size = int.from_bytes(data[at - 8 : at], "big") if at >= 8 else 0
                if 16 <= size <= len(data) - at and data[at + size : at + size + 1] == b"\xff":
                    yield Place(path, at - 8, at + size + 1)


def undamaged(queue: Queue, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[Message]:
    """The messages that must be given back: all their bytes are there, and no new bytes say anything about them."""
    vhost = queue.folder.partition("/queues/")[0]
    if before.get(f"{vhost}/.config") != after.get(f"{vhost}/.config"):
        return []  # it tells which sequence ids a segment has
    new = list(changed(before, after))
    anything = named(after, new, queue)
    stored = [each for each in new if each.path.endswith((".rdq", ".rdt"))]
    return [
        message
        for message in queue.messages
        if message.places
        and message.seq_id not in anything
        and all(untouched(before, after, place) for place in message.places)
        and not (message.msg_id and any(message.msg_id in _around(after, each, 15) for each in stored))
    ]


def _around(files: Mapping[str, bytes], run: Place, more: int) -> bytes:
    return files[run.path][max(0, run.start - more) : run.end + more]


def named(after: Mapping[str, bytes], new: list[Place], queue: Queue) -> set[int]:
    """Sequence ids of which new bytes of index files may be read as an action: nobody can tell that it is not true."""
    found: set[int] = set()
    for run in new:
        name, data = run.path.rpartition("/")[2], after[run.path]
        if not run.path.startswith(f"{queue.folder}/"):
            continue
        if name.endswith(".idx") and name[:-4].isdigit():
            first = int(name[:-4]) * queue.entry_count
            found |= {
                first + ((data[at] & 0x3F) << 8 | data[at + 1])
                for at in range(max(0, run.start - 1), min(run.end, len(data) - 1))
                if data[at] >> 6
            }
        elif name.endswith(".jif"):
            found |= {
                int.from_bytes(data[at : at + 8], "big") & (1 << 62) - 1
                for at in range(max(0, run.start - 7), run.end)
            }
        elif name.endswith(".qi") and run.start < 64:  # its header may give every entry another number
            found |= {message.seq_id for message in queue.messages}
    return found
