"""Damaged .qi and .qs files: a real RabbitMQ does not start such a queue, or crashes when it reads it."""

import pytest

from tests.inspect.made_directory import Node, make, qi_entry, qi_file, qs_file
from tests.support import golden
from tests.support.directories import check
from warrenmq.mend.repair import repair

CASE = "c05-v2-clean-a"


def queue_with(tmp_path, number):
    """A golden version 2 directory, one of its queues, and the path of its folder."""
    queue = golden.manifest(CASE)["queues"][number]
    directory = golden.lay_out(CASE, tmp_path)
    return directory, queue, directory / queue["dirs"][0]["dir"]


def look(directory, queue):
    status, found = check(directory)
    [mine] = [each for each in found["queues"] if each["name"] == queue["name"]]
    return status, found, mine


def is_true(mine, queue):
    """Check that no message is read back altered."""
    truth = {row["seq_id"]: row["sha256"] for row in golden.as_listed(queue)}
    assert all(truth[row["seq_id"]] == row["sha256"] for row in mine["messages"])


def test_an_index_that_is_cut_anywhere_gives_back_every_whole_entry(tmp_path):
    directory, queue, folder = queue_with(tmp_path, 1)
    data = (folder / "0.qi").read_bytes()
    for size in range(len(data) - 34, len(data)):
        (folder / "0.qi").write_bytes(data[:size])
        status, found, mine = look(directory, queue)
        whole = (size - 64) // 32
        is_true(mine, queue)
        there = {row["seq_id"] for row in mine["messages"]}
        assert {row["seq_id"] for row in golden.as_listed(queue) if row["seq_id"] < whole} <= there
        if (size - 64) % 32:
            assert status == 1
            assert any(each["file"].endswith("0.qi") for each in found["damaged"])
            assert all("salvaged" in row for row in mine["messages"])


def test_a_torn_entry_whose_location_is_whole_is_completed_from_the_body_file(tmp_path):
    made = [make(n) for n in range(3)]
    node = Node(tmp_path)
    bodies, offsets = qs_file(made)
    entries = {n: qi_entry(each, offsets[n], len(each.term)) for n, each in enumerate(made)}
    data = qi_file(entries, 3)
    (node.queue / "0.qs").write_bytes(bodies)
    for torn in range(1, 32):
        (node.queue / "0.qi").write_bytes(data[: 64 + 64 + torn])
        _, found = check(tmp_path)
        expected_count = 3 if torn >= 12 else 2
        assert [row["sha256"] for row in found["queues"][0]["messages"]] == [
            each.sha256 for each in made[:expected_count]
        ], torn


@pytest.mark.parametrize("header", [b"", b"RCQX", b"RCQI\x03", b"RCQI\x02" + bytes(8) + bytes(8)])
@pytest.mark.parametrize("name", ["0.qi", "0.qs"])
def test_a_damaged_header_takes_no_message_with_it(name, header, tmp_path):
    directory, queue, folder = queue_with(tmp_path, 1)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes((header + bytes(64))[:64] + data[64:])
    status, found, mine = look(directory, queue)
    rows = [{"expiry_us": 0, **row} for row in mine["messages"]]
    for row in rows:
        row.pop("salvaged", None)
    assert rows == golden.as_listed(queue)
    assert status == 1
    assert any(each["file"].endswith(name) for each in found["damaged"])


