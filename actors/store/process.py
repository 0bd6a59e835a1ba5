"""The message store's process (rabbit_msg_store): bodies that are too large for a queue's own files.

    queue ──Writes, Removes──► store ──Combine, Compact, Truncate, Delete──► GC
      ▲  └──Read (call)─────────►│  ◄──JobDone───────────────────────────────┘
      └──on_disk, BumpCredit─────┘

Two of these run, persistent and transient.  It receives, has the state (message_store/state.py) decide, and sends
what that leaves behind.  actors/store/messages.py has its messages.

When it syncs: confirms that wait are given when the mailbox is empty, and after 25 ms at the latest.  Confirms that
arrive together share one sync, and the more there is to do, the more arrive together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pykka import ActorRef

from warrenmq.actors.store.collector import MsgStoreGc
from warrenmq.actors.store.messages import (
    BumpCredit,
    ClientDelete,
    ClientDying,
    ClientTerminate,
    Interval,
    JobDone,
    NoReaders,
    OwnerDelete,
    Read,
    Register,
    Registered,
    Removes,
    RetryJob,
    RetryWrite,
    Statistics,
    SyncTimeout,
    Writes,
)
from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.layout import check_parent
from warrenmq.log import Log
from warrenmq.message_store.damage import StoreDamage
from warrenmq.message_store.dump import save
from warrenmq.message_store.effects import Confirm, Reply, StoreStatistics
from warrenmq.message_store.gc_plan import CHECK_INTERVAL
from warrenmq.message_store.lost_references import LostReferences
from warrenmq.message_store.recovery import References, recover, wipe
from warrenmq.message_store.state import MsgStoreState
from warrenmq.message_store.trace import tell_closed
from warrenmq.runtime import NO_REPLY, CreditFlow, CreditSpec, Down, From, Server, Timer
from warrenmq.runtime.closable import ALIVE
from warrenmq.runtime.life import inbox_of
from warrenmq.runtime.reasons import KILLED, is_normal
from warrenmq.seams.disk import Disk
from warrenmq.seams.fenced_disk import FencedDisk
from warrenmq.settings import Settings
from warrenmq.trace.events import Trigger

DISK_FULL_RETRY = 1.0
"""Seconds between attempts to write while the disk is full, or descriptors are short."""
JOB_RETRY = 30.0
"""Seconds until the collector is tried again when the disk was too full for it."""
GC_STOP_MARGIN = 60.0
"""Seconds of the store's own shutdown timeout that are kept for its dumps when it waits for its collector."""
_DISK = "disk"


@dataclass(slots=True)
class _Peer:
    """A client's address and monitor."""

    ref: ActorRef[Any]
    monitor: int
    on_disk: Callable[[list[bytes], str], object] | None


