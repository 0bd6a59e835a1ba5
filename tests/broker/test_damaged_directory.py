"""A data directory with damaged files: opening never fails, and what was not damaged is given back, in order.

The directory is a real one, made by the broker on a simulated disk: two queues with messages in segment files, in the
journal and in the store, some of them in both queues, some acked; once as a clean stop leaves it, once as a crash does.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.damage import Files, Place
from tests.support.own_directories import QUEUES, VHOST, files_of, folder_of, given_back_twice, put
from tests.support.simulated import SMALL_CLASSIC, SimulatedHost
from warrenmq.directory.layout import vhost_folder
from warrenmq.queue_index.v1.recovery import messages

STORE = f"{VHOST}/msg_store_persistent"
QUARANTINE = f"/data/quarantine/{vhost_folder('/')}"
ENOUGH = 5_000
"""Disk operations after which opening a dozen small files has to be done."""


class Message(NamedTuple):
    body: bytes
    places: tuple[Place, ...]


class Directory(NamedTuple):
    files: Files
    queues: dict[str, list[Message]]
    """What is in each queue, in order."""


def build(*, clean: bool) -> Directory:
    host = SimulatedHost(3, SMALL_CLASSIC)
    broker = host.open()
    for name in QUEUES:
        broker.bind(broker.declare_queue(name), "amq.fanout")
    for number in range(26):
        body = b"%d " % number + bytes([97 + number]) * (30, 700, 60, 900)[number % 4]
        to = (("", "a"), ("", "b"), ("amq.fanout", ""))[number % 3]
        broker.publish(*to, body).result()
    for name in QUEUES:
        deliveries = [broker.queue(name).get() for _ in range(4)]
        for delivery in deliveries[1:3]:
            assert delivery is not None
            delivery.ack()
    host.sleep(1)
    if clean:
        broker.close()
    host.crash(power_cut=False)
    files = files_of(host)
    queues = {}
    for name in QUEUES:
        folder = folder_of(name)
        records = [
            record
            for _, record, _ in messages(host.disk, folder, SMALL_CLASSIC.queue_index_segment_entry_count)
        ]
        places = [(record, *places_of(files, folder, record)) for record in records]
        queues[name] = [Message(body_in(files, record, *where), tuple(where)) for record, *where in places]
    host.close()
    return Directory(files, queues)


def touches(place: Place, path: str, start: int, end: int) -> bool:
    return path == place.path and start < place.end and place.start < end


def places_of(files: Files, folder: str, record: bytes) -> Iterator[Place]:
    """Where a message lies: its record in the queue's files, its body in the store's."""
    for path, data in files.items():
        if path.startswith(folder) and (at := data.find(record)) >= 0:
            around = 8 if path.endswith(".jif") else 2  # the prefix before it, the deliver mark behind it
            yield Place(path, at - around, at + len(record) + around)
        elif path.startswith(STORE) and path.endswith(".rdq") and (at := data.find(record[:16])) >= 0:
            size = int.from_bytes(data[at - 8 : at], "big")
            yield Place(path, at - 8, at + size + 1)


def body_in(files: Files, record: bytes, *places: Place) -> bytes:
    size = int.from_bytes(record[24:28], "big")
    if int.from_bytes(record[28:32], "big"):
        return record[-size:]
    place = next(place for place in places if place.path.endswith(".rdq"))
    return files[place.path][place.end - 1 - size : place.end - 1]


@cache
def directory(*, clean: bool) -> Directory:
    return build(clean=clean)


class Opened(NamedTuple):
    queues: dict[str, list[bytes]]
    """What is in the queues that are still declared."""
    quarantine: dict[str, bytes]


def open_and_read(files: Files) -> Opened:
    host = SimulatedHost(1, SMALL_CLASSIC, traced=False)
    try:
        put(host, files)
        found = given_back_twice(host, ENOUGH)
        return Opened(
            found, {path: data for path, data in files_of(host).items() if path.startswith(QUARANTINE)}
        )
    finally:
        host.close()


def test_the_directory_is_healthy_to_begin_with() -> None:
    for clean in (True, False):
        files, queues = directory(clean=clean)
        assert {posixpath.splitext(path)[1] for path in files} >= {".jif", ".idx", ".rdq", ".log"}
        assert all(len(messages) > 10 for messages in queues.values())
        opened = open_and_read(files)
        assert opened.queues == {name: [message.body for message in queues[name]] for name in QUEUES}
        assert opened.quarantine == {}


# Damage of one place: everything else is given back.


def check_the_rest(made: Directory, damaged: Files, path: str, start: int, end: int) -> Opened:
    opened = open_and_read(damaged)
    for name, found in opened.queues.items():
        whole = [
            message.body
            for message in made.queues[name]
            if not any(touches(place, path, start, end) for place in message.places)
        ]
        rest = iter(found)
        missing = [body for body in whole if body not in rest]  # a subsequence: this keeps the order
        assert missing == []
        assert len(found) <= len(made.queues[name]) + 2 * len(QUEUES), "at most the acked ones are here again"
    return opened


fractions = st.floats(0, 1, exclude_max=True)


@settings(max_examples=50)
@given(clean=st.booleans(), which=fractions, at=fractions)
def test_a_file_that_was_cut_short_keeps_what_is_before_the_cut(clean: bool, which: float, at: float) -> None:
    made = directory(clean=clean)
    path = [path for path in made.files if path.endswith((".jif", ".idx", ".rdq", ".log"))][
        int(which * 99) % 9 - 9
    ]
    data = made.files[path]
    size = int(at * len(data))
    check_the_rest(made, {**made.files, path: data[:size]}, path, size, len(data))


@settings(max_examples=50)
@given(clean=st.booleans(), queue=st.sampled_from(QUEUES), which=fractions, place=fractions, at=fractions,
       flip=st.integers(1, 255))  # fmt: skip
def test_a_flipped_byte_costs_one_message(
    clean: bool, queue: str, which: float, place: float, at: float, flip: int
) -> None:
    made = directory(clean=clean)
    message = made.queues[queue][int(which * len(made.queues[queue]))]
    path, start, end = message.places[int(place * len(message.places))]
    data = bytearray(made.files[path])
    data[start + int(at * (end - start))] ^= flip
    check_the_rest(made, {**made.files, path: bytes(data)}, path, start, end)


def test_a_record_that_makes_no_sense_is_set_aside() -> None:
    made = directory(clean=False)
    for message in made.queues["a"]:
        for path, start, end in message.places:
            data = made.files[path]
            nonsense = b"\xff" * (end - start)
            damaged = {**made.files, path: data[:start] + nonsense + data[end:]}
            opened = check_the_rest(made, damaged, path, start, end)
            assert any(nonsense in kept for kept in opened.quarantine.values())


# Damage of any kind: it opens, says the same again, and works.


def cut(data: bytes, a: int, b: int) -> bytes:
    return data[:a]


def flip(data: bytes, a: int, b: int) -> bytes:
    return data[:a] + bytes(each ^ 0xFF for each in data[a:b]) + data[b:]


def zeros(data: bytes, a: int, b: int) -> bytes:
    return data[:a] + bytes(b - a) + data[b:]


def twice(data: bytes, a: int, b: int) -> bytes:
    return data[:b] + data[a:]


def lack(data: bytes, a: int, b: int) -> bytes:
    return data[:a] + data[b:]


def longer(data: bytes, a: int, b: int) -> bytes:
    return data + bytes(a) + data[a:b]


def empty(data: bytes, a: int, b: int) -> bytes:
    return b""


Damage = Callable[[bytes, int, int], bytes]


@pytest.mark.parametrize("damage", [cut, flip, zeros, twice, lack, longer, empty])
@settings(max_examples=15)
@given(
    clean=st.booleans(), places=st.lists(st.tuples(fractions, fractions, fractions), min_size=1, max_size=3)
)
def test_whatever_happened_to_its_files_a_directory_opens(
    damage: Damage, clean: bool, places: list[tuple[float, float, float]]
) -> None:
    files = dict(directory(clean=clean).files)
    for which, one, other in places:
        path = list(files)[int(which * len(files))]
        data = files[path]
        a, b = sorted((int(one * len(data)), int(other * len(data))))
        files[path] = damage(data, a, b)
    open_and_read(files)


@pytest.mark.parametrize("clean", [True, False])
def test_any_file_may_be_missing(clean: bool) -> None:
    files = directory(clean=clean).files
    for path in files:
        open_and_read({each: data for each, data in files.items() if each != path})


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
def test_any_two_files_may_have_each_others_bytes(clean: bool) -> None:
    files = directory(clean=clean).files
    for one in files:
        for other in files:
            if one < other:
                open_and_read({**files, one: files[other], other: files[one]})
