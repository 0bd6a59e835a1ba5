"""Delays in classes (ledger.py's `delay_class`), for many at once."""

from __future__ import annotations

import numpy as np

from warrenmq.replay.drive.columns import Ints

LONGEST = 1 << 52
"""Nanoseconds (52 days): what is longer, or negative, is none that can be put into a class here."""
_BITS = 7


def class_numbers(delays: Ints) -> Ints:
    """A small number for the class of each delay."""
    _, length = np.frexp(delays.astype(np.float64))
    shift = np.maximum(length.astype(np.int64) - _BITS, 0)
    numbers: Ints = shift << _BITS | delays >> shift
    return numbers


def class_of(number: int) -> int:
    """The class itself: its lower end in ns."""
    return (number & (1 << _BITS) - 1) << (number >> _BITS)