class MsgStore(Server):
    """One store (the record msstate; the rest of it is in MsgStoreState).

    _state        tables, clients, current file
    _gc           its garbage collector, linked
    _damage       where to tell what is found damaged
    _lost         references of a clean stop that no queue has claimed yet
    _peers        cref -> how to reach that client; _watched: monitor -> cref
    _credit       what it owes its clients; blocked while the disk is full
    _sync_timer   runs while confirms wait
    _retry_timer  runs while the disk is full; _gc_timer while it is too full for the collector
    _interval     runs while there may be garbage to look for
    """

    helpable = True
    ranks: ClassVar[Mapping[type, int]] = {JobDone: 8, SyncTimeout: 8, ClientDying: 7, Read: 2}
    """The priorities of rabbit_msg_store:prioritise_*."""

    def init(
        self,
        kind: str,
        directory: str,
        disk: Disk,
        settings: Settings,
        refs: References | None,
        quarantine: str,
        damage: DamageLog,
    ) -> None:
        """Recover what the directory holds, all of it, before anything else.

        refs     the queues, and the messages that they hold; None = a transient store, whose directory is wiped
        damage   where to tell what of the files was found damaged
        """
        self._log = Log("warrenmq.store", store=kind)
        self._kind = kind
        self._disk = FencedDisk(disk, self.fence)
        self._directory = directory
        self._keeps = refs is not None
        self._settings = settings
        check_parent(self._disk, directory)
        if refs is None:
            recovered = wipe(self._disk, directory)
        else:
            recovered = recover(self._disk, directory, refs, quarantine, kind)
        damage.add(recovered.damage)
        self._damage = damage
        self._lost = LostReferences(self._disk, directory, quarantine, kind, recovered)
        reads = StoreDamage(self._disk, directory, quarantine, kind, damage)
        self._state = MsgStoreState(self._disk, directory, settings, recovered, self.trace, reads)
        self._gc_name = f"{kind}_gc"
        self._gc = self.runtime.start(
            MsgStoreGc,
            self.actor_ref,
            self._disk,
            directory,
            recovered.files,
            name=self._gc_name,
            parent=self.actor_ref,
        )
        self._peers: dict[bytes, _Peer] = {}
        self._watched: dict[int, bytes] = {}
        self._credit_spec = CreditSpec(*settings.msg_store_credit_disc_bound)
        self._credit = CreditFlow(self._credit_spec)
        self._sync_interval = settings.msg_store_sync_interval / 1000
        self._sync_timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self._gc_timer: Timer | None = None
        self._interval: Timer | None = None
        self._carry_out()

    # what arrives

    def handle_cast(self, message: Any) -> None:
        """One message (see actors/store/messages.py)."""
        state = self._state
        match message:
            case Writes():
                self._grant(message.cref, message.credit)
                state.write(message.cref, message.batch)
            case Removes():
                state.remove(message.cref, message.msg_ids)
            case JobDone():
                state.completed(message.job)
            case ClientDying():
                state.dying(message.cref)
            case ClientDelete():
                self._tell_gc(state.delete(message.cref))
                self._part(message.cref)
            case OwnerDelete():
                before = state.of_owner.get(message.owner, b"")
                self._tell_gc(state.delete_owner(message.owner, message.by))
                self._part(before)
            case _:
                raise TypeError(f"a message store does not understand {message!r}")
        self._carry_out()

    def handle_call(self, request: Any, sender: From) -> Any:
        """One request (see actors/store/messages.py)."""
        reply: Any = None
        match request:
            case Read():
                self._state.read(request.msg_id, sender)
                reply = NO_REPLY
            case Register() if inbox_of(request.ref).reason is not ALIVE:
                # Killed while it sent this: its successor, who has the same owner, may have registered already.
                sender.fail(KILLED)
                reply = NO_REPLY
            case Register():
                reply = self._register(request)
            case ClientTerminate():
                self._tell_gc(self._state.terminate(request.cref))
                self._part(request.cref)
            case Statistics():
                reply = StoreStatistics.of(self._state.tables, disk_full=self._state.writer.disk_full)
            case _:
                raise TypeError(f"a message store does not understand {request!r}")
        self._carry_out()
        return reply

    def handle_info(self, message: Any) -> None:
        """Handle its own timers, and the death of a client."""
        match message:
            case SyncTimeout():
                self._sync_timer = None
                if self._state.writer.confirms_wait and not self._state.writer.disk_full:
                    self._state.writer.sync(Trigger.TIMER)
            case RetryWrite():
                self._retry_timer = None
                self._state.retry()
            case RetryJob():
                self._gc_timer = None
                self._state.resume_gc()
            case Interval():
                self._interval = None
                self._state.interval_ended()
            case Down():
                if (cref := self._watched.get(message.monitor)) is not None:
                    self._tell_gc(self._state.forget(cref))
                    self._part(cref)
        self._carry_out()

    def mailbox_empty(self) -> None:
        """Sync and confirm when the mailbox is empty."""
        writer = self._state.writer
        if writer.confirms_wait and not writer.disk_full:
            writer.sync(Trigger.MAILBOX_EMPTY)
            self._carry_out()

    # clients

    def _register(self, request: Register) -> Registered:
        client = request.client
        if (before := self._state.of_owner.get(client.owner)) is not None:
            self._part(before)
        self._damage.add(self._lost.claimed(client.owner, request.holds))
        present, unread = self._state.register(client, request.holds)
        self._tell_gc(unread)
        monitor = self.monitor(request.ref)
        self._peers[client.cref] = _Peer(request.ref, monitor, request.on_disk)
        self._watched[monitor] = client.cref
        trace_id = 0 if self.trace is None else self.trace.id
        return Registered(present, self._state.tables, self._gc_name, self._credit_spec, trace_id)

    def _part(self, cref: bytes) -> None:
        """The client is gone."""
        peer = self._peers.pop(cref, None)
        if peer is not None:
            self.demonitor(peer.monitor)
            del self._watched[peer.monitor]
        self._credit.peer_down(cref)

    def _grant(self, cref: bytes, count: int) -> None:
        if cref in self._peers and (credit := self._credit.ack(cref, count)):
            self._bump(cref, credit)

    def _bump(self, cref: Hashable, credit: int) -> None:
        peer = self._peers.get(cref)  # type: ignore[call-overload]
        if peer is not None:
            self.cast(peer.ref, BumpCredit(self._kind, credit))

    def _tell_gc(self, files: list[int]) -> None:
        for file in files:
            self.cast(self._gc, NoReaders(file))

    # the effects that the state left

    def _carry_out(self) -> None:
        if self._state.effects:
            self._tell_others()
        self._set_timers()

    def _tell_others(self) -> None:
        for effect in self._state.effects:
            if isinstance(effect, Confirm):
                peer = self._peers.get(effect.client.cref)
                if peer is not None and peer.on_disk is not None:
                    peer.on_disk(effect.msg_ids, effect.reason)
            elif isinstance(effect, Reply):
                answer = effect.sender.refuse if isinstance(effect.body, OSError) else effect.sender.reply
                answer(effect.body)
            else:
                self.cast(self._gc, effect)
        self._state.effects.clear()

    def _set_timers(self) -> None:
        writer = self._state.writer
        if writer.confirms_wait is (self._sync_timer is None):
            if self._sync_timer is None:
                self._sync_timer = self.send_after(self._sync_interval, SyncTimeout())
            else:
                self._sync_timer.cancel()
                self._sync_timer = None
        if writer.disk_full:
            self._wait_for_space()
        elif self._credit.blocked:
            self._log.info("there is room again: what was taken is written")
            for cref, credit in self._credit.unblock(_DISK):
                self._bump(cref, credit)
        if self._state.gc.paused and self._gc_timer is None:
            self._gc_timer = self.send_after(JOB_RETRY, RetryJob())
        if self._interval is None and self._state.gc.wants_a_look:
            self._interval = self.send_after(CHECK_INTERVAL, Interval())
            self._state.interval_begins()

    def _wait_for_space(self) -> None:
        if not self._credit.blocked:
            self._credit.block(_DISK)
            free = self._disk.free_space(self._directory)
            self._log.warning(f"{self._state.tables.lack}: writes wait until there is room", free_bytes=free)
        if self._retry_timer is None:
            self._retry_timer = self.send_after(DISK_FULL_RETRY, RetryWrite())

    # the end

    def terminate(self, reason: Any) -> None:
        """Save the tables after a clean stop, so that the next start need not read the files; after a crash it must."""
        self._damage.ended(reason)
        try:
            timeout = max(self._settings.msg_store_shutdown_timeout / 1000 - GC_STOP_MARGIN, 5.0)
            if not self.runtime.stop_actor(self._gc, timeout=timeout):
                self.runtime.kill(self._gc)
            if self._keeps and is_normal(reason):
                self._save()
        finally:
            self._state.tables.handles.close()
            # the collector writes through this fence too: a successor has the files to itself
            self.fence.cut_off()

    def _save(self) -> None:
        state = self._state
        settled = state.settle()
        if not (state.writer.close() and settled):
            self._log.warning("the store stops with work undone: the next start reads its files")
            return
        self._tell_others()
        tell_closed(self.trace, state.tables.index, state.tables.files)
        try:
            save(self._disk, self._directory, state.tables.index, state.tables.files, state.owners)
        except OSError as error:
            self._log.warning("the next start reads the store's files: no dump was written", error=str(error))
