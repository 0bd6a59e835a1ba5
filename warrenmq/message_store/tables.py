"""The tables that a store shares with its clients, and its record of each client.

In RabbitMQ these are ETS tables whose ids travel to the clients in the reply of `new_client_state`; the reasons why they
may be shared stand in each table's module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warrenmq.message_store.actions import Place
from warrenmq.message_store.cur_file_cache import CurFileCache
from warrenmq.message_store.damage import StoreDamage
from warrenmq.message_store.file_handles import FileHandles
from warrenmq.message_store.file_summary import FileSummary
from warrenmq.message_store.flying import FlyingTable
from warrenmq.message_store.message_index import MessageIndex
from warrenmq.seams.disk import Disk
from warrenmq.seams.disk_errors import FULL
from warrenmq.settings import Settings


class StoreTables:
    """The tables that the store and its clients both touch, and whether it has room for more."""

    __slots__ = ("cache", "damage", "disk_full", "files", "flying", "handles", "index", "lack", "longest")

    def __init__(
        self, disk: Disk, directory: str, settings: Settings, index: MessageIndex, files: FileSummary,
        damage: StoreDamage,
    ) -> None:  # fmt: skip
        self.damage = damage
        self.index = index
        self.files = files
        self.flying = FlyingTable()
        self.cache = CurFileCache()
        self.handles = FileHandles(disk, directory, settings.file_handles_high_watermark)
        self.longest = disk.longest
        """Tells how many bytes a file may have."""
        self.disk_full = False
        """Writes wait for room, or for descriptors; written by the store alone, clients look at it before
        they take messages in.
        """
        self.lack = FULL
        """The want that writes wait for, as words of a sentence."""


@dataclass(slots=True)
class Client:
    """One incarnation of a queue process, as the store knows it."""

    cref: bytes
    owner: str
    """The queue: it keeps its references when this incarnation dies."""
    wants_confirms: bool
    trace_id: int = 0
    unconfirmed: dict[bytes, None] = field(default_factory=dict)
    """Messages written or counted, not yet safe (RabbitMQ: cref_to_msg_ids); a dict, for its order."""
    died_at: Place | None = None
    """The place of the store's next record when it learnt that the client is being deleted."""


def trace_number(msg_id: bytes) -> int:
    """A message in the trace: the low 64 bits of its id."""
    return int.from_bytes(msg_id[8:], "big")
