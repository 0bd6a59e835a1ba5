"""What the store's state tells others: it talks to nobody itself, its actor does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from warrenmq.storage.combine import Combine, Delete

if TYPE_CHECKING:
    from warrenmq.storage.store_tables import Client


@dataclass(slots=True)
class Confirm:
    """Tell a client about its messages: `written` = safe, `ignored` = will never need to be."""

    client: Client
    msg_ids: list[bytes]
    reason: str


@dataclass(slots=True)
class Reply:
    """Answer a read: the body, or None when the store does not have the message."""

    sender: Any
    body: bytes | None


@dataclass(slots=True, frozen=True)
class StoreStatistics:
    """What a store knows of itself."""

    messages: int
    """With at least one reference."""
    references: int
    current_file: int
    files: tuple[tuple[int, int, int, bool, int], ...]
    """(file, file_size, valid_total_size, locked, readers), ascending."""
    disk_full: bool


Effect: TypeAlias = Confirm | Reply | Combine | Delete
"""A Combine or a Delete goes to the garbage collector."""
