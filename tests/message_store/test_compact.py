"""The plan of a compaction in place, and how it is carried out on a disk that tears writes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.message_store.kit import FOLDER, QUARANTINE, held_by, msg_id, new_disk, sealed
from warrenmq.errors import CorruptFile
from warrenmq.message_store import rdq
from warrenmq.message_store.compact import Move, Plan, fill_holes, gather, plan, truncate, two_cursors
from warrenmq.message_store.gc_plan import is_mostly_garbage
from warrenmq.message_store.recovery import recover
from warrenmq.message_store.scan import whole_records

PATH = f"{FOLDER}/0.rdq"


@pytest.mark.parametrize(
    ("records", "moves", "size"),
    [
        ([], [], 0),
        ([(0, 30)], [], 30),
        ([(0, 30), (30, 40)], [], 70),
        ([(40, 30)], [(40, 0)], 30),
        ([(20, 30)], [], 50),  # it would overlap itself
        ([(0, 30), (60, 30)], [(60, 30)], 60),
        ([(0, 30), (59, 30)], [], 89),
        # the last ones fill the hole, from its left
        ([(0, 30), (100, 30), (130, 20), (150, 40)], [(150, 30), (130, 70)], 130),
        # only the last one is tried
        ([(30, 20), (60, 25), (100, 50)], [], 150),
        ([(30, 20), (100, 50), (150, 50)], [(150, 50)], 150),
        # the first gap counts, too
        ([(50, 20), (70, 20), (90, 20)], [(90, 0), (70, 20)], 70),
    ],
)  # fmt: skip
def test_rabbitmqs_plan(records, moves, size) -> None:
    found, ends = two_cursors(records)
    assert [(move.source, move.target) for move in found] == moves
    assert ends == size


def test_a_file_whose_last_record_is_larger_than_every_hole_is_gathered() -> None:
    """A tenth of it is of value, and RabbitMQ would leave it as it is."""
    records = [(50 * n, 10) for n in range(20)] + [(1000, 50)]
    assert two_cursors(records) == ([], 1050)
    first = plan(records)
    assert len(first.moves) == 16
    assert first.size == 1050
    assert sum(length for _, length in first.vacated) == 160
    second = plan(after(records, first))
    assert second.size == 250


def after(records, done: Plan):
    """The records once a plan was carried out."""
    targets = {move.source: move.target for move in done.moves}
    return sorted((targets.get(offset, offset), total) for offset, total in records)


@st.composite
def layouts(draw, *, sparse: bool = False):
    """Records of a file, with holes between most of them."""
    records, end = [], 0
    sizes = draw(st.sampled_from([st.integers(25, 60), st.sampled_from([26, 400]), st.just(100)]))
    for _ in range(draw(st.integers(0, 25))):
        end += draw(st.one_of(st.just(0), st.integers(1, 500 if sparse else 120)))
        total = draw(sizes)
        records.append((end, total))
        end += total
    return records


EVERY_PLAN = pytest.mark.parametrize("planned", [two_cursors, gather, plan])


@EVERY_PLAN
@given(records=layouts())
def test_no_live_byte_is_overwritten_and_nothing_is_lost(planned, records) -> None:
    made = planned(records)
    moves, size = made if isinstance(made, tuple) else (made.moves, made.size)
    live = {byte for offset, total in records for byte in range(offset, offset + total)}
    used: set[int] = set()
    for source, target, total in moves:
        place = set(range(target, target + total))
        assert (source, total) in records
        assert target < source
        assert not place & (live | used)
        used |= place
    assert len({move.source for move in moves}) == len(moves)
    left = after(records, Plan(moves, size, [], []))
    assert sorted(total for _, total in left) == sorted(total for _, total in records)
    assert size == max((offset + total for offset, total in left), default=0)
    assert size <= max((offset + total for offset, total in records), default=0)


@given(records=layouts())
def test_every_hole_before_the_new_end_is_blanked_and_every_old_place_before_it_too(records) -> None:
    made = plan(records)
    live = {byte for offset, total in records for byte in range(offset, offset + total)}
    blanked = [byte for offset, length in made.holes for byte in range(offset, offset + length)]
    assert not live & set(blanked)
    assert live | set(blanked) >= set(range(made.size))
    for _, end in ((offset, offset + length) for offset, length in made.holes):
        assert end in live, "what a copy overwrites is blanked to its end"
    moved = {move.source for move in made.moves}
    assert made.vacated == [
        (offset, total) for offset, total in records if offset in moved and offset < made.size
    ]


@given(records=layouts())
def test_rabbitmqs_plan_vacates_nothing_that_is_not_cut_off(records) -> None:
    moves, size = two_cursors(records)
    assert all(move.source >= size for move in moves)


@given(records=layouts(sparse=True))
def test_a_few_compactions_leave_less_garbage_than_records(records) -> None:
    valid = sum(total for _, total in records)
    for _ in range(12):
        made = plan(records)
        records = after(records, made)
        if not is_mostly_garbage(valid, made.size):
            return
        assert made.moves, "each one moves something as long as there is too much"
    pytest.fail("it takes too long")


# on the disk

BODIES = {n: b"\x83" + n.to_bytes(2, "big") * (30 + 211 * n % 400 if n < 40 else 500) for n in range(60)}
"""The last twenty are of one size: a copy of one ends exactly where another one had its marker."""


def a_file(disk, kept):
    """All the messages one behind the other, durably; returns the places of those that are kept."""
    data, records = b"", []
    for number, body in BODIES.items():
        whole = rdq.head(msg_id(number), len(body)) + body + rdq.MARKER
        if number in kept:
            records.append((len(data), len(whole)))
        data += whole
    disk.replace(PATH, data)
    return records


KEPT = [
    [n for n in BODIES if n % 4 == 3],
    [n for n in BODIES if n % 5 in {1, 2}],
    [39],
    list(range(17, 25)),
    list(range(45, 60, 2)),
    [*range(42), *range(43, 60, 2)],
    [],
]


def compact(disk, records):
    made = plan(records)
    fill_holes(disk, PATH, made)
    truncate(disk, PATH, made.size, made.vacated)
    return made


def read_back(disk, places, kept):
    """Each kept message stands, byte by byte, at one of its places in the file."""
    file = disk.open_read(PATH)
    for number in kept:
        wanted = rdq.head(msg_id(number), len(BODIES[number])) + BODIES[number] + rdq.MARKER
        assert any(file.pread(len(wanted), at) == wanted for at in places[msg_id(number)])


def places(disk, kept):
    """The place of each of these messages, as far as a scan can tell."""
    found: dict[bytes, list[int]] = {}
    alive = {msg_id(n) for n in kept}
    for each, offset, _ in whole_records(disk.open_read(PATH), alive):
        if each in alive:
            found.setdefault(each, []).append(offset)
    return found


@pytest.mark.parametrize("kept", KEPT, ids=len)
def test_a_compacted_file_holds_its_records_and_zeros(kept) -> None:
    disk = new_disk()
    records = a_file(disk, kept)
    made = compact(disk, records)
    data = bytearray(disk.read(PATH))
    assert len(data) == made.size
    found = places(disk, kept)
    assert set(found) == {msg_id(n) for n in kept}
    read_back(disk, found, kept)
    for offset, total in after(records, made):
        data[offset : offset + total] = bytes(total)
    assert not any(data)


def run_until(disk, operation, kept):
    """Compact until this operation begins; False if it was over before."""
    records = a_file(disk, kept)
    with disk.power_fails_at(operation, reads=False) as outage:
        compact(disk, records)
    return outage.came


@pytest.mark.parametrize("kept", KEPT, ids=len)
def test_whatever_looks_like_a_record_after_a_power_cut_is_one(kept) -> None:
    """No torn copy has its marker, and the old place of a record is whole until its new one is."""
    operation, going_on = 1, True
    while going_on:
        for seed in range(16):
            disk = new_disk(seed)
            disk.in_order = seed % 4 == 0
            going_on = run_until(disk, operation, kept)
            disk.power_cut()
            found = places(disk, kept)
            assert set(found) == {msg_id(n) for n in kept}
            read_back(disk, found, kept)
            file = disk.open_read(PATH)
            for each, offsets in found.items():
                body = BODIES[int.from_bytes(each[8:], "big")]
                for offset in offsets:
                    assert (
                        rdq.body_of(file.pread(len(body) + rdq.OVERHEAD, offset), each, PATH, offset) == body
                    )
        operation += 1


def test_copies_of_a_killed_collector_are_synced_before_the_old_places_are_blanked() -> None:
    """The copies of a first compaction were found by a start and never synced; the second one blanks the originals."""
    kept = KEPT[4]
    for seed in range(60):
        disk = new_disk(seed)
        disk.in_order = False
        records = a_file(disk, kept)
        made, file = plan(records), disk.open(PATH)
        for source, target, total in made.moves:
            file.pwrite(file.pread(total, source), target)
        with disk.power_fails_at(1 + seed % 3, reads=False):
            compact(disk, after(records, made))
        disk.power_cut()
        found = places(disk, kept)
        assert set(found) == {msg_id(n) for n in kept}
        read_back(disk, found, kept)


def test_a_file_that_ends_within_a_record_is_not_compacted() -> None:
    disk = new_disk()
    disk.replace(PATH, bytes(100))
    with pytest.raises(CorruptFile, match="within a record"):
        fill_holes(disk, PATH, Plan([Move(80, 0, 30)], 30, [], []))


def test_a_marker_that_is_damaged_is_not_repaired_by_copying() -> None:
    disk = new_disk()
    records = a_file(disk, [39])
    file = disk.open(PATH)
    file.pwrite(b"\0", sum(records[0]) - 1)
    compact(disk, records)
    assert places(disk, [39]) == {}


@pytest.mark.parametrize("kept", KEPT, ids=len)
def test_a_killed_compaction_leaves_no_damage_whatever_was_acked_meanwhile(kept) -> None:
    """All that was written is there, and copies without their markers are of messages that nobody may want any more."""
    operation, going_on = 1, True
    while going_on:
        for seed in range(4):
            disk = new_disk(seed)
            going_on = run_until(disk, operation, kept)
            wanted = [msg_id(n) for n in random.Random(seed).sample(kept, len(kept) * seed // 3)]
            recovered = recover(disk, FOLDER, held_by(q=wanted), QUARANTINE, "store")
            assert recovered.damage == []
            assert {each for each, _ in recovered.index.items()} == set(wanted)
        operation += 1


@pytest.mark.parametrize("kept", KEPT, ids=len)
def test_a_compaction_that_a_power_cut_ended_leaves_no_damage(kept, monkeypatch) -> None:
    """All messages that are wanted are found, whatever became of its holes and copies."""
    for number in BODIES:
        monkeypatch.setitem(BODIES, number, sealed(number, 60 + 211 * number % 1600))
    operation, going_on = 1, True
    while going_on:
        for seed in range(4):
            disk = new_disk(100 * operation + seed)
            disk.in_order = seed % 2 == 0
            going_on = run_until(disk, operation, kept)
            disk.power_cut()
            wanted = [msg_id(n) for n in random.Random(seed).sample(kept, len(kept) * (3 - seed % 3) // 3)]
            recovered = recover(disk, FOLDER, held_by(q=wanted), QUARANTINE, "store")
            assert recovered.damage == []
            assert {each for each, _ in recovered.index.items()} == set(wanted)
            assert not disk.exists(QUARANTINE)
        operation += 1
