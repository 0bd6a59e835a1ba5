from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any
from zlib import crc32

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.directory.definition_frames import check_storable
from warrenmq.directory.definition_frames import frame as frame_of
from warrenmq.directory.definitions import (
    BindingRecord,
    Definitions,
    ExchangeRecord,
    QueueRecord,
    queue_frame,
)
from warrenmq.errors import PreconditionFailed
from warrenmq.testing import SimulatedDisk

PATH = "/data/definitions.log"
QUARANTINE = "/data/quarantine"


def new_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.mkdir("/data")
    return disk


def opened(disk: SimulatedDisk) -> Definitions:
    return Definitions.open(disk, PATH, QUARANTINE)


def state(definitions: Definitions) -> tuple[object, ...]:
    return definitions.queues, definitions.exchanges, list(definitions.bindings)


JOBS = QueueRecord("jobs", arguments={"x-max-length": 10, "x-since": datetime(2026, 1, 1, tzinfo=UTC)})
LOGS = ExchangeRecord("logs", "fanout", auto_delete=True, arguments={"alternate-exchange": "rest"})
BINDING = BindingRecord("logs", "jobs", "a.b", {"x-match": "all", "n": [1, None]})


def declare_all(definitions: Definitions) -> None:
    definitions.put_queue(JOBS)
    definitions.put_exchange(LOGS)
    definitions.bind(BINDING)


def test_declarations_survive_a_power_cut() -> None:
    disk = new_disk()
    definitions = opened(disk)
    assert state(definitions) == ({}, {}, [])
    declare_all(definitions)
    assert BINDING in definitions.bindings
    disk.power_cut()
    again = opened(disk)
    assert state(again) == ({"jobs": JOBS}, {"logs": LOGS}, [BINDING])
    again.unbind(BINDING)
    again.delete(queues=["jobs"], exchanges=["logs"])
    disk.power_cut()
    assert state(opened(disk)) == ({}, {}, [])


def test_bindings_differ_by_all_their_fields_and_keep_their_order() -> None:
    disk = new_disk()
    definitions = opened(disk)
    bindings = [
        BindingRecord("logs", "jobs", "b"),
        BindingRecord("logs", "jobs", "a"),
        BindingRecord("logs", "jobs", "a", {"x": 1}),
        BindingRecord("logs", "more", "a"),
        BindingRecord("logs", "jobs", "a", {"x": True}),
        BindingRecord("logs", "jobs", "a", {"x": 1.0}),
        BindingRecord("logs", "jobs", "a", {}, "exchange"),
    ]
    for binding in [*bindings, bindings[0]]:
        definitions.bind(binding)
    assert list(definitions.bindings) == bindings
    definitions.unbind(BindingRecord("logs", "jobs", "a"))
    definitions.unbind(BindingRecord("logs", "jobs", "unknown"))
    assert list(opened(disk).bindings) == [bindings[0], *bindings[2:]]
    assert bindings[2] == BindingRecord("logs", "jobs", "a", {"x": 1})


TO_EXCHANGE = BindingRecord("news", "logs", "", {}, "exchange")
TO_QUEUE_OF_ITS_NAME = BindingRecord("news", "logs")


@pytest.mark.parametrize(
    ("queues", "exchanges", "left"),
    [
        (["jobs"], [], [BindingRecord("logs", "more"), TO_EXCHANGE, TO_QUEUE_OF_ITS_NAME]),
        ([], ["logs"], [BindingRecord("news", "jobs"), TO_QUEUE_OF_ITS_NAME]),
        (["logs"], [], [BINDING, BindingRecord("logs", "more"), BindingRecord("news", "jobs"), TO_EXCHANGE]),
        (["jobs"], ["news"], [BindingRecord("logs", "more")]),
        (["nobody"], ["nowhere"], None),
    ],
)
def test_deleted_queues_and_exchanges_take_their_bindings_along(queues, exchanges, left) -> None:
    disk = new_disk()
    definitions = opened(disk)
    bound = [
        BINDING,
        BindingRecord("logs", "more"),
        BindingRecord("news", "jobs"),
        TO_EXCHANGE,
        TO_QUEUE_OF_ITS_NAME,
    ]
    for binding in bound:
        definitions.bind(binding)
    definitions.delete(queues=queues, exchanges=exchanges)
    assert list(definitions.bindings) == (bound if left is None else left)
    assert state(opened(disk)) == state(definitions)


