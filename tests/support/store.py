"""Small things that the tests of the message store share."""

from __future__ import annotations

import random

from warrenmq.storage import rdq
from warrenmq.storage.sim_disk import SimulatedDisk

FOLDER = "/store"
QUARANTINE = "/quarantine"


def msg_id(number: int) -> bytes:
    """A message id as the broker makes them: a prefix of the run and a number."""
    return b"testing!" + number.to_bytes(8, "big")


def record(number: int, body: bytes = b"body") -> bytes:
    """A whole record."""
    return rdq.head(msg_id(number), len(body)) + body + rdq.MARKER


def new_disk(seed: int = 0) -> SimulatedDisk:
    """A disk with the store's folder."""
    disk = SimulatedDisk(random.Random(seed))
    disk.mkdir(FOLDER)
    return disk
