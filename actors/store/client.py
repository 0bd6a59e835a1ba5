"""A queue process's end of a message store (the client functions of rabbit_msg_store).

It lives in the queue process and is as single-threaded as that.  Writes and removes are collected and sent as one
message; a body is read from the current-file cache, or from its file without asking anybody, and only as a last
resort by calling the store.

    read(msg_id)                             (docs/reference/message-store.md#read-to-312)
     1 in the cache?                                        -> that
     2 no entry with references?                            -> ask the store
     3 begin_read refuses the file (file_summary.py)?       -> ask the store
     4 entry again: another file?                           -> leave, begin anew
     5 read it; leave the file, and tell the collector if it waits for that

A message that the store does not have, or whose record is damaged, is read as None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from warrenmq.actors.store.messages import (
    BumpCredit,
    ClientDelete,
    ClientDying,
    ClientTerminate,
    NoReaders,
    Read,
    Register,
    Registered,
    Removes,
    Writes,
)
from warrenmq.message_store.cur_file_cache import Batch
from warrenmq.message_store.rdq import BODY_AT
from warrenmq.message_store.tables import Client, StoreTables, trace_number
from warrenmq.message_store.trace import checksum_in_row
from warrenmq.runtime import CallFailed, CreditFlow, Server
from warrenmq.trace import events
from warrenmq.trace.events import DIRECT, FROM_CACHE
from warrenmq.trace.writers import writer

__all__ = ["BumpCredit", "MsgStoreClient"]

BATCH = 64
"""Writes, or removes, that are sent without waiting for `send`."""
MOST_AT_ONCE = 4 << 20
"""Bytes that one read may bring when messages lie side by side."""

_write_read = writer(events.Read)
_STORE = "store"


class MsgStoreClient:
    """One incarnation of a queue process, at one store (the record client_msstate)."""

    def __init__(
        self,
        server: Server,
        store: str,
        owner: str,
        cref: bytes,
        on_disk: Callable[[list[bytes], str], object] | None,
    ) -> None:
        """`cref` must be new; `owner` is the queue.  `on_disk` is called in the store's thread; None = no confirms."""
        self._server = server
        self.name = self._store = store
        self.blocked = False
        """The store has more to do than it likes: send less."""
        self.collected = False
        """Writes or removes wait to be sent."""
        self._owner = owner
        self._cref = cref
        self._on_disk = on_disk
        self._writes: Batch = []
        self._removes: dict[bytes, None] = {}

    def register(self, holds: Sequence[bytes]) -> set[bytes]:
        """Begin: tell the store what the queue believes to hold (a message twice if it is in it twice).

        Returns which of these it has; the others are lost to this queue.  References that the queue held and no
        longer names are dropped.
        """
        trace = self._server.trace
        client = Client(self._cref, self._owner, self._on_disk is not None, 0 if trace is None else trace.id)
        registered: Registered = self._server.call(
            self._store, Register(client, self._server.actor_ref, self._on_disk, holds), timeout=None
        )
        self._tables = registered.tables
        self._gc = registered.gc
        self.store_trace_id = registered.trace_id
        self._credit = CreditFlow(registered.credit)
        return registered.present

    # flow

    @property
    def room(self) -> StoreTables:
        """Tells whether the store has room for what it was given (`disk_full`)."""
        return self._tables

    def handle_bump(self, credit: int) -> None:
        """The store's BumpCredit has arrived."""
        self._credit.handle_bump(_STORE, credit)
        self.blocked = self._credit.blocked

    # write and remove

    def write(self, msg_id: bytes, stored: bytes) -> None:
        """Store a message; `on_disk` is called when it is safe."""
        if msg_id in self._removes:
            self.send()
        self._writes.append((msg_id, stored))
        self.collected = True
        if len(self._writes) >= BATCH:
            self.send()

    def remove(self, msg_ids: Iterable[bytes]) -> None:
        """Give up one reference to each of these messages."""
        removes = self._removes
        for msg_id in msg_ids:
            if msg_id in removes:
                self.send()
            removes[msg_id] = None
            self.collected = True
        if len(removes) >= BATCH:
            self.send()

    def send(self) -> None:
        """Send what was collected.  Writes go first: no remove is collected before its own write."""
        self.collected = False
        if self._writes:
            batch, self._writes = self._writes, []
            self._tables.flying.written(self._cref, [msg_id for msg_id, _ in batch])
            self._tables.cache.enter(self._cref, batch)
            writes = Writes(self._cref, batch)
            self._credit.send(_STORE, writes.credit)
            self.blocked = self._credit.blocked
            self._send(writes)
        if self._removes:
            msg_ids = list(self._removes)
            self._removes.clear()
            self._tables.flying.removed(self._cref, msg_ids)
            self._send(Removes(self._cref, msg_ids))

    def _send(self, message: Writes | Removes) -> None:
        try:
            self._server.cast(self._store, message)
        except BaseException:
            # this process was killed while it entered the tables, and the store may have heard of its death before
            self._tables.flying.forget(self._cref)
            self._tables.cache.abandon(self._cref, lambda _: True)
            raise

    # read

    def read(self, msg_id: bytes) -> bytes | None:
        """A message's body (what was given to `write`), or None if the store does not have it."""
        tables, checkpoint = self._tables, self._server.runtime.checkpoint
        while True:
            body = self._cached(msg_id)
            if body is not None:
                return body
            entry = tables.index.lookup(msg_id)
            checkpoint()
            mark = tables.files.begin_read(entry[1], self._cref) if entry is not None and entry[0] else 0
            if entry is None or not mark:
                return self._ask(msg_id)
            try:
                checkpoint()
                again = tables.index.lookup(msg_id)
                if again is not None and again[0] and again[1] == entry[1]:
                    return self._read_file(mark, msg_id, *again[1:])
            finally:
                self._end_read(entry[1])
            if again is None or not again[0]:
                return self._ask(msg_id)

    def read_many(self, msg_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """The bodies of these messages; those that the store does not have are left out.

        Messages that lie side by side in a file are read together.
        """
        tables = self._tables
        found: dict[bytes, bytes] = {}
        by_file: dict[int, list[bytes]] = {}
        for msg_id in msg_ids:
            body = self._cached(msg_id)
            if body is not None:
                found[msg_id] = body
            elif (entry := tables.index.lookup(msg_id)) is not None and entry[0]:
                by_file.setdefault(entry[1], []).append(msg_id)
        for file, in_file in by_file.items():
            if len(in_file) > 1 and (mark := tables.files.begin_read(file, self._cref)):
                try:
                    found.update(self._read_runs(mark, file, in_file))
                finally:
                    self._end_read(file)
        for msg_id in msg_ids:
            if msg_id not in found and (body := self.read(msg_id)) is not None:
                found[msg_id] = body
        return found

    def _cached(self, msg_id: bytes) -> bytes | None:
        body = self._tables.cache.get(msg_id)
        if body is None and self._writes:  # it may not even have been sent
            self.send()
            body = self._tables.cache.get(msg_id)
        if body is not None and (trace := self._server.trace) is not None:
            number = trace_number(msg_id)
            _write_read(trace, FROM_CACHE, number, 0, checksum_in_row(number, body), 0, 0, 0, len(body))
        return body

    def _read_runs(self, mark: int, file: int, msg_ids: list[bytes]) -> dict[bytes, bytes]:
        """Read those of the messages that are still in this file, with one read a run."""
        lookup, pread = self._tables.index.lookup, self._tables.handles.pread
        places = sorted(
            (entry[2], entry[3], msg_id)
            for msg_id in dict.fromkeys(msg_ids)
            if (entry := lookup(msg_id)) is not None and entry[0] and entry[1] == file
        )
        found: dict[bytes, bytes] = {}
        first = 0
        while first < len(places):
            start, total, _ = places[first]
            last, end = first + 1, start + total
            while last < len(places) and places[last][0] == end and end - start < MOST_AT_ONCE:
                end += places[last][1]
                last += 1
            data = pread(file, end - start, start)
            for offset, total, msg_id in places[first:last]:
                record = data[offset - start : offset - start + total]
                body = self._body(record, mark, msg_id, file, offset)
                if body is not None:
                    found[msg_id] = body
            first = last
        return found

    def _read_file(self, mark: int, msg_id: bytes, file: int, offset: int, total: int) -> bytes | None:
        record = self._tables.handles.pread(file, total, offset)
        return self._body(record, mark, msg_id, file, offset)

    def _body(self, record: bytes, mark: int, msg_id: bytes, file: int, offset: int) -> bytes | None:
        if (trace := self._server.trace) is not None:
            mark = mark if self._tables.files.in_place else 0
            number = trace_number(msg_id)
            _write_read(
                trace,
                DIRECT,
                number,
                self.store_trace_id,
                checksum_in_row(number, record, BODY_AT),
                mark,
                file,
                offset,
                len(record),
            )
        return self._tables.damage.body_of(record, msg_id, file, offset)

    def _end_read(self, file: int) -> None:
        if self._tables.files.end_read(file, self._cref):
            self._server.cast(self._gc, NoReaders(file))

    def _ask(self, msg_id: bytes) -> bytes | None:
        body: bytes | None = self._server.call(self._store, Read(msg_id), timeout=None)
        return body

    # the end

    def terminate(self) -> None:
        """The queue process ends and its queue keeps its messages; returns when the store has handled all mail.

        A store that is dead already has nothing to be told.
        """
        try:
            self.send()
            self._server.call(self._store, ClientTerminate(self._cref), timeout=None)
        except CallFailed:
            pass

    def delete(self) -> None:
        """The queue is deleted: drop all its references."""
        self._writes.clear()
        self._removes.clear()
        self._server.cast(self._store, ClientDying(self._cref))
        self._server.cast(self._store, ClientDelete(self._cref))

    def close(self) -> None:
        """Forget what was collected and say nothing: the store's monitor does the rest."""
        self._writes.clear()
        self._removes.clear()