def test_a_deletion_looks_at_the_bindings_of_what_goes_alone() -> None:
    """With those of all others it took 17 ms where there were 100,000, and a start as long for each in its log."""
    disk = new_disk()
    definitions = opened(disk)
    there = definitions.bindings
    for record in (
        BINDING,
        BindingRecord("logs", "more"),
        TO_EXCHANGE,
        BindingRecord("logs", "logs", "", {}, "exchange"),
    ):
        definitions.bind(record)
    definitions.unbind(BINDING)
    definitions.delete(queues=["more"])
    assert definitions.bindings is there, "they are not gone through"
    again = opened(disk)
    assert definitions._bindings_at == again._bindings_at
    again.delete(exchanges=["logs"])
    assert again._bindings_at == {}


def test_a_log_of_version_1_is_read_and_written_anew() -> None:
    log = b"".join(
        frame(1, *fields)
        for fields in [
            ("queue", "jobs", True, False, False, {}),
            ("queue", "gone", True, False, False, {}),
            ("exchange", "logs", "fanout", False, False, {}),
            ("exchange", "gone", "direct", False, False, {}),
            ("binding", "logs", "jobs", "a.b", {"n": 1}),
            ("binding", "logs", "gone", "", {}),
            ("binding", "gone", "jobs", "", {}),
            ("no queue", "gone"),
            ("no exchange", "gone"),
        ]
    )
    definitions, disk = load(log)
    assert not definitions.damage
    assert state(definitions) == (
        {"jobs": QueueRecord("jobs")},
        {"logs": ExchangeRecord("logs", "fanout")},
        [BindingRecord("logs", "jobs", "a.b", {"n": 1})],
    )
    definitions.settle([])
    assert disk.read(PATH)[8:10] == bytes([0x97, 2]), (
        "the first frame is an array of 7, the first of which is the version"
    )
    assert state(opened(disk)) == state(definitions)


@pytest.mark.parametrize(
    "arguments", [{"n": Decimal("-1.50")}, {"t": [{"b": b"x", "v": None}]}, {"l": -(1 << 63)}]
)
def test_every_type_of_a_field_table_is_kept(arguments: dict[str, Any]) -> None:
    check_storable("it", arguments, "name")
    disk = new_disk()
    opened(disk).put_queue(QueueRecord("q", arguments=arguments))
    assert opened(disk).queues["q"].arguments == arguments


NO_ZONE = datetime(2026, 1, 1)  # noqa: DTZ001  # no time of AMQP


@pytest.mark.parametrize(
    "arguments", [{"o": object()}, {"n": 1 << 64}, {1: "a"}, {"t": {2: 1}}, {"s": "\ud800"}, {"d": NO_ZONE}]
)
def test_arguments_that_no_field_table_holds_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PreconditionFailed, match="queue 'q' cannot be declared"):
        check_storable("queue 'q'", arguments, "q")


def test_transient_declarations_are_not_written() -> None:
    with pytest.raises(AssertionError):
        opened(new_disk()).put_queue(QueueRecord("mine", durable=False))


def test_the_log_is_written_anew_at_open() -> None:
    disk = new_disk()
    definitions = opened(disk)
    declare_all(definitions)
    small = disk.size(PATH)
    for _ in range(10):
        definitions.put_queue(JOBS)
        definitions.delete(exchanges=["none"])
    assert disk.size(PATH) > small
    definitions.close()
    again = opened(disk)
    assert disk.size(PATH) == small
    assert state(again) == ({"jobs": JOBS}, {"logs": LOGS}, [BINDING])