def test_a_body_file_that_is_cut_loses_what_is_cut_and_says_so(tmp_path):
    directory, queue, folder = queue_with(tmp_path, 1)
    data = (folder / "0.qs").read_bytes()
    ends = {row["seq_id"]: row["at"][1] + row["at"][2] for row in (
        row for row in golden.messages(queue)) if row["where"] == "qs"}  # fmt: skip
    for size in (0, 10, 64, 70, len(data) // 2, len(data) - 1):
        (folder / "0.qs").write_bytes(data[:size])
        status, _, mine = look(directory, queue)
        is_true(mine, queue)
        lost = {seq_id for seq_id, end in ends.items() if end > size}
        assert {row["seq_id"] for row in mine["not_recovered"]} == lost
        assert len(mine["messages"]) == queue["recovered"] - len(lost)
        assert status == 1


def test_a_flipped_bit_in_a_body_is_noticed_by_its_checksum(tmp_path):
    directory, queue, folder = queue_with(tmp_path, 1)
    data = bytearray((folder / "0.qs").read_bytes())
    row = golden.messages(queue)[3]
    assert row["where"] == "qs"
    for at in (row["at"][1] + 8, row["at"][1] + row["at"][2] // 2, row["at"][1] + row["at"][2] - 1):
        flipped = bytearray(data)
        flipped[at] ^= 1
        (folder / "0.qs").write_bytes(flipped)
        status, found, mine = look(directory, queue)
        is_true(mine, queue)
        [lost] = mine["not_recovered"]
        assert (lost["seq_id"], lost["readable"], status) == (row["seq_id"], False, 1)
        assert found["damaged"]


@pytest.mark.parametrize("gone", ["0.qi", "0.qs"])
def test_a_missing_file_is_reported(gone, tmp_path):
    directory, queue, folder = queue_with(tmp_path, 1)
    (folder / gone).unlink()
    status, found, mine = look(directory, queue)
    is_true(mine, queue)
    assert status == 1
    assert found["damaged"] or mine["not_recovered"]


@pytest.mark.parametrize("padding", [0, 1, 40])
def test_padding_behind_a_term_is_no_damage(padding, tmp_path):
    made = [make(n) for n in range(4)]
    node = Node(tmp_path)
    bodies, offsets = qs_file(made, padding)
    (node.queue / "0.qs").write_bytes(bodies)
    entries = {n: qi_entry(each, offsets[n], len(each.term) + padding) for n, each in enumerate(made)}
    (node.queue / "0.qi").write_bytes(qi_file(entries, 4))
    status, found = check(tmp_path)
    assert (status, found["damaged"]) == (0, [])
    assert [row["sha256"] for row in found["queues"][0]["messages"]] == [each.sha256 for each in made]
    assert {row["msg_id"] for row in found["queues"][0]["messages"]} == {each.msg_id.hex() for each in made}


def test_files_of_both_versions_are_one_queue(tmp_path):
    """An interrupted conversion: what the new files have is skipped in the old ones."""
    from tests.inspect.made_directory import segment_publish

    made = [make(n) for n in range(6)]
    node = Node(tmp_path)
    bodies, offsets = qs_file(made[:4])
    (node.queue / "0.qs").write_bytes(bodies)
    entries = {n: qi_entry(each, offsets[n], len(each.term)) for n, each in enumerate(made[:4])}
    (node.queue / "0.qi").write_bytes(qi_file(entries, 4))
    (node.queue / "0.idx").write_bytes(
        b"".join(segment_publish(n, each, embedded=True) for n, each in reversed(list(enumerate(made))))
    )
    status, found = check(tmp_path)
    assert status == 0
    assert [row["sha256"] for row in found["queues"][0]["messages"]] == [each.sha256 for each in made]


def test_an_index_file_under_another_number_gives_no_sequence_id_twice(tmp_path):
    """Two files of a queue have each other's bytes: the name tells which sequence ids a file is for, as it does RabbitMQ."""
    made = [make(n) for n in range(6)]
    node = Node(tmp_path)
    node.write("0.rdq", *(each.record for each in made))
    entries = {n: qi_entry(each, None) for n, each in enumerate(made)}
    of_0, of_1, of_2 = (
        qi_file({n: entries[number * 2 + n] for n in range(2)}, 2, first=number * 2, end=number * 2 + 2)
        for number in range(3)
    )
    for name, data in (("0.qi", of_1), ("1.qi", of_0), ("2.qi", of_2)):
        (node.queue / name).write_bytes(data)
    status, found = check(tmp_path)
    assert status == 1
    assert sorted(each["file"].rpartition("/")[2] for each in found["damaged"]) == ["0.qi", "1.qi"]
    rows = found["queues"][0]["messages"]
    assert [row["seq_id"] for row in rows] == list(range(6))
    assert [row["sha256"] for row in rows] == [made[n].sha256 for n in (2, 3, 0, 1, 4, 5)]
    assert {change.file.rpartition("/")[2] for change in repair(str(tmp_path), dry_run=False).changes} == {
        "0.qi",
        "1.qi",
    }
    status, found = check(tmp_path)
    assert (status, found["damaged"]) == (0, [])
    assert [row["sha256"] for row in found["queues"][0]["messages"]] == [row["sha256"] for row in rows]


def test_bytes_behind_the_last_entry_of_a_segment_are_no_message_of_the_next(tmp_path):
    made = [make(n) for n in range(4)]
    node = Node(tmp_path)
    node.write("0.rdq", *(each.record for each in made))
    entries = [qi_entry(each, None) for each in made]
    for number in range(2):
        data = qi_file(
            {n: entries[number * 2 + n] for n in range(2)}, 2, first=number * 2, end=number * 2 + 2
        )
        (node.queue / f"{number}.qi").write_bytes(data + entries[0] * (number == 0))
    status, found = check(tmp_path)
    assert status == 1
    [damage] = found["damaged"]
    assert (damage["file"].rpartition("/")[2], damage["offset"]) == ("0.qi", 128)
    assert [row["sha256"] for row in found["queues"][0]["messages"]] == [each.sha256 for each in made]


def test_a_dry_run_names_the_body_file_that_is_cut_because_its_index_is_mended(tmp_path):
    made = [make(n) for n in range(2)]
    node = Node(tmp_path)
    bodies, offsets = qs_file(made)
    (node.queue / "0.qs").write_bytes(bodies[:-5])
    entries = {n: qi_entry(each, offsets[n], len(each.term)) for n, each in enumerate(made)}
    (node.queue / "0.qi").write_bytes(qi_file(entries, 2))
    would = repair(str(tmp_path), dry_run=True).changes
    assert [change.file.rpartition("/")[2] for change in would] == ["0.qi", "0.qs"]
    assert repair(str(tmp_path), dry_run=False).changes == would
