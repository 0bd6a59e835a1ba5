"""A whole directory, queue by queue: what a start would give back, what not, and why.

Two passes over the indexes, one over the stores: first which ids queues refer to, then where the stores have them,
then every message in turn.  Nothing but the ids is kept, so that a directory of any size can be read.

    an entry is                                               it is given back    reason, if not
    not persistent                                            no                  not persistent; queue not durable
    in a store that has no record of it                       no                  no message record; not on disk when the
                                                                                  process ended
    there, but its bytes are no message, or its checksum      no                  unreadable: what is wrong with it
    expired                                                   no                  expired
    found where RabbitMQ itself would not look, or in a       yes, marked         -
    queue that RabbitMQ would not start
    anything else                                             yes                 -

Source: rabbit_variable_queue, rabbit_queue_index:recover; docs/reference/classic-queue.md#start-and-recovery,
#recovery-of-version-2 and #what-a-clean-restart-loses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import basename
from typing import Self

from warrenmq.directory.recovery_terms import FILE_NAME as TERMS
from warrenmq.errors import CorruptFile
from warrenmq.inspect import message
from warrenmq.inspect.entries import Entry, Where
from warrenmq.inspect.layout import PERSISTENT, TRANSIENT, Layout, QueueFolder, Vhost, recognise
from warrenmq.inspect.message import Message
from warrenmq.inspect.queue import QueueIndex
from warrenmq.inspect.reading import File, Findings
from warrenmq.inspect.store import InspectedStore
from warrenmq.inspect.terms import recovery_terms
from warrenmq.message.stored import SEALED, bound_to
from warrenmq.message_store.dump import CLEAN
from warrenmq.queue_index.v2 import qs
from warrenmq.routing.delayed import is_store
from warrenmq.vhost.unknown_folders import NO_QUEUE_KNOWN

NOT_PERSISTENT = "not persistent"
QUEUE_NOT_DURABLE = "queue not durable"
NO_RECORD = "no message record"
WITHOUT_RECORD = "no record of it is in a store or beside the index"
"""The end of the sentence on a message of which nothing is left but its entry."""
UNFINISHED = "not on disk when the process ended"
"""The reason for entries of a killed process of ours whose bodies were on their way to the store: no newer body that the
queue alone has is there, and a queue's bodies are appended in its order.  None of these messages was confirmed, and a
start says no more of them (message_store/recovery.py).
"""
EXPIRED = "expired"
UNREADABLE = "unreadable"
NORMAL = {NOT_PERSISTENT, QUEUE_NOT_DURABLE, EXPIRED, UNFINISHED}
"""Reasons that are no problem of the directory."""


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of an index and what comes of it."""

    entry: Entry
    redelivered: bool
    message: Message | None
    """None without a body."""
    reason: str | None
    """The reason why it is not listed; None if it is."""
    salvaged: str | None
    """The reason why RabbitMQ itself would not deliver it; None if it would."""

    @property
    def normal(self) -> bool:
        """True if the row shows no problem of the directory."""
        return self.salvaged is None and (self.reason is None or self.reason in NORMAL)


