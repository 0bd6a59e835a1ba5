"""recovery.dets: what each queue of a real RabbitMQ said when it stopped, and what is left of a torn file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import golden
from warrenmq.erlang.consult import consult
from warrenmq.erlang.dets import problem, read_recovery_terms

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
        assert problem(data) is None
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
    assert problem(torn) == f"its header counts 3 objects, {len(read_recovery_terms(torn))} can be read"


@given(data=st.binary(max_size=200), at=st.integers(0, 5000))
def test_no_bytes_can_make_it_fail(data, at):
    whole = next(iter(dets_files("c04-v1-fanout-a").values()))
    damaged = whole[:at] + data + whole[at + len(data) :]
    read_recovery_terms(damaged)
    problem(damaged)
    read_recovery_terms(data)
    assert problem(data)
