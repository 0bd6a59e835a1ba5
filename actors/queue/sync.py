"""When what a queue wrote to its index is made safe, and what happens when the disk is full.

    confirms wait     SyncTimeout 25 ms after the first of them, unless an empty mailbox has synced before
    others wait       Idle after 200 ms: acks, and messages whose publishers want no confirm
    the disk is full  publishes are refused; Idle every second tries again

Any other failure of the disk crashes the queue process.

The disk counts as full when the last write to the index failed for want of room, while a message store has no room for what
it was given, and when less is free than the publishes at hand need: whoever publishes hears it before anything is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warrenmq.queue.messages import Idle, SyncTimeout
from warrenmq.seams.disk import is_full

if TYPE_CHECKING:
    from collections.abc import Callable

    from warrenmq.actors.store.client import MsgStoreClient
    from warrenmq.log import Log
    from warrenmq.runtime import Server, Timer
    from warrenmq.seams.disk import Disk
    from warrenmq.settings import Settings

DISK_FULL_RETRY = 1.0
"""Seconds between attempts to write while the disk is full."""
LOOK_PER_BYTES = 64 << 20
"""Bytes of room for each time that publishes are taken in without a look at how much there is."""
OVERHEAD = 256
"""Bytes that a message takes beside its body, at most, give or take long headers."""


class QueueSync:
    """The two timers of a queue process.

    unsynced   what nobody waits for was written, but not synced: the slow timer does it
    disk_full  the last write failed with ENOSPC: publishes are refused until one succeeds
    refusing   publishes were refused the last time
    unwritten  bytes taken in since the queue owed no confirm, while room is short: they may not be in the files yet
    stores     the ends of the message stores, which may have no room, either
    """

    def __init__(self, server: Server, settings: Settings, log: Log) -> None:
        self._server = server
        self._log = log
        self.unsynced = self.disk_full = self.refusing = False
        self._stores: tuple[MsgStoreClient, ...] = ()
        self._looks_saved = 0
        self._unwritten = 0
        self._sync_timer: Timer | None = None
        self._idle_timer: Timer | None = None
        self._sync_interval = settings.msg_store_sync_interval / 1000
        self._idle_interval = settings.queue_sync_interval / 1000

    def watch(self, disk: Disk, directory: str, stores: tuple[MsgStoreClient, ...]) -> None:
        """The files are open: from now on, say whether there is room for more."""
        self._disk = disk
        self._directory = directory
        self._stores = stores

    @property
    def is_full(self) -> bool:
        """Whether something that was taken in cannot be written."""
        return self.disk_full or any(store.disk_full for store in self._stores)

    def takes(self, size: Callable[[], int], *, owes_confirms: bool) -> bool:
        """Whether publishes may be taken in; `size` tells how many bytes they are.

        A store writes later than its queue takes in, so free space alone would let in a burst many times over.  As long as
        the queue owes confirms, what it took in counts as unwritten: some of it twice, which refuses sooner but never later.
        """
        if self._looks_saved and not self.refusing and not self.is_full:
            self._looks_saved -= 1
            return True
        if not owes_confirms:
            self._unwritten = 0
        more = size()
        refusing = self.is_full or not self._has_room(self._unwritten + more)
        if not refusing:
            self._unwritten += more
        if refusing is not self.refusing:
            self.refusing = refusing
            if refusing:
                self._log.warning("the disk is full: publishes are refused until there is room")
            else:
                self._log.info("there is room on the disk again")
        return not refusing

    def _has_room(self, size: int) -> bool:
        room = self._disk.room(self._directory)
        self._looks_saved = room // LOOK_PER_BYTES
        return room >= size

    def confirms_wait(self) -> None:
        """Somebody waits for a sync."""
        if self._sync_timer is None:
            self._sync_timer = self._server.send_after(self._sync_interval, SyncTimeout())

    def timed_out(self) -> None:
        """SyncTimeout came."""
        self._sync_timer = None

    def idle(self) -> None:
        """Nobody waits for a sync: what is unsynced has time."""
        if self.unsynced and self._idle_timer is None:
            self._idle_timer = self._server.send_after(self._idle_interval, Idle())

    def run(self, sync: Callable[[], object]) -> bool:
        """Sync now; False when the disk is full."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self.unsynced = False
        return self.guarded(sync)

    def guarded(self, write: Callable[[], object]) -> bool:
        """Run a write; a full disk is a state to wait in, every other failure of the disk is a crash."""
        try:
            write()
        except OSError as error:
            if not is_full(error):
                raise
            if not self.disk_full:
                self.disk_full = True
                self._log.warning(
                    "the disk is full: what was taken is written when there is room", error=str(error)
                )
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = self._server.send_after(DISK_FULL_RETRY, Idle())
            return False
        if self.disk_full:
            self.disk_full = False
            self._log.info("there is room on the disk again: what was taken is written")
        return True
