"""Damage to the files of a directory, as data; and which bytes of it are still what and where they were.

    cut       a file ends early                        flip      bits of one byte
    zero      a run of zeros                           noise     a run of anything
    double    a block comes twice, one behind the other          lack      a block is missing, what follows moves up
    stray     a block also stands in another's place   longer    something stands behind the end
    delete    a file is gone                           swap      two files have each other's bytes

What is untouched is told by comparing: bytes that are equal at the same place of the same file.  So damage of several
kinds, one over the other, needs no bookkeeping, and what an insertion moved counts as damaged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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
    """Whether a place has all its bytes still."""
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
