"""Doubtful messages after a kill: which of those that were being published are in the target's queue.

They were published in order, but a small message may be safe in the index when the body of a large one before it had not
reached the message store.  To go on in order, what lies behind the first that is missing is taken out of the queue again
and published once more:

    in doubt            1   2   3   4   5
    in the target       x   x       x
    settled as moved    x   x
    taken out                       x
    published again             3   4   5

The queue's broker must not run.  A message that is taken out is acked in its files, as the broker would have done it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from warrenmq.directory.recovery_terms import discard_terms
from warrenmq.inspect.inspection import Inspection
from warrenmq.mend.ledger import Ledger
from warrenmq.mend.moving import fingerprint
from warrenmq.queue_index.v1.journal import FILE_NAME, Journal
from warrenmq.queue_index.v1.reader import read_journal
from warrenmq.queue_index.v2 import qi
from warrenmq.seams.disk import Disk
from warrenmq.trace.events import PRIORITY_SHIFT


def settle(disk: Disk, ledger: Ledger, folder_of: Callable[[int], str]) -> None:
    """Leave no doubt about the messages of a queue; `folder_of` gives its folder, of each priority."""
    by_priority: dict[int, list[tuple[int, bytes, bytes]]] = {}
    for key, doubt in ledger.doubtful.items():
        priority = doubt.seq_id >> PRIORITY_SHIFT
        within = doubt.seq_id - (priority << PRIORITY_SHIFT)
        by_priority.setdefault(priority, []).append((within, key, doubt.fingerprint))
    folders = {priority: folder_of(priority) for priority in by_priority}
    if not any(map(os.path.isdir, folders.values())):
        return
    moved: list[bytes] = []
    for priority, doubts in by_priority.items():
        if os.path.isdir(folders[priority]):
            moved += _settle_in(disk, folders[priority], sorted(doubts))
    ledger.resolve(moved)


def _settle_in(disk: Disk, queue: str, doubts: list[tuple[int, bytes, bytes]]) -> list[bytes]:
    """Take out what lies behind the first of these (sequence id, key, fingerprint) that is missing; the keys of
    those before it.
    """
    sought = {seq_id: wanted for seq_id, _, wanted in doubts}
    there = {seq_id for seq_id, found in _fingerprints(queue, sought) if found == sought[seq_id]}
    moved = []
    for seq_id, key, _ in doubts:
        if seq_id not in there:
            break
        moved.append(key)
        there.discard(seq_id)
    if there:
        forget(disk, queue, sorted(there))
    return moved


def _fingerprints(queue: str, sought: dict[int, bytes]) -> Iterable[tuple[int, bytes]]:
    for part, folder in Inspection(queue, now_us=0).queues():
        for row in part.rows(folder):
            if row.entry.seq_id in sought and row.message is not None and row.reason is None:
                yield row.entry.seq_id, fingerprint(row.message)


def forget(disk: Disk, queue: str, seq_ids: list[int]) -> None:
    """Ack messages in the files of a queue that is not open."""
    discard_terms(disk, queue)  # they describe files that are about to change
    names = disk.listdir(queue)
    if any(name.endswith(qi.EXTENSION) for name in names):
        seq_ids = _forget_version_2(disk, queue, names, seq_ids)
    if seq_ids:
        _forget_version_1(disk, queue, seq_ids)


def _forget_version_2(disk: Disk, queue: str, names: list[str], seq_ids: list[int]) -> list[int]:
    """Zero their entries; returns those that no file has."""
    rest = set(seq_ids)
    for name in names:
        if not name.endswith(qi.EXTENSION):
            continue
        file = disk.open(f"{queue}/{name}")
        try:
            header = qi.unpack_header(qi.MAGIC, file.pread(qi.HEADER_BYTES, 0))
            if isinstance(header, str):
                continue
            for seq_id in [each for each in seq_ids if header.first <= each < header.end]:
                file.pwrite(qi.ACKED, qi.HEADER_BYTES + (seq_id - header.first) * qi.ENTRY_BYTES)
                rest.discard(seq_id)
            file.datasync()
        finally:
            file.close()
    return sorted(rest)


def _forget_version_1(disk: Disk, queue: str, seq_ids: list[int]) -> None:
    """Append their acks to the journal, behind its last whole action."""
    path = f"{queue}/{FILE_NAME}"
    file = disk.open(path, create=True)
    try:
        file.truncate(read_journal(disk.read(path), 1).end)
    finally:
        file.close()
    journal = Journal(disk, queue)
    journal.ack(seq_ids)
    journal.write()
    journal.file.datasync()
    journal.close()
