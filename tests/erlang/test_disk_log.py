"""disk_log files, ETS dumps and Mnesia's tables of a real RabbitMQ, whole and damaged."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.erlang.terms import encode
from tests.support import golden
from warrenmq.erlang import definitions, disk_log, ets, mnesia
from warrenmq.erlang.values import Atom, Opaque

NODE = "c11-full-mnesia-a"


def logged(*terms, closed=True):
    data = b"\1\2\3\4" + (b"cXM\x0b" if closed else b"\6\7\x08\x09")
    for term in terms:
        inside = encode(term)
        size = struct.pack(">I", len(inside))
        data += size + b"bWLA" + (hashlib.md5(size).digest() if len(inside) >= 65528 else b"") + inside
    return data


def dumps(name):
    for case in golden.CASES:
        for path, data in golden.files(case).items():
            if path.endswith(name):
                yield golden.manifest(case)["stores"][path.removesuffix("/" + name)], data


def test_small_and_large_items_are_read():
    terms = [1, b"x" * 70_000, (Atom("a"), 2), b"y" * (65528 - 6), b"z" * (65528 - 7)]
    assert list(disk_log.items(logged(*terms))) == terms
    assert disk_log.problem(logged(*terms)) is None
    old = b"\1\2\3\4cXM\x0b" + struct.pack(">I", 3) + b"\x0c\x21\x2c\x37" + encode(7)
    assert list(disk_log.items(old)) == [7]


def test_a_file_that_was_not_closed_is_read_all_the_same():
    assert list(disk_log.items(logged(1, 2, closed=False))) == [1, 2]
    assert disk_log.problem(logged(1, 2, closed=False)) == "it was not closed"
    assert disk_log.problem(b"") == "its header is not that of a disk_log file"


def test_reading_goes_on_behind_damage():
    whole = logged(1, 2, 3)
    torn = bytearray(whole)
    torn[8 + 11 + 8] = 0  # the second item's version byte
    assert list(disk_log.items(bytes(torn))) == [1, 3]
    assert disk_log.problem(bytes(torn)) == "bytes 19 to 30 are no item"
    assert disk_log.problem(whole[:-1]) == "bytes 30 to 40 are no item"


@given(st.binary(max_size=200), st.integers(0, 3000), st.sampled_from(definitions.FILES))
def test_no_bytes_can_make_reading_fail(data, at, name):
    whole = golden.files(NODE).get(name, b"")
    damaged = whole[:at] + data + whole[at + len(data) :]
    definitions.read({name: damaged})
    for each in (data, damaged):
        disk_log.problem(each)
        ets.problem(each)
        list(ets.file_summaries(each))


def test_the_files_summaries_count_all_bytes():
    for store, data in dumps("file_summary.ets"):
        assert ets.problem(data) is None
        found = list(ets.file_summaries(data))
        assert [f"{each.file}.rdq" for each in found] == store["rdq"]
        assert sum(each.file_size for each in found) == store["bytes"]
        assert all(each.valid_total_size <= each.file_size for each in found)


def test_summaries_of_3_13_have_no_neighbours():
    record = (Atom("file_summary"), 3, 100, 200, Atom("false"))
    end = [Atom("$end_of_table"), [(Atom("count"), 1)]]
    data = logged((Atom("info"),), record, end)
    assert list(ets.file_summaries(data)) == [ets.FileSummary(3, 100, 200)]
    assert ets.problem(data) is None
    assert ets.problem(logged((Atom("info"),), end)) == "it counts 1 objects and has 0"
    assert ets.problem(logged((Atom("info"),), record)) == "its end is missing"


def test_a_node_s_definitions_are_what_the_broker_listed():
    manifest = golden.manifest(NODE)
    found = definitions.read(golden.files(NODE))
    assert found.unread == 0
    assert found.vhosts == sorted(vhost["name"] for vhost in manifest["vhosts"])

    def flag(value):
        return str(value).lower()

    assert [
        [each.vhost, each.name, flag(each.durable), flag(each.auto_delete)] for each in found.queues
    ] == sorted(row[:4] for row in manifest["listed_queues"] if row[2] == "true")
    durable = {
        (queue["vhost"], queue["name"]): queue["arguments"]
        for queue in manifest["queues"]
        if queue["durable"]
    }
    assert {
        (each.vhost, each.name): {name: value for name, _, value in each.arguments} for each in found.queues
    } == durable
    assert {each.type for each in found.queues} == {"rabbit_classic_queue"}
    assert [
        [each.vhost, each.name, each.type, flag(each.durable), flag(each.auto_delete), flag(each.internal)]
        for each in found.exchanges
    ] == sorted(manifest["exchanges"])
    assert sorted(
        [each.vhost, each.source, "exchange", each.destination, each.destination_kind, each.routing_key]
        for each in found.bindings
    ) == sorted(row[:6] for row in manifest["bindings"] if row[1])
    assert manifest["deleted_queue"] not in {each.name for each in found.queues}


TID = (Atom("tid"), 1, Opaque("pid", bytes.fromhex("5877016100000001000000020000000 3".replace(" ", ""))))
HEADER = (Atom("log_header"), Atom("trans_log"))


def write(key, value):
    return ((Atom("t"), key), (Atom("r"), key, value), Atom("write"))


def delete(key):
    return ((Atom("t"), key), (Atom("t"), key), Atom("delete"))


def commit(decision, *changes):
    return (Atom("commit"), Atom("node"), decision, [], list(changes), [], [], [])


PRESUMED = Atom("presume_commit")
UNDECIDED = (Atom("decision"), TID, Atom("presume_abort"), [], [])


@pytest.mark.parametrize(
    ("log", "values"),
    [
        ([], {b"a": 1, b"b": 3}),
        ([commit(PRESUMED, write(b"c", 4), delete(b"a"))], {b"b": 3, b"c": 4}),
        ([commit(UNDECIDED, delete(b"a"))], {b"a": 1, b"b": 3}),
        (
            [commit(UNDECIDED, delete(b"a")), (Atom("decision"), TID, Atom("aborted"), [], [])],
            {b"a": 1, b"b": 3},
        ),
        ([commit(UNDECIDED, delete(b"a")), (Atom("decision"), TID, Atom("committed"), [], [])], {b"b": 3}),
        ([commit(PRESUMED, ((Atom("other"), b"a"), 0, Atom("delete")))], {b"a": 1, b"b": 3}),
    ],
)
def test_a_table_is_its_dump_and_the_committed_changes_since(log, values):
    files = {
        "t.DCD": logged(HEADER, (Atom("r"), b"a", 1), (Atom("r"), b"b", 2)),
        "t.DCL": logged(HEADER, write(b"b", 3)),
        "LATEST.LOG": logged(HEADER, *log),
    }
    assert {key: value for _, key, value in mnesia.tables(["t"], files)["t"]} == values
