"""A store after a crash in the middle of a combine, case by case.

Source: docs/reference/message-store.md#crash-points-of-a-combine.
"""

import pytest

from tests.inspect.made_directory import Node, make, record
from tests.support.directories import check

A, C, D, E, F = (make(n, size) for n, size in enumerate((300, 5000, 700, 4096, 200)))
X = make(99, 1234)
"""Acknowledged: nobody refers to it."""
LIVE = [A, C, D, E, F]
SRC = E.record + X.record + F.record
DST = A.record + X.record + C.record + X.record + D.record
V = sum(len(each.record) for each in LIVE)


def zeros(*there):
    return bytes(V - sum(len(part) for part in there))


CRASHES = {
    "before anything": ({"0.rdq": DST, "1.rdq": SRC}, set()),
    "4b, half of the .rdt": ({"0.rdq": DST, "0.rdt": C.record + D.record[:99], "1.rdq": SRC}, set()),
    "4b": ({"0.rdq": DST, "0.rdt": C.record + D.record, "1.rdq": SRC}, set()),
    "4c, truncated": ({"0.rdq": A.record, "0.rdt": C.record + D.record, "1.rdq": SRC}, set()),
    "4c, extended": ({"0.rdq": A.record + zeros(A.record), "0.rdt": C.record + D.record, "1.rdq": SRC}, {1, 2}),
    "4c, half copied back": ({"0.rdq": A.record + C.record + zeros(A.record, C.record), "0.rdt": C.record + D.record, "1.rdq": SRC}, {2}),
    "4c, copied back": (
        {
            "0.rdq": A.record + C.record + D.record + zeros(A.record, C.record, D.record),
            "0.rdt": C.record + D.record,
            "1.rdq": SRC,
        },
        set(),
    ),
    "5, half": ({"0.rdq": A.record + C.record + D.record + E.record + zeros(A.record, C.record, D.record, E.record), "1.rdq": SRC}, set()),
    "8, source not unlinked": ({"0.rdq": b"".join(each.record for each in LIVE), "1.rdq": SRC}, set()),
}  # fmt: skip
"""The files on disk, and the messages that a real 3.10.8 loses ([R3] in docs/reference/message-store.md#crash-points-of-a-combine)."""


@pytest.mark.parametrize("moment", CRASHES)
def test_every_message_is_given_back_and_those_that_rabbitmq_loses_are_marked(moment, tmp_path):
    files, lost = CRASHES[moment]
    node = Node(tmp_path)
    node.in_journal(LIVE)
    for name, data in files.items():
        node.write(name, data)
    status, found = check(tmp_path)
    [queue] = found["queues"]
    assert [row["sha256"] for row in queue["messages"]] == [each.sha256 for each in LIVE]
    assert {n for n, row in enumerate(queue["messages"]) if "salvaged" in row} == lost
    assert found["damaged"] == []
    assert status == (1 if lost else 0)


def test_an_rdt_whose_rdq_is_gone_is_read(tmp_path):
    node = Node(tmp_path)
    node.in_journal(LIVE)
    node.write("0.rdt", C.record, D.record)
    node.write("1.rdq", A.record, E.record, F.record)
    _, found = check(tmp_path)
    marked = {row["seq_id"]: row.get("salvaged", "") for row in found["queues"][0]["messages"]}
    assert marked.keys() == {0, 1, 2, 3, 4}
    assert "there is no 0.rdq" in marked[1]
    assert "" == marked[0] == marked[3]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 4096, 3 << 20])
def test_records_behind_zeros_are_found_and_marked(count, tmp_path):
    node = Node(tmp_path)
    node.in_journal([A, E, F])
    node.write("0.rdq", A.record, bytes(count), E.record, F.record)
    _, found = check(tmp_path)
    assert [row["sha256"] for row in found["queues"][0]["messages"]] == [A.sha256, E.sha256, F.sha256]
    assert all("salvaged" in row for row in found["queues"][0]["messages"][1:])


def test_a_record_of_4096_bytes_behind_a_zero_is_not_read_one_byte_early(tmp_path):
    """Defect S25 (docs/defects.md): size 4096 and an id that ends in FF look like a record of 16 bytes."""
    stored = make(7, 4096 - 16 - (len(make(7, 0).term))).term
    msg_id = bytes(range(15)) + b"\xff"
    assert len(stored) + 16 == 4096
    odd = make(7)._replace(msg_id=msg_id, term=stored.replace(make(7).msg_id, msg_id), body=b"")
    node = Node(tmp_path)
    node.in_journal([A, odd])
    node.write("0.rdq", A.record, bytes(1), record(msg_id, odd.term))
    _, found = check(tmp_path)
    assert [row["seq_id"] for row in found["queues"][0]["messages"]] == [0, 1]


def test_an_intact_copy_is_preferred_to_a_torn_one(tmp_path):
    node = Node(tmp_path)
    node.in_journal([A, E])
    torn = bytearray(E.record)
    torn[200:3000] = bytes(2800)
    torn[24] = 0
    for first, second in ((bytes(torn), E.record), (E.record, bytes(torn))):
        node.write("0.rdq", A.record, first)
        node.write("1.rdq", second)
        _, found = check(tmp_path)
        assert [row["sha256"] for row in found["queues"][0]["messages"]] == [A.sha256, E.sha256]


def test_the_same_id_twice_in_one_file_is_one_message(tmp_path):
    node = Node(tmp_path)
    node.in_journal([A, E])
    node.write("0.rdq", E.record, A.record, E.record)
    status, found = check(tmp_path)
    assert status == 0
    assert len(found["queues"][0]["messages"]) == 2
    [store] = [each for each in found["stores"] if each["kind"] == "msg_store_persistent"]
    assert (store["live"], store["garbage"]) == (len(A.record) + len(E.record), len(E.record))


def test_messages_of_the_transient_store_are_reported_and_not_given_back(tmp_path):
    from tests.inspect.made_directory import journal_publish

    node = Node(tmp_path)
    (node.queue / "journal.jif").write_bytes(
        journal_publish(0, A, persistent=False)
        + journal_publish(1, E)
        + journal_publish(2, F, persistent=False, embedded=True)
        + journal_publish(3, C, persistent=False)
    )
    (node.transient / "0.rdq").write_bytes(A.record)
    node.write("0.rdq", E.record)
    status, found = check(tmp_path)
    [queue] = found["queues"]
    assert status == 0
    assert [row["seq_id"] for row in queue["messages"]] == [1]
    assert [(row["seq_id"], row["reason"], row["readable"]) for row in queue["not_recovered"]] == [
        (0, "not persistent", True),
        (2, "not persistent", True),
        (3, "not persistent", False),
    ]
