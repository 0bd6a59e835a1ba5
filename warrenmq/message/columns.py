"""Rows of bytes that are alike, made as columns: one step for all rows instead of one for each.

A template is repeated, and the fields that differ are set with one assignment for each of their bytes.  A column is the
numbers of one field, eight bytes each, big-endian.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from functools import reduce
from operator import xor

WIDTH = 8
"""Bytes of a number."""


def number(column: bytes, place: int) -> int:
    """The number at a place of a column."""
    return int.from_bytes(column[WIDTH * place : WIDTH * (place + 1)], "big")


def column(numbers: Iterable[int]) -> bytes:
    """The column of numbers from 0 to 2^64 - 1."""
    packed = array("Q", numbers)
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


def xored(*columns: bytes | bytearray) -> bytes:
    """Columns of one length, or single bytes of each of their rows, XORed."""
    numbers = [int.from_bytes(each, "little") for each in columns]
    return reduce(xor, numbers).to_bytes(len(columns[0]), "little")


def set_field(rows: bytearray, row: int, at: int, width: int, numbers: bytes) -> None:
    """Set a field of every row, `row` bytes long: its `width` bytes at `at` become the low ones of the
    numbers of a column.
    """
    for i in range(width):
        rows[at + i :: row] = numbers[WIDTH - width + i :: WIDTH]
