"""recovery.dets: what each queue of a real RabbitMQ said when it stopped, and what is left of a torn file."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.erlang.terms import encode
from tests.support import golden
from warrenmq.erlang.consult import consult
from warrenmq.erlang.dets import read_recovery_terms
from warrenmq.erlang.values import Atom

CLEAN = [case for case in golden.CASES if golden.manifest(case)["recovery_terms"]]


def dets_files(case):
    return {path: data for path, data in golden.files(case).items() if path.endswith("/recovery.dets")}


@pytest.mark.parametrize("case", CLEAN)
def test_every_queue_s_terms_are_read(case):
    expected = {
        folder.rpartition("/")[2]: {str(name): value for name, value in consult(terms.encode() + b".")[0]}
        for folder, terms in golden.manifest(case)["recovery_terms"]
    }
    found = {}
    for data in dets_files(case).values():
        found.update(read_recovery_terms(data))
    references = {folder: terms.pop("persistent_ref") for folder, terms in found.items()}
    assert found == expected
    assert all(reference == "undefined" or len(reference) == 16 for reference in references.values())


@pytest.mark.parametrize("case", sorted(set(golden.CASES) - set(CLEAN)))
def test_a_broker_that_was_killed_left_no_terms(case):
    assert [read_recovery_terms(data) for data in dets_files(case).values()] == [{}] * len(dets_files(case))


@given(cut=st.integers(0), case=st.sampled_from(CLEAN))
def test_a_torn_file_gives_what_lies_ahead_of_the_tear(cut, case):
    data = next(iter(dets_files(case).values()))
    whole = read_recovery_terms(data)
    torn = read_recovery_terms(data[: cut % len(data)])
    assert torn.items() <= whole.items()


def test_a_tear_behind_the_first_collection_leaves_its_queue():
    data = next(iter(dets_files("c04-v1-fanout-a").values()))
    first = data.index(bytes.fromhex("12345678"))
    size = int.from_bytes(data[first - 4 : first], "big")
    torn = data[: first - 4 + size]
    assert len(read_recovery_terms(torn)) >= 1


@given(data=st.binary(max_size=200), at=st.integers(0, 5000))
def test_no_bytes_can_make_it_fail(data, at):
    whole = next(iter(dets_files("c04-v1-fanout-a").values()))
    damaged = whole[:at] + data + whole[at + len(data) :]
    read_recovery_terms(damaged)
    read_recovery_terms(data)


def collection(*terms, status=0x12345678):
    data = b"".join(struct.pack(">I", 4 + len(encode(term))) + encode(term) for term in terms)
    return struct.pack(">II", 8 + len(data), status) + data


def dets_file(*collections, count, closed=1):
    header = struct.pack(">9I", 0, 0x00ABCDEF, closed, 1, 9, 256, 256, 1, count)
    return header.ljust(5432, b"\0") + b"".join(
        each.ljust(-len(each) % 16 + len(each), b"\0") for each in collections
    )


def terms(name, **values):
    return (list(name.encode()), [(Atom(key), value) for key, value in values.items()])


def test_queues_that_hash_alike_share_a_collection():
    data = dets_file(collection(terms("A", a=1), terms("B", b=2)), collection(terms("C", c=3)), count=3)
    assert read_recovery_terms(data) == {"A": {"a": 1}, "B": {"b": 2}, "C": {"c": 3}}


def test_freed_objects_are_not_read():
    data = dets_file(collection(terms("A", a=1), status=0x3ABCDEF), collection(terms("A", a=2)), count=1)
    assert read_recovery_terms(data) == {"A": {"a": 2}}


def test_a_collection_is_read_up_to_its_damage():
    whole = collection(terms("A", a=1), terms("B", b=2))
    data = dets_file(whole[:-1] + b"\xff", collection(terms("C", c=3)), count=3)
    assert read_recovery_terms(data) == {"A": {"a": 1}, "C": {"c": 3}}


def test_a_size_that_is_damaged_hides_no_other_collection():
    whole = collection(terms("A", a=1))
    for size in (0, 9, len(whole) + 1, 2**32 - 1):
        data = dets_file(struct.pack(">I", size) + whole[4:], collection(terms("C", c=3)), count=2)
        assert read_recovery_terms(data) in ({"A": {"a": 1}, "C": {"c": 3}}, {"C": {"c": 3}})


def test_a_file_that_was_not_closed_is_read():
    data = dets_file(collection(terms("A", a=1)), count=0, closed=0)
    assert read_recovery_terms(data) == {"A": {"a": 1}}


def test_objects_that_are_no_queue_s_terms_are_left_out():
    strange = [(b"bytes", [(Atom("a"), 1), (b"b", 2), 3]), ([300], []), (5, []), (b"\xff", []), Atom("x")]
    assert read_recovery_terms(dets_file(collection(*strange), count=5)) == {"bytes": {"a": 1}}
