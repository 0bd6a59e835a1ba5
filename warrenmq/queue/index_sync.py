"""The syncs of a queue's index, and its behaviour while the disk is full.

    confirms wait     SyncTimeout 25 ms after the first of them, unless an empty mailbox has synced before
    no confirm waits  Idle after 200 ms at the latest: acks, and messages whose publishers want no confirm; it comes at the same moments in
      all queues, which share a sync then
    the disk is full  publishes are refused; Idle every second tries again
    no descriptors    the same, ten times a second; other queues are asked to sleep
    nothing can be    whatever the reason: a get is refused, deliveries wait for DeliverAgain, ten times a second for want of memory or
      read              descriptors, once a second when the disk fails

Any other failure of a write is raised, and ends the queue process.

The disk counts as full after a write to the index failed for want of room, while a message store has no room for the bodies
it was given, and when less is free than the publishes at hand need (DiskRoom in queue/publish_buffer.py).
"""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.errors import ResourceError
from warrenmq.queue.effects import AskForRoom, CancelTimer, Effect, StartTimer
from warrenmq.queue.messages import DeliverAgain, Idle, SyncTimeout
from warrenmq.queue.setting import QueueSetting
from warrenmq.queue.unsafe_acks import UnsafeAcks
from warrenmq.queue_index.protocol import QueueFiles
from warrenmq.seams.disk import Waiter
from warrenmq.seams.disk_errors import FULL, is_full, is_short_of_descriptors, lack_of
from warrenmq.seams.memory import no_memory
from warrenmq.trace.events import Trigger

DISK_RETRY = 1.0
"""Seconds between attempts to write while the disk is full, or to read while it fails."""
IDLE_MOMENTS = 4
"""Moments in each `queue_sync_interval` at which Idle comes, so that queues which are left alone one after
another share a sync.
"""
SHORTAGE_RETRY = 0.1
"""Seconds between attempts while descriptors are short."""


