"""Records of the commit log: what was packed is read again, and nothing that was damaged is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warrenmq.commit_log.contents import contents_of
from warrenmq.commit_log.record import (
    CLEAN,
    Forget,
    Write,
    pack,
    pack_forget,
    pack_writes,
    read_all,
    read_at,
    room_for,
)
from warrenmq.errors import CorruptFile
from warrenmq.seams.disk import SECTOR

LOG = 77
PATHS = st.sampled_from(["a.qi", "queues/Q/0.qs", "queues/é/journal.jif"])
WRITES = st.builds(Write, PATHS, st.integers(0, 1 << 40), st.binary(min_size=1, max_size=1500))
ENTRIES = st.lists(st.one_of(WRITES, st.builds(Forget, PATHS)), max_size=5)
LOGS = st.lists(ENTRIES, min_size=1, max_size=6)


def parts_of(entries):
    found = []
    for entry in entries:
        path = entry.path.encode()
        found += (
            pack_forget(path)
            if isinstance(entry, Forget)
            else pack_writes(path, [(entry.offset, entry.data)])
        )
    return found


def log_of(records, first=1):
    return b"".join(pack(LOG, number, first, parts_of(each)) for number, each in enumerate(records, 1))


def entries_of(record):
    return list(record.entries())


@given(LOGS)
def test_what_was_packed_is_read_again(records):
    data = log_of(records)
    found = read_all(data, LOG)
    assert [(each.number, each.first, entries_of(each)) for each in found] == [
        (number, 1, entries) for number, entries in enumerate(records, 1)
    ]
    assert found[-1].end == len(data)
    assert len(data) % SECTOR == 0


@given(LOGS, st.data())
def test_a_torn_end_takes_only_the_last_record(records, data):
    whole = log_of(records)
    last = log_of(records[:-1])
    arrived = data.draw(st.integers(0, len(whole) - len(last) - 1))
    torn = whole[: len(last) + arrived]
    padding = data.draw(st.sampled_from([0, SECTOR, 3 * SECTOR]))
    found = contents_of([torn + bytes(padding), b""])
    if found.newest == len(records):  # only zeros of its last sector were missing
        assert torn + bytes(len(whole) - len(torn)) == whole
    else:
        assert found.newest == len(records) - 1
    assert not found.damage


@given(LOGS, st.data())
def test_a_flipped_bit_spoils_one_record_and_is_told_unless_it_is_the_last(records, data):
    whole = bytearray(log_of(records))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    begins = [read.end for read in read_all(log_of(records), LOG)]
    spoiled = next(number for number, end in enumerate(begins, 1) if bit // 8 < end)
    found = contents_of([bytes(whole), b""])
    numbers = [each.number for each in read_all(bytes(whole), LOG)]
    if spoiled in numbers:  # a zero behind the entries, which nobody reads
        assert entries_of(read_all(bytes(whole), LOG)[spoiled - 1]) == records[spoiled - 1]
        assert not found.damage
    else:
        assert numbers == [each for each in range(1, len(records) + 1) if each != spoiled]
        assert bool(found.damage) == (spoiled < len(records))


@given(LOGS, st.data())
def test_any_sector_of_zeros_spoils_one_record_and_is_told_unless_it_is_the_last(records, data):
    whole = bytearray(log_of(records))
    sector = data.draw(st.integers(0, len(whole) // SECTOR - 1)) * SECTOR
    same = not any(whole[sector : sector + SECTOR])
    whole[sector : sector + SECTOR] = bytes(SECTOR)
    ends = [read.end for read in read_all(log_of(records), LOG)]
    spoiled = next(number for number, end in enumerate(ends, 1) if sector < end)
    found = contents_of([bytes(whole), b""])
    assert bool(found.damage) == (spoiled < len(records) and not same)
    numbers = [each.number for each in read_all(bytes(whole), LOG)]
    assert numbers == [each for each in range(1, len(records) + 1) if each != spoiled or same]


@given(st.binary(max_size=3000))
def test_any_bytes_are_read_without_an_error(data):
    assert contents_of([data, data]).newest == 0 or data.count(b"WQlg")


def test_what_an_earlier_turn_of_the_file_left_does_not_count():
    turn_before = [pack(LOG, number, number, parts_of([Write("a.qi", 0, b"old")])) for number in (1, 2, 3)]
    newer = pack(LOG, 7, 7, parts_of([Write("a.qi", 0, b"new")]))
    found = contents_of([b"".join([newer, *turn_before[1:]]), b""])
    assert (found.newest, found.writes, found.damage) == (7, {"a.qi": [(0, b"new")]}, [])


def test_records_go_on_in_the_other_file():
    old = [pack(LOG, number, 1, parts_of([Write("a.qi", number, b"x")])) for number in (1, 2)]
    new = [pack(LOG, 3, 2, parts_of([Write("a.qi", 3, b"x")]))]
    for files in ([old, new], [new, old]):
        found = contents_of([b"".join(each) for each in files])
        assert found.writes == {"a.qi": [(2, b"x"), (3, b"x")]}
        assert (found.newest, found.file, found.damage) == (3, files.index(new), [])


def test_a_record_that_is_missing_before_another_is_damage():
    records = [pack(LOG, number, 1, parts_of([Write("a.qi", number, b"x")])) for number in range(1, 7)]
    found = contents_of([b"".join([*records[:2], bytes(SECTOR), records[3]]), b"".join([records[5]])])
    assert found.damage == [
        "record 3 of the commit log cannot be read, and record 4 can",
        "record 5 of the commit log cannot be read, and record 6 can",
    ]
    assert [offset for offset, _ in found.writes["a.qi"]] == [1, 2, 4, 6]


def test_a_log_in_a_message_is_no_part_of_the_log():
    other = pack(LOG + 1, 9, 9, parts_of([Write("a.qi", 0, b"evil")]))
    torn = pack(LOG, 2, 1, [bytes(SECTOR - 40), other, bytes(SECTOR)])[:-SECTOR]
    for files in ([pack(LOG, 1, 1), torn], [torn, pack(LOG, 1, 1)]):
        found = contents_of(files)
        assert (found.id, found.newest, found.writes, found.damage) == (LOG, 1, {}, [])


def test_what_was_written_side_by_side_is_one_entry():
    parts = pack_writes(b"a", [(0, b"ab"), (2, b"cd"), (9, b"x"), (3, b"y")])
    record = read_at(pack(LOG, 1, 1, parts), 0)
    assert record is not None
    assert entries_of(record) == [Write("a", 0, b"abcd"), Write("a", 9, b"x"), Write("a", 3, b"y")]


def test_a_forgotten_file_has_only_what_came_later():
    records = [[Write("a", 0, b"1"), Write("b", 0, b"1")], [Forget("a"), Write("a", 5, b"2")], [Forget("b")]]
    assert contents_of([log_of(records), b""]).writes == {"a": [(5, b"2")]}


def test_a_clean_log_says_so():
    data = pack(LOG, 1, 1, parts_of([Write("a", 0, b"1")])) + pack(LOG, 2, 2, (), CLEAN)
    found = contents_of([data, b""])
    assert (found.clean, found.writes) == (True, {})


@pytest.mark.parametrize("body", [b"\1", bytes(16), pack_writes(b"a", [(0, b"xyz")])[0]])
def test_entries_that_make_no_sense_are_an_error(body):
    record = read_at(pack(LOG, 1, 1, [body]), 0)
    assert record is not None
    with pytest.raises(CorruptFile):
        entries_of(record)


@pytest.mark.parametrize(("size", "room"), [(0, 512), (472, 512), (473, 1024)])
def test_a_record_takes_whole_sectors(size, room):
    assert room_for(size) == room == len(pack(LOG, 1, 1, [bytes(size)]))