class VhostInspection:
    """The queues and stores of one vhost."""

    def __init__(self, findings: Findings, vhost: Vhost, layout: Layout, now_us: int) -> None:
        self.vhost = vhost
        self._findings = findings
        self._layout = layout
        self._now_us = now_us
        terms = recovery_terms(findings, vhost)
        self._terms = {queue.path: terms(queue) for queue in vhost.queues}
        self._indexes = {queue.path: self._index_of(queue) for queue in vhost.queues}
        self.referring = list(self._indexes) if layout.kind != "queue" else [str(layout.only)]
        """Folders of the queues whose messages the stores are searched for; to be set before they are."""
        self._shared: set[bytes] = set()
        """Messages that several entries refer to, once the stores were looked at."""
        self._newest: dict[str, int] = {}
        """Folder -> the newest sequence id of a message that is in the store for this queue alone; -1: none."""

    def _index_of(self, queue: QueueFolder) -> QueueIndex:
        terms, vhost = self._terms[queue.path], self.vhost
        return QueueIndex(self._findings, queue, vhost.entry_count, terms, ours=vhost.ours)

    @property
    def queues(self) -> list[QueueFolder]:
        """The requested queue folders, in order of delivery where several belong to one queue."""
        if self._layout.kind == "store":
            return []
        return [
            each
            for each in self.vhost.queues
            if self._layout.kind != "queue" or each.path == self._layout.only
        ]

    @cached_property
    def stores(self) -> dict[str, InspectedStore]:
        """Stores by name; read at the first use."""
        wanted: dict[str, dict[bytes, int]] = {PERSISTENT: {}, TRANSIENT: {}}
        for path in self.referring:
            for entry in self._indexes[path].entries():
                if entry.where == Where.STORE:
                    ids = wanted[PERSISTENT if entry.persistent else TRANSIENT]
                    if entry.msg_id in ids:
                        self._shared.add(entry.msg_id)
                    ids[entry.msg_id] = -1
        found: dict[str, InspectedStore] = {}
        for path in self.vhost.stores:
            kind = PERSISTENT if basename(path) not in {PERSISTENT, TRANSIENT} else basename(path)
            store = found[kind] = InspectedStore(self._findings, path, wanted[kind], ours=self.vhost.ours)
            store.note_gaps(self._claims(kind))
        return found

    def _claims(self, kind: str) -> Iterator[Iterator[bytes]]:
        """The messages of each queue that are in this store, in its order."""
        for path in self.referring:
            yield (
                entry.msg_id
                for entry in self._indexes[path].entries()
                if entry.where == Where.STORE and entry.persistent == (kind == PERSISTENT)
            )

    @property
    def believes_no_stop(self) -> bool:
        """True if a clean stop of ours left something behind that a start will not believe, as files have changed since."""
        return any(
            not store.clean and os.path.exists(f"{store.path}/{CLEAN}") for store in self.stores.values()
        ) or any(
            index.terms is None and os.path.exists(f"{path}/{TERMS}") for path, index in self._indexes.items()
        )

    def ready(self, queue: QueueFolder) -> Iterator[Entry]:
        """The messages that a start would recover if all files were whole; reads the index alone."""
        for entry in self._indexes[queue.path].entries():
            if entry.persistent and not self._has_expired(queue, entry):
                yield entry

    def _has_expired(self, queue: QueueFolder, entry: Entry) -> bool:
        """True if the entry has expired; never in a queue of delayed messages, whose index has due times
        instead of expiries.
        """
        return 0 < entry.expiry <= self._now_us and not is_store(queue.name or "")

    def rows(self, queue: QueueFolder) -> Iterator[Row]:
        """Every entry of a queue, in order of delivery; the messages are read one at a time."""
        index = self._indexes[queue.path]
        unknown = self.vhost.ours and queue.durable is None
        try:
            with _Files(self._findings, queue.path) as files:
                for entry in index.entries():
                    if unknown and entry.persistent:
                        self._findings.note(queue.path, 0, NO_QUEUE_KNOWN)
                    redelivered = not is_store(queue.name or "") and index.redelivered(entry)
                    row = Row(entry, redelivered, None, None, entry.salvaged)
                    yield self._settled(queue, row, files)
        finally:
            if "stores" in vars(self):  # else they were not used yet
                for store in self.stores.values():
                    store.close()  # it opens again what it is asked for

    def _settled(self, queue: QueueFolder, row: Row, files: _Files) -> Row:
        entry = row.entry
        row = self._from_store(row) if entry.where == Where.STORE else self._from_queue(row, files)
        if not entry.persistent:
            return replace(
                row, reason=QUEUE_NOT_DURABLE if queue.durable is False else NOT_PERSISTENT, salvaged=None
            )
        if row.reason is None and self._has_expired(queue, entry):
            return replace(row, reason=EXPIRED, salvaged=None)
        if row.reason == NO_RECORD and self._is_unfinished(queue, entry):
            return replace(row, reason=UNFINISHED, salvaged=None)
        if row.reason == NO_RECORD and entry.persistent:
            reason = f"message {entry.msg_id.hex() or entry.seq_id}: {WITHOUT_RECORD}"
            self._findings.note(f"{queue.path}/{entry.file}", entry.offset, reason, unless_in_use=True)
        return row if row.reason is None else replace(row, salvaged=None)

    def _from_store(self, row: Row) -> Row:
        entry = row.entry
        store = self.stores.get(PERSISTENT if entry.persistent else TRANSIENT)
        if store is None:
            return replace(row, reason=NO_RECORD)
        reason = NO_RECORD
        for place in store.places(entry.msg_id):
            stored = store.stored(place, entry.msg_id)
            if stored is None:
                continue
            path = f"{store.path}/{place.file}"
            try:
                found = message.decode(stored, path, place.offset, bound_to(entry.msg_id))
            except CorruptFile as why:
                self._findings.note(path, place.offset, f"message {entry.msg_id.hex()}: {why.reason}")
                reason = f"{UNREADABLE}: {why.reason}"
                continue
            return replace(row, message=found, salvaged=row.salvaged or store.why_lost(place))
        return replace(row, reason=reason)

    def _is_unfinished(self, queue: QueueFolder, entry: Entry) -> bool:
        store, index = self.stores.get(PERSISTENT), self._indexes[queue.path]
        if not self.vhost.ours or entry.where != Where.STORE or store is None or not store.files:
            return False
        if store.was_stopped and index.was_stopped:
            return False
        if (newest := self._newest.get(queue.path)) is None:
            there = (
                each.seq_id
                for each in self._index_of(queue).entries()  # `rows` is in the middle of the other one
                if each.where == Where.STORE and each.msg_id not in self._shared and store.has(each.msg_id)
            )
            newest = self._newest[queue.path] = max(there, default=-1)
        return entry.seq_id > newest

    def _from_queue(self, row: Row, files: _Files) -> Row:
        entry = row.entry
        file = files.get(entry.file)
        if file is None:
            return replace(row, reason=NO_RECORD)
        in_qs = entry.where == Where.QUEUE_STORE
        whole = file.pread(entry.head + entry.stored_size, entry.offset)
        head, stored = whole[: entry.head], whole[entry.head :]
        if in_qs:
            problem = qs.entry_header_problem(head, entry.stored_size)
            if problem is None and entry.offset + entry.head + entry.stored_size > file.size():
                problem = "a body is cut off"
            if problem is not None:
                file.note(entry.offset, problem)
                return replace(row, reason=f"{NO_RECORD}: {problem}")
        # a message with a checksum of its own, which is longer, is compared with that
        crc = qs.crc_problem(head, stored) if in_qs and not stored.startswith(SEALED) else None
        try:
            if crc is not None:
                raise CorruptFile(file.path, entry.offset, crc)
            found = message.decode(
                stored, file.path, entry.offset, entry.seq_id, entry.size, zero_padded=in_qs
            )
        except CorruptFile as why:
            file.note(entry.offset, why.reason)
            return replace(row, reason=f"{UNREADABLE}: {why.reason}")
        # a tenth of the time of `check` goes into `replace`
        return Row(entry, row.redelivered, found, None, row.salvaged)


