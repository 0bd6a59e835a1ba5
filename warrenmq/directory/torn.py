"""The end of a file after a power cut: the part of it that can be trusted.

A file may have its new length before it has its bytes, so its end may read as zeros.  Zeros begin where a sector does: a
record that was being written then looks like one that ends in zeros.
"""

from __future__ import annotations

from typing import NamedTuple

from warrenmq.seams.disk import SECTOR

OUT_OF_STEP = 256
"""Bytes that may be read as actions or marks before damage shows."""


class Damage(NamedTuple):
    """Bytes of a file that make no sense."""

    offset: int
    length: int
    reason: str


def in_doubt(record: bytes, offset: int) -> bool:
    """True if a sector begins within this record of a file, with nothing but zeros from there on.

    If zeros follow it, it may be torn.  So the last record of a write must not be like this.
    """
    arrived = SECTOR - offset % SECTOR
    return arrived < len(record) and not any(record[arrived:])
