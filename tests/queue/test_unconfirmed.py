"""A publisher is answered when the last part of its publication is safe, whatever the order."""

from hypothesis import given
from hypothesis import strategies as st

from warrenmq.queue.unconfirmed import Unconfirmed


class Promise:
    def __init__(self) -> None:
        self.answers: list[str] = []

    def confirm(self) -> None:
        self.answers.append("confirm")

    def nack(self, why: str) -> None:
        self.answers.append(why)


def ids(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


def test_embedded_bodies_wait_for_the_index_sync_only() -> None:
    owed = Unconfirmed()
    publication = (0, 3, 1, Promise())
    owed.add(publication, [])
    assert owed.unsynced
    assert owed.index_synced() == [publication]
    assert not owed
    assert owed.index_synced() == []


@given(st.permutations(["index", 1, 2]))
def test_bodies_in_the_store_wait_for_both_in_any_order(order: list[object]) -> None:
    owed = Unconfirmed()
    publication = (5, 2, 1, Promise())
    owed.add(publication, ids(1, 2))
    for step in order[:-1]:
        assert (owed.index_synced() if step == "index" else owed.on_disk(ids(step))) == []
        assert owed
    last = order[-1]
    assert (owed.index_synced() if last == "index" else owed.on_disk(ids(last))) == [publication]
    assert not owed


def test_reports_of_unknown_bodies_and_second_reports_change_nothing() -> None:
    owed = Unconfirmed()
    owed.add((0, 1, 1, Promise()), ids(1))
    assert owed.on_disk(ids(9)) == []
    assert owed.on_disk(ids(1)) == []
    assert owed.on_disk(ids(1)) == []
    assert len(owed.index_synced()) == 1


def test_everybody_without_an_answer_is_nacked() -> None:
    owed = Unconfirmed()
    answered, embedded, stored, half = (Promise() for _ in range(4))
    owed.add((0, 1, 1, answered), [])
    for publication in owed.index_synced():
        publication[3].confirm()
    owed.add((1, 1, 2, half), ids(2))
    owed.index_synced()
    owed.add((2, 1, 3, embedded), [])
    owed.add((3, 1, 4, stored), ids(4))
    owed.nack_all("gone")
    assert answered.answers == ["confirm"]
    assert all(set(promise.answers) == {"gone"} for promise in (embedded, stored, half))


def test_what_is_added_later_is_not_outstanding_from_before() -> None:
    """So a drain ends though publishers go on."""
    owed, promise = Unconfirmed(), Promise()
    owed.add((0, 1, 1, promise), [])
    owed.add((1, 2, 2, promise), ids(2, 3))
    before = owed.outstanding()
    assert before
    owed.index_synced()
    owed.add((3, 1, 4, promise), [])
    owed.add((4, 1, 5, promise), ids(5))
    assert before, "two bodies are not reported yet"
    owed.on_disk(ids(3))
    assert before
    owed.on_disk(ids(2))
    assert not before
    assert owed
    assert owed.outstanding()
