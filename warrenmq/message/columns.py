"""Rows of bytes that are alike, made as columns: one step for all rows instead of one for each.

A template is repeated, and the fields that differ are set with one assignment for each of their bytes.  A column is the
numbers of one field, eight bytes each, big-endian.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def xored(one: bytes, other: bytes) -> bytes:
    """The numbers of two columns of one length, XORed."""
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(one), "little")


def set_field(rows: bytearray, row: int, at: int, width: int, numbers: bytes) -> None:
    """Set a field of every row, `row` bytes long: its `width` bytes at `at` become the low ones of the numbers of a column."""
    for i in range(width):
        rows[at + i :: row] = numbers[WIDTH - width + i :: WIDTH]
