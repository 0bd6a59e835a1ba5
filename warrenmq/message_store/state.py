"""The message store's state (rabbit_msg_store).

Source: docs/reference/message-store.md#operations, #writing and #garbage-collection.

A call changes tables and the current file, and leaves what is to be said to others in `effects`; the actor around it
(actors/store/process.py) sends that.  No threads, no time.

    write ──► flying: cancelled? ──► known?  no: append to the current file     yes: one reference more
    remove ─► flying: cancelled? ──► last reference?  the record becomes garbage, an empty file is deleted
    sync ───► the current file is safe: confirm, one list a client
    job done ► new places into the index, files unlocked, deferred operations replayed

Three things are not as in RabbitMQ: references belong to owners (owner_refs.py), a combine goes through a whole new file
(combine.py), and a full disk makes writes wait instead of ending the store: they are kept here, in order, while
removes go on and make room.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from warrenmq.message_store.actions import (
    Mask,
    Place,
    RemoveAction,
    WriteAction,
    mask,
    refs_of,
    remove_action,
    write_action,
)
from warrenmq.message_store.cur_file_cache import Batch
from warrenmq.message_store.damage import StoreDamage
from warrenmq.message_store.effects import Effect, Reply
from warrenmq.message_store.flying import Seen, processes_remove, processes_write
from warrenmq.message_store.gc import Deferred, DeferredRead, DeferredRemove, StoreGc
from warrenmq.message_store.gc_jobs import Job, Phase
from warrenmq.message_store.gc_plan import is_mostly_garbage
from warrenmq.message_store.message_index import Entry
from warrenmq.message_store.rdq import BODY_AT
from warrenmq.message_store.recovery import Recovered
from warrenmq.message_store.tables import Client, StoreTables, trace_number
from warrenmq.message_store.trace import checksum_in_row, tell_recovered, tell_remove, tell_write
from warrenmq.message_store.writer import StoreWriter
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings
from warrenmq.trace.events import BY_SERVER, Decision, Read, RefDropped
from warrenmq.trace.recorder import ActorTrace
from warrenmq.trace.writers import writer

_write_ref_dropped, _write_read = writer(RefDropped), writer(Read)


class MsgStoreState:
    """The tables, the clients, and what is under way.  Belongs to the store's process."""

    def __init__(
        self, disk: Disk, directory: str, settings: Settings, recovered: Recovered, trace: ActorTrace | None,
        damage: StoreDamage,
    ) -> None:  # fmt: skip
        """Take over what recovery found; `damage` is what reads from now on find damaged."""
        damage.at_recovery = len(recovered.damage)
        recovered.files.in_place = settings.msg_store_gc == "compact"
        self.tables = StoreTables(disk, directory, settings, recovered.index, recovered.files, damage)
        self.owners = recovered.owners
        self.clients: dict[bytes, Client] = {}
        self.of_owner: dict[str, bytes] = {}
        """Owner -> its present client."""
        self.effects: list[Effect] = []
        self.gc = StoreGc(self.tables, settings, self.effects, trace)
        self.writer = StoreWriter(disk, directory, self.tables, settings, self.effects, trace)
        self._backlog: deque[tuple[Client, Batch, Batch]] = deque()
        """Writes that wait for space: (client, batch, what is left of it)."""
        self._appended_to = Place(-1, 0)
        """The place of the next record at the beginning of the interval of garbage collection."""
        self._trace = trace
        tell_recovered(trace, recovered)
        for file in list(self.tables.files.rows):
            self._left_file(file)
        self.gc.collect()

    # clients

    def register(self, client: Client, holds: Sequence[bytes]) -> tuple[set[bytes], list[int]]:
        """A queue process began.  It believes that its queue holds these messages (a message twice if it is in the
        queue twice); the store drops references that it no longer claims.

        Returns which of them the store has, and the files that have no reader to wait for any more.
        """
        owner, claimed = client.owner, Counter(holds)
        unread = self.forget(self.of_owner[owner]) if owner in self.of_owner else []
        for msg_id in self.owners.reconcile(owner, claimed):
            self._drop_reference_of_the_dead(owner, msg_id, client.trace_id)
        held = self.owners.held(owner)
        for msg_id, count in claimed.items():
            for _ in range(count - held.get(msg_id, count)):
                self.tables.index.count(msg_id, 1)
                self.owners.add(owner, msg_id)
        self.owners.doubtful.discard(owner)
        self.clients[client.cref] = client
        self.of_owner[owner] = client.cref
        self.tables.files.admit(client.cref)
        self.gc.collect()
        return {msg_id for msg_id in claimed if msg_id in held}, unread

    def terminate(self, cref: bytes) -> list[int]:
        """A client ended in order: all that its owner gave up has come.  As `forget` else."""
        client = self.clients.get(cref)
        unread = self.forget(cref)
        if client is not None:
            self.owners.doubtful.discard(client.owner)
        return unread

    def forget(self, cref: bytes) -> list[int]:
        """A client died; its owner's references stay.  Returns the files that have no reader to wait for."""
        client = self.clients.pop(cref, None)
        if client is not None:
            if self.owners.held(client.owner):
                self.owners.doubtful.add(client.owner)
            self.writer.forget(client)
            del self.of_owner[client.owner]
        self._abandon(cref)
        return self.tables.files.release_reader(cref)

    def _abandon(self, cref: bytes) -> None:
        """Ignore from now on what the client sent, or was about to send."""
        self.tables.flying.forget(cref)
        self.tables.cache.abandon(cref, self._in_current_file)

    def dying(self, cref: bytes) -> None:
        """The client's queue is being deleted: from now on its writes of unknown messages do not count."""
        client = self.clients.get(cref)
        if client is not None:
            client.died_at = self._end()
            self.writer.forget(client)
            client.wants_confirms = False

    def delete(self, cref: bytes) -> list[int]:
        """The client's queue is deleted, its references with it."""
        client = self.clients.get(cref)
        return [] if client is None else self.delete_owner(client.owner, client.trace_id)

    def delete_owner(self, owner: str, by: int) -> list[int]:
        """A queue is deleted, by the actor `by` of the trace, and its references go.  As `forget` else."""
        unread = self.forget(self.of_owner[owner]) if owner in self.of_owner else []
        for msg_id in self.owners.all_of(owner):
            self._drop_reference_of_the_dead(owner, msg_id, by)
        self.owners.doubtful.discard(owner)
        self.gc.collect()
        return unread

    # writes

    def write(self, cref: bytes, batch: Batch) -> None:
        """Handle writes that were sent together."""
        client = self.clients.get(cref)
        if client is None:
            self._abandon(cref)
            return
        if self.writer.disk_full:
            self._backlog.append((client, batch, batch))
            self.writer.put_off(client)
        else:
            self._write(client, batch, batch)

    def _write(self, client: Client, batch: Batch, left: Batch) -> None:
        """Handle what is left of a batch, as far as there is space."""
        writer, index, trace = self.writer, self.tables.index, self._trace
        flying, msg_ids = self.tables.flying, [msg_id for msg_id, _ in left]
        if trace is None:
            seen = iter(flying.handle_writes(client.cref, msg_ids))
        else:  # one by one, so that a row stands where the counter was looked at
            seen = flying.handle_writes_one_by_one(client.cref, msg_ids)
        ignored: list[bytes] = []
        written: list[bytes] = []
        appended = 0
        for position, ((msg_id, body), value) in enumerate(zip(left, seen, strict=True)):
            # The hot path: the rows of flying.processes_write, and of WRITE_TABLE for a new message of a living client.
            if value is None or value <= 0:
                action = WriteAction.IGNORE
                ignored.append(msg_id)
            else:
                entry = index.lookup(msg_id)
                if entry is None and client.died_at is None:
                    action = WriteAction.WRITE
                else:
                    action = self._write_action(client, entry)
            if trace is not None:
                tell_write(trace, client, msg_id, value, action, index.lookup(msg_id))
            if action is WriteAction.WRITE or action is WriteAction.REWRITE:
                if action is WriteAction.REWRITE:
                    index.delete(msg_id)
                self.owners.add(client.owner, msg_id)
                writer.append(client, msg_id, body)
                appended += 1
                if writer.disk_full:
                    ignored += self._put_off(client, batch, left[position + 1 :], [*seen])
                    break
            elif action is not WriteAction.IGNORE:
                self._one_more(client, msg_id, written)
        else:
            # bodies need to be cached only if they are in the current file
            elsewhere: list[bytes] = []
            if appended < len(batch) or writer.left:
                elsewhere = [msg_id for msg_id, _ in batch if not self._in_current_file(msg_id)]
            self.tables.cache.handled(client.cref, elsewhere)
        # of a message that is twice in a queue, one may be ignored while the other is not safe yet
        writer.confirm(client, [m for m in ignored if m not in client.unconfirmed], "ignored")
        writer.confirm(client, written, "written")
        if writer.left:
            self._left_files()

    def _put_off(self, client: Client, batch: Batch, left: Batch, seen: list[Seen]) -> list[bytes]:
        """Postpone the rest of a batch for lack of disk space.  Returns the messages that need none, as they are ignored."""
        later = [each for each, value in zip(left, seen, strict=True) if processes_write(value)]
        self.tables.flying.written(client.cref, [msg_id for msg_id, _ in later])
        self._backlog.appendleft((client, batch, later))
        self.writer.put_off(client)
        ignored = [(m, value) for (m, _), value in zip(left, seen, strict=True) if not processes_write(value)]
        if self._trace is not None:
            for msg_id, value in ignored:
                entry = self.tables.index.lookup(msg_id)
                tell_write(self._trace, client, msg_id, value, WriteAction.IGNORE, entry)
        return [msg_id for msg_id, _ in ignored]

    def _left_files(self) -> None:
        """Files were rolled over."""
        for file in self.writer.left:
            self._left_file(file)
        self.writer.left.clear()
        self.gc.collect()

    def _left_file(self, file: int) -> None:
        """A file is no longer the current one: count the garbage that it collected meanwhile."""
        row = self.tables.files.rows[file]
        if is_mostly_garbage(row.valid_total_size, row.file_size):
            self.gc.lost_a_record(file)
        else:
            self.gc.delete_if_empty(file)

    def _one_more(self, client: Client, msg_id: bytes, written: list[bytes]) -> None:
        """The record exists: one reference more, and confirmed when its file is safe."""
        refs = self.tables.index.count(msg_id, 1)
        _, file, _, total = self._entry(msg_id)
        if refs == 1:
            self.tables.files.add_valid(file, total)
        self.owners.add(client.owner, msg_id)
        if file == self.writer.file.number:
            self.writer.wait_for_sync(client, msg_id)
        else:
            written.append(msg_id)

    def _write_action(self, client: Client, entry: Entry | None) -> WriteAction:
        masked = mask(client.died_at, entry)
        return write_action(masked, refs_of(entry), self.gc.file_state(entry))

    def _in_current_file(self, msg_id: bytes) -> bool:
        entry = self.tables.index.lookup(msg_id)
        return entry is not None and entry[1] == self.writer.file.number

    def _end(self) -> Place:
        return Place(self.writer.file.number, self.writer.file.offset)

    def _entry(self, msg_id: bytes) -> Entry:
        entry = self.tables.index.lookup(msg_id)
        assert entry is not None
        return entry

    # removes

    def remove(self, cref: bytes, msg_ids: list[bytes]) -> None:
        """Handle removes that were sent together."""
        client = self.clients.get(cref)
        if client is None:
            self.tables.flying.forget(cref)
            return
        ignored = []
        flying = self.tables.flying
        if self._trace is None:
            seen = iter(flying.handle_removes(cref, msg_ids))
        else:  # as in _write
            seen = flying.handle_removes_one_by_one(cref, msg_ids)
        for msg_id, value in zip(msg_ids, seen, strict=True):
            if not processes_remove(value):
                self._tell_remove(msg_id, client.trace_id, value, Decision.IGNORE)
                continue
            entry = self.tables.index.lookup(msg_id)
            masked = Mask.NONE if client.died_at is None else mask(client.died_at, entry)
            action = remove_action(masked, refs_of(entry), self.gc.state_for_remove(entry))
            if action is RemoveAction.IGNORE:
                self._tell_remove(msg_id, client.trace_id, value, Decision.IGNORE)
                continue
            self.owners.drop(client.owner, msg_id)
            self._one_less(action, DeferredRemove(msg_id, client.trace_id, value, of_the_dead=False))
            if msg_id in client.unconfirmed and not self.owners.holds(client.owner, msg_id):
                self.writer.cancel(client, msg_id)
                ignored.append(msg_id)
        self.writer.confirm(client, ignored, "ignored")
        self.gc.collect()

    def _drop_reference_of_the_dead(self, owner: str, msg_id: bytes, trace_id: int) -> None:
        entry = self._entry(msg_id)
        self.owners.drop(owner, msg_id)
        action = remove_action(Mask.NONE, refs_of(entry), self.gc.state_for_remove(entry))
        self._one_less(action, DeferredRemove(msg_id, trace_id, None, of_the_dead=True))

    def _one_less(self, action: RemoveAction, operation: DeferredRemove) -> None:
        """Take one reference away, or put it off."""
        msg_id = operation.msg_id
        _, file, _, total = self._entry(msg_id)
        if action is RemoveAction.DEFER:
            self.gc.defer(file, operation)
            if not operation.of_the_dead:
                self._tell_remove(msg_id, operation.client, operation.seen, Decision.DEFER)
            return
        self.tables.index.count(msg_id, -1)
        if action is RemoveAction.LAST:
            self.tables.files.add_valid(file, -total)
        if not operation.of_the_dead:
            self._tell_remove(msg_id, operation.client, operation.seen, Decision.REMOVE)
        elif self._trace is not None:
            refs = self._entry(msg_id)[0]
            _write_ref_dropped(self._trace, trace_number(msg_id), operation.client, file, refs)
        if action is RemoveAction.LAST:
            self.gc.lost_a_record(file)

    def _tell_remove(self, msg_id: bytes, client: int, seen: Seen, decision: Decision) -> None:
        if self._trace is not None:
            tell_remove(self._trace, client, msg_id, seen, decision, self.tables.index.lookup(msg_id))

    # reads

    def read(self, msg_id: bytes, sender: Any) -> None:
        """Answer a read, now or when the message's file is back from the collector."""
        entry = self.tables.index.lookup(msg_id)
        if entry is None or not entry[0]:
            self.effects.append(Reply(sender, None))
            return
        _, file, offset, total = entry
        body: bytes | OSError | None = self.tables.cache.get(msg_id)
        if body is None:
            if self.gc.keeps_readers_out(file):
                self.gc.defer(file, DeferredRead(msg_id, sender))
                return
            try:
                body = self._read_file(msg_id, file, offset, total)
            except OSError as error:  # who asks tries again
                body = error
        self.effects.append(Reply(sender, body))

    def _read_file(self, msg_id: bytes, file: int, offset: int, total: int) -> bytes | None:
        if file == self.writer.file.number:
            record = self.writer.file.pread(total, offset)
        else:
            record = self.tables.handles.pread(file, total, offset)
        if self._trace is not None:
            number = trace_number(msg_id)
            checksum = checksum_in_row(number, record, BODY_AT)
            _write_read(self._trace, BY_SERVER, number, 0, checksum, 0, file, offset, total)
        return self.tables.damage.body_of(record, msg_id, file, offset)

    # what happens by itself

    def completed(self, job: Job) -> None:
        """The garbage collector is done with a job."""
        self._replay(self.gc.completed(job))
        for file in job.files:
            if file in self.tables.files.rows:
                self.gc.delete_if_empty(file)
        self.gc.collect()

    def _replay(self, operations: list[Deferred]) -> None:
        for operation in operations:
            if isinstance(operation, DeferredRead):
                self.read(operation.msg_id, operation.sender)
            else:
                entry = self._entry(operation.msg_id)
                self._one_less(
                    remove_action(Mask.NONE, refs_of(entry), self.gc.state_for_remove(entry)), operation
                )

    def retry(self) -> bool:
        """Try again after the disk was full; False if it still is."""
        if not self.writer.retry():
            return False
        self._left_files()
        while self._backlog and not self.writer.disk_full:
            client, batch, left = self._backlog.popleft()
            if self.clients.get(client.cref) is client:
                self._write(client, batch, left)
        return not self.writer.disk_full

    def resume_gc(self) -> None:
        """Try again after the disk was too full for a job."""
        self.gc.paused = False
        self.gc.collect()

    def interval_begins(self) -> None:
        """Begin an interval, at whose end idle files are checked for garbage."""
        self._appended_to = self._end()
        self.gc.interval_begins()

    def interval_ended(self) -> None:
        """Look for garbage, also in the current file, if it is idle."""
        row = self.tables.files.rows[self.writer.file.number]
        if self._end() == self._appended_to and is_mostly_garbage(row.valid_total_size, row.file_size):
            self.writer.leave()
            self._left_files()
        self.gc.interval_ended()

    def settle(self) -> bool:
        """The collector has stopped: enter what it did.  False if it was stopped in the middle of a job."""
        self.owners.doubtful.update(self.of_owner)
        self.gc.closing = True
        for job in list(self.gc.jobs):
            if job.phase is Phase.RUNNING:
                return False
            self.completed(job)
        return True
