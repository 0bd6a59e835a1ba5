"""Nothing is lost or taken twice between a sender that adds to a message and the queue that takes from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.schedulers import Worker
from warrenmq.message.queue_message import Publication
from warrenmq.queue.collected import OpenAcks, OpenPublish
from warrenmq.queue.messages import Publisher
from warrenmq.queue.unconfirmed import UNANSWERED
from warrenmq.runtime import Simulation
from warrenmq.runtime.life import inbox_of


@given(st.integers(1, 3), st.lists(st.integers(0, 3)))
def test_each_message_is_taken_once_with_its_id_and_its_row(begun: int, added: list[int]) -> None:
    alike = Publication(bytes(8), 100, b"head", 0, (), True)
    message = OpenPublish(alike, Publisher(), b"0", UNANSWERED, 7, 50, 1_000)
    number, sent = 1, []
    for count, more in zip([begun, *added], [begun - 1, *added], strict=True):
        for _ in range(more):
            message.add(b"%d" % number, UNANSWERED, 1_000 + number)
            number += 1
        message.on_its_way = True
        publish = message.take()
        assert not message.on_its_way
        if not count:
            assert publish is None
            continue
        assert publish is not None
        assert publish.sent_t == 999 + number
        first = number - count
        assert (publish.publication.first_id, publish.sent_seq, publish.sends) == (
            100 + first,
            50 + first,
            count,
        )
        sent += publish.publication.bodies
        ones = list(publish.one_by_one())
        assert [(each.publication.first_id, each.sent_seq, each.sends) for each in ones] == [
            (100 + i, 50 + i, 1) for i in range(first, number)
        ]
        assert [body for each in ones for body in each.publication.bodies] == [*publish.publication.bodies]
    assert sent == [b"%d" % i for i in range(number)]
    assert message.added == number


def test_what_is_added_while_the_queue_takes_is_sent_again_or_taken() -> None:
    acks, sent_again = OpenAcks(1), []

    class Watched(deque[int]):
        def popleft(self) -> int:
            found = super().popleft()
            if found == 1:
                acks.add(3)
                sent_again.append(not acks.on_its_way)
            return found

    acks._added = Watched()
    for tag in (1, 2):
        acks.add(tag)
    acks.on_its_way = True
    taken = acks.take().tags
    assert taken == [1, 2]
    assert sent_again == [True]
    assert acks.take().tags == [3]


def test_two_threads_that_take_at_once_share_what_was_added() -> None:
    acks: OpenAcks = OpenAcks(1)
    other: list[int] = []

    class Watched(deque[int]):
        def popleft(self) -> int:
            if len(self) == 2:
                other.extend(deque.popleft(self) for _ in range(2))
            return super().popleft()

    acks._added = Watched([1, 2, 3])
    assert sorted([*acks.take().tags, *other]) == [1, 2, 3]


@pytest.fixture
def inbox() -> Iterator[Any]:
    with Simulation(1) as runtime:
        yield inbox_of(runtime.start(Worker))


def test_a_message_is_the_newest_only_if_nothing_stands_behind_it(inbox: Any) -> None:
    sends = inbox.send_open, inbox.send
    for mine in sends:
        for its in sends:
            for before in (True, False):
                incoming = inbox.incoming

                class Interrupted:
                    """Another sender sends while this one is about to put its message into the mailbox, or has just done so."""

                    def put(
                        self, item: object, its: Any = its, before: bool = before, incoming: Any = incoming
                    ) -> None:
                        inbox.incoming = incoming
                        assert inbox.newest != "mine", "it is not in yet"
                        if before:
                            its("its")
                        incoming.put(item)
                        if not before:
                            its("its")

                inbox.incoming = Interrupted()
                mine("mine")
                last = "mine" if before else "its"
                assert inbox.newest in (None, last)
                inbox.send_open("alone")
                assert inbox.newest == "alone"
