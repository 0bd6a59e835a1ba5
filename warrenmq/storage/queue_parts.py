"""What a backing queue stands on, and what it tells of itself: its stores (msg_store clients), its depths, its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from warrenmq.storage.index_record import body_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warrenmq.storage.queue_index_protocol import Index


class Store(Protocol):
    """What the queue needs of a message store (MsgStoreClient)."""

    @property
    def blocked(self) -> bool: ...
    def write(self, msg_id: bytes, stored: bytes) -> None: ...
    def remove(self, msg_ids: list[bytes]) -> None: ...
    def read(self, msg_id: bytes) -> bytes | None: ...
    def read_many(self, msg_ids: Sequence[bytes]) -> dict[bytes, bytes]: ...


class Depths(NamedTuple):
    """How many messages are in which state, and what the queue has in memory."""

    alpha: int
    beta: int
    gamma: int
    delta: int
    ram_msg_count: int
    """Ready messages whose body is in memory."""
    ram_bytes: int
    """Their bytes, and those of unacked messages."""
    target_ram_count: float
    """How many of them there should be; infinite = as many as there are."""

    @property
    def in_memory(self) -> int:
        """Ready messages that are in memory, with or without their body."""
        return self.alpha + self.beta + self.gamma


def body_bytes(index: Index) -> int:
    """Bytes of the bodies of all messages that an index holds, read segment by segment."""
    low, high = index.bounds()
    step = index.segment_entry_count
    return sum(
        body_size(record) for start in range(low, high, step) for _, record, _ in index.read(start, start + step)
    )
