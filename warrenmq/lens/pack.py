"""Pack steps for the page: small, and decoded by some forty lines of JavaScript (static/tape.js).

Most rows of a trace have one of some hundred shapes: the same event with the same caption, the same kinds of
changes, and only other numbers.  So a segment of rows is the shape of each row, and for each shape its
numbers column by column, each as the difference to the one before.  Words and shapes are numbered when they
come first, and each segment brings those that are new.

    {"n": rows, "t": time of the first, "dt": [...], "actors": [...], "shapes": [shape of each row],
     "words": [new words], "new": [new shapes], "columns": {shape: [[differences], ...]}}

A shape is [run, event, fillers, mark, move, changes]:

    fillers   [template, kinds]: a letter a filler, i = a number, s = a word
    move      0, or [from, to] or [from, by way of, to], each the parts of the anchor between its numbers
    changes   [table, key, fields, kinds] for each: key is 0 for a number, else the parts of the key between its numbers; fields is
              -1 = the row is gone, 0 = one value, else a mask of the fields that are new, all of them if there was no row before

and its columns, from left to right: message, rows since the cause (0 = none), fillers, the move's numbers,
and for each change the numbers of the key and the new fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import sub
from typing import Any

from warrenmq.lens.tables import Key, Step
from warrenmq.trace.schema import Row

SEGMENT_ROWS = 16_384
_NUMBER = re.compile(r"(?<!\d)(0|[1-9]\d{0,14})(?!\d)")
_EXACT = 1 << 53
"""JavaScript counts exactly up to here."""


@lru_cache(maxsize=100_000)
def _parts(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Split a key into its words and its numbers."""
    pieces = _NUMBER.split(text)
    return tuple(pieces[::2]), tuple(map(int, pieces[1::2]))


class Packer:
    """Packs the steps of one trace, segment by segment."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._shapes: dict[Any, int] = {}
        self._rows = 0
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        self._n = 0
        self._t = self._before = 0
        self._new_words: list[str] = []
        self._new_shapes: list[Any] = []
        self._times: list[int] = []
        self._actors: list[int] = []
        self._of: list[int] = []
        self._values: dict[int, list[list[int]]] = {}
        """Shape -> the numbers of each of its rows."""

    def __len__(self) -> int:
        """The number of rows not yet cut into a segment."""
        return self._n

    def add(self, number: int, run: int, row: Row, step: Step) -> None:
        """Add a row; `number` is its number in the trace, from 1."""
        values = [step.message, number - step.cause if step.cause else 0]
        template, *fillers = step.caption
        kinds = self._kinds(fillers, values)
        move: Any = 0
        if step.move is not None:
            move = tuple([self._key(anchor, values) for anchor in step.move])
        changes = tuple([
            (table, self._key(key, values), *self._fields(new, old, values)) for table, key, new, old in step.changes
        ])  # fmt: skip
        who = row.who
        shape = (run, who >> 8 & 0xFF, (template, kinds), step.mark, move, changes)
        which = self._shapes.get(shape)
        if which is None:
            which = self._shapes[shape] = len(self._shapes)
            self._new_shapes.append(shape)
        rows = self._values.get(which)
        if rows is None:
            self._values[which] = [values]
        else:
            rows.append(values)
        if not self._n:
            self._t = self._before = row.t
        self._times.append(row.t - self._before)
        self._before = row.t
        self._actors.append(who >> 16)
        self._of.append(which)
        self._n += 1

    def _kinds(self, fields: Iterable[Any], values: list[int]) -> str:
        """Add values that are numbers or words; returns a letter for each."""
        kinds = ""
        for each in fields:
            if isinstance(each, int) and -_EXACT < each < _EXACT:
                values.append(each)
                kinds += "i"
            else:
                word = str(each)
                found = self._words.get(word)
                if found is None:
                    found = self._words[word] = len(self._words)
                    self._new_words.append(word)
                values.append(found)
                kinds += "s"
        return kinds

    @staticmethod
    def _key(key: Key, values: list[int]) -> Any:
        if isinstance(key, int):
            values.append(key)
            return 0
        parts, numbers = _parts(key)
        values += numbers
        return parts

    def _fields(self, new: Any, old: Any, values: list[int]) -> tuple[int, str]:
        if new is None:
            return -1, ""
        if not isinstance(new, tuple):
            return 0, self._kinds((new,), values)
        if old is None:
            return (1 << len(new)) - 1, self._kinds(new, values)
        if new == old:
            return 1, self._kinds(new[:1], values)  # mask 0 means a value without fields
        mask, fresh = 0, []
        for place, each in enumerate(new):
            if each != old[place]:
                mask |= 1 << place
                fresh.append(each)
        return mask, self._kinds(fresh, values)

    def segment(self) -> str:
        """Cut a segment: the rows added since the last one, as one line of JSON."""
        packed = {
            "n": self._n,
            "t": self._t,
            "dt": self._times,
            "actors": _differences(self._actors),
            "shapes": self._of,
            "words": self._new_words,
            "new": self._new_shapes,
            "columns": {
                which: [_differences(column) for column in zip(*rows, strict=True)]
                for which, rows in self._values.items()
            },
        }
        self._begin()
        return compact(packed)


def _differences(numbers: Sequence[int]) -> list[int]:
    return list(map(sub, numbers, chain((0,), numbers)))


def compact(value: Any) -> str:
    """Encode as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def segments(steps: Iterable[tuple[int, int, Row, Step]], packer: Packer) -> Iterator[str]:
    """The packed segments of (number, run, row, step)."""
    for number, run, row, step in steps:
        packer.add(number, run, row, step)
        if len(packer) == SEGMENT_ROWS:
            yield packer.segment()
    if len(packer):
        yield packer.segment()
