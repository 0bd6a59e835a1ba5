"""Messages that are read as a run are those that are read one by one, and a run ends before anything that is not as it has to be."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index.index_kit import DIRECTORY, HEAD, disk, put_file, read_file, recover, settings
from warrenmq.message.queue_message import FEW, Publication, records_of
from warrenmq.message.stored import encode_head
from warrenmq.queue_index.v2 import qi
from warrenmq.queue_index.v2.pack import alike_entries
from warrenmq.queue_index.v2.unpack import run_of
from warrenmq.testing import SimulatedDisk
from warrenmq.trace.events import Trigger

SEGMENT = 64
OTHER_HEAD = encode_head("events", ["q"], None)


def written(on: SimulatedDisk, choose: Random) -> int:
    """Lay out batches of messages, most of them alike, and ack some; returns how many there were."""
    index, _ = recover(on, settings(SEGMENT, version=2))
    end = 0
    for _ in range(choose.randrange(1, 6)):
        size, count = choose.choice([0, 1, 30, 30, 300]), choose.choice([1, 20, 40, 100])
        bodies = [choose.randbytes(size) for _ in range(count)]
        if choose.random() < 0.2:
            bodies[choose.randrange(count)] = b"another"
        persistent, expiry = choose.random() < 0.9, choose.choice([0, 0, 1_900_000_000_000_000])
        head = choose.choice([HEAD, HEAD, OTHER_HEAD])
        below = choose.choice([4096, 4096, 4096, 0])
        publication = Publication(bytes(8), end + 1, head, 0, bodies, persistent)
        index.publish_many(end, records_of([publication], end, below, [expiry])[0], persistent)
        end += count
        if choose.random() < 0.6:
            index.sync(Trigger.TIMER)
        if choose.random() < 0.3:
            index.ack(sorted(choose.sample(range(end), 2)) if end > 1 else [])
            index.sync(Trigger.TIMER)
            break
    index.sync(Trigger.TIMER)
    index.terminate(next_seq_id=end, next_deliver_seq_id=0)
    return end


def damage(on: SimulatedDisk, choose: Random) -> None:
    """Change a byte of a file, or cut it."""
    name = choose.choice([name for name in on.listdir(DIRECTORY) if name[0].isdigit()])
    data = bytearray(read_file(on, name) or b"")
    at = choose.randrange(64, len(data)) if len(data) > 64 else 0
    if name.endswith(".qs") and choose.random() < 0.7:  # in what stands before a body
        entries = read_file(on, name.replace(".qs", ".qi")) or b""
        place = 64 + 32 * choose.randrange((len(entries) - 64) // 32)
        at = int.from_bytes(entries[place + 4 : place + 12], "big") + choose.choice(
            (0, 3, 4, 5, 7, 8, 11, 15, 18)
        )
        at = at if at < len(data) else len(data) - 1
    elif choose.random() < 0.3:
        del data[at:]
    else:
        data[at] ^= 1 << choose.randrange(8)
    put_file(on, name, bytes(data))


@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_is_what_the_reader_of_single_messages_finds(damaged: bool) -> None:
    read_together = 0
    for seed in range(300):
        choose, on = Random(seed), disk(seed)
        end = written(on, choose)
        if damaged:
            damage(on, choose)
        index, _ = recover(on, settings(SEGMENT, version=2))
        for _ in range(4):
            start = choose.randrange(end)
            stop = choose.randrange(start, end) + 1
            alike = index.read_alike(start, stop)
            assert len(alike) <= stop - start
            read_together += len(alike)
            expected = index.read(start, start + len(alike)) if alike else []
            assert expected == [(start + i, record, True) for i, record in enumerate(alike)]
            heads = index.read_alike(start, stop, bodies=False)
            assert index.read_headers(start, start + len(heads)) == [
                (start + i, head, True) for i, head in enumerate(heads)
            ]
    assert read_together > 3_000


def test_a_run_is_not_read_where_memory_knows_better() -> None:
    on = disk()
    index, _ = recover(on, settings(SEGMENT, version=2))
    records, _ = records_of([Publication(bytes(8), 1, HEAD, 0, [bytes(9)] * SEGMENT, True)], 0, 4096)
    index.publish_many(0, records, True)
    assert index.read_alike(0, SEGMENT) == []
    index.sync(Trigger.TIMER)
    assert index.read_alike(0, SEGMENT) == [], "it is still in the cache"
    index, _ = recover(on, settings(SEGMENT, version=2))
    assert len(index.read_alike(0, SEGMENT)) == SEGMENT
    assert len(index.read_alike(7, 1_000)) == SEGMENT - 7, "a run ends with its segment"
    index.ack([30])
    assert index.read_alike(0, SEGMENT) == [], "an ack waits to be written"
    assert len(index.read_alike(0, 30)) == 30


@given(st.integers(0, 3 * FEW), st.integers(0, 3 * FEW), st.integers(0, 31))
def test_a_run_goes_on_to_the_first_entry_that_is_not_like_the_first(
    count: int, other: int, byte: int
) -> None:
    entries = alike_entries(count, qi.PERSISTENT, 64, 80, 60, 0)
    alike = count
    if other < count:
        entries[qi.ENTRY_BYTES * other + byte] ^= 1
        alike = other
    found = run_of(bytes(entries))
    if alike >= FEW and other:
        assert found is not None
        assert (found.messages, found.offset, found.stored, found.size) == (alike, 64, 80, 60)
    elif found is not None:  # the first one itself was changed
        assert other == 0
        assert found.messages >= FEW