def test_a_definition_that_was_found_is_safe_though_its_writer_could_not_sync_it() -> None:
    disk = new_disk()
    disk.fail_next("datasync", PATH, errno.EIO)
    disk.fail_next("truncate", PATH, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        opened(disk).put_queue(JOBS)
    found = list(opened(disk).queues)
    disk.power_cut()
    assert list(opened(disk).queues) == found


def test_a_change_that_did_not_reach_the_disk_is_raised_and_not_seen() -> None:
    disk = new_disk()
    definitions = opened(disk)
    for op in ("append", "datasync"):
        disk.fail_next(op, "definitions.log", errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            definitions.put_queue(JOBS)
        assert definitions.queues == {}


def whole_log() -> bytes:
    disk = new_disk()
    declare_all(opened(disk))
    return disk.read(PATH)


LOG = whole_log()


def load(data: bytes) -> tuple[Definitions, SimulatedDisk]:
    disk = new_disk()
    disk.replace(PATH, data)
    return opened(disk), disk


def test_a_log_cut_anywhere_keeps_the_whole_frames() -> None:
    everything = [JOBS, LOGS, BINDING]
    for size in range(len(LOG)):
        definitions, disk = load(LOG[:size])
        found = [*definitions.queues.values(), *definitions.exchanges.values(), *definitions.bindings]
        assert found == everything[: len(found)]
        assert len(found) == sum(end <= size for end in frame_ends())
        tail = LOG[max([0, *(end for end in frame_ends() if end <= size)]) : size]
        assert bool(definitions.damage) == any(tail)
        again = opened(disk)
        assert state(again) == state(definitions)
        assert not again.damage


def frame_ends() -> list[int]:
    ends, position = [], 0
    while position < len(LOG):
        position += 8 + int.from_bytes(LOG[position : position + 4], "big")
        ends.append(position)
    return ends


@pytest.mark.parametrize("position", range(len(LOG)))
def test_a_flipped_bit_costs_one_definition_and_is_reported(position: int) -> None:
    damaged = bytearray(LOG)
    damaged[position] ^= 0x10
    definitions, disk = load(bytes(damaged))
    hit = sum(end <= position for end in frame_ends())
    found = [*definitions.queues.values(), *definitions.exchanges.values(), *definitions.bindings]
    assert found == [each for place, each in enumerate([JOBS, LOGS, BINDING]) if place != hit]
    (damage,) = definitions.damage
    start = [0, *frame_ends()][hit]
    assert (damage.path, damage.offset) == (PATH, start)
    assert disk.read(f"{QUARANTINE}/definitions.log-{start}") == damaged[start : frame_ends()[hit]]
    assert not opened(disk).damage


@given(st.binary(max_size=200))
def test_garbage_is_opened(garbage: bytes) -> None:
    definitions, _ = load(LOG + garbage)
    assert state(definitions) == ({"jobs": JOBS}, {"logs": LOGS}, [BINDING])
    load(garbage)


def test_zeros_behind_the_log_are_no_damage_and_do_not_hide_what_follows() -> None:
    definitions, disk = load(LOG + bytes(50))
    assert not definitions.damage
    definitions.put_queue(QueueRecord("late"))
    assert list(opened(disk).queues) == ["jobs", "late"]


def frame(*fields: object) -> bytes:
    payload = msgpack.packb(fields)
    return len(payload).to_bytes(4, "big") + crc32(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        (frame(3, "queue", "q"), "its version is 3, only 2 and older ones are known"),
        (frame(2, "binding", "x", "q", "", {}, "moon"), "it is no definition"),
        (frame(2, "binding", "x", "q", "", 1), "it is no definition"),
        (frame(2, "gone", 1, 2), "it is no definition"),
        (frame(1, "policy", "p"), "there are no definitions of kind 'policy'"),
        (frame(1, "queue"), "it is no definition"),
        (frame(1, "queue", ["no", "name"]), "it is no definition"),
        (frame(1, "exchange", "x"), "it is no definition"),
        (frame(7), "it is no definition"),
    ],
)
def test_frames_that_say_nothing_known_are_set_aside(unknown: bytes, reason: str) -> None:
    definitions, _ = load(LOG + unknown)
    assert [each.offset for each in definitions.damage] == [len(LOG)]
    assert reason in str(definitions.damage[0])
    assert list(definitions.queues) == ["jobs"]


@pytest.mark.parametrize("seed", range(5))
def test_each_change_is_there_or_not_wherever_the_power_goes(seed: int) -> None:
    for operation in range(1, 60):
        disk = new_disk(seed * 100 + operation)
        done: list[str] = []
        deleted: set[str] = set()
        attempted = ""
        with disk.power_fails_at(operation) as outage:
            definitions = opened(disk)
            for number in range(8):
                attempted = f"q{number}"
                definitions.put_queue(QueueRecord(attempted))
                done.append(attempted)
                if number % 3 == 2:
                    attempted = done[0]
                    definitions.delete(queues=[attempted])
                    deleted.add(done.pop(0))
                if number == 4:
                    definitions.close()
                    definitions = opened(disk)
        if outage.came:
            disk.power_cut()
        found = opened(disk).queues.keys()
        assert set(done) - {attempted} <= found
        assert not deleted & found
        assert found <= {*done, attempted}


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_of_deletions_is_atomic_wherever_the_power_fails(seed: int) -> None:
    for operation in range(1, 12):
        disk = new_disk(seed * 100 + operation)
        definitions = opened(disk)
        declare_all(definitions)
        definitions.bind(TO_EXCHANGE)
        before = state(definitions)
        finished = False
        with disk.power_fails_at(operation) as outage:
            definitions.delete(queues=["jobs"], exchanges=["logs"])
            finished = True
            opened(disk)
        if outage.came:
            disk.power_cut()
        after = state(opened(disk))
        assert after == ({}, {}, []) or (after == before and not finished)


def test_a_queue_that_is_declared_again_is_appended_and_survives_a_cut_behind_its_deletion() -> None:
    disk = new_disk()
    definitions = opened(disk)
    definitions.put_queues([JOBS, QueueRecord("other")])
    operations = []
    disk.before_op = lambda op, path: operations.append((op, path))
    for generation in (1, 2):
        old = definitions.queues["jobs"]
        definitions.delete(queues=["jobs"])
        assert definitions.deletes("jobs", old)
        definitions.put_queue(JOBS)
        assert definitions.queues["jobs"].generation == generation
    assert {path for _, path in operations} == {PATH}, "it is not written anew"
    definitions.close()
    new = opened(disk)
    assert (new.queues["jobs"], new.queues["jobs"].generation, new.gone) == (JOBS, 2, {})
    new.close()
    file = disk.open(PATH)
    file.truncate(0)
    file.append(b"".join(frames_of_a_cut_log(JOBS)))
    file.close()
    for _ in range(2):  # the second time from the log that the first one wrote
        found = opened(disk)
        assert found.gone == {"jobs": 1}
        assert [
            found.deletes("jobs", record)
            for record in (JOBS, None, replace(JOBS, generation=1), replace(JOBS, generation=2))
        ] == [True, True, True, False]
        found.close()


def frames_of_a_cut_log(record: QueueRecord) -> list[bytes]:
    """A log that ends with the second deletion of a queue: that it was declared again is cut off."""
    return [queue_frame(replace(record, generation=1)), frame_of("gone", [record.name], [])]


def test_a_log_of_many_changes_is_written_anew_before_it_is_long() -> None:
    disk = new_disk()
    definitions = opened(disk)
    definitions.put_queue(QueueRecord("there"))
    longest = 0
    for _ in range(1_500):
        definitions.put_queue(JOBS)
        definitions.delete(queues=["jobs"])
        longest = max(longest, disk.size(PATH))
    assert 60_000 < longest < 70_000
    definitions.put_queue(JOBS)
    definitions.close()
    assert [*opened(disk).queues] == ["there", "jobs"]


def test_a_log_for_which_a_full_disk_has_no_second_place_is_read_as_it_is() -> None:
    disk = new_disk()
    definitions = opened(disk)
    for name in ("a", "b"):
        definitions.put_queue(QueueRecord(name))
    written = disk.read(PATH)
    disk.fail_next("append", "definitions.log.tmp", errno.ENOSPC)
    again = opened(disk)
    assert [*again.queues] == ["a", "b"]
    assert again.whole
    disk.power_cut()
    assert disk.read(PATH) == written
    opened(disk).put_queue(QueueRecord("c"))
    assert [*opened(disk).queues] == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(60))
def test_what_was_refused_is_not_there_and_what_was_not_is_whatever_of_the_disk_fails(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is written anew now and then, and may be another file after that failed halfway."""
    monkeypatch.setattr("warrenmq.directory.definitions._SHORT", 60)
    draw, disk = Random(seed), new_disk(seed)

    def fails(op: str, path: str) -> None:
        if op != "pread" and draw.random() < share:
            raise OSError(errno.EMFILE, "of the test", path)

    share = 0.0
    definitions = opened(disk)
    expected: dict[str, QueueRecord] = {}
    disk.before_op = fails
    for _ in range(60):
        share = draw.choice([0.0, 0.1, 0.3])
        name = f"q{draw.randrange(5)}"
        with suppress(OSError):
            if name in expected:
                definitions.delete(queues=[name])
                del expected[name]
            else:
                definitions.put_queue(QueueRecord(name))
                expected[name] = definitions.queues[name]
    disk.before_op = None
    definitions.put_queue(
        QueueRecord("last")
    )  # behind a sync that failed only a later change leaves no doubt
    if draw.random() < 0.7:
        disk.power_cut()
    assert opened(disk).queues.keys() == {*expected, "last"}
