"""Damage to the files of a directory, as data; and which bytes of it are still what and where they were.

    cut       a file ends early                        flip      bits of one byte
    zero      a run of zeros                           noise     a run of anything
    double    a block comes twice, one behind the other          lack      a block is missing, what follows moves up
    stray     a block also stands in another's place   longer    something stands behind the end
    delete    a file is gone                           swap      two files have each other's bytes

Untouched bytes are found by comparing: bytes that are equal at the same place of the same file.  So damage of several
kinds, one over the other, needs no bookkeeping, and what an insertion moved counts as damaged.

Where messages lie is found by their bytes and not by our readers of them: all copies of an index record (with the mark behind
it) and of the stored body.

    python3 tests/run.py tests/fuzz                       a short run, the same examples every time
    FUZZ=100 python3 tests/run.py tests/fuzz              a hundred times as many, other ones every time
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Files = dict[str, bytes]
OF_BYTES = ("cut", "flip", "zero", "noise", "double", "lack", "stray", "longer")
OF_FILES = ("delete", "swap")
LARGEST = 700
"""Bytes of a damaged run: some records."""


class Damage(NamedTuple):
    """One thing that happened to a file."""

    kind: str
    path: str
    at: int = 0
    size: int = 0
    other: int = 0
    """flip: the mask; noise and longer: the seed of the bytes, 0 for zeros; stray: where the block comes from."""
    path2: str = ""
    """swap: the other file."""


class Place(NamedTuple):
    """Bytes without which a message cannot be given back as it was."""

    path: str
    start: int
    end: int


def apply(files: Mapping[str, bytes], damages: Sequence[Damage]) -> Files:
    """The files after all of it, one after the other; damage to a file that is gone does nothing."""
    found = dict(files)
    for damage in damages:
        if damage.path not in found:
            continue
        if damage.kind == "delete":
            del found[damage.path]
        elif damage.kind == "swap":
            if damage.path2 in found:
                found[damage.path], found[damage.path2] = found[damage.path2], found[damage.path]
        else:
            found[damage.path] = _damaged(found[damage.path], damage)
    return found


def _damaged(data: bytes, damage: Damage) -> bytes:
    kind, at, size = damage.kind, min(damage.at, len(data)), damage.size
    block = data[at : at + size]
    before, behind = data[:at], data[at + len(block) :]
    match kind:
        case "cut":
            return before
        case "flip":
            return before + bytes(each ^ damage.other for each in data[at : at + 1]) + data[at + 1 :]
        case "zero":
            return before + bytes(len(block)) + behind
        case "noise":
            return before + _noise(damage.other, len(block)) + behind
        case "double":
            return before + block + block + behind
        case "lack":
            return before + behind
        case "stray":
            other = data[damage.other : damage.other + len(block)]
            return before + other + data[at + len(other) :]
        case "longer":
            return data + _noise(damage.other, size)
    raise ValueError(kind)


def _noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size) if seed else bytes(size)


def untouched(before: Mapping[str, bytes], after: Mapping[str, bytes], place: Place) -> bool:
    """True if a place still has all its bytes."""
    path, start, end = place
    return path in after and len(after[path]) >= end and before[path][start:end] == after[path][start:end]


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Iterator[Place]:
    """Runs of bytes that are new: what stands there may say anything."""
    for path, data in after.items():
        old = before.get(path, b"")
        at = 0
        while at < len(data):
            if data[at : at + 64] == old[at : at + 64]:
                at += 64
                continue
            while at < len(data) and at < len(old) and data[at] == old[at]:
                at += 1
            start = at
            while at < len(data) and (at >= len(old) or data[at] != old[at]):
                at += 1
            if at > start:
                yield Place(path, start, at)


def damages(
    files: Mapping[str, bytes], edges: Mapping[str, Sequence[int]] | None = None, *, most: int = 3,
    kinds: Sequence[str] = (*OF_BYTES, *OF_FILES),
) -> st.SearchStrategy[list[Damage]]:  # fmt: skip
    """Up to `most` damages of the files; `edges` are places where records begin or end, which are hit more often."""
    return st.lists(_damage(sorted(files), files, edges or {}, kinds), min_size=1, max_size=most)


@st.composite
def _damage(
    draw: st.DrawFn,
    paths: list[str],
    files: Mapping[str, bytes],
    edges: Mapping[str, Sequence[int]],
    kinds: Sequence[str],
) -> Damage:
    kind = draw(st.sampled_from(kinds))
    path = draw(st.sampled_from(paths))
    if kind == "delete":
        return Damage(kind, path)
    if kind == "swap":
        return Damage(kind, path, path2=draw(st.sampled_from(paths)))
    length = len(files[path])
    at = draw(st.integers(0, max(0, length - 1)))
    if edges.get(path) and draw(st.booleans()):
        at = min(max(0, length - 1), max(0, draw(st.sampled_from(edges[path])) + draw(st.integers(-9, 40))))
    size = draw(st.one_of(st.integers(1, 40), st.integers(1, LARGEST)))
    other = 0
    if kind == "flip":
        other = draw(st.one_of(st.sampled_from([1 << bit for bit in range(8)]), st.integers(1, 255)))
    elif kind in {"noise", "longer"}:
        other = draw(st.integers(0, 1 << 20))
    elif kind == "stray":
        other = draw(st.integers(0, max(0, length - 1)))
    return Damage(kind, path, at, size, other)


# -- where messages lie

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
    """The messages that a folder of an undamaged directory gives back, in order."""

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
            offset = int.from_bytes(data[at + 4 : at + 12], "big")
            size = int.from_bytes(data[at + 12 : at + 16], "big")
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


def missing(wanted: Iterable[Any], found: Iterable[Any]) -> list[Any]:
    """The wanted ones that were not found, or not in order."""
    rest = iter(found)
    # a subsequence: `in` takes from an iterator what it passes
    return [each for each in wanted if each not in rest]


def _around(files: Mapping[str, bytes], run: Place, more: int) -> bytes:
    return files[run.path][max(0, run.start - more) : run.end + more]


def named(after: Mapping[str, bytes], new: list[Place], queue: Queue) -> set[int]:
    """Sequence ids of which new bytes of index files may be read as an action that no check can refute."""
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


# -- how long the fuzz tests run

TIMES = int(os.environ.get("FUZZ", "1"))
HANGS = 60.0
"""Seconds after which something hangs that takes milliseconds."""


def examples(count: int) -> Any:
    """The settings of a fuzz test that takes this many examples in a short run."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def no_hanging(seconds: float = HANGS) -> Iterator[None]:
    """Fail when what is inside does not come to an end: a parser's endless loop passes no point that a simulation sees."""

    def fail(_signal: int, _frame: FrameType | None) -> None:
        msg = "it does not come to an end"
        raise AssertionError(msg)

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
