"""A queue index on a simulated disk, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from warrenmq.directory.damage_log import DamageLog
from warrenmq.directory.recovery_terms import Terms
from warrenmq.message.stored import encode, encode_head
from warrenmq.queue_index import versions as index_versions
from warrenmq.queue_index.protocol import Opening
from warrenmq.queue_index.record import ID_BYTES, embedded, pack
from warrenmq.queue_index.v1 import index as queue_index
from warrenmq.queue_index.v1 import journal
from warrenmq.queue_index.v1.recovery import Found
from warrenmq.queue_index.v1.segment import Segment
from warrenmq.queue_index.v2.segment_files import NO_ID
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedDisk
from warrenmq.trace.events import Trigger
from warrenmq.vhost.last_stops import LastStops

DIRECTORY = "/data/queues/Q"
QUARANTINE = "/data/quarantine"
N = 4_096
HEAD = encode_head("", ["q"], None)


def embedded_record(number: int, size: int = 5) -> bytes:
    """A record with its message inside; the body tells the number."""
    body = number.to_bytes(4, "big").rjust(size, b"b")[:size]
    return pack(b"warrenmq" + (number + 1).to_bytes(8, "big"), 0, len(body), encode(HEAD, body))


def stored_record(number: int, size: int = 5000) -> bytes:
    """A record whose message is in the store."""
    return pack(b"warrenmq" + (number + 1).to_bytes(8, "big"), 0, size)


def records(count: int, first: int = 0) -> list[bytes]:
    """Records with their messages inside, of consecutive numbers."""
    return [embedded_record(first + each) for each in range(count)]


def seqs(found: list[tuple[int, bytes, bool]]) -> list[int]:
    """The sequence ids of what was read."""
    return [seq_id for seq_id, _, _ in found]


def disk(seed: int = 0) -> SimulatedDisk:
    made = SimulatedDisk(Random(seed))
    made.mkdir(DIRECTORY)
    return made


def watch(on: SimulatedDisk) -> list[str]:
    """The operations on the disk from now on, each with the name of its file."""
    operations: list[str] = []
    on.before_op = lambda op, path: operations.append(f"{op} {path.rpartition('/')[2]}")
    return operations


def put_file(on: SimulatedDisk, name: str, data: bytes) -> None:
    on.replace(f"{DIRECTORY}/{name}", data)


def read_file(on: SimulatedDisk, name: str) -> bytes | None:
    path = f"{DIRECTORY}/{name}"
    return on.read(path) if on.exists(path) else None


def settings(
    entry_count: int = 4, max_journal_entries: int = 32_768, version: int = 1, **more: Any
) -> Settings:
    return Settings(
        queue_version=version,
        queue_index_segment_entry_count=entry_count,
        queue_index_max_journal_entries=max_journal_entries,
        classic_queue_index_v2_segment_entry_count=entry_count,
        **more,
    )


def v2(entry_count: int = N, **more: Any) -> Settings:
    """Settings of version 2 with RabbitMQ's size of a segment."""
    return settings(entry_count, version=2, **more)


def recover(
    on: SimulatedDisk,
    use: Settings | None = None,
    terms: Terms | None = None,
    in_store: Any = lambda _msg_id: True,
    trace: Any = None,
) -> tuple[Any, Found]:
    """An index of the version that the settings say; files of the other version are converted."""
    return index_versions.recover(
        Opening(on, DIRECTORY, use or settings(), in_store, QUARANTINE, None, terms, trace)
    )


def take_terms(on: SimulatedDisk) -> Terms | None:
    """Take the recovery terms of a clean stop, as a start does."""
    return LastStops(on, settings(), QUARANTINE, DamageLog()).take(DIRECTORY).terms


def store_message_ids(on: SimulatedDisk, use: Settings) -> list[bytes]:
    """The ids of the messages that a store must keep for this queue."""
    return index_versions.walk(on, DIRECTORY, on.listdir(DIRECTORY), use).store_message_ids


def message(record: bytes, version: int = 2) -> bytes:
    """The record as a read returns it: version 2 does not keep the id of a message that it holds itself."""
    return NO_ID + record[ID_BYTES:] if version == 2 and embedded(record) else record


def messages(found: dict[int, bytes], version: int = 2) -> dict[int, bytes]:
    """`message` of many; what is still in memory has its id."""
    return {seq_id: message(record, version) for seq_id, record in found.items()}


def everything(index: Any) -> dict[int, bytes]:
    """All live messages, read segment by segment."""
    found: dict[int, bytes] = {}
    seq_id = index.next_live(0)
    while seq_id < index.next_seq_id:
        boundary = (seq_id // index.segment_entry_count + 1) * index.segment_entry_count
        found.update((each, record) for each, record, _ in index.read(seq_id, boundary))
        seq_id = index.next_live(boundary)
    return found


def read_all(index: Any, found: Found) -> dict[int, bytes]:
    """`everything`, as which `found` counts what reading it finds damaged: bodies are not read by a start."""
    live = everything(index)
    lost = index.take_lost()
    assert (index.unacked, found.count) == (len(live), len(live) + len(lost))
    found.count -= len(lost)
    found.dropped += len(lost)
    found.lost += lost
    found.damage += index._damage.places
    index.sync(Trigger.CLOSE)
    return live


def entries(segment: Segment, offset: int = 0) -> bytes:
    """All that a flush would append."""
    return segment.entries(segment.to_append(), 1 << 30, offset)[0]


def flushes_come_in_small_pieces() -> Iterator[None]:
    """A fixture: a few records a step, and journals of any size are given back in pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_index, "FLUSH_BYTES", 100)
        patch.setattr(journal, "RECLAIM_BYTES", 400)
        yield
