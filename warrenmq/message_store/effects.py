"""Effects: messages that a call of the store's state leaves, for its actor to send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from warrenmq.message_store.gc_jobs import Combine, Compact, Delete, Truncate
from warrenmq.message_store.tables import Client, StoreTables


@dataclass(slots=True)
class Confirm:
    """Tell a client about its messages: `written` = safe, `ignored` = will never need to be, `too long` =
    cannot be written for now.
    """

    client: Client
    msg_ids: list[bytes]
    reason: str


@dataclass(slots=True)
class Reply:
    """Answer a read: the body, None when the store does not have the message, or the error that the disk gave."""

    sender: Any
    body: bytes | OSError | None


@dataclass(slots=True, frozen=True)
class StoreStatistics:
    """The figures of a store."""

    messages: int
    """Messages with at least one reference."""
    references: int
    current_file: int
    files: tuple[tuple[int, int, int, bool, int], ...]
    """(file, file_size, valid_total_size, locked, clients that read it), ascending."""
    disk_full: bool
    damaged: int
    """Messages and other pieces of files that were set aside."""

    @classmethod
    def of(cls, tables: StoreTables, *, disk_full: bool) -> StoreStatistics:
        """Count what a store's tables hold now."""
        files = tables.files
        counts = [entry[0] for _, entry in tables.index.items() if entry[0]]
        return cls(
            messages=len(counts),
            references=sum(counts),
            current_file=files.current,
            files=tuple(
                (number, row.file_size, row.valid_total_size, row.locked, len(row.readers))
                for number, row in files.rows.items()
            ),
            disk_full=disk_full,
            damaged=tables.damage.count,
        )


Effect: TypeAlias = Confirm | Reply | Combine | Compact | Truncate | Delete
"""A job goes to the garbage collector."""
