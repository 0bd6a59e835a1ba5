"""One message as an index describes it, in either version."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Where(StrEnum):
    """The kind of file that holds a message's body."""

    INDEX = "index"
    """Embedded in its index record: N.idx or journal.jif."""
    STORE = "store"
    """The shared message store."""
    QUEUE_STORE = "qs"
    """The queue's own N.qs."""


class Entry(NamedTuple):
    """A message that was published and not acked."""

    seq_id: int
    persistent: bool
    msg_id: bytes
    """Empty when the index does not have it (version 2, body in N.qs)."""
    expiry: int
    """Microseconds since 1970; 0 = never."""
    size: int
    """Bytes of the body, as the index has it."""
    where: Where
    file: str = ""
    """Name of the file that has the stored message; of the index's file, when it is in the store."""
    offset: int = 0
    """The record's offset there; the stored message begins `head` bytes further on, unless it is in the store."""
    head: int = 0
    stored_size: int = 0
    """Bytes of the stored message."""
    salvaged: str | None = None
    """The reason why RabbitMQ itself would not find this entry; None if it would."""