class _Files:
    """The files of one queue, the last one used kept open."""

    def __init__(self, findings: Findings, folder: str) -> None:
        self._findings = findings
        self._folder = folder
        self._open: dict[str, File | None] = {}
        self._stack = ExitStack()

    def get(self, name: str) -> File | None:
        if name not in self._open:
            if len(self._open) > 1:  # the journal's and a segment's
                self._stack.close()
                self._open.clear()
            file = self._findings.open(f"{self._folder}/{name}")
            self._open[name] = file if file is None else self._stack.enter_context(file)
        return self._open[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Inspection:
    """A directory that is being looked at; nothing is written, and nothing is kept open."""

    def __init__(self, path: str, now_us: int) -> None:
        """CallerError when it is no data directory."""
        self.findings = Findings(path)
        self.layout = recognise(self.findings)
        self.vhosts = [
            VhostInspection(self.findings, each, self.layout, now_us) for each in self.layout.vhosts
        ]

    def queues(self) -> Iterator[tuple[VhostInspection, QueueFolder]]:
        """Every queue folder that was asked for."""
        for vhost in self.vhosts:
            for queue in vhost.queues:
                yield vhost, queue

    def stores(self) -> Iterator[tuple[VhostInspection, InspectedStore]]:
        """Every store that was asked for."""
        for vhost in self.vhosts:
            if self.layout.kind != "queue":
                for store in vhost.stores.values():
                    if self.layout.only in {None, store.path}:
                        yield vhost, store
