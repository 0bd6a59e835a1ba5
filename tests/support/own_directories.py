"""Directories of ours, of every kind, as the real broker leaves them on a simulated disk, with what is in them.

Two queues with messages in their own files and in the store, some of them in both queues, some not persistent, some acked,
in several runs of the broker; stopped in order, killed, or killed while a queue's files became the other version's.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import warrenmq
from tests.support.damage import Files, Message, Place, Queue, in_stores, in_version_1, in_version_2
from tests.support.simulated import SimulatedHost
from warrenmq.directory.layout import queue_folder, vhost_folder
from warrenmq.queue_index.record import HEADER, message_problem
from warrenmq.queue_index.v1 import walk as walk_version_1
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.queue_index.v2.segment_files import NO_ID
from warrenmq.queue_index.v2.walk import segment_size_of, segments
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings

QUEUES = ("a", "b")
VHOST = f"/data/msg_stores/vhosts/{vhost_folder('/')}"
STOPS = ("closed", "killed", "converting")
_CONVERTING_OPS = 60
"""Disk operations after which a conversion is under way."""


class Directory(NamedTuple):
    files: Files
    queues: dict[str, Queue]
    bodies: dict[str, list[str]]
    """Of every message that a queue ever had: an acked one may come back."""
    edges: dict[str, list[int]]
    """Where records begin and end."""


class Killed(BaseException):
    """The process ended in the middle of an operation."""


def folder_of(queue: str) -> str:
    return f"{VHOST}/queues/{queue_folder('/', queue)}"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@cache
def directory(settings: Settings, stop: str) -> Directory:
    """The disk after a life with these settings and this end."""
    with SimulatedHost(seed=3, settings=settings, traced=False) as host:
        broker, bodies = _life(host)
        if stop != "killed":
            broker.close()
        host.crash(power_cut=False)
        if stop == "converting":
            _convert_halfway(host)
        files = files_of(host)
        queues = {name: _look(host, files, name) for name in QUEUES}
    edges: dict[str, list[int]] = {}
    for queue in queues.values():
        for message in queue.messages:
            for path, start, end in message.places:
                edges.setdefault(path, []).extend((start, end))
    return Directory(files, queues, bodies, edges)


def files_of(host: SimulatedHost) -> Files:
    """Every file that the disk has."""
    return {path: host.disk.read(path) for path in sorted(host.disk._files)}


def put(host: SimulatedHost, files: Files) -> None:
    """Have these files on a new disk."""
    for path, data in files.items():
        host.disk.mkdir(posixpath.dirname(path))
        host.disk.open(path, create=True).append(data)


def _life(host: SimulatedHost) -> tuple[warrenmq.Broker, dict[str, list[str]]]:
    """Two runs, of which the second goes on; and the bodies."""
    bodies: dict[str, list[str]] = {name: [] for name in QUEUES}
    number = 0
    broker = host.open()
    for run in range(2):
        for name in QUEUES:
            broker.bind(broker.declare_queue(name), "amq.fanout")
        for _ in range(20):
            body = b"%d " % number + bytes([97 + number % 26]) * (30, 700, 60, 900)[number % 4]
            exchange, key, to = (("", "a", "a"), ("", "b", "b"), ("amq.fanout", "", "ab"))[number % 3]
            broker.publish(exchange, key, body, persistent=number % 11 != 5).result()
            for name in to:
                bodies[name].append(sha256(body))
            number += 1
        for name in QUEUES:
            deliveries = [broker.queue(name).get() for _ in range(6)]
            for delivery in (*deliveries[1:3], deliveries[4]):
                assert delivery is not None
                delivery.ack()
        host.sleep(1)
        if run == 0:
            broker.close()
            host.crash(power_cut=False)
            broker = host.open()
    return broker, bodies


def _convert_halfway(host: SimulatedHost) -> None:
    ops = 0

    def before(_op: str, path: str) -> None:
        nonlocal ops
        ops += "/queues/" in path
        if ops == _CONVERTING_OPS:
            raise Killed

    made_with = host.settings
    host.settings = replace(made_with, queue_version=3 - made_with.queue_version)
    host.before_op = before  # type: ignore[method-assign]
    try:
        host.open()
    except Killed:
        pass
    host.crash(power_cut=False)
    host.settings = made_with


def _look(host: SimulatedHost, files: Files, name: str) -> Queue:
    folder, entry_count = folder_of(name), host.settings.queue_index_segment_entry_count
    disk = host.disk
    found = {
        seq: (record, persistent)
        for seq, record, persistent in walk_version_1.messages(disk, folder, entry_count)
    }
    found |= {
        seq: (record, persistent) for seq, record, persistent in listed_version_2(disk, folder, host.settings)
    }
    messages = []
    for seq_id, (record, persistent) in sorted(found.items()):
        if persistent:
            places = tuple(dict.fromkeys(_places(files, folder, seq_id, record)))
            msg_id = record[:16] if any(record[:16]) else b""
            messages.append(Message(seq_id, sha256(_body(files, record, places)), msg_id, places))
    return Queue(folder, messages, entry_count)


def _places(files: Files, folder: str, seq_id: int, record: bytes) -> Iterator[Place]:
    if any(record[:16]):
        yield from in_version_1(files, folder, record[:16])
        if not record[32:]:
            yield from in_stores(files, VHOST, record[:16])
    yield from in_version_2(files, folder, seq_id)


def _body(files: Files, record: bytes, places: tuple[Place, ...]) -> bytes:
    """It ends a stored message of ours."""
    size = int.from_bytes(record[24:28], "big")
    if record[32:]:
        return record[-size:]
    path, _, end = next(place for place in places if place.path.endswith(".rdq"))
    return files[path][end - 1 - size : end - 1]


def listed_version_2(on: Disk, directory: str, use: Settings) -> Iterator[tuple[int, bytes, bool]]:
    """The contents of .qi and .qs files, read without opening them as an index: (sequence id, record, persistent)."""
    for first, entries, _ in segments(on, directory, use):
        for relative, entry in entries:
            body = b""
            if entry.location == qi.Location.QUEUE_STORE:
                number = first // segment_size_of(on, directory, on.listdir(directory), 1)
                path = f"{directory}/{number}{qs.EXTENSION}"
                if not on.exists(path):
                    continue
                (found,) = qs.read_bodies(
                    on.open_read(path), [(entry.offset, entry.stored_size)], check_crc=True
                )
                if isinstance(found, str) or message_problem(found, first + relative, entry.size):
                    continue
                body = found
            record = HEADER.pack(entry.msg_id or NO_ID, entry.expiry, entry.size, len(body)) + body
            yield first + relative, record, entry.persistent
