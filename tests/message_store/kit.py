"""Small things that the tests of the message store share."""

from __future__ import annotations

import random

from warrenmq.directory.damage_log import DamageLog
from warrenmq.message.stored import bound_to, encode_head, seal
from warrenmq.message_store import rdq
from warrenmq.message_store.damage import StoreDamage
from warrenmq.message_store.gc_jobs import Truncate
from warrenmq.message_store.recovery import References
from warrenmq.message_store.state import MsgStoreState
from warrenmq.seams.disk import Disk
from warrenmq.settings import Settings
from warrenmq.testing import SimulatedDisk

FOLDER = "/store"
QUARANTINE = "/quarantine"


def msg_id(number: int) -> bytes:
    """A message id as the broker makes them: a prefix of the run and a number."""
    return b"testing!" + number.to_bytes(8, "big")


def record(number: int, body: bytes = b"\x83ody") -> bytes:
    """A whole record."""
    return rdq.head(msg_id(number), len(body)) + body + rdq.MARKER


def new_disk(seed: int = 0) -> SimulatedDisk:
    """A disk with the store's folder."""
    disk = SimulatedDisk(random.Random(seed))
    disk.mkdir(FOLDER)
    return disk


def held_by(**owners: list[bytes]) -> References:
    """The messages that owners hold, each in one run, as `recover` asks for them."""
    return lambda: [(owner, [held]) for owner, held in owners.items()]


HEAD = encode_head("", ["q"], None)


def sealed(number: int, size: int) -> bytes:
    """A stored message of `size` bytes that has its checksum in the record of message `number`."""
    less = next(less for less in range(16, 32) if len(seal(HEAD, bytes(size - less), 0)) == size)
    return seal(HEAD, (number.to_bytes(4, "big") * size)[: size - less], bound_to(msg_id(number)))


def reads(disk: Disk) -> StoreDamage:
    """The sink for damage that a store's state finds."""
    return StoreDamage(disk, FOLDER, QUARANTINE, "store", DamageLog())


def body_of(number: int) -> bytes:
    """The body of message `number`: its size depends on it, and most do not fit four times into a small file."""
    return sealed(number, 4 * (50 + 97 * number % 500))


SMALL = Settings(msg_store_file_size_limit=4096, msg_store_write_buffer=4096, msg_store_gc="combine")
"""Files of two to ten messages."""
SMALL_IN_PLACE = Settings(msg_store_file_size_limit=4096, msg_store_write_buffer=4096, msg_store_gc="compact")


def check_tables(state: MsgStoreState, disk: Disk, folder: str = FOLDER) -> None:
    """Assert the invariants of a store between two messages (docs/reference/message-store.md#invariants)."""
    index, files = state.tables.index, state.tables.files
    numbers = list(files.rows)
    assert numbers == sorted(numbers)
    assert [row.left for row in files.rows.values()] == [None, *numbers[:-1]]  # I5
    assert [row.right for row in files.rows.values()] == [*numbers[1:], None]
    assert files.current == numbers[-1] == state.writer.file.number  # I6
    assert not files.rows[files.current].locked
    unlocked = {job.file for job in state.gc.jobs if isinstance(job, Truncate)}
    assert {n for n, row in files.rows.items() if row.locked} == set(state.gc.pending) - unlocked  # I15
    places: dict[int, list[tuple[int, int]]] = {number: [] for number in numbers}
    for refs, file, offset, total in (entry for _, entry in index.items()):
        assert refs >= 0
        if refs:
            places[file].append((offset, total))
    for number, row in files.rows.items():
        end = 0
        for offset, total in sorted(places[number]):  # I7
            assert offset >= end
            end = offset + total
        assert end <= row.file_size
        assert row.valid_total_size == sum(total for _, total in places[number])  # I1
        assert row.file_size >= row.valid_total_size  # I10
    assert files.sum_valid_data == sum(row.valid_total_size for row in files.rows.values())  # I2
    assert files.sum_file_size == sum(row.file_size for row in files.rows.values())
    for msg_id, (refs, file, offset, total) in index.items():
        in_place = state.gc.in_place
        if refs and file != files.current and (in_place or not files.rows[file].locked):  # I8
            opened = disk.open_read(f"{folder}/{rdq.file_name(file)}")
            rdq.body_of(opened.pread(total, offset), msg_id, "", offset)
            opened.close()


def check_at_rest(state: MsgStoreState, disk: Disk, folder: str = FOLDER) -> None:
    """Assert the invariants of a store when all mail has been handled and the collector is idle."""
    check_tables(state, disk, folder)
    tables, current = state.tables, state.tables.files.current
    counts = state.owners.counts()
    assert {m: entry[0] for m, entry in tables.index.items() if entry[0]} == counts  # I3
    assert len(tables.flying) == 0  # I11
    assert not tables.cache._unhandled  # I4
    assert not any(tables.cache._batches.values())
    for msg_id in tables.cache._bodies:  # I14, but for what a killed client left
        entry = tables.index.lookup(msg_id)
        assert entry[1] == current
    assert not state.gc.pending
    assert not any(row.readers for row in tables.files.rows.values())
    for number, row in tables.files.rows.items():
        if number != current:
            assert disk.size(f"{folder}/{rdq.file_name(number)}") == row.file_size  # I9
            assert row.valid_total_size > 0
    on_disk = rdq.file_numbers(disk.listdir(folder))
    assert on_disk == list(tables.files.rows)  # I17
