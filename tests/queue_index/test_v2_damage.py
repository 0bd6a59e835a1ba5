"""Files of version 2 with bytes that make no sense: opening never raises, loses nothing that is whole, changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_index import index_kit as kit
from tests.support.own_directories import listed_version_2
from warrenmq.queue_index.v2 import qi, qs
from warrenmq.trace.events import Trigger

N = 4
SETTINGS = kit.settings(N, version=2)
COUNT = 11
SIZES = (5, 40, 300)
RECORDS = {
    seq: kit.stored_record(seq) if seq % 4 == 2 else kit.embedded_record(seq, SIZES[seq % 3])
    for seq in range(COUNT)
}
ACKED = {1, 8}
WHOLE = kit.messages({seq: record for seq, record in RECORDS.items() if seq not in ACKED})


def healthy_files() -> dict[str, bytes]:
    """Three segments; 1 and 8 were acked after they were written."""
    disk = kit.disk()
    index, _ = kit.recover(disk, SETTINGS)
    index.publish_many(0, list(RECORDS.values()), persistent=True)
    index.sync(Trigger.CLOSE)
    index.ack(sorted(ACKED))
    index.sync(Trigger.CLOSE)
    return {name: disk.read(f"{kit.DIRECTORY}/{name}") for name in disk.listdir(kit.DIRECTORY)}


FILES = healthy_files()
PLACES = {
    number * N + relative: (f"{number}", entry)
    for number in range(3)
    for relative, entry in qi.parse(FILES[f"{number}.qi"]).entries
}


def opened(files: dict[str, bytes]) -> tuple[dict[int, bytes], Any]:
    """Recover twice: the messages, and what was found."""
    disk = kit.disk()
    for name, data in files.items():
        kit.put_file(disk, name, data)
    listed = {
        seq: record
        for seq, record, persistent in listed_version_2(disk, kit.DIRECTORY, SETTINGS)
        if persistent
    }
    index, found = kit.recover(disk, SETTINGS)
    live = kit.read_all(index, found)
    assert kit.messages(live) == kit.messages(listed)
    again, nothing_more = kit.recover(disk, SETTINGS)
    assert kit.everything(again) == live
    assert nothing_more.damage == []
    index.ack(sorted(live))
    index.begin_flush()
    assert disk.listdir(kit.DIRECTORY) == []
    there_was = [each for each in found.damage if each.reason != "the body file is missing"]
    alone = [
        name for name, data in files.items() if f"{name[:-2]}qi" not in files and len(data) > qi.HEADER_BYTES
    ]
    assert bool(disk.listdir(kit.QUARANTINE)) == bool([*there_was, *alone])
    return kit.messages(live), found


def damaged(name: str, data: bytes | None) -> dict[str, bytes]:
    files = {**FILES, name: data or b""}
    if data is None:
        del files[name]
    return files


def test_the_files_are_healthy_to_begin_with() -> None:
    live, found = opened(FILES)
    assert live == WHOLE
    assert found.damage == []


def entry_at(seq: int) -> int:
    return qi.HEADER_BYTES + qi.ENTRY_BYTES * (seq % N)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_index_file_cut_anywhere_keeps_the_entries_that_are_whole(number: int) -> None:
    name = f"{number}.qi"
    for size in range(len(FILES[name])):
        live, found = opened(damaged(name, FILES[name][:size]))
        rest = {seq for seq in WHOLE if seq // N != number}
        assert live == {
            seq: WHOLE[seq] for seq in WHOLE if seq in rest or entry_at(seq) + qi.ENTRY_BYTES <= size
        }
        torn = (size - qi.HEADER_BYTES) % qi.ENTRY_BYTES if size > qi.HEADER_BYTES else size
        if any(FILES[name][size - torn : size]) and size > qi.HEADER_BYTES:
            assert "an entry is cut off" in [each.reason for each in found.damage]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_body_file_cut_anywhere_keeps_the_bodies_that_are_whole(number: int) -> None:
    name = f"{number}.qs"
    for size in range(len(FILES[name])):
        live, found = opened(damaged(name, FILES[name][:size]))
        lost = {
            seq
            for seq, (stem, entry) in PLACES.items()
            if stem == str(number)
            and entry.location == qi.Location.QUEUE_STORE
            and entry.offset + 8 + entry.stored_size > size
        }
        assert live == {seq: record for seq, record in WHOLE.items() if seq not in lost}, size
        assert len(found.damage) == len(lost)
        assert found.dropped == len(lost)


@pytest.mark.parametrize("name", ["1.qi", "1.qs"])
def test_a_flipped_bit_costs_the_message_that_it_is_in(name: str) -> None:
    for position in range(len(FILES[name])):
        for bit in (0, 3, 7):
            data = bytearray(FILES[name])
            data[position] ^= 1 << bit
            live, found = opened(damaged(name, bytes(data)))
            if name.endswith(".qi"):
                hit = {seq for seq in range(4, 8) if entry_at(seq) <= position < entry_at(seq) + 32}
            else:
                hit = {
                    seq
                    for seq, (stem, entry) in PLACES.items()
                    if stem == "1"
                    and entry.offset
                    and entry.offset <= position < entry.offset + 8 + entry.stored_size
                }
            assert live.keys() >= WHOLE.keys() - hit, (position, bit)
            in_store = {seq for seq in hit if not PLACES[seq][1].offset}
            # nothing tells that a message id or a size in the index is wrong when the body is in the store
            assert {seq: live[seq] for seq in live if seq not in in_store} == {
                seq: WHOLE[seq] for seq in live if seq not in in_store
            } or _expiry_hit(name, position), (position, bit)
            if not hit:
                assert found.damage, "a header is damaged"


def _expiry_hit(name: str, position: int) -> bool:
    """An expiry has no check but that it must be before the year 4253."""
    return name.endswith(".qi") and position >= qi.HEADER_BYTES and position % qi.ENTRY_BYTES >= 24


@pytest.mark.parametrize("name", ["0.qi", "0.qs"])
@pytest.mark.parametrize("change", [b"XXXX", b"RCQI\x03", b"RCQS\x02" + bytes(7) + b"\x01", bytes(64)])
def test_a_header_that_makes_no_sense_loses_nothing(name: str, change: bytes) -> None:
    live, found = opened(damaged(name, change + FILES[name][len(change) :]))
    assert live == WHOLE
    assert [(each.path, each.offset) for each in found.damage] == [(f"{kit.DIRECTORY}/{name}", 0)]


def test_an_entry_that_points_past_the_end_of_the_bodies_is_dropped_and_reported() -> None:
    far = qi.pack_entry(qi.Entry(True, qi.Location.QUEUE_STORE, b"", 1 << 40, 100, 50, 0))
    data = FILES["1.qi"]
    live, found = opened(damaged("1.qi", data[: entry_at(5)] + far + data[entry_at(6) :]))
    assert live == {seq: record for seq, record in WHOLE.items() if seq != 5}
    assert [(each.path, each.offset, each.reason) for each in found.damage] == [
        (f"{kit.DIRECTORY}/1.qs", 1 << 40, "a body is cut off")
    ]


def test_the_body_of_another_message_is_noticed_by_its_size() -> None:
    data = FILES["0.qi"]
    other = PLACES[3][1]._replace(size=40)
    live, found = opened(damaged("0.qi", data[: entry_at(0)] + qi.pack_entry(other) + data[entry_at(1) :]))
    assert live == {seq: record for seq, record in WHOLE.items() if seq != 0}
    assert [each.reason for each in found.damage] == ["a body is shorter or longer than its entry says"]


def test_a_missing_body_file_costs_its_bodies_only() -> None:
    live, found = opened(damaged("1.qs", None))
    assert live == {seq: record for seq, record in WHOLE.items() if seq // N != 1 or seq == 6}
    assert {each.reason for each in found.damage} == {"the body file is missing"}


def test_bodies_without_an_index_file_are_set_aside_as_a_kill_leaves_them_of_a_deleted_segment() -> None:
    live, found = opened(damaged("1.qi", None))
    assert live == {seq: record for seq, record in WHOLE.items() if seq // N != 1}
    assert found.damage == []


def test_a_file_of_headers_alone_is_removed() -> None:
    files = {"7.qi": qi.pack_header(qi.MAGIC, 28, 32), "7.qs": qi.pack_header(qs.MAGIC, 28, 32), "9.qs": b""}
    live, found = opened({**FILES, **files})
    assert live == WHOLE
    assert found.damage == []


@given(st.sampled_from(sorted(FILES)), st.data())
def test_whatever_happens_to_one_file_the_others_are_not_harmed(name: str, data: st.DataObject) -> None:
    whole = FILES[name]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    middle = data.draw(
        st.sampled_from([b"", bytes(end - start), whole[start:end] * 2]) | st.binary(max_size=100)
    )
    live, _ = opened(damaged(name, whole[:start] + middle + whole[end:]))
    number = name.partition(".")[0]
    untouched = {seq for seq in WHOLE if PLACES[seq][0] != number}
    assert {seq: live.get(seq) for seq in untouched} == {seq: WHOLE[seq] for seq in untouched}


@given(
    st.dictionaries(
        st.sampled_from(["0.qi", "0.qs", "1.qi", "1.qs", "x.qi", "-1.qs", "9" * 30 + ".qi"]),
        st.binary(max_size=300),
    )
)
def test_garbage_is_opened(files: dict[str, bytes]) -> None:
    disk = kit.disk()
    for name, data in files.items():
        kit.put_file(disk, name, data)
    index, found = kit.recover(disk, SETTINGS)
    kit.read_all(index, found)