class IndexSync:
    """Syncs the index, with the two timers that lead to it, and keeps the state of the disk.

    unsynced        bytes were written that no publisher waits for: the Idle timer syncs them
    disk_full       the last write failed with ENOSPC, or for want of descriptors: publishes are refused until one succeeds
    lack            what it lacked, as words of a sentence
    due             Idle has come: the empty mailbox behind it syncs
    reads_wait      messages could not be read for delivery the last time
    _sync_timer     a SyncTimeout is on its way
    _idle_timer     an Idle is on its way
    _began          the time at which the sync began that others do, monotonic, ns; else 0
    stores          the message stores, whose disk may be full, too
    unsafe_acks     the note that bodies went before their acks were safe
    """

    def __init__(self, queue: QueueSetting, index: QueueFiles, effects: list[Effect]) -> None:
        self.stores = queue.rooms
        self.unsafe_acks = UnsafeAcks(queue.disk, queue.directory)
        self._index = index
        self._disk = queue.disk
        self._log = queue.log
        self._effects = effects
        self._monotonic_ns = queue.monotonic_ns
        self.unsynced = self.unsafe_acks.noted
        self.disk_full = self.due = False
        self.lack = FULL
        self.reads_wait = False
        self._sync_timer = self._idle_timer = False
        self._began = 0
        self._sync_interval = queue.settings.msg_store_sync_interval / 1000
        self._idle_ns = queue.settings.queue_sync_interval * 1_000_000

    @property
    def is_full(self) -> bool:
        """True if messages that were taken in cannot be written."""
        return self.disk_full or any(store.disk_full for store in self.stores)

    @property
    def lack_now(self) -> str:
        """The want of room or the like, here or in a store, as words of a sentence."""
        return next((each.lack for each in (self, *self.stores) if each.disk_full), FULL)

    def confirms_wait(self) -> None:
        """A publisher waits for a sync: start SyncTimeout unless it runs."""
        if not self._sync_timer:
            self._sync_timer = True
            self._effects.append(StartTimer(self._sync_interval, SyncTimeout()))

    def sync_timeout(self) -> None:
        """SyncTimeout came."""
        self._sync_timer = False

    def idle_came(self) -> None:
        """Idle came."""
        self._idle_timer = False
        self.due = True

    def rest(self) -> None:
        """Start the idle timer if anything is unsynced, as no publisher waits for a sync."""
        if self.unsynced and not self._idle_timer:
            self._idle_timer = True
            now = self._monotonic_ns()
            due = now + self._idle_ns
            due -= due % (self._idle_ns // IDLE_MOMENTS)
            self._effects.append(StartTimer((due - now) / 1e9, Idle()))

    def begin(self, trigger: Trigger, waiter: Waiter) -> bool:
        """Begin a `sync` that has to be called when the waiter is told; False, and nothing was begun, where
        that cannot be.
        """
        if self.disk_full:
            return False
        began = self._monotonic_ns()
        try:
            files = self._index.to_sync(trigger)
        except OSError:  # `sync` meets it again
            return False
        if not files or not self._disk.begin_sync(files, waiter):
            return False
        self._began = began
        return True

    def sync(self, trigger: Trigger) -> int | None:
        """Sync the index, which covers everything so far; returns the nanoseconds that it took, None if
        nothing had to be written.

        An OSError is for `failed`.
        """
        self.unsynced = self.due = False
        if self._idle_timer:
            self._idle_timer = False
            self._effects.append(CancelTimer(Idle))
        began, self._began = self._began or self._monotonic_ns(), 0
        written = self._index.sync(trigger)
        took = self._monotonic_ns() - began if written is not None and written[0] else None
        if self.disk_full:
            self.succeeded()
        if self.unsafe_acks.noted:
            self.unsafe_acks.safe()
        return took

    def lets_bodies_go(self) -> bool:
        """True if stores may remove the bodies of acked messages: the acks are safe, or the disk is full,
        where that makes room, and noted.
        """
        return self.unsafe_acks.note() if self.disk_full else not self._index.needs_sync

    def failed(self, error: OSError) -> None:
        """A write failed: to lack room or descriptors is a state to wait in, every other failure of the disk
        is raised again.
        """
        full, lack = is_full(error), lack_of(error)
        if lack is None:
            raise error
        if not self.disk_full:
            self.disk_full = True
            self.lack = lack
            self._log.warning(f"{self.lack}: what was taken is written when there is room", error=str(error))
        if not full:
            self._effects.append(AskForRoom())
        self._idle_timer = True
        self._effects.append(StartTimer(DISK_RETRY if full else SHORTAGE_RETRY, Idle()))

    def succeeded(self) -> None:
        """A write succeeded: the disk is not full, or no longer."""
        if self.disk_full:
            self.disk_full = False
            self._log.info("there is room again: what was taken is written")

    def cannot_read(self, what: str, error: MemoryError | OSError) -> ResourceError:
        """The refusal of what cannot be read now."""
        if isinstance(error, MemoryError):
            return no_memory(what)
        if not is_short_of_descriptors(error):
            return ResourceError(f"{what} cannot be read ({error}); see to the disk, and try again")
        self._effects.append(AskForRoom())
        return ResourceError(
            f"{lack_of(error)}, so that {what} cannot be read; close something, or raise that limit, and try again"
        )

    def deliveries_wait(self, error: MemoryError | OSError) -> None:
        """Have deliveries tried again that cannot be read now."""
        refusal = self.cannot_read("the next messages", error)
        if not self.reads_wait:
            self.reads_wait = True
            self._log.warning("deliveries wait until they can be read", error=str(refusal))
        passes = isinstance(error, MemoryError) or is_short_of_descriptors(error)
        self._effects.append(StartTimer(SHORTAGE_RETRY if passes else DISK_RETRY, DeliverAgain()))

    def guarded(self, write: Callable[[], object]) -> bool:
        """Call `write`; False if the disk is full."""
        try:
            write()
        except OSError as error:
            self.failed(error)
            return False
        self.succeeded()
        return True
