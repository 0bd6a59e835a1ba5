"""Damage to the files of a trace: what is removed, what is zeroed, which bits are flipped."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.old_frames import encode_rows
from warrenmq.trace.block import ROW, Frame, Kind, decode_columns, next_frame
from warrenmq.trace.index import rows_of
from warrenmq.trace.segment import decode_header
from warrenmq.trace.slab import EMPTY_ROW, HEAD_BYTES

Files = dict[str, bytes]
PAGE = 4096


def frames_of(data: memoryview) -> list[Frame]:
    head = decode_header(data)
    found: list[Frame] = []
    at = len(data) if head is None else head[1]
    while (frame := next_frame(data, at)) is not None:
        found.append(frame)
        at = frame.end
    return found


def _one(files: Files, rng: random.Random, suffix: str) -> str | None:
    names = sorted(name for name in files if name.endswith(suffix))
    return rng.choice(names) if names else None


def a_file(files: Files, rng: random.Random) -> None:
    del files[rng.choice(sorted(files))]


def a_run(files: Files, rng: random.Random) -> None:
    run = rng.choice(sorted(files)).split("-")[0]
    for name in [name for name in files if name.startswith(run)]:
        del files[name]


def a_tail(files: Files, rng: random.Random) -> None:
    name = rng.choice(sorted(files))
    files[name] = files[name][: rng.randrange(len(files[name]) or 1)]


def a_tail_of_whole_frames(files: Files, rng: random.Random) -> None:
    if (name := _one(files, rng, ".wtr")) and (frames := frames_of(memoryview(files[name]))):
        files[name] = files[name][: rng.choice(frames).offset]


def a_frame(files: Files, rng: random.Random) -> None:
    if (name := _one(files, rng, ".wtr")) and (frames := frames_of(memoryview(files[name]))):
        gone = rng.choice(frames)
        files[name] = files[name][: gone.offset] + files[name][gone.end :]


def a_header(files: Files, rng: random.Random) -> None:
    """Nothing of the file can be read: it is empty, ends in its header, or begins with another program's bytes."""
    name = rng.choice(sorted(files))
    head = decode_header(memoryview(files[name])) or ({}, HEAD_BYTES)
    cut = files[name][: rng.randrange(head[1])]
    files[name] = rng.choice((b"", cut, b"remember the milk" * 300, bytes(head[1]) + files[name][head[1] :]))


def names_in(files: Files) -> list[tuple[str, Frame]]:
    """The frames that name an actor, a kind of messages or a text, each with its file."""
    segments = sorted(name for name in files if name.endswith(".wtr"))
    return [
        (name, each)
        for name in segments
        for each in frames_of(memoryview(files[name]))
        if each.kind == Kind.META
    ]


def without(files: Files, name: str, frame: Frame) -> Files:
    """The files without a frame of one of them."""
    return files | {name: files[name][: frame.offset] + files[name][frame.end :]}


def a_name(files: Files, rng: random.Random) -> None:
    """Rows of an actor that nothing else names are there, or an actor that has none is not known of."""
    if names := names_in(files):
        files.update(without(files, *rng.choice(names)))


def rows_of_a_frame(files: Files, rng: random.Random) -> None:
    """The frame is whole; the first or last rows of it are not there any more."""
    if not (name := _one(files, rng, ".wtr")):
        return
    frames = [each for each in frames_of(memoryview(files[name])) if each.kind == Kind.ROWS and each.rows > 1]
    if frames:
        frame = rng.choice(frames)
        rows = [ROW.pack(*row) for row in rows_of(decode_columns(frame))]
        cut = rng.randrange(1, len(rows))
        left = encode_rows(b"".join(rows[:cut] if rng.random() < 0.7 else rows[cut:]))
        files[name] = files[name][: frame.offset] + left + files[name][frame.end :]


def rows_of_a_slab(files: Files, rng: random.Random) -> None:
    """Zeros in the places of rows; never only in one before an empty place, which a kill leaves as it begins to write a row."""
    if (name := _one(files, rng, ".slab")) and (places := _written(files[name])):
        data = bytearray(files[name])
        first = rng.randrange(len(places))
        gone = places[first : first + rng.choice((1, 1, 2, 10))]
        if len(gone) == 1 and data[gone[0] + ROW.size : gone[0] + 2 * ROW.size] == EMPTY_ROW:
            gone = places[: first + 1][-2:]
        for at in gone:
            data[at : at + ROW.size] = bytes(ROW.size)
        files[name] = bytes(data)


def a_page(files: Files, rng: random.Random) -> None:
    """Zeros, as a power cut leaves them; mostly one that had rows."""
    name = _one(files, rng, ".slab") if rng.random() < 0.7 else None
    name = name or rng.choice(sorted(files))
    places = _written(files[name]) if name.endswith(".slab") else []
    at = rng.choice(places) if places and rng.random() < 0.9 else rng.randrange(len(files[name]) or 1)
    data = bytearray(files[name])
    begin = at - at % PAGE
    data[begin : begin + PAGE] = bytes(len(data[begin : begin + PAGE]))
    files[name] = bytes(data)


def bits(files: Files, rng: random.Random) -> None:
    """One to three bits: in rows of a slab, in headers, in frames and footers, anywhere."""
    for _ in range(rng.choice((1, 1, 1, 3))):
        name = _one(files, rng, rng.choice((".slab", ".slab", ".wtr", "")))
        if name is None or not files[name]:
            continue
        data = bytearray(files[name])
        where = rng.random()
        places = _written(files[name]) if name.endswith(".slab") else []
        if where < 0.6 and places:
            at = rng.choice(places) + rng.randrange(ROW.size)
        elif where < 0.8:
            at = rng.randrange(min(len(data), HEAD_BYTES))
        else:
            at = rng.randrange(max(0, len(data) - 100) if where > 0.95 else 0, len(data))
        data[at] ^= 1 << rng.randrange(8)
        files[name] = bytes(data)


def _written(data: bytes) -> list[int]:
    """The places of rows in a slab file."""
    return [
        at
        for at in range(HEAD_BYTES, len(data) - ROW.size + 1, ROW.size)
        if data[at : at + ROW.size] not in {EMPTY_ROW, bytes(ROW.size)}
    ]


DAMAGE: list[Callable[[Files, random.Random], None]] = [
    a_file, a_run, a_header, a_tail, a_tail_of_whole_frames, a_frame, a_name, rows_of_a_frame, rows_of_a_slab, a_page, a_page, bits, bits, bits,
]  # fmt: skip
